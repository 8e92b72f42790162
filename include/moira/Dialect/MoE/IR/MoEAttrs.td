// Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef MOIRA_DIALECT_MOE_IR_MOEATTRS_TD
#define MOIRA_DIALECT_MOE_IR_MOEATTRS_TD

include "moira/Dialect/MoE/IR/MoEBase.td"

//===----------------------------------------------------------------------===//
// Enums
//===----------------------------------------------------------------------===//

class MoE_Enum<string name, string summary, list<I32EnumAttrCase> cases>
    : I32EnumAttr<name, summary, cases> {
  let cppNamespace = "::mlir::moe";
  let genSpecializedAttr = 0;
}

def MoE_Score : MoE_Enum<"Score", "how logits become scores", [
  I32EnumAttrCase<"Softmax", 0, "softmax">,
  I32EnumAttrCase<"Sigmoid", 1, "sigmoid">,
  I32EnumAttrCase<"SqrtSoftplus", 2, "sqrtsoftplus">,
  I32EnumAttrCase<"Identity", 3, "identity">]>;

def MoE_GroupScore : MoE_Enum<"GroupScore", "score of a group of experts", [
  I32EnumAttrCase<"Max", 0, "max">,
  I32EnumAttrCase<"SumTop2", 1, "sum_top2">]>;

def MoE_Normalize : MoE_Enum<"Normalize", "what a token's weights are divided by", [
  I32EnumAttrCase<"None", 0, "none">,
  I32EnumAttrCase<"SumPlusEps", 1, "sum_plus_eps">,
  I32EnumAttrCase<"MaxSumEps", 2, "max_sum_eps">]>;

def MoE_Order : MoE_Enum<"Order", "order in which pairs get their slots", [
  I32EnumAttrCase<"ChoiceMajor", 0, "choice_major">,
  I32EnumAttrCase<"TokenMajor", 1, "token_major">,
  I32EnumAttrCase<"BatchPrioritized", 2, "batch_prioritized">,
  I32EnumAttrCase<"ExpertProbability", 3, "expert_probability">]>;

def MoE_CapacityRule : MoE_Enum<"CapacityRule", "published capacity formula", [
  I32EnumAttrCase<"Tutel", 0, "tutel">,
  I32EnumAttrCase<"GShard", 1, "gshard">,
  I32EnumAttrCase<"Switch", 2, "switch">,
  I32EnumAttrCase<"Fixed", 3, "fixed">]>;

def MoE_Distribution : MoE_Enum<"Distribution", "distribution of noise", [
  I32EnumAttrCase<"Normal", 0, "normal">,
  I32EnumAttrCase<"Uniform", 1, "uniform">]>;

def MoE_WeightLayout : MoE_Enum<"WeightLayout", "memory order of weights", [
  I32EnumAttrCase<"NK", 0, "nk">,
  I32EnumAttrCase<"KN", 1, "kn">,
  I32EnumAttrCase<"Panels", 2, "panels">,
  I32EnumAttrCase<"TransposedPanels", 3, "transposed_panels">]>;

def MoE_RowClass : MoE_Enum<"RowClass", "how many rows a variant is made for", [
  I32EnumAttrCase<"Decode", 0, "decode">,
  I32EnumAttrCase<"Prefill", 1, "prefill">]>;

def MoE_HiddenDim : MoE_Enum<"HiddenDim", "dimension of a product", [
  I32EnumAttrCase<"N", 0, "n">,
  I32EnumAttrCase<"K", 1, "k">]>;

def MoE_Schedule : MoE_Enum<"Schedule", "how an exchange is cut in parts", [
  I32EnumAttrCase<"Equal", 0, "equal">,
  I32EnumAttrCase<"Groups", 1, "groups">]>;

def MoE_Direction : MoE_Enum<"Direction", "where an exchange brings rows", [
  I32EnumAttrCase<"ToExperts", 0, "to_experts">,
  I32EnumAttrCase<"ToTokens", 1, "to_tokens">]>;

def MoE_LossKind : MoE_Enum<"LossKind", "auxiliary loss of a router", [
  I32EnumAttrCase<"GShard", 0, "gshard">,
  I32EnumAttrCase<"Switch", 1, "switch">,
  I32EnumAttrCase<"LoadImportance", 2, "load_importance">,
  I32EnumAttrCase<"Z", 3, "z">,
  I32EnumAttrCase<"Sequence", 4, "sequence">]>;

def MoE_LossScope : MoE_Enum<"LossScope", "tokens that a loss puts together", [
  I32EnumAttrCase<"Rank", 0, "rank">,
  I32EnumAttrCase<"Block", 1, "block">,
  I32EnumAttrCase<"Global", 2, "global">]>;

