// RUN: moira-opt %s --canonicalize --split-input-file | FileCheck %s

// CHECK-LABEL: func @weights_of_one(
// CHECK: moe.dispatch %{{.*}}, %{{.*}}, %{{.*}}, %{{[a-z0-9]*}} :
// CHECK: moe.combine %{{.*}}, %{{[a-z0-9]*}} :
func.func @weights_of_one(%x: tensor<?x8xf32>, %slots: tensor<?x2xi32>, %sizes: tensor<4xi32>, %b: index, %t: index) -> tensor<?x8xf32> {
  %one = arith.constant 1.0 : f32
  %e = tensor.empty(%t) : tensor<?x2xf32>
  %w = linalg.fill ins(%one : f32) outs(%e : tensor<?x2xf32>) -> tensor<?x2xf32>
  %rows = moe.dispatch %x, %slots, %sizes, %b weights(%w : tensor<?x2xf32>) : tensor<?x8xf32>, tensor<?x2xi32>, tensor<4xi32> -> tensor<?x8xf32>
  %y = moe.combine %rows, %slots weights(%w : tensor<?x2xf32>) : tensor<?x8xf32>, tensor<?x2xi32> -> tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}

// -----

// CHECK-LABEL: func @other_weights(
// CHECK: moe.combine %{{.*}} weights(
func.func @other_weights(%rows: tensor<?x8xf32>, %slots: tensor<3x2xi32>) -> tensor<3x8xf32> {
  %w = arith.constant dense<0.5> : tensor<3x2xf32>
  %y = moe.combine %rows, %slots weights(%w : tensor<3x2xf32>) : tensor<?x8xf32>, tensor<3x2xi32> -> tensor<3x8xf32>
  return %y : tensor<3x8xf32>
}

// -----

// CHECK-LABEL: func @gate(
// CHECK-SAME: %[[L:.*]]: tensor<5x4xf32>
// CHECK-NEXT: moe.gate %[[L]] router<> : tensor<5x4xf32>
func.func @gate(%logits: tensor<5x4xf32>) -> (tensor<5x2xi32>, tensor<5x2xf32>) {
  %mask = arith.constant dense<true> : tensor<5xi1>
  %bias = arith.constant dense<0.0> : tensor<4xf32>
  %inf = arith.constant 0xFF800000 : f32
  %k = arith.constant 2 : index
  %ids, %w = moe.gate %logits router<> bias(%bias : tensor<4xf32>) mask(%mask : tensor<5xi1>) top_k(%k) threshold(%inf : f32)
      : tensor<5x4xf32> -> tensor<5x2xi32>, tensor<5x2xf32>
  return %ids, %w : tensor<5x2xi32>, tensor<5x2xf32>
}

// -----

// CHECK-LABEL: func @gate_keeps(
// CHECK: moe.gate %{{.*}} mask(%{{.*}} : tensor<5xi1>) top_k(%{{.*}}) threshold(%{{.*}} : f32)
func.func @gate_keeps(%logits: tensor<5x4xf32>) -> (tensor<5x2xi32>, tensor<5x2xf32>) {
  %mask = arith.constant dense<[true, false, true, true, true]> : tensor<5xi1>
  %low = arith.constant -1.0 : f32
  %k = arith.constant 1 : index
  %ids, %w = moe.gate %logits router<> mask(%mask : tensor<5xi1>) top_k(%k) threshold(%low : f32)
      : tensor<5x4xf32> -> tensor<5x2xi32>, tensor<5x2xf32>
  return %ids, %w : tensor<5x2xi32>, tensor<5x2xf32>
}

// -----

// No tokens: no routing is left.

// CHECK-LABEL: func @empty(
// CHECK-DAG: %[[ZERO:.*]] = arith.constant dense<0> : tensor<4xi32>
// CHECK-DAG: %[[C0:.*]] = arith.constant 0 : index
// CHECK: %[[Y:.*]] = tensor.empty() : tensor<0x8xf32>
// CHECK: return %[[Y]], %[[ZERO]], %[[ZERO]], %[[C0]]
func.func @empty(%x: tensor<0x8xf32>, %logits: tensor<0x4xf32>) -> (tensor<0x8xf32>, tensor<4xi32>, tensor<4xi32>, index) {
  %ids, %w = moe.gate %logits router<> : tensor<0x4xf32> -> tensor<0x2xi32>, tensor<0x2xf32>
  %counts = moe.count %ids : tensor<0x2xi32> -> tensor<4xi32>
  %slots, %sizes, %bound = moe.assign %ids choice_major counts(%counts : tensor<4xi32>) : tensor<0x2xi32> -> tensor<0x2xi32>, tensor<4xi32>, index
  %rows = moe.dispatch %x, %slots, %sizes, %bound : tensor<0x8xf32>, tensor<0x2xi32>, tensor<4xi32> -> tensor<?x8xf32>
  %y = moe.combine %rows, %slots weights(%w : tensor<0x2xf32>) : tensor<?x8xf32>, tensor<0x2xi32> -> tensor<0x8xf32>
  return %y, %sizes, %counts, %bound : tensor<0x8xf32>, tensor<4xi32>, tensor<4xi32>, index
}

// -----

