// Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef MOIRA_DIALECT_MOE_IR_ROUTINGOPS_TD
#define MOIRA_DIALECT_MOE_IR_ROUTINGOPS_TD

include "moira/Dialect/MoE/IR/MoEOpBase.td"

def MoE_GateOp : MoE_ComputeOp<"gate", [
    AttrSizedOperandSegments,
    DeclareOpInterfaceMethods<ReifyRankedShapedTypeOpInterface,
                              ["reifyResultShapes"]>]> {
  let hasCanonicalizer = 1;
  let summary = "select experts for every token";
  let description = [{
    Turns logits `[T, E]` into ids `[T, K]` (i32) and weights `[T, K]` by the
    rule of `router`. Scores are f32, or f64 for f64 logits. Selection goes by
    score plus `bias`; the bias never enters a weight. Ties go to the lowest id,
    NaN counts as -inf, a token's ids are distinct and in range; an unused
    choice has id -1 and weight 0.

    * `bias [E]`: added to the scores for selection only.
    * `mask [T]` (i1): a token with false gets ids -1.
    * `top_k`: run-time k, clipped to K; choices from k on are unused.
    * `threshold`: a choice is used when its score is >= threshold.
    * `capacity`: with `expert_choice`, how many tokens an expert picks.
    * `replay [T, K]`: ids from elsewhere; only the weights are computed.
    * `sample [T]`: uniform draws u; the second choice is used when 2 w >= u
      (GShard, algorithm 1).

    Sources: Tutel's and FastMoE's gates, and the routers of Mixtral, Qwen3,
    DeepSeek-V3 and gpt-oss; docs/routing.md has the normative text.

    **Constraints**
    * gate_c1: logits `[T, E]`, ids and weights `[T, K]` with static K and E.
    * gate_c2: `K >= 1`. A K above E means E: canonicalization warns and leaves
      the choices from E on unused.
    * gate_c3: `bias` is `[E]`; `mask`, `sample` are `[T]`; `replay` is `[T, K]`.
    * gate_c4: weights are f64 for f64 logits, else f32.
    * gate_c5: `groups` divides E; the kept groups hold at least K experts;
      `sum_top2` needs two experts per group.
    * gate_c6: `expert_choice` needs `capacity`, K = E, and no `top_k`,
      `threshold`, `replay` or `sample`; `capacity` needs `expert_choice`.
    * gate_c7: `sample` needs K >= 2.

    Example:

    ```mlir
    // logits [[2, 1, 0, -1]] -> ids [[0, 1]], weights [[0.7311, 0.2689]]
    %ids, %w = moe.gate %logits router<normalize = max_sum_eps>
        : tensor<?x4xf32> -> tensor<?x2xi32>, tensor<?x2xf32>
    ```
  }];
  let arguments = (ins
    MoE_ShapedOf<[F16, BF16, F32, F64], [2]>:$logits,
    Optional<MoE_ShapedOf<[F32, F64], [1]>>:$bias,
    Optional<MoE_ShapedOf<[I1], [1]>>:$mask,
    Optional<Index>:$topK,
    Optional<AnyTypeOf<[F32, F64]>>:$threshold,
    Optional<Index>:$capacity,
    Optional<MoE_Ids>:$replay,
    Optional<MoE_ShapedOf<[F32], [1]>>:$sample,
    Variadic<AnyNon0RankedMemRef>:$outs,
    MoE_RouterAttr:$router,
    OptionalAttr<I64Attr>:$layer);
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let assemblyFormat = [{
    $logits `router` `` $router
    oilist( `bias` `(` $bias `:` type($bias) `)`
          | `mask` `(` $mask `:` type($mask) `)`
          | `top_k` `(` $topK `)`
          | `threshold` `(` $threshold `:` type($threshold) `)`
          | `capacity` `(` $capacity `)`
          | `replay` `(` $replay `:` type($replay) `)`
          | `sample` `(` $sample `:` type($sample) `)`
          | `outs` `(` $outs `:` type($outs) `)` )
    attr-dict `:` type($logits) (`->` type($results)^)?
  }];
  let extraClassDeclaration = [{
    /// Type of the ids (`[T, K]`), a tensor or the destination's memref.
    ::mlir::ShapedType getIdsType();
    /// Type of the weights (`[T, K]`).
    ::mlir::ShapedType getWeightsType();
    int64_t getNumExperts();
    int64_t getNumChoices();
  }];
  let builders = [
    OpBuilder<(ins "::mlir::Type":$ids, "::mlir::Type":$weights,
                   "::mlir::Value":$logits, "RouterAttr":$router)>];
}

