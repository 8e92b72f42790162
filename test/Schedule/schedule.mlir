// RUN: moira-opt %s -split-input-file \
// RUN:     --pass-pipeline='builtin.module(func.func(moe-schedule,canonicalize))' \
// RUN:   | FileCheck %s --check-prefixes=CHECK,EQUAL
// RUN: moira-opt %s -split-input-file \
// RUN:     --pass-pipeline='builtin.module(func.func(moe-schedule{kind=groups},canonicalize))' \
// RUN:   | FileCheck %s --check-prefixes=CHECK,GROUPS

// Rows and one number per row travel together; both come into the loop, and what
// depends on neither stays outside.
// CHECK-LABEL: func.func @layer
// CHECK-SAME: (%[[ROWS:.*]]: tensor<?x8xf32>, %[[NUMBERS:.*]]: tensor<?x1xf32>,
// CHECK-SAME: %[[M:.*]]: tensor<2x4xi32>, %[[BOUND:.*]]: index, %[[W:.*]]: tensor<2x8x8xf32>)
// EQUAL: %[[D:.*]] = moe.chunks equal {layer = 3 : i64}
// GROUPS: %[[D:.*]] = moe.chunks groups {layer = 3 : i64}
// CHECK: %[[INIT:.*]] = tensor.empty(%[[BOUND]]) : tensor<?x8xf32>
// CHECK: %[[BACK:.*]] = scf.for %[[I:.*]] = %c0 to %[[D]] step %c1 iter_args(%[[REST:.*]] = %[[INIT]])
// EQUAL: %[[S:.*]]:2 = moe.receive_sizes %[[M]] at {{.*}} equal chunk(%[[I]] of %[[D]])
// GROUPS: %[[S:.*]]:2 = moe.receive_sizes %[[M]] at {{.*}} groups chunk(%[[I]] of %[[D]])
// CHECK: %[[AWAY:.*]] = moe.exchange to_experts %[[ROWS]], %[[M]], %[[S]]#1
// CHECK-SAME: chunk(%[[I]] of %[[D]]) {{.*}}moe.queue = "communication", moe.stage = 0
// CHECK: %[[N:.*]] = moe.exchange to_experts %[[NUMBERS]], %[[M]], %[[S]]#1
// CHECK-SAME: moe.stage = 0
// CHECK: moe.expert rows(%[[AWAY]], %[[N]] : {{.*}}) groups(%[[S]]#0
// CHECK-SAME: moe.queue = "compute", moe.stage = 1
// CHECK: linalg.generic {{.*}} attrs = {moe.queue = "compute", moe.stage = 1 : i64}
// CHECK: %[[NEXT:.*]] = moe.exchange to_tokens %{{.*}}, %[[M]], %[[BOUND]]
// CHECK-SAME: init(%[[REST]] : tensor<?x8xf32>) {{.*}}moe.stage = 2
// CHECK: scf.yield %[[NEXT]]
// CHECK: return %[[BACK]]
func.func @layer(%rows: tensor<?x8xf32>, %numbers: tensor<?x1xf32>,
    %m: tensor<2x4xi32>, %bound: index, %w: tensor<2x8x8xf32>) -> tensor<?x8xf32> {
  %groups, %n = moe.receive_sizes %m
      at <ranks = 2, experts = 4, slots = 2> equal {layer = 3 : i64}
      : tensor<2x4xi32> -> tensor<2xi32>, index
  %away = moe.exchange to_experts %rows, %m, %n
      at <ranks = 2, experts = 4, slots = 2> equal {layer = 3 : i64}
      : tensor<?x8xf32>, tensor<2x4xi32> -> tensor<?x8xf32>
  %scales = moe.exchange to_experts %numbers, %m, %n
      at <ranks = 2, experts = 4, slots = 2> equal {layer = 3 : i64}
      : tensor<?x1xf32>, tensor<2x4xi32> -> tensor<?x1xf32>
  %out = moe.expert rows(%away, %scales : tensor<?x8xf32>, tensor<?x1xf32>)
      groups(%groups : tensor<2xi32>) per_expert(%w : tensor<2x8x8xf32>)
      -> tensor<?x8xf32> {
  ^bb0(%r: tensor<?x8xf32>, %s: tensor<?x1xf32>, %we: tensor<8x8xf32>):
    %i0 = arith.constant 0 : index
    %k = tensor.dim %r, %i0 : tensor<?x8xf32>
    %o = tensor.empty(%k) : tensor<?x8xf32>
    %f = linalg.generic {
        indexing_maps = [affine_map<(m, n) -> (m, 0)>, affine_map<(m, n) -> (m, n)>],
        iterator_types = ["parallel", "parallel"]}
        ins(%s : tensor<?x1xf32>) outs(%o : tensor<?x8xf32>) {
    ^bb0(%a: f32, %b: f32):
      linalg.yield %a : f32
    } -> tensor<?x8xf32>
    %y = linalg.matmul ins(%r, %we : tensor<?x8xf32>, tensor<8x8xf32>)
        outs(%f : tensor<?x8xf32>) -> tensor<?x8xf32>
    moe.yield %y : tensor<?x8xf32>
  }
  %e = tensor.empty(%n) : tensor<?x8xf32>
  %scaled = linalg.generic {
      indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, 0)>,
                       affine_map<(m, n) -> (m, n)>],
      iterator_types = ["parallel", "parallel"]}
      ins(%out, %scales : tensor<?x8xf32>, tensor<?x1xf32>)
      outs(%e : tensor<?x8xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.mulf %a, %b : f32
    linalg.yield %p : f32
  } -> tensor<?x8xf32>
  %back = moe.exchange to_tokens %scaled, %m, %bound
      at <ranks = 2, experts = 4, slots = 2> equal {layer = 3 : i64}
      : tensor<?x8xf32>, tensor<2x4xi32> -> tensor<?x8xf32>
  return %back : tensor<?x8xf32>
}

