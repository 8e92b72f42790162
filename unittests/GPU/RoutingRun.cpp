// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "GPU/RoutingRun.h"

#include <gtest/gtest.h>

using namespace moira;
using namespace moira::test;
using namespace moira::runtime;

RoutingRun::RoutingRun(const Build &build) {
  mlir::MLIRContext &own = context.get();
  mlir::Location loc = mlir::UnknownLoc::get(&own);
  mlir::OwningOpRef<mlir::ModuleOp> module = mlir::ModuleOp::create(loc);
  mlir::OpBuilder b(module->getBodyRegion());
  build(mlir::gpu::GPUModuleOp::create(b, loc, "kernels"), b);
  image = EmulatedImage::compile(*module);
  EXPECT_TRUE(image) << context.errors;
}

void RoutingRun::run(EmulatedDevice &device, const char *name,
                     const std::vector<KernelArgument> &arguments,
                     int64_t sharedBytes, int32_t blocks) {
  LaunchShape shape;
  shape.grid.x = blocks;
  shape.block.x = int32_t(mlir::moe::kRoutingThreads);
  shape.dynamicShared = sharedBytes;
  Status status = launchAndWait(device, *image, name, shape, arguments);
  EXPECT_TRUE(status.ok()) << status.message;
}

std::unique_ptr<EmulatedDevice> moira::test::openChecked(uint64_t seed) {
  EmulatedOptions options;
  options.checks = emulator::Checks::all();
  options.seed = seed;
  return openEmulated(options);
}

KernelArgument moira::test::word(const int32_t &value) {
  return KernelArgument::of(value);
}

KernelArgument moira::test::place(const DeviceArray &array) {
  return KernelArgument::of(array.memory);
}
