// RUN: moira-opt %s \
// RUN:     -one-shot-bufferize="bufferize-function-boundaries=true function-boundary-type-conversion=identity-layout-map" \
// RUN:     -canonicalize | FileCheck %s

// CHECK-LABEL: func.func @sums
// CHECK-SAME: (%[[LOSS:.*]]: memref<f32>, %[[ROWS:.*]]: memref<?x3xf32>, %[[W:.*]]: memref<1x128x32xf32>)
// CHECK: %[[SUM:.*]] = memref.alloc() {{.*}} : memref<f32>
// CHECK: moe.all_reduce %[[LOSS]] outs(%[[SUM]] : memref<f32>) : memref<f32>
// CHECK: %[[N:.*]] = memref.dim %[[ROWS]]
// CHECK: %[[SUMS:.*]] = memref.alloc(%[[N]]) {{.*}} : memref<?x3xf32>
// CHECK: moe.all_reduce %[[ROWS]] outs(%[[SUMS]] : memref<?x3xf32>) : memref<?x3xf32>
// CHECK: %[[SHARDS:.*]] = memref.alloc() {{.*}} : memref<1x64x32xf32>
// CHECK: moe.reduce_weights %[[W]] dim 1 at {{.*}} outs(%[[SHARDS]] : memref<1x64x32xf32>) : memref<1x128x32xf32>
// CHECK: return %[[SUM]], %[[SUMS]], %[[SHARDS]]
func.func @sums(%loss: tensor<f32>, %rows: tensor<?x3xf32>, %w: tensor<1x128x32xf32>)
    -> (tensor<f32>, tensor<?x3xf32>, tensor<1x64x32xf32>) {
  %0 = moe.all_reduce %loss : tensor<f32> -> tensor<f32>
  %1 = moe.all_reduce %rows : tensor<?x3xf32> -> tensor<?x3xf32>
  %2 = moe.reduce_weights %w dim 1
      at <ranks = 4, experts = 2, shards = 2, copies = 1, slots = 1>
      : tensor<1x128x32xf32> -> tensor<1x64x32xf32>
  return %0, %1, %2 : tensor<f32>, tensor<?x3xf32>, tensor<1x64x32xf32>
}
