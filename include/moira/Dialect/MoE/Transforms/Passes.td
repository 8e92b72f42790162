// Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef MOIRA_DIALECT_MOE_TRANSFORMS_PASSES_TD
#define MOIRA_DIALECT_MOE_TRANSFORMS_PASSES_TD

include "mlir/Pass/PassBase.td"

#endif // MOIRA_DIALECT_MOE_TRANSFORMS_PASSES_TD
