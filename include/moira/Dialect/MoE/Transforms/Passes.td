// Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef MOIRA_DIALECT_MOE_TRANSFORMS_PASSES_TD
#define MOIRA_DIALECT_MOE_TRANSFORMS_PASSES_TD

include "mlir/Pass/PassBase.td"

def DecomposePass : Pass<"moe-decompose"> {
  let summary = "replace every op by its meaning in linalg, tensor and scf";
  let description = [{
    The oracle: each op of the dialect, in tensor form, becomes plain linalg,
    tensor, scf, arith and math that compute exactly what its definition says;
    `moe.variants` stays. Contractions, wherever they stand, become
    `linalg.generic` with the loops i, k, j and a fused multiply-add, so that
    each element is one chain in increasing k: the product computes the same
    bits. The output is plain rather than fast, but its cost is that of the
    program: experts read their own rows only, priorities are sorted in T log T.

    ```mlir
    %counts = moe.count %ids : tensor<?x2xi32> -> tensor<3xi32>
    ```
    becomes
    ```mlir
    %none = linalg.fill ins(%zero : i32) outs(%empty : tensor<3xi32>) -> ...
    %counts = scf.for %t = %c0 to %tokens step %c1 iter_args(%a = %none) {
      %b = scf.for %j = %c0 to %c2 step %c1 iter_args(%c = %a) {
        %id = tensor.extract %ids[%t, %j] : tensor<?x2xi32>
        %used = arith.cmpi ult, %id, %experts : i32
        %next = scf.if %used { ... tensor.insert ... } else { ... }
    ```
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect",
                           "::mlir::linalg::LinalgDialect",
                           "::mlir::math::MathDialect",
                           "::mlir::scf::SCFDialect",
                           "::mlir::tensor::TensorDialect"];
}

def DecomposeSoftmaxPass : Pass<"moe-decompose-softmax"> {
  let summary = "replace linalg.softmax by what it means";
  let description = [{
    Upstream's own decomposition: the maximum along the dimension, exp of the
    differences to it, their sum, the quotients. It stands behind differentiation,
    which has a shorter rule for the op as a whole, and before bufferization, which
    knows no softmax.

    ```mlir
    %y = linalg.softmax dimension(1) ins(%x : tensor<?x8xf32>)
        outs(%e : tensor<?x8xf32>) -> tensor<?x8xf32>
    ```
    becomes four `linalg.generic`.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect",
                           "::mlir::linalg::LinalgDialect",
                           "::mlir::math::MathDialect",
                           "::mlir::tensor::TensorDialect"];
}

def ExpandLossesPass : Pass<"moe-expand-losses"> {
  let summary = "replace auxiliary losses by their meaning in linalg";
  let description = [{
    Every `moe.loss` becomes linalg with arith and math in its bodies, so that it
    is differentiated and compiled like any arithmetic. Where a loss is `over_ranks`,
    sums of ranks are put together by `moe.all_reduce`: the sums over tokens for
    scope `global`, the ranks' losses and the number of blocks that have tokens for
    the others.

    ```mlir
    %l = moe.loss z %logits over_ranks : tensor<?x8xf32> -> tensor<f32>
    ```
    becomes
    ```mlir
    %squares = linalg.generic ...    // log(sum of exp)^2 of every token
    %sums = linalg.generic ...       // by block
    ...
    %all = moe.all_reduce %mine : tensor<f32> -> tensor<f32>
    %l = linalg.generic ...          // by the number of blocks
    ```
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect",
                           "::mlir::linalg::LinalgDialect",
                           "::mlir::math::MathDialect",
                           "::mlir::tensor::TensorDialect"];
  let statistics = [
    Statistic<"numLosses", "losses", "Losses that were replaced">];
}

def ExpandMathPass : Pass<"moe-expand-math"> {
  let summary = "replace elementary functions on f32 by shared arithmetic";
  let description = [{
    Replaces `math.exp` and `math.log` on f32 scalars and vectors by one
    expansion in arith and math.fma (within 1 and 2 ulp, denormals kept), so
    that every target and every vector width computes the same bits. `tanh`,
    `erf`, `erfc`, `log1p` and `expm1` become upstream's polynomials (within 5
    ulp). `math.clampf` becomes a maximum and then a minimum, of any type.
    bf16 and f16 go through f32 and are rounded once. f64 functions, and others
    such as `sin` and `powf`, stay: they become calls of the C library.
    `arith.truncf` from f32 to bf16, and from f64 to bf16 and f16, becomes integer
    arithmetic: processors differ in denormals, or need a library for it. With
    `expand-f16` so do all conversions of f16, for targets without an instruction.

    ```mlir
    %0 = math.exp %x : f32
    ```
    becomes
    ```mlir
    %n = ...                       // nearest integer to x / ln 2
    %r = math.fma %n, %c1, %x : f32
    %p = math.fma %c2, %r, %c3 : f32
    ...
    %0 = arith.mulf %p, %power : f32
    ```
  }];
  let options = [
    Option<"expandF16", "expand-f16", "bool", "false",
           "convert f16 in integer arithmetic">];
  let dependentDialects = ["::mlir::arith::ArithDialect",
                           "::mlir::math::MathDialect",
                           "::mlir::vector::VectorDialect"];
}

def FormKernelsPass : Pass<"moe-form-kernels", "::mlir::func::FuncOp"> {
  let summary = "bring contractions into moe.grouped_matmul";
  let description = [{
    Turns the body of each `moe.expert` into `moe.grouped_matmul` ops, one per
    stage: up to two contractions of the same rows, with the elementwise ops
    after them as scalar epilogue. Contractions outside experts whose weight is
    an argument of the function become one of one group. Rows that a ragged
    `moe.dispatch` copies for such products only are read where they are, by a
    gather (`moe.sources`). Roundings stay where the program has them. A body that
    does not match becomes a loop over the groups, with a missed-optimization
    remark that names the op (`--remarks-filter-missed=moe-form-kernels`).

    With `hidden-blocks` the hidden dimension of an expert is cut in so many blocks
    where it is a multiple (see `#moe.hidden`), one per shard: whether kernels or
    loops are formed, blocks are summed in the same order. An expert of a sharded
    program has the blocks of its shards.

    `disable-fusion` leaves out what it names; no result changes by a bit:

    | fusion | what kernels take over | without it |
    | --- | --- | --- |
    | `gather` | rows that a dispatch would copy | the dispatch copies them |
    | `gate-up` | a second product of the same rows | each product has its kernel |
    | `activation` | elementwise ops after products, clamps and roundings among them | a loop over the experts, or linalg outside of them |
    | `bias` | biases that products start from | such products stay contractions, and their expert a loop |
    | `pair-weights` | multiplications by one value per row, and what follows | as `activation`, from there on |

    ```mlir
    %y = moe.expert rows(%x : tensor<?x8xf32>) groups(%sizes : tensor<4xi32>)
        per_expert(%w : tensor<4x16x8xf32>) -> tensor<?x16xf32> {
    ^bb0(%r: tensor<?x8xf32>, %we: tensor<16x8xf32>):
      ...
      %0 = linalg.contract ins(%r, %we) outs(%zero)   // r * transpose(we)
      %1 = linalg.map { math.tanh } ins(%0) outs(%empty)
      moe.yield %1 : tensor<?x16xf32>
    }
    ```
    becomes
    ```mlir
    %y = moe.grouped_matmul rows(%x : tensor<?x8xf32>)
        groups(%sizes : tensor<4xi32>) weights(%w : tensor<4x16x8xf32>) nk
        -> tensor<?x16xf32> {
    ^bb0(%acc: f32):
      %0 = math.tanh %acc : f32
      moe.yield %0 : f32
    }
    ```
  }];
  let options = [
    ListOption<"disableFusion", "disable-fusion", "std::string",
               "fusions to leave out: gather, gate-up, activation, bias, "
               "pair-weights">,
    Option<"dense", "dense", "bool", "true",
           "form kernels of contractions outside experts">,
    Option<"hiddenBlocks", "hidden-blocks", "int64_t", "1",
           "equal blocks that the hidden dimension of experts is summed in">];
  let statistics = [
    Statistic<"numFormed", "num-formed", "grouped_matmul ops formed">,
    Statistic<"numGathers", "num-gathers", "dispatches that became gathers">,
    Statistic<"numFallback", "num-fallback", "experts that became loops">];
  let dependentDialects = ["::mlir::arith::ArithDialect",
                           "::mlir::linalg::LinalgDialect",
                           "::mlir::math::MathDialect",
                           "::mlir::moe::MoEDialect",
                           "::mlir::scf::SCFDialect",
                           "::mlir::tensor::TensorDialect"];
}

def AssignLayoutsPass : Pass<"moe-assign-layouts", "::mlir::ModuleOp"> {
  let summary = "give weights the panels that kernels read";
  let description = [{
    Weights of `moe.grouped_matmul` in `nk` or `kn` become `panels`. The width of a
    panel is `panel-width` divided by the number of weights of the op (half of it
    for f64), at least a vector of `lanes` columns (half of it for f64), and no more
    than the next power of two of N. With `panel-width` 0, for targets whose
    kernels read rows, weights stay as they are and only what a checkpoint holds
    otherwise is packed.

    Where `moe-form-kernels` has cut the hidden dimension in blocks, each is packed
    as a matrix of its own (see `#moe.hidden`). In a sharded program a rank has the
    blocks of its shards (`moe.shard`), or of those that `moe.gather_weights` puts
    together: a weight is packed shard by shard, and the gather moves packed shards.
    The packed type so depends on the placement, not on whether rows or weights
    travel. Other gathers become ones of whole shards in dim 1, too, and a
    transpose.

    With `pairs` panels of bf16 weights that meet bf16 rows hold pairs of steps. A
    weight that some products read as `nk` and another as `kn` (its gradient) is
    packed once; the other reads `transposed_panels`.

    A function and its way back (`moe.backward`) read the same packed parameters:
    where the first has panels of `nk`, the second reads those, transposed where it
    must. With `pack-gradients` a result of the way back that is the gradient
    (`moe.gradient`) of a parameter with one packed form gets that form and the
    attribute `moe.packed_gradient`.

    A weight that is a parameter, or a slice of one, is packed when the parameter
    is loaded: the argument gets the packed type and the attribute `moe.packing`, a
    dictionary of `logical` (its type in the program), `slices` and `source` (how
    many tensors a checkpoint holds it in, and the type of one), and `function`, a
    private function that packs one of them; `transpose` and `part` of `moe.param`
    are done there too. A parameter that is read in several layouts becomes
    several arguments. One that is read as it is gets a packing only when it has
    `transpose` or `part`. Other weights are packed in every step, with a
    missed-optimization remark. A function that others name keeps its type. A bias
    or vector that takes every other element of a tensor becomes consecutive, at
    loading where that is a parameter.

    ```mlir
    func.func @main(%x: tensor<?x8xf32>, %s: tensor<4xi32>,
        %w: tensor<4x100x8xf32> {moe.param = #moe.param<"experts.{}.w">}) -> ... {
      moe.grouped_matmul ... weights(%w : tensor<4x100x8xf32>) nk ...
    ```
    becomes
    ```mlir
    func.func @main(%x: tensor<?x8xf32>, %s: tensor<4xi32>,
        %w: tensor<4x2x8x64xf32> {moe.packing = {function = @moe_pack_0,
            logical = tensor<4x100x8xf32>, slices = 4 : i64,
            source = tensor<100x8xf32>},
          moe.param = #moe.param<"experts.{}.w">}) -> ... {
      moe.grouped_matmul ... weights(%w : tensor<4x2x8x64xf32>) panels ...
    }
    func.func private @moe_pack_0(%0: tensor<100x8xf32>) -> tensor<2x8x64xf32> {
      %1 = tensor.expand_shape %0 ... into tensor<1x100x8xf32>
      %2 = moe.pack %1 nk : tensor<1x100x8xf32> -> tensor<1x2x8x64xf32>
      ...
    ```
  }];
  let options = [
    Option<"panelWidth", "panel-width", "int64_t", "64",
           "columns of a panel, over all weights of a kernel; 0: weights stay "
           "row-major">,
    Option<"lanes", "lanes", "int64_t", "16",
           "columns of a vector of f32">,
    Option<"pairs", "pairs", "bool", "false",
           "pack bf16 in pairs of steps, for a target with a dot product">,
    Option<"packGradients", "pack-gradients", "bool", "false",
           "give gradients the packed form of their parameters">];
  let statistics = [
    Statistic<"numParameters", "num-parameters", "parameters packed at loading">,
    Statistic<"numStepPacks", "num-step-packs", "weights packed in every step">,
    Statistic<"numGradients", "num-gradients", "gradients that are packed">];
  let dependentDialects = ["::mlir::bufferization::BufferizationDialect",
                           "::mlir::func::FuncDialect",
                           "::mlir::linalg::LinalgDialect",
                           "::mlir::moe::MoEDialect",
                           "::mlir::tensor::TensorDialect"];
}

def ExposeRoutingPass : Pass<"moe-expose-routing", "::mlir::ModuleOp"> {
  let summary = "make the routing of a function visible from outside";
  let description = [{
    Appends the logits and ids of every `moe.gate`, in program order, to the
    results of its function; with `replay` also one argument of ids per gate, from
    which the gate then takes its choices (not for `expert_choice`, which has no
    replay). A run can so be verified in two steps: are its ids admissible for
    its logits, and are its values those of the oracle that is given these ids.

    Functions that are called, and gates inside loops, are errors: there is no
    one value to return.

    ```mlir
    func.func @main(%l: tensor<?x4xf32>) -> tensor<?x2xf32> {
      %ids, %w = moe.gate %l router<> : ...
      return %w : tensor<?x2xf32>
    ```
    becomes, with `replay=true`,
    ```mlir
    func.func @main(%l: tensor<?x4xf32>, %r: tensor<?x2xi32>)
        -> (tensor<?x2xf32>, tensor<?x4xf32>, tensor<?x2xi32>) {
      %ids, %w = moe.gate %l router<> replay(%r : tensor<?x2xi32>) : ...
      return %w, %l, %ids : ...
    ```
  }];
  let options = [
    Option<"function", "function", "std::string", "",
           "Symbol of the function; every public function by default">,
    Option<"replay", "replay", "bool", "false",
           "Take the ids from new arguments">];
}

#endif // MOIRA_DIALECT_MOE_TRANSFORMS_PASSES_TD
