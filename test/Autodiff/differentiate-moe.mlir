// RUN: moira-opt %s --split-input-file --moe-differentiate | FileCheck %s

// Dispatch and combine are each other's transposes; weights get dot products of
// pairs, logits what the gate's rule says. Rows are dispatched again.

// CHECK-LABEL: func.func @main
// CHECK: %[[G:.*]]:2 = moe.gate %[[LOGITS:.*]] router
// CHECK: %[[A:.*]]:3 = moe.assign
// CHECK: return %{{.*}}, %{{.*}}, %[[LOGITS]], %[[G]]#0, %[[G]]#1, %[[A]]#0, %[[A]]#1, %[[A]]#2 :

// CHECK-LABEL: func.func @main_backward
// CHECK-SAME: %[[X:[^:]*]]: tensor<?x4xf32> {{[^,]*}}, %[[L:[^:]*]]: tensor<?x4xf32> {{[^,]*}}, %[[IDS:[^:]*]]: tensor<?x2xi32> {{[^,]*}}, %[[W:[^:]*]]: tensor<?x2xf32> {{[^,]*}}, %[[SLOTS:[^:]*]]: tensor<?x2xi32> {{[^,]*}}, %[[SIZES:[^:]*]]: tensor<4xi32> {{[^,]*}}, %[[BOUND:[^:]*]]: index {{[^,]*}}, %[[D:[^:]*]]: tensor<?x4xf32>
// CHECK: %[[DR:.*]] = moe.dispatch %[[D]], %[[SLOTS]], %[[SIZES]], %[[BOUND]] weights(%[[W]] : tensor<?x2xf32>) {layer = 5 : i64}
// CHECK: %[[DX:.*]] = moe.combine %[[DR]], %[[SLOTS]] {layer = 5 : i64} :
// CHECK: %[[R:.*]] = moe.dispatch %[[X]], %[[SLOTS]], %[[SIZES]], %[[BOUND]] {layer = 5 : i64} :
// CHECK: %[[DW:.*]] = moe.pair_dot %[[R]], %[[D]], %[[SLOTS]] {layer = 5 : i64}
// CHECK: %[[DL:.*]] = moe.gate_gradient %[[L]], %[[IDS]], %[[DW]] router<normalize = max_sum_eps> weights(%[[W]] : tensor<?x2xf32>) {layer = 5 : i64}
// CHECK: return %[[DX]], %[[DL]]
func.func @main(%x: tensor<?x4xf32>, %logits: tensor<?x4xf32>)
    -> tensor<?x4xf32> {
  %ids, %w = moe.gate %logits router<normalize = max_sum_eps> {layer = 5 : i64}
      : tensor<?x4xf32> -> tensor<?x2xi32>, tensor<?x2xf32>
  %counts = moe.count %ids : tensor<?x2xi32> -> tensor<4xi32>
  %slots, %sizes, %bound = moe.assign %ids choice_major
      counts(%counts : tensor<4xi32>)
      : tensor<?x2xi32> -> tensor<?x2xi32>, tensor<4xi32>, index
  %rows = moe.dispatch %x, %slots, %sizes, %bound {layer = 5 : i64}
      : tensor<?x4xf32>, tensor<?x2xi32>, tensor<4xi32> -> tensor<?x4xf32>
  %y = moe.combine %rows, %slots weights(%w : tensor<?x2xf32>) {layer = 5 : i64}
      : tensor<?x4xf32>, tensor<?x2xi32> -> tensor<?x4xf32>
  return %y : tensor<?x4xf32>
}

// -----

// A softmax over the selected, of which a threshold made some unused: what was
// selected is asked again.

// CHECK-LABEL: func.func @main_backward
// CHECK: %[[G:.*]]:2 = moe.gate %{{.*}} router<after_top_k> :
// CHECK: moe.gate_gradient {{.*}} router<after_top_k> weights(%{{.*}} : tensor<?x2xf32>) selected(%[[G]]#0 : tensor<?x2xi32>)
func.func @main(%logits: tensor<?x4xf32>) -> tensor<?x2xf32> {
  %limit = arith.constant 0.25 : f32
  %ids, %w = moe.gate %logits router<after_top_k> threshold(%limit : f32)
      : tensor<?x4xf32> -> tensor<?x2xi32>, tensor<?x2xf32>
  return %w : tensor<?x2xf32>
}

