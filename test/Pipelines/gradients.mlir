// RUN: moira-opt %s --moe-to-differentiated=gradients=true | FileCheck %s
// RUN: moira-opt %s --moe-to-differentiated | FileCheck %s --check-prefix=PLAIN
// RUN: moira-opt %s --moe-to-target="gradients=true updates=sgd" | FileCheck %s --check-prefix=MANIFEST
// RUN: moira-opt %s --moe-to-target="gradients=true oracle=true" | FileCheck %s --check-prefix=ORACLE

// PLAIN-NOT: backward
// PLAIN-NOT: moe.residuals

// CHECK: func.func @main(%{{.*}}: tensor<?x4xf32>
// CHECK-SAME: moe.backward = @main_backward, moe.residuals = [[N:[0-9]+]] : i64
// CHECK: func.func @main_backward(
// CHECK-SAME: moe.gradient_of = 0 : i64
// CHECK-SAME: moe.gradient = "w"

// Both entries, and the way back's rows in the one table of parameters.
// MANIFEST: moira.manifest = "{
// MANIFEST-SAME: \22backward\22:\22main_backward\22
// MANIFEST-SAME: \22name\22:\22main\22
// MANIFEST-SAME: \22residuals\22:
// MANIFEST-SAME: \22shapes\22:\22moira_shapes_main_decode\22
// MANIFEST-SAME: \22name\22:\22main_backward\22
// MANIFEST-SAME: \22gradient\22:{\22input\22:0}
// MANIFEST-SAME: \22gradient\22:{\22parameter\22:\22w\22,\22rows\22:[0
// MANIFEST-SAME: \22name\22:\22moira_update_sgd_f32\22
// MANIFEST-SAME: \22update\22:\22sgd\22
// MANIFEST-SAME: \22packing\22:{
// MANIFEST-DAG: llvm.func @moira_step_main_decode
// MANIFEST-DAG: llvm.func @moira_step_main_backward_prefill
// MANIFEST-DAG: llvm.func @moira_workspace_main_backward_decode
// MANIFEST-DAG: llvm.func @moira_shapes_main_prefill
// MANIFEST-DAG: llvm.func @moira_step_moira_update_sgd_f32_only

// ORACLE-DAG: llvm.func @moira_step_main_only
// ORACLE-DAG: llvm.func @moira_step_main_backward_only
#rows = affine_map<(m, n, k) -> (m, k)>
#weights = affine_map<(m, n, k) -> (n, k)>
#sums = affine_map<(m, n, k) -> (m, n)>
func.func @main(%x: tensor<?x4xf32> {moe.name = "x"},
    %w: tensor<3x4xf32> {moe.param = #moe.param<"w">}) -> tensor<?x3xf32> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %t = tensor.dim %x, %c0 : tensor<?x4xf32>
  %empty = tensor.empty(%t) : tensor<?x3xf32>
  %start = linalg.fill ins(%zero : f32) outs(%empty : tensor<?x3xf32>) -> tensor<?x3xf32>
  %y = linalg.matmul indexing_maps = [#rows, #weights, #sums]
      ins(%x, %w : tensor<?x4xf32>, tensor<3x4xf32>)
      outs(%start : tensor<?x3xf32>) -> tensor<?x3xf32>
  return %y : tensor<?x3xf32>
}
