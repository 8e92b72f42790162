// RUN: moira-opt %s --moe-shard -split-input-file -verify-diagnostics

// The number of ranks is that of the grid; rows travel once.

shard.grid @ranks(shape = 4)

func.func @six_experts(%x: tensor<?x8xf32>, %logits: tensor<?x6xf32>,
    %g: tensor<6x16x8xf32> {moe.param = #moe.param<"gate{}">},
    %d: tensor<6x6x16xf32> {moe.param = #moe.param<"down{}">}) -> tensor<?x6xf32> {
  %ids, %weights = moe.gate %logits router<>
      : tensor<?x6xf32> -> tensor<?x1xi32>, tensor<?x1xf32>
  %counts = moe.count %ids : tensor<?x1xi32> -> tensor<6xi32>
  %slots, %sizes, %bound = moe.assign %ids choice_major counts(%counts : tensor<6xi32>)
      : tensor<?x1xi32> -> tensor<?x1xi32>, tensor<6xi32>, index
  %rows = moe.dispatch %x, %slots, %sizes, %bound
      : tensor<?x8xf32>, tensor<?x1xi32>, tensor<6xi32> -> tensor<?x8xf32>
  // expected-error @+1 {{'moe.expert' op expected a number of experts and one of ranks that divide one another, got 6 experts and 4 ranks}}
  %y = moe.expert rows(%rows : tensor<?x8xf32>) groups(%sizes : tensor<6xi32>)
      per_expert(%g, %d : tensor<6x16x8xf32>, tensor<6x6x16xf32>) -> tensor<?x6xf32> {
  ^bb0(%r: tensor<?x8xf32>, %ge: tensor<16x8xf32>, %de: tensor<6x16xf32>):
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
    moe.yield %m : tensor<?x6xf32>
  }
  %out = moe.combine %y, %slots weights(%weights : tensor<?x1xf32>)
      : tensor<?x6xf32>, tensor<?x1xi32> -> tensor<?x6xf32>
  return %out : tensor<?x6xf32>
}

// -----

shard.grid @ranks(shape = 3)

func.func @uneven_hidden(%x: tensor<?x8xf32>, %logits: tensor<?x1xf32>,
    %g: tensor<1x16x8xf32> {moe.param = #moe.param<"gate{}">},
    %d: tensor<1x6x16xf32> {moe.param = #moe.param<"down{}">}) -> tensor<?x6xf32> {
  %ids, %weights = moe.gate %logits router<>
      : tensor<?x1xf32> -> tensor<?x1xi32>, tensor<?x1xf32>
  %counts = moe.count %ids : tensor<?x1xi32> -> tensor<1xi32>
  %slots, %sizes, %bound = moe.assign %ids choice_major counts(%counts : tensor<1xi32>)
      : tensor<?x1xi32> -> tensor<?x1xi32>, tensor<1xi32>, index
  %rows = moe.dispatch %x, %slots, %sizes, %bound
      : tensor<?x8xf32>, tensor<?x1xi32>, tensor<1xi32> -> tensor<?x8xf32>
  // expected-error @+1 {{'moe.expert' op expected a hidden dimension that 3 shards divide, got 16}}
  %y = moe.expert rows(%rows : tensor<?x8xf32>) groups(%sizes : tensor<1xi32>)
      per_expert(%g, %d : tensor<1x16x8xf32>, tensor<1x6x16xf32>) -> tensor<?x6xf32> {
  ^bb0(%r: tensor<?x8xf32>, %ge: tensor<16x8xf32>, %de: tensor<6x16xf32>):
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
    moe.yield %m : tensor<?x6xf32>
  }
  %out = moe.combine %y, %slots weights(%weights : tensor<?x1xf32>)
      : tensor<?x6xf32>, tensor<?x1xi32> -> tensor<?x6xf32>
  return %out : tensor<?x6xf32>
}

// -----

shard.grid @ranks(shape = 2)

func.func @input_as_weight(%x: tensor<?x8xf32>, %logits: tensor<?x4xf32>,
    %g: tensor<4x16x8xf32>,
    %d: tensor<4x6x16xf32> {moe.param = #moe.param<"down{}">}) -> tensor<?x6xf32> {
  %ids, %weights = moe.gate %logits router<>
      : tensor<?x4xf32> -> tensor<?x1xi32>, tensor<?x1xf32>
  %counts = moe.count %ids : tensor<?x1xi32> -> tensor<4xi32>
  %slots, %sizes, %bound = moe.assign %ids choice_major counts(%counts : tensor<4xi32>)
      : tensor<?x1xi32> -> tensor<?x1xi32>, tensor<4xi32>, index
  %rows = moe.dispatch %x, %slots, %sizes, %bound
      : tensor<?x8xf32>, tensor<?x1xi32>, tensor<4xi32> -> tensor<?x8xf32>
  // expected-error @+1 {{'moe.expert' op expected a parameter as per-expert operand #0, got input #2}}
  %y = moe.expert rows(%rows : tensor<?x8xf32>) groups(%sizes : tensor<4xi32>)
      per_expert(%g, %d : tensor<4x16x8xf32>, tensor<4x6x16xf32>) -> tensor<?x6xf32> {
  ^bb0(%r: tensor<?x8xf32>, %ge: tensor<16x8xf32>, %de: tensor<6x16xf32>):
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
    moe.yield %m : tensor<?x6xf32>
  }
  %out = moe.combine %y, %slots weights(%weights : tensor<?x1xf32>)
      : tensor<?x6xf32>, tensor<?x1xi32> -> tensor<?x6xf32>
  return %out : tensor<?x6xf32>
}

// -----

shard.grid @ranks(shape = 2)

func.func @computed_weight(%x: tensor<?x8xf32>, %logits: tensor<?x4xf32>,
    %g0: tensor<4x16x8xf32> {moe.param = #moe.param<"gate{}">},
    %d: tensor<4x6x16xf32> {moe.param = #moe.param<"down{}">}) -> tensor<?x6xf32> {
  %ids, %weights = moe.gate %logits router<>
      : tensor<?x4xf32> -> tensor<?x1xi32>, tensor<?x1xf32>
  %counts = moe.count %ids : tensor<?x1xi32> -> tensor<4xi32>
  %slots, %sizes, %bound = moe.assign %ids choice_major counts(%counts : tensor<4xi32>)
      : tensor<?x1xi32> -> tensor<?x1xi32>, tensor<4xi32>, index
  %rows = moe.dispatch %x, %slots, %sizes, %bound
      : tensor<?x8xf32>, tensor<?x1xi32>, tensor<4xi32> -> tensor<?x8xf32>
  // expected-note @+1 {{computed here}}
  %g = math.tanh %g0 : tensor<4x16x8xf32>
  // expected-error @+1 {{'moe.expert' op expected a parameter as per-expert operand #0, got a computed value}}
  %y = moe.expert rows(%rows : tensor<?x8xf32>) groups(%sizes : tensor<4xi32>)
      per_expert(%g, %d : tensor<4x16x8xf32>, tensor<4x6x16xf32>) -> tensor<?x6xf32> {
  ^bb0(%r: tensor<?x8xf32>, %ge: tensor<16x8xf32>, %de: tensor<6x16xf32>):
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
    moe.yield %m : tensor<?x6xf32>
  }
  %out = moe.combine %y, %slots weights(%weights : tensor<?x1xf32>)
      : tensor<?x6xf32>, tensor<?x1xi32> -> tensor<?x6xf32>
  return %out : tensor<?x6xf32>
}

// -----

shard.grid @ranks(shape = 4)

func.func @mixes_hidden(%x: tensor<?x8xf32>, %logits: tensor<?x2xf32>,
    %g: tensor<2x16x8xf32> {moe.param = #moe.param<"gate{}">},
    %d: tensor<2x6x16xf32> {moe.param = #moe.param<"down{}">}) -> tensor<?x6xf32> {
  %ids, %weights = moe.gate %logits router<>
      : tensor<?x2xf32> -> tensor<?x1xi32>, tensor<?x1xf32>
  %counts = moe.count %ids : tensor<?x1xi32> -> tensor<2xi32>
  %slots, %sizes, %bound = moe.assign %ids choice_major counts(%counts : tensor<2xi32>)
      : tensor<?x1xi32> -> tensor<?x1xi32>, tensor<2xi32>, index
  %rows = moe.dispatch %x, %slots, %sizes, %bound
      : tensor<?x8xf32>, tensor<?x1xi32>, tensor<2xi32> -> tensor<?x8xf32>
  // expected-note @+1 {{as many experts as ranks need no shards: 2 experts, 4 ranks}}
  %y = moe.expert rows(%rows : tensor<?x8xf32>) groups(%sizes : tensor<2xi32>)
      per_expert(%g, %d : tensor<2x16x8xf32>, tensor<2x6x16xf32>) -> tensor<?x6xf32> {
  ^bb0(%r: tensor<?x8xf32>, %ge: tensor<16x8xf32>, %de: tensor<6x16xf32>):
    %i0 = arith.constant 0 : index
    %zero = arith.constant 0.0 : f32
    %n = tensor.dim %r, %i0 : tensor<?x8xf32>
    %e = tensor.empty(%n) : tensor<?x16xf32>
    %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x16xf32>) -> tensor<?x16xf32>
    %a = linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>,
        affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
        ins(%r, %ge : tensor<?x8xf32>, tensor<16x8xf32>) outs(%z : tensor<?x16xf32>) -> tensor<?x16xf32>
    %e1 = tensor.empty(%n) : tensor<?xf32>
    %z1 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<?xf32>) -> tensor<?xf32>
    // expected-error @+1 {{'linalg.reduce' op expected a hidden dimension from the last product to the first, to cut each expert in 2 shards, got none: it reduces over the hidden dimension}}
    %s = linalg.reduce { arith.addf } ins(%a : tensor<?x16xf32>) outs(%z1 : tensor<?xf32>) dimensions = [1]
    %b = linalg.broadcast ins(%s : tensor<?xf32>) outs(%e : tensor<?x16xf32>) dimensions = [1]
    %h = arith.divf %a, %b : tensor<?x16xf32>
    %e6 = tensor.empty(%n) : tensor<?x6xf32>
    %z6 = linalg.fill ins(%zero : f32) outs(%e6 : tensor<?x6xf32>) -> tensor<?x6xf32>
    %m = linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>,
        affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
        ins(%h, %de : tensor<?x16xf32>, tensor<6x16xf32>) outs(%z6 : tensor<?x6xf32>) -> tensor<?x6xf32>
    moe.yield %m : tensor<?x6xf32>
  }
  %out = moe.combine %y, %slots weights(%weights : tensor<?x1xf32>)
      : tensor<?x6xf32>, tensor<?x1xi32> -> tensor<?x6xf32>
  return %out : tensor<?x6xf32>
}

// -----

shard.grid @ranks(shape = 2)

// expected-error @+1 {{'func.func' op expected experts only to read parameter #2, which is spread over the ranks}}
func.func @read_elsewhere(%x: tensor<?x8xf32>, %logits: tensor<?x4xf32>,
    %g: tensor<4x16x8xf32> {moe.param = #moe.param<"gate{}">},
    %d: tensor<4x6x16xf32> {moe.param = #moe.param<"down{}">}) -> tensor<?x6xf32> {
  %ids, %weights = moe.gate %logits router<>
      : tensor<?x4xf32> -> tensor<?x1xi32>, tensor<?x1xf32>
  %counts = moe.count %ids : tensor<?x1xi32> -> tensor<4xi32>
  %slots, %sizes, %bound = moe.assign %ids choice_major counts(%counts : tensor<4xi32>)
      : tensor<?x1xi32> -> tensor<?x1xi32>, tensor<4xi32>, index
  %rows = moe.dispatch %x, %slots, %sizes, %bound
      : tensor<?x8xf32>, tensor<?x1xi32>, tensor<4xi32> -> tensor<?x8xf32>
  %y = moe.expert rows(%rows : tensor<?x8xf32>) groups(%sizes : tensor<4xi32>)
      per_expert(%g, %d : tensor<4x16x8xf32>, tensor<4x6x16xf32>) -> tensor<?x6xf32> {
  ^bb0(%r: tensor<?x8xf32>, %ge: tensor<16x8xf32>, %de: tensor<6x16xf32>):
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
    moe.yield %m : tensor<?x6xf32>
  }
  %out = moe.combine %y, %slots weights(%weights : tensor<?x1xf32>)
      : tensor<?x6xf32>, tensor<?x1xi32> -> tensor<?x6xf32>
  // expected-note @+1 {{read here}}
  %t = tensor.extract_slice %g[0, 0, 0] [1, 6, 6] [1, 1, 1] : tensor<4x16x8xf32> to tensor<6x6xf32>
  return %out : tensor<?x6xf32>
}

// -----

shard.grid @ranks(shape = 2)

func.func @largest_token(%x: tensor<?x8xf32>) -> tensor<8xf32> {
  %zero = arith.constant dense<0.0> : tensor<8xf32>
  // expected-error @+1 {{'linalg.reduce' op expected an op that treats tokens independently, got a reduction over tokens that is no sum; ranks can add, and nothing else}}
  %s = linalg.reduce { arith.maximumf } ins(%x : tensor<?x8xf32>) outs(%zero : tensor<8xf32>) dimensions = [0]
  return %s : tensor<8xf32>
}

// -----

shard.grid @ranks(shape = 2)

// What is there is read twice.
func.func @no_sum(%x: tensor<?x8xf32>) -> tensor<8xf32> {
  %zero = arith.constant dense<0.0> : tensor<8xf32>
  // expected-error @+1 {{'linalg.reduce' op expected an op that treats tokens independently, got a reduction over tokens that is no sum; ranks can add, and nothing else}}
  %s = linalg.reduce ins(%x : tensor<?x8xf32>) outs(%zero : tensor<8xf32>) dimensions = [0]
    (%a: f32, %b: f32) {
      %m = arith.mulf %a, %b : f32
      %t = arith.addf %m, %b : f32
      linalg.yield %t : f32
    }
  return %s : tensor<8xf32>
}

// -----

shard.grid @ranks(shape = 2)

func.func @sum_of_bytes(%x: tensor<?x8xi8>) -> tensor<8xi8> {
  %zero = arith.constant dense<0> : tensor<8xi8>
  // expected-error @+1 {{'linalg.reduce' op expected an op that treats tokens independently, got a sum over tokens of 'i8'}}
  %s = linalg.reduce { arith.addi } ins(%x : tensor<?x8xi8>) outs(%zero : tensor<8xi8>) dimensions = [0]
  return %s : tensor<8xi8>
}

// -----

shard.grid @ranks(shape = 2)

func.func @unknown(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %c0 = arith.constant 0 : index
  // expected-error @+1 {{'tensor.extract' op expected an op that treats tokens independently, got one that is not known to}}
  %s = tensor.extract %x[%c0, %c0] : tensor<?x8xf32>
  return %x : tensor<?x8xf32>
}

// -----

shard.grid @ranks(shape = 2)

func.func @half(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  %t = tensor.dim %x, %c0 : tensor<?x8xf32>
  %n = arith.divui %t, %c2 : index
  // expected-error @+1 {{'tensor.extract_slice' op expected an op that treats tokens independently, got a slice of tokens}}
  %s = tensor.extract_slice %x[0, 0] [%n, 8] [1, 1] : tensor<?x8xf32> to tensor<?x8xf32>
  return %s : tensor<?x8xf32>
}

// -----

shard.grid @ranks(shape = 2)

// A token may not be cut: its rows stay together.
func.func @splits_tokens(%x: tensor<?x8xf32>) -> tensor<?x4x8xf32> {
  %c0 = arith.constant 0 : index
  %c4 = arith.constant 4 : index
  %t = tensor.dim %x, %c0 : tensor<?x8xf32>
  %n = arith.divui %t, %c4 : index
  // expected-error @+1 {{'tensor.expand_shape' op expected an op that treats tokens independently, got a reshape that joins tokens}}
  %s = tensor.expand_shape %x [[0, 1], [2]] output_shape [%n, 4, 8] : tensor<?x8xf32> into tensor<?x4x8xf32>
  return %s : tensor<?x4x8xf32>
}

// -----

shard.grid @ranks(shape = 2)

func.func @inner_tokens(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %c0 = arith.constant 0 : index
  %t = tensor.dim %x, %c0 : tensor<?x8xf32>
  %e = tensor.empty(%t) : tensor<8x?xf32>
  %y = linalg.transpose ins(%x : tensor<?x8xf32>) outs(%e : tensor<8x?xf32>) permutation = [1, 0]
  // expected-error @+1 {{'tensor.collapse_shape' op expected an op that treats tokens independently, got a reshape of tokens}}
  %s = tensor.collapse_shape %y [[0, 1]] : tensor<8x?xf32> into tensor<?xf32>
  return %x : tensor<?x8xf32>
}

// -----

shard.grid @ranks(shape = 2)

func.func @unknown_rows(%x: tensor<?x?xf32>) -> tensor<?xf32> {
  // expected-error @+1 {{'tensor.collapse_shape' op expected an op that treats tokens independently, got a reshape of tokens}}
  %s = tensor.collapse_shape %x [[0, 1]] : tensor<?x?xf32> into tensor<?xf32>
  return %s : tensor<?xf32>
}

// -----

shard.grid @ranks(shape = 2)

func.func @divides_by_tokens(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %c0 = arith.constant 0 : index
  %t = tensor.dim %x, %c0 : tensor<?x8xf32>
  // expected-note @+1 {{it comes from here, from the number of one rank's tokens; a sum of ones over the tokens is the number of all}}
  %i = arith.index_cast %t : index to i32
  %f = arith.sitofp %i : i32 to f32
  %e = tensor.empty(%t) : tensor<?x8xf32>
  // expected-error @+1 {{'linalg.fill' op expected an op that treats tokens independently, got one that computes with values of a rank's tokens}}
  %b = linalg.fill ins(%f : f32) outs(%e : tensor<?x8xf32>) -> tensor<?x8xf32>
  %s = arith.divf %x, %b : tensor<?x8xf32>
  return %s : tensor<?x8xf32>
}

// -----

shard.grid @ranks(shape = 2)

func.func @places(%x: tensor<?x8xi32>) -> tensor<?x8xi32> {
  // expected-error @+1 {{'linalg.generic' op expected an op that treats tokens independently, got a body that reads tokens by their number}}
  %s = linalg.generic {indexing_maps = [affine_map<(t, d) -> (t, d)>], iterator_types = ["parallel", "parallel"]}
      outs(%x : tensor<?x8xi32>) {
  ^bb0(%out: i32):
    %t = linalg.index 0 : index
    %i = arith.index_cast %t : index to i32
    linalg.yield %i : i32
  } -> tensor<?x8xi32>
  return %s : tensor<?x8xi32>
}

// -----

shard.grid @ranks(shape = 2)

func.func @first_slot(%ids: tensor<?x2xi32>) -> tensor<4xi32> {
  // expected-note @+1 {{it comes from here}}
  %counts = moe.count %ids : tensor<?x2xi32> -> tensor<4xi32>
  %slots, %sizes, %bound = moe.assign %ids choice_major counts(%counts : tensor<4xi32>)
      : tensor<?x2xi32> -> tensor<?x2xi32>, tensor<4xi32>, index
  // expected-error @+1 {{'func.return' op expected result #0 to have a row per token in dim 0, or to be the same on all ranks, got a value of one rank's tokens}}
  return %sizes : tensor<4xi32>
}

// -----

shard.grid @ranks(shape = 2)

func.func @transposed(%x: tensor<?x8xf32>) -> tensor<8x?xf32> {
  %c0 = arith.constant 0 : index
  %t = tensor.dim %x, %c0 : tensor<?x8xf32>
  %e = tensor.empty(%t) : tensor<8x?xf32>
  %y = linalg.transpose ins(%x : tensor<?x8xf32>) outs(%e : tensor<8x?xf32>) permutation = [1, 0]
  // expected-error @+1 {{expected result #0 to have a row per token in dim 0, or to be the same on all ranks, got tokens in another dim}}
  return %y : tensor<8x?xf32>
}

// -----

shard.grid @ranks(shape = 2)

func.func @static_tokens(%logits: tensor<16x4xf32>) -> tensor<16x2xf32> {
  // expected-error @+1 {{'moe.gate' op expected logits with a dynamic number of tokens, got 'tensor<16x4xf32>'; make dim 0 of the inputs dynamic}}
  %ids, %w = moe.gate %logits router<> : tensor<16x4xf32> -> tensor<16x2xi32>, tensor<16x2xf32>
  return %w : tensor<16x2xf32>
}

// -----

shard.grid @ranks(shape = 2)

func.func @expert_choice(%logits: tensor<?x4xf32>) -> tensor<?x4xf32> {
  %c0 = arith.constant 0 : index
  %c = tensor.dim %logits, %c0 : tensor<?x4xf32>
  // expected-error @+1 {{'moe.gate' op expected the same capacity on all ranks, got a value of one rank's tokens; moe.capacity takes the maximum over ranks}}
  %ids, %w = moe.gate %logits router<expert_choice> capacity(%c) : tensor<?x4xf32> -> tensor<?x4xi32>, tensor<?x4xf32>
  return %w : tensor<?x4xf32>
}

// -----

shard.grid @ranks(shape = 2)

func.func @own_capacity(%ids: tensor<?x2xi32>) -> tensor<?x2xi32> {
  %c0 = arith.constant 0 : index
  %t = tensor.dim %ids, %c0 : tensor<?x2xi32>
  %counts = moe.count %ids : tensor<?x2xi32> -> tensor<4xi32>
  // expected-error @+1 {{'moe.assign' op expected the same capacity on all ranks, got a value of one rank's tokens; moe.capacity takes the maximum over ranks}}
  %slots, %sizes, %bound = moe.assign %ids choice_major counts(%counts : tensor<4xi32>) capacity(%t)
      : tensor<?x2xi32> -> tensor<?x2xi32>, tensor<4xi32>, index
  return %slots : tensor<?x2xi32>
}

// -----

shard.grid @ranks(shape = 2)

func.func @static_blocks(%ids: tensor<?x2xi32>, %blocks: tensor<2xi32>) -> tensor<?x2xi32> {
  %counts = moe.count %ids : tensor<?x2xi32> -> tensor<4xi32>
  // expected-error @+1 {{'moe.assign' op expected blocks with a dynamic number of tokens, got 'tensor<2xi32>'}}
  %slots, %sizes, %bound = moe.assign %ids choice_major counts(%counts : tensor<4xi32>) blocks(%blocks : tensor<2xi32>)
      : tensor<?x2xi32> -> tensor<?x2xi32>, tensor<4xi32>, index
  return %slots : tensor<?x2xi32>
}

// -----

shard.grid @ranks(shape = 2)

func.func @top_k(%logits: tensor<?x4xf32>) -> tensor<?x2xf32> {
  %c0 = arith.constant 0 : index
  %t = tensor.dim %logits, %c0 : tensor<?x4xf32>
  // expected-error @+1 {{'moe.gate' op expected the same top_k on all ranks, got a value of one rank's tokens}}
  %ids, %w = moe.gate %logits router<> top_k(%t) : tensor<?x4xf32> -> tensor<?x2xi32>, tensor<?x2xf32>
  return %w : tensor<?x2xf32>
}

// -----

shard.grid @ranks(shape = 2)

func.func @while(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %t = tensor.dim %x, %c0 : tensor<?x8xf32>
  // expected-error @+1 {{'scf.for' op expected the same bounds on all ranks, got a value of one rank's tokens}}
  %y = scf.for %i = %c0 to %t step %c1 iter_args(%a = %x) -> tensor<?x8xf32> {
    scf.yield %a : tensor<?x8xf32>
  }
  return %y : tensor<?x8xf32>
}

// -----

shard.grid @ranks(shape = 2)

func.func @sharded(%sizes: tensor<4xi32>) {
  // expected-error @+1 {{'moe.gather_counts' op expected an op of a program that is not sharded yet}}
  %m = moe.gather_counts %sizes : tensor<4xi32> -> tensor<2x4xi32>
  return
}

// -----

// expected-error @+1 {{'shard.grid' op expected a grid of one static dimension, got array<i64: 2, 2>}}
shard.grid @ranks(shape = 2x2)
func.func @grid() { return }

// -----

// expected-error @+1 {{expected a number of ranks, as option or as shard.grid, got none}}
module {
  func.func @none() { return }
}

// -----

shard.grid @ranks(shape = 4)

// expected-error @+1 {{'func.func' op expected experts to cut parameter #2 in one way, got #moe.shard<experts = 2, shards = 2, dim = 0> and #moe.shard<experts = 2, shards = 2, dim = 1>}}
func.func @two_ways(%rows: tensor<?x8xf32>, %sizes: tensor<2xi32>,
    %w: tensor<2x8x8xf32> {moe.param = #moe.param<"w{}">}) {
  %y = moe.expert rows(%rows : tensor<?x8xf32>) groups(%sizes : tensor<2xi32>)
      per_expert(%w, %w : tensor<2x8x8xf32>, tensor<2x8x8xf32>) -> tensor<?x8xf32> {
  ^bb0(%r: tensor<?x8xf32>, %a: tensor<8x8xf32>, %b: tensor<8x8xf32>):
    %i0 = arith.constant 0 : index
    %zero = arith.constant 0.0 : f32
    %n = tensor.dim %r, %i0 : tensor<?x8xf32>
    %e = tensor.empty(%n) : tensor<?x8xf32>
    %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x8xf32>) -> tensor<?x8xf32>
    %h = linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>,
        affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
        ins(%r, %a : tensor<?x8xf32>, tensor<8x8xf32>) outs(%z : tensor<?x8xf32>) -> tensor<?x8xf32>
    %o = linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>,
        affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
        ins(%h, %b : tensor<?x8xf32>, tensor<8x8xf32>) outs(%z : tensor<?x8xf32>) -> tensor<?x8xf32>
    moe.yield %o : tensor<?x8xf32>
  }
  return
}

// -----

shard.grid @ranks(shape = 4)

// expected-error @+1 {{'func.func' op expected parameter #2 and its place in the checkpoint to be both interleaved or neither, to cut it in shards, got}}
func.func @concatenated(%rows: tensor<?x8xf32>, %sizes: tensor<2xi32>,
    %w: tensor<2x16x8xf32> {moe.param = #moe.param<"gate_up{}", part = 0 of 3, interleaved>},
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

// -----

shard.grid @ranks(shape = 2)

func.func @loss_of_all(%x: tensor<?x4xf32>, %l: tensor<6x4xf32>) -> tensor<f32> {
  // expected-error @+1 {{'moe.loss' op expected logits with a dynamic number of tokens, got 'tensor<6x4xf32>'; make dim 0 of the inputs dynamic}}
  %0 = moe.loss z %l : tensor<6x4xf32> -> tensor<f32>
  return %0 : tensor<f32>
}
