// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "moira/Dialect/MoE/Transforms/Fusions.h"

#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace mlir::moe;

SmallVector<std::string> mlir::moe::getFusionNames(Fusions fusions) {
  SmallVector<std::string> names;
  for (unsigned bit = 0; bit < 32; ++bit) {
    std::optional<Fusions> one = symbolizeFusions(uint32_t(1) << bit);
    if (one && bitEnumContainsAny(fusions, *one))
      names.push_back(stringifyFusions(*one));
  }
  return names;
}

std::string mlir::moe::listFusions() {
  return llvm::join(getFusionNames(static_cast<Fusions>(~uint32_t(0))), ", ");
}

llvm::Expected<Fusions> mlir::moe::parseFusions(ArrayRef<std::string> names) {
  Fusions fusions{};
  for (StringRef name : names) {
    std::optional<Fusions> one = symbolizeFusions(name);
    if (!one || stringifyFusions(*one) != name)
      return llvm::createStringError("expected one of " + listFusions() +
                                     ", got '" + name + "'");
    fusions = fusions | *one;
  }
  return fusions;
}
