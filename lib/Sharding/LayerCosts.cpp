// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "ShardExpert.h"

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

static int64_t getElementBytes(Type type) {
  return llvm::divideCeil(getElementTypeOrSelf(type).getIntOrFloatBitWidth(),
                          8);
}

/// Bytes of a row of each value, together.
template <typename Range> static int64_t getRowBytes(Range &&values) {
  int64_t bytes = 0;
  for (Value value : values)
    bytes += cast<RankedTensorType>(value.getType()).getShape().back() *
             getElementBytes(value.getType());
  return bytes;
}

/// What is kept of a row between the products of an expert's body.
static int64_t getHiddenBytes(ExpertOp expert,
                              const Separability &separability) {
  if (separability.isSeparable()) {
    Value last = separability.getLastProducts().front().op->getOperand(0);
    return separability.getHiddenSize() * getElementBytes(last.getType());
  }
  // An expert that cannot be cut: the widest of its values.
  int64_t bytes = 0;
  expert.getBody().walk([&](linalg::LinalgOp op) {
    for (Value result : op->getResults())
      if (cast<RankedTensorType>(result.getType()).isDynamicDim(0))
        bytes = std::max(bytes, getRowBytes(ValueRange{result}));
  });
  return bytes;
}

DictionaryAttr mlir::moe::detail::describeCost(const ShardedExpert &expert) {
  ExpertOp op = expert.op;
  Separability separability(op);
  Builder b(op.getContext());
  auto function = op->getParentOfType<func::FuncOp>();
  int64_t rows = getRowBytes(op.getRows());
  int64_t results = getRowBytes(op.getResults()), partials = results;
  if (separability.canAddCopies()) {
    partials = 0;
    for (LastProduct product : separability.getLastProducts())
      partials += getRowBytes(ValueRange{product.op->getResult(0)});
  }
  SmallVector<Attribute> weights;
  for (Value operand : op.getPerExpert())
    weights.push_back(function.getArgAttr(
        cast<BlockArgument>(operand).getArgNumber(), kParamAttrName));
  SmallVector<NamedAttribute> fields{
      b.getNamedAttr("weights", b.getArrayAttr(weights))};
  auto add = [&](StringRef name, int64_t value) {
    fields.push_back(b.getNamedAttr(name, b.getI64IntegerAttr(value)));
  };
  add("layer", op.getLayer().value_or(0));
  add("row_bytes", rows);
  add("result_bytes", results);
  add("partial_bytes", partials);
  add("result_gradient_bytes", results);
  add("row_gradient_bytes", rows);
  add("hidden_bytes", getHiddenBytes(op, separability));
  return b.getDictionaryAttr(fields);
}
