// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What an expert becomes: found in FormKernelsExpert.cpp, made in
// FormKernelsCreate.cpp.

#ifndef MOIRA_LIB_DIALECT_MOE_TRANSFORMS_FORMKERNELSEXPERT_H
#define MOIRA_LIB_DIALECT_MOE_TRANSFORMS_FORMKERNELSEXPERT_H

#include "FormKernelsEpilogue.h"

#include "moira/Dialect/MoE/Utils/HiddenBlocks.h"

#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"

namespace mlir::moe::detail {

/// Elementwise work of the body that stays outside of kernels.
struct Remainder {
  Value result;
  /// In the order of the body.
  SmallVector<Operation *> ops;
  /// Row arguments and stored tensors that the ops read.
  llvm::SetVector<Value> rows;
  /// Other arguments of the body.
  llvm::SetVector<Value> perExpert, shared;
  /// Numbers of rows.
  SmallVector<tensor::DimOp> dims;
};

/// Kernels and remainders of an expert by the tensor of the body that each
/// computes; together they compute what it yields, and all that they read.
struct ExpertPlan {
  ExpertOp expert;
  /// Null where the hidden dimension stays in one piece.
  const Separability *separability = nullptr;
  int64_t hiddenBlocks = 1;
  std::vector<Kernel> kernels;
  /// The kernel of each stored tensor that one computes.
  llvm::DenseMap<Value, unsigned> kernelOf;
  llvm::MapVector<Value, Remainder> remainders;
  /// Yielded sums over rows that are kernels of their own.
  llvm::MapVector<Value, RowSum> sums;
  /// Remainders that are there because nothing matches.
  SmallVector<Mismatch> missed;

  /// Whether `value` is the block argument of a rows operand.
  bool isRows(Value value) {
    auto arg = dyn_cast<BlockArgument>(value);
    return arg && arg.getArgNumber() < expert.getRows().size();
  }
  /// Whether `value` is the block argument of a shared operand.
  bool isShared(Value value) {
    return llvm::is_contained(expert.getSharedArgs(), value);
  }
};

/// Replaces the expert by its kernels, and by loops for its remainders.
void createPlanned(RewriterBase &rewriter, ExpertPlan &plan);

} // namespace mlir::moe::detail

#endif // MOIRA_LIB_DIALECT_MOE_TRANSFORMS_FORMKERNELSEXPERT_H
