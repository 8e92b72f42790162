// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Collectives.h"
#include "AbiBuilder.h"
#include "WorkspaceBound.h"

#include "moira/Dialect/MoE/IR/MoEDialect.h"
#include "moira/abi.h"

#include "mlir/Conversion/LLVMCommon/MemRefBuilder.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Interfaces/ViewLikeInterface.h"
#include "llvm/ADT/TypeSwitch.h"

#include <cstddef>

using namespace mlir;
using namespace mlir::moe;

namespace {

/// The values of the enums are the contract's.
static_assert(int(Schedule::Equal) == MOIRA_SCHEDULE_EQUAL &&
              int(Schedule::Groups) == MOIRA_SCHEDULE_GROUPS &&
              int(Direction::ToExperts) == MOIRA_TO_EXPERTS &&
              int(Direction::ToTokens) == MOIRA_TO_TOKENS);

/// What both forms of an exchange, and the sizes it brings, say of it.
struct Exchange {
  std::optional<uint64_t> layer;
  PlacementAttr placement;
  Direction direction;
  Schedule schedule;
  Value chunk, chunks, matrix;
  Value home = {}, away = {}; // null for sizes
};

/// What both forms of a gather of weights say of it.
struct Gather {
  std::optional<uint64_t> layer;
  PlacementAttr placement;
  Value local, whole;
  bool replicated;
};

/// MOIRA_... of an element type that reductions know.
static int64_t getReducible(Type type) {
  return TypeSwitch<Type, int64_t>(type)
      .Case([](Float16Type) { return MOIRA_F16; })
      .Case([](BFloat16Type) { return MOIRA_BF16; })
      .Case([](Float32Type) { return MOIRA_F32; })
      .Case([](Float64Type) { return MOIRA_F64; })
      .Default([](Type integer) {
        return integer.isInteger(32) ? MOIRA_I32 : MOIRA_I64;
      });
}

class CollectiveLowering {
public:
  CollectiveLowering(func::FuncOp step, const LLVMTypeConverter &converter,
                     ArrayRef<int64_t> parameterIndex)
      : step(step), converter(converter), parameterIndex(parameterIndex),
        b(step.getLoc(), step.getContext()), abi(b, step.getArgument(0)) {}

  void startAt(Operation *op) {
    b.setInsertionPoint(op);
    b.setLoc(op->getLoc());
  }
  void lower(RankOp op);
  void lower(ChunksOp op);
  void lower(SlotShardsOp op);
  void lower(AllGatherOp op);
  void lower(GatherCountsOp op);
  void lower(ReceiveSizesOp op);
  void lower(ExchangeOp op);
  void lower(StartExchangeOp op);
  void lower(GatherWeightsOp op);
  void lower(StartGatherOp op);
  void lower(MergeRowsOp op);
  void lower(AllReduceOp op);
  void lower(StartAllReduceOp op);
  void lower(ReduceWeightsOp op);
  void lower(StartReduceOp op);
  void lower(WaitOp op);

private:
  Value pointer(Value memref) {
    return AbiBuilder::dataPointer(b, converter, memref);
  }
  Value i32(int64_t value) {
    return LLVM::ConstantOp::create(b, b.getI32Type(), value);
  }
  Value toIndex(Value number) {
    return arith::IndexCastOp::create(b, b.getIndexType(), number);
  }
  Value size(Value memref, int64_t dim) {
    return AbiBuilder::toI64(b, memref::DimOp::create(b, memref, dim));
  }
  void storePlacement(Value pointer, int64_t bytes, PlacementAttr placement);
  /// A moira_exchange or a moira_gather on the stack.
  Value build(const Exchange &exchange);
  Value build(const Gather &gather);
  /// A moira_reduce on the stack.
  Value buildReduce(const Gather &gather);
  /// Queues a sum over all ranks; returns its ticket.
  Value startAllReduce(Value mine, Value sum);
  /// Index in the parameter table of what `memref` is a view of, or -1.
  int64_t findParameter(Value memref);

  func::FuncOp step;
  const LLVMTypeConverter &converter;
  ArrayRef<int64_t> parameterIndex;
  ImplicitLocOpBuilder b;
  AbiBuilder abi;
};

} // namespace

