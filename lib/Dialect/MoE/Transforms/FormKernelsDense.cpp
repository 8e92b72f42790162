// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Contractions outside experts, such as the router's: kernels with one group.
// A kernel takes the elementwise ops that follow its products as long as one
// tensor is left that others read.

#include "FormKernels.h"
#include "FormKernelsEpilogue.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

namespace {

class DenseMatcher {
public:
  DenseMatcher(SmallVector<Product> products, Block &block, Fusions disabled)
      : products(std::move(products)), block(block), disabled(disabled) {}

  /// Finds the longest tail of elementwise ops that a kernel of all products
  /// can take.
  std::optional<Kernel> match();

private:
  /// The ops after which one tensor is left, the last such op first.
  SmallVector<Value> collectSinks();
  bool isElementwise(Operation &op, RankedTensorType like);
  Leaf resolve(const Kernel &kernel, Access access);

  SmallVector<Product> products;
  Block &block;
  Fusions disabled;
  /// The products and the elementwise ops after them.
  llvm::SetVector<Operation *> members;
};

bool DenseMatcher::isElementwise(Operation &op, RankedTensorType like) {
  if (op.getNumResults() != 1)
    return false;
  auto type = dyn_cast<RankedTensorType>(op.getResult(0).getType());
  if (!type || type.getRank() != 2 ||
      type.getDimSize(1) != like.getDimSize(1) ||
      !isa<FloatType>(type.getElementType()))
    return false;
  if (auto linalgOp = dyn_cast<linalg::LinalgOp>(op))
    return linalgOp.isAllParallelLoops();
  return isa<arith::ArithDialect, math::MathDialect>(op.getDialect()) &&
         OpTrait::hasElementwiseMappableTraits(&op);
}

SmallVector<Value> DenseMatcher::collectSinks() {
  auto like =
      cast<RankedTensorType>(products.front().op->getResult(0).getType());
  llvm::SetVector<Operation *> grown;
  for (Product &product : products)
    grown.insert(product.op);
  SmallVector<Value> sinks;
  auto record = [&](Operation *last) {
    // All members but the last are read by members only.
    for (Operation *member : grown)
      for (Operation *user : member->getUsers())
        if (member != last && !grown.contains(user))
          return;
    sinks.push_back(last->getResult(0));
  };
  if (products.size() == 1)
    record(products.front().op);
  Operation *first = products.front().op;
  for (Operation &op :
       llvm::make_range(std::next(Block::iterator(first)), block.end())) {
    bool reads = llvm::any_of(op.getOperands(), [&](Value operand) {
      return operand.getDefiningOp() && grown.contains(operand.getDefiningOp());
    });
    if (!reads || grown.contains(&op) || !isElementwise(op, like))
      continue;
    grown.insert(&op);
    // The narrow form is the one to store; readers widen it again.
    if (lookThroughWidening(op.getResult(0)) == op.getResult(0))
      record(&op);
  }
  members = grown;
  std::reverse(sinks.begin(), sinks.end());
  return sinks;
}

Leaf DenseMatcher::resolve(const Kernel &kernel, Access access) {
  MLIRContext *context = access.map.getContext();
  AffineExpr row = getAffineDimExpr(0, context);
  Operation *op = access.value.getDefiningOp();
  Leaf leaf;
  for (Product &product : products)
    if (product.op == op) {
      if (!access.isIdentity())
        return Leaf::reject("a product that is read in another order");
      leaf.kind = Leaf::Accumulator;
      leaf.accumulator = {product, {0, 1, kernel.columns}};
      return leaf;
    }
  if (op && (members.contains(op) || matchPattern(op, m_Constant()) ||
             isa<linalg::FillOp>(op)))
    return leaf;
  Access moved = lookThrough(access);
  if (moved.value.getDefiningOp<linalg::FillOp>())
    return leaf;
  if (std::optional<VectorSource> vector =
          matchVector(access, kernel.columns)) {
    leaf.kind = Leaf::Vector;
    leaf.vector = *vector;
    return leaf;
  }
  // Behind a broadcast along the columns stands one value per row.
  auto type = dyn_cast<RankedTensorType>(moved.value.getType());
  if (type && moved.map.getNumResults() > 0 && moved.map.getResult(0) == row &&
      (type.getRank() == 1 ||
       (type.getRank() == 2 && type.getDimSize(1) == 1))) {
    if (bitEnumContainsAny(disabled, Fusions::PairWeights))
      return Leaf::reject("one value per row, whose fusion is disabled");
    if (moved.value == access.value) {
      leaf.kind = Leaf::RowScalar;
      leaf.value = moved.value;
    }
    return leaf;
  }
  type = dyn_cast<RankedTensorType>(access.value.getType());
  if (type && access.isIdentity() && type.getDimSize(1) == kernel.columns) {
    leaf.kind = Leaf::Element;
    leaf.value = access.value;
    return leaf;
  }
  return Leaf::reject("a tensor that is read in another way than row by row");
}

std::optional<Kernel> DenseMatcher::match() {
  bool fuse = !bitEnumContainsAny(disabled, Fusions::Activation);
  SmallVector<Value> sinks = collectSinks();
  for (Value sink : sinks) {
    if (!fuse && sink.getDefiningOp() != products.front().op)
      continue;
    Kernel kernel;
    kernel.results.push_back(sink);
    kernel.columns = cast<ShapedType>(sink.getType()).getDimSize(1);
    Mismatch ignored;
    EpilogueBuilder builder(
        kernel, [&](Access access) { return resolve(kernel, access); },
        ignored);
    if (succeeded(builder.build()) &&
        kernel.accumulators.size() == products.size())
      return kernel;
  }
  return std::nullopt;
}

class DenseContext : public KernelContext {
public:
  explicit DenseContext(Value rows) : rows(rows) {}

