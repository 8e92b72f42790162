// Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef MOIRA_SHARDING_PASSES_TD
#define MOIRA_SHARDING_PASSES_TD

include "mlir/Pass/PassBase.td"

def ShardPass : Pass<"moe-shard", "::mlir::ModuleOp"> {
  let summary = "make one rank's program of a program";
  let description = [{
    Every rank runs the result on its own tokens; docs/ranks.md says who holds
    what. Dim 0 of each input that is no parameter and has a dynamic dim 0 counts
    the rank's tokens. An op that does not treat tokens independently is an error
    that names it.

    Per `moe.expert`, with W ranks, E experts and s = max(1, W / E) shards of an
    expert:

    * the counts of all ranks are gathered (`moe.gather_counts`), whatever r;
    * r >= 1: rows go to the ranks of their experts and results come back
      (`moe.exchange`); the expert runs on the groups of this rank's slots;
    * r = 0: all experts are gathered (`moe.gather_weights`), rows stay;
    * 1 <= r < s: each slot gathers the shards of its group;
    * r > 1: the expert gives sums over a part of its hidden dimension, in f32
      (f64 for f64). Copies are added in pairs where the tokens are, and what
      follows the last product is applied there. Needs a body whose hidden
      dimension goes from the last product back to the first ones element by
      element; else an error (r > 1) or a missed-optimization remark names the
      op that is in the way.

    Per-expert operands must be parameters: they become `[slots, ...]` with the
    attribute `moe.shard`. Capacities become the maximum over ranks, and noise
    counts tokens from the rank's first one. One rank without spare slots needs
    no change.

    A sum over tokens, such as a loss, becomes a sum over the rank's tokens and
    `moe.all_reduce`; counts of experts that anything but routing reads are those
    of all ranks. Other reductions over tokens are errors. Where a value that all
    ranks share is used with one rank's tokens `moe.replicate` stands in between,
    for gradients (docs/gradients.md); `moe-fold-replicates` takes it away.

    Several positions may be one token of the inputs, as in `[B, S, D]` with
    dynamic B: attention mixes the positions of a sequence, which stays on one
    rank, and `tensor.collapse_shape` makes rows for experts of them.

    The number of ranks is `ranks`, or that of the module's `shard.grid`, which
    goes away; a grid must have one dimension.

    ```mlir
    %rows = moe.dispatch %x, %slots, %sizes, %bound : ...
    %y = moe.expert rows(%rows : tensor<?x8xf32>) groups(%sizes : tensor<8xi32>)
        per_expert(%w : tensor<8x16x8xf32>) -> tensor<?x16xf32> { ... }
    ```
    becomes, with `ranks=4`,
    ```mlir
    %matrix = moe.gather_counts %sizes : tensor<8xi32> -> tensor<4x8xi32>
    %groups, %b = moe.receive_sizes %matrix
        at <ranks = 4, experts = 8, slots = 2> equal : ...
    %away = moe.exchange to_experts %rows, %matrix, %b at <...> equal : ...
    %0 = moe.expert rows(%away : tensor<?x8xf32>) groups(%groups : tensor<2xi32>)
        per_expert(%w : tensor<2x16x8xf32>) -> tensor<?x16xf32> { ... }
    %y = moe.exchange to_tokens %0, %matrix, %bound at <...> equal : ...
    ```
  }];
  let options = [
    Option<"entry", "entry", "std::string", "\"\"",
           "function to shard; empty: the only public function, or @main">,
    Option<"ranks", "ranks", "int64_t", "0",
           "number of ranks; 0: that of the module's shard.grid">,
    Option<"copies", "r", "int64_t", "1",
           "how often rows travel: 0 (weights do) or a divisor of the shards of "
           "an expert">,
    Option<"spare", "spare", "int64_t", "0",
           "slots of each rank besides those that all shards need">];
  let statistics = [
    Statistic<"numExperts", "num-experts", "experts that were sharded">,
    Statistic<"numSums", "num-sums", "sums over the tokens of all ranks">];
  let dependentDialects = ["::mlir::arith::ArithDialect",
                           "::mlir::func::FuncDialect",
                           "::mlir::linalg::LinalgDialect",
                           "::mlir::moe::MoEDialect",
                           "::mlir::shard::ShardDialect",
                           "::mlir::tensor::TensorDialect"];
}

