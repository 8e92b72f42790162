// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The CPU lowering of routing and data movement.

#ifndef MOIRA_CONVERSION_MOETOCPU_ROUTING_H
#define MOIRA_CONVERSION_MOETOCPU_ROUTING_H

#include "mlir/IR/PatternMatch.h"

namespace mlir::moe {

/// Adds the patterns that turn the buffer form of gate, count, capacity,
/// assign, noise, dispatch, combine and pack into loops.
///
/// They need an enclosing module: an assign with a priority order calls a sort
/// that is added to it once, and an assign with a layer calls
/// `@moira_abi_loads(layer : i64, counts, sizes)`, a private declaration with
/// the attribute `moe.abi = "loads"` that a later pass replaces by the
/// runtime's function.
void populateRoutingToLoopsPatterns(RewritePatternSet &patterns);

} // namespace mlir::moe

#endif // MOIRA_CONVERSION_MOETOCPU_ROUTING_H
