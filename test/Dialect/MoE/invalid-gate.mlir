// RUN: moira-opt %s -split-input-file -verify-diagnostics

func.func @gate_c1_rank(%l: tensor<4x8xf32>) {
  // expected-error @+1 {{'moe.gate' op expected ids of type [T, K] x i32, got 'tensor<4xi32>'}}
  %0:2 = moe.gate %l router<> : tensor<4x8xf32> -> tensor<4xi32>, tensor<4x2xf32>
  return
}

// -----

func.func @gate_c1_element(%l: tensor<4x8xf32>) {
  // expected-error @+1 {{'moe.gate' op expected ids of type [T, K] x i32, got 'tensor<4x2xi64>'}}
  %0:2 = moe.gate %l router<> : tensor<4x8xf32> -> tensor<4x2xi64>, tensor<4x2xf32>
  return
}

// -----

func.func @gate_c1_dynamic_experts(%l: tensor<4x?xf32>) {
  // expected-error @+1 {{'moe.gate' op expected static E and K, got 'tensor<4x?xf32>' and 'tensor<4x2xi32>'}}
  %0:2 = moe.gate %l router<> : tensor<4x?xf32> -> tensor<4x2xi32>, tensor<4x2xf32>
  return
}

// -----

func.func @gate_c1_dynamic_choices(%l: tensor<4x8xf32>) {
  // expected-error @+1 {{'moe.gate' op expected static E and K, got 'tensor<4x8xf32>' and 'tensor<4x?xi32>'}}
  %0:2 = moe.gate %l router<> : tensor<4x8xf32> -> tensor<4x?xi32>, tensor<4x2xf32>
  return
}

// -----

func.func @gate_c1_tokens_of_ids(%l: tensor<4x8xf32>) {
  // expected-error @+1 {{'moe.gate' op expected ids of size 4 in dim 0, got 'tensor<5x2xi32>'}}
  %0:2 = moe.gate %l router<> : tensor<4x8xf32> -> tensor<5x2xi32>, tensor<4x2xf32>
  return
}

// -----

func.func @gate_c1_choices_of_weights(%l: tensor<4x8xf32>) {
  // expected-error @+1 {{'moe.gate' op expected weights of size 2 in dim 1, got 'tensor<4x3xf32>'}}
  %0:2 = moe.gate %l router<> : tensor<4x8xf32> -> tensor<4x2xi32>, tensor<4x3xf32>
  return
}

// -----

func.func @gate_c1_results(%l: tensor<4x8xf32>) {
  // expected-error @+1 {{'moe.gate' op expected 2 results and no outs in tensor form, got 1 results and 0 outs}}
  %0 = moe.gate %l router<> : tensor<4x8xf32> -> tensor<4x2xi32>
  return
}

// -----

func.func @gate_c1_buffer_form(%l: memref<4x8xf32>, %ids: memref<4x2xi32>) {
  // expected-error @+1 {{'moe.gate' op expected 2 outs and no results in buffer form, got 1 outs and 0 results}}
  moe.gate %l router<> outs(%ids : memref<4x2xi32>) : memref<4x8xf32>
  return
}

// -----

func.func @gate_c1_mixed_form(%l: memref<4x8xf32>, %b: tensor<8xf32>, %ids: memref<4x2xi32>, %w: memref<4x2xf32>) {
  // expected-error @+1 {{'moe.gate' op expected no tensor among memref operands, got 'tensor<8xf32>' as operand #1}}
  moe.gate %l router<> bias(%b : tensor<8xf32>) outs(%ids, %w : memref<4x2xi32>, memref<4x2xf32>) : memref<4x8xf32>
  return
}

// -----

func.func @gate_c2_none(%l: tensor<4x8xf32>) {
  // expected-error @+1 {{'moe.gate' op expected K >= 1, got K = 0}}
  %0:2 = moe.gate %l router<> : tensor<4x8xf32> -> tensor<4x0xi32>, tensor<4x0xf32>
  return
}

// -----

