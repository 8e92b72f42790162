// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// From the body of an expert to kernels. Some tensors of the body must exist in
// memory: what it yields and what later contractions read. Each of them becomes
// the result of one kernel, whose products are the contractions that it reaches
// back to through elementwise ops. A contraction that cannot stand in that
// kernel becomes one of its own, which the epilogue reads as rows.

#include "FormKernels.h"
#include "FormKernelsEpilogue.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

namespace {

/// How many weights a kernel takes: its accumulators share the registers.
constexpr unsigned kMaxWeights = 2;

class ExpertMatcher {
public:
  ExpertMatcher(ExpertOp expert, Mismatch &mismatch)
      : expert(expert), body(expert.getBody().front()), mismatch(mismatch) {}

  LogicalResult match();

  llvm::MapVector<Value, Kernel> &getKernels() { return kernels; }
  bool isRows(Value value);
  bool isShared(Value value);

private:
  enum class Plan { Done, Again, Failed };

  Plan plan();
  Plan planKernel(Value result);
  /// Finds two kernels that hold the same product.
  Plan checkUses();
  LogicalResult checkGroups(const Kernel &kernel);
  void collectProducts(Value value, llvm::SetVector<Operation *> &found);
  Leaf resolve(const Kernel &kernel, ArrayRef<Operation *> chosen,
               Access access);
  Leaf resolveProduct(const Kernel &kernel, const Product &product,
                      Access access);
  Leaf resolveRows(const Kernel &kernel, Access access);
  LogicalResult fail(Operation *op, const Twine &reason) {
    mismatch = {op ? op : expert.getOperation(), reason.str()};
    return failure();
  }

  Plan refuse(Operation *op, const Twine &reason) {
    (void)fail(op, reason);
    return Plan::Failed;
  }

  ExpertOp expert;
  Block &body;
  Mismatch &mismatch;
  llvm::DenseMap<Operation *, Product> products;
  /// Tensors that must exist in memory.
  llvm::SetVector<Value> stored;
  llvm::MapVector<Value, Kernel> kernels;
};

bool ExpertMatcher::isRows(Value value) {
  auto arg = dyn_cast<BlockArgument>(value);
  return arg && arg.getArgNumber() < expert.getRows().size();
}

bool ExpertMatcher::isShared(Value value) {
  return llvm::is_contained(expert.getSharedArgs(), value);
}

LogicalResult ExpertMatcher::match() {
  for (Value yielded : body.getTerminator()->getOperands())
    if (!isRows(yielded))
      stored.insert(yielded);
  for (Operation &op : body) {
    auto linalgOp = dyn_cast<linalg::LinalgOp>(op);
    if (!linalgOp || linalgOp.isAllParallelLoops() || op.use_empty())
      continue;
    FailureOr<Product> product = matchProduct(linalgOp, mismatch);
    if (failed(product))
      return failure();
    if (!isa<BlockArgument>(product->weight) || isRows(product->weight))
      return fail(&op, "a weight that is computed in the body");
    if (product->bias && !isa<BlockArgument>(product->bias->source))
      return fail(&op, "a bias that is computed in the body");
    products[&op] = *product;
    if (!isRows(product->rows))
      stored.insert(product->rows);
  }
  Plan result = Plan::Again;
  // Every further round stores one product more.
  while (result == Plan::Again)
    result = plan();
  return success(result == Plan::Done);
}

ExpertMatcher::Plan ExpertMatcher::plan() {
  kernels.clear();
  for (Value result : stored) {
    Plan done = planKernel(result);
    if (done != Plan::Done)
      return done;
  }
  return checkUses();
}

void ExpertMatcher::collectProducts(Value value,
                                    llvm::SetVector<Operation *> &found) {
  Operation *op = value.getDefiningOp();
  if (!op || found.contains(op))
    return;
  if (products.contains(op)) {
    found.insert(op);
    return;
  }
  for (Value operand : op->getOperands())
    if (!stored.contains(operand) || products.contains(operand.getDefiningOp()))
      collectProducts(operand, found);
}

ExpertMatcher::Plan ExpertMatcher::planKernel(Value result) {
  auto type = dyn_cast<RankedTensorType>(result.getType());
  if (!type || type.getRank() != 2 || type.isDynamicDim(1))
    return refuse(result.getDefiningOp(), "rows that are no [rows, N] tensor");
  llvm::SetVector<Operation *> reached;
  collectProducts(result, reached);
  SmallVector<Operation *> candidates;
  for (Operation *op : reached)
    if (op->getResult(0) == result || !stored.contains(op->getResult(0)))
      candidates.push_back(op);
  if (candidates.empty())
    return refuse(result.getDefiningOp(),
                  reached.empty()
                      ? "elementwise work on rows with no contraction before it"
                      : "a stage with two results");
  llvm::sort(candidates,
             [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); });
  // The deepest stage is the one that can read all others as rows.
  const Product &last = products[candidates.back()];
  SmallVector<Operation *> chosen;
  for (Operation *op : candidates) {
    if (products[op].isCompatible(last) &&
        isShared(products[op].weight) == isShared(last.weight) &&
        chosen.size() < kMaxWeights) {
      chosen.push_back(op);
      continue;
    }
    stored.insert(op->getResult(0));
    return Plan::Again;
  }
  Kernel &kernel = kernels[result];
  kernel.result = result;
  kernel.columns = type.getDimSize(1);
  EpilogueBuilder builder(
      kernel, [&](Access access) { return resolve(kernel, chosen, access); },
      mismatch);
  if (failed(builder.build(result)) || failed(checkGroups(kernel)))
    return Plan::Failed;
  return Plan::Done;
}

