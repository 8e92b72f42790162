// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Verify.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

using Effects =
    SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>>;

static ShapedType shapedType(Value value) {
  return cast<ShapedType>(value.getType());
}

//===----------------------------------------------------------------------===//
// GroupedMatmulOp
//===----------------------------------------------------------------------===//

ShapedType GroupedMatmulOp::getResultType(unsigned i) {
  return getDestinationType(*this, getOuts(), i);
}

unsigned GroupedMatmulOp::getNumDestinations() {
  return std::max<unsigned>(getNumResults(), getOuts().size());
}

bool GroupedMatmulOp::isPadded() {
  return shapedType(getRows().front()).getRank() == 3;
}

int64_t GroupedMatmulOp::getNumExperts() {
  return shapedType(getSizes()).getDimSize(0);
}

int64_t GroupedMatmulOp::getN() {
  if (getContraction())
    return shapedType(getRows().front()).getShape().back();
  if (hasPanels())
    return getResultType().getShape().back();
  return shapedType(getWeights().front())
      .getDimSize(getLayout() == WeightLayout::NK ? 1 : 2);
}

int64_t GroupedMatmulOp::getK() {
  // Panels of pairs do not tell an odd K.
  if (getContraction() || hasPanels())
    return shapedType(getRows().back()).getShape().back();
  return shapedType(getWeights().front())
      .getDimSize(getLayout() == WeightLayout::KN ? 1 : 2);
}

PanelForm GroupedMatmulOp::getForm() {
  ShapedType weight =
      getContraction() ? getResultType() : shapedType(getWeights().front());
  PanelForm form{weight.getDimSize(3), weight.getRank() == 5,
                 getBlocks(HiddenDim::N), getBlocks(HiddenDim::K)};
  if (getLayout() == WeightLayout::TransposedPanels)
    std::swap(form.blocksOfN, form.blocksOfK);
  return form;
}

FloatType GroupedMatmulOp::getAccumulatorType() {
  if (getElementTypeOrSelf(getRows().front().getType()).isF64())
    return Float64Type::get(getContext());
  return Float32Type::get(getContext());
}

/// The parts of at most `part` that `size` has; dynamic stays dynamic.
static int64_t countParts(int64_t size, int64_t part) {
  return ShapedType::isDynamic(size)
             ? size
             : static_cast<int64_t>(llvm::divideCeil(size, part));
}

int64_t PanelForm::panelsPerBlock(int64_t n) const {
  return countParts(countParts(n, blocksOfN), width);
}

int64_t PanelForm::steps(int64_t k) const {
  return countParts(countParts(k, blocksOfK), pairs ? 2 : 1);
}

SmallVector<int64_t> PanelForm::shape(int64_t experts, int64_t n,
                                      int64_t k) const {
  int64_t panels = panelsPerBlock(n);
  if (!ShapedType::isDynamic(panels))
    panels *= blocksOfN * blocksOfK;
  SmallVector<int64_t> sizes{experts, panels, steps(k), width};
  if (pairs)
    sizes.push_back(2);
  return sizes;
}

/// hidden_c1: the dimension of the given size is a multiple of its blocks.
static LogicalResult verifyHidden(Operation *op,
                                  std::optional<HiddenAttr> hidden, int64_t n,
                                  int64_t k) {
  if (!hidden)
    return success();
  int64_t size = hidden->getDim() == HiddenDim::N ? n : k;
  if (!ShapedType::isDynamic(size) && size % hidden->getBlocks() == 0)
    return success();
  return op->emitOpError("expected a dimension ")
         << stringifyHiddenDim(hidden->getDim()) << " that is a multiple of "
         << hidden->getBlocks() << " hidden blocks, got "
         << (ShapedType::isDynamic(size) ? "?" : std::to_string(size));
}

