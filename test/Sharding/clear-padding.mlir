// RUN: moira-opt %s -split-input-file -moe-clear-padding | FileCheck %s

// Rows behind the sizes of a group would be added up in gradients of weights.

// CHECK-LABEL: func.func @main
// CHECK-SAME: %[[X:[^:]*]]: tensor<?x8xf32>, %[[SLOTS:[^:]*]]: tensor<?x2xi32>, %[[SIZES:[^:]*]]: tensor<4xi32>
// CHECK: %[[ROWS:.*]] = moe.dispatch %[[X]], %[[SLOTS]], %[[SIZES]]
// CHECK: %[[CLEAR:.*]] = linalg.generic {{.*}} ins(%[[ROWS]], %[[SIZES]] : tensor<4x?x8xf32>, tensor<4xi32>)
// CHECK: %[[P:.*]] = linalg.index 1
// CHECK: %[[N:.*]] = arith.index_cast %{{.*}} : i32 to index
// CHECK: %[[C:.*]] = arith.cmpi slt, %[[P]], %[[N]]
// CHECK: arith.select %[[C]], %{{.*}}, %{{.*}} : f32
// CHECK: %[[FLAT:.*]] = tensor.collapse_shape %[[CLEAR]]
// CHECK: moe.exchange to_experts %[[FLAT]]
func.func @main(%x: tensor<?x8xf32>, %slots: tensor<?x2xi32>, %sizes: tensor<4xi32>,
    %bound: index, %m: tensor<2x4xi32>, %n: index) -> tensor<?x8xf32>
    attributes {moe.backward = @main_backward, moe.residuals = 0 : i64} {
  %rows = moe.dispatch %x, %slots, %sizes, %bound
      : tensor<?x8xf32>, tensor<?x2xi32>, tensor<4xi32> -> tensor<4x?x8xf32>
  %flat = tensor.collapse_shape %rows [[0, 1], [2]] : tensor<4x?x8xf32> into tensor<?x8xf32>
  %away = moe.exchange to_experts %flat, %m, %n at <ranks = 2, experts = 4, slots = 2> equal
      : tensor<?x8xf32>, tensor<2x4xi32> -> tensor<?x8xf32>
  return %away : tensor<?x8xf32>
}

// What is done to rows before they travel is done to all of them.

// CHECK-LABEL: func.func @main_backward
// CHECK: moe.dispatch
// CHECK: %[[T:.*]] = math.tanh
// CHECK: %[[CLEAR:.*]] = linalg.generic {{.*}} ins(%[[T]], %{{.*}} : tensor<4x?x8xf32>, tensor<4xi32>)
// CHECK: tensor.collapse_shape %[[CLEAR]]
func.func @main_backward(%x: tensor<?x8xf32>, %slots: tensor<?x2xi32>, %sizes: tensor<4xi32>,
    %bound: index, %m: tensor<2x4xi32>, %n: index) -> tensor<?x8xf32> {
  %rows = moe.dispatch %x, %slots, %sizes, %bound
      : tensor<?x8xf32>, tensor<?x2xi32>, tensor<4xi32> -> tensor<4x?x8xf32>
  %t = math.tanh %rows : tensor<4x?x8xf32>
  %flat = tensor.collapse_shape %t [[0, 1], [2]] : tensor<4x?x8xf32> into tensor<?x8xf32>
  %away = moe.exchange to_experts %flat, %m, %n at <ranks = 2, experts = 4, slots = 2> equal
      : tensor<?x8xf32>, tensor<2x4xi32> -> tensor<?x8xf32>
  return %away : tensor<?x8xf32>
}

// -----

// Without a way back nobody reads them.
// CHECK-LABEL: func.func @forward_only
// CHECK-NOT: linalg.generic
func.func @forward_only(%x: tensor<?x8xf32>, %slots: tensor<?x2xi32>, %sizes: tensor<4xi32>,
    %bound: index, %m: tensor<2x4xi32>, %n: index) -> tensor<?x8xf32> {
  %rows = moe.dispatch %x, %slots, %sizes, %bound
      : tensor<?x8xf32>, tensor<?x2xi32>, tensor<4xi32> -> tensor<4x?x8xf32>
  %flat = tensor.collapse_shape %rows [[0, 1], [2]] : tensor<4x?x8xf32> into tensor<?x8xf32>
  %away = moe.exchange to_experts %flat, %m, %n at <ranks = 2, experts = 4, slots = 2> equal
      : tensor<?x8xf32>, tensor<2x4xi32> -> tensor<?x8xf32>
  return %away : tensor<?x8xf32>
}
