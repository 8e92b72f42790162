// RUN: moira-opt %s -moe-decompose | FileCheck %s

// CHECK-DAG: #[[MK:.*]] = affine_map<(d0, d1, d2) -> (d0, d1)>
// CHECK-DAG: #[[KN:.*]] = affine_map<(d0, d1, d2) -> (d1, d2)>
// CHECK-DAG: #[[MN:.*]] = affine_map<(d0, d1, d2) -> (d0, d2)>

// CHECK-LABEL: func.func @named
// CHECK-SAME: (%[[X:[a-z0-9]*]]: tensor<?x8xbf16>, %[[W:[a-z0-9]*]]: tensor<8x16xbf16>, %[[O:[a-z0-9]*]]: tensor<?x16xf32>)
// CHECK: linalg.generic {indexing_maps = [#[[MK]], #[[KN]], #[[MN]]], iterator_types = ["parallel", "reduction", "parallel"]}
// CHECK-SAME: ins(%[[X]], %[[W]] : tensor<?x8xbf16>, tensor<8x16xbf16>) outs(%[[O]] : tensor<?x16xf32>)
// CHECK-NEXT: ^bb0(%[[A:.*]]: bf16, %[[B:.*]]: bf16, %[[ACC:.*]]: f32):
// CHECK-DAG: %[[A32:.*]] = arith.extf %[[A]] : bf16 to f32
// CHECK-DAG: %[[B32:.*]] = arith.extf %[[B]] : bf16 to f32
// CHECK: %[[SUM:.*]] = math.fma %[[A32]], %[[B32]], %[[ACC]] : f32
// CHECK-NEXT: linalg.yield %[[SUM]] : f32
func.func @named(%x: tensor<?x8xbf16>, %w: tensor<8x16xbf16>, %o: tensor<?x16xf32>)
    -> tensor<?x16xf32> {
  %0 = linalg.matmul ins(%x, %w : tensor<?x8xbf16>, tensor<8x16xbf16>)
      outs(%o : tensor<?x16xf32>) -> tensor<?x16xf32>
  return %0 : tensor<?x16xf32>
}

// The right operand is brought into rows of n.
// CHECK-LABEL: func.func @transposed
// CHECK-SAME: (%[[X:[a-z0-9]*]]: tensor<?x8xf64>, %[[W:[a-z0-9]*]]: tensor<16x8xf64>
// CHECK: %[[E:.*]] = tensor.empty() : tensor<8x16xf64>
// CHECK: %[[T:.*]] = linalg.transpose ins(%[[W]] : tensor<16x8xf64>) outs(%[[E]] : tensor<8x16xf64>) permutation = [1, 0]
// CHECK: linalg.generic {indexing_maps = [#[[MK]], #[[KN]], #[[MN]]]
// CHECK-SAME: ins(%[[X]], %[[T]] :
// CHECK: math.fma {{.*}} : f64
func.func @transposed(%x: tensor<?x8xf64>, %w: tensor<16x8xf64>, %o: tensor<?x16xf64>)
    -> tensor<?x16xf64> {
  %0 = linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>,
      affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
      ins(%x, %w : tensor<?x8xf64>, tensor<16x8xf64>)
      outs(%o : tensor<?x16xf64>) -> tensor<?x16xf64>
  return %0 : tensor<?x16xf64>
}

// CHECK-LABEL: func.func @others
// CHECK: linalg.generic {{.*}} iterator_types = ["parallel", "parallel", "reduction", "parallel"]
// CHECK: math.fma
// CHECK: linalg.generic {{.*}} iterator_types = ["parallel", "reduction"]
// CHECK: math.fma
// CHECK: linalg.generic {indexing_maps = [#[[MK]], #[[KN]], #[[MN]]]
// CHECK: math.fma
func.func @others(%x: tensor<2x?x8xf32>, %w: tensor<2x8x16xf32>, %o: tensor<2x?x16xf32>,
    %a: tensor<16x8xf32>, %v: tensor<8xf32>, %ov: tensor<16xf32>,
    %b: tensor<8x4xf32>, %ob: tensor<16x4xf32>)
    -> (tensor<2x?x16xf32>, tensor<16xf32>, tensor<16x4xf32>) {
  %0 = linalg.batch_matmul ins(%x, %w : tensor<2x?x8xf32>, tensor<2x8x16xf32>)
      outs(%o : tensor<2x?x16xf32>) -> tensor<2x?x16xf32>
  %1 = linalg.matvec ins(%a, %v : tensor<16x8xf32>, tensor<8xf32>)
      outs(%ov : tensor<16xf32>) -> tensor<16xf32>
  %2 = linalg.generic {indexing_maps = [affine_map<(m, n, k) -> (m, k)>,
      affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>],
      iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %b : tensor<16x8xf32>, tensor<8x4xf32>) outs(%ob : tensor<16x4xf32>) {
  ^bb0(%l: f32, %r: f32, %s: f32):
    %p = arith.mulf %l, %r : f32
    %t = arith.addf %p, %s : f32
    linalg.yield %t : f32
  } -> tensor<16x4xf32>
  return %0, %1, %2 : tensor<2x?x16xf32>, tensor<16xf32>, tensor<16x4xf32>
}

// No contraction into f32: a narrow accumulator, integers, a sum of squares.
// CHECK-LABEL: func.func @kept
// CHECK-NOT: math.fma
// CHECK: return
func.func @kept(%a: tensor<16x8xbf16>, %v: tensor<8xbf16>, %o: tensor<16xbf16>,
    %i: tensor<4x4xi32>, %x: tensor<16x8xf32>, %s: tensor<16xf32>)
    -> (tensor<16xbf16>, tensor<4x4xi32>, tensor<16xf32>) {
  %0 = linalg.matvec ins(%a, %v : tensor<16x8xbf16>, tensor<8xbf16>)
      outs(%o : tensor<16xbf16>) -> tensor<16xbf16>
  %1 = linalg.matmul ins(%i, %i : tensor<4x4xi32>, tensor<4x4xi32>)
      outs(%i : tensor<4x4xi32>) -> tensor<4x4xi32>
  %2 = linalg.generic {indexing_maps = [affine_map<(m, k) -> (m, k)>,
      affine_map<(m, k) -> (m)>], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<16x8xf32>) outs(%s : tensor<16xf32>) {
  ^bb0(%e: f32, %acc: f32):
    %q = arith.mulf %e, %e : f32
    %t = arith.addf %acc, %q : f32
    linalg.yield %t : f32
  } -> tensor<16xf32>
  return %0, %1, %2 : tensor<16xbf16>, tensor<4x4xi32>, tensor<16xf32>
}
