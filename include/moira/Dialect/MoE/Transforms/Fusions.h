// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The names of fusions on command lines; the fusions themselves are listed in
// MoEAttrs.td.

#ifndef MOIRA_DIALECT_MOE_TRANSFORMS_FUSIONS_H
#define MOIRA_DIALECT_MOE_TRANSFORMS_FUSIONS_H

#include "moira/Dialect/MoE/IR/MoEDialect.h"

#include "llvm/Support/Error.h"

namespace mlir::moe {

/// The names of all fusions: "gather, gate-up, ...".
std::string listFusions();

/// Reads names of fusions; the error says which names there are.
llvm::Expected<Fusions> parseFusions(ArrayRef<std::string> names);

/// The names of `fusions`, one each.
SmallVector<std::string> getFusionNames(Fusions fusions);

} // namespace mlir::moe

#endif // MOIRA_DIALECT_MOE_TRANSFORMS_FUSIONS_H