func.func @gate_c3_bias(%l: tensor<4x8xf32>, %b: tensor<4xf32>) {
  // expected-error @+1 {{'moe.gate' op expected bias of size 8 in dim 0, got 'tensor<4xf32>'}}
  %0:2 = moe.gate %l router<> bias(%b : tensor<4xf32>) : tensor<4x8xf32> -> tensor<4x2xi32>, tensor<4x2xf32>
  return
}

// -----

func.func @gate_c3_mask(%l: tensor<4x8xf32>, %m: tensor<8xi1>) {
  // expected-error @+1 {{'moe.gate' op expected mask of size 4 in dim 0, got 'tensor<8xi1>'}}
  %0:2 = moe.gate %l router<> mask(%m : tensor<8xi1>) : tensor<4x8xf32> -> tensor<4x2xi32>, tensor<4x2xf32>
  return
}

// -----

func.func @gate_c3_sample(%l: tensor<4x8xf32>, %u: tensor<5xf32>) {
  // expected-error @+1 {{'moe.gate' op expected sample of size 4 in dim 0, got 'tensor<5xf32>'}}
  %0:2 = moe.gate %l router<> sample(%u : tensor<5xf32>) : tensor<4x8xf32> -> tensor<4x2xi32>, tensor<4x2xf32>
  return
}

// -----

func.func @gate_c3_replay(%l: tensor<4x8xf32>, %r: tensor<4x3xi32>) {
  // expected-error @+1 {{'moe.gate' op expected replay of size 2 in dim 1, got 'tensor<4x3xi32>'}}
  %0:2 = moe.gate %l router<> replay(%r : tensor<4x3xi32>) : tensor<4x8xf32> -> tensor<4x2xi32>, tensor<4x2xf32>
  return
}

// -----

func.func @gate_c4_weights(%l: tensor<4x8xf32>) {
  // expected-error @+1 {{'moe.gate' op expected weights of 'f32', got 'tensor<4x2xbf16>'}}
  %0:2 = moe.gate %l router<> : tensor<4x8xf32> -> tensor<4x2xi32>, tensor<4x2xbf16>
  return
}

// -----

func.func @gate_c4_f64(%l: tensor<4x8xf64>) {
  // expected-error @+1 {{'moe.gate' op expected weights of 'f64', got 'tensor<4x2xf32>'}}
  %0:2 = moe.gate %l router<> : tensor<4x8xf64> -> tensor<4x2xi32>, tensor<4x2xf32>
  return
}

// -----

func.func @gate_c4_bias(%l: tensor<4x8xf32>, %b: tensor<8xf64>) {
  // expected-error @+1 {{'moe.gate' op expected bias and threshold of 'f32', got 'tensor<8xf64>'}}
  %0:2 = moe.gate %l router<> bias(%b : tensor<8xf64>) : tensor<4x8xf32> -> tensor<4x2xi32>, tensor<4x2xf32>
  return
}

// -----

func.func @gate_c4_threshold(%l: tensor<4x8xf32>, %t: f64) {
  // expected-error @+1 {{'moe.gate' op expected bias and threshold of 'f32', got 'f64'}}
  %0:2 = moe.gate %l router<> threshold(%t : f64) : tensor<4x8xf32> -> tensor<4x2xi32>, tensor<4x2xf32>
  return
}

// -----

func.func @gate_c5_divides(%l: tensor<4x8xf32>) {
  // expected-error @+1 {{'moe.gate' op expected groups to divide E = 8, got 3}}
  %0:2 = moe.gate %l router<groups = 3> : tensor<4x8xf32> -> tensor<4x2xi32>, tensor<4x2xf32>
  return
}

// -----

func.func @gate_c5_keeps_enough(%l: tensor<4x8xf32>) {
  // expected-error @+1 {{'moe.gate' op expected the kept groups to hold K = 3 experts, got 1 groups of 2}}
  %0:2 = moe.gate %l router<groups = 4> : tensor<4x8xf32> -> tensor<4x3xi32>, tensor<4x3xf32>
  return
}

// -----