  Value getStacked(OpBuilder &builder, Location loc, Value source) override {
    auto type = cast<RankedTensorType>(source.getType());
    SmallVector<int64_t> shape(type.getShape());
    shape.insert(shape.begin(), 1);
    SmallVector<ReassociationIndices> reassociation{{0, 1}};
    for (int64_t d = 2; d <= type.getRank(); ++d)
      reassociation.push_back({d});
    return tensor::ExpandShapeOp::create(
        builder, loc, RankedTensorType::get(shape, type.getElementType()),
        source, reassociation);
  }
  Value getRows(Value value) override { return value; }
  Value getSizes(OpBuilder &builder, Location loc) override {
    Value dim = tensor::DimOp::create(builder, loc, rows, 0);
    Value size =
        arith::IndexCastOp::create(builder, loc, builder.getI32Type(), dim);
    return tensor::FromElementsOp::create(builder, loc, ValueRange{size});
  }
  RankedTensorType getResultType(Value result) override {
    return cast<RankedTensorType>(result.getType());
  }
  IntegerAttr getLayer() override { return {}; }

private:
  Value rows;
};

} // namespace

/// What rounds `sum`, when nothing else reads it; else `sum` itself.
static Value getRounded(Value sum) {
  if (!sum.hasOneUse() || sum.getUsers().begin()->getNumResults() != 1)
    return sum;
  Value result = sum.getUsers().begin()->getResult(0);
  return matchRowSum(result) ? result : sum;
}

/// Forms kernels of the sums over rows of `block`, which gradients of weights
/// are. Returns how many.
static unsigned formSums(RewriterBase &rewriter, Block &block) {
  unsigned formed = 0;
  for (Operation &op : llvm::make_early_inc_range(block)) {
    auto linalgOp = dyn_cast<linalg::LinalgOp>(op);
    if (!linalgOp || linalgOp.isAllParallelLoops() || op.getNumResults() != 1 ||
        op.use_empty() || !isa<RankedTensorType>(op.getResult(0).getType()))
      continue;
    Value value = getRounded(op.getResult(0));
    std::optional<RowSum> sum = matchRowSum(value);
    if (!sum)
      continue;
    auto type = cast<RankedTensorType>(value.getType());
    OpBuilder::InsertionGuard guard(rewriter);
    rewriter.setInsertionPointAfterValue(value);
    Location loc = value.getLoc();
    SmallVector<int64_t> shape(type.getShape());
    shape.insert(shape.begin(), 1);
    Value sizes = DenseContext(sum->rhs).getSizes(rewriter, loc);
    Value result = createRowSum(rewriter, loc, *sum, sizes, type.clone(shape),
                                IntegerAttr());
    SmallVector<ReassociationIndices> groups{{0, 1}};
    for (int64_t d = 1; d < type.getRank(); ++d)
      groups.push_back({d + 1});
    result =
        tensor::CollapseShapeOp::create(rewriter, loc, type, result, groups);
    rewriter.replaceAllUsesWith(value, result);
    ++formed;
  }
  return formed;
}

