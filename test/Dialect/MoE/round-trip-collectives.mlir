// RUN: moira-opt %s --verify-roundtrip | FileCheck %s
// RUN: moira-opt %s --mlir-print-op-generic | moira-opt --verify-roundtrip | FileCheck %s

// Collectives on tensors, in buffer form, and their asynchronous forms.

// CHECK-LABEL: func.func @tensors
// CHECK-SAME: moe.shard = #moe.shard<experts = 2, shards = 2, dim = 0, parts = 2, interleaved = true>
func.func @tensors(%rows: tensor<?x64xbf16>, %sizes: tensor<2xi32>, %home: index,
    %w: tensor<1x64x32xf32> {moe.param = #moe.param<"w{}">,
        moe.shard = #moe.shard<experts = 2, shards = 2, dim = 0, parts = 2, interleaved = true>},
    %blocks: tensor<4xi32> {moe.blocks}) {
  // CHECK: %[[P:.*]] = moe.rank
  %p = moe.rank
  // CHECK: moe.all_gather %{{.*}} : tensor<2xi32> -> tensor<4x2xi32>
  %all = moe.all_gather %sizes : tensor<2xi32> -> tensor<4x2xi32>
  // CHECK: %[[M:.*]] = moe.gather_counts %{{.*}} {layer = 3 : i64} : tensor<2xi32> -> tensor<4x2xi32>
  %m = moe.gather_counts %sizes {layer = 3 : i64} : tensor<2xi32> -> tensor<4x2xi32>
  // CHECK: %[[D:.*]] = moe.chunks equal {layer = 3 : i64}
  %d = moe.chunks equal {layer = 3 : i64}
  // CHECK: moe.slot_shards at <ranks = 4, experts = 2, shards = 2, copies = 2, slots = 1> -> tensor<1xi32>
  %h = moe.slot_shards at <ranks = 4, experts = 2, shards = 2, copies = 2, slots = 1> -> tensor<1xi32>
  // CHECK: %[[G:.*]]:2 = moe.receive_sizes %[[M]] at <ranks = 4, experts = 2, shards = 2, copies = 2, slots = 1> equal chunk(%[[P]] of %[[D]]) : tensor<4x2xi32> -> tensor<1xi32>, index
  %groups, %bound = moe.receive_sizes %m
      at <ranks = 4, experts = 2, shards = 2, copies = 2, slots = 1> equal chunk(%p of %d)
      : tensor<4x2xi32> -> tensor<1xi32>, index
  // CHECK: %[[A:.*]] = moe.exchange to_experts %{{.*}}, %[[M]], %[[G]]#1 at <ranks = 4, experts = 2, shards = 2, copies = 2, slots = 1> groups chunk(%[[P]] of %[[D]]) : tensor<?x64xbf16>, tensor<4x2xi32> -> tensor<?x64xbf16>
  %away = moe.exchange to_experts %rows, %m, %bound
      at <ranks = 4, experts = 2, shards = 2, copies = 2, slots = 1> groups chunk(%p of %d)
      : tensor<?x64xbf16>, tensor<4x2xi32> -> tensor<?x64xbf16>
  // CHECK: %[[B:.*]] = moe.exchange to_tokens %[[A]], %[[M]], %{{.*}} at <ranks = 4, experts = 2, shards = 2, copies = 2, slots = 1> equal : tensor<?x64xbf16>, tensor<4x2xi32> -> tensor<2x?x64xbf16>
  %back = moe.exchange to_tokens %away, %m, %home
      at <ranks = 4, experts = 2, shards = 2, copies = 2, slots = 1> equal
      : tensor<?x64xbf16>, tensor<4x2xi32> -> tensor<2x?x64xbf16>
  // CHECK: moe.exchange to_tokens {{.*}} equal chunk(%[[P]] of %[[D]]) init(%[[B]] : tensor<2x?x64xbf16>) : tensor<?x64xbf16>
  %more = moe.exchange to_tokens %away, %m, %home
      at <ranks = 4, experts = 2, shards = 2, copies = 2, slots = 1> equal chunk(%p of %d)
      init(%back : tensor<2x?x64xbf16>) : tensor<?x64xbf16>, tensor<4x2xi32> -> tensor<2x?x64xbf16>
  // CHECK: moe.gather_weights %{{.*}} dim 1 at <ranks = 4, experts = 2, shards = 2, slots = 1> {parts = 2 : i64} : tensor<1x64x32xf32> -> tensor<1x128x32xf32>
  %w1 = moe.gather_weights %w dim 1 at <ranks = 4, experts = 2, shards = 2, slots = 1>
      {parts = 2 : i64} : tensor<1x64x32xf32> -> tensor<1x128x32xf32>
  // CHECK: moe.gather_weights %{{.*}} at <ranks = 4, experts = 2, shards = 2, copies = 0, slots = 1> : tensor<1x64x32xf32> -> tensor<2x64x32xf32>
  %w0 = moe.gather_weights %w at <ranks = 4, experts = 2, shards = 2, copies = 0, slots = 1>
      : tensor<1x64x32xf32> -> tensor<2x64x32xf32>
  return
}

// CHECK-LABEL: func.func @buffers
func.func @buffers(%rows: memref<?x64xf32>, %sizes: memref<8xi32>, %m: memref<4x8xi32>,
    %groups: memref<2xi32>, %away: memref<?x64xf32>, %bound: index,
    %w: memref<2x64x32xf32>, %all: memref<8x64x32xf32>) {
  // CHECK: moe.all_gather %{{.*}} outs(%{{.*}} : memref<4x8xi32>) : memref<8xi32>
  moe.all_gather %sizes outs(%m : memref<4x8xi32>) : memref<8xi32>
  // CHECK: moe.gather_counts %{{.*}} outs(%{{.*}} : memref<4x8xi32>) : memref<8xi32>
  moe.gather_counts %sizes outs(%m : memref<4x8xi32>) : memref<8xi32>
  // CHECK: moe.slot_shards at <ranks = 4, experts = 8, slots = 2> outs(%{{.*}} : memref<2xi32>)
  moe.slot_shards at <ranks = 4, experts = 8, slots = 2> outs(%groups : memref<2xi32>)
  // CHECK: moe.exchange to_experts {{.*}} equal outs(%{{.*}} : memref<?x64xf32>) : memref<?x64xf32>, memref<4x8xi32>
  moe.exchange to_experts %rows, %m, %bound at <ranks = 4, experts = 8, slots = 2> equal
      outs(%away : memref<?x64xf32>) : memref<?x64xf32>, memref<4x8xi32>
  // CHECK: moe.gather_weights %{{.*}} at <ranks = 4, experts = 8, copies = 0, slots = 2> outs(%{{.*}} : memref<8x64x32xf32>) : memref<2x64x32xf32>
  moe.gather_weights %w at <ranks = 4, experts = 8, copies = 0, slots = 2>
      outs(%all : memref<8x64x32xf32>) : memref<2x64x32xf32>
  // CHECK: %[[T:.*]] = moe.start_exchange to_tokens {{.*}} chunk(%{{.*}} of %{{.*}}) at <ranks = 4, experts = 8, slots = 2> equal
  %t = moe.start_exchange to_tokens %rows, %away, %m chunk(%bound of %bound)
      at <ranks = 4, experts = 8, slots = 2> equal
      : memref<?x64xf32>, memref<?x64xf32>, memref<4x8xi32>
  // CHECK: moe.start_gather %{{.*}}, %{{.*}} replicated at <ranks = 4, experts = 8, copies = 0, slots = 2>
  %g = moe.start_gather %w, %all replicated at <ranks = 4, experts = 8, copies = 0, slots = 2>
      : memref<2x64x32xf32>, memref<8x64x32xf32>
  // CHECK: moe.wait %[[T]]
  moe.wait %t
  return
}

// CHECK-LABEL: func.func @merges
func.func @merges(%rows: tensor<?x64xbf16>, %m: tensor<4x2xi32>, %i: index, %d: index,
    %all: tensor<?x64xbf16>, %a: memref<?x64xf32>, %b: memref<?x64xf32>, %n: memref<4x2xi32>)
    -> tensor<?x64xbf16> {
  // CHECK: moe.merge_rows %{{.*}}, %{{.*}} chunk(%{{.*}} of %{{.*}}) at <ranks = 4, experts = 2, shards = 2, slots = 1> groups init(%{{.*}} : tensor<?x64xbf16>) {layer = 1 : i64} : tensor<?x64xbf16>, tensor<4x2xi32> -> tensor<?x64xbf16>
  %0 = moe.merge_rows %rows, %m chunk(%i of %d)
      at <ranks = 4, experts = 2, shards = 2, slots = 1> groups
      init(%all : tensor<?x64xbf16>) {layer = 1 : i64}
      : tensor<?x64xbf16>, tensor<4x2xi32> -> tensor<?x64xbf16>
  // CHECK: moe.merge_rows {{.*}} equal outs(%{{.*}} : memref<?x64xf32>) : memref<?x64xf32>, memref<4x2xi32>
  moe.merge_rows %a, %n chunk(%i of %d)
      at <ranks = 4, experts = 2, shards = 2, slots = 1> equal
      outs(%b : memref<?x64xf32>) : memref<?x64xf32>, memref<4x2xi32>
  return %0 : tensor<?x64xbf16>
}