// The fusions that can be switched off, by the names that options take.
def MoE_Fusions : I32BitEnumAttr<"Fusions", "work that kernels take over", [
  I32BitEnumCaseBit<"Gather", 0, "gather">,
  I32BitEnumCaseBit<"GateUp", 1, "gate-up">,
  I32BitEnumCaseBit<"Activation", 2, "activation">,
  I32BitEnumCaseBit<"Bias", 3, "bias">,
  I32BitEnumCaseBit<"PairWeights", 4, "pair-weights">]> {
  let cppNamespace = "::mlir::moe";
  let genSpecializedAttr = 0;
  let separator = ",";
}

class MoE_EnumAttr<EnumAttrInfo e, string mnemonic>
    : EnumAttr<MoE_Dialect, e, mnemonic>;

def MoE_OrderAttr : MoE_EnumAttr<MoE_Order, "order">;
def MoE_CapacityRuleAttr : MoE_EnumAttr<MoE_CapacityRule, "capacity_rule">;
def MoE_DistributionAttr : MoE_EnumAttr<MoE_Distribution, "distribution">;
def MoE_WeightLayoutAttr : MoE_EnumAttr<MoE_WeightLayout, "weight_layout">;
def MoE_RowClassAttr : MoE_EnumAttr<MoE_RowClass, "row_class">;
def MoE_ScheduleAttr : MoE_EnumAttr<MoE_Schedule, "schedule">;
def MoE_DirectionAttr : MoE_EnumAttr<MoE_Direction, "direction">;
def MoE_LossKindAttr : MoE_EnumAttr<MoE_LossKind, "loss_kind">;
def MoE_LossScopeAttr : MoE_EnumAttr<MoE_LossScope, "loss_scope">;
def MoE_ScoreAttr : MoE_EnumAttr<MoE_Score, "score">;

//===----------------------------------------------------------------------===//
// Attributes
//===----------------------------------------------------------------------===//

class MoE_Attr<string name, string attrMnemonic>
    : AttrDef<MoE_Dialect, name> {
  let mnemonic = attrMnemonic;
}

def MoE_RouterAttr : MoE_Attr<"Router", "router"> {
  let summary = "the rule by which a gate scores, selects and weights";
  let description = [{
    Only what differs from the default is written:

    | key | default | meaning |
    | --- | --- | --- |
    | `score` | `softmax` | `softmax`, `sigmoid`, `sqrtsoftplus` or `identity` |
    | `after_top_k` | off | select by logits, then score the k selected |
    | `groups`, `keep` | 1, 1 | experts form `groups` equal groups, the best `keep` stay |
    | `group_score` | `max` | `max` or `sum_top2` of a group's (biased) scores |
    | `normalize` | `none` | `none`, `sum_plus_eps`: w / (sum + eps), `max_sum_eps`: w / max(sum, eps) |
    | `eps` | 0 | the eps of `normalize` |
    | `scale` | 1 | factor on the weights, after normalisation |
    | `expert_choice` | off | each expert picks its best tokens (K = E) |

    Example (DeepSeek-V3): `#moe.router<score = sigmoid, groups = 8, keep = 4,
    group_score = sum_top2, normalize = sum_plus_eps, eps = 1.0e-20, scale =
    2.5>`.

    **Constraints**
    * router_c1: `1 <= keep <= groups`.
    * router_c2: `eps` and `scale` are finite, `eps >= 0`.
    * router_c3: `after_top_k` goes with `softmax` or `sigmoid`.
    * router_c4: `expert_choice` goes without groups and `after_top_k`.
  }];
  let parameters = (ins
    DefaultValuedParameter<"Score", "Score::Softmax">:$score,
    DefaultValuedParameter<"bool", "false">:$afterTopK,
    DefaultValuedParameter<"int64_t", "1">:$groups,
    DefaultValuedParameter<"int64_t", "1">:$keep,
    DefaultValuedParameter<"GroupScore", "GroupScore::Max">:$groupScore,
    DefaultValuedParameter<"Normalize", "Normalize::None">:$normalize,
    APFloatParameter<"">:$eps,
    APFloatParameter<"">:$scale,
    DefaultValuedParameter<"bool", "false">:$expertChoice);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
}

def MoE_HiddenAttr : MoE_Attr<"Hidden", "hidden"> {
  let summary = "the blocks of an expert's hidden dimension";
  let description = [{
    `#moe.hidden<4 of n>`: the dimension `n` (or `k`) of a product is an expert's
    hidden one and is cut in 4 equal blocks. Where it is `n`, packed weights hold
    block after block, each with panels of its own, so that a shard of an expert
    is a range of memory and shards put together are the expert. Where it is `k`,
    so do the weights, and each block is one chain of the sum: the first starts
    from the bias, the others from 0, and the blocks' results are added in pairs:
    neighbours while their number is even, what is left in order. Of 6 blocks:
    `((b0 + b1) + (b2 + b3)) + (b4 + b5)`.

    **Constraints**
    * hidden_c1: at least one block; the dimension is a multiple of the blocks.
  }];
  let parameters = (ins "int64_t":$blocks,
                        EnumParameter<MoE_HiddenDim>:$dim);
  let assemblyFormat = "`<` $blocks `of` $dim `>`";
  let genVerifyDecl = 1;
}