/// grouped_c4: the epilogue's arguments, ops and yield.
static LogicalResult verifyEpilogue(GroupedMatmulOp op) {
  SmallVector<Type> expected(op.getNumAccumulators(), op.getAccumulatorType());
  for (ValueRange list :
       {ValueRange(op.getVectors()), ValueRange(op.getElements()),
        ValueRange(op.getScalars())})
    for (Value operand : list)
      expected.push_back(getElementTypeOrSelf(operand.getType()));
  if (op.getEpilogue().getArgumentTypes() != TypeRange(expected))
    return op.emitOpError("expected epilogue arguments (")
           << expected << "), got (" << op.getEpilogue().getArgumentTypes()
           << ")";
  Block &block = op.getEpilogue().front();
  for (Operation &inner : block.without_terminator())
    if (!isa_and_nonnull<arith::ArithDialect, math::MathDialect>(
            inner.getDialect()))
      return inner.emitOpError("expected only arith and math in an epilogue");
  auto yield = cast<YieldOp>(block.getTerminator());
  SmallVector<Type> elements;
  for (unsigned i = 0; i < op.getNumDestinations(); ++i)
    elements.push_back(op.getResultType(i).getElementType());
  if (yield.getOperandTypes() != TypeRange(elements))
    return yield.emitOpError("expected to yield (")
           << elements << "), got (" << yield.getOperandTypes() << ")";
  return success();
}

/// Mode `contraction`: everything but the two row operands is absent.
static LogicalResult verifyContractionMode(GroupedMatmulOp op) {
  if (op.getRows().size() != 2 || !op.getWeights().empty() ||
      !op.getBias().empty() || op.getGather() || !op.getVectors().empty() ||
      !op.getElements().empty() || !op.getScalars().empty() || op.getHidden() ||
      op.getChained() || op.getEpilogue().getNumArguments() != 0 ||
      op.getEpilogue().front().getOperations().size() != 1 ||
      op.getEpilogue().front().getTerminator()->getNumOperands() != 0)
    return op.emitOpError("expected two row operands and nothing else in mode "
                          "contraction");
  ShapedType a = shapedType(op.getRows()[0]), b = shapedType(op.getRows()[1]);
  if (a.getRank() != b.getRank())
    return op.emitOpError("expected row operands of one rank, got ")
           << a << " and " << b;
  int64_t experts = op.getNumExperts(), n = op.getN(), k = op.getK();
  ShapedType result = op.getResultType();
  // grouped_c8
  if (op.getLayout() == WeightLayout::NK)
    return verifyShape(op, "result", result, {experts, n, k});
  if (op.getLayout() != WeightLayout::Panels || result.getRank() < 4 ||
      !result.hasStaticShape() || result.getDimSize(3) < 1 ||
      ShapedType::isDynamic(n) || ShapedType::isDynamic(k))
    return op.emitOpError("expected the layout nk, or panels and a result of "
                          "static [E, ceil(N/w), K, w] in mode contraction, "
                          "got ")
           << stringifyWeightLayout(op.getLayout()) << " and " << result;
  return verifyShape(op, "panels", result, op.getForm().shape(experts, n, k));
}

