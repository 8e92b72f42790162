// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// At a kink the gradient goes as PyTorch's does:
//
// | operation | at the kink | as |
// | --- | --- | --- |
// | maximumf(x, 0), minimumf(x, 0) | 0 at x = 0 | torch.relu |
// | maximumf(x, c), minimumf(x, c), clampf | all of it at x = c | torch.clamp |
// | maximumf(x, y), minimumf(x, y) | half to each where x = y | torch.maximum |
// | maxnumf, minnumf | to the first where x = y | torch.fmax |
// | absf | 0 at 0 | torch.abs |
// | floor, ceil, round, trunc | 0 everywhere | torch.floor |
// | powf(x, y) | d/dx is 0 where y = 0, d/dy where x = 0 <= y | torch.pow |

#include "ScalarRules.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/TypeSwitch.h"

#include <cmath>

using namespace mlir;
using namespace mlir::moe::detail;
using arith::CmpFPredicate;

Value mlir::moe::detail::createFloat(OpBuilder &builder, Location loc,
                                     Type type, double value) {
  return arith::ConstantOp::create(builder, loc,
                                   builder.getFloatAttr(type, value));
}

FloatType mlir::moe::detail::getWideType(Type type) {
  auto floatType = cast<FloatType>(type);
  return floatType.getWidth() < 32 ? Float32Type::get(type.getContext())
                                   : floatType;
}

Value mlir::moe::detail::convertFloat(OpBuilder &builder, Location loc,
                                      Value value, Type type) {
  auto from = cast<FloatType>(value.getType()), to = cast<FloatType>(type);
  if (from == to)
    return value;
  if (from.getWidth() < to.getWidth())
    return arith::ExtFOp::create(builder, loc, to, value);
  if (from.getWidth() > to.getWidth())
    return arith::TruncFOp::create(builder, loc, to, value);
  // f16 and bf16 meet in f32.
  Value wide = arith::ExtFOp::create(builder, loc, getWideType(from), value);
  return arith::TruncFOp::create(builder, loc, to, wide);
}

namespace {

/// The rules of one operation: d is the gradient of its result y.
class ScalarRule {
public:
  ScalarRule(OpBuilder &builder, Operation *op, Value d,
             const ScalarGradients &gradients)
      : b(builder), op(op), loc(op->getLoc()), d(d), gradients(gradients) {}

  LogicalResult apply();

private:
  bool applyArith();
  bool applyMath();
  bool applyMathOfTwo();
  void applyExtremum(bool isMaximum, bool isNumber);
  void applyClamp();
  void applyPower();

  Value x(unsigned i = 0) { return op->getOperand(i); }
  Value y() { return op->getResult(0); }
  bool wants(unsigned i) { return gradients.isWanted(op->getOperand(i)); }
  void give(unsigned i, Value gradient) {
    gradients.add(op->getOperand(i), gradient);
  }
  /// The only operand gets d * factor, where the factor is built.
  bool scale(Value factor) {
    give(0, mul(d, factor));
    return true;
  }

  Value num(double value) { return createFloat(b, loc, d.getType(), value); }
  Value add(Value l, Value r) { return arith::AddFOp::create(b, loc, l, r); }
  Value sub(Value l, Value r) { return arith::SubFOp::create(b, loc, l, r); }
  Value mul(Value l, Value r) { return arith::MulFOp::create(b, loc, l, r); }
  Value div(Value l, Value r) { return arith::DivFOp::create(b, loc, l, r); }
  Value neg(Value v) { return arith::NegFOp::create(b, loc, v); }
  Value cmp(CmpFPredicate predicate, Value l, Value r) {
    return arith::CmpFOp::create(b, loc, predicate, l, r);
  }
  Value select(Value c, Value l, Value r) {
    return arith::SelectOp::create(b, loc, c, l, r);
  }
  template <typename Op> Value unary(Value v) {
    return Op::create(b, loc, v).getResult();
  }
  /// d where the condition holds, else 0.
  Value where(Value condition, Value value) {
    return select(condition, value, num(0));
  }
  /// The gradient of exp-like functions, d * growth: where d is 0, so is the
  /// product, although what grows may be infinite. So x / (1 + exp(-x)) has a
  /// gradient where exp(-x) overflows.
  Value grow(Value growth) {
    return select(cmp(CmpFPredicate::OEQ, d, num(0)), d, mul(d, growth));
  }

  OpBuilder &b;
  Operation *op;
  Location loc;
  Value d;
  const ScalarGradients &gradients;
};

} // namespace