// -----

// Collectives.

// CHECK-LABEL: func.func @main_backward
// CHECK-SAME: %[[MATRIX:[^:]*]]: tensor<2x4xi32> {moe.name = "residual0"}, %[[BOUND:[^:]*]]: index {moe.name = "residual1"}
// CHECK-SAME: %[[D:[^:]*]]: tensor<?x4xf32> {moe.name = "d_result0"}, %[[E:[^:]*]]: tensor<4xf32> {moe.name = "d_result1"}
// CHECK: %[[AWAY:.*]] = moe.exchange to_experts %[[D]], %[[MATRIX]], %[[BOUND]] at <ranks = 2, experts = 4, slots = 2> equal {layer = 3 : i64}
// CHECK: %[[HOME:.*]] = moe.exchange to_tokens %[[AWAY]], %[[MATRIX]], %{{.*}} at <ranks = 2, experts = 4, slots = 2> equal {layer = 3 : i64}
// CHECK: %[[SUM:.*]] = moe.all_reduce %[[E]] : tensor<4xf32> -> tensor<4xf32>
// CHECK: return %[[HOME]], %[[SUM]]
func.func @main(%rows: tensor<?x4xf32>, %sizes: tensor<4xi32>,
    %v: tensor<4xf32>) -> (tensor<?x4xf32>, tensor<4xf32>) {
  %c0 = arith.constant 0 : index
  %n = tensor.dim %rows, %c0 : tensor<?x4xf32>
  %matrix = moe.gather_counts %sizes : tensor<4xi32> -> tensor<2x4xi32>
  %groups, %bound = moe.receive_sizes %matrix
      at <ranks = 2, experts = 4, slots = 2> equal
      : tensor<2x4xi32> -> tensor<2xi32>, index
  %away = moe.exchange to_experts %rows, %matrix, %bound
      at <ranks = 2, experts = 4, slots = 2> equal {layer = 3 : i64}
      : tensor<?x4xf32>, tensor<2x4xi32> -> tensor<?x4xf32>
  %home = moe.exchange to_tokens %away, %matrix, %n
      at <ranks = 2, experts = 4, slots = 2> equal {layer = 3 : i64}
      : tensor<?x4xf32>, tensor<2x4xi32> -> tensor<?x4xf32>
  %one = moe.replicate %v : tensor<4xf32>
  return %home, %one : tensor<?x4xf32>, tensor<4xf32>
}

// -----

