// Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef MOIRA_DIALECT_MOE_IR_LOSSOPS_TD
#define MOIRA_DIALECT_MOE_IR_LOSSOPS_TD

include "moira/Dialect/MoE/IR/MoEOpBase.td"

def MoE_LossOp : MoE_Op<"loss", [Pure, AttrSizedOperandSegments]> {
  let hasVerifier = 1;
  let summary = "an auxiliary loss of a router";
  let description = [{
    A number that a training program adds to its loss, so that a router spreads
    its tokens. Of T tokens that are not masked and E experts, with p[t, e] the
    scores of the logits (`softmax`, or `sigmoid` divided by the token's sum),
    n[e] the pairs that chose e, N their sum over e, and f[e] the tokens whose
    first choice is e:

    | kind | loss | source |
    | --- | --- | --- |
    | `gshard` | E / T^2 * sum over e of f[e] * (sum over t of p[t, e]) | GShard; Tutel |
    | `switch` | E / (N T) * sum over e of n[e] * (sum over t of p[t, e]) | Switch Transformer; Megatron |
    | `sequence` | as `switch`, for each sequence alone | DeepSeek-V3 |
    | `z` | 1 / T * sum over t of log(sum over e of exp l[t, e])^2 | ST-MoE |
    | `load_importance` | (CV2 of sum over t of p[t, e] + CV2 of sum over t of load[t, e]) / 2 | Shazeer et al.; Tutel |

    CV2(x) is the unbiased variance of x over e by (mean^2 + 1e-10), and 0 for
    E = 1. load[t, e] is the chance that noise of deviation `noise` / E lifts
    expert e over the threshold, Phi((p[t, e] - threshold[t]) * E / `noise`), where
    the threshold is the (`noisy`) logit of the token's last choice. So does Tutel,
    although it compares scores with logits; with `compare_logits` the logit takes
    the place of p (V-MoE).

    Losses use choices before drops. Tokens whose `mask` is false do not count;
    tokens without a choice count in T, and not in loads. No tokens give 0. Logits
    are read as `moe.gate` reads them. Sums go in ascending tokens and experts.
    Ids are data: gradients reach logits and `noisy` only.

    `scope` says what is put together:

    * `rank`: a rank's tokens (docs/losses.md: `moe-token-blocks` writes the same
      blocks into a program of one rank).
    * `block`: the tokens of each block, either `length` rows each or as many as
      `blocks [B]` says; rows behind the last block are in none.
    * `global`: all tokens of all ranks.

    The losses of ranks or blocks are averaged over those that have tokens.
    `over_ranks` marks a loss of one rank's tokens; `moe-shard` sets it.

    **Constraints**
    * loss_c1: logits `[T, E]` with static E; the result is `f32`, or `f64` for f64
      logits.
    * loss_c2: `ids` is `[T, K]` with static K >= 1; all kinds but `z` have it, and
      `z` does not.
    * loss_c3: `mask` is `[T]`, `noisy` has the logits' type.
    * loss_c4: scope `block` has either `blocks` or `length`, which is at least 1
      and divides a static T; the others have no `length`.
    * loss_c5: `sequence` has scope `block`.
    * loss_c6: `load_importance`, and only it, has `noise`, finite and above 0;
      only it has `noisy` and `compare_logits`.
    * loss_c7: `score` is `softmax`, or `sigmoid` for `gshard`, `switch` and
      `sequence`.

    Example: logits `[[0, 0], [0, 0]]`, ids `[[0], [0]]` -> 2 / 4 * (2 * 1 + 0) = 1.

    ```mlir
    %l = moe.loss switch %logits ids(%ids : tensor<?x2xi32>) scope block
        {length = 64 : i64} : tensor<?x8xf32> -> tensor<f32>
    ```
  }];
  let arguments = (ins
    MoE_LossKindAttr:$kind,
    TensorRankOf<[F16, BF16, F32, F64], [2]>:$logits,
    Optional<TensorRankOf<[I32], [2]>>:$ids,
    Optional<TensorRankOf<[I1], [1]>>:$mask,
    Optional<TensorRankOf<[I32], [1]>>:$blocks,
    Optional<TensorRankOf<[F16, BF16, F32, F64], [2]>>:$noisy,
    DefaultValuedAttr<MoE_LossScopeAttr, "::mlir::moe::LossScope::Rank">:$scope,
    DefaultValuedAttr<MoE_ScoreAttr, "::mlir::moe::Score::Softmax">:$score,
    OptionalAttr<I64Attr>:$length,
    OptionalAttr<F64Attr>:$noise,
    UnitAttr:$compare_logits,
    UnitAttr:$over_ranks);
  let results = (outs TensorRankOf<[F32, F64], [0]>:$result);
  let assemblyFormat = [{
    `` $kind $logits
    oilist( `ids` `(` $ids `:` type($ids) `)`
          | `mask` `(` $mask `:` type($mask) `)`
          | `blocks` `(` $blocks `:` type($blocks) `)`
          | `noisy` `(` $noisy `:` type($noisy) `)` )
    (`score` `` $score^)? (`scope` `` $scope^)? (`over_ranks` $over_ranks^)?
    attr-dict `:` type($logits) `->` type($result)
  }];
  let extraClassDeclaration = [{
    int64_t getNumExperts() { return getLogits().getType().getDimSize(1); }
  }];
}

#endif // MOIRA_DIALECT_MOE_IR_LOSSOPS_TD
