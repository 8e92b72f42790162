// Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef MOIRA_DIALECT_MOE_IR_GRADIENTOPS_TD
#define MOIRA_DIALECT_MOE_IR_GRADIENTOPS_TD

include "moira/Dialect/MoE/IR/MoEOpBase.td"

def MoE_GateGradientOp : MoE_ComputeOp<"gate_gradient", [
    AttrSizedOperandSegments,
    DeclareOpInterfaceMethods<ReifyRankedShapedTypeOpInterface,
                              ["reifyResultShapes"]>]> {
  let hasCanonicalizer = 1;
  let summary = "gradient of a gate's weights with respect to its logits";
  let description = [{
    From the logits `[T, E]`, the ids `[T, K]` that a `gate` of the same `router`
    chose and the gradient `[T, K]` of its weights to the gradient `[T, E]` of the
    logits. Ids are data: a choice of id -1 (unused: by a mask, a threshold, a
    run-time k) has no gradient, and neither bias nor groups enter, which only
    select. The gradient goes back through scale, normalisation and scores as
    docs/routing.md computes them, with the same expansions, in the scores' type;
    sums over choices are in f64 and choice order; the result is rounded once.
    Cost O(T (E + K)).

    What is constant has no gradient: a logit that is not finite, the weights of
    a token whose divisor is 0, a sum below the eps of `max_sum_eps`.

    * `weights [T, K]`: what the gate gave. A weight of 0 whose score is not 0 is
      that of a choice that only keeps ids distinct (an expert that a bias of
      -inf or a group switched off): constant, and with `after_top_k` no part of
      the softmax.
    * `selected [T, K]`: the ids before a threshold or a draw made some unused.
      With `after_top_k` and `softmax` those take part in the softmax.

    Source: the derivative that autograd takes of Tutel's and Hugging Face's
    routers, on the ids alone.

    **Constraints**
    * gate_gradient_c1: logits `[T, E]` with static E, ids `[T, K]` with static
      K >= 1; the result is of the logits' type.
    * gate_gradient_c2: `dweights`, `weights` and `selected` are `[T, K]`; the
      first two are f64 for f64 logits, else f32.
    * gate_gradient_c3: K = E with `expert_choice`.

    Example: logits [[0, 0]], ids [[0]], dweights [[1]], softmax -> [[0.25, -0.25]].

    ```mlir
    %d = moe.gate_gradient %logits, %ids, %dw router<normalize = max_sum_eps>
        : tensor<?x4xf32>, tensor<?x2xi32>, tensor<?x2xf32> -> tensor<?x4xf32>
    ```
  }];
  let arguments = (ins
    MoE_ShapedOf<[F16, BF16, F32, F64], [2]>:$logits,
    MoE_Ids:$ids, MoE_Weights:$dweights,
    Optional<MoE_Weights>:$weights, Optional<MoE_Ids>:$selected,
    Variadic<AnyNon0RankedMemRef>:$outs,
    MoE_RouterAttr:$router);
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let assemblyFormat = [{
    $logits `,` $ids `,` $dweights `router` `` $router
    oilist( `weights` `(` $weights `:` type($weights) `)`
          | `selected` `(` $selected `:` type($selected) `)`
          | `outs` `(` $outs `:` type($outs) `)` )
    attr-dict `:` type($logits) `,` type($ids) `,` type($dweights)
    (`->` type($results)^)?
  }];
  let extraClassDeclaration = [{
    /// Type of the gradient (`[T, E]`), a tensor or the destination's memref.
    ::mlir::ShapedType getResultType();
    int64_t getNumExperts();
    int64_t getNumChoices();
  }];
  let builders = [
    OpBuilder<(ins "::mlir::Value":$logits, "::mlir::Value":$ids,
                   "::mlir::Value":$dweights, "RouterAttr":$router)>];
}

def MoE_PairDotOp : MoE_ComputeOp<"pair_dot", [
    DeclareOpInterfaceMethods<ReifyRankedShapedTypeOpInterface,
                              ["reifyResultShapes"]>]> {
  let hasCanonicalizer = 1;
  let summary = "dot product of every pair's row with its token's row";
  let description = [{
    `dots[t, j] = sum over d of rows[slots[t, j], d] * x[t, d]` for every pair with
    a slot, exactly 0 for others: one FMA chain in increasing d from 0, in f32
    (f64 for f64 rows). The gradient of the weights of `dispatch` and `combine`.
    Cost O(T K D). Source: Tutel's backward of the gates (Flex/Tutel 3.3).

    **Constraints**
    * pair_dot_c1: `rows` is `[R, D]` or `[E, P, D]`, `x [T, D]` of the same element
      type, `slots [T, K]`.
    * pair_dot_c2: the result is `[T, K]`, f64 for f64 rows, else f32.

    Example: rows [[1, 0], [2, 1]], x [[3, 4]], slots [[1, -1]] -> [[10, 0]].

    ```mlir
    %dots = moe.pair_dot %rows, %x, %slots
        : tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x2xi32> -> tensor<?x2xf32>
    ```
  }];
  let arguments = (ins
    MoE_Rows:$rows, MoE_FlatRows:$x, MoE_Ids:$slots,
    Variadic<AnyNon0RankedMemRef>:$outs);
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let assemblyFormat = [{
    $rows `,` $x `,` $slots (`outs` `(` $outs^ `:` type($outs) `)`)? attr-dict
    `:` type($rows) `,` type($x) `,` type($slots) (`->` type($results)^)?
  }];
  let extraClassDeclaration = [{
    ::mlir::ShapedType getResultType();
  }];
  let builders = [
    OpBuilder<(ins "::mlir::Value":$rows, "::mlir::Value":$x,
                   "::mlir::Value":$slots)>];
}

#endif // MOIRA_DIALECT_MOE_IR_GRADIENTOPS_TD
