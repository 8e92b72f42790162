// RUN: moira-opt %s --split-input-file --moe-differentiate | FileCheck %s
// RUN: moira-opt %s --split-input-file --moe-differentiate=recompute=true | FileCheck %s --check-prefix=AGAIN

// The forward expert also gives what its products gave; the backward one has
// its rows, these, and the gradient of its result, and gives gradients of rows
// and, as sums over rows, of weights and biases. The activation is computed
// again.

#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#mn = affine_map<(m, n, k) -> (m, n)>
#id = affine_map<(m, n) -> (m, n)>
#col = affine_map<(m, n) -> (n)>

// CHECK-LABEL: func.func @main
// CHECK: %[[F:.*]]:2 = moe.expert rows(%{{.*}} : tensor<?x4xf32>) {{.*}} -> tensor<?x2xf32>, tensor<?x3xf32> attributes {moe.hidden_places = array<i64: 0, 1, 0, 0, 1, 0, 1, 1, 0>} {
// CHECK: %[[A:.*]] = linalg.matmul
// CHECK: %[[Y:.*]] = linalg.matmul
// CHECK: moe.yield %[[Y]], %[[A]] : tensor<?x2xf32>, tensor<?x3xf32>
// CHECK: return %[[F]]#0, %{{.*}}, %{{.*}}, %[[F]]#1

// CHECK-LABEL: func.func @main_backward
// CHECK-SAME: %[[X:[^:]*]]: tensor<?x4xf32> {moe.name = "residual0"}, %[[SIZES:[^:]*]]: tensor<2xi32> {moe.name = "residual1"}, %[[A:[^:]*]]: tensor<?x3xf32> {moe.name = "residual2"}
// CHECK-SAME: %[[V:[^:]*]]: tensor<2x3x4xf32> {moe.param = #moe.param<"v">}, %{{[^:]*}}: tensor<2x3xf32> {moe.param = #moe.param<"b{}">}, %[[W:[^:]*]]: tensor<2x2x3xf32> {moe.param = #moe.param<"w">}
// CHECK-SAME: %[[D:[^:]*]]: tensor<?x2xf32> {moe.name = "d_result0"}
// CHECK: %[[G:.*]]:4 = moe.expert rows(%[[X]], %[[A]], %[[D]] : tensor<?x4xf32>, tensor<?x3xf32>, tensor<?x2xf32>) groups(%[[SIZES]] : tensor<2xi32>)
// CHECK-SAME: per_expert(%[[V]], %[[W]] : tensor<2x3x4xf32>, tensor<2x2x3xf32>)
// CHECK-SAME: -> tensor<?x4xf32>, tensor<2x3x4xf32>, tensor<2x3xf32>, tensor<2x2x3xf32> attributes {moe.hidden_places = array<i64: 0, 1, 0, 1, 1, 0>} {
// CHECK: ^bb0(%[[R:.*]]: tensor<?x4xf32>, %[[AE:.*]]: tensor<?x3xf32>, %[[DE:.*]]: tensor<?x2xf32>, %[[VE:.*]]: tensor<3x4xf32>, %[[WE:.*]]: tensor<2x3xf32>):
// CHECK: %[[DH:.*]] = linalg.generic {{.*}} ins(%[[DE]], %[[WE]]
// CHECK: %[[DA:.*]] = linalg.generic {{.*}} ins(%[[DH]], %[[AE]]
// CHECK: %[[DR:.*]] = linalg.generic {{.*}} ins(%[[DA]], %[[VE]]
// CHECK: %[[DV:.*]] = linalg.generic {{.*}} ins(%[[DA]], %[[R]]
// CHECK: %[[DB:.*]] = linalg.generic {{.*}} iterator_types = ["parallel", "reduction"]} ins(%[[DA]] :
// CHECK: %[[H:.*]] = linalg.map { math.tanh } ins(%[[AE]] :
// CHECK: %[[DW:.*]] = linalg.generic {{.*}} ins(%[[DE]], %[[H]]
// CHECK: moe.yield %[[DR]], %[[DV]], %[[DB]], %[[DW]]
// CHECK: return %[[G]]#0, %[[G]]#1, %[[G]]#2, %[[G]]#3

