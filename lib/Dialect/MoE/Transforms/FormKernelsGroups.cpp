// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which of an expert's stored tensors one kernel computes.

#include "FormKernelsMatcher.h"

#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

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