bool ScalarRule::applyArith() {
  return llvm::TypeSwitch<Operation *, bool>(op)
      .Case([&](arith::AddFOp) {
        for (unsigned i : {0u, 1u})
          if (wants(i))
            give(i, d);
        return true;
      })
      .Case([&](arith::SubFOp) {
        if (wants(0))
          give(0, d);
        if (wants(1))
          give(1, neg(d));
        return true;
      })
      .Case([&](arith::MulFOp) {
        if (wants(0))
          give(0, mul(d, x(1)));
        if (wants(1))
          give(1, mul(d, x(0)));
        return true;
      })
      .Case([&](arith::DivFOp) {
        if (wants(0))
          give(0, div(d, x(1)));
        if (wants(1))
          give(1, neg(div(mul(d, y()), x(1))));
        return true;
      })
      .Case([&](arith::RemFOp) {
        if (wants(0))
          give(0, d);
        if (wants(1))
          give(1, neg(mul(d, unary<math::TruncOp>(div(x(0), x(1))))));
        return true;
      })
      .Case([&](arith::NegFOp) {
        give(0, neg(d));
        return true;
      })
      .Case<arith::ExtFOp, arith::TruncFOp>([&](Operation *) {
        give(0, convertFloat(b, loc, d, x().getType()));
        return true;
      })
      .Case([&](arith::SelectOp) {
        Value zero = num(0);
        if (wants(1))
          give(1, select(x(0), d, zero));
        if (wants(2))
          give(2, select(x(0), zero, d));
        return true;
      })
      .Case([&](arith::MaximumFOp) { return applyExtremum(true, false), true; })
      .Case(
          [&](arith::MinimumFOp) { return applyExtremum(false, false), true; })
      .Case([&](arith::MaxNumFOp) { return applyExtremum(true, true), true; })
      .Case([&](arith::MinNumFOp) { return applyExtremum(false, true), true; })
      .Default(false);
}

void ScalarRule::applyExtremum(bool isMaximum, bool isNumber) {
  // `isWorse(a, b)`: a is certainly not the one that was taken.
  auto isWorse = [&](Value l, Value r, bool orEqual) {
    if (isMaximum)
      return cmp(orEqual ? CmpFPredicate::OLE : CmpFPredicate::OLT, l, r);
    return cmp(orEqual ? CmpFPredicate::OGE : CmpFPredicate::OGT, l, r);
  };
  Value zero = num(0);
  if (isNumber) {
    // The first, unless it is worse or no number.
    Value second = arith::OrIOp::create(
        b, loc, isWorse(x(0), x(1), /*orEqual=*/false),
        arith::AndIOp::create(b, loc, cmp(CmpFPredicate::UNO, x(0), x(0)),
                              cmp(CmpFPredicate::ORD, x(1), x(1))));
    if (wants(0))
      give(0, select(second, zero, d));
    if (wants(1))
      give(1, select(second, d, zero));
    return;
  }
  for (unsigned i : {0u, 1u}) {
    if (!wants(i))
      continue;
    Value other = x(1 - i);
    if (matchPattern(other, m_Constant())) {
      bool isRelu = matchPattern(other, m_AnyZeroFloat());
      give(i, select(isWorse(x(i), other, isRelu), zero, d));
      continue;
    }
    Value half =
        select(cmp(CmpFPredicate::OEQ, x(0), x(1)), mul(d, num(0.5)), d);
    give(i, select(isWorse(x(i), other, false), zero, half));
  }
}

void ScalarRule::applyClamp() {
  Value zero = num(0);
  Value below = cmp(CmpFPredicate::OLT, x(0), x(1));
  Value above = cmp(CmpFPredicate::OGT, x(0), x(2));
  if (wants(0))
    give(0, select(arith::OrIOp::create(b, loc, below, above), zero, d));
  if (wants(1)) // the upper bound is applied last
    give(1, where(below, select(cmp(CmpFPredicate::OGT, x(1), x(2)), zero, d)));
  if (wants(2))
    give(2,
         where(cmp(CmpFPredicate::OGE, y(), x(2)),
               select(arith::OrIOp::create(b, loc, above,
                                           cmp(CmpFPredicate::OGT, x(1), x(2))),
                      d, zero)));
}

void ScalarRule::applyPower() {
  Value zero = num(0);
  if (wants(0)) {
    Value less = math::PowFOp::create(b, loc, x(0), sub(x(1), num(1)));
    give(0, select(cmp(CmpFPredicate::OEQ, x(1), zero), zero,
                   mul(d, mul(x(1), less))));
  }
  if (wants(1)) {
    Value flat =
        arith::AndIOp::create(b, loc, cmp(CmpFPredicate::OEQ, x(0), zero),
                              cmp(CmpFPredicate::OGE, x(1), zero));
    give(1, select(flat, zero, mul(d, mul(y(), unary<math::LogOp>(x(0))))));
  }
}

