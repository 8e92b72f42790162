// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "moira/Schedule/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "mlir/IR/Remarks.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "mlir/Transforms/RegionUtils.h"

namespace mlir::moe {
#define GEN_PASS_DEF_SCHEDULEPASS
#include "moira/Schedule/Passes.h.inc"
} // namespace mlir::moe

using namespace mlir;
using namespace mlir::moe;

/// Whether `function` is the way back of another one.
static bool isBackward(func::FuncOp function) {
  auto module = function->getParentOfType<ModuleOp>();
  return module &&
         llvm::any_of(module.getOps<func::FuncOp>(), [&](func::FuncOp other) {
           auto name =
               other->getAttrOfType<FlatSymbolRefAttr>(kBackwardAttrName);
           return name && name.getValue() == function.getName();
         });
}

/// Whether `op` only brings rows together, or says how many they are.
static bool isCheap(Operation *op) {
  return isa<DispatchOp, tensor::CastOp, tensor::CollapseShapeOp,
             tensor::DimOp>(op) ||
         (isPure(op) && op->getNumRegions() == 0 &&
          llvm::all_of(op->getResultTypes(),
                       [](Type type) { return type.isIntOrIndex(); }));
}

/// Moves an exchange, with what brings its rows together, right behind the
/// values that they are made of: what stands in between overlaps with it.
static void moveUp(ExchangeOp exchange) {
  llvm::SetVector<Operation *> moved;
  moved.insert(exchange);
  for (size_t i = 0; i < moved.size(); ++i)
    for (Value operand : moved[i]->getOperands()) {
      Operation *source = operand.getDefiningOp();
      if (source && source->getBlock() == exchange->getBlock() &&
          isCheap(source))
        moved.insert(source);
    }
  SmallVector<Operation *> sorted(moved.begin(), moved.end());
  llvm::sort(sorted, [](Operation *one, Operation *other) {
    return one->isBeforeInBlock(other);
  });
  for (Operation *op : sorted) {
    Operation *last = nullptr;
    for (Value operand : op->getOperands()) {
      Operation *source = operand.getDefiningOp();
      if (source && source->getBlock() == op->getBlock() &&
          (!last || last->isBeforeInBlock(source)))
        last = source;
    }
    if (last)
      op->moveAfter(last);
    else
      op->moveBefore(&op->getBlock()->front());
  }
}

namespace {

/// The ops between the rows' arrival at the experts and their way back, all of
/// one block, in order.
struct Layer {
  llvm::SetVector<Operation *> ops;
  SmallVector<ExchangeOp> backs;
  /// Rows that are used after the layer too: what a way back needs.
  SmallVector<Value> kept;
  /// Why the layer cannot be cut: an op and a reason.
  Operation *obstacle = nullptr;
  StringRef reason;

  bool contains(Value value) const {
    return value.getDefiningOp() && ops.contains(value.getDefiningOp());
  }
  void refuse(Operation *op, StringRef why) {
    if (!obstacle)
      obstacle = op, reason = why;
  }
};

struct SchedulePass : public moe::impl::SchedulePassBase<SchedulePass> {
  using SchedulePassBase::SchedulePassBase;

  void runOnOperation() override {
    std::optional<Schedule> schedule = symbolizeSchedule(kind);
    if (!schedule) {
      getOperation().emitError("expected kind equal or groups, got '")
          << kind << "'";
      return signalPassFailure();
    }
    if (isBackward(getOperation()))
      return overlapExchanges();
    SmallVector<ExchangeOp> starts;
    getOperation().walk([&](ExchangeOp op) {
      if (op.getDirection() == Direction::ToExperts && !op.getChunk() &&
          !hasBufferForm(op))
        starts.push_back(op);
    });
    llvm::SmallPtrSet<Operation *, 8> done;
    for (ExchangeOp start : starts) {
      if (done.contains(start))
        continue;
      Layer layer = collect(start);
      done.insert(layer.ops.begin(), layer.ops.end());
      check(layer);
      if (layer.obstacle)
        report(layer);
      else
        cut(layer, *schedule);
    }
  }

private:
  void overlapExchanges();
  static Layer collect(ExchangeOp start);
  static void check(Layer &layer);
  void cut(Layer &layer, Schedule schedule);
  void report(const Layer &layer) {
    remark::missed(layer.obstacle->getLoc(),
                   remark::RemarkOpts::name("Schedule")
                       .category(getArgument())
                       .function(getOperation().getName()))
        << remark::add(
               "'{0}': {1}: the layer's exchanges are not cut in chunks",
               layer.obstacle->getName().getStringRef().str(),
               layer.reason.str());
  }
};

} // namespace

