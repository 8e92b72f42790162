// RUN: moira-opt %s --verify-roundtrip | FileCheck %s
// RUN: moira-opt %s --mlir-print-op-generic | moira-opt --verify-roundtrip | FileCheck %s

// Sums of an expert: a bias' gradient, a weight's in two parts, rounded, and
// one that nothing reaches.
// CHECK-LABEL: func.func @sums
// CHECK: moe.expert {{.*}} -> tensor<?x16xf32>, tensor<4x16xf32>, tensor<4x16x8xbf16>, tensor<4xf32>, tensor<4x2xf32>
func.func @sums(%x: tensor<?x8xf32>, %dy: tensor<?x16xf32>, %n: tensor<4xi32>) -> (tensor<?x16xf32>, tensor<4x16xf32>, tensor<4x16x8xbf16>, tensor<4xf32>, tensor<4x2xf32>) {
  %0:5 = moe.expert rows(%x, %dy : tensor<?x8xf32>, tensor<?x16xf32>) groups(%n : tensor<4xi32>)
      -> tensor<?x16xf32>, tensor<4x16xf32>, tensor<4x16x8xbf16>, tensor<4xf32>, tensor<4x2xf32> {
  ^bb0(%r: tensor<?x8xf32>, %d: tensor<?x16xf32>):
    %zero = arith.constant 0.0 : f32
    %e = tensor.empty() : tensor<16xf32>
    %z = linalg.fill ins(%zero : f32) outs(%e : tensor<16xf32>) -> tensor<16xf32>
    %sum = linalg.reduce ins(%d : tensor<?x16xf32>) outs(%z : tensor<16xf32>) dimensions = [0]
      (%a: f32, %b: f32) { %t = arith.addf %a, %b : f32 linalg.yield %t : f32 }
    %e2 = tensor.empty() : tensor<16x8xf32>
    %z2 = linalg.fill ins(%zero : f32) outs(%e2 : tensor<16x8xf32>) -> tensor<16x8xf32>
    %w = linalg.generic {indexing_maps = [affine_map<(i, j, k) -> (k, i)>, affine_map<(i, j, k) -> (k, j)>, affine_map<(i, j, k) -> (i, j)>], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%d, %r : tensor<?x16xf32>, tensor<?x8xf32>) outs(%z2 : tensor<16x8xf32>) {
    ^bb1(%a: f32, %b: f32, %c: f32):
      %p = arith.mulf %a, %b : f32
      %q = arith.addf %c, %p : f32
      linalg.yield %q : f32
    } -> tensor<16x8xf32>
    %w2 = linalg.generic {indexing_maps = [affine_map<(i, j, k) -> (k, i)>, affine_map<(i, j, k) -> (k, j)>, affine_map<(i, j, k) -> (i, j)>], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%d, %r : tensor<?x16xf32>, tensor<?x8xf32>) outs(%w : tensor<16x8xf32>) {
    ^bb1(%a: f32, %b: f32, %c: f32):
      %p = arith.mulf %a, %b : f32
      %q = arith.addf %p, %c : f32
      linalg.yield %q : f32
    } -> tensor<16x8xf32>
    %both = arith.addf %w, %w2 : tensor<16x8xf32>
    %narrow = arith.truncf %both : tensor<16x8xf32> to tensor<16x8xbf16>
    %e0 = tensor.empty() : tensor<f32>
    %z0 = linalg.fill ins(%zero : f32) outs(%e0 : tensor<f32>) -> tensor<f32>
    %all = linalg.reduce ins(%r : tensor<?x8xf32>) outs(%z0 : tensor<f32>) dimensions = [0, 1]
      (%a: f32, %b: f32) { %t = arith.addf %a, %b : f32 linalg.yield %t : f32 }
    %none = arith.constant dense<0.0> : tensor<2xf32>
    moe.yield %d, %sum, %narrow, %all, %none : tensor<?x16xf32>, tensor<16xf32>, tensor<16x8xbf16>, tensor<f32>, tensor<2xf32>
  }
  return %0#0, %0#1, %0#2, %0#3, %0#4 : tensor<?x16xf32>, tensor<4x16xf32>, tensor<4x16x8xbf16>, tensor<4xf32>, tensor<4x2xf32>
}
