// RUN: moira-opt %s --moe-shard=ranks=2 -canonicalize -cse | FileCheck %s

// Padded groups travel as flat rows, as many from each rank. Capacity is that of
// the rank that needs most, noise counts tokens from the rank's first one.

// CHECK-LABEL: func.func @main
// CHECK-SAME: %[[X:[^:]*]]: tensor<?x8xf32>
// CHECK: %[[T:.*]] = tensor.dim %[[X]], %c0
// CHECK: %[[ALL:.*]] = moe.all_gather %{{.*}} : tensor<1xi64> -> tensor<2x1xi64>
// CHECK: %[[RANK:.*]] = moe.rank
// CHECK: linalg.generic {{.*}} ins(%[[ALL]] : tensor<2x1xi64>)
// CHECK: linalg.index 0
// CHECK-NEXT: arith.cmpi ult, %{{.*}}, %[[RANK]]
// CHECK: %[[FIRST:.*]] = arith.index_cast
// CHECK: moe.noise normal rows(%[[T]]) {{.*}} first(%[[FIRST]])
// CHECK: %[[COUNTS:.*]] = moe.count
// CHECK: linalg.reduce ins(%[[ALL]] : tensor<2x1xi64>)
// CHECK: arith.maxsi
// CHECK: %[[MOST:.*]] = arith.index_cast
// CHECK: %[[ALLCOUNTS:.*]] = moe.all_gather %[[COUNTS]] : tensor<4xi32> -> tensor<2x4xi32>
// CHECK: %[[LARGEST:.*]] = linalg.reduce ins(%[[ALLCOUNTS]] : tensor<2x4xi32>)
// CHECK: %[[C:.*]] = moe.capacity tutel tokens(%[[MOST]]) {{.*}} counts(%[[LARGEST]] : tensor<4xi32>)
// CHECK: moe.assign {{.*}} counts(%[[COUNTS]] : tensor<4xi32>) capacity(%[[C]])
// CHECK: moe.gather_counts
// CHECK: %[[ROWS:.*]] = moe.dispatch
// CHECK: %[[P:.*]] = tensor.dim %[[ROWS]], %c1
// CHECK: %[[MATRIX:.*]] = linalg.fill {{.*}} -> tensor<2x4xi32>
// CHECK: moe.receive_sizes %[[MATRIX]]
// CHECK: %[[BOUND:.*]] = arith.muli %[[P]], %c4
// CHECK: %[[FLAT:.*]] = tensor.collapse_shape %[[ROWS]] {{.*}} into tensor<?x8xf32>
// CHECK: %[[AWAY:.*]] = moe.exchange to_experts %[[FLAT]], %[[MATRIX]]
// CHECK: %[[OUT:.*]] = moe.expert rows(%[[AWAY]] : tensor<?x8xf32>) groups(%{{.*}} : tensor<2xi32>)
// CHECK: %[[BACK:.*]] = moe.exchange to_tokens %[[OUT]], %[[MATRIX]], %[[BOUND]]
// CHECK: tensor.expand_shape %[[BACK]] {{.*}} output_shape [4, %[[P]], 8] : tensor<?x8xf32> into tensor<4x?x8xf32>
func.func @main(%x: tensor<?x8xf32>, %l: tensor<?x4xf32>, %w: tensor<4x8x8xf32> {moe.param = #moe.param<"w{}">}, %seed: i64) -> tensor<?x8xf32> {
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  %f = arith.constant 0.0 : f64
  %t = tensor.dim %x, %c0 : tensor<?x8xf32>
  %noise = moe.noise normal rows(%t) seed(%seed) step(%seed) first(%c0) {layer = 0 : i64} -> tensor<?x4xf32>
  %ln = arith.addf %l, %noise : tensor<?x4xf32>
  %ids, %wt = moe.gate %ln router<> : tensor<?x4xf32> -> tensor<?x2xi32>, tensor<?x2xf32>
  %counts = moe.count %ids : tensor<?x2xi32> -> tensor<4xi32>
  %c = moe.capacity tutel tokens(%t) factor(%f) top_k(%c2) counts(%counts : tensor<4xi32>) {experts = 4 : i64}
  %slots, %sizes, %bound = moe.assign %ids choice_major padded counts(%counts : tensor<4xi32>) capacity(%c) : tensor<?x2xi32> -> tensor<?x2xi32>, tensor<4xi32>, index
  %rows = moe.dispatch %x, %slots, %sizes, %bound : tensor<?x8xf32>, tensor<?x2xi32>, tensor<4xi32> -> tensor<4x?x8xf32>
  %y = moe.expert rows(%rows : tensor<4x?x8xf32>) groups(%sizes : tensor<4xi32>) per_expert(%w : tensor<4x8x8xf32>) -> tensor<4x?x8xf32> {
  ^bb0(%r: tensor<?x8xf32>, %we: tensor<8x8xf32>):
    %i0 = arith.constant 0 : index
    %zero = arith.constant 0.0 : f32
    %n = tensor.dim %r, %i0 : tensor<?x8xf32>
    %e = tensor.empty(%n) : tensor<?x8xf32>
    %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x8xf32>) -> tensor<?x8xf32>
    %m = linalg.matmul ins(%r, %we : tensor<?x8xf32>, tensor<8x8xf32>) outs(%z : tensor<?x8xf32>) -> tensor<?x8xf32>
    moe.yield %m : tensor<?x8xf32>
  }
  %out = moe.combine %y, %slots weights(%wt : tensor<?x2xf32>) : tensor<4x?x8xf32>, tensor<?x2xi32> -> tensor<?x8xf32>
  return %out : tensor<?x8xf32>
}
