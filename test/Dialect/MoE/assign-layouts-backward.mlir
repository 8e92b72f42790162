// RUN: moira-opt %s --moe-assign-layouts | FileCheck %s
// RUN: moira-opt %s --moe-assign-layouts=pack-gradients | FileCheck %s --check-prefix=PACK

// A function and its way back read the same panels, the second transposed; two
// weights of a chain, too. A gradient may have the form of its parameter.

// CHECK-LABEL: func.func @main(
// CHECK-SAME: tensor<4x4x8x32xf32> {moe.packing = {{[^@]*}}function = @[[FN:[a-z_0-9]*]], logical
// CHECK-SAME: tensor<4x4x8x32xf32> {moe.packing = {{[^@]*}}function = @[[FN]], logical
// CHECK: weights({{.*}}) panels
func.func @main(%x: tensor<?x8xf32>, %s: tensor<4xi32>,
    %g: tensor<4x100x8xf32> {moe.param = #moe.param<"g.{}">},
    %u: tensor<4x100x8xf32> {moe.param = #moe.param<"u.{}">}) -> tensor<?x100xf32>
    attributes {moe.backward = @main_backward, moe.residuals = 0 : i64} {
  %y = moe.grouped_matmul rows(%x : tensor<?x8xf32>) groups(%s : tensor<4xi32>)
      weights(%g, %u : tensor<4x100x8xf32>, tensor<4x100x8xf32>) nk -> tensor<?x100xf32> {
  ^bb0(%a: f32, %b: f32):
    %m = arith.mulf %a, %b : f32
    moe.yield %m : f32
  }
  return %y : tensor<?x100xf32>
}

// CHECK-LABEL: func.func @main_backward(
// CHECK-SAME: tensor<4x4x8x32xf32> {moe.packing = {{[^@]*}}function = @[[FN]], logical
// CHECK-SAME: tensor<4x4x8x32xf32> {moe.packing = {{[^@]*}}function = @[[FN]], logical
// CHECK: weights({{.*}} : tensor<4x4x8x32xf32>, tensor<4x4x8x32xf32>) transposed_panels chained
// CHECK: nk contraction -> tensor<4x100x8xf32>
// CHECK-NOT: moe.pack %
// CHECK: return

// PACK-LABEL: func.func @main_backward(
// PACK-SAME: -> (tensor<?x8xf32>, tensor<4x4x8x32xf32> {moe.gradient = "g.{}", moe.packed_gradient}, tensor<4x4x8x32xf32> {moe.gradient = "u.{}", moe.packed_gradient})
// PACK: panels contraction -> tensor<4x4x8x32xf32>
// What is no contraction's result is packed.
// PACK: moe.pack %{{.*}} nk : tensor<4x100x8xf32> -> tensor<4x4x8x32xf32>
func.func @main_backward(%x: tensor<?x8xf32>, %s: tensor<4xi32>,
    %g: tensor<4x100x8xf32> {moe.param = #moe.param<"g.{}">},
    %u: tensor<4x100x8xf32> {moe.param = #moe.param<"u.{}">}, %dy: tensor<?x100xf32>)
    -> (tensor<?x8xf32>, tensor<4x100x8xf32> {moe.gradient = "g.{}"}, tensor<4x100x8xf32> {moe.gradient = "u.{}"}) {
  %dx = moe.grouped_matmul rows(%dy, %dy : tensor<?x100xf32>, tensor<?x100xf32>) groups(%s : tensor<4xi32>)
      weights(%g, %u : tensor<4x100x8xf32>, tensor<4x100x8xf32>) kn chained -> tensor<?x8xf32> {
  ^bb0(%a: f32):
    moe.yield %a : f32
  }
  %dg = moe.grouped_matmul rows(%dy, %x : tensor<?x100xf32>, tensor<?x8xf32>) groups(%s : tensor<4xi32>)
      nk contraction -> tensor<4x100x8xf32> {
  }
  %du = arith.constant dense<0.0> : tensor<4x100x8xf32>
  return %dx, %dg, %du : tensor<?x8xf32>, tensor<4x100x8xf32>, tensor<4x100x8xf32>
}
