// RUN: moira-opt %s --pass-pipeline='builtin.module(func.func(moe-form-kernels{hidden-blocks=4}))' | FileCheck %s --check-prefix=KERNELS
// RUN: moira-opt %s --pass-pipeline='builtin.module(func.func(moe-form-kernels{hidden-blocks=3}))' | FileCheck %s --check-prefix=UNEVEN
// RUN: moira-opt %s --pass-pipeline='builtin.module(func.func(moe-cut-hidden{blocks=2}))' | FileCheck %s --check-prefix=CUT

// The way back of a gated expert, which says which dims of its weights are
// hidden: the gradients of hidden tensors have columns in blocks, the chain that
// gives the gradient of rows is one per block, and sums over rows are as they
// were. Three blocks do not divide 16.

// KERNELS-LABEL: func.func @gated(
// KERNELS: %[[ROWS:.*]]:3 = moe.grouped_matmul rows({{.*}} kn elements({{.*}} attributes {hidden = #moe.hidden<4 of n>}
// KERNELS: moe.grouped_matmul rows(%[[ROWS]]#1, %[[ROWS]]#2 : {{.*}} kn chained -> tensor<?x8xf32> attributes {hidden = #moe.hidden<4 of k>}
// KERNELS-COUNT-4: contraction
// KERNELS-NOT: hidden

// UNEVEN-LABEL: func.func @gated(
// UNEVEN-NOT: #moe.hidden<

// CUT-LABEL: func.func @gated(
// CUT: arith.mulf
// CUT: %[[DG:.*]] = arith.mulf
// CUT: %[[DU:.*]] = arith.mulf
// CUT: %[[G0:.*]] = tensor.extract_slice %[[DG]][0, 0] [%{{.*}}, 8] [1, 1]
// CUT: %[[S0:.*]] = linalg.matmul {{.*}}ins(%[[G0]], %{{.*}}) outs(%[[ZERO:.*]] : tensor<?x8xf32>)
// CUT: %[[U0:.*]] = tensor.extract_slice %[[DU]][0, 0] [%{{.*}}, 8] [1, 1]
// CUT: %[[T0:.*]] = linalg.matmul {{.*}}ins(%[[U0]], %{{.*}}) outs(%[[S0]] : tensor<?x8xf32>)
// CUT: %[[G1:.*]] = tensor.extract_slice %[[DG]][0, 8]
// CUT: %[[S1:.*]] = linalg.matmul {{.*}}ins(%[[G1]], %{{.*}})
// CUT: %[[U1:.*]] = tensor.extract_slice %[[DU]][0, 8]
// CUT: %[[T1:.*]] = linalg.matmul {{.*}}ins(%[[U1]], %{{.*}}) outs(%[[S1]] : tensor<?x8xf32>)
// CUT: linalg.generic {{.*}} ins(%[[T0]], %[[T1]] : tensor<?x8xf32>, tensor<?x8xf32>)
// CUT: arith.addf

#rows = affine_map<(m, n, k) -> (m, k)>
#kn = affine_map<(m, n, k) -> (k, n)>
#km = affine_map<(m, n, k) -> (k, m)>
#sums = affine_map<(m, n, k) -> (m, n)>
func.func @gated(%x: tensor<?x8xf32>, %dy: tensor<?x8xf32>, %a: tensor<?x16xf32>, %b: tensor<?x16xf32>, %s: tensor<2xi32>, %g: tensor<2x16x8xf32>, %u: tensor<2x16x8xf32>, %d: tensor<2x8x16xf32>)
    -> (tensor<?x8xf32>, tensor<2x16x8xf32>, tensor<2x16x8xf32>, tensor<2x8x16xf32>, tensor<2x16xf32>) {
  %0:5 = moe.expert rows(%x, %dy, %a, %b : tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x16xf32>, tensor<?x16xf32>) groups(%s : tensor<2xi32>)
      per_expert(%g, %u, %d : tensor<2x16x8xf32>, tensor<2x16x8xf32>, tensor<2x8x16xf32>)
      -> tensor<?x8xf32>, tensor<2x16x8xf32>, tensor<2x16x8xf32>, tensor<2x8x16xf32>, tensor<2x16xf32>
      attributes {moe.hidden_places = array<i64: 0, 1, 0, 0, 1, 0, 1, 1, 0>} {
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
