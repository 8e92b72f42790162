// RUN: moira-opt %s --moe-shard=ranks=4 | FileCheck %s --check-prefixes=CHECK,ROWS
// RUN: moira-opt %s --moe-shard="ranks=4 r=0" | FileCheck %s --check-prefixes=CHECK,WEIGHTS
// RUN: moira-opt %s --moe-shard="ranks=4 spare=1" | FileCheck %s --check-prefix=SPARE

// At least as many experts as ranks: each rank has two. The grid says how many
// ranks there are, too, and goes away.

// CHECK-NOT: shard.grid
shard.grid @ranks(shape = 4)

// CHECK-LABEL: func.func @main
// CHECK-SAME: %[[X:[^:]*]]: tensor<?x8xf32>, %[[LOGITS:[^:]*]]: tensor<?x8xf32>
// CHECK-SAME: %[[W:[^:]*]]: tensor<2x6x8xf32> {moe.param = #moe.param<"w{}">, moe.shard = #moe.shard<experts = 8>}
// SPARE: %[[W:[^:]*]]: tensor<3x6x8xf32> {moe.param
func.func @main(%x: tensor<?x8xf32>, %logits: tensor<?x8xf32>,
    %w: tensor<8x6x8xf32> {moe.param = #moe.param<"w{}">}) -> tensor<?x6xf32> {
  %ids, %weights = moe.gate %logits router<>
      : tensor<?x8xf32> -> tensor<?x2xi32>, tensor<?x2xf32>
  %counts = moe.count %ids : tensor<?x2xi32> -> tensor<8xi32>
  // CHECK: %[[A:.*]]:3 = moe.assign
  %slots, %sizes, %bound = moe.assign %ids choice_major counts(%counts : tensor<8xi32>)
      : tensor<?x2xi32> -> tensor<?x2xi32>, tensor<8xi32>, index
  // CHECK-NEXT: %[[MATRIX:.*]] = moe.gather_counts %[[A]]#1 {layer = 5 : i64} : tensor<8xi32> -> tensor<4x8xi32>
  // CHECK-NEXT: %[[ROWS:.*]] = moe.dispatch
  %rows = moe.dispatch %x, %slots, %sizes, %bound
      : tensor<?x8xf32>, tensor<?x2xi32>, tensor<8xi32> -> tensor<?x8xf32>
  // ROWS-NEXT: %[[RECEIVE:.*]]:2 = moe.receive_sizes %[[MATRIX]] at <ranks = 4, experts = 8, slots = 2> equal {layer = 5 : i64} : tensor<4x8xi32> -> tensor<2xi32>, index
  // ROWS-NEXT: %[[AWAY:.*]] = moe.exchange to_experts %[[ROWS]], %[[MATRIX]], %[[RECEIVE]]#1 at <ranks = 4, experts = 8, slots = 2> equal {layer = 5 : i64} : tensor<?x8xf32>, tensor<4x8xi32> -> tensor<?x8xf32>
  // ROWS-NEXT: %[[OUT:.*]] = moe.expert rows(%[[AWAY]] : tensor<?x8xf32>) groups(%[[RECEIVE]]#0 : tensor<2xi32>) per_expert(%[[W]] : tensor<2x6x8xf32>) -> tensor<?x6xf32> {{.*}}
  // ROWS-NEXT: ^bb0(%{{.*}}: tensor<?x8xf32>, %{{.*}}: tensor<6x8xf32>):
  // ROWS: %[[BACK:.*]] = moe.exchange to_tokens %[[OUT]], %[[MATRIX]], %[[A]]#2 at <ranks = 4, experts = 8, slots = 2> equal {layer = 5 : i64} : tensor<?x6xf32>, tensor<4x8xi32> -> tensor<?x6xf32>
  // ROWS-NEXT: moe.combine %[[BACK]], %[[A]]#0

  // WEIGHTS-NOT: moe.exchange
  // WEIGHTS: %[[ALL:.*]] = moe.gather_weights %[[W]] at <ranks = 4, experts = 8, copies = 0, slots = 2> {layer = 5 : i64} : tensor<2x6x8xf32> -> tensor<8x6x8xf32>
  // WEIGHTS-NEXT: %[[OUT:.*]] = moe.expert rows(%[[ROWS]] : tensor<?x8xf32>) groups(%[[A]]#1 : tensor<8xi32>) per_expert(%[[ALL]] : tensor<8x6x8xf32>) -> tensor<?x6xf32>
  // WEIGHTS-NOT: moe.exchange
  // WEIGHTS: moe.combine %[[OUT]], %[[A]]#0

  // SPARE: moe.receive_sizes %{{.*}} at <ranks = 4, experts = 8, slots = 3> equal {{.*}} -> tensor<3xi32>, index
  %y = moe.expert rows(%rows : tensor<?x8xf32>) groups(%sizes : tensor<8xi32>)
      per_expert(%w : tensor<8x6x8xf32>) -> tensor<?x6xf32> attributes {layer = 5 : i64} {
  ^bb0(%r: tensor<?x8xf32>, %we: tensor<6x8xf32>):
    %i0 = arith.constant 0 : index
    %zero = arith.constant 0.0 : f32
    %n = tensor.dim %r, %i0 : tensor<?x8xf32>
    %e = tensor.empty(%n) : tensor<?x6xf32>
    %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x6xf32>) -> tensor<?x6xf32>
    %m = linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>,
        affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
        ins(%r, %we : tensor<?x8xf32>, tensor<6x8xf32>) outs(%z : tensor<?x6xf32>) -> tensor<?x6xf32>
    moe.yield %m : tensor<?x6xf32>
  }
  %out = moe.combine %y, %slots weights(%weights : tensor<?x2xf32>)
      : tensor<?x6xf32>, tensor<?x2xi32> -> tensor<?x6xf32>
  return %out : tensor<?x6xf32>
}
