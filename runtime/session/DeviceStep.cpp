// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "session/DeviceStep.h"

#include "session/StepContext.h"

#include <algorithm>
#include <atomic>
#include <cstring>

using namespace moira;
using namespace moira::runtime;

namespace moira::runtime {
/// Memory of a device. Results give theirs back from any thread.
class DeviceMemory final : public BlockSource {
public:
  explicit DeviceMemory(std::shared_ptr<Device> device)
      : device(std::move(device)) {}
  void *allocate(int64_t bytes) override {
    ++count;
    Result<void *> memory = device->allocate(bytes);
    return memory.ok() ? *memory : nullptr;
  }
  void release(void *memory) override { (void)device->release(memory); }

  std::atomic<int64_t> count{0};

private:
  std::shared_ptr<Device> device;
};
} // namespace moira::runtime

DeviceStep::DeviceStep(std::shared_ptr<const Program> givenProgram,
                       std::shared_ptr<Device> device,
                       std::shared_ptr<MemoryAccount> givenAccount,
                       std::shared_ptr<DeviceMemory> source)
    : program(std::move(givenProgram)), gpu(std::move(device)),
      account(std::move(givenAccount)), memory(std::move(source)),
      workspace(account, memory) {}

std::shared_ptr<BlockSource> DeviceStep::source() const { return memory; }

int64_t DeviceStep::takeAllocations() { return memory->count.exchange(0); }

DeviceStep::~DeviceStep() {
  if (queue)
    (void)gpu->destroyQueue(queue);
  for (Event event : {begun, ended})
    if (event)
      (void)gpu->destroyEvent(event);
}

//===----------------------------------------------------------------------===//
// What generated code calls
//===----------------------------------------------------------------------===//

namespace moira::runtime {
/// The functions of moira_device. Nothing is thrown over them.
struct DeviceApi {
  template <typename Action>
  static bool guarded(moira_ctx *ctx, const Action &action) {
    StepContext &step = *static_cast<StepContext *>(ctx->session);
    if (step.hasFailed())
      return false;
    try {
      Status status = action(*step.device());
      if (status.ok())
        return true;
      step.fail(status.code, status.message);
    } catch (const std::exception &error) {
      step.fail(MOIRA_OUT_OF_MEMORY, error.what());
    }
    return false;
  }

  static void launch(moira_ctx *ctx, int64_t kernel, int64_t grid,
                     void *const *arguments) {
    guarded(ctx, [&](DeviceStep &device) {
      return device.launch(kernel, grid, arguments);
    });
  }
  static void encode(moira_ctx *ctx, const moira_tensor_box *box, void *map) {
    std::memset(map, 0, MOIRA_TENSOR_MAP_BYTES);
    guarded(ctx, [&](DeviceStep &device) { return device.encode(*box, map); });
  }
  static void copy(moira_ctx *ctx, void *to, const void *from, int64_t bytes) {
    guarded(ctx,
            [&](DeviceStep &device) { return device.copy(to, from, bytes); });
  }
  static void read(moira_ctx *ctx, void *to, const void *from, int64_t bytes) {
    bool isRead = guarded(
        ctx, [&](DeviceStep &device) { return device.read(to, from, bytes); });
    if (!isRead)
      std::memset(to, 0, bytes);
  }
  static void write(moira_ctx *ctx, void *to, const void *from, int64_t bytes) {
    guarded(ctx,
            [&](DeviceStep &device) { return device.write(to, from, bytes); });
  }
};
} // namespace moira::runtime

Result<std::unique_ptr<DeviceStep>>
DeviceStep::create(std::shared_ptr<const Program> program,
                   std::shared_ptr<Device> device,
                   std::shared_ptr<MemoryAccount> account) {
  auto memory = std::make_shared<DeviceMemory>(device);
  std::unique_ptr<DeviceStep> step(
      new DeviceStep(std::move(program), std::move(device), std::move(account),
                     std::move(memory)));
  MOIRA_RETURN_IF_ERROR(step->loadKernels());
  Result<DeviceQueue> queue = step->gpu->createQueue();
  if (!queue.ok())
    return queue.status();
  step->queue = *queue;
  for (Event *event : {&step->begun, &step->ended}) {
    Result<Event> made = step->gpu->createTimedEvent();
    if (!made.ok())
      return made.status();
    *event = *made;
  }
  step->functions = {
      MOIRA_DEVICE_ABI_VERSION,  sizeof(moira_device), step->gpu->processors(),
      step->gpu->architecture(), DeviceApi::launch,    DeviceApi::encode,
      DeviceApi::copy,           DeviceApi::read,      DeviceApi::write};
  return step;
}

