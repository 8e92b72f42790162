// RUN: moira-opt %s -pass-pipeline='builtin.module(func.func(moe-schedule{kind=equal}))' | FileCheck %s

// What the way back needs of rows at the experts is kept as one chunk would have
// brought it; sizes are those of all chunks.

// CHECK-LABEL: func.func @main
// CHECK-SAME: (%[[ROWS:.*]]: tensor<?x8xf32>, %[[M:.*]]: tensor<2x4xi32>, %[[W:.*]]: tensor<2x16x8xf32>, %[[BOUND:.*]]: index)
// CHECK: %[[S:.*]]:2 = moe.receive_sizes %[[M]] at <ranks = 2, experts = 4, slots = 2> equal {layer = 0 : i64}
// CHECK: %[[D:.*]] = moe.chunks equal {layer = 0 : i64}
// CHECK-DAG: %[[E0:.*]] = tensor.empty(%[[BOUND]]) : tensor<?x16xf32>
// CHECK-DAG: %[[E1:.*]] = tensor.empty(%[[S]]#1) : tensor<?x8xf32>
// CHECK-DAG: %[[E2:.*]] = tensor.empty(%[[S]]#1) : tensor<?x16xf32>
// CHECK: %[[L:.*]]:3 = scf.for %[[I:.*]] = %{{.*}} to %[[D]] step %{{.*}} iter_args(%[[A0:.*]] = %[[E0]], %[[A1:.*]] = %[[E1]], %[[A2:.*]] = %[[E2]])
// CHECK: moe.receive_sizes {{.*}} chunk(%[[I]] of %[[D]])
// CHECK: %[[AWAY:.*]] = moe.exchange to_experts {{.*}} chunk(%[[I]] of %[[D]])
// CHECK: %[[Y:.*]]:2 = moe.expert rows(%[[AWAY]]
// CHECK: %[[B:.*]] = moe.exchange to_tokens %[[Y]]#0, {{.*}} init(%[[A0]]
// CHECK: %[[X:.*]] = moe.merge_rows %[[AWAY]], %[[M]] chunk(%[[I]] of %[[D]]) at <ranks = 2, experts = 4, slots = 2> equal init(%[[A1]] : tensor<?x8xf32>) {layer = 0 : i64, moe.queue = "compute", moe.stage = 1 : i64}
// CHECK: %[[H:.*]] = moe.merge_rows %[[Y]]#1, %[[M]] chunk(%[[I]] of %[[D]]) {{.*}} init(%[[A2]] : tensor<?x16xf32>)
// CHECK: scf.yield %[[B]], %[[X]], %[[H]]
// CHECK: return %[[L]]#0, %[[S]]#0, %[[S]]#1, %[[L]]#1, %[[L]]#2
func.func @main(%rows: tensor<?x8xf32>, %m: tensor<2x4xi32>, %w: tensor<2x16x8xf32>, %bound: index)
    -> (tensor<?x16xf32>, tensor<2xi32>, index, tensor<?x8xf32>, tensor<?x16xf32>)
    attributes {moe.backward = @main_backward, moe.residuals = 4 : i64} {
  %g, %n = moe.receive_sizes %m at <ranks = 2, experts = 4, slots = 2> equal {layer = 0 : i64}
      : tensor<2x4xi32> -> tensor<2xi32>, index
  %away = moe.exchange to_experts %rows, %m, %n at <ranks = 2, experts = 4, slots = 2> equal {layer = 0 : i64}
      : tensor<?x8xf32>, tensor<2x4xi32> -> tensor<?x8xf32>
  %y, %h = moe.expert rows(%away : tensor<?x8xf32>) groups(%g : tensor<2xi32>)
      per_expert(%w : tensor<2x16x8xf32>) -> tensor<?x16xf32>, tensor<?x16xf32> attributes {layer = 0 : i64} {
  ^bb0(%r: tensor<?x8xf32>, %we: tensor<16x8xf32>):
    %c0 = arith.constant 0 : index
    %z = arith.constant 0.0 : f32
    %t = tensor.dim %r, %c0 : tensor<?x8xf32>
    %e = tensor.empty(%t) : tensor<?x16xf32>
    %f = linalg.fill ins(%z : f32) outs(%e : tensor<?x16xf32>) -> tensor<?x16xf32>
    %p = linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>,
        affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
        ins(%r, %we : tensor<?x8xf32>, tensor<16x8xf32>) outs(%f : tensor<?x16xf32>) -> tensor<?x16xf32>
    %a = math.tanh %p : tensor<?x16xf32>
    moe.yield %a, %p : tensor<?x16xf32>, tensor<?x16xf32>
  }
  %back = moe.exchange to_tokens %y, %m, %bound at <ranks = 2, experts = 4, slots = 2> equal {layer = 0 : i64}
      : tensor<?x16xf32>, tensor<2x4xi32> -> tensor<?x16xf32>
  return %back, %g, %n, %away, %h
      : tensor<?x16xf32>, tensor<2xi32>, index, tensor<?x8xf32>, tensor<?x16xf32>
}