def TokenBlocksPass : Pass<"moe-token-blocks", "::mlir::ModuleOp"> {
  let summary = "give a program one token block per rank of a grid";
  let description = [{
    The unsharded counterpart of a sharded program: the entry gets a last input
    `tensor<Wxi32>` with the attribute `moe.blocks`, the number of tokens of each
    rank. `moe.assign` without blocks of its own takes them; `moe.capacity` reads
    the largest block in place of the number of tokens, and, for every expert, the
    largest count of a block in place of its count. `moe.gate` with
    `expert_choice` becomes a loop in which experts choose among the tokens of a
    block, and a gate that takes the weights of the ids. Any other dropless program
    gives the same results as before, whatever the blocks.

    ```mlir
    func.func @main(%x: tensor<?x8xf32>, ...) -> tensor<?x8xf32> {
      ...
      %slots, %sizes, %bound = moe.assign %ids choice_major
          counts(%counts : tensor<4xi32>) : ...
    ```
    becomes, with `ranks=2`,
    ```mlir
    func.func @main(%x: tensor<?x8xf32>, ..., %blocks: tensor<2xi32> {moe.blocks})
        -> tensor<?x8xf32> {
      ...
      %slots, %sizes, %bound = moe.assign %ids choice_major
          counts(%counts : tensor<4xi32>) blocks(%blocks : tensor<2xi32>) : ...
    ```
  }];
  let options = [
    Option<"entry", "entry", "std::string", "\"\"",
           "function to change; empty: the only public function, or @main">,
    Option<"ranks", "ranks", "int64_t", "1", "number of blocks">];
  let dependentDialects = ["::mlir::arith::ArithDialect",
                           "::mlir::func::FuncDialect",
                           "::mlir::linalg::LinalgDialect",
                           "::mlir::moe::MoEDialect",
                           "::mlir::scf::SCFDialect",
                           "::mlir::tensor::TensorDialect"];
}

def CutHiddenPass : Pass<"moe-cut-hidden", "::mlir::func::FuncOp"> {
  let summary = "sum over an expert's hidden dimension by blocks";
  let description = [{
    Gives the decomposed program the order of sums that kernels have with
    `hidden-blocks` of `moe-assign-layouts`: the last product of each `moe.expert`
    becomes one product per block of the hidden dimension, the first starting from
    what the product started from and the others from zero. The blocks' results
    are added in pairs: neighbours while their number is even, what is left in
    order. An expert whose hidden dimension cannot be cut, or is no multiple of
    the blocks, stays, with a missed-optimization remark.

    Where differentiation has said which dims of weights are hidden
    (`moe.hidden_places`), every sum over them that gives rows is cut; sums that go
    on from one another are one chain per block.

    ```mlir
    %y = linalg.matmul ins(%h, %d : tensor<?x16xf32>, tensor<16x8xf32>)
        outs(%bias : tensor<?x8xf32>) -> tensor<?x8xf32>
    ```
    becomes, with `blocks=2`,
    ```mlir
    %0 = linalg.matmul ins(%h0, %d0 : tensor<?x8xf32>, tensor<8x8xf32>)
        outs(%bias : tensor<?x8xf32>) -> tensor<?x8xf32>
    %1 = linalg.matmul ins(%h1, %d1 : tensor<?x8xf32>, tensor<8x8xf32>)
        outs(%zeros : tensor<?x8xf32>) -> tensor<?x8xf32>
    %y = linalg.generic ... ins(%0, %1) ...  // %0 + %1
    ```
  }];
  let options = [
    Option<"blocks", "blocks", "int64_t", "1",
           "equal blocks that the hidden dimension is cut in">];
  let statistics = [
    Statistic<"numCut", "num-cut", "products that were cut">];
  let dependentDialects = ["::mlir::arith::ArithDialect",
                           "::mlir::linalg::LinalgDialect",
                           "::mlir::moe::MoEDialect",
                           "::mlir::tensor::TensorDialect"];
}

