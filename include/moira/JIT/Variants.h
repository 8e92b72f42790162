// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// All variants of a program in one bundle: how often rows travel, how exchanges
// are cut, row classes, for several grids of ranks. docs/variants.md has the
// design.

#ifndef MOIRA_JIT_VARIANTS_H
#define MOIRA_JIT_VARIANTS_H

#include "moira/JIT/HostCompiler.h"

#include "mlir/IR/OwningOpRef.h"

namespace moira {

/// Which variants to make.
struct VariantOptions {
  /// Numbers of ranks, each once; each gets a grid of its own in the manifest.
  std::vector<int64_t> grids = {1};
  /// How often rows travel (r); empty: all that are legal.
  std::vector<int64_t> copies;
  /// How exchanges are cut, each once. Has no meaning where no rows travel.
  std::vector<mlir::moe::Schedule> schedules = {mlir::moe::Schedule::Equal,
                                                mlir::moe::Schedule::Groups};
};

/// Reads "r=auto schedule=equal,groups rows=decode,prefill". Keys that are not
/// given keep what they have; row classes are those of `pipeline`. The error
/// names what was expected.
llvm::Error parseVariants(llvm::StringRef text, VariantOptions &variants,
                          PipelineOptions &pipeline);

/// Compiles `module` (phase input; it is cloned, not changed) to the end of
/// phase target, once for each grid, r and schedule, and puts all of it into
/// one module, where functions that are the same are one. What an expert cannot
/// do is left out, with a remark of category `moe-variants` and a note in the
/// manifest; it is an error where it was asked for by name and no grid can do
/// it.
llvm::Expected<mlir::OwningOpRef<mlir::ModuleOp>>
lowerVariants(mlir::ModuleOp module, const JitOptions &options,
              const VariantOptions &variants);

/// The same for the ranks of `options` alone, whatever `variants.grids` has,
/// ready to run; kept in no cache.
llvm::Expected<std::shared_ptr<const runtime::Program>>
compileVariants(mlir::ModuleOp module, const JitOptions &options,
                const VariantOptions &variants);

} // namespace moira

#endif // MOIRA_JIT_VARIANTS_H
