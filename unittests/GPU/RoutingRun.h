// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Routing kernels on the emulated device.

#ifndef MOIRA_UNITTESTS_GPU_ROUTINGRUN_H
#define MOIRA_UNITTESTS_GPU_ROUTINGRUN_H

#include "GPU/Harness.h"
#include "moira/Conversion/MoEToGPU/RoutingKernel.h"

#include <functional>

namespace moira::test {

/// Kernels, compiled.
class RoutingRun {
public:
  using Build =
      std::function<void(mlir::gpu::GPUModuleOp module, mlir::OpBuilder &b)>;
  explicit RoutingRun(const Build &build);

  /// Runs one and expects no fault.
  void run(runtime::EmulatedDevice &device, const char *name,
           const std::vector<runtime::KernelArgument> &arguments,
           int64_t sharedBytes = 0, int32_t blocks = 3);

private:
  GPUContext context;
  std::unique_ptr<EmulatedImage> image;
};

/// A device with all checks.
std::unique_ptr<runtime::EmulatedDevice> openChecked(uint64_t seed);

runtime::KernelArgument word(const int32_t &value);
runtime::KernelArgument place(const DeviceArray &array);

} // namespace moira::test

#endif // MOIRA_UNITTESTS_GPU_ROUTINGRUN_H