/// The runtime sees pointers and sizes, no strides, and cuts weights in slots
/// of a known size.
static LogicalResult checkMemory(Operation *op) {
  for (Value operand : op->getOperands()) {
    auto type = dyn_cast<MemRefType>(operand.getType());
    if (!type)
      continue;
    if (!type.getLayout().isIdentity() &&
        !type.areTrailingDimsContiguous(type.getRank()))
      return op->emitOpError("expected compact memory, got ") << type;
    if (isa<GatherWeightsOp, StartGatherOp, ReduceWeightsOp, StartReduceOp>(
            op) &&
        !type.hasStaticShape())
      return op->emitOpError("expected weights of static shape, got ") << type;
  }
  auto check = [](auto weights) -> LogicalResult {
    if (!weights || weights.isConcatenation())
      return success();
    return weights.emitOpError(
               "expected shards of dim 1 and one part, got dim ")
           << *weights.getDim() << " and " << weights.getParts() << " parts";
  };
  return success(succeeded(check(dyn_cast<GatherWeightsOp>(op))) &&
                 succeeded(check(dyn_cast<ReduceWeightsOp>(op))));
}

void CollectiveLowering::storePlacement(Value pointer, int64_t bytes,
                                        PlacementAttr placement) {
  auto store = [&](size_t offset, int64_t value) {
    AbiBuilder::storeField(b, pointer, bytes + static_cast<int64_t>(offset),
                           i32(value));
  };
  store(offsetof(moira_placement, experts), placement.getExperts());
  store(offsetof(moira_placement, shards), placement.getShards());
  store(offsetof(moira_placement, copies), placement.getCopies());
  store(offsetof(moira_placement, slots), placement.getSlots());
}

Value CollectiveLowering::build(const Exchange &exchange) {
  Value result =
      AbiBuilder::entryAlloca(b, b.getI8Type(), sizeof(moira_exchange));
  auto store = [&](size_t offset, Value value) {
    AbiBuilder::storeField(b, result, static_cast<int64_t>(offset), value);
  };
  store(offsetof(moira_exchange, layer),
        AbiBuilder::i64(b, exchange.layer.value_or(0)));
  storePlacement(result, offsetof(moira_exchange, placement),
                 exchange.placement);
  store(offsetof(moira_exchange, direction),
        i32(static_cast<int64_t>(exchange.direction)));
  store(offsetof(moira_exchange, schedule),
        i32(static_cast<int64_t>(exchange.schedule)));
  store(offsetof(moira_exchange, chunk),
        exchange.chunk ? AbiBuilder::toI64(b, exchange.chunk)
                       : AbiBuilder::i64(b, 0));
  store(offsetof(moira_exchange, chunks),
        exchange.chunks ? AbiBuilder::toI64(b, exchange.chunks)
                        : AbiBuilder::i64(b, 1));
  store(offsetof(moira_exchange, counts), pointer(exchange.matrix));
  if (!exchange.home) {
    Value null =
        LLVM::ZeroOp::create(b, LLVM::LLVMPointerType::get(b.getContext()));
    store(offsetof(moira_exchange, home), null);
    store(offsetof(moira_exchange, home_rows), AbiBuilder::i64(b, 0));
    store(offsetof(moira_exchange, away), null);
    store(offsetof(moira_exchange, row_bytes), AbiBuilder::i64(b, 0));
    return result;
  }
  store(offsetof(moira_exchange, home), pointer(exchange.home));
  store(offsetof(moira_exchange, away), pointer(exchange.away));
  auto away = cast<MemRefType>(exchange.away.getType());
  Value columns = size(exchange.away, 1);
  bool isStacked = cast<MemRefType>(exchange.home.getType()).getRank() == 3;
  store(offsetof(moira_exchange, home_rows), size(exchange.home, isStacked));
  Value bytes = AbiBuilder::i64(b, getElementBytes(away.getElementType()));
  store(offsetof(moira_exchange, row_bytes),
        LLVM::MulOp::create(b, columns, bytes));
  return result;
}

int64_t CollectiveLowering::findParameter(Value memref) {
  while (auto view = memref.getDefiningOp<ViewLikeOpInterface>())
    memref = view.getViewSource();
  auto argument = dyn_cast<BlockArgument>(memref);
  if (!argument || argument.getOwner() != &step.front() ||
      !step.getArgAttr(argument.getArgNumber(), kParamAttrName))
    return -1;
  int64_t position = 0;
  for (unsigned i = 1; i < argument.getArgNumber(); ++i)
    position += step.getArgAttr(i, kParamAttrName) != Attribute();
  return parameterIndex[position];
}

Value CollectiveLowering::build(const Gather &gather) {
  Value result =
      AbiBuilder::entryAlloca(b, b.getI8Type(), sizeof(moira_gather));
  auto store = [&](size_t offset, Value value) {
    AbiBuilder::storeField(b, result, static_cast<int64_t>(offset), value);
  };
  auto type = cast<MemRefType>(gather.local.getType());
  store(offsetof(moira_gather, layer),
        AbiBuilder::i64(b, gather.layer.value_or(0)));
  storePlacement(result, offsetof(moira_gather, placement), gather.placement);
  store(offsetof(moira_gather, parameter), i32(findParameter(gather.local)));
  store(offsetof(moira_gather, replicated), i32(gather.replicated));
  store(offsetof(moira_gather, local), pointer(gather.local));
  store(offsetof(moira_gather, whole), pointer(gather.whole));
  store(offsetof(moira_gather, bytes),
        AbiBuilder::i64(b, getStaticBytes(type) / type.getDimSize(0)));
  return result;
}

