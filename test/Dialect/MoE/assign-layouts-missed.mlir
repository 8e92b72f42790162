// RUN: moira-opt %s --moe-assign-layouts --split-input-file \
// RUN:   --remarks-filter-missed=moe-assign-layouts \
// RUN:   --remark-format=emitRemark --verify-diagnostics | FileCheck %s

// CHECK-LABEL: func @input(
// CHECK-SAME: %{{[^ ]*}}: tensor<?x8xf32>, %[[S:[^ ]*]]: tensor<2xi32>, %[[P:[^ ]*]]: tensor<2x1x8x32xf32> {{.*}}, %[[W:[^ ]*]]: tensor<2x8x24xf32>)
// CHECK: %[[PACKED:.*]] = moe.pack %[[W]] kn : tensor<2x8x24xf32> -> tensor<2x1x8x32xf32>
// CHECK: weights(%[[P]], %[[PACKED]]
func.func @input(%x: tensor<?x8xf32>, %s: tensor<2xi32>,
    %p: tensor<2x8x24xf32> {moe.param = #moe.param<"p">}, %w: tensor<2x8x24xf32>) -> tensor<?x24xf32> {
  // expected-remark @+1 {{'moe.grouped_matmul': weights that are no parameters are packed in every step}}
  %0 = moe.grouped_matmul rows(%x : tensor<?x8xf32>) groups(%s : tensor<2xi32>)
      weights(%p, %w : tensor<2x8x24xf32>, tensor<2x8x24xf32>) kn -> tensor<?x24xf32> {
  ^bb0(%a: f32, %b: f32):
    %m = arith.mulf %a, %b : f32
    moe.yield %m : f32
  }
  return %0 : tensor<?x24xf32>
}

// -----

// Some of the experts only: not packed at loading.

// CHECK-LABEL: func @experts(
// CHECK-SAME: tensor<4x8x24xf32> {moe.param
// CHECK: %[[SL:.*]] = tensor.extract_slice
// CHECK: moe.pack %[[SL]] kn
func.func @experts(%x: tensor<?x8xf32>, %s: tensor<2xi32>,
    %p: tensor<4x8x24xf32> {moe.param = #moe.param<"p">}) -> tensor<?x24xf32> {
  %w = tensor.extract_slice %p[2, 0, 0] [2, 8, 24] [1, 1, 1] : tensor<4x8x24xf32> to tensor<2x8x24xf32>
  // expected-remark @+1 {{'moe.grouped_matmul': weights that are no parameters are packed in every step}}
  %0 = moe.grouped_matmul rows(%x : tensor<?x8xf32>) groups(%s : tensor<2xi32>)
      weights(%w : tensor<2x8x24xf32>) kn -> tensor<?x24xf32> {
  ^bb0(%a: f32):
    moe.yield %a : f32
  }
  return %0 : tensor<?x24xf32>
}

// -----

// CHECK-LABEL: func @dynamic(
// CHECK: weights(%{{.*}} : tensor<2x?x24xf32>) kn
func.func @dynamic(%x: tensor<?x?xf32>, %s: tensor<2xi32>, %w: tensor<2x?x24xf32>) -> tensor<?x24xf32> {
  // expected-remark @+1 {{'moe.grouped_matmul': weights of dynamic shape stay as they are}}
  %0 = moe.grouped_matmul rows(%x : tensor<?x?xf32>) groups(%s : tensor<2xi32>)
      weights(%w : tensor<2x?x24xf32>) kn -> tensor<?x24xf32> {
  ^bb0(%a: f32):
    moe.yield %a : f32
  }
  return %0 : tensor<?x24xf32>
}

// -----

// A function that is called keeps its type.

// CHECK-LABEL: func private @callee(
// CHECK-SAME: tensor<2x8x24xf32> {moe.param
// CHECK: moe.pack
func.func private @callee(%x: tensor<?x8xf32>, %s: tensor<2xi32>,
    %p: tensor<2x8x24xf32> {moe.param = #moe.param<"p">}) -> tensor<?x24xf32> {
  // expected-remark @+1 {{'moe.grouped_matmul': weights that are no parameters are packed in every step}}
  %0 = moe.grouped_matmul rows(%x : tensor<?x8xf32>) groups(%s : tensor<2xi32>)
      weights(%p : tensor<2x8x24xf32>) kn -> tensor<?x24xf32> {
  ^bb0(%a: f32):
    moe.yield %a : f32
  }
  return %0 : tensor<?x24xf32>
}
func.func @main(%x: tensor<?x8xf32>, %s: tensor<2xi32>,
    %p: tensor<2x8x24xf32> {moe.param = #moe.param<"p">}) -> tensor<?x24xf32> {
  %0 = call @callee(%x, %s, %p) : (tensor<?x8xf32>, tensor<2xi32>, tensor<2x8x24xf32>) -> tensor<?x24xf32>
  return %0 : tensor<?x24xf32>
}
