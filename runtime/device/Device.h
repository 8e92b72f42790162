// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A GPU as the runtime uses it: memory, queues, events, kernels. `cuda` drives
// a real one, `emulated` runs kernels that were compiled for the host.
//
// What is queued runs in the order of its queue; nothing orders two queues but
// events. Addresses are device addresses: the host reads and writes them by
// copies only. Any thread may call anything.

#ifndef MOIRA_RUNTIME_DEVICE_DEVICE_H
#define MOIRA_RUNTIME_DEVICE_DEVICE_H

#include "base/Status.h"
#include "emulator/Report.h"

#include <atomic>
#include <memory>
#include <string>
#include <vector>

namespace moira::runtime {

/// Number of a queue or event, valid for the device that made it; 0 is none.
using DeviceQueue = uint64_t;
using Event = uint64_t;

struct Dim3 {
  int32_t x = 1, y = 1, z = 1;
};

/// One argument of a kernel: copied when the launch is queued.
struct KernelArgument {
  const void *data;
  int64_t bytes;

  template <typename T> static KernelArgument of(const T &value) {
    return {&value, int64_t(sizeof(T))};
  }
};

struct LaunchShape {
  Dim3 grid, block;
  Dim3 cluster; ///< 1, 1, 1: none
  int64_t dynamicShared = 0;
  /// Starts before the kernel ahead of it in the queue has ended, which then
  /// waits by griddepcontrol.
  bool programmatic = false;
};

/// A box of a tensor in global memory, innermost dimension first.
struct TensorBox {
  void *base = nullptr;
  int32_t rank = 2; ///< 1 to 5
  int32_t elementBytes = 2;
  bool isFloat16 = false; ///< of the 2-byte types: f16, else bf16
  int64_t sizes[5] = {};
  int64_t strides[4] = {}; ///< bytes, of dimensions 1 and up
  int32_t box[5] = {};
  int32_t swizzleBytes = 128; ///< 0, 32, 64 or 128
};

/// What a kernel takes for a TensorBox, by value.
struct alignas(64) EncodedTensor {
  unsigned char bytes[128];
};

/// Kernels from one image. Lives as long as anybody holds it.
class Module {
public:
  virtual ~Module();
};

/// A kernel of a module that the caller holds.
class Kernel {
public:
  virtual ~Kernel();
};

/// Work of a queue that was kept, to be given out again as one.
class Graph {
public:
  virtual ~Graph();
};

class Device {
public:
  virtual ~Device();

  /// "cuda" or "emulated".
  virtual const char *kind() const = 0;
  /// What the machine calls it.
  virtual std::string name() const = 0;
  /// 80, 90: what PTX calls sm_80, sm_90.
  virtual int architecture() const = 0;
  virtual int processors() const = 0;
  virtual int64_t maxShared() const = 0;
  /// Whether the host may read and write memory of the device where it stands,
  /// while nothing that uses it is queued.
  virtual bool isHostAccessible() const { return false; }

  /// 256-byte aligned; `bytes` >= 0.
  virtual Result<void *> allocate(int64_t bytes) = 0;
  /// Of allocate(); nullptr is fine. Work that uses it must have ended.
  virtual Status release(void *memory) = 0;

  virtual Result<DeviceQueue> createQueue() = 0;
  virtual Status destroyQueue(DeviceQueue queue) = 0;
  /// Waits for the end of all work of `queue`, and returns its first failure.
  virtual Status synchronize(DeviceQueue queue) = 0;

  virtual Result<Event> createEvent() = 0;
  /// An event that knows when it happened, for `secondsBetween`.
  virtual Result<Event> createTimedEvent() = 0;
  virtual Status destroyEvent(Event event) = 0;
  /// Device time from one timed event to another; both have happened.
  virtual Result<double> secondsBetween(Event first, Event second) = 0;
  /// `event` happens when what is in `queue` now has ended.
  virtual Status record(Event event, DeviceQueue queue) = 0;
  /// What is queued from now on waits for the event as last recorded; for one
  /// that never was, for nothing.
  virtual Status wait(DeviceQueue queue, Event event) = 0;

  /// Whether sessions keep steps that repeat as graphs; false at first.
  bool keepsGraphs() const { return graphsAreKept; }
  void keepGraphs(bool keep) { graphsAreKept = keep; }
  /// What is queued from now on is kept instead of done: copies within the
  /// device, fills and launches, whose addresses stay valid as long as the
  /// graph. Waiting for the queue is an error until `endCapture`.
  virtual Status beginCapture(DeviceQueue queue) = 0;
  /// Also where something failed since `beginCapture`, which makes this fail.
  virtual Result<std::shared_ptr<Graph>> endCapture(DeviceQueue queue) = 0;
  virtual Status launchGraph(const Graph &graph, DeviceQueue queue) = 0;

  /// Host memory must stay until the copy has ended.
  virtual Status copyIn(void *to, const void *from, int64_t bytes,
                        DeviceQueue queue) = 0;
  virtual Status copyOut(void *to, const void *from, int64_t bytes,
                         DeviceQueue queue) = 0;
  virtual Status copyWithin(void *to, const void *from, int64_t bytes,
                            DeviceQueue queue) = 0;
  virtual Status fill(void *to, int value, int64_t bytes,
                      DeviceQueue queue) = 0;

  /// A module from an image: PTX text or a cubin for `cuda`, the address of a
  /// moira_emu_module for `emulated` (which must outlive the module).
  virtual Result<std::shared_ptr<Module>> load(const void *image,
                                               int64_t bytes) = 0;
  virtual Result<std::shared_ptr<Kernel>>
  find(const std::shared_ptr<Module> &module, const std::string &name) = 0;
  virtual Status launch(const Kernel &kernel, const LaunchShape &shape,
                        const std::vector<KernelArgument> &arguments,
                        DeviceQueue queue) = 0;
  virtual Result<EncodedTensor> encode(const TensorBox &box) = 0;

private:
  std::atomic<bool> graphsAreKept{false};
};

/// The first GPU of this machine through the driver's library, `file` or
/// libcuda.so.1. Without one: MOIRA_UNAVAILABLE and why.
Result<std::unique_ptr<Device>> openCuda(int ordinal = 0,
                                         const std::string &file = "");

struct EmulatedOptions {
  emulator::Checks checks;
  /// 0: threads and queues in turn; others: a random order that depends on it.
  uint64_t seed = 0;
  int workers = 1;
  int architecture = 90;
};

/// A GPU that runs on the processor.
class EmulatedDevice : public Device {
public:
  /// Everything found and counted since the last call. Queues must be
  /// synchronized.
  virtual emulator::LaunchReport takeReport() = 0;
  /// For what is launched from now on.
  virtual void setOptions(const EmulatedOptions &options) = 0;
};

std::unique_ptr<EmulatedDevice> openEmulated(const EmulatedOptions &options);

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_DEVICE_DEVICE_H