func.func @gate_c5_top2(%l: tensor<4x8xf32>) {
  // expected-error @+1 {{'moe.gate' op expected two experts per group for sum_top2, got 1}}
  %0:2 = moe.gate %l router<groups = 8, keep = 2, group_score = sum_top2> : tensor<4x8xf32> -> tensor<4x2xi32>, tensor<4x2xf32>
  return
}

// -----

func.func @gate_c6_no_capacity(%l: tensor<4x8xf32>) {
  // expected-error @+1 {{'moe.gate' op expected capacity with expert_choice, and only there}}
  %0:2 = moe.gate %l router<expert_choice> : tensor<4x8xf32> -> tensor<4x8xi32>, tensor<4x8xf32>
  return
}

// -----

func.func @gate_c6_only_there(%l: tensor<4x8xf32>, %c: index) {
  // expected-error @+1 {{'moe.gate' op expected capacity with expert_choice, and only there}}
  %0:2 = moe.gate %l router<> capacity(%c) : tensor<4x8xf32> -> tensor<4x2xi32>, tensor<4x2xf32>
  return
}

// -----

func.func @gate_c6_choices(%l: tensor<4x8xf32>, %c: index) {
  // expected-error @+1 {{'moe.gate' op expected expert_choice with K = E and without top_k, threshold, replay and sample, got K = 2, E = 8}}
  %0:2 = moe.gate %l router<expert_choice> capacity(%c) : tensor<4x8xf32> -> tensor<4x2xi32>, tensor<4x2xf32>
  return
}

// -----

func.func @gate_c6_top_k(%l: tensor<4x8xf32>, %c: index) {
  // expected-error @+1 {{'moe.gate' op expected expert_choice with K = E and without top_k}}
  %0:2 = moe.gate %l router<expert_choice> top_k(%c) capacity(%c) : tensor<4x8xf32> -> tensor<4x8xi32>, tensor<4x8xf32>
  return
}

// -----

func.func @gate_c6_threshold(%l: tensor<4x8xf32>, %c: index, %t: f32) {
  // expected-error @+1 {{'moe.gate' op expected expert_choice with K = E and without top_k, threshold}}
  %0:2 = moe.gate %l router<expert_choice> threshold(%t : f32) capacity(%c) : tensor<4x8xf32> -> tensor<4x8xi32>, tensor<4x8xf32>
  return
}

// -----

func.func @gate_c6_replay(%l: tensor<4x8xf32>, %c: index, %r: tensor<4x8xi32>) {
  // expected-error @+1 {{'moe.gate' op expected expert_choice with K = E and without top_k, threshold, replay}}
  %0:2 = moe.gate %l router<expert_choice> capacity(%c) replay(%r : tensor<4x8xi32>) : tensor<4x8xf32> -> tensor<4x8xi32>, tensor<4x8xf32>
  return
}

// -----

func.func @gate_c6_sample(%l: tensor<4x8xf32>, %c: index, %u: tensor<4xf32>) {
  // expected-error @+1 {{'moe.gate' op expected expert_choice with K = E and without top_k, threshold, replay and sample}}
  %0:2 = moe.gate %l router<expert_choice> capacity(%c) sample(%u : tensor<4xf32>) : tensor<4x8xf32> -> tensor<4x8xi32>, tensor<4x8xf32>
  return
}

// -----

func.func @gate_c7(%l: tensor<4x8xf32>, %u: tensor<4xf32>) {
  // expected-error @+1 {{'moe.gate' op expected K >= 2 with sample, got K = 1}}
  %0:2 = moe.gate %l router<> sample(%u : tensor<4xf32>) : tensor<4x8xf32> -> tensor<4x1xi32>, tensor<4x1xf32>
  return
}

// -----

func.func @gate_operand_kinds(%l: tensor<4x8xi32>) {
  // expected-error @+1 {{'moe.gate' op operand #0 must be}}
  %0:2 = moe.gate %l router<> : tensor<4x8xi32> -> tensor<4x2xi32>, tensor<4x2xf32>
  return
}
