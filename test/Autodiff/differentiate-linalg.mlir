// RUN: moira-opt %s --split-input-file --moe-differentiate | FileCheck %s
// RUN: moira-opt %s --split-input-file --moe-differentiate=recompute=true | FileCheck %s --check-prefix=AGAIN

// Products are kept; their transposes read the weight as it is. A second
// product that adds to the same gradient goes on where the first ends.

// CHECK-DAG: #[[MK:.*]] = affine_map<(d0, d1, d2) -> (d0, d2)>
// CHECK-DAG: #[[KN:.*]] = affine_map<(d0, d1, d2) -> (d2, d1)>
// CHECK-DAG: #[[KM:.*]] = affine_map<(d0, d1, d2) -> (d2, d0)>
// CHECK-DAG: #[[MN:.*]] = affine_map<(d0, d1, d2) -> (d0, d1)>

// CHECK-LABEL: func.func @main
// CHECK-SAME: -> (tensor<?x3xf32>, tensor<?x4xf32>, tensor<?x3xf32>, tensor<?x3xf32>)
// CHECK: %[[A:.*]] = linalg.matmul
// CHECK: %[[B:.*]] = linalg.matmul
// CHECK: return %{{.*}}, %{{.*}}, %[[A]], %[[B]] :

// CHECK-LABEL: func.func @main_backward
// CHECK-SAME: %[[X:[^:]*]]: tensor<?x4xf32> {moe.name = "residual0"}, %[[A:[^:]*]]: tensor<?x3xf32> {moe.name = "residual1"}, %[[B:[^:]*]]: tensor<?x3xf32> {moe.name = "residual2"},
// CHECK-SAME: %[[V:[^:]*]]: tensor<3x4xf32> {moe.param = #moe.param<"v">}, %[[W:[^:]*]]: tensor<3x4xf32> {moe.param = #moe.param<"w">}
// CHECK-SAME: %[[D:[^:]*]]: tensor<?x3xf32> {moe.name = "d_result0"}
// CHECK-DAG: %[[DA:.*]] = linalg.generic {{.*}} ins(%[[D]], %[[B]] :
// CHECK-DAG: %[[DB:.*]] = linalg.generic {{.*}} ins(%[[D]], %[[A]] :
// CHECK: %[[ZEROS:.*]] = linalg.fill {{.*}} -> tensor<?x4xf32>
// CHECK: %[[FIRST:.*]] = linalg.generic {indexing_maps = [#[[MK]], #[[KN]], #[[MN]]], iterator_types = ["parallel", "parallel", "reduction"]} ins(%[[DA]], %[[V]] : tensor<?x3xf32>, tensor<3x4xf32>) outs(%[[ZEROS]] :
// CHECK: %[[DX:.*]] = linalg.generic {indexing_maps = [#[[MK]], #[[KN]], #[[MN]]], iterator_types = ["parallel", "parallel", "reduction"]} ins(%[[DB]], %[[W]] : tensor<?x3xf32>, tensor<3x4xf32>) outs(%[[FIRST]] :
// CHECK: %[[DV:.*]] = linalg.generic {indexing_maps = [#[[KM]], #[[KN]], #[[MN]]], iterator_types = ["parallel", "parallel", "reduction"]} ins(%[[DA]], %[[X]] :
// CHECK: %[[DW:.*]] = linalg.generic {indexing_maps = [#[[KM]], #[[KN]], #[[MN]]], iterator_types = ["parallel", "parallel", "reduction"]} ins(%[[DB]], %[[X]] :
// CHECK: return %[[DX]], %[[DV]], %[[DW]]

