// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "AbiBuilder.h"

#include "moira/Conversion/Passes.h"
#include "moira/Dialect/MoE/IR/MoEDialect.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Transforms/RegionUtils.h"

namespace mlir::moe {
#define GEN_PASS_DEF_OUTLINEPARALLELPASS
#include "moira/Conversion/Passes.h.inc"
} // namespace mlir::moe

using namespace mlir;
using namespace mlir::moe;

/// Trip count assumed for loops whose bounds are not constants.
static constexpr int64_t kAssumedTrips = 64;

/// Estimates the nanoseconds of one run of `block`: one per operation.
static int64_t estimateCost(Block &block) {
  int64_t cost = 0;
  for (Operation &op : block) {
    int64_t trips = 1;
    if (auto loop = dyn_cast<scf::ForOp>(op)) {
      APInt lower, upper, step;
      trips = kAssumedTrips;
      if (matchPattern(loop.getLowerBound(), m_ConstantInt(&lower)) &&
          matchPattern(loop.getUpperBound(), m_ConstantInt(&upper)) &&
          matchPattern(loop.getStep(), m_ConstantInt(&step)) &&
          step.isStrictlyPositive())
        trips =
            std::max<int64_t>(0, (upper.getSExtValue() - lower.getSExtValue()) /
                                     step.getSExtValue());
    } else if (isa<scf::ParallelOp>(op)) {
      trips = kAssumedTrips;
    }
    int64_t inner = 0;
    for (Region &region : op.getRegions())
      for (Block &nested : region)
        inner += estimateCost(nested);
    cost = std::min<int64_t>(cost + 1 + trips * inner, 1000000000);
  }
  return cost;
}

namespace {

struct OutlineParallel
    : public moe::impl::OutlineParallelPassBase<OutlineParallel> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    LLVMTypeConverter converter(&getContext());
    for (auto function : llvm::to_vector(module.getOps<func::FuncOp>())) {
      // Updates run on a part of a parameter each, side by side.
      if (getKind(function) != "step" || function->hasAttr("moe.update"))
        continue;
      SmallVector<scf::ParallelOp> loops;
      function.walk<WalkOrder::PreOrder>([&](scf::ParallelOp loop) {
        if (loop.getNumResults() == 0)
          loops.push_back(loop);
        return loop.getNumResults() == 0 ? WalkResult::skip()
                                         : WalkResult::advance();
      });
      for (auto [i, loop] : llvm::enumerate(loops))
        outline(function, loop, i, converter);
    }
    shareBodies();
  }

private:
  void outline(func::FuncOp function, scf::ParallelOp loop, unsigned number,
               const LLVMTypeConverter &converter);
  void shareBodies();

  /// The functions made of loops, and what names each.
  SmallVector<std::pair<func::FuncOp, func::ConstantOp>> bodies;
};

/// Values from outside `region` that its body needs, without constants.
SmallVector<Value> collectCaptures(Region &region,
                                   SmallVectorImpl<Operation *> &constants) {
  llvm::SetVector<Value> used;
  getUsedValuesDefinedAbove(region, used);
  SmallVector<Value> captures;
  for (Value value : used) {
    Operation *definition = value.getDefiningOp();
    if (definition && matchPattern(definition, m_Constant()))
      constants.push_back(definition);
    else
      captures.push_back(value);
  }
  return captures;
}

} // namespace

