// Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef MOIRA_DIALECT_MOE_IR_COLLECTIVEOPS_TD
#define MOIRA_DIALECT_MOE_IR_COLLECTIVEOPS_TD

include "moira/Dialect/MoE/IR/MoEOpBase.td"

def MoE_Matrix : MoE_ShapedOf<[I32], [2]>;

def MoE_RankOp : MoE_Op<"rank", [Pure]> {
  let summary = "the number of this rank";
  let description = [{
    0 <= rank < W. The only value that differs between ranks that have equal data.

    ```mlir
    %p = moe.rank
    ```
  }];
  let results = (outs Index:$result);
  let assemblyFormat = "attr-dict";
}

def MoE_ChunksOp : MoE_Op<"chunks", [Pure]> {
  let summary = "how many parts the plan cuts exchanges in";
  let description = [{
    At least 1: the plan's degree (`equal`), or the number of groups of ranks
    (`groups`). The same on all ranks.

    ```mlir
    %d = moe.chunks equal {layer = 0 : i64}
    ```
  }];
  let arguments = (ins MoE_ScheduleAttr:$schedule, OptionalAttr<I64Attr>:$layer);
  let results = (outs Index:$result);
  let assemblyFormat = "`` $schedule attr-dict";
}

def MoE_AllGatherOp : MoE_ComputeOp<"all_gather", [
    DeclareOpInterfaceMethods<ReifyRankedShapedTypeOpInterface,
                              ["reifyResultShapes"]>]> {
  let hasCanonicalizer = 1;
  let summary = "one row from every rank";
  let description = [{
    `result[p] = operand of rank p`. For small things that ranks decide by, such
    as capacities; weights and rows have ops of their own.

    **Constraints**
    * all_gather_c1: the operand is `[N]`, static, the result `[W, N]` of the same
      element type.

    ```mlir
    %all = moe.all_gather %mine : tensor<8xi32> -> tensor<4x8xi32>
    ```
  }];
  let arguments = (ins MoE_ShapedOf<[I32, I64, F32], [1]>:$mine,
                       Variadic<AnyNon0RankedMemRef>:$outs);
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let assemblyFormat = [{
    $mine (`outs` `(` $outs^ `:` type($outs) `)`)? attr-dict
    `:` type($mine) (`->` type($results)^)?
  }];
}

def MoE_GatherCountsOp : MoE_ComputeOp<"gather_counts", [
    DeclareOpInterfaceMethods<ReifyRankedShapedTypeOpInterface,
                              ["reifyResultShapes"]>]> {
  let hasCanonicalizer = 1;
  let summary = "the rows that every rank has for every expert";
  let description = [{
    `matrix[p, e] = sizes[e] of rank p`. Travels with the record by which ranks
    agree on program, plan and shapes (docs/ranks.md), so there is one per layer,
    whether rows are exchanged or not.

    **Constraints**
    * gather_counts_c1: `sizes` is `[E]`, static, the result `[W, E]`.

    ```mlir
    %matrix = moe.gather_counts %sizes : tensor<8xi32> -> tensor<4x8xi32>
    ```
  }];
  let arguments = (ins MoE_Counts:$sizes, Variadic<AnyNon0RankedMemRef>:$outs,
                       OptionalAttr<I64Attr>:$layer);
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let assemblyFormat = [{
    $sizes (`outs` `(` $outs^ `:` type($outs) `)`)? attr-dict
    `:` type($sizes) (`->` type($results)^)?
  }];
}

def MoE_SlotShardsOp : MoE_ComputeOp<"slot_shards", [
    DeclareOpInterfaceMethods<ReifyRankedShapedTypeOpInterface,
                              ["reifyResultShapes"]>]> {
  let summary = "which shard of its expert stands in each slot of this rank";
  let description = [{
    `shards[l]` is h, 0 <= h < s, where slot l of this rank holds the unit
    e s + h by the plan's slot table, and -1 where it holds none. What an expert
    adds once and not in every group of shards is masked by it: slot l belongs to
    the first group where 0 <= h < s / r.

    **Constraints**
    * slot_shards_c1: the result is `[slots]` as the placement says.

    ```mlir
    // Rank 3 of 4 has the second shard of expert 1: [1].
    %h = moe.slot_shards
        at <ranks = 4, experts = 2, shards = 2, copies = 2, slots = 1>
        -> tensor<1xi32>
    ```
  }];
  let arguments = (ins Variadic<AnyNon0RankedMemRef>:$outs,
                       MoE_PlacementAttr:$placement,
                       OptionalAttr<I64Attr>:$layer);
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let assemblyFormat = [{
    `at` $placement (`outs` `(` $outs^ `:` type($outs) `)`)? attr-dict
    (`->` type($results)^)?
  }];
}

