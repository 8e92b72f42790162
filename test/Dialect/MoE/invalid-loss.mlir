// RUN: moira-opt %s -split-input-file -verify-diagnostics

func.func @loss_c1_dynamic(%l: tensor<?x?xf32>) {
  // expected-error @+1 {{'moe.loss' op expected static E >= 1, got logits 'tensor<?x?xf32>'}}
  %0 = moe.loss z %l : tensor<?x?xf32> -> tensor<f32>
  return
}

// -----

func.func @loss_c1_none(%l: tensor<?x0xf32>) {
  // expected-error @+1 {{'moe.loss' op expected static E >= 1, got logits 'tensor<?x0xf32>'}}
  %0 = moe.loss z %l : tensor<?x0xf32> -> tensor<f32>
  return
}

// -----

func.func @loss_c1_wide(%l: tensor<?x4xf64>) {
  // expected-error @+1 {{'moe.loss' op expected a loss of 'f64', got 'tensor<f32>'}}
  %0 = moe.loss z %l : tensor<?x4xf64> -> tensor<f32>
  return
}

// -----

func.func @loss_c1_narrow(%l: tensor<?x4xbf16>) {
  // expected-error @+1 {{'moe.loss' op expected a loss of 'f32', got 'tensor<f64>'}}
  %0 = moe.loss z %l : tensor<?x4xbf16> -> tensor<f64>
  return
}

// -----

func.func @loss_c2_missing(%l: tensor<?x4xf32>) {
  // expected-error @+1 {{'moe.loss' op expected ids with every kind but z, got none with switch}}
  %0 = moe.loss switch %l : tensor<?x4xf32> -> tensor<f32>
  return
}

// -----

func.func @loss_c2_z(%l: tensor<?x4xf32>, %i: tensor<?x2xi32>) {
  // expected-error @+1 {{'moe.loss' op expected ids with every kind but z, got ids with z}}
  %0 = moe.loss z %l ids(%i : tensor<?x2xi32>) : tensor<?x4xf32> -> tensor<f32>
  return
}

// -----

func.func @loss_c2_dynamic(%l: tensor<?x4xf32>, %i: tensor<?x?xi32>) {
  // expected-error @+1 {{'moe.loss' op expected static K >= 1, got ids 'tensor<?x?xi32>'}}
  %0 = moe.loss gshard %l ids(%i : tensor<?x?xi32>) : tensor<?x4xf32> -> tensor<f32>
  return
}

// -----

func.func @loss_c2_tokens(%l: tensor<6x4xf32>, %i: tensor<5x2xi32>) {
  // expected-error @+1 {{'moe.loss' op expected ids of size 6 in dim 0, got 'tensor<5x2xi32>'}}
  %0 = moe.loss gshard %l ids(%i : tensor<5x2xi32>) : tensor<6x4xf32> -> tensor<f32>
  return
}

// -----

func.func @loss_c3_mask(%l: tensor<6x4xf32>, %m: tensor<5xi1>) {
  // expected-error @+1 {{'moe.loss' op expected mask of size 6 in dim 0, got 'tensor<5xi1>'}}
  %0 = moe.loss z %l mask(%m : tensor<5xi1>) : tensor<6x4xf32> -> tensor<f32>
  return
}

// -----

func.func @loss_c3_noisy(%l: tensor<6x4xf32>, %i: tensor<6x2xi32>, %n: tensor<6x4xf64>) {
  // expected-error @+1 {{'moe.loss' op expected noisy of 'tensor<6x4xf32>', got 'tensor<6x4xf64>'}}
  %0 = moe.loss load_importance %l ids(%i : tensor<6x2xi32>) noisy(%n : tensor<6x4xf64>) {noise = 1.0 : f64} : tensor<6x4xf32> -> tensor<f32>
  return
}

// -----

func.func @loss_c4_neither(%l: tensor<6x4xf32>) {
  // expected-error @+1 {{'moe.loss' op expected either blocks or length with scope block, got neither}}
  %0 = moe.loss z %l scope block : tensor<6x4xf32> -> tensor<f32>
  return
}

// -----

