// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// From the body of an expert to kernels. Some tensors of the body must exist in
// memory: what it yields and what later contractions read. Each of them becomes
// a result of one kernel, whose products are the contractions that it reaches
// back to through elementwise ops; results of the same products stand in one
// kernel. A contraction that cannot stand in that kernel becomes one of its
// own, which the epilogue reads as rows. Sums over rows, which gradients yield,
// are contractions of stored tensors. Where a fusion is disabled, more tensors
// are stored, and what no kernel may compute becomes a smaller expert, which is
// lowered to a loop.

#include "FormKernels.h"
#include "FormKernelsMatcher.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

LogicalResult ExpertMatcher::match() {
  for (Value yielded : body.getTerminator()->getOperands())
    if (!isRows(yielded))
      (isSum(yielded) ? sums : stored).insert(yielded);
  for (Operation &op : body) {
    auto linalgOp = dyn_cast<linalg::LinalgOp>(op);
    if (!linalgOp || linalgOp.isAllParallelLoops() || op.use_empty() ||
        isSum(op.getResult(0)))
      continue;
    if (failed(addProduct(linalgOp)))
      return failure();
  }
  for (auto &[op, product] : products) {
    store(product.rows);
    for (const Product &term : product.earlier)
      store(term.rows);
  }
  Plan result = Plan::Again;
  // Every further round stores one tensor more, or takes one out of a kernel.
  while (result == Plan::Again)
    result = plan();
  bool hasWork = !stored.empty() || !sums.empty();
  if (result == Plan::Done && hasWork && planned.kernels.empty() &&
      planned.sums.empty()) {
    if (planned.missed.empty())
      return fail(nullptr, "work on rows that no kernel takes");
    mismatch = planned.missed.front();
    return failure();
  }
  return success(result == Plan::Done);
}

LogicalResult ExpertMatcher::addProduct(linalg::LinalgOp op) {
  FailureOr<Product> product = matchProduct(op, mismatch);
  if (failed(product))
    return failure();
  if (!isa<BlockArgument>(product->weight) || isRows(product->weight))
    return fail(op, "a weight that is computed in the body");
  if (product->bias && !isa<BlockArgument>(product->bias->source))
    return fail(op, "a bias that is computed in the body");
  if (product->bias && isDisabled(Fusions::Bias))
    return fail(op, kBiasDisabled);
  if (product->previous) {
    auto before = products.find(product->previous);
    if (before == products.end() || !product->continues(before->second) ||
        isShared(product->weight) != isShared(before->second.weight) ||
        !product->previous->hasOneUse())
      return fail(op, "a contraction that goes on from one it does not match");
    Product first = before->second;
    product->bias = first.bias;
    product->earlier = std::move(first.earlier);
    first.earlier.clear();
    product->earlier.push_back(std::move(first));
    products.erase(before);
  }
  products[op] = *product;
  return success();
}

