// RUN: moira-opt %s -canonicalize | FileCheck %s

// One rank without spare slots has all the sums.

// CHECK-LABEL: func.func @alone
// CHECK-SAME: %[[W:[^:]*]]: tensor<4x8x8xf32>
// CHECK-NEXT: return %[[W]]
func.func @alone(%w: tensor<4x8x8xf32>) -> tensor<4x8x8xf32> {
  %0 = moe.reduce_weights %w at <ranks = 1, experts = 4, copies = 0, slots = 4>
      : tensor<4x8x8xf32> -> tensor<4x8x8xf32>
  return %0 : tensor<4x8x8xf32>
}

// Each shard stands once, and its slot alone computes with it.

// CHECK-LABEL: func.func @once
// CHECK-SAME: %[[W:[^:]*]]: tensor<1x64x32xf32>
// CHECK-NEXT: return %[[W]], %[[W]]
func.func @once(%w: tensor<1x64x32xf32>) -> (tensor<1x64x32xf32>, tensor<1x64x32xf32>) {
  %0 = moe.reduce_weights %w dim 1 at <ranks = 4, experts = 2, shards = 2, copies = 2, slots = 1>
      : tensor<1x64x32xf32> -> tensor<1x64x32xf32>
  %1 = moe.gather_weights %w dim 1 at <ranks = 4, experts = 2, shards = 2, copies = 2, slots = 1>
      : tensor<1x64x32xf32> -> tensor<1x64x32xf32>
  return %0, %1 : tensor<1x64x32xf32>, tensor<1x64x32xf32>
}

// All holders of an expert have its bias; spare slots may hold replicas.

// CHECK-LABEL: func.func @several
// CHECK-COUNT-2: moe.reduce_weights
// CHECK: moe.gather_weights
func.func @several(%b: tensor<1x32xf32>, %w: tensor<2x64x32xf32>)
    -> (tensor<1x32xf32>, tensor<2x64x32xf32>, tensor<2x64x32xf32>) {
  %0 = moe.reduce_weights %b at <ranks = 4, experts = 2, shards = 2, copies = 2, slots = 1>
      : tensor<1x32xf32> -> tensor<1x32xf32>
  %1 = moe.reduce_weights %w dim 1 at <ranks = 4, experts = 2, shards = 2, copies = 2, slots = 2>
      : tensor<2x64x32xf32> -> tensor<2x64x32xf32>
  %2 = moe.gather_weights %w dim 1 at <ranks = 4, experts = 2, shards = 2, copies = 2, slots = 2>
      : tensor<2x64x32xf32> -> tensor<2x64x32xf32>
  return %0, %1, %2 : tensor<1x32xf32>, tensor<2x64x32xf32>, tensor<2x64x32xf32>
}