ExpertMatcher::Plan ExpertMatcher::checkUses() {
  SmallVector<const Accumulator *> seen;
  for (auto &[result, kernel] : kernels)
    for (const Accumulator &accumulator : kernel.accumulators) {
      Operation *op = accumulator.product.op;
      for (const Accumulator *other : seen)
        if (other->product.op == op && other->columns == accumulator.columns) {
          stored.insert(op->getResult(0));
          return Plan::Again;
        }
      seen.push_back(&accumulator);
    }
  return Plan::Done;
}

LogicalResult ExpertMatcher::checkGroups(const Kernel &kernel) {
  if (kernel.accumulators.size() > kMaxWeights)
    return fail(kernel.result.getDefiningOp(),
                "a stage with more than two weights");
  unsigned shared = 0, perExpert = 0;
  for (const Accumulator &accumulator : kernel.accumulators) {
    ++(isShared(accumulator.product.weight) ? shared : perExpert);
    if (accumulator.product.bias && !isShared(accumulator.product.bias->source))
      ++perExpert;
  }
  if (shared == 0)
    return success();
  for (const VectorSource &vector : kernel.vectors)
    perExpert += !isShared(vector.source);
  if (perExpert != 0)
    return fail(kernel.result.getDefiningOp(),
                "a stage that mixes shared weights and per-expert values");
  if (expert.isPadded())
    return fail(kernel.result.getDefiningOp(),
                "a stage with shared weights on padded rows");
  return success();
}

Leaf ExpertMatcher::resolve(const Kernel &kernel, ArrayRef<Operation *> chosen,
                            Access access) {
  Operation *op = access.value.getDefiningOp();
  if (op && llvm::is_contained(chosen, op))
    return resolveProduct(kernel, products[op], access);
  if (isRows(access.value) ||
      (access.value != kernel.result && stored.contains(access.value)))
    return resolveRows(kernel, access);
  if (op)
    return {};
  if (!isa<RankedTensorType>(access.value.getType()))
    return Leaf::reject("a scalar operand of the expert");
  Leaf leaf;
  leaf.kind = Leaf::Vector;
  std::optional<VectorSource> vector = matchVector(access, kernel.columns);
  if (!vector)
    return Leaf::reject("an operand of the expert that is no vector over the "
                        "columns");
  leaf.vector = *vector;
  return leaf;
}

