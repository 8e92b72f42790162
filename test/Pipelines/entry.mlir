// The entry without a name: the only public function, whatever it is called, by
// the product's road and the oracle's.

// RUN: moira-opt %s --moe-to-target | FileCheck %s
// RUN: moira-opt %s --moe-to-target=oracle=true | FileCheck %s
// RUN: moira-run %s --tokens 3 --verify

// CHECK-DAG: llvm.func @moira_step_layer_
// CHECK-DAG: llvm.func @moira_workspace_layer_
func.func @layer(%x: tensor<?x8xf32>,
    %w: tensor<16x8xf32> {moe.param = #moe.param<"w">}) -> tensor<?x16xf32> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %t = tensor.dim %x, %c0 : tensor<?x8xf32>
  %e = tensor.empty(%t) : tensor<?x16xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x16xf32>) -> tensor<?x16xf32>
  %y = linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
      ins(%x, %w : tensor<?x8xf32>, tensor<16x8xf32>) outs(%z : tensor<?x16xf32>) -> tensor<?x16xf32>
  return %y : tensor<?x16xf32>
}
