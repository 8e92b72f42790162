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
template <typename OpTy>
struct ComputeOpModel : public ReadsOperands<ComputeOpModel<OpTy>, OpTy> {
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
  });
}
