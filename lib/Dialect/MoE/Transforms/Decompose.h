// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The executable meaning of every op, in tensor form: linalg, tensor, scf,
// arith and math. Each function replaces the op.

#ifndef MOIRA_LIB_DIALECT_MOE_TRANSFORMS_DECOMPOSE_H
#define MOIRA_LIB_DIALECT_MOE_TRANSFORMS_DECOMPOSE_H

#include "moira/Dialect/MoE/IR/MoEDialect.h"

#include "mlir/IR/PatternMatch.h"

namespace mlir::moe::detail {

void decompose(RewriterBase &rewriter, GateOp op);
void decompose(RewriterBase &rewriter, CountOp op);
void decompose(RewriterBase &rewriter, CapacityOp op);
void decompose(RewriterBase &rewriter, AssignOp op);
void decompose(RewriterBase &rewriter, NoiseOp op);
void decompose(RewriterBase &rewriter, LossOp op);
void decompose(RewriterBase &rewriter, DispatchOp op);
void decompose(RewriterBase &rewriter, CombineOp op);
void decompose(RewriterBase &rewriter, SourcesOp op);
void decompose(RewriterBase &rewriter, GroupedMatmulOp op);
void decompose(RewriterBase &rewriter, PackOp op);
void decompose(RewriterBase &rewriter, GateGradientOp op);
void decompose(RewriterBase &rewriter, PairDotOp op);

} // namespace mlir::moe::detail

#endif // MOIRA_LIB_DIALECT_MOE_TRANSFORMS_DECOMPOSE_H