// CHECK-LABEL: func.func @main_backward
// CHECK-SAME: %[[D:[^:]*]]: tensor<1x8x3xf32> {moe.name = "d_result0"}, %[[E:[^:]*]]: tensor<f32> {moe.name = "d_result1"}
// CHECK: %[[R:.*]] = moe.replicate %[[E]]
// CHECK: %[[DW:.*]] = moe.reduce_weights %[[D]] dim 1 at <ranks = 4, experts = 2, shards = 2, slots = 1> {layer = 1 : i64} : tensor<1x8x3xf32> -> tensor<1x4x3xf32>
// CHECK: return %[[R]], %[[DW]]
func.func @main(%w: tensor<1x4x3xf32> {moe.param = #moe.param<"w{}">,
    moe.shard = #moe.shard<experts = 2, shards = 2, dim = 0>}, %l: tensor<f32>)
    -> (tensor<1x8x3xf32>, tensor<f32>) {
  %all = moe.gather_weights %w dim 1
      at <ranks = 4, experts = 2, shards = 2, slots = 1> {layer = 1 : i64}
      : tensor<1x4x3xf32> -> tensor<1x8x3xf32>
  %loss = moe.all_reduce %l : tensor<f32> -> tensor<f32>
  return %all, %loss : tensor<1x8x3xf32>, tensor<f32>
}

// -----

// Two groups of shards work on copies of the rows: the gradient of the sum of
// copies travels once, to both, and comes back in copies. Their sum is kept,
// not they.

// CHECK-LABEL: func.func @main
// CHECK: %[[SUM:.*]] = linalg.add
// CHECK: return %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %[[SUM]] :
// CHECK-LABEL: func.func @main_backward
// CHECK: %[[AWAY:.*]] = moe.exchange to_experts %{{.*}}, %{{.*}}, %{{.*}} at {{.*}} : tensor<?x4xf32>, tensor<4x2xi32> -> tensor<?x4xf32>
// CHECK: %[[HOME:.*]] = moe.exchange to_tokens %[[AWAY]], {{.*}} -> tensor<2x?x4xf32>
// CHECK: %[[ONE:.*]] = tensor.extract_slice %[[HOME]][0, 0, 0]
// CHECK: %[[TWO:.*]] = tensor.extract_slice %[[HOME]][1, 0, 0]
// CHECK: linalg.generic {{.*}} ins(%[[ONE]], %[[TWO]]
func.func @main(%rows: tensor<?x4xf32>, %sizes: tensor<2xi32>)
    -> tensor<?x4xf32> {
  %c0 = arith.constant 0 : index
  %n = tensor.dim %rows, %c0 : tensor<?x4xf32>
  %matrix = moe.gather_counts %sizes : tensor<2xi32> -> tensor<4x2xi32>
  %groups, %bound = moe.receive_sizes %matrix
      at <ranks = 4, experts = 2, shards = 2, copies = 2, slots = 1> equal
      : tensor<4x2xi32> -> tensor<1xi32>, index
  %away = moe.exchange to_experts %rows, %matrix, %bound
      at <ranks = 4, experts = 2, shards = 2, copies = 2, slots = 1> equal
      : tensor<?x4xf32>, tensor<4x2xi32> -> tensor<?x4xf32>
  %home = moe.exchange to_tokens %away, %matrix, %n
      at <ranks = 4, experts = 2, shards = 2, copies = 2, slots = 1> equal
      : tensor<?x4xf32>, tensor<4x2xi32> -> tensor<2x?x4xf32>
  %0 = tensor.extract_slice %home[0, 0, 0] [1, %n, 4] [1, 1, 1]
      : tensor<2x?x4xf32> to tensor<?x4xf32>
  %1 = tensor.extract_slice %home[1, 0, 0] [1, %n, 4] [1, 1, 1]
      : tensor<2x?x4xf32> to tensor<?x4xf32>
  %e = tensor.empty(%n) : tensor<?x4xf32>
  %sum = linalg.add ins(%0, %1 : tensor<?x4xf32>, tensor<?x4xf32>)
      outs(%e : tensor<?x4xf32>) -> tensor<?x4xf32>
  %y = linalg.exp ins(%sum : tensor<?x4xf32>) outs(%e : tensor<?x4xf32>)
      -> tensor<?x4xf32>
  return %y : tensor<?x4xf32>
}

// -----

// Ranks tell each other their counts in each forward step, even where no row
// leaves and so nobody reads them. The way back says nothing.

// CHECK-LABEL: func.func @main
// CHECK: moe.gather_counts %{{.*}} {layer = 3 : i64} : tensor<4xi32> -> tensor<2x4xi32>
// CHECK-LABEL: func.func @main_backward
// CHECK-NOT: moe.gather_counts
func.func @main(%x: tensor<?x4xf32>, %ids: tensor<?x1xi32>) -> tensor<?x4xf32> {
  %counts = moe.count %ids : tensor<?x1xi32> -> tensor<4xi32>
  %matrix = moe.gather_counts %counts {layer = 3 : i64}
      : tensor<4xi32> -> tensor<2x4xi32>
  %c0 = arith.constant 0 : index
  %n = tensor.dim %x, %c0 : tensor<?x4xf32>
  %init = tensor.empty(%n) : tensor<?x4xf32>
  %y = linalg.generic {
      indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>,
                       affine_map<(d0, d1) -> (d0, d1)>],
      iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<?x4xf32>) outs(%init : tensor<?x4xf32>) {
  ^bb0(%a: f32, %b: f32):
    %m = arith.mulf %a, %a : f32
    linalg.yield %m : f32
  } -> tensor<?x4xf32>
  return %y : tensor<?x4xf32>
}