/// Whether `op` belongs to the exchanges of `start`: the same counts and the
/// same experts.
static bool isOfLayer(Operation *op, ExchangeOp start) {
  if (auto exchange = dyn_cast<ExchangeOp>(op))
    return !exchange.getChunk() && exchange.getMatrix() == start.getMatrix() &&
           exchange.getPlacement() == start.getPlacement();
  auto sizes = dyn_cast<ReceiveSizesOp>(op);
  return sizes && !sizes.getChunk() && sizes.getMatrix() == start.getMatrix() &&
         sizes.getPlacement() == start.getPlacement();
}

Layer SchedulePass::collect(ExchangeOp start) {
  Layer layer;
  for (Operation &op : *start->getBlock()) {
    bool isOfExchange = isOfLayer(&op, start);
    auto exchange = dyn_cast<ExchangeOp>(op);
    bool reads = false;
    auto check = [&](Value value) {
      Operation *source = value.getDefiningOp();
      // What has come back is home again.
      reads |= source && layer.ops.contains(source) &&
               !llvm::is_contained(layer.backs, source);
    };
    llvm::for_each(op.getOperands(), check);
    llvm::SetVector<Value> captured;
    getUsedValuesDefinedAbove(op.getRegions(), captured);
    llvm::for_each(captured, check);
    bool isBack = isOfExchange && exchange &&
                  exchange.getDirection() == Direction::ToTokens;
    if (isBack && reads)
      layer.backs.push_back(exchange);
    if (reads || (isOfExchange && !isBack))
      layer.ops.insert(&op);
  }
  if (layer.backs.empty())
    return layer;
  // Only what leads to rows on their way back.
  llvm::SmallPtrSet<Operation *, 16> needed(layer.backs.begin(),
                                            layer.backs.end());
  for (Operation *op : llvm::reverse(layer.ops))
    for (Operation *user : op->getUsers())
      if (needed.contains(op->getBlock()->findAncestorOpInBlock(*user)))
        needed.insert(op);
  layer.ops.remove_if([&](Operation *op) { return !needed.contains(op); });
  return layer;
}

/// Whether row i of every result depends on row i of what comes from `layer`
/// alone, and on nothing else that counts rows.
static bool isRowWise(linalg::LinalgOp op, const Layer &layer) {
  if (!op.isAllParallelLoops() || op.hasIndexSemantics() ||
      op.getNumLoops() == 0)
    return false;
  AffineExpr row = getAffineDimExpr(0, op.getContext());
  for (OpOperand &operand : op->getOpOperands()) {
    AffineMap map = op.getMatchingIndexingMap(&operand);
    bool isRows = layer.contains(operand.get()) && map.getNumResults() > 0;
    if (isRows && map.getResult(0) != row)
      return false;
    for (AffineExpr result : map.getResults().drop_front(isRows))
      if (result.isFunctionOfDim(0))
        return false;
  }
  return true;
}

/// Whether `value` has a row for each row received.
static bool isRows(Value value) {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  return type && type.getRank() == 2 && type.isDynamicDim(0) &&
         !type.isDynamicDim(1);
}

