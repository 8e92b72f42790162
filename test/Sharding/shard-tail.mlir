// RUN: moira-opt %s --moe-shard="ranks=4 r=2" --moe-fold-replicates -canonicalize -cse | FileCheck %s

// Two sets of rows travel; two results come back as parts of sums. What follows
// the last products is applied to rows at home: it reads the expert's rows and a
// shared operand.

// CHECK-LABEL: func.func @main
// CHECK-SAME: %[[ROWS:[^:]*]]: tensor<?x8xf32>, %[[RES:[^:]*]]: tensor<?x6xf32>
// CHECK-SAME: %[[SHARED:[^:]*]]: tensor<6xf32>
// CHECK: %[[N:.*]] = tensor.dim %[[ROWS]], %c0
// CHECK: %[[AWAY:.*]] = moe.exchange to_experts %[[ROWS]]
// CHECK: moe.expert rows(%[[AWAY]] : tensor<?x8xf32>) {{.*}} -> tensor<?x6xf32>, tensor<?x4xf32> {
// CHECK: moe.yield %{{.*}}, %{{.*}} : tensor<?x6xf32>, tensor<?x4xf32>
// CHECK: moe.exchange to_tokens {{.*}} -> tensor<2x?x6xf32>
// CHECK: moe.exchange to_tokens {{.*}} -> tensor<2x?x4xf32>
// CHECK: %[[SUM:.*]] = linalg.generic {{.*}} outs(%{{.*}} : tensor<?x6xf32>)
// CHECK: linalg.generic {{.*}} outs(%{{.*}} : tensor<?x4xf32>)
// CHECK: linalg.broadcast ins(%[[SHARED]] : tensor<6xf32>)
// CHECK: arith.addf %[[SUM]], %[[RES]] : tensor<?x6xf32>
// CHECK: arith.mulf
func.func @main(%rows: tensor<?x8xf32>, %res: tensor<?x6xf32>, %sizes: tensor<2xi32>, %shared: tensor<6xf32>,
    %g: tensor<2x16x8xf32> {moe.param = #moe.param<"gate{}">},
    %d: tensor<2x6x16xf32> {moe.param = #moe.param<"down{}">},
    %d2: tensor<2x4x16xf32> {moe.param = #moe.param<"other{}">},
    %slots: tensor<?x1xi32>) -> (tensor<?x6xf32>, tensor<?x4xf32>) {
  %y:2 = moe.expert rows(%rows, %res : tensor<?x8xf32>, tensor<?x6xf32>) groups(%sizes : tensor<2xi32>)
      per_expert(%g, %d, %d2 : tensor<2x16x8xf32>, tensor<2x6x16xf32>, tensor<2x4x16xf32>)
      shared(%shared : tensor<6xf32>) -> tensor<?x6xf32>, tensor<?x4xf32> {
  ^bb0(%r: tensor<?x8xf32>, %s: tensor<?x6xf32>, %ge: tensor<16x8xf32>, %de: tensor<6x16xf32>,
       %de2: tensor<4x16xf32>, %sh: tensor<6xf32>):
    %i0 = arith.constant 0 : index
    %zero = arith.constant 0.0 : f32
    %n = tensor.dim %r, %i0 : tensor<?x8xf32>
    %e = tensor.empty(%n) : tensor<?x16xf32>
    %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x16xf32>) -> tensor<?x16xf32>
    %a = linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>,
        affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
        ins(%r, %ge : tensor<?x8xf32>, tensor<16x8xf32>) outs(%z : tensor<?x16xf32>) -> tensor<?x16xf32>
    %h = math.tanh %a : tensor<?x16xf32>
    %e6 = tensor.empty(%n) : tensor<?x6xf32>
    %z6 = linalg.fill ins(%zero : f32) outs(%e6 : tensor<?x6xf32>) -> tensor<?x6xf32>
    %m = linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>,
        affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
        ins(%h, %de : tensor<?x16xf32>, tensor<6x16xf32>) outs(%z6 : tensor<?x6xf32>) -> tensor<?x6xf32>
    %e4 = tensor.empty(%n) : tensor<?x4xf32>
    %z4 = linalg.fill ins(%zero : f32) outs(%e4 : tensor<?x4xf32>) -> tensor<?x4xf32>
    %m2 = linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>,
        affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
        ins(%h, %de2 : tensor<?x16xf32>, tensor<4x16xf32>) outs(%z4 : tensor<?x4xf32>) -> tensor<?x4xf32>
    %w = linalg.broadcast ins(%sh : tensor<6xf32>) outs(%e6 : tensor<?x6xf32>) dimensions = [0]
    %o = arith.addf %m, %s : tensor<?x6xf32>
    %p = arith.mulf %o, %w : tensor<?x6xf32>
    moe.yield %p, %m2 : tensor<?x6xf32>, tensor<?x4xf32>
  }
  %out = moe.combine %y#0, %slots : tensor<?x6xf32>, tensor<?x1xi32> -> tensor<?x6xf32>
  %out2 = moe.combine %y#1, %slots : tensor<?x4xf32>, tensor<?x1xi32> -> tensor<?x4xf32>
  return %out, %out2 : tensor<?x6xf32>, tensor<?x4xf32>
}
