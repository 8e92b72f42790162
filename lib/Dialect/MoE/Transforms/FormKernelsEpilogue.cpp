// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "FormKernelsEpilogue.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

EpilogueBuilder::EpilogueBuilder(Kernel &kernel, Resolver resolve,
                                 Mismatch &mismatch)
    : kernel(kernel), resolve(resolve), mismatch(mismatch),
      builder(kernel.results.front().getContext()) {}

LogicalResult EpilogueBuilder::fail(Operation *op, const Twine &reason) {
  mismatch = {op, reason.str()};
  return failure();
}

LogicalResult EpilogueBuilder::build() {
  kernel.epilogue = std::make_unique<Region>();
  Block &block = kernel.epilogue->emplaceBlock();
  builder.setInsertionPointToEnd(&block);
  SmallVector<Value> values;
  for (Value result : kernel.results) {
    FailureOr<Value> value = get(Access::identity(result));
    if (failed(value))
      return failure();
    values.push_back(*value);
  }
  YieldOp::create(builder, kernel.results.front().getLoc(), values);
  return success();
}

FailureOr<Value> EpilogueBuilder::get(Access access) {
  Value &memo = known[{access.value, access.map}];
  if (memo)
    return memo;
  FailureOr<Value> value = compute(access);
  if (succeeded(value)) // `memo` may have moved
    known[{access.value, access.map}] = *value;
  return value;
}

Value EpilogueBuilder::addArgument(const Leaf &leaf, Access access) {
  // Arguments stand in the order of the lists, whatever the order they are
  // found in.
  unsigned position = kernel.accumulators.size();
  Type type = getElementTypeOrSelf(access.value.getType());
  switch (leaf.kind) {
  case Leaf::Accumulator:
    kernel.accumulators.push_back(leaf.accumulator);
    type = leaf.accumulator.product.getAccumulatorType();
    break;
  case Leaf::Vector:
    position += kernel.vectors.size();
    kernel.vectors.push_back(leaf.vector);
    type = getElementTypeOrSelf(leaf.vector.source.getType());
    break;
  case Leaf::Element:
    position += kernel.vectors.size() + kernel.elements.size();
    kernel.elements.push_back(leaf.value);
    break;
  case Leaf::RowScalar:
    position +=
        kernel.vectors.size() + kernel.elements.size() + kernel.scalars.size();
    kernel.scalars.push_back(leaf.value);
    break;
  case Leaf::Inline:
  case Leaf::Reject:
    llvm_unreachable("not an argument");
  }
  Location loc = access.value.getLoc();
  Value argument = kernel.epilogue->front().insertArgument(position, type, loc);
  // A vector is found behind widenings.
  Type wanted = getElementTypeOrSelf(access.value.getType());
  if (type != wanted)
    argument = arith::ExtFOp::create(builder, loc, wanted, argument);
  return argument;
}

FailureOr<Value> EpilogueBuilder::compute(Access access) {
  Leaf leaf = resolve(access);
  Operation *op = access.value.getDefiningOp();
  if (leaf.kind == Leaf::Reject)
    return fail(op, leaf.reason);
  if (leaf.kind != Leaf::Inline) {
    Type type = getElementTypeOrSelf(access.value.getType());
    if (!isa<FloatType>(type) || type.getIntOrFloatBitWidth() < 16)
      return fail(op, "a tensor of neither f16, bf16, f32 nor f64");
    return addArgument(leaf, access);
  }
  if (!op)
    return fail(op, "an argument that is read in an unknown way");
  DenseElementsAttr constant;
  if (matchPattern(op, m_Constant(&constant)) && constant.isSplat()) {
    auto value = dyn_cast<TypedAttr>(constant.getSplatValue<Attribute>());
    return arith::ConstantOp::create(builder, op->getLoc(), value).getResult();
  }
  if (auto linalgOp = dyn_cast<linalg::LinalgOp>(op)) {
    unsigned result = cast<OpResult>(access.value).getResultNumber();
    std::optional<AffineMap> loops = getLoopsOf(linalgOp, result, access.map);
    if (!loops)
      return fail(op, "an op that is not elementwise");
    return inlinePayload(linalgOp, result, *loops);
  }
  if (isa<arith::ArithDialect, math::MathDialect>(op->getDialect()) &&
      OpTrait::hasElementwiseMappableTraits(op))
    return inlineElementwise(op, access.map);
  // Slices, reshapes and casts move elements only.
  Access moved = lookThroughOnce(access);
  if (moved.value != access.value)
    return get(moved);
  return fail(op, "an op that is not elementwise");
}

FailureOr<Value> EpilogueBuilder::getCaptured(Operation *user, Value value) {
  Attribute constant;
  if (!matchPattern(value, m_Constant(&constant)))
    return fail(user, "a scalar that is computed outside");
  return builder.clone(*value.getDefiningOp())->getResult(0);
}

