// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The steps from a program to machine code, for the JIT and for tools that stop
// between them.

#ifndef MOIRA_JIT_HOSTCOMPILER_H
#define MOIRA_JIT_HOSTCOMPILER_H

#include "moira/Target/HostTarget.h"
#include "moira/jit.h"

namespace moira {

namespace runtime {
struct Manifest; // runtime/session/Manifest.h
}

/// Machine code and what the runtime must know about it.
struct CompiledObject {
  std::string manifest; ///< JSON
  std::unique_ptr<llvm::MemoryBuffer> object;
  std::string gpuCode{}; ///< of kernels, where the manifest says
};

/// Compiles programs for one processor. One thread at a time.
class HostCompiler {
public:
  static llvm::Expected<HostCompiler> create(const JitOptions &options);

  /// With the target's description filled in.
  const JitOptions &options() const { return settings; }
  const HostTarget &target() const { return *machine; }

  /// Brings `module` from phase input to the end of `last`, in place; writes
  /// the phases where the options say so.
  llvm::Error lower(mlir::ModuleOp module, Phase last) const;

  /// LLVM IR of a module at the end of phase target, optimised.
  llvm::Expected<std::unique_ptr<llvm::Module>>
  translate(mlir::ModuleOp module, llvm::LLVMContext &context) const;

  /// Machine code of a module at the end of phase target.
  llvm::Expected<CompiledObject> emit(mlir::ModuleOp module) const;

  /// All steps; changes `module`.
  llvm::Expected<CompiledObject> compile(mlir::ModuleOp module) const;

private:
  HostCompiler(JitOptions settings, std::unique_ptr<HostTarget> machine);

  JitOptions settings;
  std::unique_ptr<HostTarget> machine;
};

/// The code of kernels of a module at the end of phase target; may be empty.
std::string getGPUCode(mlir::ModuleOp module);

/// The manifest of a module at the end of phase target.
llvm::Expected<std::string> getManifest(mlir::ModuleOp module);

/// The symbols that the runtime looks up, with repetitions.
std::vector<std::string> listSymbols(const runtime::Manifest &manifest);
/// The same for all grids of a manifest's text.
llvm::Expected<std::vector<std::string>> listSymbols(llvm::StringRef manifest);

} // namespace moira

#endif // MOIRA_JIT_HOSTCOMPILER_H
