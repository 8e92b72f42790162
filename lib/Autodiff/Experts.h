// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef MOIRA_LIB_AUTODIFF_EXPERTS_H
#define MOIRA_LIB_AUTODIFF_EXPERTS_H

#include "moira/Dialect/MoE/IR/MoEDialect.h"

#include "mlir/IR/Builders.h"

namespace mlir::moe::detail {

/// Builds `op` without the results that nobody reads, and without what its body
/// then does for nothing. Erases `op`.
void dropUnusedResults(ExpertOp op);

} // namespace mlir::moe::detail

#endif // MOIRA_LIB_AUTODIFF_EXPERTS_H
