// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "moira/Variants/Passes.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/AttrTypeSubElements.h"
#include "mlir/IR/OperationSupport.h"
#include "llvm/ADT/Hashing.h"

namespace mlir::moe {
#define GEN_PASS_DEF_FOLDFUNCTIONSPASS
#include "moira/Variants/Passes.h.inc"
} // namespace mlir::moe

using namespace mlir;
using namespace mlir::moe;

/// Whether nobody outside of the module knows `op` by its name, so that another
/// one with the same content may stand for it.
static bool isLocal(Operation &op) {
  LLVM::Linkage linkage;
  if (auto function = dyn_cast<LLVM::LLVMFuncOp>(op)) {
    if (function.isExternal())
      return false;
    linkage = function.getLinkage();
  } else if (auto global = dyn_cast<LLVM::GlobalOp>(op)) {
    // Two variables are not one.
    if (!global.getConstant())
      return false;
    linkage = global.getLinkage();
  } else {
    return false;
  }
  return linkage == LLVM::Linkage::Internal ||
         linkage == LLVM::Linkage::Private;
}

/// The attributes but for the name.
static DictionaryAttr getContent(Operation &op) {
  NamedAttrList attributes(op.getAttrDictionary());
  attributes.erase(SymbolTable::getSymbolAttrName());
  return attributes.getDictionary(op.getContext());
}

static llvm::hash_code hashContent(Operation &op) {
  llvm::hash_code hash = llvm::hash_value(getContent(op).getAsOpaquePointer());
  for (Region &region : op.getRegions())
    region.walk<WalkOrder::PreOrder>([&](Operation *inner) {
      hash = llvm::hash_combine(
          hash, OperationEquivalence::computeHash(
                    inner, OperationEquivalence::ignoreHashValue,
                    OperationEquivalence::ignoreHashValue,
                    OperationEquivalence::IgnoreLocations));
    });
  return hash;
}

static bool hasSameContent(Operation &a, Operation &b) {
  if (a.getName() != b.getName() || getContent(a) != getContent(b))
    return false;
  for (auto [x, y] : llvm::zip_equal(a.getRegions(), b.getRegions()))
    if (!OperationEquivalence::isRegionEquivalentTo(
            &x, &y, OperationEquivalence::IgnoreLocations))
      return false;
  return true;
}

namespace {

struct FoldFunctions : public moe::impl::FoldFunctionsPassBase<FoldFunctions> {
  using FoldFunctionsPassBase::FoldFunctionsPassBase;

  void runOnOperation() override {
    // Callers of functions that have become one may be the same now.
    while (foldOnce())
      continue;
  }

private:
  bool foldOnce();
};

} // namespace

bool FoldFunctions::foldOnce() {
  ModuleOp module = getOperation();
  DenseMap<size_t, SmallVector<Operation *>> kept;
  DenseMap<StringAttr, StringAttr> standsFor;
  SmallVector<Operation *> folded;
  for (Operation &op : *module.getBody()) {
    if (!isLocal(op))
      continue;
    SmallVector<Operation *> &same = kept[hashContent(op)];
    auto *first = llvm::find_if(
        same, [&](Operation *other) { return hasSameContent(op, *other); });
    if (first == same.end()) {
      same.push_back(&op);
      continue;
    }
    standsFor[SymbolTable::getSymbolName(&op)] =
        SymbolTable::getSymbolName(*first);
    folded.push_back(&op);
  }
  if (folded.empty())
    return false;
  for (Operation *op : folded) {
    if (isa<LLVM::LLVMFuncOp>(op))
      ++numFunctions;
    else
      ++numGlobals;
    op->erase();
  }
  AttrTypeReplacer replacer;
  replacer.addReplacement(
      [&](FlatSymbolRefAttr symbol) -> std::optional<Attribute> {
        auto it = standsFor.find(symbol.getAttr());
        if (it == standsFor.end())
          return std::nullopt;
        return FlatSymbolRefAttr::get(it->second);
      });
  replacer.recursivelyReplaceElementsIn(module, /*replaceAttrs=*/true);
  return true;
}