Value CollectiveLowering::buildReduce(const Gather &gather) {
  Value result =
      AbiBuilder::entryAlloca(b, b.getI8Type(), sizeof(moira_reduce));
  auto store = [&](size_t offset, Value value) {
    AbiBuilder::storeField(b, result, static_cast<int64_t>(offset), value);
  };
  auto type = cast<MemRefType>(gather.local.getType());
  store(offsetof(moira_reduce, layer),
        AbiBuilder::i64(b, gather.layer.value_or(0)));
  storePlacement(result, offsetof(moira_reduce, placement), gather.placement);
  store(offsetof(moira_reduce, parameter), i32(-1));
  store(offsetof(moira_reduce, replicated), i32(gather.replicated));
  store(offsetof(moira_reduce, whole), pointer(gather.whole));
  store(offsetof(moira_reduce, local), pointer(gather.local));
  store(offsetof(moira_reduce, count),
        AbiBuilder::i64(b, type.getNumElements() / type.getDimSize(0)));
  store(offsetof(moira_reduce, dtype),
        i32(getReducible(type.getElementType())));
  store(offsetof(moira_reduce, unused), i32(0));
  return result;
}

Value CollectiveLowering::startAllReduce(Value mine, Value sum) {
  auto type = cast<MemRefType>(mine.getType());
  Value count = AbiBuilder::i64(b, 1);
  for (int64_t d = 0; d < type.getRank(); ++d)
    count = LLVM::MulOp::create(b, count, size(mine, d));
  return abi.allReduce(pointer(mine), pointer(sum), count,
                       getReducible(type.getElementType()));
}

void CollectiveLowering::lower(RankOp op) {
  op.getResult().replaceAllUsesWith(toIndex(abi.rank()));
}

void CollectiveLowering::lower(ChunksOp op) {
  Value chunks = abi.chunks(op.getLayer().value_or(0),
                            static_cast<int64_t>(op.getSchedule()));
  op.getResult().replaceAllUsesWith(toIndex(chunks));
}

/// Plans stand in the order of the manifest's layers.
static int64_t findPlan(func::FuncOp step, int64_t layer) {
  auto layers = step->getAttrOfType<ArrayAttr>("moe.layers");
  int64_t position = 0;
  if (layers)
    for (auto description : layers.getAsRange<DictionaryAttr>())
      position += description.getAs<IntegerAttr>("index").getInt() < layer;
  return position;
}

void CollectiveLowering::lower(SlotShardsOp op) {
  PlacementAttr placement = op.getPlacement();
  auto slots = static_cast<int64_t>(placement.getSlots());
  Value table = abi.slotTable(findPlan(step, op.getLayer().value_or(0)));
  Value null = LLVM::ZeroOp::create(b, table.getType());
  Value isIdentity =
      LLVM::ICmpOp::create(b, LLVM::ICmpPredicate::eq, table, null);
  Value first = arith::MulIOp::create(b, abi.rank(), i32(slots));
  auto loop = scf::ForOp::create(b, arith::ConstantIndexOp::create(b, 0),
                                 arith::ConstantIndexOp::create(b, slots),
                                 arith::ConstantIndexOp::create(b, 1));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Value slot = loop.getInductionVar();
  Value place = arith::AddIOp::create(
      b, first, arith::IndexCastOp::create(b, b.getI32Type(), slot));
  auto unit = scf::IfOp::create(b, TypeRange{b.getI32Type()}, isIdentity,
                                /*withElseRegion=*/true);
  b.setInsertionPointToStart(unit.thenBlock());
  scf::YieldOp::create(b, place);
  b.setInsertionPointToStart(unit.elseBlock());
  Value address = LLVM::GEPOp::create(b, table.getType(), b.getI32Type(), table,
                                      ArrayRef<LLVM::GEPArg>{place});
  scf::YieldOp::create(b,
                       Value(LLVM::LoadOp::create(b, b.getI32Type(), address)));
  b.setInsertionPointAfter(unit);
  // -1, as in an empty slot, is large here.
  int64_t units = placement.getExperts() * placement.getShards();
  Value isUnit = arith::CmpIOp::create(b, arith::CmpIPredicate::ult,
                                       unit.getResult(0), i32(units));
  Value shard =
      arith::RemUIOp::create(b, unit.getResult(0), i32(placement.getShards()));
  memref::StoreOp::create(b, arith::SelectOp::create(b, isUnit, shard, i32(-1)),
                          op.getOuts()[0], slot);
}

