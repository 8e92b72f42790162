// The router stays vectorised: of OLMoE's, Qwen3's and DeepSeek-V3's gates the
// exponentials run on whole registers, and the logits are whole-register
// multiply-adds.
//
// RUN: split-file %s %t
// RUN: moira-compile %t/olmoe.mlir --rows prefill --target-cpu x86-64-v4 --emit asm -o - | FileCheck %s
// RUN: moira-compile %t/qwen3.mlir --rows prefill --target-cpu x86-64-v4 --emit asm -o - | FileCheck %s
// RUN: moira-compile %t/deepseek.mlir --rows prefill --target-cpu x86-64-v4 --emit asm -o - | FileCheck %s
//
// CHECK-LABEL: _parallel_0:
// CHECK: call{{.*}} moira_tiles_f32
// CHECK-LABEL: _parallel_1:
// Two steps of the argument's reduction and six of the polynomial.
// CHECK-COUNT-8: vfmadd{{[0-9]+}}ps {{.*}}%zmm
// CHECK: vdivps {{.*}}%zmm
// CHECK: ret
// CHECK-LABEL: moira_tiles_f32{{.*}}:
// CHECK: vfmadd231ps {{.*}}%zmm

//--- olmoe.mlir
#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#mn = affine_map<(m, n, k) -> (m, n)>
func.func @main(%x: tensor<?x2048xf32>, %w: tensor<64x2048xf32> {moe.param = #moe.param<"w">}) -> (tensor<?x8xi32>, tensor<?x8xf32>) {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %t = tensor.dim %x, %c0 : tensor<?x2048xf32>
  %e = tensor.empty(%t) : tensor<?x64xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x64xf32>) -> tensor<?x64xf32>
  %l = linalg.matmul indexing_maps = [#mk, #nk, #mn] ins(%x, %w : tensor<?x2048xf32>, tensor<64x2048xf32>) outs(%z : tensor<?x64xf32>) -> tensor<?x64xf32>
  %ids, %weights = moe.gate %l router<> : tensor<?x64xf32> -> tensor<?x8xi32>, tensor<?x8xf32>
  return %ids, %weights : tensor<?x8xi32>, tensor<?x8xf32>
}

//--- qwen3.mlir
#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#mn = affine_map<(m, n, k) -> (m, n)>
func.func @main(%x: tensor<?x2048xf32>, %w: tensor<128x2048xf32> {moe.param = #moe.param<"w">}) -> (tensor<?x8xi32>, tensor<?x8xf32>) {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %t = tensor.dim %x, %c0 : tensor<?x2048xf32>
  %e = tensor.empty(%t) : tensor<?x128xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x128xf32>) -> tensor<?x128xf32>
  %l = linalg.matmul indexing_maps = [#mk, #nk, #mn] ins(%x, %w : tensor<?x2048xf32>, tensor<128x2048xf32>) outs(%z : tensor<?x128xf32>) -> tensor<?x128xf32>
  %ids, %weights = moe.gate %l router<normalize = sum_plus_eps> : tensor<?x128xf32> -> tensor<?x8xi32>, tensor<?x8xf32>
  return %ids, %weights : tensor<?x8xi32>, tensor<?x8xf32>
}

//--- deepseek.mlir
#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#mn = affine_map<(m, n, k) -> (m, n)>
func.func @main(%x: tensor<?x2048xf32>, %w: tensor<256x2048xf32> {moe.param = #moe.param<"w">}, %b: tensor<256xf32> {moe.param = #moe.param<"b">}) -> (tensor<?x8xi32>, tensor<?x8xf32>) {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %t = tensor.dim %x, %c0 : tensor<?x2048xf32>
  %e = tensor.empty(%t) : tensor<?x256xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x256xf32>) -> tensor<?x256xf32>
  %l = linalg.matmul indexing_maps = [#mk, #nk, #mn] ins(%x, %w : tensor<?x2048xf32>, tensor<256x2048xf32>) outs(%z : tensor<?x256xf32>) -> tensor<?x256xf32>
  %ids, %weights = moe.gate %l router<score = sigmoid, groups = 8, keep = 4, group_score = sum_top2, normalize = sum_plus_eps, eps = 1.0e-20, scale = 2.5>
      bias(%b : tensor<256xf32>) : tensor<?x256xf32> -> tensor<?x8xi32>, tensor<?x8xf32>
  return %ids, %weights : tensor<?x8xi32>, tensor<?x8xf32>
}
