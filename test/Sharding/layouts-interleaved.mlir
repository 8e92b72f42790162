// DEFINE: %{layouts} = -canonicalize -cse --moe-form-kernels=hidden-blocks=2 --moe-assign-layouts -canonicalize -cse
// RUN: moira-opt %s --moe-shard="ranks=4 r=1" --moe-fold-replicates %{layouts} > %t.1
// RUN: moira-opt %s --moe-shard="ranks=4 r=2" --moe-fold-replicates %{layouts} > %t.2
// RUN: FileCheck %s --check-prefixes=CHECK,R1 < %t.1
// RUN: FileCheck %s --check-prefixes=CHECK,R2 < %t.2
// RUN: sed -n "/func.func private/,$p" %t.1 > %t.pack1
// RUN: sed -n "/func.func private/,$p" %t.2 | diff %t.pack1 -

// Gate and up are packed one by one, biases too, whether shards are put together
// or not: what a rank holds does not depend on r.
// RUN: grep "func.func @interleaved" %t.1 > %t.signature1
// RUN: grep "func.func @interleaved" %t.2 | diff %t.signature1 -

// CHECK-LABEL: func.func @interleaved
// CHECK-SAME: %[[G:[^:]*]]: tensor<1x1x8x16xf32> {moe.packing = {{[^@]*}}function = @[[G_PACK:[^,]*]], logical = tensor<1x8x8xf32>, slices = 1 : i64, source = tensor<8x8xf32>}
// CHECK-SAME: moe.shard = #moe.shard<experts = 2, shards = 2, dim = 0, parts = 2, interleaved = true>}
// CHECK-SAME: %[[U:[^:]*]]: tensor<1x1x8x16xf32> {moe.packing = {{[^@]*}}function = @[[U_PACK:[^,]*]], logical
// CHECK-SAME: %[[GB:[^:]*]]: tensor<1x4xf32> {moe.packing = {{[^@]*}}function = @[[GB_PACK:[^,]*]], logical = tensor<1x8xf32>, slices = 1 : i64, source = tensor<8xf32>}
// CHECK-SAME: %[[UB:[^:]*]]: tensor<1x4xf32>
// R1-DAG: %[[GA:.*]] = moe.gather_weights %[[G]] dim 1 at {{.*}} : tensor<1x1x8x16xf32> -> tensor<1x2x8x16xf32>
// R1-DAG: %[[UA:.*]] = moe.gather_weights %[[U]] dim 1
// R1-DAG: %[[GBA:.*]] = moe.gather_weights %[[GB]] dim 1 at {{.*}} : tensor<1x4xf32> -> tensor<1x8xf32>
// R1-DAG: %[[UBA:.*]] = moe.gather_weights %[[UB]] dim 1
// R1: moe.grouped_matmul {{.*}} weights(%[[GA]], %[[UA]] : {{.*}} bias(%[[GBA]], %[[UBA]] : {{.*}}hidden = #moe.hidden<2 of n>
// R1: moe.grouped_matmul {{.*}}hidden = #moe.hidden<2 of k>
// R2: moe.grouped_matmul {{.*}} weights(%[[G]], %[[U]] : {{.*}} bias(%[[GB]], %[[UB]] :
// R2-NOT: moe.hidden
// CHECK: func.func private @[[GB_PACK]](
// CHECK: tensor.extract_slice %{{.*}}[0] [4] [2] : tensor<8xf32> to tensor<4xf32>
// CHECK: func.func private @[[G_PACK]](
// CHECK: tensor.extract_slice %{{.*}}[0, 0] [4, 8] [2, 1] : tensor<8x8xf32> to tensor<4x8xf32>
// CHECK: func.func private @[[U_PACK]](
// CHECK: tensor.extract_slice %{{.*}}[1, 0] [4, 8] [2, 1] : tensor<8x8xf32> to tensor<4x8xf32>
func.func @interleaved(%rows: tensor<?x8xf32>, %sizes: tensor<2xi32>,
    %w: tensor<2x16x8xf32> {moe.param = #moe.param<"gate_up{}">},
    %b: tensor<2x16xf32> {moe.param = #moe.param<"gate_up_bias{}">},
    %d: tensor<2x6x8xf32> {moe.param = #moe.param<"down{}">}, %slots: tensor<?x1xi32>) -> tensor<?x6xf32> {
  %y = moe.expert rows(%rows : tensor<?x8xf32>) groups(%sizes : tensor<2xi32>)
      per_expert(%w, %b, %d : tensor<2x16x8xf32>, tensor<2x16xf32>, tensor<2x6x8xf32>)
      -> tensor<?x6xf32> {
  ^bb0(%r: tensor<?x8xf32>, %we: tensor<16x8xf32>, %be: tensor<16xf32>, %de: tensor<6x8xf32>):
    %i0 = arith.constant 0 : index
    %zero = arith.constant 0.0 : f32
    %n = tensor.dim %r, %i0 : tensor<?x8xf32>
    %e16 = tensor.empty(%n) : tensor<?x16xf32>
    %b16 = linalg.broadcast ins(%be : tensor<16xf32>) outs(%e16 : tensor<?x16xf32>) dimensions = [0]
    %gu = linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>,
        affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
        ins(%r, %we : tensor<?x8xf32>, tensor<16x8xf32>) outs(%b16 : tensor<?x16xf32>) -> tensor<?x16xf32>
    %g = tensor.extract_slice %gu[0, 0] [%n, 8] [1, 2] : tensor<?x16xf32> to tensor<?x8xf32>
    %u = tensor.extract_slice %gu[0, 1] [%n, 8] [1, 2] : tensor<?x16xf32> to tensor<?x8xf32>
    %h = arith.mulf %g, %u : tensor<?x8xf32>
    %e6 = tensor.empty(%n) : tensor<?x6xf32>
    %z6 = linalg.fill ins(%zero : f32) outs(%e6 : tensor<?x6xf32>) -> tensor<?x6xf32>
    %m = linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>,
        affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
        ins(%h, %de : tensor<?x8xf32>, tensor<6x8xf32>) outs(%z6 : tensor<?x6xf32>) -> tensor<?x6xf32>
    moe.yield %m : tensor<?x6xf32>
  }
  %o = moe.combine %y, %slots : tensor<?x6xf32>, tensor<?x1xi32> -> tensor<?x6xf32>
  return %o : tensor<?x6xf32>
}
