// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "GPU/Harness.h"

#include "LoadedObject.h"
#include "moira/Conversion/Passes.h"
#include "moira/Pipelines/Pipelines.h"
#include "moira/Target/HostTarget.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/raw_ostream.h"

#include <gtest/gtest.h>

using namespace moira;
using namespace moira::test;
using namespace moira::runtime;

GPUContext::GPUContext() {
  mlir::DialectRegistry registry;
  registerDialects(registry);
  context = std::make_unique<mlir::MLIRContext>(
      registry, mlir::MLIRContext::Threading::DISABLED);
  context->loadAllAvailableDialects();
  context->getDiagEngine().registerHandler([this](mlir::Diagnostic &note) {
    llvm::raw_string_ostream stream(errors);
    stream << note << '\n';
    return mlir::success();
  });
}

bool moira::test::lowerGPUModules(mlir::ModuleOp module) {
  mlir::PassManager manager(module.getContext());
  auto &nested = manager.nest<mlir::gpu::GPUModuleOp>();
  nested.addPass(mlir::createCanonicalizerPass());
  nested.addPass(mlir::createCSEPass());
  nested.addPass(mlir::moe::createLowerGPUModulePass());
  nested.addPass(mlir::createCanonicalizerPass());
  nested.addPass(mlir::createCSEPass());
  return mlir::succeeded(manager.run(module));
}

EmulatedImage::~EmulatedImage() = default;

std::unique_ptr<EmulatedImage> EmulatedImage::compile(mlir::ModuleOp module,
                                                      const std::string &name) {
  mlir::PassManager manager(module.getContext());
  manager.addPass(mlir::moe::createEmulateNVVMPass());
  if (!lowerGPUModules(module) || mlir::failed(manager.run(module))) {
    ADD_FAILURE() << "expected a module that lowers";
    return nullptr;
  }
  auto check = [](llvm::Error error) {
    if (!error)
      return true;
    ADD_FAILURE() << llvm::toString(std::move(error));
    return false;
  };
  llvm::Expected<HostProcessor> processor = resolveProcessor("host");
  if (!check(processor.takeError()))
    return nullptr;
  auto machine = HostTarget::create(*processor, 2);
  if (!check(machine.takeError()))
    return nullptr;
  llvm::LLVMContext context;
  auto translated = (*machine)->translate(module, context);
  if (!check(translated.takeError()))
    return nullptr;
  std::string symbol = MOIRA_EMU_MODULE_PREFIX + name;
  (*machine)->optimize(**translated, {symbol});
  auto object = (*machine)->emit(**translated, HostTarget::Output::Object);
  if (!check(object.takeError()))
    return nullptr;
  auto loaded = LoadedObject::load(std::move(*object), {symbol});
  if (!check(loaded.takeError()))
    return nullptr;
  auto image = std::make_unique<EmulatedImage>();
  image->object = *loaded;
  image->description =
      static_cast<const moira_emu_module *>((*loaded)->find(symbol));
  return image;
}

std::unique_ptr<EmulatedImage>
moira::test::compileText(GPUContext &context, const std::string &text) {
  auto module = mlir::parseSourceString<mlir::ModuleOp>(text, &context.get());
  if (!module) {
    ADD_FAILURE() << context.errors;
    return nullptr;
  }
  return EmulatedImage::compile(*module);
}

static DeviceQueue queueOf(Device &device) {
  Result<DeviceQueue> queue = device.createQueue();
  EXPECT_TRUE(queue.ok());
  return *queue;
}

DeviceArray::DeviceArray(Device &device, int64_t bytes)
    : bytes(bytes), device(device) {
  Result<void *> allocated = device.allocate(bytes);
  EXPECT_TRUE(allocated.ok());
  memory = *allocated;
  DeviceQueue queue = queueOf(device);
  EXPECT_TRUE(device.fill(memory, 0xff, bytes, queue).ok());
  EXPECT_TRUE(device.destroyQueue(queue).ok());
}

DeviceArray::~DeviceArray() { EXPECT_TRUE(device.release(memory).ok()); }

void DeviceArray::write(const void *from) {
  DeviceQueue queue = queueOf(device);
  EXPECT_TRUE(device.copyIn(memory, from, bytes, queue).ok());
  EXPECT_TRUE(device.destroyQueue(queue).ok());
}

void DeviceArray::read(void *to) const {
  DeviceQueue queue = queueOf(device);
  EXPECT_TRUE(device.copyOut(to, memory, bytes, queue).ok());
  EXPECT_TRUE(device.destroyQueue(queue).ok());
}

Status
moira::test::launchAndWait(Device &device, const EmulatedImage &image,
                           const std::string &kernel, const LaunchShape &shape,
                           const std::vector<KernelArgument> &arguments) {
  Result<std::shared_ptr<Module>> module = device.load(image.description, 0);
  if (!module.ok())
    return module.status();
  Result<std::shared_ptr<Kernel>> found = device.find(*module, kernel);
  if (!found.ok())
    return found.status();
  Result<DeviceQueue> queue = device.createQueue();
  if (!queue.ok())
    return queue.status();
  Status status = device.launch(**found, shape, arguments, *queue);
  Status ended = device.destroyQueue(*queue);
  return status.ok() ? ended : status;
}
