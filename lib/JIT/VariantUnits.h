// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One compilation of a program among several, and how they become one module.

#ifndef MOIRA_LIB_JIT_VARIANTUNITS_H
#define MOIRA_LIB_JIT_VARIANTUNITS_H

#include "moira/JIT/Variants.h"
#include "session/Manifest.h"

namespace moira {

/// A grid, r and a schedule.
struct VariantUnit {
  int64_t ranks = 1;
  int64_t copies = 1;
  mlir::moe::Schedule schedule = mlir::moe::Schedule::Equal;

  /// "r1-groups", or "r0", where nothing is cut.
  std::string name() const;
};

/// A unit at the end of phase target.
struct CompiledUnit {
  VariantUnit unit;
  mlir::OwningOpRef<mlir::ModuleOp> module;
  runtime::Manifest manifest;
};

/// The units of one grid, the first of which says what all have in common.
struct CompiledGrid {
  int64_t ranks = 1;
  std::vector<CompiledUnit> units;
  /// What was left out, one sentence each.
  std::vector<std::string> notes;
};

/// Puts all units into one module with one manifest and folds what is the same.
/// All were compiled for `hiddenBlocks`.
llvm::Expected<mlir::OwningOpRef<mlir::ModuleOp>>
mergeUnits(std::vector<CompiledGrid> grids, int64_t hiddenBlocks);

} // namespace moira

#endif // MOIRA_LIB_JIT_VARIANTUNITS_H
