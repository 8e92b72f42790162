// RUN: moira-opt %s -split-input-file -verify-diagnostics

func.func @gate_gradient_c1_static(%l: tensor<5x?xf32>, %i: tensor<5x2xi32>, %d: tensor<5x2xf32>) {
  // expected-error @+1 {{'moe.gate_gradient' op expected static E and K, got 'tensor<5x?xf32>' and 'tensor<5x2xi32>'}}
  %0 = moe.gate_gradient %l, %i, %d router<> : tensor<5x?xf32>, tensor<5x2xi32>, tensor<5x2xf32> -> tensor<5x?xf32>
  return
}

// -----

func.func @gate_gradient_c1_choices(%l: tensor<5x4xf32>, %i: tensor<5x0xi32>, %d: tensor<5x0xf32>) {
  // expected-error @+1 {{'moe.gate_gradient' op expected K >= 1, got K = 0}}
  %0 = moe.gate_gradient %l, %i, %d router<> : tensor<5x4xf32>, tensor<5x0xi32>, tensor<5x0xf32> -> tensor<5x4xf32>
  return
}

// -----

func.func @gate_gradient_c1_tokens(%l: tensor<5x4xf32>, %i: tensor<6x2xi32>, %d: tensor<5x2xf32>) {
  // expected-error @+1 {{'moe.gate_gradient' op expected ids of size 5 in dim 0, got 'tensor<6x2xi32>'}}
  %0 = moe.gate_gradient %l, %i, %d router<> : tensor<5x4xf32>, tensor<6x2xi32>, tensor<5x2xf32> -> tensor<5x4xf32>
  return
}

// -----

func.func @gate_gradient_c1_element(%l: tensor<5x4xf32>, %i: tensor<5x2xi32>, %d: tensor<5x2xf32>) {
  // expected-error @+1 {{'moe.gate_gradient' op expected a result of 'f32', got 'tensor<5x4xbf16>'}}
  %0 = moe.gate_gradient %l, %i, %d router<> : tensor<5x4xf32>, tensor<5x2xi32>, tensor<5x2xf32> -> tensor<5x4xbf16>
  return
}

// -----

func.func @gate_gradient_c1_shape(%l: tensor<5x4xf32>, %i: tensor<5x2xi32>, %d: tensor<5x2xf32>) {
  // expected-error @+1 {{'moe.gate_gradient' op expected result of size 4 in dim 1, got 'tensor<5x3xf32>'}}
  %0 = moe.gate_gradient %l, %i, %d router<> : tensor<5x4xf32>, tensor<5x2xi32>, tensor<5x2xf32> -> tensor<5x3xf32>
  return
}

// -----

func.func @gate_gradient_c2_shape(%l: tensor<5x4xf32>, %i: tensor<5x2xi32>, %d: tensor<5x3xf32>) {
  // expected-error @+1 {{'moe.gate_gradient' op expected dweights of size 2 in dim 1, got 'tensor<5x3xf32>'}}
  %0 = moe.gate_gradient %l, %i, %d router<> : tensor<5x4xf32>, tensor<5x2xi32>, tensor<5x3xf32> -> tensor<5x4xf32>
  return
}

// -----

func.func @gate_gradient_c2_element(%l: tensor<5x4xf64>, %i: tensor<5x2xi32>, %d: tensor<5x2xf32>) {
  // expected-error @+1 {{'moe.gate_gradient' op expected weights and their gradient of 'f64', got 'tensor<5x2xf32>'}}
  %0 = moe.gate_gradient %l, %i, %d router<> : tensor<5x4xf64>, tensor<5x2xi32>, tensor<5x2xf32> -> tensor<5x4xf64>
  return
}

// -----