FailureOr<Value> EpilogueBuilder::clonePayloadOp(Operation &op,
                                                 IRMapping &mapping) {
  if (!isa<arith::ArithDialect, math::MathDialect>(op.getDialect()))
    return fail(&op, "an op of neither arith nor math in a payload");
  for (Value operand : op.getOperands()) {
    if (mapping.contains(operand))
      continue;
    FailureOr<Value> captured = getCaptured(&op, operand);
    if (failed(captured))
      return failure();
    mapping.map(operand, *captured);
  }
  return builder.clone(op, mapping)->getResult(0);
}

FailureOr<Value> EpilogueBuilder::inlinePayload(linalg::LinalgOp op,
                                                unsigned result,
                                                AffineMap loops) {
  IRMapping mapping;
  Block *block = op.getBlock();
  for (OpOperand &operand : op->getOpOperands()) {
    if (operand.getOperandNumber() >= block->getNumArguments() ||
        block->getArgument(operand.getOperandNumber()).use_empty())
      continue;
    FailureOr<Value> value = failure();
    if (isa<RankedTensorType>(operand.get().getType()))
      value = get({operand.get(),
                   simplifyAffineMap(
                       op.getMatchingIndexingMap(&operand).compose(loops))});
    else
      value = getCaptured(op, operand.get());
    if (failed(value))
      return failure();
    mapping.map(block->getArgument(operand.getOperandNumber()), *value);
  }
  for (Operation &inner : block->without_terminator())
    if (failed(clonePayloadOp(inner, mapping)))
      return failure();
  Value yielded = op.getMatchingYieldValue(op.getDpsInitOperand(result))->get();
  if (!mapping.contains(yielded))
    return getCaptured(op, yielded);
  return mapping.lookup(yielded);
}

FailureOr<Value> EpilogueBuilder::inlineElementwise(Operation *op,
                                                    AffineMap map) {
  SmallVector<Value> operands;
  for (Value operand : op->getOperands()) {
    FailureOr<Value> value = isa<RankedTensorType>(operand.getType())
                                 ? get({operand, map})
                                 : getCaptured(op, operand);
    if (failed(value))
      return failure();
    operands.push_back(*value);
  }
  OperationState state(op->getLoc(), op->getName());
  state.addOperands(operands);
  state.addTypes(getElementTypeOrSelf(op->getResult(0).getType()));
  state.addAttributes(op->getAttrs());
  return builder.create(state)->getResult(0);
}

//===----------------------------------------------------------------------===//
// Creation
//===----------------------------------------------------------------------===//

/// The places `columns` of dim `dim` of the stacked tensor `value`.
static Value sliceDim(OpBuilder &builder, Location loc, Value value,
                      unsigned dim, Columns columns) {
  auto type = cast<RankedTensorType>(value.getType());
  if (columns == Columns{0, 1, type.getDimSize(dim)})
    return value;
  SmallVector<OpFoldResult> offsets(type.getRank(), builder.getIndexAttr(0));
  SmallVector<OpFoldResult> strides(type.getRank(), builder.getIndexAttr(1));
  SmallVector<OpFoldResult> sizes =
      getAsIndexOpFoldResult(builder.getContext(), type.getShape());
  offsets[dim] = builder.getIndexAttr(columns.offset);
  strides[dim] = builder.getIndexAttr(columns.stride);
  sizes[dim] = builder.getIndexAttr(columns.size);
  return tensor::ExtractSliceOp::create(builder, loc, value, offsets, sizes,
                                        strides);
}

static Value createWeight(OpBuilder &builder, Location loc,
                          KernelContext &context,
                          const Accumulator &accumulator) {
  const Product &product = accumulator.product;
  Value stacked = context.getStacked(builder, loc, product.weight);
  return sliceDim(builder, loc, stacked,
                  product.layout == WeightLayout::NK ? 1 : 2,
                  product.n.select(accumulator.columns));
}

/// `[G, N]` for a vector; dims of size 1 are folded away.
static Value createVector(OpBuilder &builder, Location loc,
                          KernelContext &context, const VectorSource &vector) {
  Value stacked = context.getStacked(builder, loc, vector.source);
  stacked = sliceDim(builder, loc, stacked, vector.dim + 1, vector.columns);
  int64_t rank = cast<RankedTensorType>(stacked.getType()).getRank();
  if (rank == 2)
    return stacked;
  ReassociationIndices all(llvm::to_vector(llvm::seq<int64_t>(1, rank)));
  return tensor::CollapseShapeOp::create(
      builder, loc, stacked, ArrayRef<ReassociationIndices>{{0}, all});
}

/// Biases of all accumulators, zeros where some have none; nothing when none
/// has one.
static SmallVector<Value> createBiases(OpBuilder &builder, Location loc,
                                       KernelContext &context,
                                       const Kernel &kernel, int64_t groups) {
  SmallVector<Value> biases;
  if (llvm::none_of(kernel.accumulators, [](const Accumulator &accumulator) {
        return accumulator.product.bias.has_value();
      }))
    return biases;
  for (const Accumulator &accumulator : kernel.accumulators) {
    const Product &product = accumulator.product;
    if (product.bias) {
      VectorSource bias = *product.bias;
      bias.columns = bias.columns.select(accumulator.columns);
      biases.push_back(createVector(builder, loc, context, bias));
      continue;
    }
    auto type = RankedTensorType::get({groups, kernel.columns},
                                      product.getAccumulatorType());
    biases.push_back(
        arith::ConstantOp::create(builder, loc, builder.getZeroAttr(type)));
  }
  return biases;
}

