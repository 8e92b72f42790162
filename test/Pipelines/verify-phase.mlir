// RUN: moira-opt %s --moe-to-kernels | moira-opt --moe-verify-phase=phase=kernels
// RUN: moira-opt %s --moe-to-bufferized | moira-opt --moe-verify-phase=phase=bufferized
// RUN: moira-opt %s --moe-to-target | moira-opt --moe-verify-phase=phase=target
// RUN: moira-opt %s --moe-to-target=oracle=true | moira-opt --moe-verify-phase=phase=target
// RUN: not moira-opt %s --moe-verify-phase=phase=parsed 2>&1 | FileCheck %s --check-prefix=UNKNOWN
// RUN: not moira-opt %s --moe-verify-phase=phase=bufferized 2>&1 | FileCheck %s --check-prefix=TENSORS
// RUN: not moira-opt %s --moe-verify-phase=phase=target 2>&1 | FileCheck %s --check-prefix=MANIFEST

// UNKNOWN: error: expected phase input, sharded, differentiated, scheduled, kernels, bufferized, target, got 'parsed'
// TENSORS: error: 'tensor.dim' op expected no tensors at the end of phase bufferized, got 'tensor<?x8xf32>'
// MANIFEST: error: {{.*}} expected only the LLVM dialect at the end of phase target
func.func @main(%x: tensor<?x8xf32>,
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