func.func @loss_c4_both(%l: tensor<6x4xf32>, %b: tensor<?xi32>) {
  // expected-error @+1 {{'moe.loss' op expected either blocks or length with scope block, got both}}
  %0 = moe.loss z %l blocks(%b : tensor<?xi32>) scope block {length = 3 : i64} : tensor<6x4xf32> -> tensor<f32>
  return
}

// -----

func.func @loss_c4_scope(%l: tensor<6x4xf32>) {
  // expected-error @+1 {{'moe.loss' op expected no length with scope global, got 3}}
  %0 = moe.loss z %l scope global {length = 3 : i64} : tensor<6x4xf32> -> tensor<f32>
  return
}

// -----

func.func @loss_c4_length(%l: tensor<6x4xf32>) {
  // expected-error @+1 {{'moe.loss' op expected length >= 1, got 0}}
  %0 = moe.loss z %l scope block {length = 0 : i64} : tensor<6x4xf32> -> tensor<f32>
  return
}

// -----

func.func @loss_c4_divides(%l: tensor<6x4xf32>) {
  // expected-error @+1 {{'moe.loss' op expected length to divide T = 6, got 4}}
  %0 = moe.loss z %l scope block {length = 4 : i64} : tensor<6x4xf32> -> tensor<f32>
  return
}

// -----

func.func @loss_c5_scope(%l: tensor<6x4xf32>, %i: tensor<6x2xi32>) {
  // expected-error @+1 {{'moe.loss' op expected scope block with sequence, got rank}}
  %0 = moe.loss sequence %l ids(%i : tensor<6x2xi32>) : tensor<6x4xf32> -> tensor<f32>
  return
}

// -----

func.func @loss_c6_missing(%l: tensor<6x4xf32>, %i: tensor<6x2xi32>) {
  // expected-error @+1 {{'moe.loss' op expected noise with load_importance, and only there, got none with load_importance}}
  %0 = moe.loss load_importance %l ids(%i : tensor<6x2xi32>) : tensor<6x4xf32> -> tensor<f32>
  return
}

// -----

func.func @loss_c6_other(%l: tensor<6x4xf32>, %i: tensor<6x2xi32>) {
  // expected-error @+1 {{'moe.loss' op expected noise with load_importance, and only there, got one with gshard}}
  %0 = moe.loss gshard %l ids(%i : tensor<6x2xi32>) {noise = 1.0 : f64} : tensor<6x4xf32> -> tensor<f32>
  return
}

// -----

func.func @loss_c6_zero(%l: tensor<6x4xf32>, %i: tensor<6x2xi32>) {
  // expected-error @+1 {{'moe.loss' op expected finite noise > 0, got 0}}
  %0 = moe.loss load_importance %l ids(%i : tensor<6x2xi32>) {noise = 0.0 : f64} : tensor<6x4xf32> -> tensor<f32>
  return
}

// -----

func.func @loss_c6_infinite(%l: tensor<6x4xf32>, %i: tensor<6x2xi32>) {
  // expected-error @+1 {{'moe.loss' op expected finite noise > 0, got}}
  %0 = moe.loss load_importance %l ids(%i : tensor<6x2xi32>) {noise = 0x7FF0000000000000 : f64} : tensor<6x4xf32> -> tensor<f32>
  return
}

// -----

func.func @loss_c6_compare(%l: tensor<6x4xf32>) {
  // expected-error @+1 {{'moe.loss' op expected noisy and compare_logits only with load_importance, got z}}
  %0 = moe.loss z %l {compare_logits} : tensor<6x4xf32> -> tensor<f32>
  return
}

// -----

func.func @loss_c7_identity(%l: tensor<6x4xf32>, %i: tensor<6x2xi32>) {
  // expected-error @+1 {{'moe.loss' op expected score softmax or sigmoid with gshard, got identity}}
  %0 = moe.loss gshard %l ids(%i : tensor<6x2xi32>) score identity : tensor<6x4xf32> -> tensor<f32>
  return
}

// -----

func.func @loss_c7_z(%l: tensor<6x4xf32>) {
  // expected-error @+1 {{'moe.loss' op expected score softmax with z, got sigmoid}}
  %0 = moe.loss z %l score sigmoid : tensor<6x4xf32> -> tensor<f32>
  return
}
