// RUN: moira-opt %s -moe-decompose-softmax | FileCheck %s --implicit-check-not=linalg.softmax

// CHECK-LABEL: func.func @inner
// CHECK: linalg.generic {{.*}} iterator_types = ["parallel", "parallel", "reduction"]
// CHECK: arith.maxnumf
// CHECK: arith.subf
// CHECK: math.exp
// CHECK: linalg.generic {{.*}} iterator_types = ["parallel", "parallel", "reduction"]
// CHECK: arith.addf
// CHECK: arith.divf
func.func @inner(%x: tensor<?x3x8xf32>, %e: tensor<?x3x8xf32>) -> tensor<?x3x8xf32> {
  %y = linalg.softmax dimension(2) ins(%x : tensor<?x3x8xf32>) outs(%e : tensor<?x3x8xf32>) -> tensor<?x3x8xf32>
  return %y : tensor<?x3x8xf32>
}