/// Whether `op` is a contraction over rows.
static bool isRowSum(Operation &op) {
  return op.getNumResults() == 1 &&
         isa<RankedTensorType>(op.getResult(0).getType()) &&
         matchRowSum(op.getResult(0));
}

/// Products of `block` by an argument of the function.
static SmallVector<Product> collectProducts(Block &block, Fusions disabled,
                                            MissFn onMiss) {
  SmallVector<Product> products;
  for (Operation &op : block) {
    auto linalgOp = dyn_cast<linalg::LinalgOp>(op);
    if (!linalgOp || !linalg::isaContractionOpInterface(linalgOp) ||
        isRowSum(op))
      continue;
    Mismatch mismatch;
    FailureOr<Product> product = matchProduct(linalgOp, mismatch);
    if (failed(product)) {
      onMiss(mismatch);
      continue;
    }
    if (!isa<BlockArgument>(product->weight))
      onMiss({&op, "a weight that is computed in every step"});
    else if (product->previous)
      onMiss({&op, "a contraction that starts from another one"});
    else if (product->bias && bitEnumContainsAny(disabled, Fusions::Bias))
      onMiss({&op, kBiasDisabled.str()});
    else
      products.push_back(*product);
  }
  return products;
}

/// Forms one kernel that holds `chosen`.
static bool formKernel(RewriterBase &rewriter, ArrayRef<Product> chosen,
                       Block &block, Fusions disabled) {
  std::optional<Kernel> kernel =
      DenseMatcher(llvm::to_vector(chosen), block, disabled).match();
  if (!kernel)
    return false;
  OpBuilder::InsertionGuard guard(rewriter);
  Value result = kernel->results.front();
  rewriter.setInsertionPointAfterValue(result);
  DenseContext context(kernel->getRows());
  Value value = createKernel(rewriter, *kernel, context).front();
  rewriter.replaceAllUsesWith(result, value);
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(block)))
    if (isOpTriviallyDead(&op))
      rewriter.eraseOp(&op);
  return true;
}

/// Forms a kernel of products[i], with a second product where one fits.
static bool formKernelOf(RewriterBase &rewriter, ArrayRef<Product> products,
                         size_t i, Block &block, Fusions disabled) {
  if (!bitEnumContainsAny(disabled, Fusions::GateUp | Fusions::Activation))
    for (const Product &other : products.drop_front(i + 1))
      if (products[i].isCompatible(other) &&
          formKernel(rewriter, {products[i], other}, block, disabled))
        return true;
  return formKernel(rewriter, {products[i]}, block, disabled);
}

unsigned mlir::moe::detail::formDenseKernels(RewriterBase &rewriter,
                                             Block &block, Fusions disabled,
                                             MissFn onMiss) {
  unsigned formed = formSums(rewriter, block);
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(block)))
    if (isOpTriviallyDead(&op))
      rewriter.eraseOp(&op);
  SmallVector<Product> products = collectProducts(block, disabled, onMiss);
  size_t next = 0;
  while (next < products.size()) {
    if (!formKernelOf(rewriter, products, next, block, disabled)) {
      onMiss({products[next].op, "a result that no kernel gives"});
      ++next;
      continue;
    }
    ++formed;
    // Rows of later products may be the result of this kernel.
    products = collectProducts(block, disabled, [](const Mismatch &) {});
  }
  return formed;
}
