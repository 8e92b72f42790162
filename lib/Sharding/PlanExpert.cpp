// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "ShardExpert.h"

#include "moira/Dialect/MoE/Utils/HiddenBlocks.h"

#include "mlir/IR/Remarks.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

static void remarkMissed(ExpertOp expert, Operation *op, const Twine &what) {
  remark::missed(
      op->getLoc(),
      remark::RemarkOpts::name("Shard")
          .category("moe-shard")
          .function(expert->getParentOfType<func::FuncOp>().getName()))
      << remark::add("'{0}': {1}", op->getName().getStringRef().str(),
                     what.str());
}

/// Checks that experts and ranks divide one another and copies divide shards.
static FailureOr<PlacementAttr> getPlacement(ExpertOp expert,
                                             const ShardingOptions &options) {
  int64_t experts = expert.getNumExperts(), ranks = options.ranks;
  if (experts % ranks != 0 && ranks % experts != 0)
    return expert.emitOpError("expected a number of experts and one of ranks "
                              "that divide one another, got ")
           << experts << " experts and " << ranks << " ranks";
  int64_t shards = std::max<int64_t>(1, ranks / experts);
  if (options.copies < 0 ||
      (options.copies > 0 && shards % options.copies != 0))
    return expert.emitOpError("expected r = 0 or a divisor of ")
           << shards << " shards of an expert, got " << options.copies;
  int64_t slots = llvm::divideCeil(experts * shards, ranks) + options.spare;
  return PlacementAttr::get(expert.getContext(), ranks, experts, shards,
                            options.copies, slots);
}

/// Checks that all per-expert operands are parameters of the function.
static LogicalResult checkOperands(ExpertOp expert) {
  auto function = expert->getParentOfType<func::FuncOp>();
  for (auto [i, operand] : llvm::enumerate(expert.getPerExpert())) {
    auto argument = dyn_cast<BlockArgument>(operand);
    bool isInput =
        argument && argument.getOwner() == &function.getBody().front();
    if (isInput && function.getArgAttr(argument.getArgNumber(), kParamAttrName))
      continue;
    InFlightDiagnostic error =
        expert.emitOpError("expected a parameter as per-expert operand #")
        << i << ", got ";
    if (isInput)
      return error << "input #" << argument.getArgNumber();
    error << "a computed value";
    error.attachNote(operand.getLoc()) << "computed here";
    return error;
  }
  return success();
}

/// Checks that an expert can be cut as `placement` says.
static LogicalResult checkCut(ExpertOp expert, const Separability &separability,
                              PlacementAttr placement) {
  int64_t shards = placement.getShards(), copies = placement.getCopies();
  if (!separability.isSeparable()) {
    InFlightDiagnostic error =
        separability.getObstacle()->emitOpError(
            "expected a hidden dimension from the last product to the first, "
            "to "
            "cut each expert in ")
        << shards << " shards, got none: " << separability.getReason();
    error.attachNote(expert.getLoc())
        << "as many experts as ranks need no shards: " << placement.getExperts()
        << " experts, " << placement.getRanks() << " ranks";
    return error;
  }
  if (separability.getHiddenSize() % shards != 0)
    return expert.emitOpError("expected a hidden dimension that ")
           << shards << " shards divide, got " << separability.getHiddenSize();
  if (!separability.canAddCopies()) {
    Operation *op = separability.getCopyObstacle();
    if (copies > 1)
      return op->emitOpError(
                 "expected sums that can be added where tokens are, "
                 "for r = ")
             << copies << ", got an expert for r = 0 or 1 only: "
             << separability.getCopyReason();
    remarkMissed(expert, op,
                 "rows can travel once at most: " +
                     separability.getCopyReason());
  }
  if (copies > 1 && !isSubtree(shards, shards / copies))
    remarkMissed(expert, expert,
                 "r = " + Twine(copies) + " adds the sums of " + Twine(shards) +
                     " shards in another order than other r");
  return success();
}

FailureOr<ShardedExpert>
mlir::moe::detail::planExpert(ExpertOp expert, const ShardingOptions &options) {
  FailureOr<PlacementAttr> placement = getPlacement(expert, options);
  if (failed(placement) || failed(checkOperands(expert)))
    return failure();
  ShardedExpert plan{expert, *placement, {}, std::nullopt};
  if (plan.isCut()) {
    plan.separability.emplace(expert);
    if (failed(checkCut(expert, *plan.separability, *placement)))
      return failure();
  }
  for (BlockArgument argument : expert.getPerExpertArgs()) {
    std::optional<HiddenPlace> place;
    if (plan.isCut())
      place = plan.separability->getPlace(argument);
    HiddenPlace known = place.value_or(HiddenPlace());
    std::optional<int64_t> dim;
    if (place)
      dim = place->dim;
    plan.shards.push_back(ShardAttr::get(
        expert.getContext(), placement->getExperts(), placement->getShards(),
        dim, known.parts, known.interleaved));
  }
  return plan;
}
