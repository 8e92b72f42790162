// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Finds the kernels of an expert's body: FormKernelsExpert.cpp says how.

#ifndef MOIRA_LIB_DIALECT_MOE_TRANSFORMS_FORMKERNELSMATCHER_H
#define MOIRA_LIB_DIALECT_MOE_TRANSFORMS_FORMKERNELSMATCHER_H

#include "FormKernelsExpert.h"

namespace mlir::moe::detail {

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

} // namespace mlir::moe::detail

#endif // MOIRA_LIB_DIALECT_MOE_TRANSFORMS_FORMKERNELSMATCHER_H
