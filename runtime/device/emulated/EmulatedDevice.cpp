// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "device/emulated/Queues.h"
#include "emulator/Emulator.h"

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>

using namespace moira;
using namespace moira::runtime;

namespace {

class EmulatedModule final : public Module {
public:
  explicit EmulatedModule(const moira_emu_module &module) : module(module) {}
  const moira_emu_module &module;
};

class EmulatedKernel final : public Kernel {
public:
  EmulatedKernel(std::shared_ptr<Module> module, const moira_emu_kernel &kernel)
      : module(std::move(module)), kernel(kernel) {}
  const moira_emu_module &image() const {
    return static_cast<const EmulatedModule &>(*module).module;
  }
  const std::shared_ptr<Module> module;
  const moira_emu_kernel &kernel;
};

class EmulatedGraph final : public Graph {
public:
  explicit EmulatedGraph(std::vector<std::function<Status()>> work)
      : work(std::move(work)) {}
  const std::vector<std::function<Status()>> work;
};

/// The arguments of a launch, as they were when it was queued. Copies of tensor
/// maps need the alignment that kernels expect of them.
class ArgumentCopies {
public:
  explicit ArgumentCopies(const std::vector<KernelArgument> &arguments) {
    size_t total = 0;
    for (const KernelArgument &argument : arguments)
      total += place(argument);
    void *memory = aligned_alloc(alignment, std::max(total, alignment));
    storage.reset(static_cast<char *>(memory));
    size_t offset = 0;
    for (const KernelArgument &argument : arguments) {
      memcpy(storage.get() + offset, argument.data, argument.bytes);
      pointers.push_back(storage.get() + offset);
      offset += place(argument);
    }
  }
  void *const *data() const { return pointers.data(); }

private:
  static constexpr size_t alignment = 64;
  static size_t place(const KernelArgument &argument) {
    return (argument.bytes + alignment - 1) / alignment * alignment;
  }
  struct Free {
    void operator()(char *memory) const { free(memory); }
  };
  std::unique_ptr<char, Free> storage;
  std::vector<void *> pointers;
};

class Emulated final : public EmulatedDevice {
public:
  explicit Emulated(const EmulatedOptions &options) : options(options) {
    queues.setSeed(options.seed);
  }
  ~Emulated() override {
    for (void *memory : allocations)
      free(memory);
  }

  const char *kind() const override { return "emulated"; }
  std::string name() const override { return "emulated GPU"; }
  int architecture() const override { return options.architecture; }
  int processors() const override { return 4; }
  int64_t maxShared() const override { return emulator::maxSharedBytes; }
  bool isHostAccessible() const override { return true; }

  Result<void *> allocate(int64_t bytes) override;
  Status release(void *memory) override;

  Result<DeviceQueue> createQueue() override {
    std::lock_guard<std::mutex> lock(mutex);
    return queues.createQueue();
  }
  Status destroyQueue(DeviceQueue queue) override {
    std::lock_guard<std::mutex> lock(mutex);
    return queues.destroyQueue(queue);
  }
  Status synchronize(DeviceQueue queue) override {
    std::lock_guard<std::mutex> lock(mutex);
    return queues.synchronize(queue);
  }
  Result<Event> createEvent() override {
    std::lock_guard<std::mutex> lock(mutex);
    return queues.createEvent();
  }
  Result<Event> createTimedEvent() override { return createEvent(); }
  Result<double> secondsBetween(Event first, Event second) override {
    std::lock_guard<std::mutex> lock(mutex);
    return queues.secondsBetween(first, second);
  }
  Status destroyEvent(Event event) override {
    std::lock_guard<std::mutex> lock(mutex);
    return queues.destroyEvent(event);
  }
  Status record(Event event, DeviceQueue queue) override {
    std::lock_guard<std::mutex> lock(mutex);
    return queues.record(event, queue);
  }
  Status wait(DeviceQueue queue, Event event) override {
    std::lock_guard<std::mutex> lock(mutex);
    return queues.wait(queue, event);
  }

