// RUN: moira-opt %s --moe-assign-layouts | FileCheck %s

// Gathers of weights that no kernel reads become concatenations of memory.

// CHECK-LABEL: func.func @second_dim
// CHECK-SAME: %[[W:[^:]*]]: tensor<1x6x8xf32>
// CHECK: %[[E:.*]] = tensor.expand_shape %[[W]] {{\[\[}}0, 1], [2], [3]] output_shape [1, 1, 6, 8] : tensor<1x6x8xf32> into tensor<1x1x6x8xf32>
// CHECK: %[[A:.*]] = moe.gather_weights %[[E]] dim 1 at <ranks = 4, experts = 2, shards = 2, slots = 1> : tensor<1x1x6x8xf32> -> tensor<1x2x6x8xf32>
// CHECK: %[[T:.*]] = linalg.transpose ins(%[[A]] : tensor<1x2x6x8xf32>) outs(%{{.*}} : tensor<1x6x2x8xf32>) permutation = [0, 2, 1, 3]
// CHECK: tensor.collapse_shape %[[T]] {{\[\[}}0], [1], [2, 3]] : tensor<1x6x2x8xf32> into tensor<1x6x16xf32>
func.func @second_dim(%w: tensor<1x6x8xf32> {moe.param = #moe.param<"w{}">,
        moe.shard = #moe.shard<experts = 2, shards = 2, dim = 1>}) -> tensor<1x6x16xf32> {
  %0 = moe.gather_weights %w dim 2 at <ranks = 4, experts = 2, shards = 2, slots = 1>
      : tensor<1x6x8xf32> -> tensor<1x6x16xf32>
  return %0 : tensor<1x6x16xf32>
}

// Two experts, each of two parts: [gate; up] of all shards.

// CHECK-LABEL: func.func @parts
// CHECK: tensor.expand_shape %{{.*}} {{\[\[}}0, 1], [2, 3], [4]] output_shape [1, 1, 2, 4, 6] : tensor<1x8x6xf32> into tensor<1x1x2x4x6xf32>
// CHECK: %[[A:.*]] = moe.gather_weights %{{.*}} dim 1 at <ranks = 4, experts = 2, shards = 2, copies = 0, slots = 1> : tensor<1x1x2x4x6xf32> -> tensor<2x2x2x4x6xf32>
// CHECK: linalg.transpose ins(%[[A]] : {{.*}}) outs(%{{.*}} : tensor<2x2x2x4x6xf32>) permutation = [0, 2, 1, 3, 4]
// CHECK: tensor.collapse_shape %{{.*}} {{\[\[}}0], [1, 2, 3], [4]] : tensor<2x2x2x4x6xf32> into tensor<2x16x6xf32>
func.func @parts(%w: tensor<1x8x6xf32> {moe.param = #moe.param<"w{}">,
        moe.shard = #moe.shard<experts = 2, shards = 2, dim = 0, parts = 2>}) -> tensor<2x16x6xf32> {
  %0 = moe.gather_weights %w dim 1 at <ranks = 4, experts = 2, shards = 2, copies = 0, slots = 1>
      {parts = 2 : i64} : tensor<1x8x6xf32> -> tensor<2x16x6xf32>
  return %0 : tensor<2x16x6xf32>
}

// Sums of gradients, the other way round.

// CHECK-LABEL: func.func @sums_of_second_dim
// CHECK-SAME: %[[W:[^:]*]]: tensor<1x6x16xf32>
// CHECK: %[[E:.*]] = tensor.expand_shape %[[W]] {{\[\[}}0], [1], [2, 3]] output_shape [1, 6, 2, 8] : tensor<1x6x16xf32> into tensor<1x6x2x8xf32>
// CHECK: %[[T:.*]] = linalg.transpose ins(%[[E]] : tensor<1x6x2x8xf32>) outs(%{{.*}} : tensor<1x2x6x8xf32>) permutation = [0, 2, 1, 3]
// CHECK: %[[S:.*]] = moe.reduce_weights %[[T]] dim 1 at <ranks = 4, experts = 2, shards = 2, slots = 1> : tensor<1x2x6x8xf32> -> tensor<1x1x6x8xf32>
// CHECK: tensor.collapse_shape %[[S]] {{\[\[}}0, 1], [2], [3]] : tensor<1x1x6x8xf32> into tensor<1x6x8xf32>
func.func @sums_of_second_dim(%w: tensor<1x6x16xf32>) -> tensor<1x6x8xf32> {
  %0 = moe.reduce_weights %w dim 2 at <ranks = 4, experts = 2, shards = 2, slots = 1>
      : tensor<1x6x16xf32> -> tensor<1x6x8xf32>
  return %0 : tensor<1x6x8xf32>
}

// CHECK-LABEL: func.func @sums_of_parts
// CHECK: tensor.expand_shape %{{.*}} {{\[\[}}0], [1, 2, 3], [4]] output_shape [2, 2, 2, 4, 6] : tensor<2x16x6xf32> into tensor<2x2x2x4x6xf32>
// CHECK: linalg.transpose ins({{.*}}) outs(%{{.*}} : tensor<2x2x2x4x6xf32>) permutation = [0, 2, 1, 3, 4]
// CHECK: %[[S:.*]] = moe.reduce_weights %{{.*}} dim 1 at <ranks = 4, experts = 2, shards = 2, copies = 0, slots = 1> : tensor<2x2x2x4x6xf32> -> tensor<1x1x2x4x6xf32>
// CHECK: tensor.collapse_shape %[[S]] {{\[\[}}0, 1], [2, 3], [4]] : tensor<1x1x2x4x6xf32> into tensor<1x8x6xf32>
func.func @sums_of_parts(%w: tensor<2x16x6xf32>) -> tensor<1x8x6xf32> {
  %0 = moe.reduce_weights %w dim 1 at <ranks = 4, experts = 2, shards = 2, copies = 0, slots = 1>
      {parts = 2 : i64} : tensor<2x16x6xf32> -> tensor<1x8x6xf32>
  return %0 : tensor<1x8x6xf32>
}