void CollectiveLowering::lower(AllGatherOp op) {
  auto type = cast<MemRefType>(op.getMine().getType());
  abi.allGather(pointer(op.getMine()), AbiBuilder::i64(b, getStaticBytes(type)),
                pointer(op.getOuts()[0]));
}

void CollectiveLowering::lower(GatherCountsOp op) {
  auto type = cast<MemRefType>(op.getSizes().getType());
  abi.gatherCounts(op.getLayer().value_or(0), type.getDimSize(0),
                   pointer(op.getSizes()), pointer(op.getOuts()[0]));
}

void CollectiveLowering::lower(ReceiveSizesOp op) {
  Value exchange =
      build({op.getLayer(), op.getPlacement(), Direction::ToExperts,
             op.getSchedule(), op.getChunk(), op.getChunks(), op.getMatrix()});
  Value bound = abi.receiveSizes(exchange, pointer(op.getOuts()[0]));
  op.getResult(0).replaceAllUsesWith(toIndex(bound));
}

void CollectiveLowering::lower(ExchangeOp op) {
  Value home = op.getRows(), away = op.getOuts()[0];
  if (op.getDirection() == Direction::ToTokens)
    std::swap(home, away);
  abi.wait(abi.exchange(build(
      {op.getLayer(), op.getPlacement(), op.getDirection(), op.getSchedule(),
       op.getChunk(), op.getChunks(), op.getMatrix(), home, away})));
}

void CollectiveLowering::lower(StartExchangeOp op) {
  Value ticket =
      abi.exchange(build({op.getLayer(), op.getPlacement(), op.getDirection(),
                          op.getSchedule(), op.getChunk(), op.getChunks(),
                          op.getMatrix(), op.getHome(), op.getAway()}));
  op.getTicket().replaceAllUsesWith(toIndex(ticket));
}

void CollectiveLowering::lower(GatherWeightsOp op) {
  abi.wait(abi.gatherWeights(
      build({op.getLayer(), op.getPlacement(), op.getWeights(), op.getOuts()[0],
             !op.getDim()})));
}

void CollectiveLowering::lower(StartGatherOp op) {
  Value ticket =
      abi.gatherWeights(build({op.getLayer(), op.getPlacement(), op.getLocal(),
                               op.getWhole(), op.getReplicated()}));
  op.getTicket().replaceAllUsesWith(toIndex(ticket));
}

void CollectiveLowering::lower(MergeRowsOp op) {
  abi.mergeRows(build({op.getLayer(), op.getPlacement(), Direction::ToExperts,
                       op.getSchedule(), op.getChunk(), op.getChunks(),
                       op.getMatrix(), op.getOuts()[0], op.getRows()}));
}

void CollectiveLowering::lower(AllReduceOp op) {
  abi.wait(startAllReduce(op.getMine(), op.getOuts()[0]));
}

void CollectiveLowering::lower(StartAllReduceOp op) {
  op.getTicket().replaceAllUsesWith(
      toIndex(startAllReduce(op.getMine(), op.getSum())));
}

void CollectiveLowering::lower(ReduceWeightsOp op) {
  abi.wait(abi.reduceWeights(
      buildReduce({op.getLayer(), op.getPlacement(), op.getOuts()[0],
                   op.getWhole(), !op.getDim()})));
}

void CollectiveLowering::lower(StartReduceOp op) {
  Value ticket = abi.reduceWeights(
      buildReduce({op.getLayer(), op.getPlacement(), op.getLocal(),
                   op.getWhole(), op.getReplicated()}));
  op.getTicket().replaceAllUsesWith(toIndex(ticket));
}

void CollectiveLowering::lower(WaitOp op) { abi.wait(op.getTicket()); }

LogicalResult mlir::moe::lowerCollectives(func::FuncOp step,
                                          const LLVMTypeConverter &converter,
                                          ArrayRef<int64_t> parameterIndex) {
  CollectiveLowering lowering(step, converter, parameterIndex);
  WalkResult result = step.walk([&](Operation *op) {
    return TypeSwitch<Operation *, WalkResult>(op)
        .Case<RankOp, ChunksOp, SlotShardsOp, AllGatherOp, GatherCountsOp,
              ReceiveSizesOp, ExchangeOp, StartExchangeOp, GatherWeightsOp,
              StartGatherOp, AllReduceOp, StartAllReduceOp, ReduceWeightsOp,
              StartReduceOp, MergeRowsOp, WaitOp>([&](auto typed) {
          if (failed(checkMemory(op)))
            return WalkResult::interrupt();
          lowering.startAt(op);
          lowering.lower(typed);
          op->erase();
          return WalkResult::skip();
        })
        .Default([](Operation *) { return WalkResult::advance(); });
  });
  return failure(result.wasInterrupted());
}