  Status beginCapture(DeviceQueue queue) override {
    std::lock_guard<std::mutex> lock(mutex);
    return queues.beginCapture(queue);
  }
  Result<std::shared_ptr<Graph>> endCapture(DeviceQueue queue) override {
    std::lock_guard<std::mutex> lock(mutex);
    auto work = queues.endCapture(queue);
    if (!work.ok())
      return work.status();
    return std::shared_ptr<Graph>(
        std::make_shared<EmulatedGraph>(std::move(*work)));
  }
  Status launchGraph(const Graph &graph, DeviceQueue queue) override {
    std::lock_guard<std::mutex> lock(mutex);
    for (const auto &work : static_cast<const EmulatedGraph &>(graph).work)
      MOIRA_RETURN_IF_ERROR(queues.push(queue, work));
    return Status();
  }
  Status copyIn(void *to, const void *from, int64_t bytes,
                DeviceQueue queue) override {
    return pushChecked(to, bytes, queue, [=] { memcpy(to, from, bytes); });
  }
  Status copyOut(void *to, const void *from, int64_t bytes,
                 DeviceQueue queue) override {
    return pushChecked(from, bytes, queue, [=] { memcpy(to, from, bytes); });
  }
  Status copyWithin(void *to, const void *from, int64_t bytes,
                    DeviceQueue queue) override {
    MOIRA_RETURN_IF_ERROR(check(from, bytes));
    return pushChecked(to, bytes, queue, [=] { memmove(to, from, bytes); });
  }
  Status fill(void *to, int value, int64_t bytes, DeviceQueue queue) override {
    return pushChecked(to, bytes, queue, [=] { memset(to, value, bytes); });
  }

  Result<std::shared_ptr<Module>> load(const void *image,
                                       int64_t bytes) override;
  Result<std::shared_ptr<Kernel>> find(const std::shared_ptr<Module> &module,
                                       const std::string &name) override;
  Status launch(const Kernel &kernel, const LaunchShape &shape,
                const std::vector<KernelArgument> &arguments,
                DeviceQueue queue) override;
  Result<EncodedTensor> encode(const TensorBox &box) override;

  emulator::LaunchReport takeReport() override {
    std::lock_guard<std::mutex> lock(mutex);
    return std::exchange(report, emulator::LaunchReport());
  }
  void setOptions(const EmulatedOptions &given) override {
    std::lock_guard<std::mutex> lock(mutex);
    options = given;
    queues.setSeed(options.seed);
  }

private:
  /// Whether a copy's device side lies in one allocation.
  Status check(const void *at, int64_t bytes) const;
  template <typename Work>
  Status pushChecked(const void *at, int64_t bytes, DeviceQueue queue,
                     Work work) {
    MOIRA_RETURN_IF_ERROR(check(at, bytes));
    std::lock_guard<std::mutex> lock(mutex);
    return queues.push(queue, [=] {
      if (bytes)
        work();
      return Status();
    });
  }

  std::mutex mutex;
  EmulatedOptions options;
  EmulatedQueues queues;
  emulator::Regions regions;
  std::set<void *> allocations;
  emulator::LaunchReport report;
};

} // namespace

Status Emulated::check(const void *at, int64_t bytes) const {
  emulator::Regions::Region region = regions.find(at);
  if (bytes == 0 || (bytes > 0 && region.bytes &&
                     region.contains(reinterpret_cast<uint64_t>(at), bytes)))
    return Status();
  return Status(MOIRA_INVALID_ARGUMENT,
                concat("emulated device: expected ", bytes,
                       " bytes within an allocation, got an address outside"));
}

Result<void *> Emulated::allocate(int64_t bytes) {
  static constexpr int64_t alignment = 256;
  if (bytes < 0)
    return Status(MOIRA_INVALID_ARGUMENT,
                  concat("emulated device: expected a size, got ", bytes));
  int64_t rounded = std::max<int64_t>(
      (bytes + alignment - 1) / alignment * alignment, alignment);
  void *memory = aligned_alloc(alignment, rounded);
  if (!memory)
    return Status(MOIRA_OUT_OF_MEMORY, concat("emulated device: expected ",
                                              bytes, " bytes, got none"));
  // NaN in every type, so that a read of what nobody wrote shows.
  memset(memory, 0xff, rounded);
  std::lock_guard<std::mutex> lock(mutex);
  allocations.insert(memory);
  regions.add(memory, bytes);
  return memory;
}

Status Emulated::release(void *memory) {
  if (!memory)
    return Status();
  std::lock_guard<std::mutex> lock(mutex);
  if (!allocations.erase(memory))
    return Status(MOIRA_INVALID_ARGUMENT,
                  "emulated device: expected memory of this device, got other "
                  "memory");
  regions.remove(memory);
  free(memory);
  return Status();
}

Result<std::shared_ptr<Module>> Emulated::load(const void *image, int64_t) {
  const auto *module = static_cast<const moira_emu_module *>(image);
  MOIRA_RETURN_IF_ERROR(emulator::bindModule(*module));
  return std::shared_ptr<Module>(std::make_shared<EmulatedModule>(*module));
}

