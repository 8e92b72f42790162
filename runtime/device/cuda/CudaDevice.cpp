// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "device/Device.h"
#include "device/cuda/Driver.h"

#include <algorithm>
#include <cstring>

using namespace moira;
using namespace moira::runtime;
using cuda::Driver;

/// Calls the driver and returns from the function when that fails.
#define MOIRA_CUDA(member, symbol, ...)                                        \
  MOIRA_RETURN_IF_ERROR(driver.check(driver.member(__VA_ARGS__), #symbol))

namespace {

class CudaModule final : public Module {
public:
  CudaModule(const Driver &driver, void *context, void *module)
      : driver(driver), context(context), module(module) {}
  ~CudaModule() override {
    // A module that outlives its device goes with the context.
    driver.setContext(context);
    driver.unloadModule(module);
  }
  const Driver driver;
  void *const context;
  void *const module;
};

class CudaKernel final : public Kernel {
public:
  CudaKernel(std::shared_ptr<Module> module, void *function, std::string name)
      : module(std::move(module)), function(function), name(std::move(name)) {}
  const std::shared_ptr<Module> module;
  void *const function;
  const std::string name;
};

class CudaGraph final : public Graph {
public:
  CudaGraph(const Driver &driver, void *context, void *instance)
      : driver(driver), context(context), instance(instance) {}
  ~CudaGraph() override {
    driver.setContext(context);
    driver.destroyInstance(instance);
  }
  const Driver driver;
  void *const context;
  void *const instance;
};

class CudaDevice final : public Device {
public:
  explicit CudaDevice(const Driver &driver) : driver(driver) {}
  ~CudaDevice() override {
    if (context)
      driver.releaseContext(device);
  }
  Status open(int ordinal);

  const char *kind() const override { return "cuda"; }
  std::string name() const override { return deviceName; }
  int architecture() const override { return major * 10 + minor; }
  int processors() const override { return processorCount; }
  int64_t maxShared() const override { return sharedBytes; }

  Result<void *> allocate(int64_t bytes) override;
  Status release(void *memory) override;
  Result<DeviceQueue> createQueue() override;
  Status destroyQueue(DeviceQueue queue) override;
  Status synchronize(DeviceQueue queue) override;
  Result<Event> createEvent() override {
    return makeEvent(cuda::EventDisableTiming);
  }
  Result<Event> createTimedEvent() override { return makeEvent(0); }
  Status destroyEvent(Event event) override;
  Result<double> secondsBetween(Event first, Event second) override;
  Status record(Event event, DeviceQueue queue) override;
  Status wait(DeviceQueue queue, Event event) override;
  Status beginCapture(DeviceQueue queue) override;
  Result<std::shared_ptr<Graph>> endCapture(DeviceQueue queue) override;
  Status launchGraph(const Graph &graph, DeviceQueue queue) override;
  Status copyIn(void *to, const void *from, int64_t bytes,
                DeviceQueue queue) override;
  Status copyOut(void *to, const void *from, int64_t bytes,
                 DeviceQueue queue) override;
  Status copyWithin(void *to, const void *from, int64_t bytes,
                    DeviceQueue queue) override;
  Status fill(void *to, int value, int64_t bytes, DeviceQueue queue) override;
  Result<std::shared_ptr<Module>> load(const void *image,
                                       int64_t bytes) override;
  Result<std::shared_ptr<Kernel>> find(const std::shared_ptr<Module> &module,
                                       const std::string &name) override;
  Status launch(const Kernel &kernel, const LaunchShape &shape,
                const std::vector<KernelArgument> &arguments,
                DeviceQueue queue) override;
  Result<EncodedTensor> encode(const TensorBox &box) override;

private:
  Result<Event> makeEvent(unsigned flags);
  /// Every thread that calls needs the context.
  Status enter() const {
    MOIRA_CUDA(setContext, cuCtxSetCurrent, context);
    return Status();
  }
  static void *pointer(uint64_t handle) {
    return reinterpret_cast<void *>(handle);
  }
  static cuda::Address address(const void *memory) {
    return reinterpret_cast<cuda::Address>(memory);
  }

  const Driver driver;
  int device = 0;
  void *context = nullptr;
  std::string deviceName;
  int major = 0, minor = 0, processorCount = 0, sharedBytes = 0;
};

} // namespace

Status CudaDevice::open(int ordinal) {
  MOIRA_CUDA(init, cuInit, 0);
  int count = 0;
  MOIRA_CUDA(deviceCount, cuDeviceGetCount, &count);
  if (ordinal < 0 || ordinal >= count)
    return Status(MOIRA_UNAVAILABLE, concat("CUDA: expected device ", ordinal,
                                            " of ", count, ", got none"));
  MOIRA_CUDA(deviceGet, cuDeviceGet, &device, ordinal);
  char text[256] = "";
  MOIRA_CUDA(deviceName, cuDeviceGetName, text, sizeof(text) - 1, device);
  deviceName = text;
  for (auto [value, attribute] :
       {std::pair(&major, cuda::AttributeMajor),
        std::pair(&minor, cuda::AttributeMinor),
        std::pair(&processorCount, cuda::AttributeProcessors),
        std::pair(&sharedBytes, cuda::AttributeMaxShared)})
    MOIRA_CUDA(deviceAttribute, cuDeviceGetAttribute, value, attribute, device);
  MOIRA_CUDA(retainContext, cuDevicePrimaryCtxRetain, &context, device);
  return enter();
}

//===----------------------------------------------------------------------===//
// Memory, queues, events
//===----------------------------------------------------------------------===//

Result<void *> CudaDevice::allocate(int64_t bytes) {
  if (bytes < 0)
    return Status(MOIRA_INVALID_ARGUMENT,
                  concat("CUDA: expected a size, got ", bytes));
  MOIRA_RETURN_IF_ERROR(enter());
  cuda::Address memory = 0;
  // The driver refuses 0.
  MOIRA_CUDA(allocate, cuMemAlloc, &memory,
             size_t(std::max<int64_t>(bytes, 1)));
  return pointer(memory);
}

Status CudaDevice::release(void *memory) {
  if (!memory)
    return Status();
  MOIRA_RETURN_IF_ERROR(enter());
  MOIRA_CUDA(release, cuMemFree, address(memory));
  return Status();
}

Result<DeviceQueue> CudaDevice::createQueue() {
  MOIRA_RETURN_IF_ERROR(enter());
  void *stream = nullptr;
  MOIRA_CUDA(createStream, cuStreamCreate, &stream, cuda::StreamNonBlocking);
  return reinterpret_cast<DeviceQueue>(stream);
}

Status CudaDevice::destroyQueue(DeviceQueue queue) {
  Status status = synchronize(queue);
  MOIRA_CUDA(destroyStream, cuStreamDestroy, pointer(queue));
  return status;
}

Status CudaDevice::synchronize(DeviceQueue queue) {
  MOIRA_RETURN_IF_ERROR(enter());
  MOIRA_CUDA(synchronizeStream, cuStreamSynchronize, pointer(queue));
  return Status();
}

Result<Event> CudaDevice::makeEvent(unsigned flags) {
  MOIRA_RETURN_IF_ERROR(enter());
  void *event = nullptr;
  MOIRA_CUDA(createEvent, cuEventCreate, &event, flags);
  return reinterpret_cast<Event>(event);
}

Status CudaDevice::destroyEvent(Event event) {
  MOIRA_RETURN_IF_ERROR(enter());
  MOIRA_CUDA(destroyEvent, cuEventDestroy, pointer(event));
  return Status();
}

Result<double> CudaDevice::secondsBetween(Event first, Event second) {
  MOIRA_RETURN_IF_ERROR(enter());
  float milliseconds = 0;
  MOIRA_CUDA(elapsedTime, cuEventElapsedTime, &milliseconds, pointer(first),
             pointer(second));
  return double(milliseconds) / 1000;
}

Status CudaDevice::record(Event event, DeviceQueue queue) {
  MOIRA_RETURN_IF_ERROR(enter());
  MOIRA_CUDA(recordEvent, cuEventRecord, pointer(event), pointer(queue));
  return Status();
}

Status CudaDevice::wait(DeviceQueue queue, Event event) {
  MOIRA_RETURN_IF_ERROR(enter());
  MOIRA_CUDA(waitEvent, cuStreamWaitEvent, pointer(queue), pointer(event), 0);
  return Status();
}

Status CudaDevice::beginCapture(DeviceQueue queue) {
  MOIRA_RETURN_IF_ERROR(enter());
  MOIRA_CUDA(beginCapture, cuStreamBeginCapture, pointer(queue),
             cuda::CaptureThreadLocal);
  return Status();
}

Result<std::shared_ptr<Graph>> CudaDevice::endCapture(DeviceQueue queue) {
  MOIRA_RETURN_IF_ERROR(enter());
  void *graph = nullptr, *instance = nullptr;
  MOIRA_CUDA(endCapture, cuStreamEndCapture, pointer(queue), &graph);
  Status status = driver.check(driver.instantiateGraph(&instance, graph, 0),
                               "cuGraphInstantiateWithFlags");
  // The instance has copies of everything.
  driver.destroyGraph(graph);
  MOIRA_RETURN_IF_ERROR(status);
  return std::shared_ptr<Graph>(
      std::make_shared<CudaGraph>(driver, context, instance));
}

Status CudaDevice::launchGraph(const Graph &graph, DeviceQueue queue) {
  MOIRA_RETURN_IF_ERROR(enter());
  MOIRA_CUDA(launchGraph, cuGraphLaunch,
             static_cast<const CudaGraph &>(graph).instance, pointer(queue));
  return Status();
}

Status CudaDevice::copyIn(void *to, const void *from, int64_t bytes,
                          DeviceQueue queue) {
  if (bytes == 0)
    return Status();
  MOIRA_RETURN_IF_ERROR(enter());
  MOIRA_CUDA(copyIn, cuMemcpyHtoDAsync, address(to), from, size_t(bytes),
             pointer(queue));
  return Status();
}

Status CudaDevice::copyOut(void *to, const void *from, int64_t bytes,
                           DeviceQueue queue) {
  if (bytes == 0)
    return Status();
  MOIRA_RETURN_IF_ERROR(enter());
  MOIRA_CUDA(copyOut, cuMemcpyDtoHAsync, to, address(from), size_t(bytes),
             pointer(queue));
  return Status();
}

Status CudaDevice::copyWithin(void *to, const void *from, int64_t bytes,
                              DeviceQueue queue) {
  if (bytes == 0)
    return Status();
  MOIRA_RETURN_IF_ERROR(enter());
  MOIRA_CUDA(copyWithin, cuMemcpyDtoDAsync, address(to), address(from),
             size_t(bytes), pointer(queue));
  return Status();
}

Status CudaDevice::fill(void *to, int value, int64_t bytes, DeviceQueue queue) {
  if (bytes == 0)
    return Status();
  MOIRA_RETURN_IF_ERROR(enter());
  MOIRA_CUDA(fill, cuMemsetD8Async, address(to),
             static_cast<unsigned char>(value), size_t(bytes), pointer(queue));
  return Status();
}

//===----------------------------------------------------------------------===//
// Kernels
//===----------------------------------------------------------------------===//

Result<std::shared_ptr<Module>> CudaDevice::load(const void *image,
                                                 int64_t bytes) {
  MOIRA_RETURN_IF_ERROR(enter());
  // PTX is text that must end with a null byte.
  std::string copy(static_cast<const char *>(image), size_t(bytes));
  char log[2048] = "";
  int options[] = {cuda::JitErrorLogBuffer, cuda::JitErrorLogBytes};
  void *values[] = {log, reinterpret_cast<void *>(sizeof(log) - 1)};
  void *module = nullptr;
  Status status =
      driver.check(driver.loadModule(&module, copy.c_str(), 2, options, values),
                   "cuModuleLoadDataEx");
  if (!status.ok()) {
    log[strcspn(log, "\n")] = 0;
    if (*log)
      status.message += concat(" (", log, ")");
    return status;
  }
  return std::shared_ptr<Module>(
      std::make_shared<CudaModule>(driver, context, module));
}

Result<std::shared_ptr<Kernel>>
CudaDevice::find(const std::shared_ptr<Module> &module,
                 const std::string &name) {
  MOIRA_RETURN_IF_ERROR(enter());
  void *function = nullptr;
  Status status = driver.check(
      driver.findFunction(&function,
                          static_cast<const CudaModule &>(*module).module,
                          name.c_str()),
      "cuModuleGetFunction");
  if (!status.ok())
    return Status(MOIRA_NOT_FOUND,
                  concat("kernel ", name, ": ", status.message));
  return std::shared_ptr<Kernel>(
      std::make_shared<CudaKernel>(module, function, name));
}

Status CudaDevice::launch(const Kernel &kernel, const LaunchShape &shape,
                          const std::vector<KernelArgument> &arguments,
                          DeviceQueue queue) {
  const auto &own = static_cast<const CudaKernel &>(kernel);
  if (shape.dynamicShared > sharedBytes)
    return Status(MOIRA_INVALID_ARGUMENT,
                  concat("kernel ", own.name, ": expected at most ",
                         sharedBytes, " bytes of shared memory, got ",
                         shape.dynamicShared));
  MOIRA_RETURN_IF_ERROR(enter());
  // More than the default has to be asked for.
  if (shape.dynamicShared > 48 << 10)
    MOIRA_CUDA(setFunctionAttribute, cuFuncSetAttribute, own.function,
               cuda::FunctionMaxDynamicShared, int(shape.dynamicShared));
  cuda::LaunchAttribute attributes[2] = {};
  unsigned count = 0;
  if (shape.cluster.x > 1 || shape.cluster.y > 1 || shape.cluster.z > 1) {
    attributes[count].id = cuda::LaunchCluster;
    attributes[count].value.cluster = {unsigned(shape.cluster.x),
                                       unsigned(shape.cluster.y),
                                       unsigned(shape.cluster.z)};
    ++count;
  }
  if (shape.programmatic) {
    attributes[count].id = cuda::LaunchProgrammatic;
    attributes[count].value.programmatic = 1;
    ++count;
  }
  cuda::LaunchConfig config = {};
  config.gridX = shape.grid.x;
  config.gridY = shape.grid.y;
  config.gridZ = shape.grid.z;
  config.blockX = shape.block.x;
  config.blockY = shape.block.y;
  config.blockZ = shape.block.z;
  config.sharedBytes = unsigned(shape.dynamicShared);
  config.stream = pointer(queue);
  config.attributes = attributes;
  config.attributeCount = count;
  std::vector<void *> parameters;
  for (const KernelArgument &argument : arguments)
    parameters.push_back(const_cast<void *>(argument.data));
  return driver
      .check(driver.launch(&config, own.function, parameters.data(), nullptr),
             "cuLaunchKernelEx")
      .within(concat("kernel ", own.name));
}

Result<EncodedTensor> CudaDevice::encode(const TensorBox &box) {
  MOIRA_RETURN_IF_ERROR(enter());
  EncodedTensor encoded;
  uint64_t sizes[5], strides[4];
  uint32_t extents[5], steps[5];
  for (int i = 0; i < box.rank && i < 5; ++i) {
    sizes[i] = uint64_t(box.sizes[i]);
    extents[i] = uint32_t(box.box[i]);
    steps[i] = 1;
    if (i)
      strides[i - 1] = uint64_t(box.strides[i - 1]);
  }
  int type = box.elementBytes == 4   ? cuda::TensorFloat32
             : box.elementBytes == 1 ? cuda::TensorUint8
             : box.isFloat16         ? cuda::TensorFloat16
                                     : cuda::TensorBFloat16;
  int swizzle = box.swizzleBytes == 128  ? 3
                : box.swizzleBytes == 64 ? 2
                : box.swizzleBytes == 32 ? 1
                                         : 0;
  MOIRA_CUDA(encodeTensor, cuTensorMapEncodeTiled, encoded.bytes, type,
             unsigned(box.rank), box.base, sizes, strides, extents, steps, 0,
             swizzle, cuda::TensorPromotion128, 0);
  return encoded;
}

Result<std::unique_ptr<Device>>
moira::runtime::openCuda(int ordinal, const std::string &file) {
  Result<Driver> driver = Driver::load(file);
  if (!driver.ok())
    return driver.status();
  auto device = std::make_unique<CudaDevice>(*driver);
  MOIRA_RETURN_IF_ERROR(device->open(ordinal));
  return std::unique_ptr<Device>(std::move(device));
}