def MoE_ReceiveSizesOp : MoE_ComputeOp<"receive_sizes", [
    AttrSizedOperandSegments,
    DeclareOpInterfaceMethods<ReifyRankedShapedTypeOpInterface,
                              ["reifyResultShapes"]>]> {
  let hasCanonicalizer = 1;
  let summary = "the rows that an exchange brings to each slot of this rank";
  let description = [{
    From the count matrix `[W, E]` and the plan's slot table: `groups [slots]`, and
    `bound`, their sum, for chunk i of d (without `chunk`: all rows). The buffer
    form writes `groups` into `outs` and still returns `bound`, by which the memory
    for the rows is made.

    **Constraints**
    * receive_sizes_c1: the matrix is `[W, E]` and `groups` is `[slots]`, as the
      placement says.
    * receive_sizes_c2: `chunk` and `chunks` come together.
    * receive_sizes_c3: the placement has copies.

    ```mlir
    %groups, %bound = moe.receive_sizes %matrix
        at <ranks = 4, experts = 8, slots = 2> equal
        : tensor<4x8xi32> -> tensor<2xi32>, index
    %n = moe.receive_sizes %m at <ranks = 4, experts = 8, slots = 2> equal
        outs(%g : memref<2xi32>) : memref<4x8xi32> -> index
    ```
  }];
  let arguments = (ins
    MoE_Matrix:$matrix,
    Optional<Index>:$chunk, Optional<Index>:$chunks,
    Variadic<AnyNon0RankedMemRef>:$outs,
    MoE_PlacementAttr:$placement,
    MoE_ScheduleAttr:$schedule,
    OptionalAttr<I64Attr>:$layer);
  let results = (outs Variadic<AnyTypeOf<[AnyRankedTensor, Index]>>:$results);
  let assemblyFormat = [{
    $matrix `at` $placement `` $schedule
    oilist( `chunk` `(` $chunk `of` $chunks `)`
          | `outs` `(` $outs `:` type($outs) `)` )
    attr-dict `:` type($matrix) (`->` type($results)^)?
  }];
}

def MoE_ExchangeOp : MoE_ComputeOp<"exchange", [
    AttrSizedOperandSegments,
    DeclareOpInterfaceMethods<ReifyRankedShapedTypeOpInterface,
                              ["reifyResultShapes"]>]> {
  let hasCanonicalizer = 1;
  let summary = "bring rows to the ranks of their experts, or back";
  let description = [{
    The ragged all-to-all. `to_experts`: from rows by expert, as `moe.dispatch`
    makes them, to rows by slot of this rank, `[bound, D]` with `bound` and groups
    from `moe.receive_sizes`. `to_tokens`: the inverse; the result is `[bound, N]`,
    and `[copies, bound, N]` where the placement has more than one copy. docs/ranks.md
    has the order of rows. With `chunk` only the chunk's rows move: `to_tokens`
    writes them into `init`, which the result otherwise equals.

    Which algorithm runs (linear, hierarchical) is the plan's choice and changes
    no result. Sources: Flex/Tutel 3.1 and 3.4, FasterMoE 4.2.

    **Constraints**
    * exchange_c1: `rows` is `[R, D]`; the result is `[bound, D]`, or
      `[copies, bound, D]` for `to_tokens` and copies > 1, of rows' element type.
    * exchange_c2: the matrix is `[W, E]` as the placement says, and the placement
      has copies.
    * exchange_c3: `chunk` and `chunks` come together; `init` goes with `to_tokens`
      and has the result's type.

    ```mlir
    %away = moe.exchange to_experts %rows, %matrix, %bound
        at <ranks = 4, experts = 8, slots = 2> equal
        : tensor<?x64xbf16>, tensor<4x8xi32> -> tensor<?x64xbf16>
    ```
  }];
  let arguments = (ins
    MoE_FlatRows:$rows, MoE_Matrix:$matrix, Index:$bound,
    Optional<Index>:$chunk, Optional<Index>:$chunks,
    Optional<AnyRankedTensor>:$init,
    Variadic<AnyNon0RankedMemRef>:$outs,
    MoE_DirectionAttr:$direction,
    MoE_PlacementAttr:$placement,
    MoE_ScheduleAttr:$schedule,
    OptionalAttr<I64Attr>:$layer);
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let assemblyFormat = [{
    `` $direction $rows `,` $matrix `,` $bound `at` $placement `` $schedule
    oilist( `chunk` `(` $chunk `of` $chunks `)`
          | `init` `(` $init `:` type($init) `)`
          | `outs` `(` $outs `:` type($outs) `)` )
    attr-dict `:` type($rows) `,` type($matrix) (`->` type($results)^)?
  }];
}

