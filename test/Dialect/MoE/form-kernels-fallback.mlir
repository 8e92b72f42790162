// RUN: moira-opt %s --moe-form-kernels | FileCheck %s

// What no kernel takes becomes a loop over the experts, and a kernel reads its
// result.

// CHECK-LABEL: func @loops(
// CHECK-NOT: moe.expert
// CHECK: %[[T:.*]]:2 = scf.for
// CHECK: math.tanh
// CHECK: moe.grouped_matmul rows(%[[T]]#0 : tensor<?x8xf32>)
func.func @loops(%x: tensor<?x8xf32>, %sizes: tensor<2xi32>, %w: tensor<2x8x4xf32>) -> tensor<?x4xf32> {
  %y = moe.expert rows(%x : tensor<?x8xf32>) groups(%sizes : tensor<2xi32>)
      per_expert(%w : tensor<2x8x4xf32>) -> tensor<?x4xf32> {
  ^bb0(%r: tensor<?x8xf32>, %we: tensor<8x4xf32>):
    %c0 = arith.constant 0 : index
    %zero = arith.constant 0.0 : f32
    %n = tensor.dim %r, %c0 : tensor<?x8xf32>
    %e = tensor.empty(%n) : tensor<?x4xf32>
    %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x4xf32>) -> tensor<?x4xf32>
    %t = math.tanh %r : tensor<?x8xf32>
    %p = linalg.matmul ins(%t, %we : tensor<?x8xf32>, tensor<8x4xf32>) outs(%z : tensor<?x4xf32>) -> tensor<?x4xf32>
    moe.yield %p : tensor<?x4xf32>
  }
  return %y : tensor<?x4xf32>
}

// A body without any kernel is a loop.

// CHECK-LABEL: func @squared_weight(
// CHECK-NOT: moe.expert
// CHECK: scf.for
// CHECK: arith.mulf
// CHECK: linalg.generic
// CHECK: math.fma
func.func @squared_weight(%x: tensor<?x8xf32>, %sizes: tensor<2xi32>, %w: tensor<2x8x4xf32>) -> tensor<?x4xf32> {
  %y = moe.expert rows(%x : tensor<?x8xf32>) groups(%sizes : tensor<2xi32>)
      per_expert(%w : tensor<2x8x4xf32>) -> tensor<?x4xf32> {
  ^bb0(%r: tensor<?x8xf32>, %we: tensor<8x4xf32>):
    %c0 = arith.constant 0 : index
    %zero = arith.constant 0.0 : f32
    %n = tensor.dim %r, %c0 : tensor<?x8xf32>
    %e = tensor.empty(%n) : tensor<?x4xf32>
    %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x4xf32>) -> tensor<?x4xf32>
    %ww = arith.mulf %we, %we : tensor<8x4xf32>
    %p = linalg.matmul ins(%r, %ww : tensor<?x8xf32>, tensor<8x4xf32>) outs(%z : tensor<?x4xf32>) -> tensor<?x4xf32>
    moe.yield %p : tensor<?x4xf32>
  }
  return %y : tensor<?x4xf32>
}