/// `[R]` or `[E, P]` for one value per row.
static Value createScalars(OpBuilder &builder, Location loc, Value value,
                           int64_t rowsRank) {
  auto type = cast<RankedTensorType>(value.getType());
  if (type.getRank() < rowsRank)
    return value;
  SmallVector<ReassociationIndices> groups;
  for (int64_t d = 0; d + 1 < rowsRank; ++d)
    groups.push_back({d});
  groups.back().push_back(rowsRank - 1);
  return tensor::CollapseShapeOp::create(builder, loc, value, groups);
}

ValueRange mlir::moe::detail::createKernel(OpBuilder &builder, Kernel &kernel,
                                           KernelContext &context) {
  SmallVector<Location> locs;
  for (const Accumulator &accumulator : kernel.accumulators)
    locs.push_back(accumulator.product.op->getLoc());
  Location loc = builder.getFusedLoc(locs);
  SmallVector<Value> terms;
  for (const Product &term : kernel.accumulators.front().product.earlier)
    terms.push_back(context.getRows(term.rows));
  Value rows = context.getRows(kernel.getRows());
  terms.push_back(rows);
  Value sizes = context.getSizes(builder, loc);
  int64_t groups = cast<ShapedType>(sizes.getType()).getDimSize(0);
  int64_t rank = cast<ShapedType>(rows.getType()).getRank();
  SmallVector<Value> weights, vectors, elements, scalars;
  for (const Accumulator &accumulator : kernel.accumulators) {
    for (const Product &term : accumulator.product.earlier)
      weights.push_back(
          createWeight(builder, loc, context, {term, accumulator.columns}));
    weights.push_back(createWeight(builder, loc, context, accumulator));
  }
  SmallVector<Value> biases =
      createBiases(builder, loc, context, kernel, groups);
  for (const VectorSource &vector : kernel.vectors)
    vectors.push_back(createVector(builder, loc, context, vector));
  for (Value element : kernel.elements)
    elements.push_back(context.getRows(element));
  for (Value scalar : kernel.scalars)
    scalars.push_back(
        createScalars(builder, loc, context.getRows(scalar), rank));
  SmallVector<Type> types;
  for (Value result : kernel.results)
    types.push_back(context.getResultType(result));
  auto op = GroupedMatmulOp::create(
      builder, loc, types, terms, sizes, weights, biases, /*gather=*/Value(),
      vectors, elements, scalars,
      /*outs=*/ValueRange(), kernel.accumulators.front().product.layout,
      /*contraction=*/false, /*chained=*/terms.size() > 1,
      context.getHidden(kernel), context.getLayer());
  op.getEpilogue().takeBody(*kernel.epilogue);
  return op.getResults();
}

/// As many ones as `rows` has rows, `[R, 1]` or `[E, P, 1]`.
static Value createOnes(OpBuilder &builder, Location loc, Value rows) {
  auto type = cast<RankedTensorType>(rows.getType());
  SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(builder, loc, rows);
  sizes.back() = builder.getIndexAttr(1);
  Value empty =
      tensor::EmptyOp::create(builder, loc, sizes, type.getElementType());
  Value one = arith::ConstantOp::create(
      builder, loc, builder.getFloatAttr(type.getElementType(), 1));
  return linalg::FillOp::create(builder, loc, one, empty).getResult(0);
}

/// A contraction over rows; sums of rows alone are one with rows of ones, since
/// `1 * x + acc` is `x + acc`.
Value mlir::moe::detail::createRowSum(OpBuilder &builder, Location loc,
                                      RowSum sum, Value sizes,
                                      RankedTensorType result,
                                      IntegerAttr layer) {
  Value lhs = sum.lhs;
  RankedTensorType type = result;
  if (!lhs) {
    lhs = createOnes(builder, loc, sum.rhs);
    type =
        RankedTensorType::get({result.getDimSize(0), 1, result.getDimSize(1)},
                              result.getElementType());
  }
  auto op = GroupedMatmulOp::create(
      builder, loc, TypeRange(type), ValueRange{lhs, sum.rhs}, sizes,
      ValueRange(), ValueRange(), /*gather=*/Value(), ValueRange(),
      ValueRange(), ValueRange(), ValueRange(), WeightLayout::NK,
      /*contraction=*/true, /*chained=*/false, HiddenAttr(), layer);
  {
    OpBuilder::InsertionGuard guard(builder);
    builder.createBlock(&op.getEpilogue());
    YieldOp::create(builder, loc);
  }
  if (sum.lhs)
    return op.getResult(0);
  return tensor::CollapseShapeOp::create(
      builder, loc, result, op.getResult(0),
      ArrayRef<ReassociationIndices>{{0, 1}, {2}});
}
