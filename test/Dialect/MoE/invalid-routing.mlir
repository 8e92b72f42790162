// RUN: moira-opt %s -split-input-file -verify-diagnostics

func.func @count_c1_dynamic(%ids: tensor<4x2xi32>) {
  // expected-error @+1 {{'moe.count' op expected counts of type [E] x i32 with static E, got 'tensor<?xi32>'}}
  %0 = moe.count %ids : tensor<4x2xi32> -> tensor<?xi32>
  return
}

// -----

func.func @count_c1_rank(%ids: tensor<4x2xi32>) {
  // expected-error @+1 {{'moe.count' op expected counts of type [E] x i32 with static E, got 'tensor<4x1xi32>'}}
  %0 = moe.count %ids : tensor<4x2xi32> -> tensor<4x1xi32>
  return
}

// -----

func.func @count_c1_element(%ids: tensor<4x2xi32>) {
  // expected-error @+1 {{'moe.count' op expected counts of type [E] x i32 with static E, got 'tensor<4xi64>'}}
  %0 = moe.count %ids : tensor<4x2xi32> -> tensor<4xi64>
  return
}

// -----

func.func @count_c1_form(%ids: memref<4x2xi32>) {
  // expected-error @+1 {{'moe.count' op expected 1 outs and no results in buffer form, got 0 outs and 0 results}}
  moe.count %ids : memref<4x2xi32>
  return
}

// -----

func.func @capacity_c1_experts(%t: index, %f: f64) {
  // expected-error @+1 {{'moe.capacity' op expected experts >= 1, got 0}}
  %0 = moe.capacity switch tokens(%t) factor(%f) top_k(%t) {experts = 0 : i64}
  return
}

// -----

func.func @capacity_c1_minimum(%t: index, %f: f64) {
  // expected-error @+1 {{'moe.capacity' op expected minimum >= 0, got -1}}
  %0 = moe.capacity switch tokens(%t) factor(%f) top_k(%t) {experts = 4 : i64, minimum = -1 : i64}
  return
}

// -----

func.func @capacity_c1_alignment(%t: index, %f: f64) {
  // expected-error @+1 {{'moe.capacity' op expected alignment >= 1, got 0}}
  %0 = moe.capacity switch tokens(%t) factor(%f) top_k(%t) {experts = 4 : i64, alignment = 0 : i64}
  return
}

// -----

func.func @capacity_c2_unknown_factor(%t: index, %f: f64) {
  // expected-error @+1 {{'moe.capacity' op expected counts with tutel, or a constant factor > 0}}
  %0 = moe.capacity tutel tokens(%t) factor(%f) top_k(%t) {experts = 4 : i64}
  return
}

// -----

func.func @capacity_c2_zero_factor(%t: index) {
  %f = arith.constant 0.0 : f64
  // expected-error @+1 {{'moe.capacity' op expected counts with tutel, or a constant factor > 0}}
  %0 = moe.capacity tutel tokens(%t) factor(%f) top_k(%t) {experts = 4 : i64}
  return
}

// -----

func.func @capacity_c2_nan_factor(%t: index) {
  %f = arith.constant 0x7FF8000000000000 : f64
  // expected-error @+1 {{'moe.capacity' op expected counts with tutel, or a constant factor > 0}}
  %0 = moe.capacity tutel tokens(%t) factor(%f) top_k(%t) {experts = 4 : i64}
  return
}

// -----

func.func @capacity_c2_counts(%t: index, %f: f64, %n: tensor<5xi32>) {
  // expected-error @+1 {{'moe.capacity' op expected counts of size 4 in dim 0, got 'tensor<5xi32>'}}
  %0 = moe.capacity tutel tokens(%t) factor(%f) top_k(%t) counts(%n : tensor<5xi32>) {experts = 4 : i64}
  return
}

// -----

func.func @capacity_rule(%t: index, %f: f64) {
  // expected-error @+2 {{expected ::mlir::moe::CapacityRule to be one of: tutel, gshard, switch, fixed}}
  // expected-error @+1 {{failed to parse}}
  %0 = moe.capacity mystery tokens(%t) factor(%f) top_k(%t) {experts = 4 : i64}
  return
}

// -----

func.func @assign_c1_results(%ids: tensor<4x2xi32>, %n: tensor<8xi32>) {
  // expected-error @+1 {{'moe.assign' op expected i32 slots, i32 sizes and an index bound, got 'tensor<4x2xi32>', 'tensor<8xi32>', 'tensor<1xi32>'}}
  %0:3 = moe.assign %ids token_major counts(%n : tensor<8xi32>) : tensor<4x2xi32> -> tensor<4x2xi32>, tensor<8xi32>, tensor<1xi32>
  return
}

// -----

func.func @assign_c1_slots(%ids: tensor<4x2xi32>, %n: tensor<8xi32>) {
  // expected-error @+1 {{'moe.assign' op expected slots of size 2 in dim 1, got 'tensor<4x3xi32>'}}
  %0:3 = moe.assign %ids token_major counts(%n : tensor<8xi32>) : tensor<4x2xi32> -> tensor<4x3xi32>, tensor<8xi32>, index
  return
}

// -----

func.func @assign_c1_sizes(%ids: tensor<4x2xi32>, %n: tensor<8xi32>) {
  // expected-error @+1 {{'moe.assign' op expected sizes of size 8 in dim 0, got 'tensor<4xi32>'}}
  %0:3 = moe.assign %ids token_major counts(%n : tensor<8xi32>) : tensor<4x2xi32> -> tensor<4x2xi32>, tensor<4xi32>, index
  return
}

