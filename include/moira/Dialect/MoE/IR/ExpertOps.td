// Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef MOIRA_DIALECT_MOE_IR_EXPERTOPS_TD
#define MOIRA_DIALECT_MOE_IR_EXPERTOPS_TD

include "moira/Dialect/MoE/IR/MoEOpBase.td"
include "mlir/Interfaces/ControlFlowInterfaces.td"
include "mlir/IR/RegionKindInterface.td"

def MoE_ExpertOp : MoE_Op<"expert", [
    AttrSizedOperandSegments, IsolatedFromAbove,
    SingleBlockImplicitTerminator<"YieldOp">, Pure,
    DeclareOpInterfaceMethods<ReifyRankedShapedTypeOpInterface,
                              ["reifyResultShapes"]>]> {
  let hasCanonicalizer = 1;
  let summary = "apply a body to the rows of every expert";
  let description = [{
    For each expert e runs the body on its rows: row operands are sliced by
    group (ragged `[R, D]` or padded `[E, P, D]`; inside: `tensor<?xD>`),
    per-expert operands `[E, ...]` by expert, shared operands come whole. The
    body yields one row per row, `tensor<?xN>`, or *sums* over its rows, tensors of
    a static shape `[S..]`, which give a result `[E, S..]`; those of an empty group
    are exactly 0. It must treat rows independently: that is what allows padding,
    pipelining and batch invariance. Bodies use linalg, tensor, arith and math;
    contractions accumulate in f32 (f64 for f64) and are followed by an explicit
    truncf.

    A sum begins with a linalg op whose reduction loop runs over the rows and
    whose body adds to the accumulator, from zeros or from another sum; what is
    done to it then is linear: conversions, sums and differences of sums,
    negation, multiplication or division by what depends on neither rows nor
    sums, transposes, slices and reshapes. It does not come back to the rows.

    **Constraints**
    * expert_c1: at least one row operand; all are ragged or all padded.
    * expert_c2: `sizes` is `[E]`; per-expert operands have E leading.
    * expert_c3: block arguments: `tensor<?xD>` per row operand, the slice per
      per-expert operand, the type itself per shared operand.
    * expert_c4: as many yields as results, `tensor<?xN>` for a result `[R, N]`
      or `[E, P, N]` with the row operands' R, or E and P, and static N;
      `tensor<S..>` of a static shape for a result `[E, S..]`.
    * expert_c5: the body treats rows independently, sums over them as said above
      and has no side effects.
    * expert_c6: contractions of f16 or bf16 have f32 outs.

    ```mlir
    %out = moe.expert rows(%rows : tensor<?x8xf32>)
        groups(%sizes : tensor<4xi32>) per_expert(%w : tensor<4x8x16xf32>)
        -> tensor<?x16xf32> {
    ^bb0(%r: tensor<?x8xf32>, %we: tensor<8x16xf32>):
      %c0 = arith.constant 0 : index
      %zero = arith.constant 0.0 : f32
      %n = tensor.dim %r, %c0 : tensor<?x8xf32>
      %e = tensor.empty(%n) : tensor<?x16xf32>
      %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x16xf32>)
          -> tensor<?x16xf32>
      %y = linalg.matmul ins(%r, %we : tensor<?x8xf32>, tensor<8x16xf32>)
          outs(%z : tensor<?x16xf32>) -> tensor<?x16xf32>
      moe.yield %y : tensor<?x16xf32>
    }
    ```
  }];
  let arguments = (ins
    Variadic<AnyRankedTensor>:$rows, TensorRankOf<[I32], [1]>:$sizes,
    Variadic<AnyRankedTensor>:$perExpert,
    Variadic<AnyType>:$shared,
    OptionalAttr<I64Attr>:$layer);
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = [{
    `rows` `(` $rows `:` type($rows) `)`
    `groups` `(` $sizes `:` type($sizes) `)`
    (`per_expert` `(` $perExpert^ `:` type($perExpert) `)`)?
    (`shared` `(` $shared^ `:` type($shared) `)`)?
    `->` type($results) attr-dict-with-keyword $body
  }];
  let extraClassDeclaration = [{
    /// True for padded rows `[E, P, D]`, false for ragged `[R, D]`.
    bool isPadded();
    int64_t getNumExperts();
    /// The block arguments that stand for the three operand lists.
    ::llvm::MutableArrayRef<::mlir::BlockArgument> getRowArgs();
    ::llvm::MutableArrayRef<::mlir::BlockArgument> getPerExpertArgs();
    ::llvm::MutableArrayRef<::mlir::BlockArgument> getSharedArgs();
    /// Whether result `i` holds sums over an expert's rows, `[E, ...]`, and not
    /// a row per row.
    bool isSum(unsigned i);
  }];
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
}