// With recomputation the forward expert stays as it is.
// AGAIN-LABEL: func.func @main(
// AGAIN-SAME: moe.residuals = 2 : i64
// AGAIN: %[[F:.*]] = moe.expert {{.*}} -> tensor<?x2xf32> attributes {moe.hidden_places = array<i64: {{.*}}>} {
// AGAIN-LABEL: func.func @main_backward
// AGAIN: %[[A:.*]] = moe.expert {{.*}} -> tensor<?x3xf32> attributes {moe.hidden_places = array<i64: {{.*}}>} {
// AGAIN: linalg.matmul
// AGAIN-NOT: linalg.matmul
// AGAIN: moe.yield
// AGAIN: moe.expert rows(%{{.*}}, %[[A]], %{{.*}} :
func.func @main(%x: tensor<?x4xf32>, %sizes: tensor<2xi32>,
    %v: tensor<2x3x4xf32> {moe.param = #moe.param<"v">},
    %b: tensor<2x3xf32> {moe.param = #moe.param<"b{}">},
    %w: tensor<2x2x3xf32> {moe.param = #moe.param<"w">}) -> tensor<?x2xf32> {
  %y = moe.expert rows(%x : tensor<?x4xf32>) groups(%sizes : tensor<2xi32>)
      per_expert(%v, %b, %w
        : tensor<2x3x4xf32>, tensor<2x3xf32>, tensor<2x2x3xf32>)
      -> tensor<?x2xf32> {
  ^bb0(%r: tensor<?x4xf32>, %ve: tensor<3x4xf32>, %be: tensor<3xf32>,
       %we: tensor<2x3xf32>):
    %c0 = arith.constant 0 : index
    %zero = arith.constant 0.0 : f32
    %n = tensor.dim %r, %c0 : tensor<?x4xf32>
    %e = tensor.empty(%n) : tensor<?x3xf32>
    %f = linalg.generic {indexing_maps = [#col, #id],
        iterator_types = ["parallel", "parallel"]}
        ins(%be : tensor<3xf32>) outs(%e : tensor<?x3xf32>) {
    ^bb1(%i: f32, %o: f32):
      linalg.yield %i : f32
    } -> tensor<?x3xf32>
    %a = linalg.matmul indexing_maps = [#mk, #nk, #mn]
        ins(%r, %ve : tensor<?x4xf32>, tensor<3x4xf32>)
        outs(%f : tensor<?x3xf32>) -> tensor<?x3xf32>
    %h = linalg.map { math.tanh } ins(%a : tensor<?x3xf32>)
        outs(%e : tensor<?x3xf32>)
    %g = tensor.empty(%n) : tensor<?x2xf32>
    %k = linalg.fill ins(%zero : f32) outs(%g : tensor<?x2xf32>)
        -> tensor<?x2xf32>
    %p = linalg.matmul indexing_maps = [#mk, #nk, #mn]
        ins(%h, %we : tensor<?x3xf32>, tensor<2x3xf32>)
        outs(%k : tensor<?x2xf32>) -> tensor<?x2xf32>
    moe.yield %p : tensor<?x2xf32>
  }
  return %y : tensor<?x2xf32>
}

// -----

// Gradients of what all experts share are sums over rows, then over experts.

// CHECK-LABEL: func.func @main_backward
// CHECK: %[[G:.*]]:2 = moe.expert rows({{.*}}) {{.*}} shared(%{{.*}}, %{{.*}} : f32, tensor<4xf32>) -> tensor<2xf32>, tensor<2x4xf32> {
// CHECK: %[[SUM:.*]] = linalg.generic {{.*}} iterator_types = ["reduction"]} ins(%[[G]]#0 : tensor<2xf32>) outs(%{{.*}} : tensor<f32>)
// CHECK: %[[DS:.*]] = tensor.extract %[[SUM]][]
// CHECK: %[[DV:.*]] = linalg.generic {{.*}} iterator_types = ["parallel", "reduction"]} ins(%[[G]]#1 : tensor<2x4xf32>) outs(%{{.*}} : tensor<4xf32>)
// CHECK: return %[[DS]], %[[DV]]
func.func @main(%ids: tensor<2xi32>, %s: f32,
    %v: tensor<4xf32> {moe.param = #moe.param<"v">}) -> tensor<8x4xf32> {
  %one = arith.constant dense<1.0> : tensor<8x4xf32>
  %y = moe.expert rows(%one : tensor<8x4xf32>) groups(%ids : tensor<2xi32>)
      shared(%s, %v : f32, tensor<4xf32>) -> tensor<8x4xf32> {
  ^bb0(%r: tensor<?x4xf32>, %t: f32, %u: tensor<4xf32>):
    %c0 = arith.constant 0 : index
    %n = tensor.dim %r, %c0 : tensor<?x4xf32>
    %e = tensor.empty(%n) : tensor<?x4xf32>
    %h = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>,
        affine_map<(m, n) -> (n)>, affine_map<(m, n) -> (m, n)>],
        iterator_types = ["parallel", "parallel"]}
        ins(%r, %u : tensor<?x4xf32>, tensor<4xf32>)
        outs(%e : tensor<?x4xf32>) {
    ^bb1(%a: f32, %b: f32, %o: f32):
      %0 = arith.mulf %b, %t : f32
      %1 = arith.mulf %0, %a : f32
      linalg.yield %1 : f32
    } -> tensor<?x4xf32>
    moe.yield %h : tensor<?x4xf32>
  }
  return %y : tensor<8x4xf32>
}
