// DEFINE: %{layouts} = -canonicalize -cse --moe-form-kernels=hidden-blocks=4 --moe-assign-layouts -canonicalize -cse
// RUN: moira-opt %s --moe-shard="ranks=8 r=0" --moe-fold-replicates %{layouts} > %t.0
// RUN: moira-opt %s --moe-shard="ranks=8 r=1" --moe-fold-replicates %{layouts} > %t.1
// RUN: moira-opt %s --moe-shard="ranks=8 r=2" --moe-fold-replicates %{layouts} > %t.2
// RUN: moira-opt %s --moe-shard="ranks=8 r=4" --moe-fold-replicates %{layouts} > %t.4
// RUN: FileCheck %s --check-prefixes=CHECK,R0 < %t.0
// RUN: FileCheck %s --check-prefixes=CHECK,R1 < %t.1
// RUN: FileCheck %s --check-prefixes=CHECK,R2 < %t.2
// RUN: FileCheck %s --check-prefixes=CHECK,R4 < %t.4

// The same packed arguments and the same functions that pack them, whatever r.
// RUN: grep "func.func @main" %t.0 > %t.signature0
// RUN: grep "func.func @main" %t.1 | diff %t.signature0 -
// RUN: grep "func.func @main" %t.2 | diff %t.signature0 -
// RUN: grep "func.func @main" %t.4 | diff %t.signature0 -
// RUN: sed -n "/func.func private/,$p" %t.0 > %t.pack0
// RUN: sed -n "/func.func private/,$p" %t.1 | diff %t.pack0 -
// RUN: sed -n "/func.func private/,$p" %t.2 | diff %t.pack0 -
// RUN: sed -n "/func.func private/,$p" %t.4 | diff %t.pack0 -

// Each shard is one block, packed as a matrix of its own; a gather moves packed
// shards. The source is what is cut from the checkpoint, where `down` is
// transposed.

// CHECK-LABEL: func.func @main
// CHECK-SAME: %[[G:[^:]*]]: tensor<1x1x8x16xbf16> {moe.packing = {{[^@]*}}function = @moe_pack_0, logical = tensor<1x4x8xbf16>, slices = 1 : i64, source = tensor<4x8xbf16>}
// CHECK-SAME: moe.shard = #moe.shard<experts = 2, shards = 4, dim = 0>}
// CHECK-SAME: %[[GB:[^:]*]]: tensor<1x4xbf16>
// CHECK-SAME: %[[D:[^:]*]]: tensor<1x1x4x16xbf16> {moe.packing = {{[^@]*}}function = @moe_pack_1, logical = tensor<1x6x4xbf16>, slices = 1 : i64, source = tensor<4x6xbf16>}
// CHECK-SAME: moe.shard = #moe.shard<experts = 2, shards = 4, dim = 1>}
// CHECK-SAME: %[[DB:[^:]*]]: tensor<1x6xbf16>

// R0-DAG: %[[GA:.*]] = moe.gather_weights %[[G]] dim 1 at <ranks = 8, experts = 2, shards = 4, copies = 0, slots = 1> : tensor<1x1x8x16xbf16> -> tensor<2x4x8x16xbf16>
// R0-DAG: %[[DA:.*]] = moe.gather_weights %[[D]] dim 1 at {{.*}} : tensor<1x1x4x16xbf16> -> tensor<2x4x4x16xbf16>
// R0: moe.grouped_matmul {{.*}} weights(%[[GA]] : tensor<2x4x8x16xbf16>) panels {{.*}}hidden = #moe.hidden<4 of n>
// R0: moe.grouped_matmul {{.*}} weights(%[[DA]] : tensor<2x4x4x16xbf16>) panels {{.*}}hidden = #moe.hidden<4 of k>

// R1-DAG: %[[GA:.*]] = moe.gather_weights %[[G]] dim 1 at <ranks = 8, experts = 2, shards = 4, slots = 1> : tensor<1x1x8x16xbf16> -> tensor<1x4x8x16xbf16>
// R1-DAG: %[[DA:.*]] = moe.gather_weights %[[D]] dim 1 at {{.*}} : tensor<1x1x4x16xbf16> -> tensor<1x4x4x16xbf16>
// R1: moe.grouped_matmul {{.*}} weights(%[[GA]] {{.*}}hidden = #moe.hidden<4 of n>
// R1: moe.grouped_matmul {{.*}} weights(%[[DA]] {{.*}}hidden = #moe.hidden<4 of k>

