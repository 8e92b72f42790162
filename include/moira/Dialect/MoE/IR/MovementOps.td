// Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef MOIRA_DIALECT_MOE_IR_MOVEMENTOPS_TD
#define MOIRA_DIALECT_MOE_IR_MOVEMENTOPS_TD

include "moira/Dialect/MoE/IR/MoEOpBase.td"

def MoE_DispatchOp : MoE_ComputeOp<"dispatch", [
    AttrSizedOperandSegments,
    DeclareOpInterfaceMethods<ReifyRankedShapedTypeOpInterface,
                              ["reifyResultShapes"]>]> {
  let hasCanonicalizer = 1;
  let summary = "copy every token's row to the rows of its experts";
  let description = [{
    `rows[slots[t, j]] = x[t]` for every pair with a slot; with weights
    `round(weights[t, j] * x[t])`. Rows that no slot names are undefined. Cost
    O(T K D). The transpose of `combine`. Source: Tutel's fast encode
    (Flex/Tutel 3.3).

    **Constraints**
    * dispatch_c1: `x [T, D]`, `slots [T, K]`, `sizes [E]`.
    * dispatch_c2: the result is `[bound, D]` (ragged) or `[E, P, D]` (padded)
      of x's element type.
    * dispatch_c3: `weights` has the slots' shape.

    Example: x = [[1], [2]], slots [[0, 2], [1, -1]], bound 3 ->
    rows [[1], [2], [1]].

    ```mlir
    %rows = moe.dispatch %x, %slots, %sizes, %bound
        : tensor<?x8xf32>, tensor<?x2xi32>, tensor<4xi32> -> tensor<?x8xf32>
    ```
  }];
  let arguments = (ins
    MoE_FlatRows:$x, MoE_Ids:$slots, MoE_Counts:$sizes, Index:$bound,
    Optional<MoE_Weights>:$weights,
    Variadic<AnyNon0RankedMemRef>:$outs);
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let assemblyFormat = [{
    $x `,` $slots `,` $sizes `,` $bound
    oilist( `weights` `(` $weights `:` type($weights) `)`
          | `outs` `(` $outs `:` type($outs) `)` )
    attr-dict `:` type($x) `,` type($slots) `,` type($sizes)
    (`->` type($results)^)?
  }];
  let extraClassDeclaration = [{
    ::mlir::ShapedType getRowsType();
  }];
}

def MoE_CombineOp : MoE_ComputeOp<"combine", [
    AttrSizedOperandSegments,
    DeclareOpInterfaceMethods<ReifyRankedShapedTypeOpInterface,
                              ["reifyResultShapes"]>]> {
  let hasCanonicalizer = 1;
  let summary = "sum every token's expert rows";
  let description = [{
    `y[t] = sum over j of weights[t, j] * rows[slots[t, j]]`, over the pairs with
    a slot, in choice order, in f32 (f64 for f64), each step one fused
    multiply-add, rounded once at the end; a token without slots gets 0. The
    transpose of `dispatch`. Source: Tutel's fast decode (Flex/Tutel 3.3).

    **Constraints**
    * combine_c1: `rows` is `[R, D]` or `[E, P, D]`, `slots [T, K]`, the result
      `[T, D]` of the rows' element type.
    * combine_c2: `weights` has the slots' shape.

    Example: rows [[1], [2], [4]], slots [[0, 2], [1, -1]], weights
    [[0.5, 0.5], [1, 0]] -> [[2.5], [2]].

    ```mlir
    %y = moe.combine %rows, %slots weights(%w : tensor<?x2xf32>)
        : tensor<?x8xf32>, tensor<?x2xi32> -> tensor<?x8xf32>
    ```
  }];
  let arguments = (ins
    MoE_Rows:$rows, MoE_Ids:$slots,
    Optional<MoE_Weights>:$weights,
    Variadic<AnyNon0RankedMemRef>:$outs);
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let assemblyFormat = [{
    $rows `,` $slots
    oilist( `weights` `(` $weights `:` type($weights) `)`
          | `outs` `(` $outs `:` type($outs) `)` )
    attr-dict `:` type($rows) `,` type($slots) (`->` type($results)^)?
  }];
  let extraClassDeclaration = [{
    ::mlir::ShapedType getResultType();
  }];
}

def MoE_SourcesOp : MoE_ComputeOp<"sources", [
    DeclareOpInterfaceMethods<ReifyRankedShapedTypeOpInterface,
                              ["reifyResultShapes"]>]> {
  let summary = "the token that stands in every row";
  let description = [{
    `sources[slots[t, j]] = t` for every pair with a slot; -1 for rows that no
    slot names. Cost O(T K). A `grouped_matmul` that gathers by it reads the rows
    of `x` themselves where it would read those of an unweighted, ragged
    `dispatch`, so that no row is copied.

    **Constraints**
    * sources_c1: `slots` is `[T, K]`, the result `[bound]` x i32.

    Example: slots [[0, 2], [1, -1]], bound 4 -> [0, 1, 0, -1].

    ```mlir
    %tokens = moe.sources %slots, %bound : tensor<?x2xi32> -> tensor<?xi32>
    ```
  }];
  let arguments = (ins
    MoE_Ids:$slots, Index:$bound, Variadic<AnyNon0RankedMemRef>:$outs);
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let assemblyFormat = [{
    $slots `,` $bound (`outs` `(` $outs^ `:` type($outs) `)`)? attr-dict
    `:` type($slots) (`->` type($results)^)?
  }];
  let extraClassDeclaration = [{
    ::mlir::ShapedType getSourcesType();
  }];
}

#endif // MOIRA_DIALECT_MOE_IR_MOVEMENTOPS_TD
