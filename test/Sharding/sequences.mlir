// RUN: moira-opt %s --moe-shard=ranks=2 --moe-fold-replicates -canonicalize -cse | FileCheck %s
// RUN: moira-opt %s --moe-token-blocks=ranks=2 -canonicalize -cse | FileCheck %s --check-prefix=BLOCKS

// Sequences of 4 positions are the tokens of the inputs. Positions of one sequence
// meet; experts get rows. Blocks count sequences, and routing counts rows.

// CHECK-LABEL: func.func @main
// CHECK: moe.gather_counts
// CHECK: moe.exchange to_experts
// CHECK: tensor.expand_shape
// CHECK: moe.all_reduce %{{.*}} : tensor<f32> -> tensor<f32>
// BLOCKS-LABEL: func.func @main
// BLOCKS-SAME: %[[BLOCKS:[^:]*]]: tensor<2xi32> {moe.blocks}
// BLOCKS-DAG: %[[FOUR:.*]] = arith.constant dense<4> : tensor<2xi32>
// BLOCKS-DAG: %[[ROWS:.*]] = arith.muli %[[BLOCKS]], %[[FOUR]] : tensor<2xi32>
// BLOCKS: %[[LARGEST:.*]] = tensor.expand_shape %[[ROWS]]
// BLOCKS: moe.assign {{.*}} blocks(%[[ROWS]] : tensor<2xi32>)
func.func @main(%x: tensor<?x4x8xf32>, %router: tensor<8x4xf32>,
    %w: tensor<4x8x8xf32> {moe.param = #moe.param<"w{}">}, %f: f64, %k: index)
    -> (tensor<?x4x8xf32>, tensor<f32>) {
  %c0 = arith.constant 0 : index
  %c4 = arith.constant 4 : index
  %zero = arith.constant 0.0 : f32
  %b = tensor.dim %x, %c0 : tensor<?x4x8xf32>
  // Positions of a sequence look at each other.
  %se = tensor.empty(%b) : tensor<?x4x4xf32>
  %sz = linalg.fill ins(%zero : f32) outs(%se : tensor<?x4x4xf32>) -> tensor<?x4x4xf32>
  %scores = linalg.batch_matmul indexing_maps = [affine_map<(b, m, n, k) -> (b, m, k)>,
      affine_map<(b, m, n, k) -> (b, n, k)>, affine_map<(b, m, n, k) -> (b, m, n)>]
      ins(%x, %x : tensor<?x4x8xf32>, tensor<?x4x8xf32>) outs(%sz : tensor<?x4x4xf32>) -> tensor<?x4x4xf32>
  %p = linalg.softmax dimension(2) ins(%scores : tensor<?x4x4xf32>)
      outs(%se : tensor<?x4x4xf32>) -> tensor<?x4x4xf32>
  %ae = tensor.empty(%b) : tensor<?x4x8xf32>
  %az = linalg.fill ins(%zero : f32) outs(%ae : tensor<?x4x8xf32>) -> tensor<?x4x8xf32>
  %a = linalg.batch_matmul ins(%p, %x : tensor<?x4x4xf32>, tensor<?x4x8xf32>)
      outs(%az : tensor<?x4x8xf32>) -> tensor<?x4x8xf32>
  // Rows.
  %rows = tensor.collapse_shape %a [[0, 1], [2]] : tensor<?x4x8xf32> into tensor<?x8xf32>
  %t = arith.muli %b, %c4 : index
  %le = tensor.empty(%t) : tensor<?x4xf32>
  %lz = linalg.fill ins(%zero : f32) outs(%le : tensor<?x4xf32>) -> tensor<?x4xf32>
  %logits = linalg.matmul ins(%rows, %router : tensor<?x8xf32>, tensor<8x4xf32>) outs(%lz : tensor<?x4xf32>) -> tensor<?x4xf32>
  %ids, %weights = moe.gate %logits router<> : tensor<?x4xf32> -> tensor<?x2xi32>, tensor<?x2xf32>
  %counts = moe.count %ids : tensor<?x2xi32> -> tensor<4xi32>
  %c = moe.capacity tutel tokens(%t) factor(%f) top_k(%k) counts(%counts : tensor<4xi32>) {experts = 4 : i64}
  %slots, %sizes, %bound = moe.assign %ids choice_major counts(%counts : tensor<4xi32>) capacity(%c)
      : tensor<?x2xi32> -> tensor<?x2xi32>, tensor<4xi32>, index
  %in = moe.dispatch %rows, %slots, %sizes, %bound
      : tensor<?x8xf32>, tensor<?x2xi32>, tensor<4xi32> -> tensor<?x8xf32>
  %out = moe.expert rows(%in : tensor<?x8xf32>) groups(%sizes : tensor<4xi32>)
      per_expert(%w : tensor<4x8x8xf32>) -> tensor<?x8xf32> {
  ^bb0(%r: tensor<?x8xf32>, %we: tensor<8x8xf32>):
    %i0 = arith.constant 0 : index
    %z = arith.constant 0.0 : f32
    %n = tensor.dim %r, %i0 : tensor<?x8xf32>
    %e = tensor.empty(%n) : tensor<?x8xf32>
    %fz = linalg.fill ins(%z : f32) outs(%e : tensor<?x8xf32>) -> tensor<?x8xf32>
    %m = linalg.matmul ins(%r, %we : tensor<?x8xf32>, tensor<8x8xf32>) outs(%fz : tensor<?x8xf32>) -> tensor<?x8xf32>
    moe.yield %m : tensor<?x8xf32>
  }
  %y = moe.combine %out, %slots weights(%weights : tensor<?x2xf32>)
      : tensor<?x8xf32>, tensor<?x2xi32> -> tensor<?x8xf32>
  %back = tensor.expand_shape %y [[0, 1], [2]] output_shape [%b, 4, 8] : tensor<?x8xf32> into tensor<?x4x8xf32>
  %z0 = arith.constant dense<0.0> : tensor<f32>
  %loss = linalg.reduce { arith.addf } ins(%back : tensor<?x4x8xf32>) outs(%z0 : tensor<f32>) dimensions = [0, 1, 2]
  return %back, %loss : tensor<?x4x8xf32>, tensor<f32>
}
