// RUN: moira-opt %s -split-input-file -verify-diagnostics

func.func @all_reduce_c1_element(%x: tensor<4xf32>) {
  // expected-error @+1 {{'moe.all_reduce' op expected a result of the operand's type, got 'tensor<4xf32>' and 'tensor<4xf64>'}}
  %0 = moe.all_reduce %x : tensor<4xf32> -> tensor<4xf64>
  return
}

// -----

func.func @all_reduce_c1_shape(%x: memref<4xf32>, %y: memref<5xf32>) {
  // expected-error @+1 {{'moe.all_reduce' op expected a result of the operand's type, got 'memref<4xf32>' and 'memref<5xf32>'}}
  moe.all_reduce %x outs(%y : memref<5xf32>) : memref<4xf32>
  return
}

// -----

func.func @all_reduce_form(%x: tensor<4xf32>) {
  // expected-error @+1 {{'moe.all_reduce' op expected 1 results and no outs in tensor form, got 0 results and 0 outs}}
  moe.all_reduce %x : tensor<4xf32>
  return
}

// -----

func.func @all_reduce_type(%x: tensor<4xi1>) {
  // expected-error @+1 {{operand #0 must be}}
  %0 = moe.all_reduce %x : tensor<4xi1> -> tensor<4xi1>
  return
}

// -----

func.func @replicate_type(%x: tensor<4xi32>) {
  // expected-error @+1 {{operand #0 must be ranked tensor of 16-bit float or bfloat16 type or 32-bit float or 64-bit float values, but got 'tensor<4xi32>'}}
  %0 = moe.replicate %x : tensor<4xi32>
  return
}

// -----

func.func @reduce_weights_c1_slots(%w: tensor<8x64x32xf32>) {
  // expected-error @+1 {{'moe.reduce_weights' op expected shards of size 2 in dim 0, got 'tensor<3x64x32xf32>'}}
  %0 = moe.reduce_weights %w at <ranks = 4, experts = 8, copies = 0, slots = 2>
      : tensor<8x64x32xf32> -> tensor<3x64x32xf32>
  return
}

// -----

func.func @reduce_weights_c1_experts(%w: tensor<2x64x32xf32>) {
  // expected-error @+1 {{expected whole weights of size 8 in dim 0, got 'tensor<2x64x32xf32>'}}
  %0 = moe.reduce_weights %w at <ranks = 4, experts = 8, copies = 0, slots = 2>
      : tensor<2x64x32xf32> -> tensor<2x64x32xf32>
  return
}

// -----

func.func @reduce_weights_c1_rank(%w: tensor<2x8xf32>) {
  // expected-error @+1 {{expected shards [slots, ...], got 'tensor<f32>'}}
  %0 = moe.reduce_weights %w at <ranks = 4, experts = 8, slots = 2>
      : tensor<2x8xf32> -> tensor<f32>
  return
}

// -----

func.func @reduce_weights_c2_shrinks(%w: tensor<1x64x32xf32>) {
  // expected-error @+1 {{expected whole weights of size 128 in dim 1, got 'tensor<1x64x32xf32>'}}
  %0 = moe.reduce_weights %w dim 1 at <ranks = 4, experts = 2, shards = 2, slots = 1>
      : tensor<1x64x32xf32> -> tensor<1x64x32xf32>
  return
}

// -----

func.func @reduce_weights_c2_dim(%w: tensor<1x64x32xf32>) {
  // expected-error @+1 {{expected a dim from 1 to 2, got 0}}
  %0 = moe.reduce_weights %w dim 0 at <ranks = 4, experts = 2, shards = 2, slots = 1>
      : tensor<1x64x32xf32> -> tensor<1x64x32xf32>
  return
}

// -----

func.func @reduce_weights_c2_parts(%w: tensor<1x126x32xf32>) {
  // expected-error @+1 {{expected a dim of 2 equal parts, got 'tensor<1x63x32xf32>'}}
  %0 = moe.reduce_weights %w dim 1 at <ranks = 4, experts = 2, shards = 2, slots = 1>
      {parts = 2 : i64} : tensor<1x126x32xf32> -> tensor<1x63x32xf32>
  return
}

// -----

func.func @reduce_weights_c2_element(%w: tensor<1x128x32xf16>) {
  // expected-error @+1 {{expected 'f32' on both sides, got 'tensor<1x128x32xf16>'}}
  %0 = moe.reduce_weights %w dim 1 at <ranks = 4, experts = 2, shards = 2, slots = 1>
      : tensor<1x128x32xf16> -> tensor<1x64x32xf32>
  return
}

// -----

func.func @reduce_weights_c3_parts(%w: tensor<2x64x32xf32>) {
  // expected-error @+1 {{expected at least one part, and no more than one without a dim, got 2}}
  %0 = moe.reduce_weights %w at <ranks = 4, experts = 2, shards = 2, copies = 0, slots = 1>
      {parts = 2 : i64} : tensor<2x64x32xf32> -> tensor<1x64x32xf32>
  return
}
