// RUN: moira-opt %s --split-input-file --moe-form-kernels | FileCheck %s

#rows = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#kn = affine_map<(m, n, k) -> (k, n)>
#km = affine_map<(m, n, k) -> (k, m)>
#sums = affine_map<(m, n, k) -> (m, n)>
#id = affine_map<(m, n) -> (m, n)>

// The way back of a gated expert: one product gives both gradients and the rows
// of the last one, two products are one chain, the rest are sums over rows.

// CHECK-LABEL: func.func @gated(
// CHECK-SAME: %[[X:.*]]: tensor<?x8xf32>, %[[DY:.*]]: tensor<?x8xf32>, %[[A:.*]]: tensor<?x16xf32>, %[[B:.*]]: tensor<?x16xf32>, %[[S:.*]]: tensor<2xi32>, %[[G:.*]]: tensor<2x16x8xf32>, %[[U:.*]]: tensor<2x16x8xf32>, %[[D:.*]]: tensor<2x8x16xf32>)
// CHECK: %[[ROWS:.*]]:3 = moe.grouped_matmul rows(%[[DY]] {{.*}} weights(%[[D]] : tensor<2x8x16xf32>) kn elements(%[[A]], %[[B]] : {{.*}}) -> tensor<?x16xf32>, tensor<?x16xf32>, tensor<?x16xf32>
// CHECK: %[[DX:.*]] = moe.grouped_matmul rows(%[[ROWS]]#1, %[[ROWS]]#2 : {{.*}}) groups(%[[S]] : tensor<2xi32>) weights(%[[G]], %[[U]] : tensor<2x16x8xf32>, tensor<2x16x8xf32>) kn chained -> tensor<?x8xf32>
// CHECK: %[[DG:.*]] = moe.grouped_matmul rows(%[[ROWS]]#1, %[[X]] : {{.*}}) {{.*}} contraction -> tensor<2x16x8xf32>
// CHECK: %[[DU:.*]] = moe.grouped_matmul rows(%[[ROWS]]#2, %[[X]] : {{.*}}) {{.*}} contraction -> tensor<2x16x8xf32>
// CHECK: %[[DD:.*]] = moe.grouped_matmul rows(%[[DY]], %[[ROWS]]#0 : {{.*}}) {{.*}} contraction -> tensor<2x8x16xf32>
// CHECK: %[[ONES:.*]] = linalg.fill ins(%{{.*}} : f32) outs(%{{.*}} : tensor<?x1xf32>)
// CHECK: %[[DB:.*]] = moe.grouped_matmul rows(%[[ONES]], %[[ROWS]]#1 : {{.*}}) {{.*}} contraction -> tensor<2x1x16xf32>
// CHECK: tensor.collapse_shape %[[DB]] {{\[\[}}0, 1], [2]] : tensor<2x1x16xf32> into tensor<2x16xf32>
// CHECK-NOT: scf.for
// CHECK: return %[[DX]], %[[DG]], %[[DU]], %[[DD]]
func.func @gated(%x: tensor<?x8xf32>, %dy: tensor<?x8xf32>, %a: tensor<?x16xf32>, %b: tensor<?x16xf32>, %s: tensor<2xi32>, %g: tensor<2x16x8xf32>, %u: tensor<2x16x8xf32>, %d: tensor<2x8x16xf32>)
    -> (tensor<?x8xf32>, tensor<2x16x8xf32>, tensor<2x16x8xf32>, tensor<2x8x16xf32>, tensor<2x16xf32>) {
  %0:5 = moe.expert rows(%x, %dy, %a, %b : tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x16xf32>, tensor<?x16xf32>) groups(%s : tensor<2xi32>)
      per_expert(%g, %u, %d : tensor<2x16x8xf32>, tensor<2x16x8xf32>, tensor<2x8x16xf32>)
      -> tensor<?x8xf32>, tensor<2x16x8xf32>, tensor<2x16x8xf32>, tensor<2x8x16xf32>, tensor<2x16xf32> {
  ^bb0(%r: tensor<?x8xf32>, %dyr: tensor<?x8xf32>, %ar: tensor<?x16xf32>, %br: tensor<?x16xf32>, %ge: tensor<16x8xf32>, %ue: tensor<16x8xf32>, %de: tensor<8x16xf32>):
    %c0 = arith.constant 0 : index
    %zero = arith.constant 0.0 : f32
    %n = tensor.dim %r, %c0 : tensor<?x8xf32>
    %e = tensor.empty(%n) : tensor<?x16xf32>
    %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x16xf32>) -> tensor<?x16xf32>
    %e8 = tensor.empty(%n) : tensor<?x8xf32>
    %z8 = linalg.fill ins(%zero : f32) outs(%e8 : tensor<?x8xf32>) -> tensor<?x8xf32>
    %ew = tensor.empty() : tensor<16x8xf32>
    %zw = linalg.fill ins(%zero : f32) outs(%ew : tensor<16x8xf32>) -> tensor<16x8xf32>
    %ed = tensor.empty() : tensor<8x16xf32>
    %zd = linalg.fill ins(%zero : f32) outs(%ed : tensor<8x16xf32>) -> tensor<8x16xf32>
    %eb = tensor.empty() : tensor<16xf32>
    %zb = linalg.fill ins(%zero : f32) outs(%eb : tensor<16xf32>) -> tensor<16xf32>
    %dh = linalg.matmul indexing_maps = [#rows, #kn, #sums] ins(%dyr, %de : tensor<?x8xf32>, tensor<8x16xf32>) outs(%z : tensor<?x16xf32>) -> tensor<?x16xf32>
    %h = arith.mulf %ar, %br : tensor<?x16xf32>
    %dg = arith.mulf %dh, %br : tensor<?x16xf32>
    %du = arith.mulf %dh, %ar : tensor<?x16xf32>
    %dx1 = linalg.matmul indexing_maps = [#rows, #kn, #sums] ins(%dg, %ge : tensor<?x16xf32>, tensor<16x8xf32>) outs(%z8 : tensor<?x8xf32>) -> tensor<?x8xf32>
    %dx = linalg.matmul indexing_maps = [#rows, #kn, #sums] ins(%du, %ue : tensor<?x16xf32>, tensor<16x8xf32>) outs(%dx1 : tensor<?x8xf32>) -> tensor<?x8xf32>
    %wg = linalg.matmul indexing_maps = [#km, #kn, #sums] ins(%dg, %r : tensor<?x16xf32>, tensor<?x8xf32>) outs(%zw : tensor<16x8xf32>) -> tensor<16x8xf32>
    %wu = linalg.matmul indexing_maps = [#km, #kn, #sums] ins(%du, %r : tensor<?x16xf32>, tensor<?x8xf32>) outs(%zw : tensor<16x8xf32>) -> tensor<16x8xf32>
    %wd = linalg.matmul indexing_maps = [#km, #kn, #sums] ins(%dyr, %h : tensor<?x8xf32>, tensor<?x16xf32>) outs(%zd : tensor<8x16xf32>) -> tensor<8x16xf32>
    %bg = linalg.reduce { arith.addf } ins(%dg : tensor<?x16xf32>) outs(%zb : tensor<16xf32>) dimensions = [0]
    moe.yield %dx, %wg, %wu, %wd, %bg : tensor<?x8xf32>, tensor<16x8xf32>, tensor<16x8xf32>, tensor<8x16xf32>, tensor<16xf32>
  }
  return %0#0, %0#1, %0#2, %0#3, %0#4 : tensor<?x8xf32>, tensor<2x16x8xf32>, tensor<2x16x8xf32>, tensor<2x8x16xf32>, tensor<2x16xf32>
}

// -----

#km = affine_map<(m, n, k) -> (k, m)>
#kn = affine_map<(m, n, k) -> (k, n)>
#sums = affine_map<(m, n, k) -> (m, n)>
#id = affine_map<(m, n) -> (m, n)>

// Rounded gradients are stored narrow, and a sum is rounded where it is made.

// CHECK-LABEL: func.func @narrow(
// CHECK: %[[DG:.*]] = moe.grouped_matmul {{.*}} kn elements({{.*}}) -> tensor<?x16xbf16>
// CHECK: moe.grouped_matmul rows(%[[DG]], %{{.*}} : tensor<?x16xbf16>, tensor<?x8xbf16>) {{.*}} contraction -> tensor<2x16x8xbf16>
func.func @narrow(%x: tensor<?x8xbf16>, %dy: tensor<?x8xbf16>, %a: tensor<?x16xf32>, %s: tensor<2xi32>, %d: tensor<2x8x16xbf16>) -> tensor<2x16x8xbf16> {
  %0 = moe.expert rows(%x, %dy, %a : tensor<?x8xbf16>, tensor<?x8xbf16>, tensor<?x16xf32>) groups(%s : tensor<2xi32>)
      per_expert(%d : tensor<2x8x16xbf16>) -> tensor<2x16x8xbf16> {
  ^bb0(%r: tensor<?x8xbf16>, %dyr: tensor<?x8xbf16>, %ar: tensor<?x16xf32>, %de: tensor<8x16xbf16>):
    %c0 = arith.constant 0 : index
    %zero = arith.constant 0.0 : f32
    %n = tensor.dim %r, %c0 : tensor<?x8xbf16>
    %e = tensor.empty(%n) : tensor<?x16xf32>
    %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x16xf32>) -> tensor<?x16xf32>
    %ew = tensor.empty() : tensor<16x8xf32>
    %zw = linalg.fill ins(%zero : f32) outs(%ew : tensor<16x8xf32>) -> tensor<16x8xf32>
    %dh = linalg.matmul ins(%dyr, %de : tensor<?x8xbf16>, tensor<8x16xbf16>) outs(%z : tensor<?x16xf32>) -> tensor<?x16xf32>
    %dg = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%dh, %ar : tensor<?x16xf32>, tensor<?x16xf32>) outs(%e : tensor<?x16xf32>) {
    ^bb1(%p: f32, %q: f32, %out: f32):
      %m = arith.mulf %p, %q : f32
      %t = arith.truncf %m : f32 to bf16
      %w = arith.extf %t : bf16 to f32
      linalg.yield %w : f32
    } -> tensor<?x16xf32>
    %wg = linalg.matmul indexing_maps = [#km, #kn, #sums] ins(%dg, %r : tensor<?x16xf32>, tensor<?x8xbf16>) outs(%zw : tensor<16x8xf32>) -> tensor<16x8xf32>
    %en = tensor.empty() : tensor<16x8xbf16>
    %wn = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%wg : tensor<16x8xf32>) outs(%en : tensor<16x8xbf16>) {
    ^bb1(%p: f32, %out: bf16):
      %t = arith.truncf %p : f32 to bf16
      linalg.yield %t : bf16
    } -> tensor<16x8xbf16>
    moe.yield %wn : tensor<16x8xbf16>
  }
  return %0 : tensor<2x16x8xbf16>
}

// -----

#km = affine_map<(m, n, k) -> (k, m)>
#kn = affine_map<(m, n, k) -> (k, n)>
#sums = affine_map<(m, n, k) -> (m, n)>

// Outside experts all rows are one group.

// CHECK-LABEL: func.func @dense(
// CHECK-SAME: %[[X:.*]]: tensor<?x8xf32>, %[[DY:.*]]: tensor<?x16xf32>
// CHECK: %[[T:.*]] = arith.index_cast
// CHECK: %[[S:.*]] = tensor.from_elements %[[T]] : tensor<1xi32>
// CHECK: %[[DW:.*]] = moe.grouped_matmul rows(%[[DY]], %[[X]] : {{.*}}) groups(%[[S]] : tensor<1xi32>) nk contraction -> tensor<1x16x8xf32>
// CHECK: tensor.collapse_shape %[[DW]] {{\[\[}}0, 1], [2]]
// CHECK: moe.grouped_matmul rows({{.*}}, %[[DY]] : tensor<?x1xf32>, tensor<?x16xf32>) {{.*}} contraction -> tensor<1x1x16xf32>
func.func @dense(%x: tensor<?x8xf32>, %dy: tensor<?x16xf32>) -> (tensor<16x8xf32>, tensor<16xf32>) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<16x8xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<16x8xf32>) -> tensor<16x8xf32>
  %w = linalg.matmul indexing_maps = [#km, #kn, #sums] ins(%dy, %x : tensor<?x16xf32>, tensor<?x8xf32>) outs(%z : tensor<16x8xf32>) -> tensor<16x8xf32>
  %eb = tensor.empty() : tensor<16xf32>
  %zb = linalg.fill ins(%zero : f32) outs(%eb : tensor<16xf32>) -> tensor<16xf32>
  %b = linalg.reduce { arith.addf } ins(%dy : tensor<?x16xf32>) outs(%zb : tensor<16xf32>) dimensions = [0]
  return %w, %b : tensor<16x8xf32>, tensor<16xf32>
}
