// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Verify.h"

#include <cmath>

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

/// loss_c4 and loss_c5.
static LogicalResult verifyScope(LossOp op) {
  bool isBlock = op.getScope() == LossScope::Block;
  if (op.getKind() == LossKind::Sequence && !isBlock)
    return op.emitOpError("expected scope block with sequence, got ")
           << stringifyLossScope(op.getScope());
  IntegerAttr length = op.getLengthAttr();
  if (isBlock && static_cast<bool>(op.getBlocks()) == static_cast<bool>(length))
    return op.emitOpError("expected either blocks or length with scope block, "
                          "got ")
           << (length ? "both" : "neither");
  if (!length)
    return success();
  if (!isBlock)
    return op.emitOpError("expected no length with scope ")
           << stringifyLossScope(op.getScope()) << ", got " << length.getInt();
  if (length.getInt() < 1)
    return op.emitOpError("expected length >= 1, got ") << length.getInt();
  RankedTensorType logits = op.getLogits().getType();
  if (!logits.isDynamicDim(0) && logits.getDimSize(0) % length.getInt() != 0)
    return op.emitOpError("expected length to divide T = ")
           << logits.getDimSize(0) << ", got " << length.getInt();
  return success();
}

LogicalResult LossOp::verify() {
  RankedTensorType logits = getLogits().getType();
  int64_t tokens = logits.getDimSize(0);
  // loss_c1
  if (logits.isDynamicDim(1) || logits.getDimSize(1) < 1)
    return emitOpError("expected static E >= 1, got logits ") << logits;
  Type wide = logits.getElementType().isF64() ? logits.getElementType()
                                              : Float32Type::get(getContext());
  if (getResult().getType().getElementType() != wide)
    return emitOpError("expected a loss of ")
           << wide << ", got " << getResult().getType();
  // loss_c2
  LossKind kind = getKind();
  if ((kind == LossKind::Z) == static_cast<bool>(getIds()))
    return emitOpError("expected ids with every kind but z, got ")
           << (getIds() ? "ids" : "none") << " with "
           << stringifyLossKind(kind);
  if (getIds()) {
    RankedTensorType ids = getIds().getType();
    if (ids.isDynamicDim(1) || ids.getDimSize(1) < 1)
      return emitOpError("expected static K >= 1, got ids ") << ids;
    if (failed(verifyDim(*this, "ids", ids, 0, tokens)))
      return failure();
  }
  // loss_c3
  if (getMask() &&
      failed(verifyShape(*this, "mask", getMask().getType(), {tokens})))
    return failure();
  if (getNoisy() && getNoisy().getType() != logits)
    return emitOpError("expected noisy of ")
           << logits << ", got " << getNoisy().getType();
  if (failed(verifyScope(*this)))
    return failure();
  // loss_c6
  bool hasLoads = kind == LossKind::LoadImportance;
  if (hasLoads != static_cast<bool>(getNoiseAttr()))
    return emitOpError("expected noise with load_importance, and only there, "
                       "got ")
           << (hasLoads ? "none" : "one") << " with "
           << stringifyLossKind(kind);
  if (!hasLoads && (getNoisy() || getCompareLogits()))
    return emitOpError("expected noisy and compare_logits only with "
                       "load_importance, got ")
           << stringifyLossKind(kind);
  if (hasLoads) {
    double noise = getNoiseAttr().getValueAsDouble();
    if (!(noise > 0) || !std::isfinite(noise))
      return emitOpError("expected finite noise > 0, got ") << noise;
  }
  // loss_c7
  bool takesSigmoid = !hasLoads && kind != LossKind::Z;
  if (getScore() != Score::Softmax &&
      !(getScore() == Score::Sigmoid && takesSigmoid))
    return emitOpError("expected score softmax")
           << (takesSigmoid ? " or sigmoid" : "") << " with "
           << stringifyLossKind(kind) << ", got " << stringifyScore(getScore());
  return success();
}
