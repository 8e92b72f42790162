// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "moira/Variants/Passes.h"

#include "moira/Dialect/MoE/Utils/Entry.h"

#include "mlir/IR/SymbolTable.h"

namespace mlir::moe {
#define GEN_PASS_DEF_CREATEVARIANTSPASS
#include "moira/Variants/Passes.h.inc"
} // namespace mlir::moe

using namespace mlir;
using namespace mlir::moe;

namespace {

struct CreateVariants
    : public moe::impl::CreateVariantsPassBase<CreateVariants> {
  using CreateVariantsPassBase::CreateVariantsPassBase;

  void runOnOperation() override {
    FailureOr<SmallVector<RowClass>> classes = getClasses();
    if (failed(classes))
      return signalPassFailure();
    FailureOr<SmallVector<func::FuncOp>> functions =
        findEntries(getOperation(), entry);
    if (failed(functions))
      return signalPassFailure();
    for (func::FuncOp function : *functions)
      if (failed(createVariants(function, *classes)))
        return signalPassFailure();
  }

private:
  FailureOr<SmallVector<RowClass>> getClasses();
  LogicalResult createVariants(func::FuncOp function,
                               ArrayRef<RowClass> classes);
};

} // namespace

FailureOr<SmallVector<RowClass>> CreateVariants::getClasses() {
  if (rows.empty())
    return SmallVector<RowClass>{RowClass::Decode, RowClass::Prefill};
  SmallVector<RowClass> classes;
  for (const std::string &name : rows) {
    std::optional<RowClass> value = symbolizeRowClass(name);
    if (!value || llvm::is_contained(classes, *value))
      return getOperation().emitError(
                 "expected different row classes, decode or prefill, got '")
             << llvm::join(rows, ",") << "'";
    classes.push_back(*value);
  }
  return classes;
}

LogicalResult CreateVariants::createVariants(func::FuncOp function,
                                             ArrayRef<RowClass> classes) {
  ModuleOp module = getOperation();
  std::optional<SymbolTable::UseRange> uses =
      SymbolTable::getSymbolUses(function, module);
  for (SymbolTable::SymbolUse use : *uses) {
    // An entry names its way back, and does not call it.
    if (use.getUser()->getAttr(kBackwardAttrName) == use.getSymbolRef())
      continue;
    return function
               .emitOpError(
                   "expected an entry that the module itself does not use")
               .attachNote(use.getUser()->getLoc())
           << "used here";
  }
  MLIRContext *context = &getContext();
  OpBuilder builder(function);
  SmallVector<Attribute> names, values;
  for (RowClass rowClass : classes) {
    std::string name =
        (function.getName() + "_" + stringifyRowClass(rowClass)).str();
    if (Operation *other = module.lookupSymbol(name))
      return (function.emitOpError("expected no symbol '")
              << name << "' beside the entry")
                 .attachNote(other->getLoc())
             << "defined here";
    auto attribute = RowClassAttr::get(context, rowClass);
    auto variant = cast<func::FuncOp>(builder.clone(*function));
    variant.setName(name);
    variant.setPrivate();
    variant->setAttr("moe.row_class", attribute);
    names.push_back(FlatSymbolRefAttr::get(variant));
    values.push_back(attribute);
  }
  VariantsOp::create(builder, function.getLoc(), function.getName(),
                     /*sym_visibility=*/StringAttr(),
                     builder.getArrayAttr(names), builder.getArrayAttr(values));
  function.erase();
  return success();
}
