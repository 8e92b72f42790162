// RUN: moira-opt %s --moe-shard="ranks=4 r=2" -canonicalize -cse | FileCheck %s
// RUN: moira-opt %s --moe-shard="ranks=4 r=2 spare=1" -canonicalize -cse | FileCheck %s --check-prefix=SPARE
// RUN: moira-opt %s --moe-shard="ranks=4 r=2 spare=1" --moe-fold-replicates -canonicalize -cse | FileCheck %s --check-prefix=FOLDED

// Who has the same weights: all holders of an expert its whole bias, and with spare
// slots perhaps several ranks one shard. A gather that moves nothing says so until
// the program is differentiated.

// CHECK-LABEL: func.func @main
// CHECK-SAME: %[[G:[^:]*]]: tensor<1x8x8xf32> {
// CHECK-SAME: %[[D:[^:]*]]: tensor<1x6x8xf32> {
// CHECK-SAME: %[[DB:[^:]*]]: tensor<1x6xf32> {
// CHECK: %[[B:.*]] = moe.gather_weights %[[DB]] at <ranks = 4, experts = 2, shards = 2, copies = 2, slots = 1> : tensor<1x6xf32> -> tensor<1x6xf32>
// CHECK-NOT: moe.gather_weights
// CHECK: linalg.generic {{.*}} ins(%[[B]], %{{.*}} : tensor<1x6xf32>, tensor<1xi32>)
// CHECK: moe.expert {{.*}} per_expert(%[[G]], %[[D]], %{{.*}} :
// SPARE-COUNT-3: moe.gather_weights %{{.*}} copies = 2, slots = 2> : tensor<2
// FOLDED-NOT: moe.gather_weights
func.func @main(%rows: tensor<?x8xf32>, %sizes: tensor<2xi32>,
    %g: tensor<2x16x8xf32> {moe.param = #moe.param<"up{}">},
    %d: tensor<2x6x16xf32> {moe.param = #moe.param<"down{}">},
    %db: tensor<2x6xf32> {moe.param = #moe.param<"bias{}">}, %slots: tensor<?x1xi32>) -> tensor<?x6xf32> {
  %y = moe.expert rows(%rows : tensor<?x8xf32>) groups(%sizes : tensor<2xi32>)
      per_expert(%g, %d, %db : tensor<2x16x8xf32>, tensor<2x6x16xf32>, tensor<2x6xf32>)
      -> tensor<?x6xf32> {
  ^bb0(%r: tensor<?x8xf32>, %ge: tensor<16x8xf32>, %de: tensor<6x16xf32>, %be: tensor<6xf32>):
    %i0 = arith.constant 0 : index
    %zero = arith.constant 0.0 : f32
    %n = tensor.dim %r, %i0 : tensor<?x8xf32>
    %e16 = tensor.empty(%n) : tensor<?x16xf32>
    %z16 = linalg.fill ins(%zero : f32) outs(%e16 : tensor<?x16xf32>) -> tensor<?x16xf32>
    %h = linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>,
        affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
        ins(%r, %ge : tensor<?x8xf32>, tensor<16x8xf32>) outs(%z16 : tensor<?x16xf32>) -> tensor<?x16xf32>
    %e6 = tensor.empty(%n) : tensor<?x6xf32>
    %b6 = linalg.broadcast ins(%be : tensor<6xf32>) outs(%e6 : tensor<?x6xf32>) dimensions = [0]
    %m = linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>,
        affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
        ins(%h, %de : tensor<?x16xf32>, tensor<6x16xf32>) outs(%b6 : tensor<?x6xf32>) -> tensor<?x6xf32>
    moe.yield %m : tensor<?x6xf32>
  }
  %o = moe.combine %y, %slots : tensor<?x6xf32>, tensor<?x1xi32> -> tensor<?x6xf32>
  return %o : tensor<?x6xf32>
}
