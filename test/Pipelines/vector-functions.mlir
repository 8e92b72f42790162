// RUN: moira-opt %s --moe-to-target | FileCheck %s

// Functions of the C library that kernels apply to vectors are called for one
// element after the other; nothing of the vector dialect stays.

// CHECK-NOT: vector.
// CHECK: llvm.call @erf
func.func @main(%x: tensor<?x4xf64>,
    %w: tensor<5x4xf64> {moe.param = #moe.param<"w">}) -> tensor<?x5xf64> {
  %c0 = arith.constant 0 : index
  %f0 = arith.constant 0.0 : f64
  %n = tensor.dim %x, %c0 : tensor<?x4xf64>
  %e = tensor.empty(%n) : tensor<?x5xf64>
  %i = linalg.fill ins(%f0 : f64) outs(%e : tensor<?x5xf64>) -> tensor<?x5xf64>
  %y = linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>,
      affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
      ins(%x, %w : tensor<?x4xf64>, tensor<5x4xf64>)
      outs(%i : tensor<?x5xf64>) -> tensor<?x5xf64>
  %t = math.erf %y : tensor<?x5xf64>
  return %t : tensor<?x5xf64>
}