// -----

// Copies of rows come back one above the other.
// CHECK-LABEL: func.func @copies
// CHECK: tensor.empty(%{{.*}}) : tensor<2x?x8xf32>
// CHECK: scf.for {{.*}} -> (tensor<2x?x8xf32>)
// CHECK: moe.exchange to_tokens {{.*}} init(%{{.*}} : tensor<2x?x8xf32>)
func.func @copies(%rows: tensor<?x8xf32>, %m: tensor<4x2xi32>, %bound: index)
    -> tensor<2x?x8xf32> {
  %groups, %n = moe.receive_sizes %m
      at <ranks = 4, experts = 2, shards = 2, copies = 2, slots = 1> equal
      : tensor<4x2xi32> -> tensor<1xi32>, index
  %away = moe.exchange to_experts %rows, %m, %n
      at <ranks = 4, experts = 2, shards = 2, copies = 2, slots = 1> equal
      : tensor<?x8xf32>, tensor<4x2xi32> -> tensor<?x8xf32>
  %back = moe.exchange to_tokens %away, %m, %bound
      at <ranks = 4, experts = 2, shards = 2, copies = 2, slots = 1> equal
      : tensor<?x8xf32>, tensor<4x2xi32> -> tensor<2x?x8xf32>
  return %back : tensor<2x?x8xf32>
}

// -----

// Two layers are two loops, in order; running again changes nothing.
// CHECK-LABEL: func.func @two
// CHECK: moe.chunks {{.*}} {layer = 0 : i64}
// CHECK: scf.for
// CHECK: moe.chunks {{.*}} {layer = 1 : i64}
// CHECK: scf.for
// CHECK-NOT: scf.for
func.func @two(%rows: tensor<?x8xf32>, %m: tensor<2x4xi32>, %k: tensor<2x4xi32>,
    %bound: index) -> tensor<?x8xf32> {
  %groups, %n = moe.receive_sizes %m
      at <ranks = 2, experts = 4, slots = 2> equal {layer = 0 : i64}
      : tensor<2x4xi32> -> tensor<2xi32>, index
  %away = moe.exchange to_experts %rows, %m, %n
      at <ranks = 2, experts = 4, slots = 2> equal {layer = 0 : i64}
      : tensor<?x8xf32>, tensor<2x4xi32> -> tensor<?x8xf32>
  %back = moe.exchange to_tokens %away, %m, %bound
      at <ranks = 2, experts = 4, slots = 2> equal {layer = 0 : i64}
      : tensor<?x8xf32>, tensor<2x4xi32> -> tensor<?x8xf32>
  %groups1, %n1 = moe.receive_sizes %k
      at <ranks = 2, experts = 4, slots = 2> equal {layer = 1 : i64}
      : tensor<2x4xi32> -> tensor<2xi32>, index
  %away1 = moe.exchange to_experts %back, %k, %n1
      at <ranks = 2, experts = 4, slots = 2> equal {layer = 1 : i64}
      : tensor<?x8xf32>, tensor<2x4xi32> -> tensor<?x8xf32>
  %back1 = moe.exchange to_tokens %away1, %k, %bound
      at <ranks = 2, experts = 4, slots = 2> equal {layer = 1 : i64}
      : tensor<?x8xf32>, tensor<2x4xi32> -> tensor<?x8xf32>
  return %back1 : tensor<?x8xf32>
}
