// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Run.h"

#include "base/Convert.h"
#include "base/Random.h"
#include "session/BundleFile.h"
#include "session/Session.h"

#include <algorithm>
#include <cstring>
#include <numeric>

using namespace moira;
using namespace moira::tools;
using namespace moira::runtime;

namespace {
/// Tensors of a device.
class DeviceTensors {
public:
  explicit DeviceTensors(std::shared_ptr<Device> given)
      : device(std::move(given)) {}
  ~DeviceTensors() {
    for (void *block : blocks)
      (void)device->release(block);
    if (queue)
      (void)device->destroyQueue(queue);
  }
  Result<TensorView> make(const MadeInput &input, size_t index);
  /// Of no values yet.
  Result<void *> allocate(int64_t bytes);

private:
  std::shared_ptr<Device> device;
  DeviceQueue queue = 0;
  std::vector<void *> blocks;
};
} // namespace

/// What the host makes of an input: all of it, or the block that is repeated.
static Result<std::vector<char>> makeBytes(const MadeInput &input,
                                           int64_t count, size_t index) {
  std::vector<char> bytes(count * byteSize(input.dtype));
  PhiloxKey key = streamKey(index, "gpu-check");
  if (input.fill == "uniform" || input.fill == "repeat") {
    fillUniform(input.dtype, bytes.data(), 0, count, key, input.bound);
    return bytes;
  }
  bool isI64 = input.dtype == DataType::I64;
  if (input.dtype != DataType::I32 && !isI64)
    return Status(MOIRA_INVALID_ARGUMENT,
                  concat("input ", index,
                         ": expected 'uniform' or 'repeat' of ",
                         name(input.dtype), ", got '", input.fill, "'"));
  std::vector<int32_t> values(count, int32_t(input.value));
  if (input.fill == "permutation") {
    std::iota(values.begin(), values.end(), 0);
    // Fisher and Yates.
    for (int64_t i = count - 1; i > 0; --i)
      std::swap(values[i], values[philox({uint32_t(i)}, key)[0] % (i + 1)]);
  } else if (input.fill != "even") {
    return Status(MOIRA_INVALID_ARGUMENT,
                  concat("input ", index,
                         ": expected 'uniform', 'repeat', "
                         "'permutation' or 'even', got '",
                         input.fill, "'"));
  }
  for (int64_t i = 0; i < count; ++i) {
    int64_t wide = values[i];
    std::memcpy(bytes.data() + i * byteSize(input.dtype), &wide,
                byteSize(input.dtype));
  }
  return bytes;
}

Result<void *> DeviceTensors::allocate(int64_t bytes) {
  Result<void *> block = device->allocate(bytes);
  if (block.ok())
    blocks.push_back(*block);
  return block;
}

Result<TensorView> DeviceTensors::make(const MadeInput &input, size_t index) {
  std::optional<int64_t> all = compactBytes(input.dtype, input.shape);
  if (!all)
    return Status(MOIRA_INVALID_ARGUMENT,
                  concat("input ", index, ": expected a shape, got ",
                         toString(input.shape)));
  int64_t block = *all;
  if (input.fill == "repeat")
    block = std::min<int64_t>(block, int64_t(32) << 20);
  Result<std::vector<char>> bytes =
      makeBytes(input, block / byteSize(input.dtype), index);
  if (!bytes.ok())
    return bytes.status();
  if (!queue) {
    Result<DeviceQueue> made = device->createQueue();
    if (!made.ok())
      return made.status();
    queue = *made;
  }
  Result<void *> memory = allocate(*all);
  if (!memory.ok())
    return memory.status();
  auto *data = static_cast<char *>(*memory);
  MOIRA_RETURN_IF_ERROR(device->copyIn(data, bytes->data(), block, queue));
  for (int64_t done = block; done < *all; done += block)
    MOIRA_RETURN_IF_ERROR(device->copyWithin(
        data + done, data, std::min(block, *all - done), queue));
  MOIRA_RETURN_IF_ERROR(device->synchronize(queue));
  return TensorView{input.dtype, input.shape, data, /*onDevice=*/true};
}

Result<Timing> tools::measureCase(const MeasuredCase &measured, int warmUps,
                                  int runs, const OpenDevice &open) {
  auto device = open("");
  if (!device.ok())
    return device.status();
  auto file = BundleFile::open(measured.bundle);
  if (!file.ok())
    return file.status();
  auto program = Program::load(*file);
  if (!program.ok())
    return program.status();
  SessionOptions options;
  options.device = *device;
  options.threads = 1;
  auto session = Session::create(*program, options);
  if (!session.ok())
    return session.status();
  DeviceTensors tensors(*device);
  std::vector<TensorView> inputs;
  for (size_t i = 0; i < measured.inputs.size(); ++i) {
    Result<TensorView> made = tensors.make(measured.inputs[i], i);
    if (!made.ok())
      return made.status();
    inputs.push_back(*made);
  }
  const Manifest &manifest = (*program)->manifest();
  const EntrySpec &entry = manifest.entries.front();
  std::vector<ResultTensor> results(entry.results.size());
  for (ResultTensor &result : results)
    result.onDevice = true;
  std::vector<double> seconds;
  for (int run = 0; run < warmUps + runs; ++run) {
    // The first step allocates results; the others write to the same.
    MOIRA_RETURN_IF_ERROR((*session)->invoke(entry.name, inputs, results));
    if (run >= warmUps)
      seconds.push_back((*session)->statistics().back().deviceSeconds);
  }
  std::sort(seconds.begin(), seconds.end());
  StepRow row = (*session)->statistics().back();
  Timing timing;
  timing.runs = runs;
  timing.launches = row.launches;
  timing.waits = row.waits;
  timing.least = seconds.front();
  timing.median = seconds[seconds.size() / 2];
  for (const LayerRow &layer : row.layers)
    for (int32_t count : layer.counts)
      timing.mostRows = std::max<int64_t>(timing.mostRows, count);
  return timing;
}
