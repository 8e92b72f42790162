// RUN: moira-opt %s --verify-roundtrip | FileCheck %s
// RUN: moira-opt %s --mlir-print-op-generic | moira-opt --verify-roundtrip | FileCheck %s

// Sums over ranks on tensors, in buffer form, and their asynchronous forms.

// CHECK-LABEL: func.func @tensors
func.func @tensors(%loss: tensor<f32>, %counts: tensor<?x3xi64>, %router: tensor<8x64xbf16>,
    %w: tensor<1x128x32xf32>, %b: tensor<2x32xf64>) {
  // CHECK: moe.all_reduce %{{.*}} : tensor<f32> -> tensor<f32>
  %0 = moe.all_reduce %loss : tensor<f32> -> tensor<f32>
  // CHECK: moe.all_reduce %{{.*}} {layer = 1 : i64} : tensor<?x3xi64> -> tensor<?x3xi64>
  %1 = moe.all_reduce %counts {layer = 1 : i64} : tensor<?x3xi64> -> tensor<?x3xi64>
  // CHECK: moe.replicate %{{.*}} : tensor<8x64xbf16>
  %2 = moe.replicate %router : tensor<8x64xbf16>
  // CHECK: moe.reduce_weights %{{.*}} dim 1 at <ranks = 4, experts = 2, shards = 2, slots = 1> {parts = 2 : i64} : tensor<1x128x32xf32> -> tensor<1x64x32xf32>
  %3 = moe.reduce_weights %w dim 1 at <ranks = 4, experts = 2, shards = 2, slots = 1>
      {parts = 2 : i64} : tensor<1x128x32xf32> -> tensor<1x64x32xf32>
  // CHECK: moe.reduce_weights %{{.*}} at <ranks = 4, experts = 2, shards = 2, copies = 0, slots = 1> : tensor<2x32xf64> -> tensor<1x32xf64>
  %4 = moe.reduce_weights %b at <ranks = 4, experts = 2, shards = 2, copies = 0, slots = 1>
      : tensor<2x32xf64> -> tensor<1x32xf64>
  // With copies and without a dim nothing moves in one direction.
  // CHECK: moe.gather_weights %{{.*}} at <ranks = 4, experts = 2, shards = 2, slots = 1> : tensor<1x32xf64> -> tensor<1x32xf64>
  %5 = moe.gather_weights %4 at <ranks = 4, experts = 2, shards = 2, slots = 1>
      : tensor<1x32xf64> -> tensor<1x32xf64>
  return
}

// CHECK-LABEL: func.func @buffers
func.func @buffers(%loss: memref<f32>, %sum: memref<f32>, %whole: memref<8x64x32xf32>,
    %mine: memref<2x64x32xf32>) {
  // CHECK: moe.all_reduce %{{.*}} outs(%{{.*}} : memref<f32>) : memref<f32>
  moe.all_reduce %loss outs(%sum : memref<f32>) : memref<f32>
  // CHECK: moe.reduce_weights %{{.*}} at <ranks = 4, experts = 8, copies = 0, slots = 2> outs(%{{.*}} : memref<2x64x32xf32>) : memref<8x64x32xf32>
  moe.reduce_weights %whole at <ranks = 4, experts = 8, copies = 0, slots = 2>
      outs(%mine : memref<2x64x32xf32>) : memref<8x64x32xf32>
  // CHECK: %[[A:.*]] = moe.start_all_reduce %{{.*}}, %{{.*}} : memref<f32>, memref<f32>
  %a = moe.start_all_reduce %loss, %sum : memref<f32>, memref<f32>
  // CHECK: %[[R:.*]] = moe.start_reduce %{{.*}}, %{{.*}} replicated at <ranks = 4, experts = 8, copies = 0, slots = 2> {layer = 2 : i64} : memref<8x64x32xf32>, memref<2x64x32xf32>
  %r = moe.start_reduce %whole, %mine replicated at <ranks = 4, experts = 8, copies = 0, slots = 2>
      {layer = 2 : i64} : memref<8x64x32xf32>, memref<2x64x32xf32>
  // CHECK: moe.wait %[[A]]
  moe.wait %a
  // CHECK: moe.wait %[[R]]
  moe.wait %r
  return
}