def MoE_MergeRowsOp : MoE_ComputeOp<"merge_rows", [
    AttrSizedOperandSegments,
    DeclareOpInterfaceMethods<ReifyRankedShapedTypeOpInterface,
                              ["reifyResultShapes"]>]> {
  let summary = "put a chunk's rows at the experts where all rows stand";
  let description = [{
    From rows of chunk i of d, as an exchange brings them, to their places among the
    rows that an exchange in one piece brings: the result is `init` with these rows
    written. So what a step keeps for the way back does not depend on how it was cut.
    Communicates nothing.

    **Constraints**
    * merge_rows_c1: `rows` is `[R, D]`, the result `[bound, D]` of its element type,
      which is that of `init`.
    * merge_rows_c2: the matrix is `[W, E]` as the placement says, and the placement
      has copies.

    ```mlir
    %all = moe.merge_rows %rows, %matrix chunk(%i of %d)
        at <ranks = 4, experts = 8, slots = 2> equal
        init(%before : tensor<?x64xf32>)
        : tensor<?x64xf32>, tensor<4x8xi32> -> tensor<?x64xf32>
    ```
  }];
  let arguments = (ins
    MoE_ShapedOf<[F16, BF16, F32, F64, I1, I8, I32, I64], [2]>:$rows,
    MoE_Matrix:$matrix, Index:$chunk, Index:$chunks,
    Optional<AnyRankedTensor>:$init,
    Variadic<AnyNon0RankedMemRef>:$outs,
    MoE_PlacementAttr:$placement,
    MoE_ScheduleAttr:$schedule,
    OptionalAttr<I64Attr>:$layer);
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let assemblyFormat = [{
    $rows `,` $matrix `chunk` `(` $chunk `of` $chunks `)`
    `at` $placement `` $schedule
    (`init` `(` $init^ `:` type($init) `)`)?
    (`outs` `(` $outs^ `:` type($outs) `)`)?
    attr-dict `:` type($rows) `,` type($matrix) (`->` type($results)^)?
  }];
}

def MoE_GatherWeightsOp : MoE_ComputeOp<"gather_weights", [
    DeclareOpInterfaceMethods<ReifyRankedShapedTypeOpInterface,
                              ["reifyResultShapes"]>]> {
  let hasCanonicalizer = 1;
  let summary = "put the shards of experts together";
  let description = [{
    From this rank's shards `[slots, ...]`, copies = 0: all experts, `[E, ...]`;
    else for each slot the shards of its group. `dim` (of the operand, 1 or more)
    grows by the number of shards put together, s or s / r; without it each holder
    has the whole expert, and only dim 0 changes. With `parts` the dim holds that
    many things one after the other, such as a gate and an up projection, and the
    shards of each are put together. Without `dim` and with copies the result is the
    operand: the op says whose gradients `moe.reduce_weights` adds. Packed weights are
    cut in blocks in memory order: after `moe-assign-layouts` every gather has dim 1 and one part, and is a
    concatenation.

    **Constraints**
    * gather_weights_c1: dim 0 is slots before, E after for copies = 0, slots else.
    * gather_weights_c2: other dims agree, but `dim`, which grows as said and is a
      multiple of `parts`.
    * gather_weights_c3: without `dim` there is one part.

    ```mlir
    %all = moe.gather_weights %w dim 1
        at <ranks = 4, experts = 2, shards = 2, copies = 1, slots = 1>
        : tensor<1x64x32xf32> -> tensor<1x128x32xf32>
    ```
  }];
  let arguments = (ins
    MoE_ShapedOf<[F16, BF16, F32, F64], [2, 3, 4, 5]>:$weights,
    Variadic<AnyNon0RankedMemRef>:$outs,
    OptionalAttr<I64Attr>:$dim,
    DefaultValuedAttr<I64Attr, "1">:$parts,
    MoE_PlacementAttr:$placement,
    OptionalAttr<I64Attr>:$layer);
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let assemblyFormat = [{
    $weights (`dim` $dim^)? `at` $placement
    (`outs` `(` $outs^ `:` type($outs) `)`)? attr-dict
    `:` type($weights) (`->` type($results)^)?
  }];
  let extraClassDeclaration = [{
    /// Whether the bytes of the shards follow one another in the result.
    bool isConcatenation() {
      return !getDim() || (*getDim() == 1 && getParts() == 1);
    }
  }];
}

