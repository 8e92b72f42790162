// RUN: moira-opt %s -split-input-file -verify-diagnostics

func.func @dispatch_c1_tokens(%x: tensor<4x8xf32>, %s: tensor<5x2xi32>, %n: tensor<3xi32>, %b: index) {
  // expected-error @+1 {{'moe.dispatch' op expected slots of size 4 in dim 0, got 'tensor<5x2xi32>'}}
  %0 = moe.dispatch %x, %s, %n, %b : tensor<4x8xf32>, tensor<5x2xi32>, tensor<3xi32> -> tensor<?x8xf32>
  return
}

// -----

func.func @dispatch_c1_rank(%x: tensor<2x4x8xf32>, %s: tensor<4x2xi32>, %n: tensor<3xi32>, %b: index) {
  // expected-error @+1 {{'moe.dispatch' op operand #0 must be}}
  %0 = moe.dispatch %x, %s, %n, %b : tensor<2x4x8xf32>, tensor<4x2xi32>, tensor<3xi32> -> tensor<?x8xf32>
  return
}

// -----

func.func @dispatch_c1_form(%x: tensor<4x8xf32>, %s: tensor<4x2xi32>, %n: tensor<3xi32>, %b: index) {
  // expected-error @+1 {{'moe.dispatch' op expected 1 results and no outs in tensor form, got 0 results and 0 outs}}
  moe.dispatch %x, %s, %n, %b : tensor<4x8xf32>, tensor<4x2xi32>, tensor<3xi32>
  return
}

// -----

func.func @dispatch_c2_element(%x: tensor<4x8xf32>, %s: tensor<4x2xi32>, %n: tensor<3xi32>, %b: index) {
  // expected-error @+1 {{'moe.dispatch' op expected rows of type [R, D] or [E, P, D] x 'f32', got 'tensor<?x8xbf16>'}}
  %0 = moe.dispatch %x, %s, %n, %b : tensor<4x8xf32>, tensor<4x2xi32>, tensor<3xi32> -> tensor<?x8xbf16>
  return
}

// -----

func.func @dispatch_c2_rank(%x: tensor<4x8xf32>, %s: tensor<4x2xi32>, %n: tensor<3xi32>, %b: index) {
  // expected-error @+1 {{'moe.dispatch' op expected rows of type [R, D] or [E, P, D] x 'f32', got 'tensor<8xf32>'}}
  %0 = moe.dispatch %x, %s, %n, %b : tensor<4x8xf32>, tensor<4x2xi32>, tensor<3xi32> -> tensor<8xf32>
  return
}

// -----

func.func @dispatch_c2_features(%x: tensor<4x8xf32>, %s: tensor<4x2xi32>, %n: tensor<3xi32>, %b: index) {
  // expected-error @+1 {{'moe.dispatch' op expected rows of size 8 in dim 1, got 'tensor<?x9xf32>'}}
  %0 = moe.dispatch %x, %s, %n, %b : tensor<4x8xf32>, tensor<4x2xi32>, tensor<3xi32> -> tensor<?x9xf32>
  return
}

// -----

func.func @dispatch_c2_experts(%x: tensor<4x8xf32>, %s: tensor<4x2xi32>, %n: tensor<3xi32>, %b: index) {
  // expected-error @+1 {{'moe.dispatch' op expected rows of size 3 in dim 0, got 'tensor<4x?x8xf32>'}}
  %0 = moe.dispatch %x, %s, %n, %b : tensor<4x8xf32>, tensor<4x2xi32>, tensor<3xi32> -> tensor<4x?x8xf32>
  return
}

// -----

func.func @dispatch_c3_shape(%x: tensor<4x8xf32>, %s: tensor<4x2xi32>, %n: tensor<3xi32>, %b: index, %w: tensor<4x1xf32>) {
  // expected-error @+1 {{'moe.dispatch' op expected weights of size 2 in dim 1, got 'tensor<4x1xf32>'}}
  %0 = moe.dispatch %x, %s, %n, %b weights(%w : tensor<4x1xf32>) : tensor<4x8xf32>, tensor<4x2xi32>, tensor<3xi32> -> tensor<?x8xf32>
  return
}

// -----

