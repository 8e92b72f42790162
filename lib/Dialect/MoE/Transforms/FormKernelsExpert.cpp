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

#include "FormKernelsExpert.h"
#include "FormKernels.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

namespace {

/// How many weights a kernel takes: its accumulators share the registers.
constexpr unsigned kMaxWeights = 2;

class ExpertMatcher {
public:
  ExpertMatcher(ExpertOp expert, Fusions disabled, Mismatch &mismatch)
      : expert(expert), body(expert.getBody().front()), disabled(disabled),
        mismatch(mismatch) {
    planned.expert = expert;
  }

  LogicalResult match();

  ExpertPlan &getPlan() { return planned; }

private:
  enum class Plan { Done, Again, Failed };

  /// Stored tensors that one kernel computes, and its products.
  struct Group {
    llvm::SetVector<Value> results;
    llvm::SetVector<Operation *> products;
    /// Results that need none of the products.
    llvm::SetVector<Value> attached;
  };

  LogicalResult addProduct(linalg::LinalgOp op);
  Plan plan();
  Plan planSum(Value sum);
  Plan chooseProducts(Value result, SmallVectorImpl<Value> &withoutProducts);
  bool canStandTogether(ArrayRef<Operation *> ops);
  Plan addToGroup(Value result, ArrayRef<Operation *> chosen);
  bool attach(Value result);
  void collectStored(Value value, llvm::SetVector<Value> &found);
  Plan planKernel(Group &group);
  Plan checkOrder();
  /// Whether `value` is a sum over rows, `[S..]`.
  static bool isSum(Value value) {
    auto type = dyn_cast<RankedTensorType>(value.getType());
    return type && type.hasStaticShape();
  }
  void store(Value rows) {
    if (!isRows(rows))
      stored.insert(rows);
  }
  /// Takes kernels apart that hold columns of one product twice, when gate-up
  /// is disabled.
  Plan splitColumns(const Kernel &kernel);
  bool isRemainder(Value result);
  Plan planRemainder(Value result);
  /// Adds what `op` reads from memory, and to `pending` the ops that compute
  /// the rest.
  Plan addInputs(Remainder &remainder, Operation *op,
                 SmallVectorImpl<Operation *> &pending);
  /// Whether `value` is computed from one value per row of memory.
  bool readsRowScalar(Value value);
  bool isRows(Value value) { return planned.isRows(value); }
  bool isShared(Value value) { return planned.isShared(value); }
  bool isStored(Value value) {
    return isRows(value) || stored.contains(value) ||
           products.contains(value.getDefiningOp());
  }
  bool isDisabled(Fusions fusion) {
    return bitEnumContainsAny(disabled, fusion);
  }
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
  Fusions disabled;
  Mismatch &mismatch;
  llvm::MapVector<Operation *, Product> products;
  /// Tensors of rows that must exist in memory, and sums that are yielded.
  llvm::SetVector<Value> stored, sums;
  /// Products that stand in no kernel but their own.
  llvm::SmallPtrSet<Operation *, 4> separate;
  /// Stored tensors without products that no kernel may compute.
  llvm::DenseSet<Value> alone;
  std::vector<Group> groups;
  ExpertPlan planned;
  llvm::DenseMap<Value, bool> rowScalarReaders;
  /// Columns of products, each a tensor of the kernel in the making.
  llvm::SetVector<Value> columnReads;
};

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
  if (result == Plan::Done && planned.kernels.empty() && planned.sums.empty() &&
      !(stored.empty() && sums.empty()))
    return fail(stored.empty() ? nullptr : stored.front().getDefiningOp(),
                "elementwise work on rows with no contraction before it");
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

/// Finds the products of `result` and puts it in their group.
ExpertMatcher::Plan
ExpertMatcher::chooseProducts(Value result,
                              SmallVectorImpl<Value> &withoutProducts) {
  auto type = dyn_cast<RankedTensorType>(result.getType());
  if (!type || type.getRank() != 2 || type.isDynamicDim(1))
    return refuse(result.getDefiningOp(), "rows that are no [rows, N] tensor");
  llvm::SetVector<Operation *> reached;
  collectProducts(result, reached);
  SmallVector<Operation *> all, apart;
  for (Operation *op : reached) {
    bool isOwn = op->getResult(0) == result;
    if (isOwn || !separate.contains(op))
      all.push_back(op);
    if (isOwn || !stored.contains(op->getResult(0)))
      apart.push_back(op);
  }
  auto inOrder = [](Operation *a, Operation *b) {
    return a->isBeforeInBlock(b);
  };
  llvm::sort(all, inOrder);
  llvm::sort(apart, inOrder);
  if (all.empty()) {
    withoutProducts.push_back(result);
    return Plan::Done;
  }
  // What is stored in any case is better computed here than read, where it
  // fits.
  bool merges = !isDisabled(Fusions::GateUp);
  if (merges && canStandTogether(all))
    return addToGroup(result, all);
  if (apart.empty()) {
    withoutProducts.push_back(result);
    return Plan::Done;
  }
  // The deepest stage is the one that can read all others as rows.
  SmallVector<Operation *> chosen;
  for (Operation *op : apart) {
    chosen.push_back(op);
    bool fits = products[op].isCompatible(products[apart.back()]) &&
                canStandTogether(chosen);
    if (fits || op == apart.back())
      continue;
    stored.insert(op->getResult(0));
    return Plan::Again;
  }
  if (!canStandTogether(chosen)) {
    stored.insert(chosen.back()->getResult(0));
    separate.insert(chosen.back());
    return Plan::Again;
  }
  return addToGroup(result, chosen);
}

bool ExpertMatcher::canStandTogether(ArrayRef<Operation *> ops) {
  const Product &last = products[ops.back()];
  return (ops.size() == 1 ||
          llvm::all_of(ops,
                       [&](Operation *op) {
                         return products[op].isCompatible(last) &&
                                isShared(products[op].weight) ==
                                    isShared(last.weight);
                       })) &&
         ops.size() <= (isDisabled(Fusions::GateUp) ? 1 : kMaxWeights);
}

/// Adds `result` to the group that has one of its products, or to a new one.
ExpertMatcher::Plan ExpertMatcher::addToGroup(Value result,
                                              ArrayRef<Operation *> chosen) {
  Group merged;
  merged.results.insert(result);
  merged.products.insert_range(chosen);
  int64_t columns = cast<ShapedType>(result.getType()).getDimSize(1);
  std::vector<Group> others;
  for (Group &group : groups) {
    // Without that fusion columns of one product may be kernels of their own.
    bool shares = !isDisabled(Fusions::GateUp) &&
                  llvm::any_of(chosen, [&](Operation *op) {
                    return group.products.contains(op);
                  });
    if (!shares) {
      others.push_back(std::move(group));
      continue;
    }
    int64_t width =
        cast<ShapedType>(group.results.front().getType()).getDimSize(1);
    Group together = merged;
    together.products.insert_range(group.products);
    together.results.insert_range(group.results);
    SmallVector<Operation *> ops(together.products.getArrayRef());
    llvm::sort(
        ops, [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); });
    if (width != columns || !canStandTogether(ops)) {
      // The product that both want is stored, and one of them reads it.
      for (Operation *op : chosen)
        if (group.products.contains(op)) {
          stored.insert(op->getResult(0));
          separate.insert(op);
        }
      return Plan::Again;
    }
    merged = std::move(together);
  }
  others.push_back(std::move(merged));
  groups = std::move(others);
  return Plan::Done;
}

