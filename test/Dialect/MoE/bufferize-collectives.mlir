// RUN: moira-opt %s -split-input-file \
// RUN:     -one-shot-bufferize="bufferize-function-boundaries=true function-boundary-type-conversion=identity-layout-map" \
// RUN:     -canonicalize | FileCheck %s

// CHECK-LABEL: func.func @small
// CHECK-SAME: (%[[MINE:.*]]: memref<8xi32>, %[[SIZES:.*]]: memref<4xi32>)
// CHECK: %[[ALL:.*]] = memref.alloc() {{.*}} : memref<2x8xi32>
// CHECK: moe.all_gather %[[MINE]] outs(%[[ALL]] : memref<2x8xi32>) : memref<8xi32>
// CHECK: %[[M:.*]] = memref.alloc() {{.*}} : memref<2x4xi32>
// CHECK: moe.gather_counts %[[SIZES]] outs(%[[M]] : memref<2x4xi32>) : memref<4xi32>
// CHECK: %[[G:.*]] = memref.alloc() {{.*}} : memref<2xi32>
// CHECK: %[[N:.*]] = moe.receive_sizes %[[M]] at <ranks = 2, experts = 4, slots = 2> equal outs(%[[G]] : memref<2xi32>) : memref<2x4xi32> -> index
// CHECK: return %[[ALL]], %[[G]], %[[N]]
func.func @small(%mine: tensor<8xi32>, %sizes: tensor<4xi32>)
    -> (tensor<2x8xi32>, tensor<2xi32>, index) {
  %all = moe.all_gather %mine : tensor<8xi32> -> tensor<2x8xi32>
  %m = moe.gather_counts %sizes : tensor<4xi32> -> tensor<2x4xi32>
  %groups, %n = moe.receive_sizes %m
      at <ranks = 2, experts = 4, slots = 2> equal
      : tensor<2x4xi32> -> tensor<2xi32>, index
  return %all, %groups, %n : tensor<2x8xi32>, tensor<2xi32>, index
}

// -----

// CHECK-LABEL: func.func @whole
// CHECK-SAME: (%[[ROWS:.*]]: memref<?x8xf32>, %[[M:.*]]: memref<4x2xi32>, %[[N:.*]]: index, %[[BOUND:.*]]: index
// CHECK: %[[AWAY:.*]] = memref.alloc(%[[N]]) {{.*}} : memref<?x8xf32>
// CHECK: moe.exchange to_experts %[[ROWS]], %[[M]], %[[N]] at {{.*}} equal outs(%[[AWAY]] : memref<?x8xf32>) : memref<?x8xf32>, memref<4x2xi32>
// CHECK: %[[BACK:.*]] = memref.alloc(%[[BOUND]]) {{.*}} : memref<2x?x8xf32>
// CHECK: moe.exchange to_tokens %[[AWAY]], %[[M]], %[[BOUND]] at {{.*}} equal outs(%[[BACK]] : memref<2x?x8xf32>)
// CHECK: return %[[BACK]]
func.func @whole(%rows: tensor<?x8xf32>, %m: tensor<4x2xi32>, %n: index,
    %bound: index) -> tensor<2x?x8xf32> {
  %away = moe.exchange to_experts %rows, %m, %n
      at <ranks = 4, experts = 2, shards = 2, copies = 2, slots = 1> equal
      : tensor<?x8xf32>, tensor<4x2xi32> -> tensor<?x8xf32>
  %back = moe.exchange to_tokens %away, %m, %bound
      at <ranks = 4, experts = 2, shards = 2, copies = 2, slots = 1> equal
      : tensor<?x8xf32>, tensor<4x2xi32> -> tensor<2x?x8xf32>
  return %back : tensor<2x?x8xf32>
}

// -----

// The chunk's rows are written where the others stand.
// CHECK-LABEL: func.func @in_place
// CHECK-SAME: (%[[ROWS:.*]]: memref<?x8xf32>, %[[M:.*]]: memref<2x4xi32>,
// CHECK: %[[BACK:.*]] = memref.alloc
// CHECK-NOT: memref.alloc
// CHECK-NOT: memref.copy
// CHECK: scf.for %[[I:.*]] =
// CHECK-NEXT: moe.exchange to_tokens %[[ROWS]], %[[M]], %{{.*}} chunk(%[[I]] of %{{.*}}) outs(%[[BACK]] : memref<?x8xf32>) {moe.queue = "communication"}
// CHECK-NEXT: }
// CHECK: return %[[BACK]]
func.func @in_place(%rows: tensor<?x8xf32>, %m: tensor<2x4xi32>, %bound: index,
    %d: index) -> tensor<?x8xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %init = tensor.empty(%bound) : tensor<?x8xf32>
  %back = scf.for %i = %c0 to %d step %c1 iter_args(%rest = %init)
      -> tensor<?x8xf32> {
    %next = moe.exchange to_tokens %rows, %m, %bound
        at <ranks = 2, experts = 4, slots = 2> equal chunk(%i of %d)
        init(%rest : tensor<?x8xf32>) {moe.queue = "communication"}
        : tensor<?x8xf32>, tensor<2x4xi32> -> tensor<?x8xf32>
    scf.yield %next : tensor<?x8xf32>
  }
  return %back : tensor<?x8xf32>
}

