// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The places where moe.grouped_matmul ops are formed, and the one where they
// take rows from a dispatch.

#ifndef MOIRA_LIB_DIALECT_MOE_TRANSFORMS_FORMKERNELS_H
#define MOIRA_LIB_DIALECT_MOE_TRANSFORMS_FORMKERNELS_H

#include "FormKernelsProduct.h"

#include "moira/Dialect/MoE/Utils/HiddenBlocks.h"

namespace mlir::moe::detail {

/// Replaces `expert` by grouped_matmuls, one per stage of its body, and returns
/// how many; on failure `mismatch` says why and nothing has changed. Work that
/// no kernel takes, for want of a `disabled` fusion or as `onMiss` hears,
/// becomes loops over the experts. With `separability` the hidden dimension is
/// cut in `hiddenBlocks`.
FailureOr<unsigned> formExpertKernels(RewriterBase &rewriter, ExpertOp expert,
                                      Fusions disabled,
                                      const Separability *separability,
                                      int64_t hiddenBlocks, Mismatch &mismatch,
                                      MissFn onMiss);

/// Replaces the contractions of `block` (of a function's body, outside experts)
/// that multiply by a function argument by grouped_matmuls with one group, with
/// their elementwise consumers unless `disabled`. Returns how many it formed;
/// `onMiss` hears of contractions that do not match.
unsigned formDenseKernels(RewriterBase &rewriter, Block &block,
                          Fusions disabled, MissFn onMiss);

/// Lets grouped_matmuls read the rows of a dispatch where they come from, when
/// nothing else reads the dispatch. Returns how many dispatches went away.
unsigned fuseGathers(RewriterBase &rewriter, Block &block);

} // namespace mlir::moe::detail

#endif // MOIRA_LIB_DIALECT_MOE_TRANSFORMS_FORMKERNELS_H
