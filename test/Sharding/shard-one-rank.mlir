// RUN: moira-opt %s -canonicalize -cse > %t.whole
// RUN: moira-opt %s --moe-shard="ranks=1 entry=main" -canonicalize -cse > %t.sharded
// RUN: diff %t.whole %t.sharded
// RUN: moira-opt %s --moe-shard="ranks=1 entry=mean" -canonicalize -cse > %t.sharded
// RUN: diff %t.whole %t.sharded
// RUN: moira-opt %examples/olmoe/tiny.mlir -canonicalize -cse > %t.whole
// RUN: moira-opt %examples/olmoe/tiny.mlir --moe-shard="ranks=1 r=0" -canonicalize -cse > %t.sharded
// RUN: diff %t.whole %t.sharded

// One rank is no reason to change a program, not even one that mixes tokens.

func.func @mean(%x: tensor<?x8xf32>) -> tensor<8xf32> {
  %zero = arith.constant dense<0.0> : tensor<8xf32>
  %s = linalg.reduce { arith.addf } ins(%x : tensor<?x8xf32>) outs(%zero : tensor<8xf32>) dimensions = [0]
  return %s : tensor<8xf32>
}

func.func @main(%x: tensor<?x8xf32>, %logits: tensor<?x2xf32>,
    %g: tensor<2x16x8xf32> {moe.param = #moe.param<"gate{}">},
    %d: tensor<2x6x16xf32> {moe.param = #moe.param<"down{}">}) -> tensor<?x6xf32> {
  %ids, %weights = moe.gate %logits router<>
      : tensor<?x2xf32> -> tensor<?x1xi32>, tensor<?x1xf32>
  %counts = moe.count %ids : tensor<?x1xi32> -> tensor<2xi32>
  %slots, %sizes, %bound = moe.assign %ids choice_major counts(%counts : tensor<2xi32>)
      : tensor<?x1xi32> -> tensor<?x1xi32>, tensor<2xi32>, index
  %rows = moe.dispatch %x, %slots, %sizes, %bound
      : tensor<?x8xf32>, tensor<?x1xi32>, tensor<2xi32> -> tensor<?x8xf32>
  %y = moe.expert rows(%rows : tensor<?x8xf32>) groups(%sizes : tensor<2xi32>)
      per_expert(%g, %d : tensor<2x16x8xf32>, tensor<2x6x16xf32>) -> tensor<?x6xf32> {
  ^bb0(%r: tensor<?x8xf32>, %ge: tensor<16x8xf32>, %de: tensor<6x16xf32>):
    %i0 = arith.constant 0 : index
    %zero = arith.constant 0.0 : f32
    %n = tensor.dim %r, %i0 : tensor<?x8xf32>
    %e = tensor.empty(%n) : tensor<?x16xf32>
    %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x16xf32>) -> tensor<?x16xf32>
    %a = linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>,
        affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
        ins(%r, %ge : tensor<?x8xf32>, tensor<16x8xf32>) outs(%z : tensor<?x16xf32>) -> tensor<?x16xf32>
    %h = math.tanh %a : tensor<?x16xf32>
    %e6 = tensor.empty(%n) : tensor<?x6xf32>
    %z6 = linalg.fill ins(%zero : f32) outs(%e6 : tensor<?x6xf32>) -> tensor<?x6xf32>
    %m = linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>,
        affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
        ins(%h, %de : tensor<?x16xf32>, tensor<6x16xf32>) outs(%z6 : tensor<?x6xf32>) -> tensor<?x6xf32>
    moe.yield %m : tensor<?x6xf32>
  }
  %out = moe.combine %y, %slots weights(%weights : tensor<?x1xf32>)
      : tensor<?x6xf32>, tensor<?x1xi32> -> tensor<?x6xf32>
  return %out : tensor<?x6xf32>
}