def MoE_CountOp : MoE_ComputeOp<"count", [
    DeclareOpInterfaceMethods<ReifyRankedShapedTypeOpInterface,
                              ["reifyResultShapes"]>]> {
  let hasCanonicalizer = 1;
  let summary = "rows that each expert is sent, before any drop";
  let description = [{
    `counts[e]` = number of pairs of `ids [T, K]` with id e; ids outside `0..E-1`
    (unused choices) are not counted.

    **Constraints**
    * count_c1: the result `[E]` is static.

    Example: `ids = [[0, 2], [2, 1], [0, -1]]`, E = 3 -> `[2, 1, 2]`.

    ```mlir
    %counts = moe.count %ids : tensor<?x2xi32> -> tensor<3xi32>
    ```
  }];
  let arguments = (ins MoE_Ids:$ids, Variadic<AnyNon0RankedMemRef>:$outs);
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let assemblyFormat = [{
    $ids (`outs` `(` $outs^ `:` type($outs) `)`)? attr-dict
    `:` type($ids) (`->` type($results)^)?
  }];
}

def MoE_CapacityOp : MoE_Op<"capacity", [
    DeclareOpInterfaceMethods<MemoryEffectsOpInterface>]> {
  let summary = "rows per expert and token block, by a published formula";
  let description = [{
    With T tokens, factor f, k choices and E experts:

    | rule | capacity | source |
    | --- | --- | --- |
    | `tutel` | f > 0: k * trunc(f * ceil(T / E)); f = 0: max count; f < 0: min(max count, k * trunc(-f * ceil(T / E))) | Tutel `fast_dispatch.py` |
    | `gshard` | floor(ceil(f * T) * k / E) | FastMoE's GShard gate |
    | `switch` | ceil(f * k * T / E) | Switch Transformer 2.2 |
    | `fixed` | trunc(f) | Hugging Face `expert_capacity` |

    then at least `minimum`, then rounded up to a multiple of `alignment`; never
    negative. The factor is f64.

    **Constraints**
    * capacity_c1: `experts >= 1`, `minimum >= 0`, `alignment >= 1`.
    * capacity_c2: `tutel` needs `counts`, unless the factor is a constant > 0.

    Example: T = 6, E = 4, k = 2, f = 1 by `tutel` -> 2 * trunc(ceil(6 / 4)) = 4.

    ```mlir
    %c = moe.capacity tutel tokens(%t) factor(%f) top_k(%k) {experts = 4 : i64}
    ```
  }];
  let arguments = (ins
    MoE_CapacityRuleAttr:$rule,
    Index:$tokens, F64:$factor, Index:$topK,
    Optional<MoE_Counts>:$counts,
    I64Attr:$experts,
    DefaultValuedAttr<I64Attr, "0">:$minimum,
    DefaultValuedAttr<I64Attr, "1">:$alignment);
  let results = (outs Index:$result);
  let assemblyFormat = [{
    `` $rule `tokens` `(` $tokens `)` `factor` `(` $factor `)`
    `top_k` `(` $topK `)` (`counts` `(` $counts^ `:` type($counts) `)`)?
    attr-dict
  }];
  let hasVerifier = 1;
  let hasFolder = 1;
}

