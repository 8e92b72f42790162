// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "moira/Dialect/MoE/Transforms/BufferizableOpInterfaceImpl.h"

#include "moira/Dialect/MoE/IR/MoEDialect.h"

#include "mlir/Dialect/Bufferization/IR/BufferizableOpInterface.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"

using namespace mlir;
using namespace mlir::bufferization;
using namespace mlir::moe;

/// The operands of `op`, tensors replaced by their buffers.
static FailureOr<SmallVector<Value>>
getBuffers(RewriterBase &rewriter, Operation *op,
           const BufferizationOptions &options, BufferizationState &state) {
  SmallVector<Value> operands;
  for (Value operand : op->getOperands()) {
    if (isa<TensorType>(operand.getType())) {
      FailureOr<Value> buffer = getBuffer(rewriter, operand, options, state);
      if (failed(buffer))
        return failure();
      operand = *buffer;
    }
    operands.push_back(operand);
  }
  return operands;
}

/// What all models say: operands are read, results are new.
template <typename Model, typename OpTy>
struct ReadsOperands
    : public BufferizableOpInterface::ExternalModel<Model, OpTy> {
  bool bufferizesToMemoryRead(Operation *, OpOperand &,
                              const AnalysisState &) const {
    return true;
  }
  bool bufferizesToMemoryWrite(Operation *, OpOperand &,
                               const AnalysisState &) const {
    return false;
  }
  AliasingValueList getAliasingValues(Operation *, OpOperand &,
                                      const AnalysisState &) const {
    return {};
  }
};

/// An op with a tensor form and a buffer form.
template <typename OpTy, typename Model = void>
struct ComputeOpModel
    : public ReadsOperands<std::conditional_t<std::is_void_v<Model>,
                                              ComputeOpModel<OpTy>, Model>,
                           OpTy> {
  bool bufferizesToAllocation(Operation *, Value) const { return true; }

  FailureOr<BufferLikeType> getBufferType(Operation *, Value value,
                                          const BufferizationOptions &options,
                                          const BufferizationState &,
                                          SmallVector<Value> &) const {
    auto type = cast<TensorType>(value.getType());
    std::optional<Attribute> space = options.defaultMemorySpaceFn(type);
    if (!space)
      return failure();
    return cast<BufferLikeType>(
        getMemRefTypeWithStaticIdentityLayout(type, *space));
  }

  LogicalResult bufferize(Operation *op, RewriterBase &rewriter,
                          const BufferizationOptions &options,
                          BufferizationState &state) const {
    Location loc = op->getLoc();
    FailureOr<SmallVector<Value>> operands =
        getBuffers(rewriter, op, options, state);
    if (failed(operands))
      return failure();
    ReifiedRankedShapedTypeDims shapes;
    if (failed(cast<OpTy>(op).reifyResultShapes(rewriter, shapes)))
      return op->emitOpError("expected result shapes in terms of operands");
    SmallVector<Value> outs;
    for (OpResult result : op->getResults()) {
      auto type = dyn_cast<RankedTensorType>(result.getType());
      if (!type)
        continue;
      FailureOr<BufferLikeType> bufferType =
          bufferization::getBufferType(result, options, state);
      if (failed(bufferType))
        return failure();
      SmallVector<Value> sizes;
      for (int64_t d = 0; d < type.getRank(); ++d)
        if (type.isDynamicDim(d))
          sizes.push_back(getValueOrCreateConstantIndexOp(
              rewriter, loc, shapes[result.getResultNumber()][d]));
      FailureOr<Value> out = options.createAlloc(
          rewriter, loc, cast<MemRefType>(*bufferType), sizes);
      if (failed(out))
        return failure();
      outs.push_back(*out);
    }

    auto buffered =
        OpTy::create(rewriter, loc, TypeRange(), *operands, op->getAttrs());
    buffered.getOutsMutable().append(outs);
    for (auto [from, to] : llvm::zip(op->getRegions(), buffered->getRegions()))
      rewriter.inlineRegionBefore(from, to, to.begin());
    SmallVector<Value> results(outs);
    if constexpr (std::is_same_v<OpTy, AssignOp>)
      results.push_back(buffered.buildBound(rewriter, loc));
    replaceOpWithBufferizedValues(rewriter, op, results);
    return success();
  }
};

/// A new buffer for `groups`; `bound` stays a result.
struct ReceiveSizesOpModel
    : public ComputeOpModel<ReceiveSizesOp, ReceiveSizesOpModel> {
  LogicalResult bufferize(Operation *op, RewriterBase &rewriter,
                          const BufferizationOptions &options,
                          BufferizationState &state) const {
    Location loc = op->getLoc();
    FailureOr<SmallVector<Value>> operands =
        getBuffers(rewriter, op, options, state);
    FailureOr<BufferLikeType> type =
        bufferization::getBufferType(op->getResult(0), options, state);
    if (failed(operands) || failed(type))
      return failure();
    FailureOr<Value> out =
        options.createAlloc(rewriter, loc, cast<MemRefType>(*type), {});
    if (failed(out))
      return failure();
    auto buffered = ReceiveSizesOp::create(rewriter, loc,
                                           TypeRange(rewriter.getIndexType()),
                                           *operands, op->getAttrs());
    buffered.getOutsMutable().append(*out);
    replaceOpWithBufferizedValues(rewriter, op, {*out, buffered.getResult(0)});
    return success();
  }
};

/// With `init` the chunk's rows are written in place, else into a new buffer.
template <typename OpTy>
struct InitOpModel : public ComputeOpModel<OpTy, InitOpModel<OpTy>> {
  using Base = ComputeOpModel<OpTy, InitOpModel<OpTy>>;

