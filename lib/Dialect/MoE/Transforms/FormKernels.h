// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The two places where moe.grouped_matmul ops are formed.

#ifndef MOIRA_LIB_DIALECT_MOE_TRANSFORMS_FORMKERNELS_H
#define MOIRA_LIB_DIALECT_MOE_TRANSFORMS_FORMKERNELS_H

#include "FormKernelsProduct.h"

namespace mlir::moe::detail {

/// Replaces `expert` by grouped_matmuls, one per stage of its body, and returns
/// how many; on failure `mismatch` says why and nothing has changed.
FailureOr<unsigned> formExpertKernels(RewriterBase &rewriter, ExpertOp expert,
                                      Mismatch &mismatch);

/// Replaces the contractions of `block` (of a function's body, outside experts)
/// that multiply by a function argument by grouped_matmuls with one group, with
/// their elementwise consumers when `fuse` is set. Returns how many it formed;
/// `onMiss` hears of contractions that do not match.
unsigned formDenseKernels(RewriterBase &rewriter, Block &block, bool fuse,
                          llvm::function_ref<void(const Mismatch &)> onMiss);

} // namespace mlir::moe::detail

#endif // MOIRA_LIB_DIALECT_MOE_TRANSFORMS_FORMKERNELS_H