// The way back is in one piece. Its exchanges begin where the gradients are there,
// before what the experts do not need.

// CHECK-LABEL: func.func @main_backward
// CHECK-SAME: %[[D:[^:]*]]: tensor<?x16xf32>, %[[S:[^:]*]]: tensor<?x1xi32>
// CHECK: %[[R:.*]] = moe.dispatch %[[D]], %[[S]]
// CHECK-NEXT: %[[A:.*]] = moe.exchange to_experts %[[R]], {{.*}} {layer = 0 : i64, moe.queue = "communication"}
// CHECK: math.exp
// CHECK: moe.expert rows(%{{.*}}, %[[A]] :
// CHECK-NOT: scf.for
// CHECK: moe.exchange to_tokens {{.*}} {layer = 0 : i64, moe.queue = "communication"}
func.func @main_backward(%g: tensor<2xi32>, %n: index, %x: tensor<?x8xf32>, %h: tensor<?x16xf32>,
    %m: tensor<2x4xi32>, %w: tensor<2x16x8xf32>, %d: tensor<?x16xf32>, %slots: tensor<?x1xi32>,
    %sizes: tensor<4xi32>, %bound: index, %other: tensor<8xf32>)
    -> (tensor<?x8xf32>, tensor<2x16x8xf32>, tensor<8xf32>) {
  %dense = math.exp %other : tensor<8xf32>
  %rows = moe.dispatch %d, %slots, %sizes, %bound
      : tensor<?x16xf32>, tensor<?x1xi32>, tensor<4xi32> -> tensor<?x16xf32>
  %away = moe.exchange to_experts %rows, %m, %n at <ranks = 2, experts = 4, slots = 2> equal {layer = 0 : i64}
      : tensor<?x16xf32>, tensor<2x4xi32> -> tensor<?x16xf32>
  %dx, %dw = moe.expert rows(%x, %away : tensor<?x8xf32>, tensor<?x16xf32>) groups(%g : tensor<2xi32>)
      per_expert(%w : tensor<2x16x8xf32>) -> tensor<?x8xf32>, tensor<2x16x8xf32> {
  ^bb0(%r: tensor<?x8xf32>, %de: tensor<?x16xf32>, %we: tensor<16x8xf32>):
    %c0 = arith.constant 0 : index
    %z = arith.constant 0.0 : f32
    %t = tensor.dim %r, %c0 : tensor<?x8xf32>
    %e = tensor.empty(%t) : tensor<?x8xf32>
    %f = linalg.fill ins(%z : f32) outs(%e : tensor<?x8xf32>) -> tensor<?x8xf32>
    %p = linalg.matmul ins(%de, %we : tensor<?x16xf32>, tensor<16x8xf32>) outs(%f : tensor<?x8xf32>) -> tensor<?x8xf32>
    %ew = tensor.empty() : tensor<16x8xf32>
    %fw = linalg.fill ins(%z : f32) outs(%ew : tensor<16x8xf32>) -> tensor<16x8xf32>
    %q = linalg.generic {indexing_maps = [affine_map<(n, k, t) -> (t, n)>,
        affine_map<(n, k, t) -> (t, k)>, affine_map<(n, k, t) -> (n, k)>],
        iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%de, %r : tensor<?x16xf32>, tensor<?x8xf32>) outs(%fw : tensor<16x8xf32>) {
    ^bb1(%a: f32, %b: f32, %o: f32):
      %v = arith.mulf %a, %b : f32
      %s = arith.addf %o, %v : f32
      linalg.yield %s : f32
    } -> tensor<16x8xf32>
    moe.yield %p, %q : tensor<?x8xf32>, tensor<16x8xf32>
  }
  %home = moe.exchange to_tokens %dx, %m, %bound at <ranks = 2, experts = 4, slots = 2> equal {layer = 0 : i64}
      : tensor<?x8xf32>, tensor<2x4xi32> -> tensor<?x8xf32>
  return %home, %dw, %dense : tensor<?x8xf32>, tensor<2x16x8xf32>, tensor<8xf32>
}
