// RUN: moira-opt %s --moe-shard="ranks=8 r=2" -canonicalize -cse | FileCheck %s

// Padded groups that travel twice: copies are added, and rounded, as flat rows.

// CHECK: %[[ROWS:.*]] = moe.dispatch
// CHECK: %[[P:.*]] = tensor.dim %[[ROWS]], %c1
// CHECK: %[[BOUND:.*]] = arith.muli %[[P]], %c2
// CHECK: %[[BACK:.*]] = moe.exchange to_tokens %{{.*}}, %{{.*}}, %[[BOUND]] {{.*}} -> tensor<2x?x6xf32>
// CHECK: tensor.extract_slice %[[BACK]][0, 0, 0] [1, %[[BOUND]], 6]
// CHECK: tensor.extract_slice %[[BACK]][1, 0, 0] [1, %[[BOUND]], 6]
// CHECK: %[[SUM:.*]] = linalg.generic
// CHECK: %[[ROUNDED:.*]] = arith.truncf %[[SUM]] : tensor<?x6xf32> to tensor<?x6xbf16>
// CHECK: %[[OUT:.*]] = tensor.expand_shape %[[ROUNDED]] {{.*}} output_shape [2, %[[P]], 6] : tensor<?x6xbf16> into tensor<2x?x6xbf16>
// CHECK: moe.combine %[[OUT]]
func.func @main(%cap: index, %x: tensor<?x8xbf16>, %logits: tensor<?x2xf32>,
    %g: tensor<2x16x8xbf16> {moe.param = #moe.param<"gate{}">},
    %gb: tensor<2x16xbf16> {moe.param = #moe.param<"gate_bias{}">},
    %d: tensor<2x6x16xbf16> {moe.param = #moe.param<"down{}", transpose>},
    %db: tensor<2x6xbf16> {moe.param = #moe.param<"down_bias{}">}) -> tensor<?x6xbf16> {
  %ids, %weights = moe.gate %logits router<>
      : tensor<?x2xf32> -> tensor<?x1xi32>, tensor<?x1xf32>
  %counts = moe.count %ids : tensor<?x1xi32> -> tensor<2xi32>
  %slots, %sizes, %bound = moe.assign %ids choice_major padded counts(%counts : tensor<2xi32>) capacity(%cap)
      : tensor<?x1xi32> -> tensor<?x1xi32>, tensor<2xi32>, index
  %rows = moe.dispatch %x, %slots, %sizes, %bound
      : tensor<?x8xbf16>, tensor<?x1xi32>, tensor<2xi32> -> tensor<2x?x8xbf16>
  %y = moe.expert rows(%rows : tensor<2x?x8xbf16>) groups(%sizes : tensor<2xi32>)
      per_expert(%g, %gb, %d, %db
        : tensor<2x16x8xbf16>, tensor<2x16xbf16>, tensor<2x6x16xbf16>, tensor<2x6xbf16>)
      -> tensor<2x?x6xbf16> {
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
      : tensor<2x?x6xbf16>, tensor<?x1xi32> -> tensor<?x6xbf16>
  return %out : tensor<?x6xbf16>
}