Result<std::shared_ptr<Kernel>>
Emulated::find(const std::shared_ptr<Module> &module, const std::string &name) {
  const moira_emu_module &image =
      static_cast<const EmulatedModule &>(*module).module;
  for (int32_t i = 0; i < image.kernel_count; ++i)
    if (name == image.kernels[i].name)
      return std::shared_ptr<Kernel>(
          std::make_shared<EmulatedKernel>(module, image.kernels[i]));
  return Status(MOIRA_NOT_FOUND, concat("emulated device: expected a kernel '",
                                        name, "' in the module, got none"));
}

Status Emulated::launch(const Kernel &kernel, const LaunchShape &shape,
                        const std::vector<KernelArgument> &arguments,
                        DeviceQueue queue) {
  const auto &own = static_cast<const EmulatedKernel &>(kernel);
  auto refuse = [&](const std::string &text) {
    return Status(MOIRA_INVALID_ARGUMENT,
                  concat("kernel ", own.kernel.name, ": ", text));
  };
  if (int64_t(arguments.size()) != own.kernel.parameters)
    return refuse(concat("expected ", own.kernel.parameters, " arguments, got ",
                         arguments.size()));
  for (size_t i = 0; i < arguments.size(); ++i)
    if (arguments[i].bytes != own.kernel.parameter_bytes[i])
      return refuse(concat("expected argument ", i, " of ",
                           own.kernel.parameter_bytes[i], " bytes, got ",
                           arguments[i].bytes));
  if (shape.cluster.x != 1 || shape.cluster.y != 1 || shape.cluster.z != 1)
    return Status(MOIRA_UNAVAILABLE, concat("kernel ", own.kernel.name,
                                            ": clusters are not emulated"));
  auto copies = std::make_shared<ArgumentCopies>(arguments);
  std::lock_guard<std::mutex> lock(mutex);
  emulator::LaunchOptions launchOptions;
  launchOptions.checks = options.checks;
  launchOptions.seed = options.seed;
  launchOptions.workers = options.workers;
  return queues.push(queue, [this, own, shape, copies, launchOptions] {
    auto extent = [](Dim3 dim) {
      return emulator::Extent{dim.x, dim.y, dim.z};
    };
    Result<emulator::LaunchReport> found = emulator::launch(
        own.image(), own.kernel, extent(shape.grid), extent(shape.block),
        shape.dynamicShared, copies->data(), &regions, launchOptions);
    if (!found.ok())
      return found.status();
    report.add(*found);
    if (found->clean())
      return Status();
    std::string text = found->text();
    return Status(MOIRA_FAILED, text.substr(0, text.find('\n')));
  });
}

Result<EncodedTensor> Emulated::encode(const TensorBox &box) {
  auto refuse = [&](const std::string &text) {
    return Status(MOIRA_INVALID_ARGUMENT, concat("tensor map: ", text));
  };
  if (box.rank < 1 || box.rank > 5)
    return refuse(concat("expected 1 to 5 dimensions, got ", box.rank));
  if (reinterpret_cast<uint64_t>(box.base) % 16)
    return refuse("expected a base aligned to 16 bytes, got another");
  if (box.swizzleBytes && box.box[0] * box.elementBytes > box.swizzleBytes)
    return refuse(concat("expected a box row of at most ", box.swizzleBytes,
                         " bytes, got ", box.box[0] * box.elementBytes));
  emulator::TensorMap map;
  map.magic = emulator::TensorMap::magicNumber;
  map.rank = box.rank;
  map.elementBytes = box.elementBytes;
  map.swizzleBytes = box.swizzleBytes;
  map.base = reinterpret_cast<uint64_t>(box.base);
  for (int i = 0; i < box.rank; ++i) {
    if (box.sizes[i] < 1 || box.sizes[i] > int64_t(1) << 32)
      return refuse(
          concat("expected sizes of 1 to 4294967296, got ", box.sizes[i]));
    if (box.box[i] < 1 || box.box[i] > 256)
      return refuse(
          concat("expected a box of 1 to 256 per dimension, got ", box.box[i]));
    map.sizes[i] = box.sizes[i];
    map.box[i] = uint16_t(box.box[i]);
    if (i == 0)
      continue;
    if (box.strides[i - 1] % 16 || box.strides[i - 1] < 1)
      return refuse(concat("expected strides of multiples of 16 bytes, got ",
                           box.strides[i - 1]));
    map.strides[i - 1] = box.strides[i - 1];
  }
  if (box.box[0] * box.elementBytes % 16)
    return refuse(concat("expected a box row of a multiple of 16 bytes, got ",
                         box.box[0] * box.elementBytes));
  EncodedTensor encoded = {};
  memcpy(encoded.bytes, &map, sizeof(map));
  return encoded;
}

std::unique_ptr<EmulatedDevice>
moira::runtime::openEmulated(const EmulatedOptions &options) {
  return std::make_unique<Emulated>(options);
}