/// Checks that every op of the layer may run on a part of the rows.
static void checkOps(Layer &layer) {
  for (Operation *op : layer.ops) {
    if (isa<ReceiveSizesOp, ExchangeOp, tensor::DimOp, tensor::CastOp,
            tensor::EmptyOp>(op))
      continue;
    if (auto expert = dyn_cast<ExpertOp>(op)) {
      auto isInside = [&](Value value) { return layer.contains(value); };
      if (!isInside(expert.getSizes()) ||
          !llvm::all_of(expert.getRows(), isInside) ||
          llvm::any_of(expert.getPerExpert(), isInside) ||
          llvm::any_of(expert.getShared(), isInside))
        layer.refuse(op, "rows that are not all received");
      if (!llvm::all_of(expert.getResults(), isRows))
        layer.refuse(op, "sums over all rows of an expert");
      continue;
    }
    auto isNumber = [](Type type) { return type.isIntOrIndex(); };
    if (isPure(op) && llvm::all_of(op->getOperandTypes(), isNumber) &&
        llvm::all_of(op->getResultTypes(), isNumber))
      continue;
    auto linalgOp = dyn_cast<linalg::LinalgOp>(op);
    if (!linalgOp || !isRowWise(linalgOp, layer))
      layer.refuse(op, "an op that does not treat rows one by one");
  }
}

void SchedulePass::overlapExchanges() {
  SmallVector<ExchangeOp> exchanges;
  getOperation().walk([&](ExchangeOp op) {
    if (!op.getChunk() && !hasBufferForm(op))
      exchanges.push_back(op);
  });
  Builder b(&getContext());
  for (ExchangeOp exchange : exchanges) {
    exchange->setAttr(kQueueAttrName, b.getStringAttr("communication"));
    if (exchange.getDirection() == Direction::ToExperts)
      moveUp(exchange);
  }
}

void SchedulePass::check(Layer &layer) {
  if (layer.backs.empty())
    layer.refuse(layer.ops.front(), "rows that do not come back");
  checkOps(layer);
  Operation *last = layer.ops.back();
  for (Operation *op : layer.ops) {
    bool isBack = llvm::is_contained(layer.backs, op);
    auto exchange = dyn_cast<ExchangeOp>(op);
    if (exchange && !isBack && exchange.getDirection() == Direction::ToTokens)
      layer.refuse(op, "rows that go elsewhere");
    for (Value result : op->getResults()) {
      bool isKept = false;
      for (Operation *user : result.getUsers()) {
        user = op->getBlock()->findAncestorOpInBlock(*user);
        if (!isBack && layer.ops.contains(user))
          continue;
        // Sizes are those of all chunks there.
        if (!isBack && isa<ReceiveSizesOp>(op))
          continue;
        if (!isBack && !isRows(result))
          layer.refuse(user, "received rows that are used elsewhere");
        if (!last->isBeforeInBlock(user))
          layer.refuse(user, isBack ? "rows used before all have come back"
                                    : "received rows that are used elsewhere");
        isKept = !isBack;
      }
      if (isKept)
        layer.kept.push_back(result);
    }
  }
  for (ExchangeOp back : layer.backs) {
    auto type = cast<RankedTensorType>(back.getResult(0).getType());
    if (back.getInit() || layer.contains(back.getBound()) ||
        type.isDynamicDim(type.getRank() - 1))
      layer.refuse(back, "rows of unknown size");
  }
}

/// Lets the sizes of all rows stay for those who use them behind the layer;
/// returns how many rows they are, if rows are kept.
static Value keepSizes(Layer &layer, OpBuilder &b) {
  Value allRows;
  for (Operation *op : layer.ops) {
    if (!isa<ReceiveSizesOp>(op))
      continue;
    bool isUsed = llvm::any_of(op->getUsers(), [&](Operation *user) {
      return !layer.ops.contains(op->getBlock()->findAncestorOpInBlock(*user));
    });
    if (!isUsed && (allRows || layer.kept.empty()))
      continue;
    b.setInsertionPoint(op);
    Operation *all = b.clone(*op);
    allRows = all->getResult(1);
    for (auto [old, result] : llvm::zip(op->getResults(), all->getResults()))
      old.replaceUsesWithIf(result, [&](OpOperand &use) {
        return !layer.ops.contains(
            op->getBlock()->findAncestorOpInBlock(*use.getOwner()));
      });
  }
  return allRows;
}

