// Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef MOIRA_DIALECT_MOE_IR_PROGRAMOPS_TD
#define MOIRA_DIALECT_MOE_IR_PROGRAMOPS_TD

include "moira/Dialect/MoE/IR/MoEOpBase.td"
include "mlir/IR/SymbolInterfaces.td"

def MoE_VariantsOp : MoE_Op<"variants", [
    Symbol, HasParent<"::mlir::ModuleOp">,
    DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "the compiled variants of one entry";
  let description = [{
    Says that `sym_name` can be run by any of `functions`, which have the same
    type and differ in how, not in what, they compute. `classes` says for which
    number of rows each was made. The plan of a step picks one.

    **Constraints**
    * variants_c1: as many functions as classes, at least one.
    * variants_c2: each function exists, and all have one type.

    ```mlir
    moe.variants @main [@main_decode, @main_prefill] [decode, prefill]
    ```
  }];
  let arguments = (ins
    SymbolNameAttr:$sym_name,
    OptionalAttr<StrAttr>:$sym_visibility,
    TypedArrayAttrBase<FlatSymbolRefAttr, "functions">:$functions,
    TypedArrayAttrBase<MoE_RowClassAttr, "row classes">:$classes);
  let assemblyFormat = [{
    (custom<Visibility>($sym_visibility)^)? $sym_name $functions custom<RowClasses>($classes)
    attr-dict
  }];
  let hasVerifier = 1;
}

#endif // MOIRA_DIALECT_MOE_IR_PROGRAMOPS_TD
