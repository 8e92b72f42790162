// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Inputs.h"

#include "base/Convert.h"
#include "base/Random.h"
#include "io/Npy.h"
#include "io/Safetensors.h"
#include "support/CommandLine.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Path.h"

#include <cmath>
#include <cstring>

using namespace moira;
using namespace moira::tools;
using namespace moira::runtime;

/// Tokens of a run that says nothing else.
static constexpr int64_t defaultTokens = 256;

//===----------------------------------------------------------------------===//
// Files
//===----------------------------------------------------------------------===//

/// Opens "FILE.npy", "FILE.safetensors" or "FILE.safetensors:TENSOR". Without a
/// tensor's name, the file's only tensor or the one called like the input.
static Result<io::MappedTensor> openTensor(llvm::StringRef value,
                                           const TensorSpec &spec) {
  if (value.ends_with(".npy")) {
    io::NpyOptions options;
    options.voidAsBf16 = spec.dtype == DataType::BF16;
    return io::readNpy(value.str(), options);
  }
  llvm::StringRef path = value, tensor;
  size_t place = value.rfind(".safetensors:");
  if (place != llvm::StringRef::npos) {
    size_t colon = value.find(':', place);
    path = value.take_front(colon);
    tensor = value.drop_front(colon + 1);
  } else if (!value.ends_with(".safetensors")) {
    return Status(MOIRA_INVALID_ARGUMENT,
                  concat(value.str(), ": expected a file name that ends in "
                                      ".npy, .safetensors or "
                                      ".safetensors:TENSOR, got another"));
  }
  auto file = io::Safetensors::open(path.str());
  if (!file.ok())
    return file.status();
  std::string name = tensor.str();
  if (name.empty()) {
    std::vector<std::string> names = (*file)->names();
    name = names.size() == 1 ? names[0] : spec.name;
  }
  return (*file)->tensor(name);
}

/// Checks what a file holds against the entry's signature. Floats of other
/// widths are converted.
static llvm::Error checkFile(const io::MappedTensor &found,
                             const TensorSpec &spec, llvm::StringRef value) {
  bool fits = isConvertible(found.dtype, spec.dtype) &&
              found.shape.size() == spec.shape.size();
  for (size_t i = 0; fits && i < found.shape.size(); ++i)
    fits = spec.shape[i] == -1 || spec.shape[i] == found.shape[i];
  if (fits)
    return llvm::Error::success();
  return llvm::createStringError(value + ": input '" + spec.name +
                                 "': expected " +
                                 toString(spec.dtype, spec.shape) + ", got " +
                                 toString(found.dtype, found.shape));
}

llvm::Error Inputs::give(Entry &entry, llvm::StringRef value) {
  entry.origin = value.str();
  double number = 0;
  if (entry.spec.shape.empty() && llvm::to_float(value, number)) {
    entry.number = number;
    return llvm::Error::success();
  }
  Result<io::MappedTensor> tensor = openTensor(value, entry.spec);
  if (!tensor.ok())
    return toError(tensor.status());
  if (llvm::Error error = checkFile(*tensor, entry.spec, value))
    return error;
  entry.mapped = std::move(*tensor);
  return llvm::Error::success();
}

/// Gives each --input to the entry's input that it names, or to the next one.
llvm::Error Inputs::assign(const RunOptions &options) {
  std::vector<bool> given(entries.size());
  size_t next = 0;
  for (llvm::StringRef text : options.inputs) {
    auto [name, value] = text.split('=');
    auto byName = llvm::find_if(entries, [&, name = name](const Entry &entry) {
      return entry.spec.name == name;
    });
    size_t index = byName - entries.begin();
    if (!text.contains('=')) {
      index = next++;
      value = text;
    }
    if (index >= entries.size()) {
      std::string known;
      for (const Entry &entry : entries)
        known += (known.empty() ? "'" : ", '") + entry.spec.name + "'";
      return llvm::createStringError(
          "--input: expected one of the inputs " +
          (known.empty() ? "(the entry has none)" : known) + ", got '" + text +
          "'");
    }
    if (given[index])
      return llvm::createStringError("--input: expected input '" +
                                     entries[index].spec.name +
                                     "' once, got '" + text + "' too");
    given[index] = true;
    if (llvm::Error error = give(entries[index], value))
      return error;
  }
  return llvm::Error::success();
}

