// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "moira/Conversion/MoEToCPU/Routing.h"

#include "moira/Dialect/MoE/IR/MoEDialect.h"

using namespace mlir;

void moe::populateRoutingToLoopsPatterns(RewritePatternSet &patterns) {}
