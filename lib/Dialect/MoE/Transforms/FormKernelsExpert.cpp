// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// From the body of an expert to kernels. Some tensors of the body must exist in
// memory: what it yields and what later contractions read. Each of them becomes
// the result of one kernel, whose products are the contractions that it reaches
// back to through elementwise ops. A contraction that cannot stand in that
// kernel becomes one of its own, which the epilogue reads as rows. Where a
// fusion is disabled, more tensors are stored, and what no kernel may compute
// becomes a smaller expert, which is lowered to a loop.

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

  Plan plan();
  Plan planKernel(Value result);
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
  llvm::DenseMap<Operation *, Product> products;
  /// Tensors that must exist in memory.
  llvm::SetVector<Value> stored;
  ExpertPlan planned;
  llvm::DenseMap<Value, bool> rowScalarReaders;
  /// Columns of products, each a tensor of the kernel in the making.
  llvm::SetVector<Value> columnReads;
};

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
    if (product->bias && isDisabled(Fusions::Bias))
      return fail(&op, kBiasDisabled);
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
  planned.kernels.clear();
  planned.remainders.clear();
  rowScalarReaders.clear();
  for (Value result : stored) {
    Plan done =
        isRemainder(result) ? planRemainder(result) : planKernel(result);
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
        chosen.size() < (isDisabled(Fusions::GateUp) ? 1 : kMaxWeights)) {
      chosen.push_back(op);
      continue;
    }
    stored.insert(op->getResult(0));
    return Plan::Again;
  }
  Kernel &kernel = planned.kernels[result];
  kernel.result = result;
  kernel.columns = type.getDimSize(1);
  columnReads.clear();
  EpilogueBuilder builder(
      kernel, [&](Access access) { return resolve(kernel, chosen, access); },
      mismatch);
  if (failed(builder.build(result)) || failed(checkGroups(kernel)))
    return Plan::Failed;
  return splitColumns(kernel);
}

ExpertMatcher::Plan ExpertMatcher::splitColumns(const Kernel &kernel) {
  if (!isDisabled(Fusions::GateUp) || kernel.accumulators.size() < 2)
    return Plan::Done;
  if (columnReads.empty())
    return refuse(kernel.result.getDefiningOp(),
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
  for (auto &[result, kernel] : planned.kernels)
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
  if (remainder.rows.empty())
    return refuse(result.getDefiningOp(), "rows that depend on no rows");
  llvm::sort(remainder.ops,
             [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); });
  return Plan::Done;
}

} // namespace

FailureOr<unsigned>
mlir::moe::detail::formExpertKernels(RewriterBase &rewriter, ExpertOp expert,
                                     Fusions disabled,
                                     const Separability *separability,
                                     int64_t hiddenBlocks, Mismatch &mismatch) {
  ExpertMatcher matcher(expert, disabled, mismatch);
  if (failed(matcher.match()))
    return failure();
  ExpertPlan &plan = matcher.getPlan();
  plan.separability = separability;
  plan.hiddenBlocks = hiddenBlocks;
  createPlanned(rewriter, plan);
  return plan.kernels.size();
}