Leaf ExpertMatcher::resolveProduct(const Kernel &kernel, const Product &product,
                                   Access access) {
  std::optional<LinearCoord> row = getLinearCoord(access.map.getResult(0));
  std::optional<LinearCoord> column = getLinearCoord(access.map.getResult(1));
  if (access.map.getResult(0) != getAffineDimExpr(0, access.map.getContext()) ||
      !row || !column || column->dim != 1)
    return Leaf::reject("a product that is read in another order");
  Leaf leaf;
  leaf.kind = Leaf::Accumulator;
  leaf.accumulator = {product,
                      {column->offset, column->stride, kernel.columns}};
  return leaf;
}

Leaf ExpertMatcher::resolveRows(const Kernel &kernel, Access access) {
  auto type = cast<RankedTensorType>(access.value.getType());
  Leaf leaf;
  leaf.value = access.value;
  if (type.getRank() == 2 && access.isIdentity() &&
      type.getDimSize(1) == kernel.columns) {
    leaf.kind = Leaf::Element;
    return leaf;
  }
  if (type.getRank() == 2 && type.getDimSize(1) == 1 &&
      access.map.getResult(0) == getAffineDimExpr(0, access.map.getContext())) {
    leaf.kind = Leaf::RowScalar;
    return leaf;
  }
  return Leaf::reject("rows that are read at other columns");
}

//===----------------------------------------------------------------------===//
// Creation
//===----------------------------------------------------------------------===//

class ExpertContext : public KernelContext {
public:
  ExpertContext(ExpertOp expert, ExpertMatcher &matcher)
      : expert(expert), matcher(matcher) {
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

  Value getStacked(OpBuilder &builder, Location loc, Value source) override;
  Value getRows(Value value) override { return outer.lookup(value); }
  Value getSizes(OpBuilder &builder, Location loc) override;
  RankedTensorType getResultType(const Kernel &kernel) override;
  IntegerAttr getLayer() override { return expert.getLayerAttr(); }

private:
  /// Creates the kernel of `inner` and of all rows that it reads.
  Value createRows(OpBuilder &builder, Value inner);

  ExpertOp expert;
  ExpertMatcher &matcher;
  llvm::DenseMap<Value, Value> outer;
  /// Whether all rows of the kernel in the making are one group.
  bool oneGroup = false;
};

Value ExpertContext::createRows(OpBuilder &builder, Value inner) {
  if (Value known = outer.lookup(inner))
    return known;
  Kernel &kernel = matcher.getKernels()[inner];
  createRows(builder, kernel.getRows());
  for (Value element : kernel.elements)
    createRows(builder, element);
  for (Value scalar : kernel.scalars)
    createRows(builder, scalar);
  oneGroup = matcher.isShared(kernel.accumulators.front().product.weight);
  return outer[inner] = createKernel(builder, kernel, *this);
}

Value ExpertContext::getStacked(OpBuilder &builder, Location loc,
                                Value source) {
  Value operand = outer.lookup(source);
  if (!matcher.isShared(source))
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

RankedTensorType ExpertContext::getResultType(const Kernel &kernel) {
  for (auto [yielded, result] :
       llvm::zip(expert.getBody().front().getTerminator()->getOperands(),
                 expert.getResults()))
    if (yielded == kernel.result)
      return cast<RankedTensorType>(result.getType());
  auto rows = cast<RankedTensorType>(expert.getRows().front().getType());
  auto type = cast<RankedTensorType>(kernel.result.getType());
  SmallVector<int64_t> shape(rows.getShape().drop_back());
  shape.push_back(type.getDimSize(1));
  return RankedTensorType::get(shape, type.getElementType());
}

} // namespace

FailureOr<unsigned> mlir::moe::detail::formExpertKernels(RewriterBase &rewriter,
                                                         ExpertOp expert,
                                                         Mismatch &mismatch) {
  ExpertMatcher matcher(expert, mismatch);
  if (failed(matcher.match()))
    return failure();
  OpBuilder::InsertionGuard guard(rewriter);
  rewriter.setInsertionPoint(expert);
  SmallVector<Value> results = ExpertContext(expert, matcher).create(rewriter);
  for (auto [result, value] : llvm::zip(expert.getResults(), results))
    if (result.getType() != value.getType())
      value = tensor::CastOp::create(rewriter, expert.getLoc(),
                                     result.getType(), value);
  rewriter.replaceOp(expert, results);
  return matcher.getKernels().size();
}
