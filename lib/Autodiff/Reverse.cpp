// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Reverse.h"

#include "ScalarRules.h"
#include "Sizes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

Reverse::Reverse(Block &block, const ReverseOptions &options)
    : block(block), options(options), builder(block.getTerminator()) {
  for (Operation &op : block.without_terminator())
    forward.insert(&op);
}

void Reverse::add(Value value, Value gradient) {
  if (isWanted(value))
    parts[value].push_back({gradient, nullptr});
}

void Reverse::addChain(Value value, Chain chain) {
  if (isWanted(value))
    parts[value].push_back({Value(), std::move(chain)});
}

void Reverse::replace(ValueRange old, ValueRange values) {
  for (auto [from, to] : llvm::zip_equal(old, values))
    replacements[from] = to;
}

Value Reverse::resolve(Value value) const {
  while (Value next = replacements.lookup(value))
    value = next;
  return value;
}

static bool isFloat(Type type) {
  return isa<FloatType>(getElementTypeOrSelf(type));
}

/// A gradient of a scalar as that scalar.
static Value toScalar(OpBuilder &builder, Location loc, Value value) {
  if (!isa<RankedTensorType>(value.getType()))
    return value;
  return tensor::ExtractOp::create(builder, loc, value, ValueRange());
}

/// Adds in f32 (f64 for f64) and rounds to `type`.
static Value addTwo(OpBuilder &builder, Location loc, Value a, Value b,
                    Type type) {
  auto wide = getWideType(type);
  auto plus = [&](OpBuilder &nested, Location at, ValueRange args) -> Value {
    Value sum = arith::AddFOp::create(nested, at,
                                      convertFloat(nested, at, args[0], wide),
                                      convertFloat(nested, at, args[1], wide));
    return convertFloat(nested, at, sum, type);
  };
  if (!isa<RankedTensorType>(a.getType()))
    return plus(builder, loc, {a, b});
  return createElementwise(builder, loc, {a, b}, type, plus);
}

Value Reverse::sum(Value value, ArrayRef<Contribution> list, bool asTensor) {
  Location loc = value.getLoc();
  bool isScalar = !isa<RankedTensorType>(value.getType()) && !asTensor;
  Value total;
  bool isChain = false; // whether a contraction may go on from `total`
  Type element = getElementTypeOrSelf(value.getType());
  // The sweep met the uses from the last to the first.
  for (const Contribution &part : llvm::reverse(list)) {
    bool isLast = &part == &list.front();
    if (part.chain && (!total || isChain)) {
      total = part.chain(builder, total);
      isChain = true;
      continue;
    }
    Value next = part.chain ? part.chain(builder, Value()) : part.value;
    if (isScalar)
      next = toScalar(builder, loc, next);
    total = total ? addTwo(builder, loc, total, next,
                           isLast ? element : Type(getWideType(element)))
                  : next;
    isChain = false;
  }
  if (isa<RankedTensorType>(total.getType()))
    return castElements(builder, loc, total, element);
  return convertFloat(builder, loc, total, element);
}

Value Reverse::get(Value value) {
  auto it = parts.find(value);
  if (it == parts.end())
    return {};
  Value &known = finished[value];
  if (!known)
    known = sum(value, it->second, /*asTensor=*/false);
  return known;
}

Value Reverse::getOrZeros(Value value) {
  if (Value gradient = get(value))
    return gradient;
  Location loc = value.getLoc();
  if (!isa<RankedTensorType>(value.getType()))
    return createFloat(builder, loc, value.getType(), 0);
  return createZeros(builder, loc, getSizes(builder, loc, value),
                     getElementTypeOrSelf(value.getType()));
}

Value Reverse::getAsTensor(Value scalar) {
  auto it = parts.find(scalar);
  if (it == parts.end())
    return {};
  SmallVector<Contribution, 2> tensors;
  for (const Contribution &part : it->second) {
    Contribution tensor = part;
    if (!isa<RankedTensorType>(tensor.value.getType()))
      tensor.value = tensor::FromElementsOp::create(
          builder, scalar.getLoc(),
          RankedTensorType::get({}, tensor.value.getType()), tensor.value);
    tensors.push_back(tensor);
  }
  return sum(scalar, tensors, /*asTensor=*/true);
}

void Reverse::markVaried(Operation *op) {
  auto isVaried = [&](Value value) {
    return isFloat(value.getType()) && varied.contains(value);
  };
  // Of a gate's operands only logits have a derivative; a threshold or a
  // priority selects.
  bool any = false;
  if (auto gate = dyn_cast<GateOp>(op))
    any = isVaried(gate.getLogits());
  else
    any = op->walk([&](Operation *inner) {
              return llvm::any_of(inner->getOperands(), isVaried)
                         ? WalkResult::interrupt()
                         : WalkResult::advance();
            }).wasInterrupted();
  if (!any)
    return;
  for (Value result : op->getResults())
    if (isFloat(result.getType()))
      varied.insert(result);
}

Value Reverse::getSlots(Value value) const {
  Rows known = rows.lookup(value);
  return known.isAway ? Value() : known.slots;
}

/// Follows rows from where they are dispatched to where they are combined.
void Reverse::markRows(Operation *op) {
  if (auto dispatch = dyn_cast<DispatchOp>(op)) {
    rows[dispatch->getResult(0)] = {dispatch.getSlots(), false};
    return;
  }
  if (isa<CombineOp, PairDotOp>(op))
    return;
  Rows found;
  for (Value operand : op->getOperands())
    if (Rows known = rows.lookup(operand); known.slots)
      found = known;
  if (!found.slots)
    return;
  if (auto exchange = dyn_cast<ExchangeOp>(op))
    found.isAway = exchange.getDirection() == Direction::ToExperts;
  auto expert = dyn_cast<ExpertOp>(op);
  for (auto [i, result] : llvm::enumerate(op->getResults()))
    if (isa<RankedTensorType>(result.getType()) && !(expert && expert.isSum(i)))
      rows[result] = found;
}

LogicalResult Reverse::differentiate(Operation *op) {
  if (auto softmax = dyn_cast<linalg::SoftmaxOp>(op))
    return differentiateSoftmax(*this, softmax);
  if (auto linalgOp = dyn_cast<linalg::LinalgOp>(op))
    return differentiateLinalg(*this, linalgOp);
  if (auto expert = dyn_cast<ExpertOp>(op))
    return differentiateExpert(*this, expert);
  for (auto rule : {differentiateTensor, differentiateMoE})
    if (std::optional<LogicalResult> done = rule(*this, op))
      return *done;
  if (isa_and_nonnull<arith::ArithDialect, math::MathDialect>(
          op->getDialect()) &&
      op->getNumResults() == 1 && isa<FloatType>(op->getResult(0).getType()))
    return differentiateScalar(
        builder, op, get(op->getResult(0)),
        {[&](Value value) { return isWanted(value); },
         [&](Value value, Value gradient) { add(value, gradient); }});
  return op->emitOpError("expected an op with a rule for its gradient, got "
                         "one without");
}

void Reverse::analyse() {
  for (Operation &op : block.without_terminator())
    if (isForward(&op)) {
      markVaried(&op);
      markRows(&op);
    }
}

LogicalResult Reverse::run() {
  SmallVector<Operation *> ops;
  for (Operation &op : block.without_terminator())
    if (isForward(&op))
      ops.push_back(&op);
  for (Operation *op : llvm::reverse(ops)) {
    bool isReached = llvm::any_of(
        op->getResults(), [&](Value result) { return parts.contains(result); });
    if (isReached && failed(differentiate(op)))
      return failure();
  }
  return success();
}