//===----------------------------------------------------------------------===//
// Shapes
//===----------------------------------------------------------------------===//

llvm::Expected<Inputs> Inputs::plan(const EntrySpec &entry,
                                    const RunOptions &options) {
  Inputs inputs;
  inputs.seed = options.seed;
  inputs.account = std::make_shared<MemoryAccount>();
  for (const TensorSpec &spec : entry.inputs) {
    inputs.entries.emplace_back();
    inputs.entries.back().spec = spec;
  }
  if (llvm::Error error = inputs.assign(options))
    return error;

  // Files first: the tokens of one are the tokens of all.
  std::optional<int64_t> tokens = options.tokens;
  for (Entry &entry : inputs.entries)
    for (size_t i = 0; entry.mapped && i < entry.spec.shape.size(); ++i)
      if (entry.spec.shape[i] == -1 && !tokens)
        tokens = entry.mapped->shape[i];
  for (Entry &entry : inputs.entries) {
    Shape shape = entry.mapped ? entry.mapped->shape : entry.spec.shape;
    for (int64_t &size : shape)
      size = size == -1 ? tokens.value_or(defaultTokens) : size;
    if (!compactBytes(entry.spec.dtype, shape))
      return llvm::createStringError("input '" + entry.spec.name +
                                     "': expected a size that fits 64 bits, "
                                     "got " +
                                     toString(entry.spec.dtype, shape));
    inputs.tensors.push_back({entry.spec.dtype, shape, nullptr});
    if (shape.empty() && !entry.mapped && !entry.number) {
      entry.number = 1;
      entry.origin = "1";
    }
  }
  return inputs;
}

int64_t Inputs::rows() const {
  return tensors.empty() || tensors[0].shape.empty() ? 0 : tensors[0].shape[0];
}

int64_t Inputs::bytes() const {
  int64_t all = 0;
  for (const TensorView &view : tensors)
    all += *compactBytes(view.dtype, view.shape);
  return all;
}

//===----------------------------------------------------------------------===//
// Data
//===----------------------------------------------------------------------===//

/// Writes a number as an element.
static void storeNumber(DataType dtype, double number, void *target) {
  if (isFloat(dtype)) {
    convert(DataType::F64, &number, dtype, target, 1);
    return;
  }
  auto integer = static_cast<int64_t>(number);
  std::memcpy(target, &integer, byteSize(dtype)); // little-endian
}

llvm::Error Inputs::fillOne(Entry &entry, TensorView &view) {
  int64_t bytes = *compactBytes(view.dtype, view.shape);
  int64_t count = bytes / byteSize(view.dtype);
  if (entry.mapped && entry.mapped->dtype == view.dtype &&
      reinterpret_cast<uintptr_t>(entry.mapped->data) % byteSize(view.dtype) ==
          0) {
    view.data = entry.mapped->data;
    return llvm::Error::success();
  }
  Result<Storage> storage =
      Storage::allocate(account, MemoryKind::Workspace, bytes);
  if (!storage.ok())
    return toError(
        storage.status().within(concat("input '", entry.spec.name, "'")));
  entry.storage = std::move(*storage);
  void *data = entry.storage.data();
  if (entry.mapped)
    convert(entry.mapped->dtype, entry.mapped->data, view.dtype, data, count);
  else if (entry.number)
    storeNumber(view.dtype, *entry.number, data);
  else if (view.dtype == DataType::I1)
    std::memset(data, 1, bytes); // a mask that keeps every token
  else                           // variance 1
    fillUniform(view.dtype, data, 0, count,
                streamKey(seed, "input " + entry.spec.name), std::sqrt(3.0));
  view.data = data;
  return llvm::Error::success();
}

llvm::Error Inputs::fill() {
  for (size_t i = 0; i < entries.size(); ++i)
    if (llvm::Error error = fillOne(entries[i], tensors[i]))
      return error;
  return llvm::Error::success();
}