//===----------------------------------------------------------------------===//
// Asynchronous forms, on memrefs
//===----------------------------------------------------------------------===//

def MoE_StartExchangeOp : MoE_Op<"start_exchange", [
    DeclareOpInterfaceMethods<MemoryEffectsOpInterface>]> {
  let summary = "queue an exchange";
  let description = [{
    The buffer form of `moe.exchange` without waiting: the transfer runs on the
    rank's communication queue, after those that were started before. Neither the
    memory it reads changes nor the memory it writes is used until `moe.wait` on
    the ticket.

    ```mlir
    %t = moe.start_exchange to_experts %home, %away, %matrix chunk(%i of %d)
        at <ranks = 4, experts = 8, slots = 2> equal
        : memref<?x64xf32>, memref<?x64xf32>, memref<4x8xi32>
    ```
  }];
  let arguments = (ins
    MemRefRankOf<[F16, BF16, F32, F64], [2, 3]>:$home,
    MemRefRankOf<[F16, BF16, F32, F64], [2]>:$away,
    MemRefRankOf<[I32], [2]>:$matrix, Index:$chunk, Index:$chunks,
    MoE_DirectionAttr:$direction,
    MoE_PlacementAttr:$placement,
    MoE_ScheduleAttr:$schedule,
    OptionalAttr<I64Attr>:$layer);
  let results = (outs Index:$ticket);
  let hasVerifier = 1;
  let assemblyFormat = [{
    `` $direction $home `,` $away `,` $matrix `chunk` `(` $chunk `of` $chunks `)`
    `at` $placement `` $schedule attr-dict
    `:` type($home) `,` type($away) `,` type($matrix)
  }];
}

def MoE_StartGatherOp : MoE_Op<"start_gather", [
    DeclareOpInterfaceMethods<MemoryEffectsOpInterface>]> {
  let summary = "queue a gather of weights";
  let description = [{
    The buffer form of `moe.gather_weights` without waiting; see
    `moe.start_exchange`.

    ```mlir
    %t = moe.start_gather %shards, %whole
        at <ranks = 4, experts = 2, shards = 2, copies = 1, slots = 1>
        : memref<1x64x32xf32>, memref<1x128x32xf32>
    ```
  }];
  let arguments = (ins
    AnyNon0RankedMemRef:$local, AnyNon0RankedMemRef:$whole,
    UnitAttr:$replicated,
    MoE_PlacementAttr:$placement,
    OptionalAttr<I64Attr>:$layer);
  let results = (outs Index:$ticket);
  let assemblyFormat = [{
    $local `,` $whole (`replicated` $replicated^)? `at` $placement attr-dict
    `:` type($local) `,` type($whole)
  }];
}

def MoE_WaitOp : MoE_Op<"wait", [
    DeclareOpInterfaceMethods<MemoryEffectsOpInterface>]> {
  let summary = "wait for a transfer";
  let description = [{
    Returns when the transfer of this ticket, and with it all that were started
    before, have ended. Waiting again is legal.

    ```mlir
    moe.wait %t
    ```
  }];
  let arguments = (ins Index:$ticket);
  let assemblyFormat = "$ticket attr-dict";
}

#endif // MOIRA_DIALECT_MOE_IR_COLLECTIVEOPS_TD