bool ScalarRule::applyMathOfTwo() {
  return llvm::TypeSwitch<Operation *, bool>(op)
      .Case([&](math::FmaOp) {
        if (wants(0))
          give(0, mul(d, x(1)));
        if (wants(1))
          give(1, mul(d, x(0)));
        if (wants(2))
          give(2, d);
        return true;
      })
      .Case([&](math::PowFOp) { return applyPower(), true; })
      .Case([&](math::ClampFOp) { return applyClamp(), true; })
      .Case([&](math::CopySignOp) {
        // The sign has no slope.
        Value one = num(1);
        if (wants(0))
          give(0, mul(d, mul(math::CopySignOp::create(b, loc, one, x(0)),
                             math::CopySignOp::create(b, loc, one, x(1)))));
        return true;
      })
      .Case([&](math::Atan2Op) {
        Value norm = add(mul(x(0), x(0)), mul(x(1), x(1)));
        if (wants(0))
          give(0, mul(d, div(x(1), norm)));
        if (wants(1))
          give(1, neg(mul(d, div(x(0), norm))));
        return true;
      })
      .Case([&](math::FPowIOp) {
        if (!wants(0))
          return true;
        Type type = x(1).getType();
        Value one =
            arith::ConstantOp::create(b, loc, b.getIntegerAttr(type, 1));
        Value less = math::FPowIOp::create(
            b, loc, x(0), arith::SubIOp::create(b, loc, x(1), one));
        Value factor = arith::SIToFPOp::create(b, loc, d.getType(), x(1));
        Value none = arith::CmpIOp::create(
            b, loc, arith::CmpIPredicate::eq, x(1),
            arith::ConstantOp::create(b, loc, b.getIntegerAttr(type, 0)));
        give(0, select(none, num(0), mul(d, mul(factor, less))));
        return true;
      })
      .Default(false);
}

bool ScalarRule::applyMath() {
  const double ln2 = std::log(2.0), ln10 = std::log(10.0);
  const double twoOverRootPi = 2 / std::sqrt(std::acos(-1.0));
  auto square = [&](Value v) { return mul(v, v); };
  return llvm::TypeSwitch<Operation *, bool>(op)
      .Case([&](math::ExpOp) { return give(0, grow(y())), true; })
      .Case(
          [&](math::Exp2Op) { return give(0, grow(mul(y(), num(ln2)))), true; })
      .Case(
          [&](math::ExpM1Op) { return give(0, grow(add(y(), num(1)))), true; })
      .Case([&](math::LogOp) { return give(0, div(d, x())), true; })
      .Case([&](math::Log2Op) {
        return give(0, div(d, mul(x(), num(ln2)))), true;
      })
      .Case([&](math::Log10Op) {
        return give(0, div(d, mul(x(), num(ln10)))), true;
      })
      .Case([&](math::Log1pOp) {
        return give(0, div(d, add(x(), num(1)))), true;
      })
      .Case([&](math::SqrtOp) {
        return give(0, div(mul(d, num(0.5)), y())), true;
      })
      .Case([&](math::RsqrtOp) {
        return scale(mul(num(-0.5), mul(y(), square(y()))));
      })
      .Case([&](math::CbrtOp) {
        return give(0, div(d, mul(num(3), square(y())))), true;
      })
      .Case([&](math::TanhOp) { return scale(sub(num(1), square(y()))); })
      .Case([&](math::ErfOp) {
        return scale(
            mul(num(twoOverRootPi), unary<math::ExpOp>(neg(square(x())))));
      })
      .Case([&](math::ErfcOp) {
        return scale(
            mul(num(-twoOverRootPi), unary<math::ExpOp>(neg(square(x())))));
      })
      .Case([&](math::SinOp) { return scale(unary<math::CosOp>(x())); })
      .Case([&](math::CosOp) { return scale(neg(unary<math::SinOp>(x()))); })
      .Case([&](math::TanOp) { return scale(add(num(1), square(y()))); })
      .Case([&](math::SinhOp) { return scale(unary<math::CoshOp>(x())); })
      .Case([&](math::CoshOp) { return scale(unary<math::SinhOp>(x())); })
      .Case([&](math::AsinOp) {
        return scale(unary<math::RsqrtOp>(sub(num(1), square(x()))));
      })
      .Case([&](math::AcosOp) {
        return scale(neg(unary<math::RsqrtOp>(sub(num(1), square(x())))));
      })
      .Case([&](math::AtanOp) {
        return give(0, div(d, add(num(1), square(x())))), true;
      })
      .Case([&](math::AsinhOp) {
        return scale(unary<math::RsqrtOp>(add(square(x()), num(1))));
      })
      .Case([&](math::AcoshOp) {
        return scale(unary<math::RsqrtOp>(sub(square(x()), num(1))));
      })
      .Case([&](math::AtanhOp) {
        return give(0, div(d, sub(num(1), square(x())))), true;
      })
      .Case([&](math::AbsFOp) {
        Value sign = math::CopySignOp::create(b, loc, num(1), x());
        return give(0, select(cmp(CmpFPredicate::OEQ, x(), num(0)), num(0),
                              mul(d, sign))),
               true;
      })
      // Steps: flat but for single points.
      .Case<math::FloorOp, math::CeilOp, math::RoundOp, math::RoundEvenOp,
            math::TruncOp>([](Operation *) { return true; })
      .Default(false);
}

LogicalResult ScalarRule::apply() {
  if (op->getNumResults() == 1 && op->getNumRegions() == 0 &&
      (applyArith() || applyMath() || applyMathOfTwo()))
    return success();
  return op->emitOpError("expected a scalar operation with a derivative, "
                         "got one without a rule");
}

LogicalResult
mlir::moe::detail::differentiateScalar(OpBuilder &builder, Operation *op,
                                       Value d,
                                       const ScalarGradients &gradients) {
  return ScalarRule(builder, op, d, gradients).apply();
}
