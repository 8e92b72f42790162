// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "AbiBuilder.h"

#include "moira/Conversion/Passes.h"
#include "moira/Dialect/MoE/IR/MoEDialect.h"
#include "moira/abi.h"

#include <map>

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

namespace mlir::moe {
#define GEN_PASS_DEF_MARKPARTSPASS
#include "moira/Conversion/Passes.h.inc"
} // namespace mlir::moe

using namespace mlir;
using namespace mlir::moe;

/// Whether `op` belongs to an exchange.
static bool isOfExchange(Operation *op) {
  return isCollective(op) || isa<ReceiveSizesOp, MergeRowsOp>(op);
}

/// Whether `op` is a loop that exchanges rows in chunks: its body has parts of
/// its own.
static bool hasParts(Operation *op) {
  auto check = [](Operation *inner) {
    return isOfExchange(inner) ? WalkResult::interrupt()
                               : WalkResult::advance();
  };
  return isa<scf::ForOp>(op) && op->walk(check).wasInterrupted();
}

/// Part of the step that `op` belongs to, -1 when it takes no time of note.
static int64_t getPart(Operation *op) {
  if (isOfExchange(op))
    return MOIRA_PART_EXCHANGE;
  if (isa<GateOp, GateGradientOp, CountOp, AssignOp, NoiseOp, CapacityOp>(op))
    return MOIRA_PART_GATE;
  if (isa<DispatchOp, SourcesOp>(op))
    return MOIRA_PART_DISPATCH;
  // The gradient of the weights of a combine reads what the combine read.
  if (isa<CombineOp, PairDotOp>(op))
    return MOIRA_PART_COMBINE;
  if (isa<GroupedMatmulOp>(op))
    return op->hasAttr("layer") ? MOIRA_PART_EXPERT : MOIRA_PART_OTHER;
  if (isa<linalg::LinalgDialect, scf::SCFDialect>(op->getDialect()) ||
      isa<PackOp>(op))
    return MOIRA_PART_OTHER;
  return -1;
}

/// Floating-point operations of one row of `op`.
static int64_t flopsPerRow(GroupedMatmulOp op) {
  if (op.getContraction() || ShapedType::isDynamic(op.getN()) ||
      ShapedType::isDynamic(op.getK()))
    return 0;
  return 2 * op.getN() * op.getK() * op.getWeights().size();
}

namespace {

struct MarkParts : public moe::impl::MarkPartsPassBase<MarkParts> {
  using MarkPartsPassBase::MarkPartsPassBase;

  void runOnOperation() override {
    // The declaration belongs to the module, which functions share.
    for (auto function :
         llvm::to_vector(getOperation().getOps<func::FuncOp>())) {
      if (function.isDeclaration())
        continue;
      if (insertMarks(function))
        declareEnter(function);
      describe(function);
    }
  }

private:
  /// Where the marks so far have led, and the layer that the last op named.
  struct Place {
    int64_t part, layer, named;
  };

  /// Marks the top level of the function, where parts follow each other.
  static bool insertMarks(func::FuncOp function) {
    // Only layers that the manifest lists may be named: what comes before the
    // first belongs to it.
    int64_t layer = -1;
    function.walk([&](Operation *op) {
      auto number = op->getAttrOfType<IntegerAttr>("layer");
      if (!number)
        return WalkResult::advance();
      layer = number.getInt();
      return WalkResult::interrupt();
    });
    if (layer < 0)
      return false;
    Place place{MOIRA_PART_OTHER, layer, layer};
    return markBlock(function.front(), place);
  }

  static bool markBlock(Block &block, Place &place) {
    bool inserted = false;
    for (Operation &op : llvm::make_early_inc_range(block)) {
      if (op.hasTrait<OpTrait::IsTerminator>())
        continue;
      if (hasParts(&op)) {
        // An iteration begins where the one before it ended.
        place.part = -1;
        inserted |= markBlock(*cast<scf::ForOp>(op).getBody(), place);
        place.part = -1;
        continue;
      }
      int64_t next = getPart(&op);
      if (auto given = op.getAttrOfType<IntegerAttr>("layer"))
        place.named = given.getInt();
      // The way back may go from one layer to the next within a part.
      if (next < 0 || (next == place.part && place.named == place.layer))
        continue;
      place.part = next;
      place.layer = place.named;
      ImplicitLocOpBuilder b(op.getLoc(), &op);
      func::CallOp::create(
          b, "moira_abi_enter", TypeRange{},
          ValueRange{arith::ConstantIntOp::create(b, place.layer, 64),
                     arith::ConstantIntOp::create(b, place.part, 64)});
      inserted = true;
    }
    return inserted;
  }

  static void declareEnter(func::FuncOp function) {
    auto module = function->getParentOfType<ModuleOp>();
    if (module.lookupSymbol("moira_abi_enter"))
      return;
    ImplicitLocOpBuilder b(function.getLoc(), module.getBodyRegion());
    auto declaration = func::FuncOp::create(
        b, "moira_abi_enter",
        b.getFunctionType({b.getI64Type(), b.getI64Type()}, {}));
    declaration.setPrivate();
    declaration->setAttr("moe.abi", b.getStringAttr("enter"));
  }

  void describe(func::FuncOp function) const {
    Builder b(function.getContext());
    struct Layer {
      int64_t experts = 0, topK = 0, flops = 0;
      PlacementAttr placement;
    };
    std::map<int64_t, Layer> layers;
    int64_t dense = 0, count = 1;
    ScheduleAttr schedule;
    function.walk([&](Operation *op) {
      auto number = op->getAttrOfType<IntegerAttr>("layer");
      auto matmul = dyn_cast<GroupedMatmulOp>(op);
      if (isCollective(op) && count == 1)
        count = ranks;
      if (matmul && !number)
        dense += flopsPerRow(matmul);
      if (!number)
        return;
      Layer &layer = layers[number.getInt()];
      if (auto placement = op->getAttrOfType<PlacementAttr>("placement")) {
        layer.placement = placement;
        count = placement.getRanks();
      }
      if (auto given = op->getAttrOfType<ScheduleAttr>("schedule"))
        schedule = given;
      if (auto gate = dyn_cast<GateOp>(op)) {
        layer.experts = gate.getNumExperts();
        layer.topK = gate.getNumChoices();
      } else if (auto assign = dyn_cast<AssignOp>(op)) {
        layer.experts = assign.getNumExperts();
      } else if (matmul) {
        layer.flops += flopsPerRow(matmul);
      }
    });
    SmallVector<Attribute> list;
    for (auto &[index, layer] : layers) {
      SmallVector<NamedAttribute> fields{
          b.getNamedAttr("index", b.getI64IntegerAttr(index)),
          b.getNamedAttr("experts", b.getI64IntegerAttr(layer.experts)),
          b.getNamedAttr("top_k", b.getI64IntegerAttr(layer.topK)),
          b.getNamedAttr("flops_per_row", b.getI64IntegerAttr(layer.flops))};
      if (layer.placement)
        fields.push_back(b.getNamedAttr("placement", layer.placement));
      list.push_back(b.getDictionaryAttr(fields));
    }
    if (count > 1)
      function->setAttr("moe.ranks", b.getI64IntegerAttr(count));
    if (schedule)
      function->setAttr("moe.schedule", schedule);
    if (!list.empty())
      function->setAttr("moe.layers", b.getArrayAttr(list));
    if (dense)
      function->setAttr("moe.flops_per_token", b.getI64IntegerAttr(dense));
  }
};
} // namespace
