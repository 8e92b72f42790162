// Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef MOIRA_DIALECT_MOE_IR_MOEBASE_TD
#define MOIRA_DIALECT_MOE_IR_MOEBASE_TD

include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/DialectBase.td"
include "mlir/IR/EnumAttr.td"
include "mlir/IR/OpBase.td"

def MoE_Dialect : Dialect {
  let name = "moe";
  let cppNamespace = "::mlir::moe";
  let summary = "mixture-of-experts programs";
  let description = [{
    Routing, ragged groups and grouped matrix products of mixture-of-experts
    layers, on tensors with value semantics. `gate` selects experts; `count`,
    `capacity` and `assign` are integer bookkeeping, the only place that knows
    capacity and priority; `dispatch` and `combine` move rows; `expert` applies
    a body to every group; `grouped_matmul` is the form that kernels are made
    from. Routing rules: docs/routing.md.

    **Shapes.** T tokens, K choices per token, E experts, D features. Ids,
    counts, sizes and slots are i32 tensors. A *ragged* rows tensor is
    `[bound, D]`: the groups of the experts one after the other, `sizes` says
    how long each is, and the tail is undefined and never read into a result. A
    *padded* rows tensor is `[E, P, D]`: group e stands in the first `sizes[e]`
    rows of `[e, :, :]`. A *slot* is a flat row index into either, or -1.

    **Two forms.** Every op that computes a tensor also has a buffer form, which
    bufferization creates: memref operands, destinations in `outs(...)`, no
    tensor results.

    **What may be moved.** In tensor form every op is pure: it may be removed,
    repeated, hoisted or sunk like any arithmetic, although what it does depends
    on data (routing picks rows, not whether an op runs). `noise` too: equal
    operands give equal numbers. In buffer form an op reads its memref operands
    and writes `outs`, nothing else. A pass may not read the tail of a ragged
    tensor, the rows of a padded group beyond `sizes[e]`, or rows that no slot
    names: they are undefined and may hold NaN.
  }];
  let useDefaultAttributePrinterParser = 1;
  let hasOperationAttrVerify = 1;
  let hasRegionArgAttrVerify = 1;
  let hasConstantMaterializer = 1;
  let extraClassDeclaration = [{
    void registerAttributes();
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect",
                           "::mlir::tensor::TensorDialect"];
}

#endif // MOIRA_DIALECT_MOE_IR_MOEBASE_TD