def MoE_YieldOp : MoE_Op<"yield", [
    Pure, Terminator, ReturnLike, ParentOneOf<["ExpertOp", "GroupedMatmulOp"]>]> {
  let summary = "end the body of an expert or of an epilogue";
  let description = [{
    Gives the body's values back to the enclosing op.

    ```mlir
    moe.yield %y : tensor<?x16xf32>
    ```
  }];
  let arguments = (ins Variadic<AnyType>:$operands);
  let assemblyFormat = "($operands^ `:` type($operands))? attr-dict";
  let builders = [OpBuilder<(ins), "build($_builder, $_state, ::mlir::ValueRange());">];
}

def MoE_GroupedMatmulOp : MoE_ComputeOp<"grouped_matmul", [
    AttrSizedOperandSegments, IsolatedFromAbove,
    SingleBlockImplicitTerminator<"YieldOp">,
    DeclareOpInterfaceMethods<ReifyRankedShapedTypeOpInterface,
                              ["reifyResultShapes"]>]> {
  let hasCanonicalizer = 1;
  let summary = "matrix products of ragged groups, with a scalar epilogue";
  let description = [{
    The form that kernels are made from. **Mode `rows`**: for row r of group e
    and column n

        acc_i = bias_i[e, n] + sum over k of rows[r, k] * weights_i[e][n, k]
        result.. [r, n] = epilogue(acc_0.., vectors[e, n].., elements[r, n]..,
                                   scalars[r]..)

    one FMA chain in increasing k in f32 (f64 for f64), starting from the bias or
    0. With `chained` there is one accumulator and one row operand per weight:

        acc = bias[e, n] + sum over i, then k, of rows_i[r, k] * weights_i[e][n, k]

    in one chain: what two products give to one gradient. With `gather`, row r of
    the product reads `rows[gather[r]]`; a negative index reads row 0 and its
    result is never read. **Mode `contraction`** (weight
    gradients): two row operands a `[R, N]`, b `[R, K]`, result `[E, N, K]`:

        result[e, n, k] = sum over rows r of group e of a[r, n] * b[r, k]

    With the layout `panels` the result is packed as `moe.pack nk` would pack it,
    so that a gradient has the form of its parameter. An empty group gives exact
    zeros. Rows are ragged `[R, ...]` or padded
    `[E, P, ...]`.

    Weights: `nk` `[E, N, K]`, `kn` `[E, K, N]`, or `panels` as `moe.pack` makes
    them: `[E, ceil(N/w), K, w]`, or `[E, ceil(N/w), ceil(K/2), w, 2]` where the
    target has a dot product of pairs (bf16 rows and weights only). With
    `transposed_panels` the same memory is read the other way round, as a gradient
    does: the panels are those of `[E, K, N]`, `[E, ceil(K/w), N, w]` or
    `[E, ceil(K/w), ceil(N/2), w, 2]`; there is one accumulator then.

    With `hidden` the dimension it names is cut in B blocks (see `#moe.hidden`);
    with `chained` the chain of a block of k goes on through all row operands.
    Each block of panels is packed as a matrix of its own, one after the other:
    `[E, B * ceil(N/B/w), K, w]` or `[E, B * ceil(N/w), K/B, w]`.

    **Constraints**
    * grouped_c1: mode `rows` has one row operand and at least one weight, with
      `chained` as many row operands, of one type, as weights, at least two, and no
      gather; mode `contraction` two row operands and nothing else.
    * grouped_c2: all weights have one type and agree with E, K and N; with
      `panels` N comes from the result, which is static there.
    * grouped_c3: `bias`: none or one `[E, N]` per accumulator; `vectors [E, N]`;
      `elements` shaped as the result; `scalars [R]` or `[E, P]`.
    * grouped_c4: the epilogue takes one accumulator (f32, f64 for f64) per
      weight, or one with `chained`, then one element per vector, element and scalar operand, yields
      one value per result, of its element type, and uses arith and math only.
    * grouped_c5: `gather` is `[R]`, mode `rows` and ragged only.
    * grouped_c7: `hidden` goes with mode `rows` and a static dimension.
    * grouped_c6: results are of f16, bf16, f32 or f64; rows, weights and bias
      are of f64 all or none.
    * grouped_c8: at least one result; all are of one shape; mode `contraction` has
      one, and the layout `nk` or `panels`.

    ```mlir
    %h = moe.grouped_matmul rows(%x : tensor<?x8xf32>)
        groups(%sizes : tensor<4xi32>)
        weights(%g, %u : tensor<4x16x8xf32>, tensor<4x16x8xf32>) nk
        -> tensor<?x16xf32> {
    ^bb0(%a: f32, %b: f32):
      %m = arith.mulf %a, %b : f32
      moe.yield %m : f32
    }
    ```
  }];
  let arguments = (ins
    Variadic<MoE_Rows>:$rows,
    MoE_Counts:$sizes,
    Variadic<MoE_ShapedOf<[F16, BF16, F32, F64], [3, 4, 5]>>:$weights,
    Variadic<MoE_ShapedOf<[F16, BF16, F32, F64], [2]>>:$bias,
    Optional<MoE_Counts>:$gather,
    Variadic<MoE_ShapedOf<[F16, BF16, F32, F64], [2]>>:$vectors,
    Variadic<MoE_Rows>:$elements,
    Variadic<MoE_ShapedOf<[F16, BF16, F32, F64], [1, 2]>>:$scalars,
    Variadic<AnyNon0RankedMemRef>:$outs,
    MoE_WeightLayoutAttr:$layout,
    UnitAttr:$contraction,
    UnitAttr:$chained,
    OptionalAttr<MoE_HiddenAttr>:$hidden,
    OptionalAttr<I64Attr>:$layer);
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let regions = (region SizedRegion<1>:$epilogue);
  let assemblyFormat = [{
    `rows` `(` $rows `:` type($rows) `)`
    `groups` `(` $sizes `:` type($sizes) `)`
    (`weights` `(` $weights^ `:` type($weights) `)`)? `` $layout (`contraction` $contraction^)? (`chained` $chained^)?
    oilist( `bias` `(` $bias `:` type($bias) `)`
          | `gather` `(` $gather `:` type($gather) `)`
          | `vectors` `(` $vectors `:` type($vectors) `)`
          | `elements` `(` $elements `:` type($elements) `)`
          | `scalars` `(` $scalars `:` type($scalars) `)`
          | `outs` `(` $outs `:` type($outs) `)` )
    (`->` type($results)^)? attr-dict-with-keyword $epilogue
  }];
  let extraClassDeclaration = [{
    /// The type of result `i`, a tensor or the destination's memref.
    ::mlir::ShapedType getResultType(unsigned i = 0);
    /// Results, or destinations in buffer form.
    unsigned getNumDestinations();
    bool isPadded();
    int64_t getNumExperts();
    /// Columns of the result, and the contracted dimension of mode `rows`.
    int64_t getN();
    int64_t getK();
    /// Blocks that `hidden` cuts dimension `dim` in; 1 when it is not cut.
    int64_t getBlocks(::mlir::moe::HiddenDim dim) {
      return getHidden() && getHidden()->getDim() == dim
                 ? getHidden()->getBlocks() : 1;
    }
    /// The form of packed weights, as forward panels of `[n, k]`: with
    /// `transposed_panels` n and k are the op's k and n.
    ::mlir::moe::PanelForm getForm();
    /// Whether the weights are packed, in either direction.
    bool hasPanels() {
      return getLayout() == ::mlir::moe::WeightLayout::Panels ||
             getLayout() == ::mlir::moe::WeightLayout::TransposedPanels;
    }
    /// f32, or f64 when rows and weights are f64.
    ::mlir::FloatType getAccumulatorType();
    /// Accumulators of mode `rows`: one per weight, or one for all.
    unsigned getNumAccumulators() {
      return getChained() ? 1 : getWeights().size();
    }
  }];
}