void OutlineParallel::outline(func::FuncOp function, scf::ParallelOp loop,
                              unsigned number,
                              const LLVMTypeConverter &converter) {
  MLIRContext *context = &getContext();
  ImplicitLocOpBuilder b(loop.getLoc(), loop);
  auto pointer = LLVM::LLVMPointerType::get(context);
  Type i64 = b.getI64Type();

  // 1. The inner dimensions become sequential loops of the body; bounds of all
  // dimensions are captured like any other value.
  SmallVector<Operation *> constants;
  SmallVector<Value> captures = collectCaptures(loop.getRegion(), constants);
  llvm::SetVector<Value> all(captures.begin(), captures.end());
  llvm::SetVector<Operation *> allConstants(constants.begin(), constants.end());
  for (ValueRange bounds :
       {ValueRange(loop.getLowerBound()), ValueRange(loop.getUpperBound()),
        ValueRange(loop.getStep())})
    for (Value bound : bounds) {
      Operation *definition = bound.getDefiningOp();
      if (definition && matchPattern(definition, m_Constant()))
        allConstants.insert(definition);
      else
        all.insert(bound);
    }
  captures = llvm::to_vector(all.getArrayRef());

  // 2. The struct that carries the captures.
  SmallVector<Type> fields;
  for (Value capture : captures)
    fields.push_back(converter.convertType(capture.getType()));
  auto structType = LLVM::LLVMStructType::getLiteral(context, fields);

  // 3. The body's function.
  std::string name = (function.getName() + "_parallel_" + Twine(number)).str();
  auto body = func::FuncOp::create(
      loop.getLoc(), name, b.getFunctionType({pointer, pointer, i64, i64}, {}));
  body.setPrivate();
  body->setAttr(kKindAttrName, b.getStringAttr("body"));
  SymbolTable(getOperation()).insert(body, Block::iterator(function));
  Block *entry = body.addEntryBlock();
  ImplicitLocOpBuilder inner(loop.getLoc(), context);
  inner.setInsertionPointToStart(entry);
  IRMapping mapping;
  for (Operation *constant : allConstants)
    inner.clone(*constant, mapping);
  if (!captures.empty()) {
    Value loaded =
        LLVM::LoadOp::create(inner, structType, entry->getArgument(1));
    for (auto [i, capture] : llvm::enumerate(captures)) {
      Value field = LLVM::ExtractValueOp::create(
          inner, loaded, ArrayRef<int64_t>{static_cast<int64_t>(i)});
      if (field.getType() != capture.getType())
        field =
            UnrealizedConversionCastOp::create(inner, capture.getType(), field)
                .getResult(0);
      mapping.map(capture, field);
    }
  }
  auto lookup = [&](Value value) { return mapping.lookup(value); };
  SmallVector<Value> ivs;
  Value index = arith::IndexCastOp::create(inner, inner.getIndexType(),
                                           entry->getArgument(2));
  ivs.push_back(arith::AddIOp::create(
      inner, lookup(loop.getLowerBound()[0]),
      arith::MulIOp::create(inner, index, lookup(loop.getStep()[0]))));
  OpBuilder::InsertionGuard guard(inner);
  for (unsigned d = 1; d < loop.getNumLoops(); ++d) {
    auto sequential = scf::ForOp::create(inner, lookup(loop.getLowerBound()[d]),
                                         lookup(loop.getUpperBound()[d]),
                                         lookup(loop.getStep()[d]));
    ivs.push_back(sequential.getInductionVar());
    inner.setInsertionPointToStart(sequential.getBody());
  }
  mapping.map(loop.getInductionVars(), ivs);
  for (Operation &op : loop.getBody()->without_terminator())
    inner.clone(op, mapping);
  inner.setInsertionPointToEnd(entry);
  func::ReturnOp::create(inner);

  // 4. The call in place of the loop.
  Value storage = AbiBuilder::entryAlloca(b, structType, 1);
  Value packed = LLVM::PoisonOp::create(b, structType);
  for (auto [i, capture] : llvm::enumerate(captures)) {
    Value field = capture;
    if (field.getType() != fields[i])
      field = UnrealizedConversionCastOp::create(b, fields[i], capture)
                  .getResult(0);
    packed = LLVM::InsertValueOp::create(
        b, packed, field, ArrayRef<int64_t>{static_cast<int64_t>(i)});
  }
  LLVM::StoreOp::create(b, packed, storage);
  Value span = arith::SubIOp::create(b, loop.getUpperBound()[0],
                                     loop.getLowerBound()[0]);
  Value count = arith::CeilDivSIOp::create(b, span, loop.getStep()[0]);
  auto reference = func::ConstantOp::create(
      b, body.getFunctionType(), SymbolRefAttr::get(context, body.getName()));
  bodies.push_back({body, reference});
  Value address =
      UnrealizedConversionCastOp::create(b, pointer, reference.getResult())
          .getResult(0);
  int64_t cost;
  if (auto given = loop->getAttrOfType<IntegerAttr>("moe.cost"))
    cost = given.getInt();
  else
    cost = estimateCost(body.front());
  AbiBuilder(b, function.getArgument(0))
      .parallelFor(address, storage, count, cost);
  loop.erase();
}

/// What is equal has one function: variants, and products of equal shapes, have
/// many loops in common, and the compiler's time is that of the code it makes.
void OutlineParallel::shareBodies() {
  llvm::DenseMap<size_t, SmallVector<func::FuncOp>> known;
  for (auto &entry : bodies) {
    func::FuncOp body = entry.first;
    size_t key = 0;
    body->walk(
        [&](Operation *op) { key = llvm::hash_combine(key, op->getName()); });
    SmallVector<func::FuncOp> &similar = known[key];
    auto *same = llvm::find_if(similar, [&](func::FuncOp other) {
      return OperationEquivalence::isRegionEquivalentTo(
          &body.getBody(), &other.getBody(),
          OperationEquivalence::IgnoreLocations);
    });
    if (same == similar.end()) {
      similar.push_back(body);
      continue;
    }
    entry.second.setValueAttr(SymbolRefAttr::get(*same));
    body.erase();
  }
  bodies.clear();
}