LogicalResult GroupedMatmulOp::verify() {
  // grouped_c8
  unsigned destinations = getNumDestinations();
  if (destinations == 0 || (getContraction() && destinations != 1))
    return emitOpError("expected ")
           << (getContraction() ? "one result" : "at least one result")
           << ", got " << destinations;
  if (failed(verifyForm(*this, getOuts(), destinations, destinations)))
    return failure();
  // grouped_c1
  if (getRows().empty())
    return emitOpError("expected one row operand, two in mode contraction, "
                       "got none");
  // grouped_c6
  for (ValueRange list :
       {ValueRange(getRows()), ValueRange(getWeights()), ValueRange(getBias())})
    for (Value operand : list)
      if (shapedType(operand).getElementType().isF64() !=
          getAccumulatorType().isF64())
        return emitOpError("expected rows, weights and bias all of f64 or "
                           "none, got ")
               << getRows().front().getType() << " and " << operand.getType();
  for (unsigned i = 0; i < destinations; ++i)
    if (!isa<Float16Type, BFloat16Type, Float32Type, Float64Type>(
            getResultType(i).getElementType()))
      return emitOpError("expected a result of f16, bf16, f32 or f64, got ")
             << getResultType(i);
  if (getContraction())
    return verifyContractionMode(*this);
  // grouped_c1
  if (getChained()) {
    if (getWeights().size() < 2 || getRows().size() != getWeights().size() ||
        !llvm::all_equal(getRows().getTypes()) || getGather())
      return emitOpError("expected as many row operands, of one type, as "
                         "weights, at least two, and no gather with chained, "
                         "got ")
             << getRows().size() << " and " << getWeights().size();
  } else if (getRows().size() != 1 || getWeights().empty()) {
    return emitOpError("expected one row operand and at least one weight in "
                       "mode rows, got ")
           << getRows().size() << " and " << getWeights().size();
  }
  ShapedType rows = shapedType(getRows().front()), result = getResultType();
  ShapedType weight = shapedType(getWeights().front());
  if (result.getRank() != rows.getRank())
    return emitOpError("expected a result of rank ")
           << rows.getRank() << " like the rows, got " << result;
  // getK() reads the weights, which are to be checked here.
  int64_t experts = getNumExperts(), n = getN(), k = rows.getShape().back();
  // grouped_c7
  if (failed(verifyHidden(*this, getHidden(), n, k)))
    return failure();
  // grouped_c2
  for (Value other : getWeights())
    if (shapedType(other).getShape() != weight.getShape() ||
        shapedType(other).getElementType() != weight.getElementType())
      return emitOpError("expected weights of one type, got ")
             << weight << " and " << other.getType();
  if (hasPanels()) {
    bool transposed = getLayout() == WeightLayout::TransposedPanels;
    if (transposed && getNumAccumulators() != 1)
      return emitOpError("expected one weight of transposed panels, got ")
             << getWeights().size();
    if (weight.getRank() < 4 || !weight.hasStaticShape() ||
        weight.getDimSize(3) < 1 || ShapedType::isDynamic(n))
      return emitOpError("expected panels [E, ceil(N/w), K, w] and a result "
                         "with static N, got ")
             << weight << " and " << result;
    bool pairs = weight.getRank() == 5;
    if (pairs &&
        !(rows.getElementType().isBF16() && weight.getElementType().isBF16()))
      return emitOpError("expected rows and panels of bf16 where panels hold "
                         "pairs, got ")
             << rows << " and " << weight;
    PanelForm form = getForm();
    if (failed(verifyShape(
            *this, "panels", weight,
            form.shape(experts, transposed ? k : n, transposed ? n : k))))
      return failure();
  } else {
    bool nk = getLayout() == WeightLayout::NK;
    if (failed(verifyShape(*this, "weights", weight,
                           {experts, nk ? n : k, nk ? k : n})))
      return failure();
  }
  SmallVector<int64_t> resultShape(rows.getShape().drop_back());
  if (getGather()) {
    // grouped_c5
    auto gather = shapedType(getGather());
    if (rows.getRank() != 2)
      return emitOpError("expected ragged rows with gather, got ") << rows;
    resultShape[0] = gather.getDimSize(0);
  }
  resultShape.push_back(n);
  for (unsigned i = 0; i < destinations; ++i)
    if (failed(verifyShape(*this, "result", getResultType(i), resultShape)))
      return failure();
  // grouped_c3
  if (!getBias().empty() && getBias().size() != getNumAccumulators())
    return emitOpError("expected no bias or one per accumulator, got ")
           << getBias().size();
  for (auto [what, list] :
       {std::pair<StringRef, ValueRange>{"bias", ValueRange(getBias())},
        {"vector", ValueRange(getVectors())}})
    for (Value operand : list)
      if (failed(verifyShape(*this, what, shapedType(operand), {experts, n})))
        return failure();
  for (Value operand : getElements())
    if (failed(
            verifyShape(*this, "elements", shapedType(operand), resultShape)))
      return failure();
  for (Value operand : getScalars())
    if (failed(verifyShape(*this, "scalars", shapedType(operand),
                           ArrayRef(resultShape).drop_back())))
      return failure();
  return verifyEpilogue(*this);
}