def MoE_PackOp : MoE_ComputeOp<"pack", [
    DeclareOpInterfaceMethods<ReifyRankedShapedTypeOpInterface,
                              ["reifyResultShapes"]>]> {
  let summary = "bring weights into the panels that kernels read";
  let description = [{
    From `[E, N, K]` (`nk`) or `[E, K, N]` (`kn`) to `[E, ceil(N/w), K, w]`:
    `result[e, p, k, c] = weights[e][n = p*w + c, k]`, 0 for n >= N. Of a
    parameter it runs once, in the bundle's pack entry; of a computed value, in
    every step. With a result of rank 5, `[E, ceil(N/w), ceil(K/2), w, 2]`, two
    steps stand together, the later one first:
    `result[e, p, s, c, 1 - i] = weights[e][n, 2 s + i]`, 0 beyond K: a dot product
    of pairs that adds the odd element first then follows increasing k. With
    `hidden` each block is packed as a matrix of its own (see `#moe.hidden`).

    **Constraints**
    * pack_c1: static shapes; the result is `[E, ceil(N/w), K, w]`, or
      `[E, ceil(N/w), ceil(K/2), w, 2]`, of the same element type; the layout is
      `nk` or `kn`.

    ```mlir
    %p = moe.pack %w nk : tensor<4x100x8xf32> -> tensor<4x4x8x32xf32>
    ```
  }];
  let arguments = (ins
    MoE_ShapedOf<[F16, BF16, F32, F64], [3]>:$weights,
    Variadic<AnyNon0RankedMemRef>:$outs,
    MoE_WeightLayoutAttr:$layout,
    OptionalAttr<MoE_HiddenAttr>:$hidden);
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let extraClassDeclaration = [{
    /// The form that the result has.
    ::mlir::moe::PanelForm getForm();
  }];
  let assemblyFormat = [{
    $weights `` $layout (`outs` `(` $outs^ `:` type($outs) `)`)? attr-dict
    `:` type($weights) (`->` type($results)^)?
  }];
}

#endif // MOIRA_DIALECT_MOE_IR_EXPERTOPS_TD