// -----

func.func @assign_c1_dynamic(%ids: tensor<4x2xi32>, %n: tensor<?xi32>) {
  // expected-error @+1 {{'moe.assign' op expected static E, got sizes 'tensor<?xi32>'}}
  %0:3 = moe.assign %ids token_major counts(%n : tensor<?xi32>) : tensor<4x2xi32> -> tensor<4x2xi32>, tensor<?xi32>, index
  return
}

// -----

func.func @assign_c1_form(%ids: tensor<4x2xi32>, %n: tensor<8xi32>) {
  // expected-error @+1 {{'moe.assign' op expected 3 results and no outs in tensor form, got 2 results and 0 outs}}
  %0:2 = moe.assign %ids token_major counts(%n : tensor<8xi32>) : tensor<4x2xi32> -> tensor<4x2xi32>, tensor<8xi32>
  return
}

// -----

func.func @assign_c2_missing(%ids: tensor<4x2xi32>, %n: tensor<8xi32>) {
  // expected-error @+1 {{'moe.assign' op expected priority with batch_prioritized or expert_probability, and only there, got order batch_prioritized}}
  %0:3 = moe.assign %ids batch_prioritized counts(%n : tensor<8xi32>) : tensor<4x2xi32> -> tensor<4x2xi32>, tensor<8xi32>, index
  return
}

// -----

func.func @assign_c2_unused(%ids: tensor<4x2xi32>, %n: tensor<8xi32>, %p: tensor<4xf32>) {
  // expected-error @+1 {{'moe.assign' op expected priority with batch_prioritized or expert_probability, and only there, got order choice_major}}
  %0:3 = moe.assign %ids choice_major counts(%n : tensor<8xi32>) priority(%p : tensor<4xf32>) : tensor<4x2xi32> -> tensor<4x2xi32>, tensor<8xi32>, index
  return
}

// -----

func.func @assign_c2_per_token(%ids: tensor<4x2xi32>, %n: tensor<8xi32>, %p: tensor<4x2xf32>) {
  // expected-error @+1 {{'moe.assign' op expected priority of rank 1, got 'tensor<4x2xf32>'}}
  %0:3 = moe.assign %ids batch_prioritized counts(%n : tensor<8xi32>) priority(%p : tensor<4x2xf32>) : tensor<4x2xi32> -> tensor<4x2xi32>, tensor<8xi32>, index
  return
}

// -----

func.func @assign_c2_per_pair(%ids: tensor<4x2xi32>, %n: tensor<8xi32>, %p: tensor<4x3xf32>) {
  // expected-error @+1 {{'moe.assign' op expected priority of size 2 in dim 1, got 'tensor<4x3xf32>'}}
  %0:3 = moe.assign %ids expert_probability counts(%n : tensor<8xi32>) priority(%p : tensor<4x3xf32>) : tensor<4x2xi32> -> tensor<4x2xi32>, tensor<8xi32>, index
  return
}

// -----

func.func @assign_c3(%ids: tensor<4x2xi32>, %n: tensor<8xi32>) {
  // expected-error @+1 {{'moe.assign' op expected capacity with padded}}
  %0:3 = moe.assign %ids token_major padded counts(%n : tensor<8xi32>) : tensor<4x2xi32> -> tensor<4x2xi32>, tensor<8xi32>, index
  return
}

// -----

func.func @assign_blocks(%ids: tensor<4x2xi32>, %n: tensor<8xi32>, %b: tensor<2xi64>) {
  // expected-error @+1 {{'moe.assign' op operand #2 must be}}
  %0:3 = moe.assign %ids token_major counts(%n : tensor<8xi32>) blocks(%b : tensor<2xi64>) : tensor<4x2xi32> -> tensor<4x2xi32>, tensor<8xi32>, index
  return
}

// -----

func.func @noise_c1_element(%t: index, %s: i64) {
  // expected-error @+1 {{'moe.noise' op expected noise of type [T, N] x f32 with static N, got 'tensor<4x8xf64>'}}
  %0 = moe.noise normal rows(%t) seed(%s) step(%s) first(%t) {layer = 0 : i64} -> tensor<4x8xf64>
  return
}

// -----

func.func @noise_c1_rank(%t: index, %s: i64) {
  // expected-error @+1 {{'moe.noise' op expected noise of type [T, N] x f32 with static N, got 'tensor<4xf32>'}}
  %0 = moe.noise normal rows(%t) seed(%s) step(%s) first(%t) {layer = 0 : i64} -> tensor<4xf32>
  return
}

// -----

func.func @noise_c1_dynamic(%t: index, %s: i64) {
  // expected-error @+1 {{'moe.noise' op expected noise of type [T, N] x f32 with static N, got 'tensor<?x?xf32>'}}
  %0 = moe.noise normal rows(%t) seed(%s) step(%s) first(%t) {layer = 0 : i64} -> tensor<?x?xf32>
  return
}

// -----

func.func @noise_c1_form(%t: index, %s: i64) {
  // expected-error @+1 {{'moe.noise' op expected one result or one outs, got 0 results and 0 outs}}
  moe.noise normal rows(%t) seed(%s) step(%s) first(%t) {layer = 0 : i64}
  return
}
