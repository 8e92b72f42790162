// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Roundings.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;

Type mlir::moe::detail::getReadType(Value tensor) {
  Type type;
  for (OpOperand &use : tensor.getUses()) {
    auto reader = dyn_cast<linalg::GenericOp>(use.getOwner());
    if (!reader || !reader.isDpsInput(&use))
      return {};
    for (Operation *user : reader.getMatchingBlockArgument(&use).getUsers()) {
      auto rounding = dyn_cast<arith::TruncFOp>(user);
      if (!rounding || rounding.getRoundingmode() ||
          (type && type != rounding.getType()))
        return {};
      type = rounding.getType();
    }
  }
  return type;
}

void mlir::moe::detail::readRounded(linalg::GenericOp reader, unsigned number,
                                    Value rounded) {
  reader->setOperand(number, rounded);
  BlockArgument argument = reader.getBody()->getArgument(number);
  argument.setType(getElementTypeOrSelf(rounded.getType()));
  for (Operation *rounding : llvm::make_early_inc_range(argument.getUsers())) {
    rounding->getResult(0).replaceAllUsesWith(argument);
    rounding->erase();
  }
}
