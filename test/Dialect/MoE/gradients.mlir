// RUN: moira-opt %s --verify-roundtrip | FileCheck %s
// RUN: moira-opt %s --mlir-print-op-generic | moira-opt --verify-roundtrip | FileCheck %s
// RUN: moira-opt %s --canonicalize | FileCheck %s --check-prefix=CANON
// RUN: moira-opt %s --one-shot-bufferize=bufferize-function-boundaries | FileCheck %s --check-prefix=BUFFER

// CHECK-LABEL: func.func @gate
// CHECK: moe.gate_gradient %{{.*}}, %{{.*}}, %{{.*}} router<normalize = max_sum_eps> : tensor<?x4xbf16>, tensor<?x2xi32>, tensor<?x2xf32> -> tensor<?x4xbf16>
// CHECK: moe.gate_gradient %{{.*}} router<after_top_k> weights(%{{.*}} : tensor<?x2xf32>) selected(%{{.*}} : tensor<?x2xi32>)
// BUFFER-LABEL: func.func @gate
// BUFFER: %[[T:.*]] = memref.dim
// BUFFER: %[[OUT:.*]] = memref.alloc(%[[T]]) {{.*}} : memref<?x4xbf16>
// BUFFER: moe.gate_gradient {{.*}} outs(%[[OUT]] : memref<?x4xbf16>)
func.func @gate(%l: tensor<?x4xbf16>, %i: tensor<?x2xi32>, %d: tensor<?x2xf32>) -> (tensor<?x4xbf16>, tensor<?x4xbf16>) {
  %0 = moe.gate_gradient %l, %i, %d router<normalize = max_sum_eps>
      : tensor<?x4xbf16>, tensor<?x2xi32>, tensor<?x2xf32> -> tensor<?x4xbf16>
  %1 = moe.gate_gradient %l, %i, %d router<after_top_k> weights(%d : tensor<?x2xf32>) selected(%i : tensor<?x2xi32>)
      : tensor<?x4xbf16>, tensor<?x2xi32>, tensor<?x2xf32> -> tensor<?x4xbf16>
  return %0, %1 : tensor<?x4xbf16>, tensor<?x4xbf16>
}

// Without tokens there is nothing to do.
// CANON-LABEL: func.func @empty
// CANON-NOT: moe.
// CANON: return
func.func @empty(%l: tensor<0x4xf32>, %i: tensor<0x2xi32>, %d: tensor<0x2xf32>, %r: tensor<?x8xf32>, %x: tensor<0x8xf32>) -> (tensor<0x4xf32>, tensor<0x2xf32>) {
  %0 = moe.gate_gradient %l, %i, %d router<> : tensor<0x4xf32>, tensor<0x2xi32>, tensor<0x2xf32> -> tensor<0x4xf32>
  %1 = moe.pair_dot %r, %x, %i : tensor<?x8xf32>, tensor<0x8xf32>, tensor<0x2xi32> -> tensor<0x2xf32>
  return %0, %1 : tensor<0x4xf32>, tensor<0x2xf32>
}

// CHECK-LABEL: func.func @pair_dot
// CHECK: moe.pair_dot %{{.*}}, %{{.*}}, %{{.*}} : tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x2xi32> -> tensor<?x2xf32>
// CHECK: moe.pair_dot {{.*}} : tensor<4x?x8xf64>, tensor<?x8xf64>, tensor<?x2xi32> -> tensor<?x2xf64>
// BUFFER-LABEL: func.func @pair_dot
// BUFFER: moe.pair_dot {{.*}} outs({{.*}} : memref<?x2xf32>)
func.func @pair_dot(%r: tensor<?x8xf32>, %x: tensor<?x8xf32>, %s: tensor<?x2xi32>, %p: tensor<4x?x8xf64>, %y: tensor<?x8xf64>) -> (tensor<?x2xf32>, tensor<?x2xf64>) {
  %0 = moe.pair_dot %r, %x, %s : tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x2xi32> -> tensor<?x2xf32>
  %1 = moe.pair_dot %p, %y, %s : tensor<4x?x8xf64>, tensor<?x8xf64>, tensor<?x2xi32> -> tensor<?x2xf64>
  return %0, %1 : tensor<?x2xf32>, tensor<?x2xf64>
}

// A product with two results: a value and what its derivative needs.
// CHECK-LABEL: func.func @two_results
// CHECK: moe.grouped_matmul {{.*}} -> tensor<?x16xbf16>, tensor<?x16xf32> {
// BUFFER-LABEL: func.func @two_results
// BUFFER: moe.grouped_matmul {{.*}} outs(%{{.*}}, %{{.*}} : memref<?x16xbf16>, memref<?x16xf32>)
func.func @two_results(%x: tensor<?x8xf32>, %n: tensor<4xi32>, %w: tensor<4x16x8xf32>) -> (tensor<?x16xbf16>, tensor<?x16xf32>) {
  %0:2 = moe.grouped_matmul rows(%x : tensor<?x8xf32>) groups(%n : tensor<4xi32>) weights(%w : tensor<4x16x8xf32>) nk
      -> tensor<?x16xbf16>, tensor<?x16xf32> {
  ^bb0(%a: f32):
    %t = arith.truncf %a : f32 to bf16
    moe.yield %t, %a : bf16, f32
  }
  return %0#0, %0#1 : tensor<?x16xbf16>, tensor<?x16xf32>
}
