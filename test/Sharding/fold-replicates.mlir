// RUN: moira-opt %s -moe-fold-replicates | FileCheck %s
// RUN: moira-opt %s -moe-decompose | FileCheck %s --check-prefix=ORACLE

// CHECK-LABEL: func.func @replicates
// CHECK-SAME: %[[W:.*]]: tensor<8x64xf32>
// CHECK-NEXT: return %[[W]]
// ORACLE-LABEL: func.func @replicates
// ORACLE-NOT: moe.replicate
func.func @replicates(%w: tensor<8x64xf32>) -> tensor<8x64xf32> {
  %0 = moe.replicate %w : tensor<8x64xf32>
  %1 = moe.replicate %0 : tensor<8x64xf32>
  return %1 : tensor<8x64xf32>
}

// What says who has the same goes, what moves stays.

// CHECK-LABEL: func.func @gathers
// CHECK-SAME: %[[B:[^:]*]]: tensor<1x32xf32>, %[[W:[^:]*]]: tensor<2x64x32xf32>
// CHECK: %[[ALL:.*]] = moe.gather_weights %[[B]] at <ranks = 4, experts = 2, shards = 2, copies = 0, slots = 1>
// CHECK: %[[GROUP:.*]] = moe.gather_weights %[[W]] dim 1
// CHECK: return %[[B]], %[[W]], %[[ALL]], %[[GROUP]]
func.func @gathers(%b: tensor<1x32xf32>, %w: tensor<2x64x32xf32>)
    -> (tensor<1x32xf32>, tensor<2x64x32xf32>, tensor<2x32xf32>, tensor<2x128x32xf32>) {
  %0 = moe.gather_weights %b at <ranks = 4, experts = 2, shards = 2, slots = 1>
      : tensor<1x32xf32> -> tensor<1x32xf32>
  %1 = moe.gather_weights %w dim 1 at <ranks = 4, experts = 2, shards = 2, copies = 2, slots = 2>
      : tensor<2x64x32xf32> -> tensor<2x64x32xf32>
  %2 = moe.gather_weights %b at <ranks = 4, experts = 2, shards = 2, copies = 0, slots = 1>
      : tensor<1x32xf32> -> tensor<2x32xf32>
  %3 = moe.gather_weights %w dim 1 at <ranks = 4, experts = 2, shards = 2, slots = 2>
      : tensor<2x64x32xf32> -> tensor<2x128x32xf32>
  return %0, %1, %2, %3 : tensor<1x32xf32>, tensor<2x64x32xf32>, tensor<2x32xf32>,
      tensor<2x128x32xf32>
}