def FoldReplicatesPass : Pass<"moe-fold-replicates"> {
  let summary = "take away what only differentiation reads of a sharded program";
  let description = [{
    `moe.replicate` says where a value that all ranks share enters one rank's
    computation, and a `moe.gather_weights` that moves nothing says who has the
    same weights; both are there for the gradients (docs/gradients.md). Their
    operands take their places, once the program is differentiated or nobody asks
    for gradients.

    ```mlir
    %w = moe.replicate %router : tensor<8x64xf32>
    %0 = linalg.matmul ins(%x, %w : ...) ...
    ```
    becomes
    ```mlir
    %0 = linalg.matmul ins(%x, %router : ...) ...
    ```
  }];
  let dependentDialects = ["::mlir::moe::MoEDialect"];
}

def MergeReducesPass : Pass<"moe-merge-reduces"> {
  let summary = "let small sums over ranks travel together";
  let description = [{
    Gradients of dense parameters are many small `moe.all_reduce`, and each costs a
    message per rank. In the order of their block those of one element type become
    one, of at most `bytes`, where the last of them stands; one that is read before
    then ends the bucket. Elements are added as before, in ascending order of ranks,
    so no bit changes.

    ```mlir
    %0 = moe.all_reduce %a : tensor<8xf32> -> tensor<8xf32>
    %1 = moe.all_reduce %b : tensor<2x3xf32> -> tensor<2x3xf32>
    ```
    becomes
    ```mlir
    %ab = ... // a, then b, in a tensor<14xf32>
    %sum = moe.all_reduce %ab : tensor<14xf32> -> tensor<14xf32>
    %0 = tensor.extract_slice %sum[0] [8] [1] : ...
    %1 = ... // of %sum[8] [6] [1]
    ```
  }];
  let options = [
    Option<"bytes", "bytes", "int64_t", "1048576",
           "of a sum: larger ones stay alone; 0: all stay">
  ];
  let dependentDialects = ["::mlir::moe::MoEDialect",
                           "::mlir::tensor::TensorDialect"];
}

def ClearPaddingPass : Pass<"moe-clear-padding", "::mlir::ModuleOp"> {
  let summary = "let padded rows that travel to experts be zero where there are none";
  let description = [{
    Padded groups travel whole, and behind their rows is anything. Nobody reads the
    results of such rows, but the sums over rows that gradients of weights are would
    add them up. In a program with a way back (docs/gradients.md) what is behind the
    `sizes` of the `moe.dispatch` becomes zero before the rows travel, there and on
    the way back; both factors of each such addend are then zero. Elsewhere nothing
    changes.

    ```mlir
    %rows = moe.dispatch %x, %slots, %sizes, %bound : ... -> tensor<4x?x8xf32>
    %flat = tensor.collapse_shape %rows [[0, 1], [2]] : ...
    %away = moe.exchange to_experts %flat, ...
    ```
    becomes
    ```mlir
    %clear = linalg.generic ... ins(%rows, %sizes) ... // p < sizes[e] ? rows[e, p, d] : 0
    %flat = tensor.collapse_shape %clear [[0, 1], [2]] : ...
    %away = moe.exchange to_experts %flat, ...
    ```
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect",
                           "::mlir::linalg::LinalgDialect",
                           "::mlir::moe::MoEDialect",
                           "::mlir::tensor::TensorDialect"];
}

#endif // MOIRA_SHARDING_PASSES_TD
