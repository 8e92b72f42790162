// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Where values of one rank become values of all, and back.

#ifndef MOIRA_LIB_SHARDING_REPLICATE_H
#define MOIRA_LIB_SHARDING_REPLICATE_H

#include "moira/Sharding/TokenParallel.h"

namespace mlir::moe::detail {

/// Lets counts of experts be those of all ranks where anything but routing
/// reads them. Before the analysis of tokens.
void shareCounts(RewriterBase &rewriter, func::FuncOp function);

/// Makes `op`, a sum over a rank's tokens, one over all ranks' tokens.
void rewriteSum(RewriterBase &rewriter, linalg::LinalgOp op);

/// Puts a `moe.replicate` between each value that all ranks share and that may
/// have a gradient, and the ops that compute with one rank's tokens.
void insertReplicates(RewriterBase &rewriter, func::FuncOp function,
                      const TokenAnalysis &tokens);

} // namespace mlir::moe::detail

#endif // MOIRA_LIB_SHARDING_REPLICATE_H
