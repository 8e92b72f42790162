// RUN: moira-opt %s --moe-token-blocks=ranks=3 -canonicalize -cse | FileCheck %s

// CHECK-LABEL: func.func @main
// CHECK-SAME: %[[BLOCKS:[^:]*]]: tensor<3xi32> {moe.blocks})
// CHECK: moe.noise normal rows(%{{.*}}) seed(%{{.*}}) step(%{{.*}}) first(%c0)
// CHECK: %[[COUNTS:.*]] = moe.count
// CHECK: %[[COLUMN:.*]] = tensor.expand_shape %[[BLOCKS]]
// CHECK: linalg.reduce ins(%[[COLUMN]] : tensor<3x1xi32>)
// CHECK: arith.maxsi
// CHECK: %[[MOST:.*]] = arith.index_cast
// CHECK: %[[LARGEST:.*]]:2 = scf.for %[[B:.*]] = %c0 to %c3 step %c1 iter_args(%[[BEGIN:.*]] = %c0, %{{.*}} = %{{.*}}) -> (index, tensor<4xi32>)
// CHECK: tensor.extract %[[BLOCKS]][%[[B]]]
// CHECK: tensor.extract_slice %{{.*}}[%[[BEGIN]], 0]
// CHECK: moe.count
// CHECK: arith.maxsi
// CHECK: moe.capacity tutel tokens(%[[MOST]]) {{.*}} counts(%[[LARGEST]]#1 : tensor<4xi32>)
// CHECK: moe.assign {{.*}} counts(%[[COUNTS]] : tensor<4xi32>) capacity(%{{.*}}) blocks(%[[BLOCKS]] : tensor<3xi32>)
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
