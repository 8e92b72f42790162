// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "GPU/TextKernel.h"

using namespace moira;
using namespace moira::test;
using namespace moira::runtime;

std::string TextKernel::source() const {
  std::string parameters;
  for (int i = 0; i < maps; ++i)
    parameters += "%map" + std::to_string(i) +
                  ": !llvm.ptr {llvm.byval = !llvm.array<128 x i8>, "
                  "llvm.align = 64 : i64, nvvm.grid_constant}, ";
  return "module {\ngpu.module @kernels {\n" + globals + "\nllvm.func @k(" +
         parameters +
         "%p0: !llvm.ptr<1>, %p1: !llvm.ptr<1>) attributes {gpu.kernel, "
         "nvvm.kernel} {\n" +
         body + "\nllvm.return\n}\n}\n}\n";
}

Status TextKernel::launch() {
  if (!image) {
    GPUContext context;
    image = compileText(context, source());
    if (!image)
      return Status(MOIRA_FAILED, context.errors);
  }
  std::unique_ptr<EmulatedDevice> device = openEmulated(options);
  DeviceArray out(*device, outputBytes);
  DeviceArray in(*device, input);
  std::vector<EncodedTensor> encoded;
  if (withMaps)
    encoded = withMaps(*device, out);
  std::vector<KernelArgument> arguments;
  for (const EncodedTensor &map : encoded)
    arguments.push_back(KernelArgument::of(map));
  arguments.push_back(KernelArgument::of(out.memory));
  arguments.push_back(KernelArgument::of(in.memory));
  LaunchShape shape;
  shape.grid.x = blocks;
  shape.block.x = threads;
  shape.dynamicShared = dynamicShared;
  Status status = launchAndWait(*device, *image, "k", shape, arguments);
  report = device->takeReport();
  output = out.values<unsigned char>();
  arrays.clear();
  return status;
}

void TextKernel::expectFault(emulator::FaultKind kind,
                             const std::string &text) {
  Status status = launch();
  EXPECT_EQ(status.code, MOIRA_FAILED);
  bool found = false;
  for (const emulator::Fault &fault : report.faults)
    found |= fault.kind == kind && fault.text.find(text) != std::string::npos;
  EXPECT_TRUE(found) << "expected '" << text << "', got\n" << report.text();
}