// AGAIN-LABEL: func.func @main(
// AGAIN-SAME: moe.residuals = 1 : i64
// AGAIN-LABEL: func.func @main_backward
// AGAIN: linalg.matmul
// AGAIN: linalg.matmul
func.func @main(%x: tensor<?x4xf32>,
    %v: tensor<3x4xf32> {moe.param = #moe.param<"v">},
    %w: tensor<3x4xf32> {moe.param = #moe.param<"w">}) -> tensor<?x3xf32> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %n = tensor.dim %x, %c0 : tensor<?x4xf32>
  %e = tensor.empty(%n) : tensor<?x3xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x3xf32>) -> tensor<?x3xf32>
  %a = linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>,
      affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
      ins(%x, %v : tensor<?x4xf32>, tensor<3x4xf32>)
      outs(%f : tensor<?x3xf32>) -> tensor<?x3xf32>
  %b = linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>,
      affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
      ins(%x, %w : tensor<?x4xf32>, tensor<3x4xf32>)
      outs(%f : tensor<?x3xf32>) -> tensor<?x3xf32>
  %y = linalg.mul ins(%a, %b : tensor<?x3xf32>, tensor<?x3xf32>)
      outs(%e : tensor<?x3xf32>) -> tensor<?x3xf32>
  return %y : tensor<?x3xf32>
}

// -----

// Products of 16-bit operands: the gradient of the result is rounded to their
// type once, sums are made in f32 and rounded once. What is rounded is kept in
// its rounded form.

// CHECK-LABEL: func.func @main
// CHECK-SAME: -> (tensor<2x3xbf16>, tensor<2x4xbf16>, tensor<2x3xbf16>)
// CHECK-LABEL: func.func @main_backward
// CHECK-NOT: tensor<2x3xf32>
// CHECK: %[[D:.*]] = linalg.generic {{.*}} ins(%[[Q:[^,]*]], %[[Q]] : tensor<2x3xbf16>, tensor<2x3xbf16>) outs(%{{.*}} : tensor<2x3xbf16>)
// CHECK: %[[SUM:.*]] = linalg.generic {{.*}} "reduction"]} ins(%[[D]], %{{.*}} : tensor<2x3xbf16>, tensor<3x4xbf16>) outs(%{{.*}} : tensor<2x4xf32>)
// CHECK: ^bb0(%[[L:.*]]: bf16, %[[R:.*]]: bf16, %[[ACC:.*]]: f32):
// CHECK-DAG: %[[WL:.*]] = arith.extf %[[L]] :
// CHECK-DAG: %[[WR:.*]] = arith.extf %[[R]] :
// CHECK: %[[P:.*]] = arith.mulf %[[WL]], %[[WR]]
// CHECK: arith.addf %[[ACC]], %[[P]]
// CHECK: %[[DX:.*]] = linalg.generic {{.*}} ins(%[[SUM]] : tensor<2x4xf32>) outs(%{{.*}} : tensor<2x4xbf16>)
// CHECK: arith.truncf
// CHECK: return %[[DX]]
func.func @main(%x: tensor<2x4xbf16>,
    %w: tensor<3x4xbf16> {moe.param = #moe.param<"w">}) -> tensor<2x3xbf16> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<2x3xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<2x3xf32>) -> tensor<2x3xf32>
  %a = linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>,
      affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
      ins(%x, %w : tensor<2x4xbf16>, tensor<3x4xbf16>)
      outs(%f : tensor<2x3xf32>) -> tensor<2x3xf32>
  %g = tensor.empty() : tensor<2x3xbf16>
  %t = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>,
      affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]}
      ins(%a : tensor<2x3xf32>) outs(%g : tensor<2x3xbf16>) {
  ^bb0(%i: f32, %o: bf16):
    %0 = arith.truncf %i : f32 to bf16
    linalg.yield %0 : bf16
  } -> tensor<2x3xbf16>
  %y = linalg.mul ins(%t, %t : tensor<2x3xbf16>, tensor<2x3xbf16>)
      outs(%g : tensor<2x3xbf16>) -> tensor<2x3xbf16>
  return %y : tensor<2x3xbf16>
}

// -----

// An extremum: the gradient is shared by those that won.

// CHECK-LABEL: func.func @main_backward
// CHECK-SAME: %[[X:[^:]*]]: tensor<3x5xf32> {moe.name = "residual0"}, %[[Y:[^:]*]]: tensor<3xf32> {moe.name = "residual1"}, %[[D:[^:]*]]: tensor<3xf32>
// CHECK: %[[COUNT:.*]] = linalg.generic {{.*}} ins(%[[Y]], %[[X]]
// CHECK: arith.cmpf oeq
// CHECK: %[[SHARE:.*]] = linalg.generic {{.*}} ins(%[[D]], %[[COUNT]]
// CHECK: arith.divf
// CHECK: linalg.generic {{.*}} iterator_types = ["parallel", "parallel"]} ins(%[[SHARE]], %[[Y]], %[[X]]
// CHECK: arith.select
func.func @main(%x: tensor<3x5xf32>) -> tensor<3xf32> {
  %least = arith.constant 0xFF800000 : f32
  %e = tensor.empty() : tensor<3xf32>
  %f = linalg.fill ins(%least : f32) outs(%e : tensor<3xf32>) -> tensor<3xf32>
  %y = linalg.reduce { arith.maximumf } ins(%x : tensor<3x5xf32>)
      outs(%f : tensor<3xf32>) dimensions = [1]
  return %y : tensor<3xf32>
}