// -----

// What is read afterwards must not be overwritten.
// CHECK-LABEL: func.func @kept
// CHECK: %[[COPY:.*]] = memref.alloc
// CHECK: memref.copy %[[INIT:.*]], %[[COPY]]
// CHECK: moe.exchange to_tokens {{.*}} outs(%[[COPY]] :
// CHECK: return %[[COPY]], %[[INIT]]
func.func @kept(%rows: tensor<?x8xf32>, %m: tensor<2x4xi32>, %bound: index,
    %i: index, %d: index, %init: tensor<?x8xf32>)
    -> (tensor<?x8xf32>, tensor<?x8xf32>) {
  %next = moe.exchange to_tokens %rows, %m, %bound
      at <ranks = 2, experts = 4, slots = 2> equal chunk(%i of %d)
      init(%init : tensor<?x8xf32>)
      : tensor<?x8xf32>, tensor<2x4xi32> -> tensor<?x8xf32>
  return %next, %init : tensor<?x8xf32>, tensor<?x8xf32>
}

// -----

// CHECK-LABEL: func.func @weights
// CHECK-SAME: (%[[W:.*]]: memref<1x64x32xf32>)
// CHECK: %[[ALL:.*]] = memref.alloc() {{.*}} : memref<1x128x32xf32>
// CHECK: moe.gather_weights %[[W]] dim 1 at {{.*}} outs(%[[ALL]] : memref<1x128x32xf32>) : memref<1x64x32xf32>
// CHECK: return %[[ALL]]
func.func @weights(%w: tensor<1x64x32xf32>) -> tensor<1x128x32xf32> {
  %all = moe.gather_weights %w dim 1
      at <ranks = 4, experts = 2, shards = 2, copies = 1, slots = 1>
      : tensor<1x64x32xf32> -> tensor<1x128x32xf32>
  return %all : tensor<1x128x32xf32>
}

// -----

// CHECK-LABEL: func.func @shards
// CHECK: %[[H:.*]] = memref.alloc() {{.*}} : memref<1xi32>
// CHECK: moe.slot_shards at {{.*}} outs(%[[H]] : memref<1xi32>)
// CHECK: return %[[H]]
func.func @shards() -> tensor<1xi32> {
  %h = moe.slot_shards
      at <ranks = 4, experts = 2, shards = 2, copies = 2, slots = 1>
      -> tensor<1xi32>
  return %h : tensor<1xi32>
}

// -----

// Rows are written among those of other chunks.
// CHECK-LABEL: func.func @merged
// CHECK-SAME: (%[[ROWS:.*]]: memref<?x8xf32>, %[[M:.*]]: memref<2x4xi32>,
// CHECK: %[[ALL:.*]] = memref.alloc
// CHECK-NOT: memref.alloc
// CHECK-NOT: memref.copy
// CHECK: scf.for %[[I:.*]] =
// CHECK-NEXT: moe.merge_rows %[[ROWS]], %[[M]] chunk(%[[I]] of %{{.*}}) {{.*}} outs(%[[ALL]] : memref<?x8xf32>) {moe.queue = "compute"}
// CHECK-NEXT: }
// CHECK: return %[[ALL]]
func.func @merged(%rows: tensor<?x8xf32>, %m: tensor<2x4xi32>, %bound: index,
    %d: index) -> tensor<?x8xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %init = tensor.empty(%bound) : tensor<?x8xf32>
  %all = scf.for %i = %c0 to %d step %c1 iter_args(%rest = %init)
      -> tensor<?x8xf32> {
    %next = moe.merge_rows %rows, %m chunk(%i of %d)
        at <ranks = 2, experts = 4, slots = 2> equal
        init(%rest : tensor<?x8xf32>) {moe.queue = "compute"}
        : tensor<?x8xf32>, tensor<2x4xi32> -> tensor<?x8xf32>
    scf.yield %next : tensor<?x8xf32>
  }
  return %all : tensor<?x8xf32>
}
