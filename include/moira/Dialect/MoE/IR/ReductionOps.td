// Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef MOIRA_DIALECT_MOE_IR_REDUCTIONOPS_TD
#define MOIRA_DIALECT_MOE_IR_REDUCTIONOPS_TD

include "moira/Dialect/MoE/IR/MoEOpBase.td"

def MoE_Reducible : AnyTypeOf<[
    RankedTensorOf<[F16, BF16, F32, F64, I32, I64]>,
    MemRefOf<[F16, BF16, F32, F64, I32, I64]>]>;

def MoE_AllReduceOp : MoE_ComputeOp<"all_reduce", [
    DeclareOpInterfaceMethods<ReifyRankedShapedTypeOpInterface,
                              ["reifyResultShapes"]>]> {
  let summary = "the sum over all ranks, on all of them";
  let description = [{
    `result = sum over p of the operand of rank p`, element by element, in ascending
    order of ranks, so all ranks get the same bits. 16-bit types are added in f32 and
    rounded once. Dynamic dims are the same on all ranks. With one rank the operand
    itself.

    In a program that is differentiated this is where values of one rank become a
    value that all share; its transpose is `moe.replicate` (docs/gradients.md).

    **Constraints**
    * all_reduce_c1: the result has the operand's type.

    ```mlir
    // Rank 0 has 2.0, rank 1 has 3.0: both get 5.0.
    %sum = moe.all_reduce %loss : tensor<f32> -> tensor<f32>
    ```
  }];
  let arguments = (ins MoE_Reducible:$mine, Variadic<AnyRankedOrUnrankedMemRef>:$outs,
                       OptionalAttr<I64Attr>:$layer);
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let assemblyFormat = [{
    $mine (`outs` `(` $outs^ `:` type($outs) `)`)? attr-dict
    `:` type($mine) (`->` type($results)^)?
  }];
}

def MoE_ReplicateOp : MoE_Op<"replicate", [
    Pure, SameOperandsAndResultType]> {
  let summary = "a value of all ranks enters one rank's computation";
  let description = [{
    The operand itself. It is the same on all ranks, and the uses of the result compute
    with one rank's tokens, so that the gradient of the operand is the sum of the ranks'
    gradients of the result: the transpose is `moe.all_reduce` (docs/gradients.md).
    `moe-fold-replicates` takes it away once nothing differentiates any more.

    ```mlir
    %w = moe.replicate %router : tensor<8x64xf32>
    ```
  }];
  let arguments = (ins RankedTensorOf<[F16, BF16, F32, F64]>:$value);
  let results = (outs RankedTensorOf<[F16, BF16, F32, F64]>:$result);
  let assemblyFormat = "$value attr-dict `:` type($value)";
}

def MoE_ReduceWeightsOp : MoE_ComputeOp<"reduce_weights", [
    DeclareOpInterfaceMethods<ReifyRankedShapedTypeOpInterface,
                              ["reifyResultShapes"]>]> {
  let hasCanonicalizer = 1;
  let summary = "add up gradients of experts where their shards stand";
  let description = [{
    The transpose of `moe.gather_weights`, with the same attributes: from what each rank
    has for the weights that it gathered, `[E, ...]` (copies = 0) or `[slots, ...]`, to
    the shards that it holds, `[slots, ...]`. Each slot gets the sum over everyone that
    gathered its shard, be it the slot's own rank or others:

    | copies | `dim` | who adds, in this order |
    | --- | --- | --- |
    | 0 | any | every rank, ascending |
    | r | given | the holders of the shards of its group, by shard, then by rank |
    | r | none | the holders of all shards of its expert, by shard, then by rank |

    So all holders of one shard get the same bits, and without replicas the slot table
    changes none. A holder to which no tokens came adds its zeros. Slots without a shard
    get zeros. 16-bit types are added in f32 and rounded once.

    **Constraints**
    * reduce_weights_c1: dim 0 is slots after, E before for copies = 0, slots else.
    * reduce_weights_c2: other dims agree, but `dim`, of which a shard has the part that
      gather_weights_c2 says.
    * reduce_weights_c3: without `dim` there is one part.

    ```mlir
    %dw = moe.reduce_weights %whole dim 1
        at <ranks = 4, experts = 2, shards = 2, copies = 1, slots = 1>
        : tensor<1x128x32xf32> -> tensor<1x64x32xf32>
    ```
  }];
  let arguments = (ins
    MoE_ShapedOf<[F16, BF16, F32, F64], [2, 3, 4, 5]>:$whole,
    Variadic<AnyNon0RankedMemRef>:$outs,
    OptionalAttr<I64Attr>:$dim,
    DefaultValuedAttr<I64Attr, "1">:$parts,
    MoE_PlacementAttr:$placement,
    OptionalAttr<I64Attr>:$layer);
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let assemblyFormat = [{
    $whole (`dim` $dim^)? `at` $placement
    (`outs` `(` $outs^ `:` type($outs) `)`)? attr-dict
    `:` type($whole) (`->` type($results)^)?
  }];
  let extraClassDeclaration = [{
    /// Whether the bytes of the shards follow one another in the operand.
    bool isConcatenation() {
      return !getDim() || (*getDim() == 1 && getParts() == 1);
    }
  }];
}

//===----------------------------------------------------------------------===//
// Asynchronous forms, on memrefs
//===----------------------------------------------------------------------===//

def MoE_StartAllReduceOp : MoE_Op<"start_all_reduce", [
    DeclareOpInterfaceMethods<MemoryEffectsOpInterface>]> {
  let summary = "queue a sum over ranks";
  let description = [{
    The buffer form of `moe.all_reduce` without waiting; see `moe.start_exchange`.

    ```mlir
    %t = moe.start_all_reduce %mine, %sum : memref<8x64xf32>
    ```
  }];
  let arguments = (ins
    MemRefOf<[F16, BF16, F32, F64, I32, I64]>:$mine, AnyMemRef:$sum,
    OptionalAttr<I64Attr>:$layer);
  let results = (outs Index:$ticket);
  let assemblyFormat = [{
    $mine `,` $sum attr-dict `:` type($mine) `,` type($sum)
  }];
}

def MoE_StartReduceOp : MoE_Op<"start_reduce", [
    DeclareOpInterfaceMethods<MemoryEffectsOpInterface>]> {
  let summary = "queue a sum of gradients of experts";
  let description = [{
    The buffer form of `moe.reduce_weights` without waiting; see `moe.start_exchange`.

    ```mlir
    %t = moe.start_reduce %whole, %shards
        at <ranks = 4, experts = 2, shards = 2, copies = 1, slots = 1>
        : memref<1x128x32xf32>, memref<1x64x32xf32>
    ```
  }];
  let arguments = (ins
    AnyNon0RankedMemRef:$whole, AnyNon0RankedMemRef:$local,
    UnitAttr:$replicated,
    MoE_PlacementAttr:$placement,
    OptionalAttr<I64Attr>:$layer);
  let results = (outs Index:$ticket);
  let assemblyFormat = [{
    $whole `,` $local (`replicated` $replicated^)? `at` $placement attr-dict
    `:` type($whole) `,` type($local)
  }];
}

#endif // MOIRA_DIALECT_MOE_IR_REDUCTIONOPS_TD