func.func @dispatch_c3_element(%x: tensor<4x8xf32>, %s: tensor<4x2xi32>, %n: tensor<3xi32>, %b: index, %w: tensor<4x2xf64>) {
  // expected-error @+1 {{'moe.dispatch' op expected weights of 'f32', got 'tensor<4x2xf64>'}}
  %0 = moe.dispatch %x, %s, %n, %b weights(%w : tensor<4x2xf64>) : tensor<4x8xf32>, tensor<4x2xi32>, tensor<3xi32> -> tensor<?x8xf32>
  return
}

// -----

func.func @combine_c1_element(%r: tensor<?x8xf32>, %s: tensor<4x2xi32>) {
  // expected-error @+1 {{'moe.combine' op expected a result of type [T, D] x 'f32', got 'tensor<4x8xbf16>'}}
  %0 = moe.combine %r, %s : tensor<?x8xf32>, tensor<4x2xi32> -> tensor<4x8xbf16>
  return
}

// -----

func.func @combine_c1_rank(%r: tensor<?x8xf32>, %s: tensor<4x2xi32>) {
  // expected-error @+1 {{'moe.combine' op expected a result of type [T, D] x 'f32', got 'tensor<1x4x8xf32>'}}
  %0 = moe.combine %r, %s : tensor<?x8xf32>, tensor<4x2xi32> -> tensor<1x4x8xf32>
  return
}

// -----

func.func @combine_c1_tokens(%r: tensor<?x8xf32>, %s: tensor<4x2xi32>) {
  // expected-error @+1 {{'moe.combine' op expected result of size 4 in dim 0, got 'tensor<5x8xf32>'}}
  %0 = moe.combine %r, %s : tensor<?x8xf32>, tensor<4x2xi32> -> tensor<5x8xf32>
  return
}

// -----

func.func @combine_c1_features(%r: tensor<3x5x8xf32>, %s: tensor<4x2xi32>) {
  // expected-error @+1 {{'moe.combine' op expected result of size 8 in dim 1, got 'tensor<4x5xf32>'}}
  %0 = moe.combine %r, %s : tensor<3x5x8xf32>, tensor<4x2xi32> -> tensor<4x5xf32>
  return
}

// -----

func.func @combine_c2_shape(%r: tensor<?x8xf32>, %s: tensor<4x2xi32>, %w: tensor<3x2xf32>) {
  // expected-error @+1 {{'moe.combine' op expected weights of size 4 in dim 0, got 'tensor<3x2xf32>'}}
  %0 = moe.combine %r, %s weights(%w : tensor<3x2xf32>) : tensor<?x8xf32>, tensor<4x2xi32> -> tensor<4x8xf32>
  return
}

// -----

func.func @combine_c2_element(%r: tensor<?x8xf64>, %s: tensor<4x2xi32>, %w: tensor<4x2xf32>) {
  // expected-error @+1 {{'moe.combine' op expected weights of 'f64', got 'tensor<4x2xf32>'}}
  %0 = moe.combine %r, %s weights(%w : tensor<4x2xf32>) : tensor<?x8xf64>, tensor<4x2xi32> -> tensor<4x8xf64>
  return
}

// -----

func.func @sources_c1_slots(%s: tensor<4x2x1xi32>, %b: index) {
  // expected-error @+1 {{'moe.sources' op operand #0 must be}}
  %0 = moe.sources %s, %b : tensor<4x2x1xi32> -> tensor<?xi32>
  return
}

// -----

func.func @sources_c1_element(%s: tensor<4x2xi32>, %b: index) {
  // expected-error @+1 {{'moe.sources' op expected a result of type [R] x i32, got 'tensor<?xindex>'}}
  %0 = moe.sources %s, %b : tensor<4x2xi32> -> tensor<?xindex>
  return
}

// -----

func.func @sources_c1_rank(%s: tensor<4x2xi32>, %b: index) {
  // expected-error @+1 {{'moe.sources' op expected a result of type [R] x i32, got 'tensor<8x1xi32>'}}
  %0 = moe.sources %s, %b : tensor<4x2xi32> -> tensor<8x1xi32>
  return
}

// -----

func.func @sources_c1_form(%s: tensor<4x2xi32>, %b: index, %o: memref<8xi32>) {
  // expected-error @+1 {{'moe.sources' op expected}}
  moe.sources %s, %b outs(%o : memref<8xi32>) : tensor<4x2xi32>
  return
}