ExpertMatcher::Plan ExpertMatcher::plan() {
  planned.kernels.clear();
  planned.kernelOf.clear();
  planned.remainders.clear();
  planned.sums.clear();
  planned.missed.clear();
  rowScalarReaders.clear();
  groups.clear();
  for (Value sum : sums) {
    Plan done = planSum(sum);
    if (done != Plan::Done)
      return done;
  }
  SmallVector<Value> withoutProducts;
  for (Value result : stored) {
    Plan done = isRemainder(result) ? planRemainder(result)
                                    : chooseProducts(result, withoutProducts);
    if (done != Plan::Done)
      return done;
  }
  for (Value result : withoutProducts) {
    if (attach(result))
      continue;
    planned.missed.push_back(
        {result.getDefiningOp(),
         "elementwise work on rows with no contraction before it"});
    Plan done = planRemainder(result);
    if (done != Plan::Done)
      return done;
  }
  for (Group &group : groups) {
    Plan done = planKernel(group);
    if (done != Plan::Done)
      return done;
  }
  Plan done = checkUses();
  return done == Plan::Done ? checkOrder() : done;
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

ExpertMatcher::Plan ExpertMatcher::planKernel(Group &group) {
  planned.kernels.emplace_back();
  Kernel &kernel = planned.kernels.back();
  kernel.results = llvm::to_vector(group.results);
  // In the order of the body, which is that of the source.
  llvm::sort(kernel.results, [](Value a, Value b) {
    return a.getDefiningOp()->isBeforeInBlock(b.getDefiningOp());
  });
  kernel.columns =
      cast<ShapedType>(kernel.results.front().getType()).getDimSize(1);
  for (Value result : kernel.results)
    planned.kernelOf[result] = planned.kernels.size() - 1;
  columnReads.clear();
  EpilogueBuilder builder(
      kernel,
      [&](Access access) {
        return resolve(kernel, group.products.getArrayRef(), access);
      },
      mismatch);
  if (failed(builder.build()) || failed(checkGroups(kernel))) {
    if (group.attached.empty())
      return Plan::Failed;
    alone.insert_range(group.attached);
    return Plan::Again;
  }
  return splitColumns(kernel);
}

ExpertMatcher::Plan ExpertMatcher::planSum(Value sum) {
  std::optional<RowSum> matched = matchRowSum(sum);
  if (!matched && !isPositiveZero(sum))
    planned.missed.push_back({sum.getDefiningOp(),
                              "a sum over rows that is neither one of rows nor "
                              "a product of two of them"});
  if (!matched)
    return planRemainder(sum);
  for (Value rows : {matched->lhs, matched->rhs})
    if (rows)
      store(rows);
  planned.sums[sum] = *matched;
  return Plan::Done;
}

ExpertMatcher::Plan ExpertMatcher::splitColumns(const Kernel &kernel) {
  if (!isDisabled(Fusions::GateUp) || kernel.accumulators.size() < 2)
    return Plan::Done;
  if (columnReads.empty())
    return refuse(kernel.getOp(),
                  "two sets of columns of one product that one op reads, while "
                  "fusion gate-up is disabled");
  // One stays in this kernel.
  unsigned kept = columnReads.size() > 1 ? 1 : 0;
  for (Value read : llvm::drop_begin(columnReads, kept))
    stored.insert(read);
  return Plan::Again;
}

LogicalResult ExpertMatcher::checkGroups(const Kernel &kernel) {
  if (kernel.accumulators.size() > kMaxWeights)
    return fail(kernel.getOp(), "a stage with more than two weights");
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
    return fail(kernel.getOp(),
                "a stage that mixes shared weights and per-expert values");
  if (expert.isPadded())
    return fail(kernel.getOp(), "a stage with shared weights on padded rows");
  return success();
}

Leaf ExpertMatcher::resolve(const Kernel &kernel, ArrayRef<Operation *> chosen,
                            Access access) {
  Operation *op = access.value.getDefiningOp();
  if (op && llvm::is_contained(chosen, op))
    return resolveProduct(kernel, products[op], access);
  if (isRows(access.value) ||
      (!llvm::is_contained(kernel.results, access.value) &&
       stored.contains(access.value)))
    return resolveRows(kernel, access);
  if (op && isDisabled(Fusions::GateUp) && access.isIdentity()) {
    Access moved = lookThrough(access);
    if (llvm::is_contained(chosen, moved.value.getDefiningOp()) &&
        !moved.isIdentity())
      columnReads.insert(access.value);
  }
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

FailureOr<unsigned> mlir::moe::detail::formExpertKernels(
    RewriterBase &rewriter, ExpertOp expert, Fusions disabled,
    const Separability *separability, int64_t hiddenBlocks, Mismatch &mismatch,
    MissFn onMiss) {
  // Says nothing about what is computed.
  exposeNarrow(rewriter, expert.getBody().front());
  ExpertMatcher matcher(expert, disabled, mismatch);
  if (failed(matcher.match()))
    return failure();
  ExpertPlan &plan = matcher.getPlan();
  plan.separability = separability;
  plan.hiddenBlocks = hiddenBlocks;
  llvm::for_each(plan.missed, onMiss);
  createPlanned(rewriter, plan);
  return plan.kernels.size() + plan.sums.size();
}
