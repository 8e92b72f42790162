// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a session has on a GPU: parameters, workspace, inputs and results of a
// step, and the runtime's side of moira/device_abi.h.

#ifndef MOIRA_RUNTIME_SESSION_DEVICESTEP_H
#define MOIRA_RUNTIME_SESSION_DEVICESTEP_H

#include "base/Arena.h"
#include "device/Device.h"
#include "session/ParameterTable.h"
#include "session/Program.h"
#include "session/StepGraphs.h"

#include "moira/device_abi.h"

#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

namespace moira::runtime {

class DeviceMemory;
class StepContext;
struct ResultTensor;

/// One queue of one device, for the steps of one session. One thread at a time.
/// All that a step does goes into the queue in order; it is waited for at the
/// step's end, and where generated code reads a number.
class DeviceStep {
public:
  /// Loads the program's kernels. Fails with MOIRA_UNAVAILABLE where the
  /// program has no code for the device, and says what it has.
  static Result<std::unique_ptr<DeviceStep>>
  create(std::shared_ptr<const Program> program, std::shared_ptr<Device> device,
         std::shared_ptr<MemoryAccount> account);
  ~DeviceStep();

  const moira_device *table() const { return &functions; }
  Device &device() { return *gpu; }
  /// The workspace of steps.
  Arena &arena() { return workspace; }
  /// Parameters of the device, for moira_ctx.params.
  const moira_param *params() const { return packed.data(); }
  /// Kernels that the last step has launched.
  int64_t launches() const { return launchCount; }
  /// Times that the last step has waited for the device before its end.
  int64_t waits() const { return waitCount; }
  /// Device time of the last step between the copies of inputs and those of
  /// results.
  double seconds() const { return deviceSeconds; }
  /// Where memory of the device comes from.
  std::shared_ptr<BlockSource> source() const;
  /// Blocks that it has given since the last call.
  int64_t takeAllocations();

  //===--- Graphs (session/StepGraphs.h) ----------------------------------===//

  /// Between `begin` and the step's own code. True: all has been given out, and
  /// the code is left out. `head` is what else the code depends on.
  Result<bool> beginWork(const std::vector<int64_t> &head,
                         const std::vector<TensorView> &inputs,
                         const std::vector<moira_buffer> &buffers,
                         const std::vector<ResultTensor> &results,
                         StepContext &step);
  /// After the step's own code.
  Status endWork(bool failed);
  /// A result has been placed.
  void noteResult(int64_t index, const Shape &shape);

  //===--- Steps ----------------------------------------------------------===//

  /// Brings each parameter that has changed to the device. What the session
  /// has written there since, shadows, lasts until then.
  Status updateParameters(const ParameterTable &parameters);
  /// Queues the copies of a step's inputs, and lets `buffers` lead to them; of
  /// rank 0 they stay on the host, and what is on the device stays there.
  Status begin(const EntrySpec &entry, const std::vector<TensorView> &inputs,
               std::vector<moira_buffer> &buffers);
  /// Memory of the device for a result that will be copied to `host`.
  Result<void *> placeResult(int64_t index, void *host, int64_t bytes);
  /// Notes a routing, whose counts are read when the step has ended.
  Status noteLoads(int64_t layer, int64_t experts, const int32_t *counts,
                   const int32_t *sizes);
  /// Waits for the step, with its results at home; its first failure.
  Status end(StepRecorder &recorder);

  Status launch(int64_t kernel, int64_t grid, void *const *arguments);
  Status encode(const moira_tensor_box &box, void *map);
  Status copy(void *to, const void *from, int64_t bytes);
  Status read(void *to, const void *from, int64_t bytes);
  Status write(void *to, const void *from, int64_t bytes);

  //===--- Ranks ----------------------------------------------------------===//

  /// Waits until nothing is queued, so that a transfer may use memory of the
  /// device. MOIRA_UNAVAILABLE where the host cannot reach it.
  Status settle();
  /// Keeps the counts that stand in `matrix` for the rest of the step.
  void keepCounts(const int32_t *matrix, int64_t count);
  /// What was kept of `matrix`; null where nothing was.
  const int32_t *findCounts(const int32_t *matrix) const;
  /// Queues a copy of counts to memory of the device.
  Status putCounts(int32_t *to, const std::vector<int32_t> &counts);

  DeviceStep(const DeviceStep &) = delete;
  DeviceStep &operator=(const DeviceStep &) = delete;

private:
  DeviceStep(std::shared_ptr<const Program> program,
             std::shared_ptr<Device> device,
             std::shared_ptr<MemoryAccount> account,
             std::shared_ptr<DeviceMemory> memory);
  Status loadKernels();
  Result<std::shared_ptr<Module>> loadImage(int image);
  std::vector<int64_t> keyOf(const std::vector<int64_t> &head,
                             const std::vector<TensorView> &inputs,
                             const std::vector<moira_buffer> &buffers,
                             const std::vector<ResultTensor> &results);
  /// The step is more than work of the device.
  void noteHost();
  Status reserveLoads(int64_t layer, int64_t experts);
  Status keepLoads(int64_t layer, int64_t experts, const int32_t *counts,
                   const int32_t *sizes);
  Status readLoads();
  /// Storage of the device of at least `bytes` in `place`.
  Status grow(Storage &place, MemoryKind kind, int64_t bytes);

  struct Output {
    void *host = nullptr;
    Storage storage;
    int64_t bytes = 0;
  };
  struct Loads {
    int64_t layer = 0;
    std::vector<int32_t> counts, sizes;
  };

  std::shared_ptr<const Program> program;
  std::shared_ptr<Device> gpu;
  std::shared_ptr<MemoryAccount> account;
  std::shared_ptr<DeviceMemory> memory;
  DeviceQueue queue = 0;
  Event begun = 0, ended = 0; ///< around a step's own work
  moira_device functions{};
  std::vector<std::shared_ptr<Kernel>> kernels;
  std::vector<KernelArgument> values; ///< of a launch; keeps its memory
  Arena workspace;
  std::vector<Storage> parameterStorage, inputStorage;
  std::vector<moira_param> packed;
  std::vector<uint64_t> versions; ///< of parameters there
  std::vector<Output> outputs;
  size_t outputCount = 0;
  StepGraphs graphs;
  StepGraph *kept = nullptr; ///< of the step that runs
  bool captures = false;     ///< what is queued goes into `kept`
  size_t loadsKept = 0;      ///< of those that `kept` has memory for
  std::deque<Loads> loads;   ///< does not move while copies are under way
  std::deque<int64_t> numbers;
  std::deque<std::vector<int32_t>> counts; ///< on their way
  std::unordered_map<const int32_t *, std::vector<int32_t>> matrices;
  int64_t launchCount = 0, waitCount = 0;
  double deviceSeconds = 0;
};

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_SESSION_DEVICESTEP_H