void GroupedMatmulOp::getEffects(Effects &effects) {
  addEffects(*this, getOutsMutable(), effects);
}

LogicalResult
GroupedMatmulOp::reifyResultShapes(OpBuilder &builder,
                                   ReifiedRankedShapedTypeDims &reified) {
  Location loc = getLoc();
  SmallVector<OpFoldResult> dims;
  Value rows = getRows().front();
  int64_t rank = shapedType(rows).getRank();
  if (getContraction() && hasPanels()) {
    reified.push_back(
        getAsIndexOpFoldResult(getContext(), getResultType().getShape()));
    return success();
  }
  if (getContraction()) {
    reified.push_back({builder.getIndexAttr(getNumExperts()),
                       getDim(builder, loc, rows, rank - 1),
                       getDim(builder, loc, getRows()[1], rank - 1)});
    return success();
  }
  if (getGather())
    dims.push_back(getDim(builder, loc, getGather(), 0));
  else
    for (int64_t d = 0; d + 1 < rank; ++d)
      dims.push_back(getDim(builder, loc, rows, d));
  if (hasPanels())
    dims.push_back(builder.getIndexAttr(getN()));
  else
    dims.push_back(getDim(builder, loc, getWeights().front(),
                          getLayout() == WeightLayout::NK ? 1 : 2));
  // A static result dim wins over a value of the operands.
  for (unsigned i = 0; i < getNumDestinations(); ++i) {
    ShapedType result = getResultType(i);
    SmallVector<OpFoldResult> sizes(dims);
    for (auto [d, size] : llvm::enumerate(sizes))
      if (!result.isDynamicDim(d))
        size = builder.getIndexAttr(result.getDimSize(d));
    reified.push_back(sizes);
  }
  return success();
}

//===----------------------------------------------------------------------===//
// PackOp
//===----------------------------------------------------------------------===//

PanelForm PackOp::getForm() {
  ShapedType result = getDestinationType(*this, getOuts(), 0);
  PanelForm form{result.getDimSize(3), result.getRank() == 5};
  if (std::optional<HiddenAttr> hidden = getHidden())
    (hidden->getDim() == HiddenDim::N ? form.blocksOfN : form.blocksOfK) =
        hidden->getBlocks();
  return form;
}

LogicalResult PackOp::verify() {
  if (failed(verifyForm(*this, getOuts(), 1, 1)))
    return failure();
  // pack_c1
  if (getLayout() != WeightLayout::NK && getLayout() != WeightLayout::KN)
    return emitOpError("expected layout nk or kn, got ")
           << stringifyWeightLayout(getLayout());
  auto weights = shapedType(getWeights());
  ShapedType result = getDestinationType(*this, getOuts(), 0);
  if (!weights.hasStaticShape() || !result.hasStaticShape() ||
      result.getRank() < 4 || result.getRank() > 5 ||
      result.getElementType() != weights.getElementType())
    return emitOpError("expected static [E, ceil(N/w), K, w] x ")
           << weights.getElementType() << " from static weights, got "
           << weights << " and " << result;
  bool nk = getLayout() == WeightLayout::NK;
  int64_t n = weights.getDimSize(nk ? 1 : 2),
          k = weights.getDimSize(nk ? 2 : 1);
  int64_t width = result.getDimSize(3);
  if (width < 1)
    return emitOpError("expected panels of width >= 1, got ") << result;
  if (failed(verifyHidden(*this, getHidden(), n, k)))
    return failure();
  return verifyShape(*this, "panels", result,
                     getForm().shape(weights.getDimSize(0), n, k));
}

void PackOp::getEffects(Effects &effects) {
  addEffects(*this, getOutsMutable(), effects);
}

LogicalResult PackOp::reifyResultShapes(OpBuilder &builder,
                                        ReifiedRankedShapedTypeDims &reified) {
  SmallVector<OpFoldResult> dims;
  for (int64_t size : getDestinationType(*this, getOuts(), 0).getShape())
    dims.push_back(builder.getIndexAttr(size));
  reified.push_back(dims);
  return success();
}