def MoE_AssignOp : MoE_ComputeOp<"assign", [
    AttrSizedOperandSegments,
    DeclareOpInterfaceMethods<ReifyRankedShapedTypeOpInterface,
                              ["reifyResultShapes"]>]> {
  let hasCanonicalizer = 1;
  let summary = "give every (token, choice) pair its row, or drop it";
  let description = [{
    Pairs of an expert get consecutive places, block by block and within a block
    in `order`; a pair whose place in its block reaches `capacity` is dropped.
    Results: `slots [T, K]` (flat row, -1 when dropped or unused), `sizes [E]`
    (rows kept), and `bound`, how many rows the buffer has: T*K ragged, E*P
    padded, where P = capacity * blocks.

    * `counts [E]`: what `moe.count` says of the same ids (after an exchange of
      counts it may be a maximum over ranks; only places are taken from ids).
    * `capacity`: rows per expert and block; without it nothing is dropped.
    * `priority`: `[T]` for `batch_prioritized` (tokens by descending value,
      ties: lower token first), `[T, K]` for `expert_probability` (per expert,
      pairs by descending value, ties: lower token, then lower choice).
    * `blocks [B]` (i32): rows of each token block, summing to T; without it
      there is one block.

    Orders: `choice_major`: every first choice before any second (Tutel,
    GShard). `token_major`: FastMoE. `batch_prioritized`: choice-major, tokens by
    priority (V-MoE). `expert_probability`: Megatron "probs".

    **Constraints**
    * assign_c1: `slots` has the ids' shape; `sizes` and `counts` are `[E]`.
    * assign_c2: `priority` goes with exactly the two priority orders and has
      their shape.
    * assign_c3: `padded` needs `capacity`.

    Example: T = 3, ids [[0], [0], [0]], capacity 2 -> slots [[0], [1], [-1]],
    sizes [2, 0], bound 3.

    ```mlir
    %slots, %sizes, %bound = moe.assign %ids choice_major
        counts(%counts : tensor<4xi32>) capacity(%c)
        : tensor<?x2xi32> -> tensor<?x2xi32>, tensor<4xi32>, index
    ```
  }];
  let arguments = (ins
    MoE_OrderAttr:$order,
    MoE_Ids:$ids,
    MoE_Counts:$counts,
    Optional<Index>:$capacity,
    Optional<MoE_ShapedOf<[F32, F64], [1, 2]>>:$priority,
    Optional<MoE_Counts>:$blocks,
    Variadic<AnyNon0RankedMemRef>:$outs,
    UnitAttr:$padded,
    OptionalAttr<I64Attr>:$layer);
  let results = (outs Variadic<AnyTypeOf<[AnyRankedTensor, Index]>>:$results);
  let assemblyFormat = [{
    $ids `` $order (`padded` $padded^)?
    `counts` `(` $counts `:` type($counts) `)`
    oilist( `capacity` `(` $capacity `)`
          | `priority` `(` $priority `:` type($priority) `)`
          | `blocks` `(` $blocks `:` type($blocks) `)`
          | `outs` `(` $outs `:` type($outs) `)` )
    attr-dict `:` type($ids) (`->` type($results)^)?
  }];
  let extraClassDeclaration = [{
    ::mlir::ShapedType getSlotsType();
    ::mlir::ShapedType getSizesType();
    int64_t getNumExperts();
    /// Builds the value of `bound` from shapes and operands (no data is read).
    ::mlir::Value buildBound(::mlir::OpBuilder &builder, ::mlir::Location loc);
  }];
}

def MoE_NoiseOp : MoE_ComputeOp<"noise", [
    DeclareOpInterfaceMethods<ReifyRankedShapedTypeOpInterface,
                              ["reifyResultShapes"]>]> {
  let summary = "random numbers that do not depend on ranks or threads";
  let description = [{
    Fills `[T, N]` (f32) with `normal` (mean 0, deviation 1) or `uniform` (open
    interval (0, 1)) numbers drawn by Philox4x32-10 keyed by (seed, step, layer,
    first + t, n): the same for any number of ranks, replicas, chunks and
    threads. Gate noise, input jitter and sampled choices are made from it with
    ordinary arithmetic; a program that draws nothing has no such op.

    `rows` gives T; `first` is the global id of token 0 of this tensor.

    **Constraints**
    * noise_c1: the result is f32 `[T, N]` with static N.

    Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC11.

    ```mlir
    %n = moe.noise normal rows(%t) seed(%seed) step(%step) first(%c0)
        {layer = 3 : i64} -> tensor<?x64xf32>
    ```
  }];
  let arguments = (ins
    MoE_DistributionAttr:$distribution,
    Index:$rows, I64:$seed, I64:$step, Index:$first,
    Variadic<AnyNon0RankedMemRef>:$outs,
    I64Attr:$layer);
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let assemblyFormat = [{
    `` $distribution `rows` `(` $rows `)` `seed` `(` $seed `)` `step` `(` $step `)`
    `first` `(` $first `)` (`outs` `(` $outs^ `:` type($outs) `)`)?
    attr-dict (`->` type($results)^)?
  }];
}

#endif // MOIRA_DIALECT_MOE_IR_ROUTINGOPS_TD