func.func @gate_gradient_c2_weights(%l: tensor<5x4xf32>, %i: tensor<5x2xi32>, %d: tensor<5x2xf32>, %w: tensor<5x1xf32>) {
  // expected-error @+1 {{'moe.gate_gradient' op expected weights of size 2 in dim 1, got 'tensor<5x1xf32>'}}
  %0 = moe.gate_gradient %l, %i, %d router<> weights(%w : tensor<5x1xf32>) : tensor<5x4xf32>, tensor<5x2xi32>, tensor<5x2xf32> -> tensor<5x4xf32>
  return
}

// -----

func.func @gate_gradient_c2_selected(%l: tensor<5x4xf32>, %i: tensor<5x2xi32>, %d: tensor<5x2xf32>, %s: tensor<4x2xi32>) {
  // expected-error @+1 {{'moe.gate_gradient' op expected selected of size 5 in dim 0, got 'tensor<4x2xi32>'}}
  %0 = moe.gate_gradient %l, %i, %d router<> selected(%s : tensor<4x2xi32>) : tensor<5x4xf32>, tensor<5x2xi32>, tensor<5x2xf32> -> tensor<5x4xf32>
  return
}

// -----

func.func @gate_gradient_c3(%l: tensor<5x4xf32>, %i: tensor<5x2xi32>, %d: tensor<5x2xf32>) {
  // expected-error @+1 {{'moe.gate_gradient' op expected K = E with expert_choice, got K = 2, E = 4}}
  %0 = moe.gate_gradient %l, %i, %d router<expert_choice> : tensor<5x4xf32>, tensor<5x2xi32>, tensor<5x2xf32> -> tensor<5x4xf32>
  return
}

// -----

func.func @pair_dot_c1_element(%r: tensor<?x8xbf16>, %x: tensor<5x8xf32>, %s: tensor<5x2xi32>) {
  // expected-error @+1 {{'moe.pair_dot' op expected x of 'bf16' like the rows, got 'tensor<5x8xf32>'}}
  %0 = moe.pair_dot %r, %x, %s : tensor<?x8xbf16>, tensor<5x8xf32>, tensor<5x2xi32> -> tensor<5x2xf32>
  return
}

// -----

func.func @pair_dot_c1_features(%r: tensor<?x8xf32>, %x: tensor<5x7xf32>, %s: tensor<5x2xi32>) {
  // expected-error @+1 {{'moe.pair_dot' op expected x of size 8 in dim 1, got 'tensor<5x7xf32>'}}
  %0 = moe.pair_dot %r, %x, %s : tensor<?x8xf32>, tensor<5x7xf32>, tensor<5x2xi32> -> tensor<5x2xf32>
  return
}

// -----

func.func @pair_dot_c1_tokens(%r: tensor<?x8xf32>, %x: tensor<4x8xf32>, %s: tensor<5x2xi32>) {
  // expected-error @+1 {{'moe.pair_dot' op expected x of size 5 in dim 0, got 'tensor<4x8xf32>'}}
  %0 = moe.pair_dot %r, %x, %s : tensor<?x8xf32>, tensor<4x8xf32>, tensor<5x2xi32> -> tensor<5x2xf32>
  return
}

// -----

func.func @pair_dot_c2_element(%r: tensor<?x8xf64>, %x: tensor<5x8xf64>, %s: tensor<5x2xi32>) {
  // expected-error @+1 {{'moe.pair_dot' op expected a result of 'f64', got 'tensor<5x2xf32>'}}
  %0 = moe.pair_dot %r, %x, %s : tensor<?x8xf64>, tensor<5x8xf64>, tensor<5x2xi32> -> tensor<5x2xf32>
  return
}

// -----

func.func @pair_dot_c2_shape(%r: tensor<?x8xf32>, %x: tensor<5x8xf32>, %s: tensor<5x2xi32>) {
  // expected-error @+1 {{'moe.pair_dot' op expected result of size 2 in dim 1, got 'tensor<5x3xf32>'}}
  %0 = moe.pair_dot %r, %x, %s : tensor<?x8xf32>, tensor<5x8xf32>, tensor<5x2xi32> -> tensor<5x3xf32>
  return
}