Status DeviceStep::launch(int64_t index, int64_t grid, void *const *arguments) {
  const DeviceSpec &spec = *program->manifest().device;
  if (index < 0 || index >= int64_t(kernels.size()))
    return Status(MOIRA_FAILED,
                  concat("launch: expected one of ", kernels.size(),
                         " kernels, got number ", index));
  if (grid == 0)
    return Status();
  const KernelSpec &kernel = spec.kernels[index];
  if (!kernels[index])
    return Status(MOIRA_FAILED,
                  concat("kernel ", kernel.name, ": expected a GPU of ",
                         spec.images[kernel.image].arch, ", got one of sm_",
                         gpu->architecture()));
  LaunchShape shape;
  shape.grid.x = static_cast<int32_t>(std::min<int64_t>(grid, INT32_MAX));
  shape.block.x = kernel.threads;
  shape.dynamicShared = kernel.shared;
  values.clear();
  for (size_t i = 0; i < kernel.parameters.size(); ++i)
    values.push_back({arguments[i], kernel.parameters[i]});
  ++launchCount;
  return gpu->launch(*kernels[index], shape, values, queue);
}

Status DeviceStep::encode(const moira_tensor_box &given, void *map) {
  TensorBox box;
  box.base = given.base;
  box.rank = given.rank;
  box.isFloat16 = given.is_float16 != 0;
  int64_t bytes = box.elementBytes;
  for (int i = 0; i < given.rank; ++i) {
    // A kernel that has nothing to do never reads its maps.
    if (given.sizes[i] == 0)
      return Status();
    box.sizes[i] = given.sizes[i];
    box.box[i] = static_cast<int32_t>(given.box[i]);
    if (i > 0)
      box.strides[i - 1] = bytes;
    bytes *= given.sizes[i];
  }
  Result<EncodedTensor> encoded = gpu->encode(box);
  if (!encoded.ok())
    return encoded.status();
  std::memcpy(map, encoded->bytes, MOIRA_TENSOR_MAP_BYTES);
  return Status();
}

Status DeviceStep::copy(void *to, const void *from, int64_t bytes) {
  return to == from ? Status() : gpu->copyWithin(to, from, bytes, queue);
}

Status DeviceStep::read(void *to, const void *from, int64_t bytes) {
  ++waitCount;
  noteHost();
  MOIRA_RETURN_IF_ERROR(gpu->copyOut(to, from, bytes, queue));
  return gpu->synchronize(queue);
}

Status DeviceStep::write(void *to, const void *from, int64_t bytes) {
  if (bytes < 0)
    return Status(MOIRA_FAILED,
                  concat("write: expected 0 or more bytes, got ", bytes));
  noteHost();
  if (bytes > int64_t(sizeof(int64_t)))
    return gpu->copyIn(to, from, bytes, queue);
  // The copy may be made much later.
  numbers.push_back(0);
  std::memcpy(&numbers.back(), from, bytes);
  return gpu->copyIn(to, &numbers.back(), bytes, queue);
}

//===----------------------------------------------------------------------===//
// Ranks
//===----------------------------------------------------------------------===//

Status DeviceStep::settle() {
  if (!gpu->isHostAccessible())
    return Status(MOIRA_UNAVAILABLE,
                  concat("expected a device whose memory the host can reach, "
                         "got ",
                         gpu->name()));
  ++waitCount;
  noteHost();
  return gpu->synchronize(queue);
}

void DeviceStep::keepCounts(const int32_t *matrix, int64_t count) {
  matrices[matrix].assign(matrix, matrix + count);
}

const int32_t *DeviceStep::findCounts(const int32_t *matrix) const {
  auto found = matrices.find(matrix);
  return found == matrices.end() ? nullptr : found->second.data();
}

Status DeviceStep::putCounts(int32_t *to, const std::vector<int32_t> &given) {
  counts.push_back(given);
  return gpu->copyIn(to, counts.back().data(),
                     int64_t(given.size() * sizeof(int32_t)), queue);
}

//===----------------------------------------------------------------------===//
// Memory around a step
//===----------------------------------------------------------------------===//

Status DeviceStep::grow(Storage &place, MemoryKind kind, int64_t bytes) {
  if (place.data() && place.size() >= bytes)
    return Status();
  place = Storage();
  // The device has an address for nothing too.
  Result<Storage> storage =
      Storage::allocate(account, kind, std::max<int64_t>(bytes, 1), memory);
  if (!storage.ok())
    return storage.status();
  place = std::move(*storage);
  return Status();
}