// R2-DAG: %[[GA:.*]] = moe.gather_weights %[[G]] dim 1 at {{.*}} -> tensor<1x2x8x16xbf16>
// R2-DAG: %[[DA:.*]] = moe.gather_weights %[[D]] dim 1 at {{.*}} -> tensor<1x2x4x16xbf16>
// R2: moe.grouped_matmul {{.*}} weights(%[[GA]] {{.*}}hidden = #moe.hidden<2 of n>
// R2: moe.grouped_matmul {{.*}} weights(%[[DA]] {{.*}}hidden = #moe.hidden<2 of k>

// R4-NOT: moe.gather_weights
// R4: moe.grouped_matmul {{.*}} weights(%[[G]] : tensor<1x1x8x16xbf16>) panels
// R4-NOT: moe.hidden
// R4: moe.grouped_matmul {{.*}} weights(%[[D]] : tensor<1x1x4x16xbf16>) panels
func.func @main(%x: tensor<?x8xbf16>, %logits: tensor<?x2xf32>,
    %g: tensor<2x16x8xbf16> {moe.param = #moe.param<"gate{}">},
    %gb: tensor<2x16xbf16> {moe.param = #moe.param<"gate_bias{}">},
    %d: tensor<2x6x16xbf16> {moe.param = #moe.param<"down{}", transpose>},
    %db: tensor<2x6xbf16> {moe.param = #moe.param<"down_bias{}">}) -> tensor<?x6xbf16> {
  %ids, %weights = moe.gate %logits router<>
      : tensor<?x2xf32> -> tensor<?x1xi32>, tensor<?x1xf32>
  %counts = moe.count %ids : tensor<?x1xi32> -> tensor<2xi32>
  %slots, %sizes, %bound = moe.assign %ids choice_major counts(%counts : tensor<2xi32>)
      : tensor<?x1xi32> -> tensor<?x1xi32>, tensor<2xi32>, index
  %rows = moe.dispatch %x, %slots, %sizes, %bound
      : tensor<?x8xbf16>, tensor<?x1xi32>, tensor<2xi32> -> tensor<?x8xbf16>
  %y = moe.expert rows(%rows : tensor<?x8xbf16>) groups(%sizes : tensor<2xi32>)
      per_expert(%g, %gb, %d, %db
        : tensor<2x16x8xbf16>, tensor<2x16xbf16>, tensor<2x6x16xbf16>, tensor<2x6xbf16>)
      -> tensor<?x6xbf16> {
  ^bb0(%r: tensor<?x8xbf16>, %ge: tensor<16x8xbf16>, %gbe: tensor<16xbf16>,
       %de: tensor<6x16xbf16>, %dbe: tensor<6xbf16>):
    %i0 = arith.constant 0 : index
    %n = tensor.dim %r, %i0 : tensor<?x8xbf16>
    %e16 = tensor.empty(%n) : tensor<?x16xf32>
    %wide = arith.extf %gbe : tensor<16xbf16> to tensor<16xf32>
    %b16 = linalg.broadcast ins(%wide : tensor<16xf32>) outs(%e16 : tensor<?x16xf32>) dimensions = [0]
    %a = linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>,
        affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
        ins(%r, %ge : tensor<?x8xbf16>, tensor<16x8xbf16>) outs(%b16 : tensor<?x16xf32>) -> tensor<?x16xf32>
    %limit = arith.constant dense<7.0> : tensor<16xf32>
    %limits = linalg.broadcast ins(%limit : tensor<16xf32>) outs(%e16 : tensor<?x16xf32>) dimensions = [0]
    %clamped = arith.minimumf %a, %limits : tensor<?x16xf32>
    %act = math.tanh %clamped : tensor<?x16xf32>
    %h = arith.truncf %act : tensor<?x16xf32> to tensor<?x16xbf16>
    %e6 = tensor.empty(%n) : tensor<?x6xf32>
    %wide6 = arith.extf %dbe : tensor<6xbf16> to tensor<6xf32>
    %b6 = linalg.broadcast ins(%wide6 : tensor<6xf32>) outs(%e6 : tensor<?x6xf32>) dimensions = [0]
    %m = linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>,
        affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
        ins(%h, %de : tensor<?x16xbf16>, tensor<6x16xbf16>) outs(%b6 : tensor<?x6xf32>) -> tensor<?x6xf32>
    %o = arith.truncf %m : tensor<?x6xf32> to tensor<?x6xbf16>
    moe.yield %o : tensor<?x6xbf16>
  }
  %out = moe.combine %y, %slots weights(%weights : tensor<?x1xf32>)
      : tensor<?x6xbf16>, tensor<?x1xi32> -> tensor<?x6xbf16>
  return %out : tensor<?x6xbf16>
}
