// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Arguments.h"

#include "base/Convert.h"
#include "io/Npy.h"
#include "support/CommandLine.h"

#include <cstring>

using namespace moira;
using namespace moira::tools;
using namespace moira::runtime;

const char *const moira::tools::argumentHelp =
    "next argument: i32:N, i64:N, f32:X, null, in:[TYPE:]FILE.npy, "
    "out:TYPE[AxB]:FILE.npy, inout:FILE.npy:FILE.npy";

static llvm::Error unknown(llvm::StringRef text) {
  return llvm::createStringError(
      "--arg: expected a number, null, in, out or inout, got '%s'",
      text.str().c_str());
}

template <typename T> static EmulatedArgument numberArgument(const T &value) {
  EmulatedArgument argument;
  argument.size = sizeof(T);
  memcpy(argument.bytes, &value, sizeof(T));
  return argument;
}

/// Memory with the values, or 0xff where there are none.
static llvm::Expected<EmulatedArgument>
allocate(DataType dtype, const Shape &shape, const void *values,
         std::string output, Device &device, DeviceQueue queue) {
  std::optional<int64_t> bytes = compactBytes(dtype, shape);
  if (!bytes)
    return llvm::createStringError("--arg: expected a size of 64 bits, got %s",
                                   toString(dtype, shape).c_str());
  Result<void *> memory = device.allocate(*bytes);
  if (!memory.ok())
    return toError(memory.status());
  Status status = values ? device.copyIn(*memory, values, *bytes, queue)
                         : device.fill(*memory, 0xff, *bytes, queue);
  if (status.ok())
    status = device.synchronize(queue);
  if (!status.ok())
    return toError(status);
  EmulatedArgument argument = numberArgument(*memory);
  argument.dtype = dtype;
  argument.shape = shape;
  argument.output = std::move(output);
  return argument;
}

static llvm::Expected<EmulatedArgument>
readInput(llvm::StringRef type, llvm::StringRef path, std::string output,
          Device &device, DeviceQueue queue) {
  Result<io::MappedTensor> tensor = io::readNpy(path.str());
  if (!tensor.ok())
    return toError(tensor.status());
  DataType dtype = tensor->dtype;
  if (!type.empty()) {
    std::optional<DataType> wanted = parseDataType(type.str());
    if (!wanted || !isConvertible(dtype, *wanted))
      return llvm::createStringError(
          "--arg: expected a type that %s converts to, got '%s'", name(dtype),
          type.str().c_str());
    dtype = *wanted;
  }
  int64_t count = 1;
  for (int64_t size : tensor->shape)
    count *= size;
  std::vector<unsigned char> values(count * byteSize(dtype));
  convert(tensor->dtype, tensor->data, dtype, values.data(), count);
  return allocate(dtype, tensor->shape, values.data(), std::move(output),
                  device, queue);
}

/// "f32[32x8]".
static llvm::Expected<EmulatedArgument> readOutput(llvm::StringRef text,
                                                   llvm::StringRef path,
                                                   Device &device,
                                                   DeviceQueue queue) {
  auto [type, sizes] = text.split('[');
  std::optional<DataType> dtype = parseDataType(type.str());
  Shape shape;
  bool isShape = sizes.consume_back("]");
  llvm::SmallVector<llvm::StringRef> parts;
  sizes.split(parts, 'x', -1, /*KeepEmpty=*/false);
  for (llvm::StringRef part : parts) {
    int64_t size = 0;
    isShape &= !part.getAsInteger(10, size) && size >= 0;
    shape.push_back(size);
  }
  if (!dtype || !isShape || path.empty())
    return llvm::createStringError(
        "--arg: expected out:TYPE[AxB]:FILE.npy, got 'out:%s:%s'",
        text.str().c_str(), path.str().c_str());
  return allocate(*dtype, shape, nullptr, path.str(), device, queue);
}

llvm::Expected<EmulatedArgument>
moira::tools::readArgument(llvm::StringRef text, Device &device,
                           DeviceQueue queue) {
  if (text == "null")
    return numberArgument<void *>(nullptr);
  auto [kind, rest] = text.split(':');
  if (kind == "i32" || kind == "i64") {
    int64_t number = 0;
    if (rest.getAsInteger(0, number) ||
        (kind == "i32" && number != int32_t(number)))
      return unknown(text);
    return kind == "i64" ? numberArgument(number)
                         : numberArgument(int32_t(number));
  }
  if (kind == "f32") {
    double number = 0;
    if (rest.getAsDouble(number))
      return unknown(text);
    return numberArgument(float(number));
  }
  auto [first, second] = rest.split(':');
  if (kind == "in")
    return readInput(second.empty() ? "" : first,
                     second.empty() ? first : second, "", device, queue);
  if (kind == "out")
    return readOutput(first, second, device, queue);
  if (kind == "inout" && !second.empty())
    return readInput("", first, second.str(), device, queue);
  return unknown(text);
}

llvm::Error moira::tools::writeArgument(const EmulatedArgument &argument,
                                        Device &device, DeviceQueue queue) {
  if (argument.output.empty())
    return llvm::Error::success();
  std::vector<unsigned char> values(
      *compactBytes(argument.dtype, argument.shape));
  void *memory = nullptr;
  memcpy(&memory, argument.bytes, sizeof(memory));
  Status status =
      device.copyOut(values.data(), memory, int64_t(values.size()), queue);
  if (status.ok())
    status = device.synchronize(queue);
  if (status.ok())
    status = io::writeNpy(argument.output, argument.dtype, argument.shape,
                          values.data());
  return toError(status);
}
