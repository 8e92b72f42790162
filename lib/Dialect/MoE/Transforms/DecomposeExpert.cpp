// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "moira/Dialect/MoE/Transforms/DecomposeExpert.h"

#include "DecomposeGroups.h"

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/ADT/BitVector.h"

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

void mlir::moe::lowerExpertToLoops(RewriterBase &rewriter, ExpertOp op) {
  DecomposeBuilder b(rewriter, op);
  ReifiedRankedShapedTypeDims shapes;
  LogicalResult reified = op.reifyResultShapes(b, shapes);
  assert(succeeded(reified) && "a verified expert has static features");
  (void)reified;
  Values outs;
  for (auto [type, shape] : llvm::zip(op.getResultTypes(), shapes))
    outs.push_back(b.castTo(b.empty(shape, getElementTypeOrSelf(type)), type));
  llvm::BitVector sums(op.getNumResults());
  for (unsigned i = 0; i < op.getNumResults(); ++i)
    sums[i] = op.isSum(i);
  Values results = forEachGroup(
      b, op.getSizes(), op.isPadded(), outs,
      [&](const Group &group, ValueRange carried) {
        Values args;
        for (auto [rows, arg] : llvm::zip(op.getRows(), op.getRowArgs()))
          args.push_back(b.castTo(group.of(rows), arg.getType()));
        for (Value operand : op.getPerExpert())
          args.push_back(expertSlice(b, operand, group.expert));
        llvm::append_range(args, op.getShared());
        Block *block = b.getInsertionBlock();
        rewriter.inlineBlockBefore(&op.getBody().front(), block,
                                   b.getInsertionPoint(), args);
        auto yield = cast<YieldOp>(*std::prev(b.getInsertionPoint()));
        Values next;
        for (auto [i, value] : llvm::enumerate(yield.getOperands())) {
          if (!sums[i]) {
            next.push_back(group.insert(value, carried[i]));
            continue;
          }
          auto [offsets, sizes] = expertBounds(b, carried[i], group.expert);
          next.push_back(b.insertSlice(value, carried[i], offsets, sizes));
        }
        rewriter.eraseOp(yield);
        return next;
      });
  rewriter.replaceOp(op, results);
}
