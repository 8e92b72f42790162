// RUN: moira-opt %s --moe-shard="ranks=6 r=2" \
// RUN:   --remarks-filter-missed=moe-shard --remark-format=emitRemark \
// RUN:   --verify-diagnostics -o /dev/null

// Groups of three shards are no subtree of the sum over six.

func.func @main(%x: tensor<?x8xf32>, %logits: tensor<?x1xf32>,
    %g: tensor<1x12x8xf32> {moe.param = #moe.param<"gate{}">},
    %d: tensor<1x6x12xf32> {moe.param = #moe.param<"down{}">}) -> tensor<?x6xf32> {
  %ids, %weights = moe.gate %logits router<>
      : tensor<?x1xf32> -> tensor<?x1xi32>, tensor<?x1xf32>
  %counts = moe.count %ids : tensor<?x1xi32> -> tensor<1xi32>
  %slots, %sizes, %bound = moe.assign %ids choice_major counts(%counts : tensor<1xi32>)
      : tensor<?x1xi32> -> tensor<?x1xi32>, tensor<1xi32>, index
  %rows = moe.dispatch %x, %slots, %sizes, %bound
      : tensor<?x8xf32>, tensor<?x1xi32>, tensor<1xi32> -> tensor<?x8xf32>
  // expected-remark @+1 {{'moe.expert': r = 2 adds the sums of 6 shards in another order than other r}}
  %y = moe.expert rows(%rows : tensor<?x8xf32>) groups(%sizes : tensor<1xi32>)
      per_expert(%g, %d : tensor<1x12x8xf32>, tensor<1x6x12xf32>) -> tensor<?x6xf32> {
  ^bb0(%r: tensor<?x8xf32>, %ge: tensor<12x8xf32>, %de: tensor<6x12xf32>):
    %i0 = arith.constant 0 : index
    %zero = arith.constant 0.0 : f32
    %n = tensor.dim %r, %i0 : tensor<?x8xf32>
    %e = tensor.empty(%n) : tensor<?x12xf32>
    %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x12xf32>) -> tensor<?x12xf32>
    %a = linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>,
        affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
        ins(%r, %ge : tensor<?x8xf32>, tensor<12x8xf32>) outs(%z : tensor<?x12xf32>) -> tensor<?x12xf32>
    %h = math.tanh %a : tensor<?x12xf32>
    %e6 = tensor.empty(%n) : tensor<?x6xf32>
    %z6 = linalg.fill ins(%zero : f32) outs(%e6 : tensor<?x6xf32>) -> tensor<?x6xf32>
    %m = linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>,
        affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
        ins(%h, %de : tensor<?x12xf32>, tensor<6x12xf32>) outs(%z6 : tensor<?x6xf32>) -> tensor<?x6xf32>
    moe.yield %m : tensor<?x6xf32>
  }
  %out = moe.combine %y, %slots weights(%weights : tensor<?x1xf32>)
      : tensor<?x6xf32>, tensor<?x1xi32> -> tensor<?x6xf32>
  return %out : tensor<?x6xf32>
}
