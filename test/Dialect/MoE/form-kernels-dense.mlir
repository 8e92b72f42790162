// RUN: moira-opt %s --moe-form-kernels | FileCheck %s
// RUN: moira-opt %s --moe-form-kernels=disable-fusion=activation | FileCheck %s --check-prefix=PLAIN
// RUN: moira-opt %s --moe-form-kernels=dense=false | FileCheck %s --check-prefix=OFF

#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#mn = affine_map<(m, n, k) -> (m, n)>
#id = affine_map<(m, n) -> (m, n)>
#row = affine_map<(m, n) -> (m)>

// CHECK-LABEL: func @router(
// CHECK-SAME: %[[X:.*]]: tensor<?x8xbf16>, %[[W:.*]]: tensor<4x8xbf16>, %[[B:.*]]: tensor<4xf32>)
// CHECK: %[[T:.*]] = tensor.dim %[[X]]
// CHECK: %[[I:.*]] = arith.index_cast %[[T]] : index to i32
// CHECK: %[[S:.*]] = tensor.from_elements %[[I]] : tensor<1xi32>
// CHECK: %[[W1:.*]] = tensor.expand_shape %[[W]] {{\[\[}}0, 1], [2]] output_shape [1, 4, 8]
// CHECK: %[[B1:.*]] = tensor.expand_shape %[[B]] {{\[\[}}0, 1]] output_shape [1, 4]
// CHECK: moe.grouped_matmul rows(%[[X]] : tensor<?x8xbf16>) groups(%[[S]] : tensor<1xi32>)
// CHECK-SAME: weights(%[[W1]] : tensor<1x4x8xbf16>) nk bias(%[[B1]] : tensor<1x4xf32>) -> tensor<?x4xbf16>
// CHECK: arith.truncf
// CHECK-NOT: linalg
// PLAIN-LABEL: func @router(
// PLAIN: moe.grouped_matmul {{.*}} -> tensor<?x4xf32>
// PLAIN: arith.truncf %{{.*}} : tensor<?x4xf32> to tensor<?x4xbf16>
// What stays sums in the kernels' order: one fused chain per element.
// OFF-LABEL: func @router(
// OFF-NOT: moe.grouped_matmul
// OFF: linalg.generic
// OFF: math.fma
func.func @router(%x: tensor<?x8xbf16>, %w: tensor<4x8xbf16>, %b: tensor<4xf32>) -> tensor<?x4xbf16> {
  %c0 = arith.constant 0 : index
  %n = tensor.dim %x, %c0 : tensor<?x8xbf16>
  %e = tensor.empty(%n) : tensor<?x4xf32>
  %init = linalg.broadcast ins(%b : tensor<4xf32>) outs(%e : tensor<?x4xf32>) dimensions = [0]
  %p = linalg.matmul indexing_maps = [#mk, #nk, #mn] ins(%x, %w : tensor<?x8xbf16>, tensor<4x8xbf16>) outs(%init : tensor<?x4xf32>) -> tensor<?x4xf32>
  %t = arith.truncf %p : tensor<?x4xf32> to tensor<?x4xbf16>
  return %t : tensor<?x4xbf16>
}

// A dense gated block: two stages; one value per row comes as scalars.

// CHECK-LABEL: func @gated(
// CHECK: %[[H:.*]] = moe.grouped_matmul {{.*}} weights(%{{.*}}, %{{.*}} : tensor<1x8x4xf32>, tensor<1x8x4xf32>) kn -> tensor<6x4xf32>
// CHECK: math.tanh
// CHECK: arith.mulf
// CHECK: moe.grouped_matmul rows(%[[H]] {{.*}} elements(%{{.*}} : tensor<6x8xf32>) scalars(%{{.*}} : tensor<6xf32>) -> tensor<6x8xf32>
// CHECK-NOT: linalg
func.func @gated(%x: tensor<6x8xf32>, %g: tensor<8x4xf32>, %u: tensor<8x4xf32>, %d: tensor<4x8xf32>, %s: tensor<6xf32>) -> tensor<6x8xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<6x4xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<6x4xf32>) -> tensor<6x4xf32>
  %a = linalg.matmul ins(%x, %g : tensor<6x8xf32>, tensor<8x4xf32>) outs(%z : tensor<6x4xf32>) -> tensor<6x4xf32>
  %t = math.tanh %a : tensor<6x4xf32>
  %b = linalg.matmul ins(%x, %u : tensor<6x8xf32>, tensor<8x4xf32>) outs(%z : tensor<6x4xf32>) -> tensor<6x4xf32>
  %at = arith.mulf %a, %t : tensor<6x4xf32>
  %h = arith.mulf %at, %b : tensor<6x4xf32>
  %e2 = tensor.empty() : tensor<6x8xf32>
  %z2 = linalg.fill ins(%zero : f32) outs(%e2 : tensor<6x8xf32>) -> tensor<6x8xf32>
  %o = linalg.matmul ins(%h, %d : tensor<6x4xf32>, tensor<4x8xf32>) outs(%z2 : tensor<6x8xf32>) -> tensor<6x8xf32>
  %r = linalg.generic {indexing_maps = [#id, #row, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%o, %s, %x : tensor<6x8xf32>, tensor<6xf32>, tensor<6x8xf32>) outs(%e2 : tensor<6x8xf32>) {
  ^bb0(%v: f32, %w: f32, %res: f32, %out: f32):
    %m = arith.mulf %v, %w : f32
    %q = arith.addf %m, %res : f32
    linalg.yield %q : f32
  } -> tensor<6x8xf32>
  return %r : tensor<6x8xf32>
}

// Two tensors after the product are read by others: only the product is taken.

// CHECK-LABEL: func @two_readers(
// CHECK: %[[P:.*]] = moe.grouped_matmul {{.*}} -> tensor<?x4xf32>
// CHECK: math.tanh %[[P]] : tensor<?x4xf32>
// CHECK: math.exp %[[P]] : tensor<?x4xf32>
func.func @two_readers(%x: tensor<?x8xf32>, %w: tensor<8x4xf32>) -> (tensor<?x4xf32>, tensor<?x4xf32>) {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %n = tensor.dim %x, %c0 : tensor<?x8xf32>
  %e = tensor.empty(%n) : tensor<?x4xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x4xf32>) -> tensor<?x4xf32>
  %p = linalg.matmul ins(%x, %w : tensor<?x8xf32>, tensor<8x4xf32>) outs(%z : tensor<?x4xf32>) -> tensor<?x4xf32>
  %a = math.tanh %p : tensor<?x4xf32>
  %b = math.exp %p : tensor<?x4xf32>
  return %a, %b : tensor<?x4xf32>, tensor<?x4xf32>
}
