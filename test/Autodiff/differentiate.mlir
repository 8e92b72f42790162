// RUN: moira-opt %s --split-input-file --moe-differentiate=entry=main | FileCheck %s

// The contract of the two functions: residuals, then parameters, then gradients
// of float results; gradients of float inputs, then of float parameters. Values
// of integers have none, what nothing depends on has zeros.

// CHECK-LABEL: func.func @main
// CHECK-SAME: (%[[IDS:[^:]*]]: tensor<?xi32>, %[[W:[^:]*]]: tensor<4xf32> {moe.param = #moe.param<"w">}, %[[X:[^:]*]]: tensor<?x4xf32> {moe.name = "x"},
// CHECK-SAME: -> (tensor<?x4xf32> {moe.name = "y"}, tensor<?xi32>, tensor<?x4xf32>, index)
// CHECK-SAME: attributes {moe.backward = @main_backward, moe.residuals = 2 : i64}
// CHECK: %[[Y:.*]] = linalg.generic
// CHECK: %[[N:.*]] = tensor.dim %{{.*}}, %c0 : tensor<?x2xf32>
// CHECK: return %[[Y]], %[[IDS]], %[[X]], %[[N]]

// CHECK-LABEL: func.func @main_backward
// CHECK-SAME: %[[X:[^:]*]]: tensor<?x4xf32> {moe.name = "residual0"},
// CHECK-SAME: %[[N:[^:]*]]: index {moe.name = "residual1"},
// CHECK-SAME: %[[W:[^:]*]]: tensor<4xf32> {moe.param = #moe.param<"w">},
// CHECK-SAME: tensor<2xi32> {moe.param = #moe.param<"table">},
// CHECK-SAME: tensor<3xf32> {moe.param = #moe.param<"spare">},
// CHECK-SAME: %[[D:[^:]*]]: tensor<?x4xf32> {moe.name = "d_y"})
// CHECK-SAME: -> (tensor<?x4xf32> {moe.gradient_of = 1 : i64}, tensor<?x2xf32> {moe.gradient_of = 2 : i64}, tensor<4xf32> {moe.gradient = "w"}, tensor<3xf32> {moe.gradient = "spare"})
// CHECK: %[[DX:.*]] = linalg.generic {{.*}} ins(%[[D]], %[[W]] : tensor<?x4xf32>, tensor<4xf32>)
// CHECK: arith.mulf
// CHECK: %[[ZEROS:.*]] = linalg.fill {{.*}} -> tensor<?x2xf32>
// CHECK: %[[DW:.*]] = linalg.generic {{.*}} iterator_types = ["parallel", "reduction"]} ins(%[[D]], %[[X]] : tensor<?x4xf32>, tensor<?x4xf32>)
// CHECK: %[[SPARE:.*]] = linalg.fill {{.*}} -> tensor<3xf32>
// CHECK: return %[[DX]], %[[ZEROS]], %[[DW]], %[[SPARE]]
func.func @main(%ids: tensor<?xi32>,
    %w: tensor<4xf32> {moe.param = #moe.param<"w">},
    %x: tensor<?x4xf32> {moe.name = "x"},
    %table: tensor<2xi32> {moe.param = #moe.param<"table">},
    %idle: tensor<?x2xf32>,
    %spare: tensor<3xf32> {moe.param = #moe.param<"spare">})
    -> (tensor<?x4xf32> {moe.name = "y"}, tensor<?xi32>) {
  %c0 = arith.constant 0 : index
  %n = tensor.dim %x, %c0 : tensor<?x4xf32>
  %e = tensor.empty(%n) : tensor<?x4xf32>
  %y = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>,
      affine_map<(m, n) -> (n)>, affine_map<(m, n) -> (m, n)>],
      iterator_types = ["parallel", "parallel"]}
      ins(%x, %w : tensor<?x4xf32>, tensor<4xf32>)
      outs(%e : tensor<?x4xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.mulf %a, %b : f32
    linalg.yield %0 : f32
  } -> tensor<?x4xf32>
  return %y, %ids : tensor<?x4xf32>, tensor<?xi32>
}

// -----

// Private functions are inlined; contributions add in the order of uses.

// CHECK-LABEL: func.func @main(
// CHECK-NOT: call
// CHECK-LABEL: func.func @main_backward
// CHECK-SAME: %[[X:[^:]*]]: tensor<4xf64> {moe.name = "residual0"}, %[[D:[^:]*]]: tensor<4xf64>
// CHECK: %[[EXP:.*]] = linalg.generic {{.*}} ins(%[[D]], %[[X]]
// CHECK: math.exp
// CHECK: %[[SIN:.*]] = linalg.generic {{.*}} ins(%[[D]], %[[X]]
// CHECK: math.cos
// CHECK: %[[SUM:.*]] = linalg.generic {{.*}} ins(%[[EXP]], %[[SIN]]
// CHECK: arith.addf
// CHECK: return %[[SUM]]
func.func private @first(%x: tensor<4xf64>) -> tensor<4xf64> {
  %0 = math.exp %x : tensor<4xf64>
  return %0 : tensor<4xf64>
}
func.func @main(%x: tensor<4xf64>) -> tensor<4xf64> {
  %0 = call @first(%x) : (tensor<4xf64>) -> tensor<4xf64>
  %1 = math.sin %x : tensor<4xf64>
  %y = arith.addf %0, %1 : tensor<4xf64>
  return %y : tensor<4xf64>
}

// -----

// Scalars, and a part of a parameter that a rank holds.

// CHECK-LABEL: func.func @main_backward
// CHECK-SAME: %[[S:[^:]*]]: f32 {moe.name = "residual0"},
// CHECK-SAME: %[[W:[^:]*]]: tensor<2x3xf32> {moe.param = #moe.param<"w{}">, moe.shard = #moe.shard<experts = 8>},
// CHECK-SAME: %[[D:[^:]*]]: tensor<2x3xf32> {moe.name = "d_result0"},
// CHECK-SAME: %[[DS:[^:]*]]: f32 {moe.name = "d_result1"})
// CHECK-SAME: -> (f32 {moe.gradient_of = 0 : i64}, tensor<2x3xf32> {moe.gradient = "w{}"})
// CHECK: %[[SUM:.*]] = linalg.generic {{.*}} iterator_types = ["reduction", "reduction"]} ins(%[[D]]
// CHECK: %[[FROM:.*]] = tensor.extract %[[SUM]][]
// CHECK: %[[TIMES:.*]] = arith.mulf %[[DS]], %[[S]]
// CHECK: %[[ONCE:.*]] = arith.addf %[[FROM]], %[[TIMES]]
// CHECK: arith.addf %[[ONCE]], %[[TIMES]]
func.func @main(%s: f32, %w: tensor<2x3xf32> {moe.param = #moe.param<"w{}">,
    moe.shard = #moe.shard<experts = 8>}) -> (tensor<2x3xf32>, f32) {
  %e = tensor.empty() : tensor<2x3xf32>
  %f = linalg.fill ins(%s : f32) outs(%e : tensor<2x3xf32>) -> tensor<2x3xf32>
  %y = arith.addf %f, %w : tensor<2x3xf32>
  %t = arith.mulf %s, %s : f32
  return %y, %t : tensor<2x3xf32>, f32
}
