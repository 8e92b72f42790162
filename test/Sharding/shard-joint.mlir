// RUN: moira-opt %s --moe-shard="ranks=4 r=1 entry=concatenated" | FileCheck %s --check-prefix=CR1
// RUN: moira-opt %s --moe-shard="ranks=4 r=2 entry=concatenated" | FileCheck %s --check-prefix=CR2
// RUN: moira-opt %s --moe-shard="ranks=4 r=1 entry=interleaved" | FileCheck %s --check-prefix=IR1
// RUN: moira-opt %s --moe-shard="ranks=4 r=2 entry=interleaved" | FileCheck %s --check-prefix=IR2

// A gate and an up projection in one tensor: a shard has a piece of each.

// CR1-LABEL: func.func @concatenated
// CR1-SAME: tensor<1x8x8xf32> {moe.param = #moe.param<"gate_up{}">, moe.shard = #moe.shard<experts = 2, shards = 2, dim = 0, parts = 2>}
// CR1-SAME: tensor<1x8xf32> {moe.param = #moe.param<"gate_up_bias{}">, moe.shard = #moe.shard<experts = 2, shards = 2, dim = 0, parts = 2>}
// CR1: moe.gather_weights {{.*}} dim 1 at <ranks = 4, experts = 2, shards = 2, slots = 1> {parts = 2 : i64} : tensor<1x8x8xf32> -> tensor<1x16x8xf32>
// CR1: moe.gather_weights {{.*}} dim 1 at {{.*}} {parts = 2 : i64} : tensor<1x8xf32> -> tensor<1x16xf32>

// CR2-LABEL: func.func @concatenated
// CR2: moe.expert
// CR2: tensor.extract_slice %{{.*}}[0, 0] [%{{.*}}, 4] [1, 1] : tensor<?x8xf32> to tensor<?x4xf32>
// CR2: tensor.extract_slice %{{.*}}[0, 4] [%{{.*}}, 4] [1, 1] : tensor<?x8xf32> to tensor<?x4xf32>

// IR1-LABEL: func.func @interleaved
// IR1-SAME: tensor<1x8x8xf32> {moe.param = #moe.param<"gate_up{}">, moe.shard = #moe.shard<experts = 2, shards = 2, dim = 0, parts = 2, interleaved = true>}
// IR1: moe.gather_weights {{.*}} dim 1 at <ranks = 4, experts = 2, shards = 2, slots = 1> : tensor<1x8x8xf32> -> tensor<1x16x8xf32>

// IR2-LABEL: func.func @interleaved
// IR2: moe.expert
// IR2: tensor.extract_slice %{{.*}}[0, 0] [%{{.*}}, 4] [1, 2] : tensor<?x8xf32> to tensor<?x4xf32>
// IR2: tensor.extract_slice %{{.*}}[0, 1] [%{{.*}}, 4] [1, 2] : tensor<?x8xf32> to tensor<?x4xf32>

func.func @concatenated(%rows: tensor<?x8xf32>, %sizes: tensor<2xi32>,
    %w: tensor<2x16x8xf32> {moe.param = #moe.param<"gate_up{}">},
    %b: tensor<2x16xf32> {moe.param = #moe.param<"gate_up_bias{}">},
    %d: tensor<2x6x8xf32> {moe.param = #moe.param<"down{}">}) {
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
    %g = tensor.extract_slice %gu[0, 0] [%n, 8] [1, 1] : tensor<?x16xf32> to tensor<?x8xf32>
    %u = tensor.extract_slice %gu[0, 8] [%n, 8] [1, 1] : tensor<?x16xf32> to tensor<?x8xf32>
    %h = arith.mulf %g, %u : tensor<?x8xf32>
    %e6 = tensor.empty(%n) : tensor<?x6xf32>
    %z6 = linalg.fill ins(%zero : f32) outs(%e6 : tensor<?x6xf32>) -> tensor<?x6xf32>
    %m = linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>,
        affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
        ins(%h, %de : tensor<?x8xf32>, tensor<6x8xf32>) outs(%z6 : tensor<?x6xf32>) -> tensor<?x6xf32>
    moe.yield %m : tensor<?x6xf32>
  }
  return
}

func.func @interleaved(%rows: tensor<?x8xf32>, %sizes: tensor<2xi32>,
    %w: tensor<2x16x8xf32> {moe.param = #moe.param<"gate_up{}">},
    %b: tensor<2x16xf32> {moe.param = #moe.param<"gate_up_bias{}">},
    %d: tensor<2x6x8xf32> {moe.param = #moe.param<"down{}">}) {
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
  return
}
