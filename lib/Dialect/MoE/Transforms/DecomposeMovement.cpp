// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Decompose.h"
#include "DecomposeRows.h"

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

Sizes TensorRow::offsets() const {
  if (!isPadded())
    return {slot, b.getIndexAttr(0)};
  Value perExpert = b.dim(tensor, 1);
  Value expert = arith::DivUIOp::create(b, slot, perExpert);
  Value place = arith::RemUIOp::create(b, slot, perExpert);
  return {expert, place, b.getIndexAttr(0)};
}

Sizes TensorRow::sizes() const {
  Sizes result(isPadded() ? 2 : 1, b.getIndexAttr(1));
  result.push_back(b.size(tensor, result.size()));
  return result;
}

Value mlir::moe::detail::forEachSlot(
    DecomposeBuilder &b, Value slots, Value carried,
    llvm::function_ref<Value(Value, Value, Value, Value)> body) {
  Value zero = b.index(0);
  Value tokens = b.dim(slots, 0), choices = b.dim(slots, 1);
  return b.loop(zero, tokens, carried, [&](Value t, ValueRange outer) {
    return b.loop(zero, choices, outer, [&](Value j, ValueRange inner) {
      Value slot = b.extract(slots, {t, j});
      Value used = b.compare(arith::CmpIPredicate::sge, slot, b.i32(0));
      return b.when(used, inner, [&] {
        return Values{body(t, j, b.toIndex(slot), inner[0])};
      });
    });
  })[0];
}

void mlir::moe::detail::decompose(RewriterBase &rewriter, DispatchOp op) {
  DecomposeBuilder b(rewriter, op);
  ReifiedRankedShapedTypeDims shapes;
  LogicalResult reified = op.reifyResultShapes(b, shapes);
  assert(succeeded(reified));
  (void)reified;
  Type type = op->getResult(0).getType(), element = getElementTypeOrSelf(type);
  Type wide = getAccumulatorType(element);
  Value out = b.castTo(b.empty(shapes[0], element), type);
  Value rows = forEachSlot(
      b, op.getSlots(), out, [&](Value t, Value j, Value slot, Value rows) {
        Value row = TensorRow{b, op.getX(), t}.read();
        if (op.getWeights()) {
          Value weight = b.extract(op.getWeights(), {t, j});
          Value out = b.empty({b.getIndexAttr(1), b.size(row, 1)}, element);
          row = b.map(row, out, [&](ValueRange args) {
            Value product = b.mul(weight, b.toReal(args[0], wide));
            return b.toReal(product, element);
          });
        }
        return TensorRow{b, rows, slot}.write(row);
      });
  rewriter.replaceOp(op, rows);
}

void mlir::moe::detail::decompose(RewriterBase &rewriter, CombineOp op) {
  DecomposeBuilder b(rewriter, op);
  ReifiedRankedShapedTypeDims shapes;
  LogicalResult reified = op.reifyResultShapes(b, shapes);
  assert(succeeded(reified));
  (void)reified;
  Type type = op->getResult(0).getType(), element = getElementTypeOrSelf(type);
  Type wide = getAccumulatorType(element);
  Value sums = forEachSlot(
      b, op.getSlots(), b.filled(shapes[0], b.real(wide, 0)),
      [&](Value t, Value j, Value slot, Value sums) {
        Value weight;
        if (op.getWeights())
          weight = b.extract(op.getWeights(), {t, j});
        TensorRow sum = {b, sums, t};
        Value row = TensorRow{b, op.getRows(), slot}.read();
        return sum.write(b.map(row, sum.read(), [&](ValueRange args) {
          Value value = b.toReal(args[0], wide);
          return weight ? b.fma(weight, value, args[1]) : b.add(args[1], value);
        }));
      });
  if (element != wide)
    sums = b.map(sums, b.empty(shapes[0], element),
                 [&](ValueRange args) { return b.toReal(args[0], element); });
  rewriter.replaceOp(op, b.castTo(sums, type));
}

void mlir::moe::detail::decompose(RewriterBase &rewriter, SourcesOp op) {
  DecomposeBuilder b(rewriter, op);
  ReifiedRankedShapedTypeDims shapes;
  LogicalResult reified = op.reifyResultShapes(b, shapes);
  assert(succeeded(reified));
  (void)reified;
  Value none =
      b.castTo(b.filled(shapes[0], b.i32(-1)), op->getResult(0).getType());
  Value sources = forEachSlot(b, op.getSlots(), none,
                              [&](Value t, Value, Value slot, Value sources) {
                                return b.insert(b.toI32(t), sources, {slot});
                              });
  rewriter.replaceOp(op, sources);
}
