// RUN: moira-opt %s -split-input-file -verify-diagnostics

func.func @all_gather_c1_dynamic(%a: tensor<?xi32>) {
  // expected-error @+1 {{'moe.all_gather' op expected a static [N] and a result [W, N] of its element type, got 'tensor<?xi32>' and 'tensor<4x8xi32>'}}
  %0 = moe.all_gather %a : tensor<?xi32> -> tensor<4x8xi32>
  return
}

// -----

func.func @all_gather_c1_element(%a: tensor<8xi32>) {
  // expected-error @+1 {{expected a static [N] and a result [W, N] of its element type, got 'tensor<8xi32>' and 'tensor<4x8xi64>'}}
  %0 = moe.all_gather %a : tensor<8xi32> -> tensor<4x8xi64>
  return
}

// -----

func.func @gather_counts_c1_experts(%a: tensor<8xi32>) {
  // expected-error @+1 {{'moe.gather_counts' op expected a static [E] and a result [W, E] of i32, got 'tensor<8xi32>' and 'tensor<4x7xi32>'}}
  %0 = moe.gather_counts %a : tensor<8xi32> -> tensor<4x7xi32>
  return
}

// -----

func.func @gather_counts_c1_form(%a: tensor<8xi32>) {
  // expected-error @+1 {{expected 1 results and no outs in tensor form, got 0 results and 0 outs}}
  moe.gather_counts %a : tensor<8xi32>
  return
}

// -----

func.func @slot_shards_c1() {
  // expected-error @+1 {{'moe.slot_shards' op expected a result of 2 slots of i32, got 'tensor<4xi32>'}}
  %0 = moe.slot_shards at <ranks = 4, experts = 8, slots = 2> -> tensor<4xi32>
  return
}

// -----

func.func @receive_sizes_c1_matrix(%m: tensor<4x7xi32>) {
  // expected-error @+1 {{'moe.receive_sizes' op expected counts of size 8 in dim 1, got 'tensor<4x7xi32>'}}
  %0, %b = moe.receive_sizes %m at <ranks = 4, experts = 8, slots = 2> equal
      : tensor<4x7xi32> -> tensor<2xi32>, index
  return
}

// -----

func.func @receive_sizes_c1_groups(%m: tensor<4x8xi32>) {
  // expected-error @+1 {{expected groups of size 2 in dim 0, got 'tensor<3xi32>'}}
  %0, %b = moe.receive_sizes %m at <ranks = 4, experts = 8, slots = 2> equal
      : tensor<4x8xi32> -> tensor<3xi32>, index
  return
}

// -----