  static bool isInit(OpOperand &operand) {
    auto op = cast<OpTy>(operand.getOwner());
    return op.getInit() && operand.getOperandNumber() ==
                               op.getInitMutable().begin()->getOperandNumber();
  }
  bool bufferizesToAllocation(Operation *op, Value) const {
    return !cast<OpTy>(op).getInit();
  }
  bool bufferizesToMemoryWrite(Operation *, OpOperand &operand,
                               const AnalysisState &) const {
    return isInit(operand);
  }
  AliasingValueList getAliasingValues(Operation *op, OpOperand &operand,
                                      const AnalysisState &) const {
    if (!isInit(operand))
      return {};
    return {{op->getResult(0), BufferRelation::Equivalent}};
  }
  FailureOr<BufferLikeType> getBufferType(Operation *op, Value value,
                                          const BufferizationOptions &options,
                                          const BufferizationState &state,
                                          SmallVector<Value> &stack) const {
    if (Value init = cast<OpTy>(op).getInit())
      return bufferization::getBufferType(init, options, state, stack);
    return Base::getBufferType(op, value, options, state, stack);
  }

  LogicalResult bufferize(Operation *op, RewriterBase &rewriter,
                          const BufferizationOptions &options,
                          BufferizationState &state) const {
    auto tensorOp = cast<OpTy>(op);
    if (!tensorOp.getInit())
      return Base::bufferize(op, rewriter, options, state);
    FailureOr<Value> rows =
        getBuffer(rewriter, tensorOp.getRows(), options, state);
    FailureOr<Value> matrix =
        getBuffer(rewriter, tensorOp.getMatrix(), options, state);
    FailureOr<Value> init =
        getBuffer(rewriter, tensorOp.getInit(), options, state);
    if (failed(rows) || failed(matrix) || failed(init))
      return failure();
    Operation *buffered = create(rewriter, tensorOp, *rows, *matrix, *init);
    buffered->setDiscardableAttrs(op->getDiscardableAttrDictionary());
    replaceOpWithBufferizedValues(rewriter, op, *init);
    return success();
  }

private:
  static Operation *create(OpBuilder &b, ExchangeOp op, Value rows,
                           Value matrix, Value init) {
    return ExchangeOp::create(b, op.getLoc(), TypeRange(), rows, matrix,
                              op.getBound(), op.getChunk(), op.getChunks(),
                              /*init=*/Value(), init, op.getDirection(),
                              op.getPlacement(), op.getSchedule(),
                              op.getLayerAttr());
  }
  static Operation *create(OpBuilder &b, MergeRowsOp op, Value rows,
                           Value matrix, Value init) {
    return MergeRowsOp::create(b, op.getLoc(), TypeRange(), rows, matrix,
                               op.getChunk(), op.getChunks(),
                               /*init=*/Value(), init, op.getPlacement(),
                               op.getSchedule(), op.getLayerAttr());
  }
};

/// Reads `counts`; its result is an index.
struct CapacityOpModel : public ReadsOperands<CapacityOpModel, CapacityOp> {
  LogicalResult bufferize(Operation *op, RewriterBase &rewriter,
                          const BufferizationOptions &options,
                          BufferizationState &state) const {
    FailureOr<SmallVector<Value>> operands =
        getBuffers(rewriter, op, options, state);
    if (failed(operands))
      return failure();
    rewriter.modifyOpInPlace(op, [&] { op->setOperands(*operands); });
    return success();
  }
};

void mlir::moe::registerBufferizableOpInterfaceExternalModels(
    DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, MoEDialect *) {
    context->loadDialect<BufferizationDialect, memref::MemRefDialect>();
    GateOp::attachInterface<ComputeOpModel<GateOp>>(*context);
    CountOp::attachInterface<ComputeOpModel<CountOp>>(*context);
    CapacityOp::attachInterface<CapacityOpModel>(*context);
    AssignOp::attachInterface<ComputeOpModel<AssignOp>>(*context);
    NoiseOp::attachInterface<ComputeOpModel<NoiseOp>>(*context);
    DispatchOp::attachInterface<ComputeOpModel<DispatchOp>>(*context);
    CombineOp::attachInterface<ComputeOpModel<CombineOp>>(*context);
    SourcesOp::attachInterface<ComputeOpModel<SourcesOp>>(*context);
    GroupedMatmulOp::attachInterface<ComputeOpModel<GroupedMatmulOp>>(*context);
    PackOp::attachInterface<ComputeOpModel<PackOp>>(*context);
    GateGradientOp::attachInterface<ComputeOpModel<GateGradientOp>>(*context);
    PairDotOp::attachInterface<ComputeOpModel<PairDotOp>>(*context);
    AllGatherOp::attachInterface<ComputeOpModel<AllGatherOp>>(*context);
    GatherCountsOp::attachInterface<ComputeOpModel<GatherCountsOp>>(*context);
    SlotShardsOp::attachInterface<ComputeOpModel<SlotShardsOp>>(*context);
    ReceiveSizesOp::attachInterface<ReceiveSizesOpModel>(*context);
    ExchangeOp::attachInterface<InitOpModel<ExchangeOp>>(*context);
    MergeRowsOp::attachInterface<InitOpModel<MergeRowsOp>>(*context);
    GatherWeightsOp::attachInterface<ComputeOpModel<GatherWeightsOp>>(*context);
    AllReduceOp::attachInterface<ComputeOpModel<AllReduceOp>>(*context);
    ReduceWeightsOp::attachInterface<ComputeOpModel<ReduceWeightsOp>>(*context);
  });
}