def MoE_PlacementAttr : MoE_Attr<"Placement", "placement"> {
  let summary = "how the experts of a layer are spread over the ranks";
  let description = [{
    `#moe.placement<ranks = W, experts = E, shards = s, copies = r, slots = n>`:
    each expert is cut in s shards, rows travel r times (0: rows stay and weights
    are gathered), each rank has n slots for shards. What stands where is the
    plan's slot table. `shards` and `copies` default to 1. docs/ranks.md.

    Example: `#moe.placement<ranks = 8, experts = 2, shards = 4, copies = 2,
    slots = 1>`.

    **Constraints**
    * placement_c1: ranks, experts, shards and slots are at least 1.
    * placement_c2: `copies` is 0 or divides `shards`.
    * placement_c3: the slots of all ranks hold experts * shards units.
  }];
  let parameters = (ins
    "int64_t":$ranks, "int64_t":$experts,
    DefaultValuedParameter<"int64_t", "1">:$shards,
    DefaultValuedParameter<"int64_t", "1">:$copies,
    "int64_t":$slots);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    /// Shards that compute together on one copy of the rows; all for r = 0.
    int64_t getPartsPerGroup() const {
      return getCopies() == 0 ? getShards() : getShards() / getCopies();
    }
  }];
}

def MoE_ShardAttr : MoE_Attr<"Shard", "shard"> {
  let summary = "what a rank holds of a parameter of experts";
  let description = [{
    `#moe.shard<experts = E, shards = s, dim = d>` on an argument of a sharded
    program, as `moe.shard`, beside its `moe.param`: the program's own parameter
    is `[E, ...]`, the argument `[slots, ...]`. Dim d, counted without the experts',
    is cut in s equal shards; without `dim` each slot has the whole expert. With
    `parts = 2` the dim holds two things of the same length, one after the other
    (or element by element, `interleaved`), which are cut alike: a gate and an up
    projection in one tensor.

    **Constraints**
    * shard_c1: experts, shards and parts are at least 1; `dim` is at least 0.
    * shard_c2 (argument): it stands beside a `moe.param`.
  }];
  let parameters = (ins
    "int64_t":$experts,
    DefaultValuedParameter<"int64_t", "1">:$shards,
    OptionalParameter<"std::optional<int64_t>">:$dim,
    DefaultValuedParameter<"int64_t", "1">:$parts,
    DefaultValuedParameter<"bool", "false">:$interleaved);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    /// How the shard is cut from one slice of the checkpoint: `dim` of the file,
    /// where `param` may have put more parts beside this one. Null where parts of
    /// parts take turns in one of the two only.
    ::mlir::moe::ShardAttr getInFile(::mlir::moe::ParamAttr param,
                                     int64_t sliceRank) const;
  }];
}

def MoE_ParamAttr : MoE_Attr<"Param", "param"> {
  let summary = "marks a function argument as a parameter (a weight)";
  let description = [{
    `#moe.param<"name" [, transpose] [, part = i of n [, interleaved]]>` on an
    argument, as `moe.param`. `name` is the tensor's name in a checkpoint; `{}`
    in it stands for the expert's number, when the checkpoint holds one tensor
    per expert: they are stacked over dim 0. `transpose`: the checkpoint has the
    last two dims swapped. `part = i of n`: this is argument i of n that the
    checkpoint holds together along the argument's second last dim, one after
    the other, or row by row when `interleaved`.

    Example: `%gate: tensor<64x1024x2048xbf16> {moe.param =
    #moe.param<"layers.0.experts.{}.gate_proj.weight">}`.

    **Constraints**
    * param_c1: the name is not empty and has at most one `{}`.
    * param_c2: `0 <= i < n`.
    * param_c3 (argument): static shape of rank 1 to 3; `{}` needs rank >= 2;
      `transpose` and `part` need two dims besides the stacked one.
  }];
  let parameters = (ins
    StringRefParameter<"tensor name in a checkpoint">:$name,
    DefaultValuedParameter<"bool", "false">:$transpose,
    DefaultValuedParameter<"int64_t", "0">:$part,
    DefaultValuedParameter<"int64_t", "1">:$parts,
    DefaultValuedParameter<"bool", "false">:$interleaved);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
}

#endif // MOIRA_DIALECT_MOE_IR_MOEATTRS_TD
