// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "FormKernelsExpert.h"

#include "moira/Dialect/MoE/Transforms/DecomposeExpert.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/IRMapping.h"

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

namespace {

class ExpertContext : public KernelContext {
public:
  explicit ExpertContext(ExpertPlan &plan) : expert(plan.expert), plan(plan) {
    for (auto [arg, rows] : llvm::zip(expert.getRowArgs(), expert.getRows()))
      outer[arg] = rows;
    for (auto [arg, operand] :
         llvm::zip(expert.getPerExpertArgs(), expert.getPerExpert()))
      outer[arg] = operand;
    for (auto [arg, operand] :
         llvm::zip(expert.getSharedArgs(), expert.getShared()))
      outer[arg] = operand;
  }

  /// Returns what the expert's results become.
  SmallVector<Value> create(OpBuilder &builder) {
    SmallVector<Value> results;
    for (Value yielded :
         expert.getBody().front().getTerminator()->getOperands())
      results.push_back(createRows(builder, yielded));
    return results;
  }
  /// The experts that `create` has made of remainders.
  ArrayRef<ExpertOp> getRemainders() const { return made; }

  Value getStacked(OpBuilder &builder, Location loc, Value source) override;
  Value getRows(Value value) override { return outer.lookup(value); }
  Value getSizes(OpBuilder &builder, Location loc) override;
  RankedTensorType getResultType(Value result) override;
  IntegerAttr getLayer() override { return expert.getLayerAttr(); }
  HiddenAttr getHidden(const Kernel &kernel) override;

private:
  /// Creates the kernel of `inner` and of all rows that it reads.
  Value createRows(OpBuilder &builder, Value inner);
  Value createRemainder(OpBuilder &builder, const Remainder &remainder);
  Value createSum(OpBuilder &builder, Value inner, RowSum sum);
  ExpertOp expert;
  ExpertPlan &plan;
  llvm::DenseMap<Value, Value> outer;
  /// Whether all rows of the kernel in the making are one group.
  bool oneGroup = false;
  SmallVector<ExpertOp> made;
};

Value ExpertContext::createRows(OpBuilder &builder, Value inner) {
  if (Value known = outer.lookup(inner))
    return known;
  auto remainder = plan.remainders.find(inner);
  if (remainder != plan.remainders.end())
    return outer[inner] = createRemainder(builder, remainder->second);
  if (auto sum = plan.sums.find(inner); sum != plan.sums.end())
    return outer[inner] = createSum(builder, inner, sum->second);
  Kernel &kernel = plan.kernels[plan.kernelOf.lookup(inner)];
  for (const Product &term : kernel.accumulators.front().product.earlier)
    createRows(builder, term.rows);
  createRows(builder, kernel.getRows());
  for (Value element : kernel.elements)
    createRows(builder, element);
  for (Value scalar : kernel.scalars)
    createRows(builder, scalar);
  oneGroup = plan.isShared(kernel.accumulators.front().product.weight);
  ValueRange results = createKernel(builder, kernel, *this);
  for (auto [value, result] : llvm::zip(kernel.results, results))
    outer[value] = result;
  return outer.lookup(inner);
}

Value ExpertContext::createSum(OpBuilder &builder, Value inner, RowSum sum) {
  for (Value *rows : {&sum.lhs, &sum.rhs})
    if (*rows)
      *rows = createRows(builder, *rows);
  return createRowSum(builder, inner.getLoc(), sum, expert.getSizes(),
                      getResultType(inner), expert.getLayerAttr());
}

Value ExpertContext::createRemainder(OpBuilder &builder,
                                     const Remainder &remainder) {
  SmallVector<Value> rows, perExpert, shared, inner;
  for (Value value : remainder.rows)
    rows.push_back(createRows(builder, value));
  for (Value value : remainder.perExpert)
    perExpert.push_back(outer.lookup(value));
  for (Value value : remainder.shared)
    shared.push_back(outer.lookup(value));
  for (const llvm::SetVector<Value> *values :
       {&remainder.rows, &remainder.perExpert, &remainder.shared})
    inner.append(values->begin(), values->end());
  Location loc = remainder.result.getLoc();
  auto op = ExpertOp::create(
      builder, loc, TypeRange(getResultType(remainder.result)), rows,
      expert.getSizes(), perExpert, shared, expert.getLayerAttr());
  OpBuilder::InsertionGuard guard(builder);
  Block *block = builder.createBlock(&op.getBody());
  IRMapping mapping;
  for (Value value : inner)
    mapping.map(value, block->addArgument(value.getType(), value.getLoc()));
  for (tensor::DimOp dim : remainder.dims)
    mapping.map(
        dim.getResult(),
        tensor::DimOp::create(builder, dim.getLoc(), block->getArgument(0), 0));
  for (Operation *inside : remainder.ops)
    builder.clone(*inside, mapping);
  YieldOp::create(builder, loc, mapping.lookup(remainder.result));
  made.push_back(op);
  return op.getResult(0);
}

Value ExpertContext::getStacked(OpBuilder &builder, Location loc,
                                Value source) {
  Value operand = outer.lookup(source);
  if (!plan.isShared(source))
    return operand;
  auto type = cast<RankedTensorType>(operand.getType());
  int64_t groups = oneGroup ? 1 : expert.getNumExperts();
  SmallVector<int64_t> shape(type.getShape());
  shape.insert(shape.begin(), groups);
  if (!oneGroup) {
    Value empty =
        tensor::EmptyOp::create(builder, loc, shape, type.getElementType());
    return linalg::BroadcastOp::create(builder, loc, operand, empty,
                                       ArrayRef<int64_t>{0})
        .getResult()[0];
  }
  SmallVector<ReassociationIndices> reassociation{{0, 1}};
  for (int64_t d = 2; d <= type.getRank(); ++d)
    reassociation.push_back({d});
  return tensor::ExpandShapeOp::create(
      builder, loc, RankedTensorType::get(shape, type.getElementType()),
      operand, reassociation);
}

Value ExpertContext::getSizes(OpBuilder &builder, Location loc) {
  Value sizes = expert.getSizes();
  if (!oneGroup || expert.getNumExperts() == 1)
    return sizes;
  // The groups stand one after the other, so that together they are one.
  Type i32 = builder.getI32Type();
  auto row = RankedTensorType::get({1, expert.getNumExperts()}, i32);
  Value expanded = tensor::ExpandShapeOp::create(
      builder, loc, row, sizes, ArrayRef<ReassociationIndices>{{0, 1}});
  Value zero = arith::ConstantIntOp::create(builder, loc, i32, 0);
  Value empty =
      tensor::EmptyOp::create(builder, loc, ArrayRef<int64_t>{1}, i32);
  Value init = linalg::FillOp::create(builder, loc, zero, empty).getResult(0);
  auto sum = linalg::ReduceOp::create(
      builder, loc, expanded, init, ArrayRef<int64_t>{1},
      [](OpBuilder &nested, Location nestedLoc, ValueRange args) {
        Value total =
            arith::AddIOp::create(nested, nestedLoc, args[0], args[1]);
        linalg::YieldOp::create(nested, nestedLoc, total);
      });
  return sum.getResult(0);
}

HiddenAttr ExpertContext::getHidden(const Kernel &kernel) {
  if (!plan.separability)
    return {};
  for (LastProduct last : plan.separability->getLastProducts())
    for (const Accumulator &accumulator : kernel.accumulators)
      if (accumulator.product.op == last.op.getOperation())
        return HiddenAttr::get(expert.getContext(), plan.hiddenBlocks,
                               HiddenDim::K);
  // Parts that are stored together are no blocks of one matrix each.
  if (plan.separability->getPlace(kernel.results.front()) == HiddenPlace{1})
    return HiddenAttr::get(expert.getContext(), plan.hiddenBlocks,
                           HiddenDim::N);
  return {};
}

RankedTensorType ExpertContext::getResultType(Value inner) {
  for (auto [yielded, result] :
       llvm::zip(expert.getBody().front().getTerminator()->getOperands(),
                 expert.getResults()))
    if (yielded == inner)
      return cast<RankedTensorType>(result.getType());
  auto rows = cast<RankedTensorType>(expert.getRows().front().getType());
  auto type = cast<RankedTensorType>(inner.getType());
  SmallVector<int64_t> shape(rows.getShape().drop_back());
  shape.push_back(type.getDimSize(1));
  return RankedTensorType::get(shape, type.getElementType());
}

} // namespace

void mlir::moe::detail::createPlanned(RewriterBase &rewriter,
                                      ExpertPlan &plan) {
  ExpertOp expert = plan.expert;
  OpBuilder::InsertionGuard guard(rewriter);
  rewriter.setInsertionPoint(expert);
  ExpertContext context(plan);
  SmallVector<Value> results = context.create(rewriter);
  for (auto [result, value] : llvm::zip(expert.getResults(), results))
    if (result.getType() != value.getType())
      value = tensor::CastOp::create(rewriter, expert.getLoc(),
                                     result.getType(), value);
  rewriter.replaceOp(expert, results);
  for (ExpertOp remainder : context.getRemainders())
    lowerExpertToLoops(rewriter, remainder);
}
