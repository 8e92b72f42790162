// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "moira/Dialect/MoE/IR/MoEDialect.h"

#include "mlir/Interfaces/FunctionInterfaces.h"

using namespace mlir;
using namespace mlir::moe;

LogicalResult VariantsOp::verify() {
  // variants_c1
  if (getFunctions().empty() || getFunctions().size() != getClasses().size())
    return emitOpError("expected as many functions as row classes, and at "
                       "least one, got ")
           << getFunctions().size() << " and " << getClasses().size();
  return success();
}

/// variants_c2.
LogicalResult VariantsOp::verifySymbolUses(SymbolTableCollection &symbols) {
  Type first;
  for (Attribute name : getFunctions()) {
    auto function = symbols.lookupNearestSymbolFrom<FunctionOpInterface>(
        *this, cast<FlatSymbolRefAttr>(name));
    if (!function)
      return emitOpError("expected a function, got ") << name;
    if (!first)
      first = function.getFunctionType();
    if (function.getFunctionType() != first)
      return (emitOpError("expected functions of one type ")
              << first << ", got " << function.getFunctionType())
                 .attachNote(function.getLoc())
             << "this function differs";
  }
  return success();
}