/// Lets a kernel compute `result` from rows of memory and from its own results.
bool ExpertMatcher::attach(Value result) {
  if (alone.contains(result))
    return false;
  int64_t columns = cast<ShapedType>(result.getType()).getDimSize(1);
  llvm::SetVector<Value> reads;
  collectStored(result, reads);
  for (Group &group : groups) {
    int64_t width =
        cast<ShapedType>(group.results.front().getType()).getDimSize(1);
    if (width != columns || !llvm::all_of(reads, [&](Value value) {
          return isRows(value) || group.results.contains(value);
        }))
      continue;
    group.results.insert(result);
    group.attached.insert(result);
    return true;
  }
  return false;
}

/// The tensors in memory that elementwise ops before `value` read.
void ExpertMatcher::collectStored(Value value, llvm::SetVector<Value> &found) {
  Operation *op = value.getDefiningOp();
  if (!op)
    return;
  for (Value operand : op->getOperands())
    if (isStored(operand))
      found.insert(operand);
    else
      collectStored(operand, found);
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

ExpertMatcher::Plan ExpertMatcher::checkUses() {
  SmallVector<const Accumulator *> seen;
  for (Kernel &kernel : planned.kernels)
    for (const Accumulator &accumulator : kernel.accumulators) {
      Operation *op = accumulator.product.op;
      for (const Accumulator *other : seen)
        if (other->product.op == op && other->columns == accumulator.columns) {
          stored.insert(op->getResult(0));
          separate.insert(op);
          return Plan::Again;
        }
      seen.push_back(&accumulator);
    }
  return Plan::Done;
}

/// Takes a kernel apart that would wait for itself.
ExpertMatcher::Plan ExpertMatcher::checkOrder() {
  enum State : char { New, Open, Closed };
  SmallVector<State> states(planned.kernels.size(), New);
  std::function<bool(Value)> isOrdered = [&](Value value) {
    if (auto remainder = planned.remainders.find(value);
        remainder != planned.remainders.end())
      return llvm::all_of(remainder->second.rows, isOrdered);
    auto known = planned.kernelOf.find(value);
    if (known == planned.kernelOf.end())
      return true;
    State &state = states[known->second];
    if (state != New)
      return state == Closed;
    state = Open;
    Kernel &kernel = planned.kernels[known->second];
    SmallVector<Value> reads(kernel.elements);
    llvm::append_range(reads, kernel.scalars);
    for (const Accumulator &accumulator : kernel.accumulators) {
      reads.push_back(accumulator.product.rows);
      for (const Product &term : accumulator.product.earlier)
        reads.push_back(term.rows);
    }
    bool ordered = llvm::all_of(reads, isOrdered);
    states[known->second] = Closed;
    return ordered;
  };
  for (Kernel &kernel : planned.kernels) {
    if (isOrdered(kernel.results.front()))
      continue;
    for (const Accumulator &accumulator : kernel.accumulators) {
      stored.insert(accumulator.product.op->getResult(0));
      if (!separate.insert(accumulator.product.op).second)
        return refuse(kernel.getOp(), "a stage that waits for itself");
    }
    return Plan::Again;
  }
  return Plan::Done;
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

//===----------------------------------------------------------------------===//
// Remainders
//===----------------------------------------------------------------------===//

bool ExpertMatcher::readsRowScalar(Value value) {
  auto [known, isNew] = rowScalarReaders.try_emplace(value, false);
  if (!isNew)
    return known->second;
  Operation *op = value.getDefiningOp();
  if (!op || products.contains(op) || isa<tensor::DimOp>(op))
    return false;
  bool reads = llvm::any_of(op->getOperands(), [&](Value operand) {
    if (!isStored(operand))
      return readsRowScalar(operand);
    auto type = dyn_cast<RankedTensorType>(operand.getType());
    return type && type.getRank() == 2 && type.getDimSize(1) == 1;
  });
  rowScalarReaders[value] = reads;
  return reads;
}

bool ExpertMatcher::isRemainder(Value result) {
  if (!result.getDefiningOp() || products.contains(result.getDefiningOp()))
    return false;
  return isDisabled(Fusions::Activation) ||
         (isDisabled(Fusions::PairWeights) && readsRowScalar(result));
}

ExpertMatcher::Plan
ExpertMatcher::addInputs(Remainder &remainder, Operation *op,
                         SmallVectorImpl<Operation *> &pending) {
  llvm::SetVector<Value> operands(op->operand_begin(), op->operand_end());
  // Payloads capture constants.
  op->walk([&](Operation *inner) {
    for (Value operand : inner->getOperands())
      if (operand.getParentBlock() == &body)
        operands.insert(operand);
  });
  for (Value operand : operands) {
    Operation *source = operand.getDefiningOp();
    if (isRows(operand) || stored.contains(operand)) {
      remainder.rows.insert(operand);
      continue;
    }
    if (!source) {
      (isShared(operand) ? remainder.shared : remainder.perExpert)
          .insert(operand);
      continue;
    }
    llvm::SetVector<Operation *> reached;
    collectProducts(operand, reached);
    auto type = dyn_cast<RankedTensorType>(operand.getType());
    // What a kernel may still compute is stored where its type allows it.
    bool fused = !isDisabled(Fusions::Activation) && !reached.empty() &&
                 !readsRowScalar(operand) && type && type.getRank() == 2 &&
                 type.isDynamicDim(0) && !type.isDynamicDim(1) &&
                 isa<Float16Type, BFloat16Type, Float32Type, Float64Type>(
                     type.getElementType());
    if (fused || products.contains(source)) {
      stored.insert(operand);
      return Plan::Again;
    }
    pending.push_back(source);
  }
  return Plan::Done;
}

ExpertMatcher::Plan ExpertMatcher::planRemainder(Value result) {
  Remainder &remainder = planned.remainders[result];
  remainder.result = result;
  llvm::SmallPtrSet<Operation *, 16> seen;
  SmallVector<Operation *> pending{result.getDefiningOp()};
  while (!pending.empty()) {
    Operation *op = pending.pop_back_val();
    if (!seen.insert(op).second)
      continue;
    // All rows are as many, so that none is read for its number only.
    if (auto dim = dyn_cast<tensor::DimOp>(op);
        dim && isStored(dim.getSource()) && dim.getConstantIndex() == 0) {
      remainder.dims.push_back(dim);
      continue;
    }
    Plan done = addInputs(remainder, op, pending);
    if (done != Plan::Done)
      return done;
    remainder.ops.push_back(op);
  }
  if (remainder.rows.empty()) {
    if (!isSum(result))
      return refuse(result.getDefiningOp(), "rows that depend on no rows");
    // Zeros: the loop is still one over groups.
    remainder.rows.insert(expert.getRowArgs().front());
  }
  llvm::sort(remainder.ops,
             [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); });
  return Plan::Done;
}

} // namespace

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
