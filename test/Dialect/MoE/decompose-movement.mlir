// RUN: moira-opt %s -moe-decompose -canonicalize | FileCheck %s

// CHECK-LABEL: func.func @dispatch
// CHECK-SAME: (%[[X:[a-z0-9]*]]: tensor<?x8xf32>, %[[SLOTS:[a-z0-9]*]]: tensor<?x2xi32>, %{{.*}}: tensor<4xi32>, %[[BOUND:[a-z0-9]*]]: index)
// CHECK: %[[EMPTY:.*]] = tensor.empty(%[[BOUND]]) : tensor<?x8xf32>
// CHECK: scf.for %[[T:.*]] = %c0 to %{{.*}} step %c1 iter_args(%{{.*}} = %[[EMPTY]])
// CHECK: scf.for %[[J:.*]] = %c0 to %c2 step %c1 iter_args(%[[ROWS:.*]] = %{{.*}})
// CHECK: %[[S:.*]] = tensor.extract %[[SLOTS]][%[[T]], %[[J]]]
// CHECK: %[[USED:.*]] = arith.cmpi sge, %[[S]], %c0_i32 : i32
// CHECK: scf.if %[[USED]]
// CHECK: %[[SLOT:.*]] = arith.index_cast %[[S]]
// CHECK: %[[ROW:.*]] = tensor.extract_slice %[[X]][%[[T]], 0] [1, 8] [1, 1]
// CHECK: tensor.insert_slice %[[ROW]] into %[[ROWS]][%[[SLOT]], 0] [1, 8] [1, 1]
// CHECK: } else {
// CHECK-NEXT: scf.yield %[[ROWS]]
func.func @dispatch(%x: tensor<?x8xf32>, %slots: tensor<?x2xi32>, %sizes: tensor<4xi32>,
    %bound: index) -> tensor<?x8xf32> {
  %rows = moe.dispatch %x, %slots, %sizes, %bound
      : tensor<?x8xf32>, tensor<?x2xi32>, tensor<4xi32> -> tensor<?x8xf32>
  return %rows : tensor<?x8xf32>
}

// Weighted and padded: the product is rounded once; slot = e * P + place.
// CHECK-LABEL: func.func @weighted
// CHECK-SAME: %[[BOUND:[a-z0-9]*]]: index, %[[W:[a-z0-9]*]]: tensor<?x2xf32>)
// CHECK: %[[P:.*]] = arith.divsi %[[BOUND]], %c4 : index
// CHECK: tensor.empty(%[[P]]) : tensor<4x?x8xbf16>
// CHECK: %[[SLOT:.*]] = arith.index_cast
// CHECK: %[[WTJ:.*]] = tensor.extract %[[W]]
// CHECK: linalg.generic
// CHECK: %[[V:.*]] = arith.extf %{{.*}} : bf16 to f32
// CHECK: %[[PRODUCT:.*]] = arith.mulf %[[WTJ]], %[[V]] : f32
// CHECK: arith.truncf %[[PRODUCT]] : f32 to bf16
// CHECK: %[[E:.*]] = arith.divui %[[SLOT]], %{{.*}} : index
// CHECK: %[[PLACE:.*]] = arith.remui %[[SLOT]], %{{.*}} : index
// CHECK: tensor.insert_slice %{{.*}}[%[[E]], %[[PLACE]], 0] [1, 1, 8] [1, 1, 1]
func.func @weighted(%x: tensor<?x8xbf16>, %slots: tensor<?x2xi32>, %sizes: tensor<4xi32>,
    %bound: index, %w: tensor<?x2xf32>) -> tensor<4x?x8xbf16> {
  %rows = moe.dispatch %x, %slots, %sizes, %bound weights(%w : tensor<?x2xf32>)
      : tensor<?x8xbf16>, tensor<?x2xi32>, tensor<4xi32> -> tensor<4x?x8xbf16>
  return %rows : tensor<4x?x8xbf16>
}

// Sums in f32, one fused step per choice, rounded at the end.
// CHECK-LABEL: func.func @combine
// CHECK-SAME: (%[[ROWS:[a-z0-9]*]]: tensor<?x8xbf16>, %[[SLOTS:[a-z0-9]*]]: tensor<?x2xi32>, %[[W:[a-z0-9]*]]: tensor<?x2xf32>)
// CHECK: %[[ZERO:.*]] = linalg.fill ins(%cst : f32)
// CHECK: %[[SUMS:.*]] = scf.for %[[T:.*]] = {{.*}} iter_args(%{{.*}} = %[[ZERO]])
// CHECK: scf.for %[[J:.*]] = %c0 to %c2
// CHECK: %[[WTJ:.*]] = tensor.extract %[[W]][%[[T]], %[[J]]]
// CHECK: tensor.extract_slice %[[ROWS]]
// CHECK: ^bb0(%[[A:.*]]: bf16, %[[ACC:.*]]: f32):
// CHECK: %[[V:.*]] = arith.extf %[[A]] : bf16 to f32
// CHECK: math.fma %[[WTJ]], %[[V]], %[[ACC]] : f32
// CHECK: linalg.generic {{.*}} ins(%[[SUMS]] : tensor<?x8xf32>) outs(%{{.*}} : tensor<?x8xbf16>)
// CHECK: arith.truncf
func.func @combine(%rows: tensor<?x8xbf16>, %slots: tensor<?x2xi32>, %w: tensor<?x2xf32>)
    -> tensor<?x8xbf16> {
  %y = moe.combine %rows, %slots weights(%w : tensor<?x2xf32>)
      : tensor<?x8xbf16>, tensor<?x2xi32> -> tensor<?x8xbf16>
  return %y : tensor<?x8xbf16>
}

// CHECK-LABEL: func.func @unweighted
// CHECK-NOT: math.fma
// CHECK: arith.addf %{{.*}}, %{{.*}} : f64
// CHECK-NOT: arith.truncf
func.func @unweighted(%rows: tensor<?x8xf64>, %slots: tensor<?x2xi32>) -> tensor<?x8xf64> {
  %y = moe.combine %rows, %slots : tensor<?x8xf64>, tensor<?x2xi32> -> tensor<?x8xf64>
  return %y : tensor<?x8xf64>
}

// One map from rows to tokens; -1 where no pair stands.
// CHECK-LABEL: func.func @sources
// CHECK-SAME: (%[[SLOTS:[a-z0-9]*]]: tensor<?x2xi32>, %[[BOUND:[a-z0-9]*]]: index)
// CHECK: %[[NONE:.*]] = linalg.fill ins(%c-1_i32 : i32) outs(%{{.*}} : tensor<?xi32>)
// CHECK: scf.for %[[T:.*]] = %c0 to %{{.*}} step %c1 iter_args(%{{.*}} = %[[NONE]])
// CHECK: scf.for %[[J:.*]] = %c0 to %c2 step %c1 iter_args(%[[MAP:.*]] = %{{.*}})
// CHECK: %[[S:.*]] = tensor.extract %[[SLOTS]][%[[T]], %[[J]]]
// CHECK: arith.cmpi sge, %[[S]], %c0_i32 : i32
// CHECK: %[[SLOT:.*]] = arith.index_cast %[[S]] : i32 to index
// CHECK: %[[TOKEN:.*]] = arith.index_cast %[[T]] : index to i32
// CHECK: tensor.insert %[[TOKEN]] into %[[MAP]][%[[SLOT]]]
func.func @sources(%slots: tensor<?x2xi32>, %bound: index) -> tensor<?xi32> {
  %tokens = moe.sources %slots, %bound : tensor<?x2xi32> -> tensor<?xi32>
  return %tokens : tensor<?xi32>
}
