// RUN: moira-opt %s --moe-shard="ranks=8 r=0" --moe-fold-replicates -canonicalize -cse | FileCheck %s --check-prefixes=CHECK,R0
// RUN: moira-opt %s --moe-shard="ranks=8 r=1" --moe-fold-replicates -canonicalize -cse | FileCheck %s --check-prefixes=CHECK,R1
// RUN: moira-opt %s --moe-shard="ranks=8 r=2" --moe-fold-replicates -canonicalize -cse | FileCheck %s --check-prefixes=CHECK,R2
// RUN: moira-opt %s --moe-shard="ranks=8 r=4" --moe-fold-replicates -canonicalize -cse | FileCheck %s --check-prefixes=CHECK,R4

// Two experts on eight ranks: four shards of each. What a rank holds does not
// depend on r. The bias of the last product is whole: only the first group of
// shards adds it. Sums travel in f32 and are rounded where the tokens are.

// CHECK-LABEL: func.func @main
// CHECK-SAME: %[[G:[^:]*]]: tensor<1x4x8xbf16> {moe.param = #moe.param<"gate{}">, moe.shard = #moe.shard<experts = 2, shards = 4, dim = 0>}
// CHECK-SAME: %[[GB:[^:]*]]: tensor<1x4xbf16> {{{.*}}moe.shard = #moe.shard<experts = 2, shards = 4, dim = 0>}
// CHECK-SAME: %[[D:[^:]*]]: tensor<1x6x4xbf16> {{{.*}}moe.shard = #moe.shard<experts = 2, shards = 4, dim = 1>}
// CHECK-SAME: %[[DB:[^:]*]]: tensor<1x6xbf16> {{{.*}}moe.shard = #moe.shard<experts = 2, shards = 4>}

// CHECK: moe.gather_counts %{{.*}} : tensor<2xi32> -> tensor<8x2xi32>

// R0-NOT: moe.exchange
// R0-DAG: moe.gather_weights %[[G]] dim 1 at <ranks = 8, experts = 2, shards = 4, copies = 0, slots = 1> : tensor<1x4x8xbf16> -> tensor<2x16x8xbf16>
// R0-DAG: moe.gather_weights %[[GB]] dim 1 at {{.*}} : tensor<1x4xbf16> -> tensor<2x16xbf16>
// R0-DAG: moe.gather_weights %[[D]] dim 2 at {{.*}} : tensor<1x6x4xbf16> -> tensor<2x6x16xbf16>
// R0-DAG: moe.gather_weights %[[DB]] at {{.*}} : tensor<1x6xbf16> -> tensor<2x6xbf16>
// R0: moe.expert {{.*}} per_expert({{.*}} : tensor<2x16x8xbf16>, tensor<2x16xbf16>, tensor<2x6x16xbf16>, tensor<2x6xbf16>) -> tensor<?x6xbf16>

// R1: moe.exchange to_experts
// R1-DAG: moe.gather_weights %[[G]] dim 1 at <ranks = 8, experts = 2, shards = 4, slots = 1> : tensor<1x4x8xbf16> -> tensor<1x16x8xbf16>
// R1-DAG: moe.gather_weights %[[GB]] dim 1 at {{.*}} -> tensor<1x16xbf16>
// R1-DAG: moe.gather_weights %[[D]] dim 2 at {{.*}} -> tensor<1x6x16xbf16>
// R1: moe.expert {{.*}}, %[[DB]] : tensor<1x16x8xbf16>, tensor<1x16xbf16>, tensor<1x6x16xbf16>, tensor<1x6xbf16>) -> tensor<?x6xbf16>
// R1: moe.exchange to_tokens {{.*}} -> tensor<?x6xbf16>

// R2-DAG: moe.gather_weights %[[G]] dim 1 at <ranks = 8, experts = 2, shards = 4, copies = 2, slots = 1> : tensor<1x4x8xbf16> -> tensor<1x8x8xbf16>
// R2-DAG: moe.gather_weights %[[GB]] dim 1 at {{.*}} -> tensor<1x8xbf16>
// R2-DAG: moe.gather_weights %[[D]] dim 2 at {{.*}} -> tensor<1x6x8xbf16>
// R2: %[[SHARDS:.*]] = moe.slot_shards at <ranks = 8, experts = 2, shards = 4, copies = 2, slots = 1> -> tensor<1xi32>
// R2: %[[MASKED:.*]] = linalg.generic {{.*}} ins(%[[DB]], %[[SHARDS]] : tensor<1x6xbf16>, tensor<1xi32>)
// R2: arith.cmpi ult, %{{.*}}, %c2_i32
// R2-NEXT: arith.select
// R2: %[[SUMS:.*]] = moe.expert {{.*}}, %[[MASKED]] : tensor<1x8x8xbf16>, tensor<1x8xbf16>, tensor<1x6x8xbf16>, tensor<1x6xbf16>) -> tensor<?x6xf32>
// R2: moe.yield %{{.*}} : tensor<?x6xf32>
// R2: %[[BACK:.*]] = moe.exchange to_tokens %[[SUMS]], {{.*}} -> tensor<2x?x6xf32>
// R2-DAG: tensor.extract_slice %[[BACK]][0, 0, 0]
// R2-DAG: tensor.extract_slice %[[BACK]][1, 0, 0]
// R2: %[[TOTAL:.*]] = linalg.generic
// R2: arith.addf
// R2: %[[ROUNDED:.*]] = arith.truncf %[[TOTAL]] : tensor<?x6xf32> to tensor<?x6xbf16>
// R2: moe.combine %[[ROUNDED]]

// R4-NOT: moe.gather_weights
// R4: arith.cmpi ult, %{{.*}}, %c1_i32
// R4: moe.expert {{.*}} per_expert(%[[G]], %[[GB]], %[[D]], %{{.*}} : tensor<1x4x8xbf16>, tensor<1x4xbf16>, tensor<1x6x4xbf16>, tensor<1x6xbf16>) -> tensor<?x6xf32>
// R4: moe.exchange to_tokens {{.*}} -> tensor<4x?x6xf32>
// R4: %[[A:.*]] = arith.addf %in, %in_
// R4-NEXT: %[[B:.*]] = arith.addf
// R4-NEXT: arith.addf %[[A]], %[[B]]
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
