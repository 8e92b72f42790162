// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Kernels for the emulated device: from a GPU module, or from the LLVM IR of
// another compiler, to an image that the device loads (docs/emulator.md).

#ifndef MOIRA_JIT_EMULATEDKERNELS_H
#define MOIRA_JIT_EMULATEDKERNELS_H

#include "moira/emulator_abi.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include "llvm/Support/Error.h"

#include <memory>

namespace moira {

class LoadedObject;

/// Reads LLVM IR (text or bitcode) for NVIDIA GPUs: a module with the GPU
/// module `kernels`, in the LLVM and NVVM dialects. Errors begin with the path.
llvm::Expected<mlir::OwningOpRef<mlir::ModuleOp>>
importKernels(llvm::StringRef path, mlir::MLIRContext &context);

/// Host code of one GPU module.
class EmulatedKernels {
public:
  ~EmulatedKernels();
  /// Lowers (`scf`, `arith` and `math` may be left) and compiles the GPU module
  /// `name`, all that `module` holds, which is used up.
  static llvm::Expected<std::unique_ptr<EmulatedKernels>>
  compile(mlir::ModuleOp module, llvm::StringRef name = "kernels");

  const moira_emu_module *description = nullptr;

private:
  EmulatedKernels();
  std::shared_ptr<LoadedObject> object;
};

} // namespace moira

#endif // MOIRA_JIT_EMULATEDKERNELS_H
