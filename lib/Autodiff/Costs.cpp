// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Costs.h"

#include "moira/Dialect/MoE/IR/MoEDialect.h"

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace mlir::moe;

/// Whether copies of rows that came back from experts are added here: the sum
/// is kept, not the copies.
static bool isSumOfCopies(Operation *op) {
  auto linalgOp = dyn_cast<linalg::LinalgOp>(op);
  return linalgOp && linalgOp.getNumDpsInputs() > 1 &&
         llvm::all_of(linalgOp.getDpsInputs(), [](Value input) {
           auto slice = input.getDefiningOp<tensor::ExtractSliceOp>();
           return slice && slice.getSource().getDefiningOp<ExchangeOp>();
         });
}

bool mlir::moe::detail::isDecision(Operation *op) {
  if (isSumOfCopies(op))
    return true;
  if (isa<GateOp, CountOp, AssignOp, CapacityOp, NoiseOp, AllGatherOp,
          GatherCountsOp, ReceiveSizesOp, SlotShardsOp, ExchangeOp, AllReduceOp,
          RankOp, ChunksOp>(op))
    return true;
  // Loops and branches compute integers here: they have no gradient.
  return !isMemoryEffectFree(op) ||
         (op->getNumRegions() != 0 &&
          !isa<linalg::LinalgOp, ExpertOp, GroupedMatmulOp, tensor::GenerateOp,
               tensor::PadOp>(op));
}

/// Whether the elements of a linalg op are rounded versions of one tensor's.
static bool isRounding(linalg::LinalgOp op) {
  Value only;
  for (OpOperand *input : op.getDpsInputOperands())
    if (isa<RankedTensorType>(input->get().getType())) {
      if (only)
        return false;
      only = input->get();
    }
  auto from = only ? dyn_cast<FloatType>(getElementTypeOrSelf(only.getType()))
                   : FloatType();
  auto to =
      dyn_cast<FloatType>(getElementTypeOrSelf(op->getResult(0).getType()));
  return from && to && to.getWidth() < from.getWidth();
}

bool mlir::moe::detail::isCostly(Operation *op) {
  // Gathered weights are not here: they are gathered again, since kept they
  // would be all experts' of all layers.
  if (isa<ExpertOp, CombineOp, GroupedMatmulOp, ReduceWeightsOp, PairDotOp,
          GateGradientOp, linalg::SoftmaxOp>(op))
    return true;
  auto linalgOp = dyn_cast<linalg::LinalgOp>(op);
  return linalgOp && op->getNumResults() > 0 &&
         (linalgOp.getNumReductionLoops() != 0 || isRounding(linalgOp));
}
