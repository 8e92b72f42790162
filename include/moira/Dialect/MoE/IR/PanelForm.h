// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The memory of packed weights, without the ops that read it.

#ifndef MOIRA_DIALECT_MOE_IR_PANELFORM_H
#define MOIRA_DIALECT_MOE_IR_PANELFORM_H

#include "llvm/ADT/SmallVector.h"

#include <cstdint>

namespace mlir::moe {

/// How weights `[E, N, K]` are packed.
struct PanelForm {
  /// Columns of a panel.
  int64_t width = 0;
  /// Whether a step holds two indices of K.
  bool pairs = false;
  /// Blocks that N and K are cut in; one of them is 1.
  int64_t blocksOfN = 1, blocksOfK = 1;

  /// Panels of one block, and steps of a panel. Dynamic sizes stay dynamic.
  int64_t panelsPerBlock(int64_t n) const;
  int64_t steps(int64_t k) const;
  /// `[E, panels of all blocks, steps, width]`, and 2 for pairs.
  llvm::SmallVector<int64_t> shape(int64_t experts, int64_t n, int64_t k) const;
  bool operator==(const PanelForm &other) const {
    return width == other.width && pairs == other.pairs &&
           blocksOfN == other.blocksOfN && blocksOfK == other.blocksOfK;
  }
};

} // namespace mlir::moe

#endif // MOIRA_DIALECT_MOE_IR_PANELFORM_H