// CHECK-LABEL: func @capacity(
// CHECK: moe.assign %{{.*}} choice_major counts(%{{.*}} : tensor<4xi32>) :
// CHECK: moe.assign %{{.*}} capacity(
func.func @capacity(%ids: tensor<3x2xi32>, %counts: tensor<4xi32>) -> (tensor<3x2xi32>, tensor<3x2xi32>) {
  %c6 = arith.constant 6 : index
  %c5 = arith.constant 5 : index
  %a:3 = moe.assign %ids choice_major counts(%counts : tensor<4xi32>) capacity(%c6) : tensor<3x2xi32> -> tensor<3x2xi32>, tensor<4xi32>, index
  %b:3 = moe.assign %ids choice_major counts(%counts : tensor<4xi32>) capacity(%c5) : tensor<3x2xi32> -> tensor<3x2xi32>, tensor<4xi32>, index
  return %a#0, %b#0 : tensor<3x2xi32>, tensor<3x2xi32>
}

// -----

// Results that nobody reads, and operands that only they read.

// CHECK-LABEL: func @expert(
// CHECK-SAME: %[[X:.*]]: tensor<?x8xf32>, %[[R:.*]]: tensor<?x8xf32>, %[[S:.*]]: tensor<4xi32>, %[[V:.*]]: tensor<4x8xf32>, %[[W:.*]]: tensor<4x8xf32>)
// CHECK: moe.expert rows(%[[X]] : tensor<?x8xf32>) groups(%[[S]] : tensor<4xi32>) per_expert(%[[W]] : tensor<4x8xf32>) -> tensor<?x8xf32> attributes {layer = 1 : i64, moe.hidden_places = array<i64: 0, 2, 1>} {
// CHECK-NOT: math.tanh
func.func @expert(%x: tensor<?x8xf32>, %r: tensor<?x8xf32>, %s: tensor<4xi32>, %v: tensor<4x8xf32>, %w: tensor<4x8xf32>) -> tensor<?x8xf32> {
  %y:2 = moe.expert rows(%x, %r : tensor<?x8xf32>, tensor<?x8xf32>) groups(%s : tensor<4xi32>)
      per_expert(%v, %w : tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<?x8xf32>, tensor<?x8xf32> attributes {layer = 1 : i64, moe.hidden_places = array<i64: -1, 1, 0, 0, 2, 1>} {
  ^bb0(%a: tensor<?x8xf32>, %b: tensor<?x8xf32>, %c: tensor<8xf32>, %d: tensor<8xf32>):
    %t = math.tanh %b : tensor<?x8xf32>
    %c0 = arith.constant 0 : index
    %n = tensor.dim %a, %c0 : tensor<?x8xf32>
    %e = tensor.empty(%n) : tensor<?x8xf32>
    %o = linalg.broadcast ins(%d : tensor<8xf32>) outs(%e : tensor<?x8xf32>) dimensions = [0]
    moe.yield %t, %o : tensor<?x8xf32>, tensor<?x8xf32>
  }
  return %y#1 : tensor<?x8xf32>
}

// -----

// CHECK-LABEL: func @grouped(
// CHECK: moe.grouped_matmul rows(%{{.*}} : tensor<3x8xf32>) groups(%{{.*}} : tensor<2xi32>) weights(%{{.*}} : tensor<2x4x8xf32>) nk vectors(%{{.*}} : tensor<2x4xf32>) -> tensor<3x4xf32> {
// CHECK-NEXT: ^bb0(%[[A:.*]]: f32, %[[V:.*]]: f32):
// CHECK-NEXT: arith.addf %[[A]], %[[V]]
func.func @grouped(%x: tensor<3x8xf32>, %s: tensor<2xi32>, %w: tensor<2x4x8xf32>, %v: tensor<2x4xf32>, %e: tensor<3x4xf32>, %p: tensor<3xf32>) -> tensor<3x4xf32> {
  %zero = arith.constant dense<0.0> : tensor<2x4xf32>
  %all = arith.constant dense<[0, 1, 2]> : tensor<3xi32>
  %y = moe.grouped_matmul rows(%x : tensor<3x8xf32>) groups(%s : tensor<2xi32>) weights(%w : tensor<2x4x8xf32>) nk
      bias(%zero : tensor<2x4xf32>) gather(%all : tensor<3xi32>) vectors(%zero, %v : tensor<2x4xf32>, tensor<2x4xf32>)
      elements(%e : tensor<3x4xf32>) scalars(%p : tensor<3xf32>) -> tensor<3x4xf32> {
  ^bb0(%a: f32, %z: f32, %b: f32, %c: f32, %d: f32):
    %m = arith.addf %a, %b : f32
    moe.yield %m : f32
  }
  return %y : tensor<3x4xf32>
}

// -----

// Negative zeros, another order and too few rows stay.

// CHECK-LABEL: func @grouped_keeps(
// CHECK: bias(%{{.*}}) gather(%{{.*}})
func.func @grouped_keeps(%x: tensor<3x8xf32>, %s: tensor<2xi32>, %w: tensor<2x4x8xf32>) -> tensor<3x4xf32> {
  %zero = arith.constant dense<-0.0> : tensor<2x4xf32>
  %all = arith.constant dense<[0, 2, 1]> : tensor<3xi32>
  %y = moe.grouped_matmul rows(%x : tensor<3x8xf32>) groups(%s : tensor<2xi32>) weights(%w : tensor<2x4x8xf32>) nk
      bias(%zero : tensor<2x4xf32>) gather(%all : tensor<3xi32>) -> tensor<3x4xf32> {
  ^bb0(%a: f32):
    moe.yield %a : f32
  }
  return %y : tensor<3x4xf32>
}
