// RUN: moira-opt %s -canonicalize | FileCheck %s

// One rank without spare slots: nothing moves.

// CHECK-LABEL: func.func @alone
// CHECK-SAME: %[[ROWS:[^:]*]]: tensor<?x8xf32>, %[[SIZES:[^:]*]]: tensor<4xi32>
// CHECK-SAME: %[[W:[^:]*]]: tensor<4x8x8xf32>
// CHECK-NEXT: return %[[SIZES]], %[[ROWS]], %[[ROWS]], %[[W]]
func.func @alone(%rows: tensor<?x8xf32>, %sizes: tensor<4xi32>, %home: index,
    %w: tensor<4x8x8xf32>)
    -> (tensor<4xi32>, tensor<?x8xf32>, tensor<?x8xf32>, tensor<4x8x8xf32>) {
  %m = moe.gather_counts %sizes : tensor<4xi32> -> tensor<1x4xi32>
  %groups, %bound = moe.receive_sizes %m at <ranks = 1, experts = 4, slots = 4> equal
      : tensor<1x4xi32> -> tensor<4xi32>, index
  %away = moe.exchange to_experts %rows, %m, %home at <ranks = 1, experts = 4, slots = 4> equal
      : tensor<?x8xf32>, tensor<1x4xi32> -> tensor<?x8xf32>
  %back = moe.exchange to_tokens %away, %m, %home at <ranks = 1, experts = 4, slots = 4> equal
      : tensor<?x8xf32>, tensor<1x4xi32> -> tensor<?x8xf32>
  %all = moe.gather_weights %w at <ranks = 1, experts = 4, copies = 0, slots = 4>
      : tensor<4x8x8xf32> -> tensor<4x8x8xf32>
  return %groups, %away, %back, %all
      : tensor<4xi32>, tensor<?x8xf32>, tensor<?x8xf32>, tensor<4x8x8xf32>
}

// A spare slot: the slot table says what stands where.

// CHECK-LABEL: func.func @spare
// CHECK: moe.receive_sizes
// CHECK: moe.exchange
func.func @spare(%rows: tensor<?x8xf32>, %sizes: tensor<4xi32>)
    -> (tensor<5xi32>, tensor<?x8xf32>) {
  %m = moe.gather_counts %sizes : tensor<4xi32> -> tensor<1x4xi32>
  %groups, %bound = moe.receive_sizes %m at <ranks = 1, experts = 4, slots = 5> equal
      : tensor<1x4xi32> -> tensor<5xi32>, index
  %away = moe.exchange to_experts %rows, %m, %bound at <ranks = 1, experts = 4, slots = 5> equal
      : tensor<?x8xf32>, tensor<1x4xi32> -> tensor<?x8xf32>
  return %groups, %away : tensor<5xi32>, tensor<?x8xf32>
}

// Counts of several ranks are gathered though nobody reads them.

// CHECK-LABEL: func.func @record
// CHECK: moe.gather_counts
// CHECK-NOT: moe.all_gather
func.func @record(%sizes: tensor<4xi32>) {
  %m = moe.gather_counts %sizes : tensor<4xi32> -> tensor<2x4xi32>
  %a = moe.all_gather %sizes : tensor<4xi32> -> tensor<2x4xi32>
  return
}
