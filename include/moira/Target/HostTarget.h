// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Code for the processor family of this machine: which processor, and the way
// from a module of the LLVM dialect to an object file.

#ifndef MOIRA_TARGET_HOSTTARGET_H
#define MOIRA_TARGET_HOSTTARGET_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/Support/Error.h"

#include <memory>
#include <string>

namespace llvm {
class LLVMContext;
class MemoryBuffer;
class Module;
class TargetMachine;
} // namespace llvm

namespace mlir {
class ModuleOp;
}

namespace moira {

/// A processor to compile for.
struct HostProcessor {
  std::string triple;
  std::string cpu; ///< LLVM's name, never "host"
  /// Features that code may use, as manifests list them: "+avx2,+fma,...".
  std::string features;
  /// The same for the code generator, which also needs to know what the
  /// processor `cpu` has and this machine lacks: "+avx2,-amx-bf16,...".
  std::string codegenFeatures;
  /// Widest vector registers in bits: 512, 256 or 128.
  unsigned vectorBits = 128;
  /// Whether it adds products of pairs of bf16 in one instruction.
  bool dotBF16 = false;
  /// The level of cache that weights are best fetched to early: 1 or 2.
  unsigned prefetchLevel = 2;
};

/// Finds the processor called `cpu`: "host" for the one of this machine, or any
/// CPU name that LLVM knows for its family. Thread safe.
llvm::Expected<HostProcessor> resolveProcessor(llvm::StringRef cpu);

/// The processor names that resolveProcessor takes, besides "host".
std::vector<std::string> listProcessors();

/// Turns modules into machine code. One thread at a time.
class HostTarget {
public:
  /// `optLevel` is 0 to 3.
  static llvm::Expected<std::unique_ptr<HostTarget>>
  create(const HostProcessor &processor, unsigned optLevel);
  ~HostTarget();

  /// Translates a module of the LLVM dialect. Errors come as MLIR diagnostics
  /// too.
  llvm::Expected<std::unique_ptr<llvm::Module>>
  translate(mlir::ModuleOp module, llvm::LLVMContext &context) const;

  /// Optimises. Functions not named in `exported` become local to the object.
  void optimize(llvm::Module &module,
                llvm::ArrayRef<std::string> exported) const;

  enum class Output { Object, Assembly };
  /// Position-independent code for an optimised module.
  llvm::Expected<std::unique_ptr<llvm::MemoryBuffer>> emit(llvm::Module &module,
                                                           Output output) const;

private:
  HostTarget(std::unique_ptr<llvm::TargetMachine> machine, unsigned vectorBits,
             unsigned optLevel);

  std::unique_ptr<llvm::TargetMachine> machine;
  unsigned vectorBits;
  unsigned optLevel;
};

} // namespace moira

#endif // MOIRA_TARGET_HOSTTARGET_H