Status DeviceStep::updateParameters(const ParameterTable &parameters) {
  size_t count = program->manifest().parameters.size();
  if (packed.empty()) {
    parameterStorage.resize(count);
    packed.assign(std::max<size_t>(count, 1), {nullptr, 0});
    versions.resize(count);
  }
  bool any = false;
  for (size_t i = 0; i < count; ++i) {
    if (packed[i].data && versions[i] == parameters.version(int(i)))
      continue;
    any = true;
    moira_param host = parameters.params()[i];
    MOIRA_RETURN_IF_ERROR(
        grow(parameterStorage[i], MemoryKind::Parameters, host.bytes));
    MOIRA_RETURN_IF_ERROR(
        gpu->copyIn(parameterStorage[i].data(), host.data, host.bytes, queue));
    packed[i] = {parameterStorage[i].data(), host.bytes};
    versions[i] = parameters.version(int(i));
  }
  if (!any)
    return Status();
  // Copies of a step that fails may not read what the host changes next, and
  // what failed is not there.
  Status status = gpu->synchronize(queue);
  if (!status.ok())
    packed.clear();
  return status;
}

Status DeviceStep::begin(const EntrySpec &entry,
                         const std::vector<TensorView> &inputs,
                         std::vector<moira_buffer> &buffers) {
  if (captures) // an exception has left a step
    (void)endWork(/*failed=*/true);
  kept = nullptr;
  launchCount = waitCount = 0;
  deviceSeconds = 0;
  outputCount = 0;
  loads.clear();
  numbers.clear();
  counts.clear();
  matrices.clear();
  if (inputStorage.size() < entry.inputs.size())
    inputStorage.resize(entry.inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].shape.empty() || inputs[i].onDevice)
      continue;
    int64_t bytes = *compactBytes(inputs[i].dtype, inputs[i].shape);
    Status status = grow(inputStorage[i], MemoryKind::Workspace, bytes);
    if (status.ok())
      status =
          gpu->copyIn(inputStorage[i].data(), inputs[i].data, bytes, queue);
    if (!status.ok()) {
      // Copies of inputs before may still read the caller's memory.
      (void)gpu->synchronize(queue);
      return status;
    }
    buffers[i].data = inputStorage[i].data();
  }
  return gpu->record(begun, queue);
}

Result<void *> DeviceStep::placeResult(int64_t index, void *host,
                                       int64_t bytes) {
  // By index, so that the same step finds the same memory.
  if (int64_t(outputs.size()) <= index)
    outputs.resize(index + 1);
  outputCount = std::max<size_t>(outputCount, index + 1);
  Output &output = outputs[index];
  output.host = host;
  output.bytes = bytes;
  MOIRA_RETURN_IF_ERROR(grow(output.storage, MemoryKind::Results, bytes));
  return output.storage.data();
}

Status DeviceStep::noteLoads(int64_t layer, int64_t experts,
                             const int32_t *counts, const int32_t *sizes) {
  if (experts < 0)
    return Status(MOIRA_FAILED,
                  concat("loads: expected 0 or more experts, got ", experts));
  if (captures)
    return keepLoads(layer, experts, counts, sizes);
  if (kept && !kept->graph)
    MOIRA_RETURN_IF_ERROR(reserveLoads(layer, experts));
  loads.emplace_back();
  Loads &noted = loads.back();
  noted.layer = layer;
  noted.counts.resize(experts);
  noted.sizes.resize(experts);
  int64_t bytes = experts * sizeof(int32_t);
  MOIRA_RETURN_IF_ERROR(
      gpu->copyOut(noted.counts.data(), counts, bytes, queue));
  return gpu->copyOut(noted.sizes.data(), sizes, bytes, queue);
}

Status DeviceStep::end(StepRecorder &recorder) {
  Status status = gpu->record(ended, queue);
  for (size_t i = 0; i < outputCount && status.ok(); ++i)
    if (outputs[i].host)
      status = gpu->copyOut(outputs[i].host, outputs[i].storage.data(),
                            outputs[i].bytes, queue);
  // Whatever happened, nothing of this step may be under way afterwards.
  Status done = gpu->synchronize(queue);
  for (Output &output : outputs)
    output.host = nullptr;
  if (!status.ok())
    return status;
  MOIRA_RETURN_IF_ERROR(done);
  Result<double> between = gpu->secondsBetween(begun, ended);
  if (!between.ok())
    return between.status();
  deviceSeconds = *between;
  for (const Loads &noted : loads)
    if (!recorder.loads(noted.layer, int64_t(noted.counts.size()),
                        noted.counts.data(), noted.sizes.data()))
      return Status(MOIRA_FAILED,
                    concat("loads: expected a layer of the entry, with as many "
                           "experts each time, got layer ",
                           noted.layer, " with ", noted.counts.size()));
  return Status();
}