func.func @receive_sizes_c2(%m: tensor<4x8xi32>, %i: index) {
  // expected-error @+1 {{'moe.receive_sizes' op expected chunk and chunks together}}
  %0:2 = "moe.receive_sizes"(%m, %i) {operandSegmentSizes = array<i32: 1, 1, 0, 0>,
      placement = #moe.placement<ranks = 4, experts = 8, slots = 2>,
      schedule = #moe<schedule equal>} : (tensor<4x8xi32>, index) -> (tensor<2xi32>, index)
  return
}

// -----

func.func @receive_sizes_c3(%m: tensor<4x8xi32>) {
  // expected-error @+1 {{'moe.receive_sizes' op expected a placement with copies, got}}
  %0, %b = moe.receive_sizes %m at <ranks = 4, experts = 8, copies = 0, slots = 2> equal
      : tensor<4x8xi32> -> tensor<2xi32>, index
  return
}

// -----

func.func @exchange_c1_element(%r: tensor<?x64xf32>, %m: tensor<4x8xi32>, %b: index) {
  // expected-error @+1 {{'moe.exchange' op expected a result of 'f32', got 'tensor<?x64xf16>'}}
  %0 = moe.exchange to_experts %r, %m, %b at <ranks = 4, experts = 8, slots = 2> equal
      : tensor<?x64xf32>, tensor<4x8xi32> -> tensor<?x64xf16>
  return
}

// -----

func.func @exchange_c1_width(%r: tensor<?x64xf32>, %m: tensor<4x8xi32>, %b: index) {
  // expected-error @+1 {{expected result of size 64 in dim 1, got 'tensor<?x32xf32>'}}
  %0 = moe.exchange to_experts %r, %m, %b at <ranks = 4, experts = 8, slots = 2> equal
      : tensor<?x64xf32>, tensor<4x8xi32> -> tensor<?x32xf32>
  return
}

// -----

func.func @exchange_c1_copies(%r: tensor<?x64xf32>, %m: tensor<4x2xi32>, %b: index) {
  // expected-error @+1 {{expected result of rank 3, got 'tensor<?x64xf32>'}}
  %0 = moe.exchange to_tokens %r, %m, %b
      at <ranks = 4, experts = 2, shards = 2, copies = 2, slots = 1> equal
      : tensor<?x64xf32>, tensor<4x2xi32> -> tensor<?x64xf32>
  return
}

// -----

func.func @exchange_c2_matrix(%r: tensor<?x64xf32>, %m: tensor<2x8xi32>, %b: index) {
  // expected-error @+1 {{expected counts of size 4 in dim 0, got 'tensor<2x8xi32>'}}
  %0 = moe.exchange to_experts %r, %m, %b at <ranks = 4, experts = 8, slots = 2> equal
      : tensor<?x64xf32>, tensor<2x8xi32> -> tensor<?x64xf32>
  return
}

// -----

func.func @exchange_c2_copies(%r: tensor<?x64xf32>, %m: tensor<4x8xi32>, %b: index) {
  // expected-error @+1 {{'moe.exchange' op expected a placement with copies, got}}
  %0 = moe.exchange to_experts %r, %m, %b at <ranks = 4, experts = 8, copies = 0, slots = 2> equal
      : tensor<?x64xf32>, tensor<4x8xi32> -> tensor<?x64xf32>
  return
}

// -----

func.func @exchange_c3_init(%r: tensor<?x64xf32>, %m: tensor<4x8xi32>, %b: index) {
  // expected-error @+1 {{'moe.exchange' op expected an init of the result's type, for to_tokens only, got 'tensor<?x64xf32>'}}
  %0 = moe.exchange to_experts %r, %m, %b at <ranks = 4, experts = 8, slots = 2> equal
      init(%r : tensor<?x64xf32>) : tensor<?x64xf32>, tensor<4x8xi32> -> tensor<?x64xf32>
  return
}

// -----

func.func @exchange_c3_chunk(%r: tensor<?x64xf32>, %m: tensor<4x8xi32>, %b: index) {
  // expected-error @+1 {{'moe.exchange' op expected chunk and chunks together}}
  %0 = "moe.exchange"(%r, %m, %b, %b) {operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 0, 0>,
      direction = #moe<direction to_experts>,
      placement = #moe.placement<ranks = 4, experts = 8, slots = 2>,
      schedule = #moe<schedule equal>} : (tensor<?x64xf32>, tensor<4x8xi32>, index, index) -> tensor<?x64xf32>
  return
}

// -----

func.func @gather_weights_c1_slots(%w: tensor<3x64x32xf32>) {
  // expected-error @+1 {{'moe.gather_weights' op expected shards of size 2 in dim 0, got 'tensor<3x64x32xf32>'}}
  %0 = moe.gather_weights %w at <ranks = 4, experts = 8, copies = 0, slots = 2>
      : tensor<3x64x32xf32> -> tensor<8x64x32xf32>
  return
}

// -----

func.func @gather_weights_c1_experts(%w: tensor<2x64x32xf32>) {
  // expected-error @+1 {{expected whole weights of size 8 in dim 0, got 'tensor<2x64x32xf32>'}}
  %0 = moe.gather_weights %w at <ranks = 4, experts = 8, copies = 0, slots = 2>
      : tensor<2x64x32xf32> -> tensor<2x64x32xf32>
  return
}

// -----

func.func @gather_weights_c2_grows(%w: tensor<1x64x32xf32>) {
  // expected-error @+1 {{expected whole weights of size 128 in dim 1, got 'tensor<1x64x32xf32>'}}
  %0 = moe.gather_weights %w dim 1 at <ranks = 4, experts = 2, shards = 2, slots = 1>
      : tensor<1x64x32xf32> -> tensor<1x64x32xf32>
  return
}

// -----

func.func @gather_weights_c2_dim(%w: tensor<1x64x32xf32>) {
  // expected-error @+1 {{expected a dim from 1 to 2, got 3}}
  %0 = moe.gather_weights %w dim 3 at <ranks = 4, experts = 2, shards = 2, slots = 1>
      : tensor<1x64x32xf32> -> tensor<1x64x32xf32>
  return
}

// -----

func.func @gather_weights_c2_parts(%w: tensor<1x63x32xf32>) {
  // expected-error @+1 {{expected a dim of 2 equal parts, got 'tensor<1x63x32xf32>'}}
  %0 = moe.gather_weights %w dim 1 at <ranks = 4, experts = 2, shards = 2, slots = 1>
      {parts = 2 : i64} : tensor<1x63x32xf32> -> tensor<1x126x32xf32>
  return
}

// -----

func.func @gather_weights_c2_element(%w: tensor<1x64x32xf32>) {
  // expected-error @+1 {{expected 'f32' on both sides, got 'tensor<1x128x32xf16>'}}
  %0 = moe.gather_weights %w dim 1 at <ranks = 4, experts = 2, shards = 2, slots = 1>
      : tensor<1x64x32xf32> -> tensor<1x128x32xf16>
  return
}

// -----

func.func @gather_weights_c3_parts(%w: tensor<1x64x32xf32>) {
  // expected-error @+1 {{expected at least one part, and no more than one without a dim, got 2}}
  %0 = moe.gather_weights %w at <ranks = 4, experts = 2, shards = 2, copies = 0, slots = 1>
      {parts = 2 : i64} : tensor<1x64x32xf32> -> tensor<2x64x32xf32>
  return
}

// -----

func.func @start_exchange_home(%h: memref<?x32xf32>, %a: memref<?x64xf32>, %m: memref<4x8xi32>, %i: index) {
  // expected-error @+1 {{'moe.start_exchange' op expected home rows of size 64 in dim 1, got 'memref<?x32xf32>'}}
  %t = moe.start_exchange to_experts %h, %a, %m chunk(%i of %i)
      at <ranks = 4, experts = 8, slots = 2> equal
      : memref<?x32xf32>, memref<?x64xf32>, memref<4x8xi32>
  return
}

// -----

func.func @start_exchange_element(%h: memref<?x64xf16>, %a: memref<?x64xf32>, %m: memref<4x8xi32>, %i: index) {
  // expected-error @+1 {{'moe.start_exchange' op expected rows of 'f16' on both sides, got 'memref<?x64xf32>'}}
  %t = moe.start_exchange to_experts %h, %a, %m chunk(%i of %i)
      at <ranks = 4, experts = 8, slots = 2> equal
      : memref<?x64xf16>, memref<?x64xf32>, memref<4x8xi32>
  return
}

// -----

func.func @merge_rows_c1_init(%r: tensor<?x64xf32>, %m: tensor<4x8xi32>, %i: index) {
  // expected-error @+1 {{'moe.merge_rows' op expected a result of 'f32' and an init of its type, got 'tensor<?x64xf32>'}}
  %0 = moe.merge_rows %r, %m chunk(%i of %i) at <ranks = 4, experts = 8, slots = 2> equal
      : tensor<?x64xf32>, tensor<4x8xi32> -> tensor<?x64xf32>
  return
}

// -----

func.func @merge_rows_c1_element(%r: tensor<?x64xf32>, %m: tensor<4x8xi32>, %i: index, %a: tensor<?x64xf16>) {
  // expected-error @+1 {{'moe.merge_rows' op expected a result of 'f32' and an init of its type, got 'tensor<?x64xf16>'}}
  %0 = moe.merge_rows %r, %m chunk(%i of %i) at <ranks = 4, experts = 8, slots = 2> equal
      init(%a : tensor<?x64xf16>) : tensor<?x64xf32>, tensor<4x8xi32> -> tensor<?x64xf16>
  return
}

// -----

func.func @merge_rows_c1_width(%r: tensor<?x64xf32>, %m: tensor<4x8xi32>, %i: index, %a: tensor<?x32xf32>) {
  // expected-error @+1 {{'moe.merge_rows' op expected result of size 64 in dim 1, got 'tensor<?x32xf32>'}}
  %0 = moe.merge_rows %r, %m chunk(%i of %i) at <ranks = 4, experts = 8, slots = 2> equal
      init(%a : tensor<?x32xf32>) : tensor<?x64xf32>, tensor<4x8xi32> -> tensor<?x32xf32>
  return
}

// -----

func.func @merge_rows_c2_matrix(%r: tensor<?x64xf32>, %m: tensor<2x8xi32>, %i: index) {
  // expected-error @+1 {{'moe.merge_rows' op expected counts of size 4 in dim 0, got 'tensor<2x8xi32>'}}
  %0 = moe.merge_rows %r, %m chunk(%i of %i) at <ranks = 4, experts = 8, slots = 2> equal
      init(%r : tensor<?x64xf32>) : tensor<?x64xf32>, tensor<2x8xi32> -> tensor<?x64xf32>
  return
}

// -----

func.func @merge_rows_c2_copies(%r: tensor<?x64xf32>, %m: tensor<4x8xi32>, %i: index) {
  // expected-error @+1 {{'moe.merge_rows' op expected a placement with copies, got}}
  %0 = moe.merge_rows %r, %m chunk(%i of %i) at <ranks = 4, experts = 8, copies = 0, slots = 2> equal
      init(%r : tensor<?x64xf32>) : tensor<?x64xf32>, tensor<4x8xi32> -> tensor<?x64xf32>
  return
}