void SchedulePass::cut(Layer &layer, Schedule schedule) {
  MLIRContext *context = &getContext();
  auto scheduleAttr = ScheduleAttr::get(context, schedule);
  auto mark = [&](Operation *op, StringRef queue, int64_t stage) {
    Builder b(context);
    op->setAttr(kQueueAttrName, b.getStringAttr(queue));
    op->setAttr(kStageAttrName, b.getI64IntegerAttr(stage));
  };

  // 1. The loop, with memory for what comes back and what is kept.
  ExchangeOp first = layer.backs.front();
  ImplicitLocOpBuilder b(first.getLoc(), context);
  Value allRows = keepSizes(layer, b);
  b.setInsertionPointAfter(layer.ops.back());
  Value chunks = ChunksOp::create(b, scheduleAttr, first.getLayerAttr());
  SmallVector<Value> inits;
  for (ExchangeOp back : layer.backs) {
    auto type = cast<RankedTensorType>(back.getResult(0).getType());
    SmallVector<Value> sizes;
    if (type.isDynamicDim(type.getRank() - 2))
      sizes.push_back(back.getBound());
    inits.push_back(tensor::EmptyOp::create(b, type, sizes));
  }
  for (Value rows : layer.kept)
    inits.push_back(tensor::EmptyOp::create(
        b, cast<RankedTensorType>(rows.getType()), allRows));
  Value zero = arith::ConstantIndexOp::create(b, 0);
  Value one = arith::ConstantIndexOp::create(b, 1);
  auto loop = scf::ForOp::create(b, zero, chunks, one, inits);
  for (auto [back, result] : llvm::zip(layer.backs, loop.getResults()))
    back.getResult(0).replaceAllUsesWith(result);
  ValueRange merged = loop.getResults().drop_front(layer.backs.size());
  for (auto [rows, result] : llvm::zip(layer.kept, merged))
    rows.replaceUsesWithIf(result, [&](OpOperand &use) {
      return !layer.ops.contains(
          first->getBlock()->findAncestorOpInBlock(*use.getOwner()));
    });

  // 2. Its body: the layer's ops on one chunk.
  Block *body = loop.getBody();
  if (body->mightHaveTerminator())
    body->getTerminator()->erase();
  for (Operation *op : layer.ops)
    op->moveBefore(body, body->end());
  b.setInsertionPointToEnd(body);
  SmallVector<Value> yielded;
  for (ExchangeOp back : layer.backs)
    yielded.push_back(back.getResult(0));
  for (auto [rows, carried] :
       llvm::zip(layer.kept,
                 loop.getRegionIterArgs().drop_front(layer.backs.size()))) {
    auto merge = MergeRowsOp::create(
        b, TypeRange(rows.getType()), rows, first.getMatrix(),
        loop.getInductionVar(), chunks, carried, /*outs=*/ValueRange(),
        first.getPlacement(), schedule, first.getLayerAttr());
    mark(merge, "compute", 1);
    yielded.push_back(merge->getResult(0));
  }
  scf::YieldOp::create(b, yielded);
  for (Operation *op : layer.ops) {
    if (auto sizes = dyn_cast<ReceiveSizesOp>(op)) {
      sizes.getChunkMutable().assign(loop.getInductionVar());
      sizes.getChunksMutable().assign(chunks);
      sizes.setScheduleAttr(scheduleAttr);
    } else if (auto exchange = dyn_cast<ExchangeOp>(op)) {
      exchange.getChunkMutable().assign(loop.getInductionVar());
      exchange.getChunksMutable().assign(chunks);
      exchange.setScheduleAttr(scheduleAttr);
      mark(op, "communication",
           exchange.getDirection() == Direction::ToTokens ? 2 : 0);
    } else if (!isPure(op) || isa<ExpertOp, linalg::LinalgOp>(op)) {
      mark(op, "compute", 1);
    }
  }
  for (auto [back, carried] : llvm::zip(layer.backs, loop.getRegionIterArgs()))
    back.getInitMutable().assign(carried);
  ++numLayers;
}
