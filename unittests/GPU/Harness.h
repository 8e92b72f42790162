// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// From a GPU module to kernels that run on the emulated device.

#ifndef MOIRA_UNITTESTS_GPU_HARNESS_H
#define MOIRA_UNITTESTS_GPU_HARNESS_H

#include "device/Device.h"
#include "moira/JIT/EmulatedKernels.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OwningOpRef.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace moira::test {

/// Changes kernels after they were built.
using Edit = std::function<void(mlir::gpu::GPUModuleOp)>;

/// A context with all dialects of the project; its diagnostics go to `errors`.
class GPUContext {
public:
  GPUContext();
  mlir::MLIRContext &get() { return *context; }
  std::string errors;

private:
  std::unique_ptr<mlir::MLIRContext> context;
};

/// Host code of a GPU module.
class EmulatedImage {
public:
  /// Lowers and compiles the GPU module `name`, all that `module` holds, which
  /// is used up. Null, and a failed expectation, when that is not possible.
  static std::unique_ptr<EmulatedImage>
  compile(mlir::ModuleOp module, const std::string &name = "kernels");
  const moira_emu_module *description = nullptr;

private:
  std::unique_ptr<EmulatedKernels> kernels;
};

/// Compiles textual IR: a module with a gpu.module called "kernels".
std::unique_ptr<EmulatedImage> compileText(GPUContext &context,
                                           const std::string &text);

/// Brings the functions of the GPU modules to the NVVM dialect.
bool lowerGPUModules(mlir::ModuleOp module);

/// Memory of a device for the length of a test, filled with 0xff first.
class DeviceArray {
public:
  DeviceArray(runtime::Device &device, int64_t bytes);
  template <typename T>
  DeviceArray(runtime::Device &device, const std::vector<T> &values)
      : DeviceArray(device, int64_t(values.size() * sizeof(T))) {
    write(values.data());
  }
  ~DeviceArray();
  DeviceArray(const DeviceArray &) = delete;
  DeviceArray &operator=(const DeviceArray &) = delete;

  void write(const void *from);
  void read(void *to) const;
  template <typename T> std::vector<T> values() const {
    std::vector<T> all(bytes / sizeof(T));
    read(all.data());
    return all;
  }

  void *memory = nullptr;
  const int64_t bytes;

private:
  runtime::Device &device;
};

/// Launches a kernel and waits for it.
Status launchAndWait(runtime::Device &device, const EmulatedImage &image,
                     const std::string &kernel,
                     const runtime::LaunchShape &shape,
                     const std::vector<runtime::KernelArgument> &arguments);

} // namespace moira::test

#endif // MOIRA_UNITTESTS_GPU_HARNESS_H
