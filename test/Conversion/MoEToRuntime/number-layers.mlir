// RUN: moira-opt %s --pass-pipeline='builtin.module(func.func(moe-number-layers))' | FileCheck %s

// A gate starts a layer; what follows belongs to it. A given number stays.

// CHECK-LABEL: @two_layers
func.func @two_layers(%a: tensor<?x4xf32>, %b: tensor<?x4xf32>, %x: tensor<?x8xf32>)
    -> tensor<?x8xf32> {
  // CHECK: moe.gate {{.*}} {layer = 0 : i64}
  %ids0, %w0 = moe.gate %a router<> : tensor<?x4xf32> -> tensor<?x2xi32>, tensor<?x2xf32>
  %counts = moe.count %ids0 : tensor<?x2xi32> -> tensor<4xi32>
  // CHECK: moe.assign {{.*}} {layer = 0 : i64}
  %slots, %sizes, %bound = moe.assign %ids0 choice_major counts(%counts : tensor<4xi32>)
      : tensor<?x2xi32> -> tensor<?x2xi32>, tensor<4xi32>, index
  // CHECK: moe.dispatch {{.*}} {layer = 0 : i64}
  %rows = moe.dispatch %x, %slots, %sizes, %bound
      : tensor<?x8xf32>, tensor<?x2xi32>, tensor<4xi32> -> tensor<?x8xf32>
  // CHECK: moe.gate {{.*}} {layer = 7 : i64}
  %ids1, %w1 = moe.gate %b router<> {layer = 7 : i64} : tensor<?x4xf32> -> tensor<?x2xi32>, tensor<?x2xf32>
  // CHECK: moe.combine {{.*}} {layer = 7 : i64}
  %y = moe.combine %rows, %ids1 weights(%w1 : tensor<?x2xf32>)
      : tensor<?x8xf32>, tensor<?x2xi32> -> tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}

// CHECK-LABEL: @no_gate
func.func @no_gate(%rows: tensor<?x8xf32>, %slots: tensor<?x2xi32>) -> tensor<?x8xf32> {
  // CHECK: moe.combine
  // CHECK-NOT: layer
  %y = moe.combine %rows, %slots : tensor<?x8xf32>, tensor<?x2xi32> -> tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}

// Collectives belong to the layer around them, gathers to that of their expert.
// CHECK-LABEL: @collectives
func.func @collectives(%a: tensor<?x4xf32>, %w: tensor<2x8x8xf32>, %rows: tensor<?x8xf32>,
    %sizes: tensor<4xi32>) -> (tensor<?x8xf32>, tensor<2x4xi32>) {
  // CHECK: moe.gather_weights {{.*}} {layer = 0 : i64}
  %all = moe.gather_weights %w at <ranks = 2, experts = 4, copies = 0, slots = 2>
      : tensor<2x8x8xf32> -> tensor<4x8x8xf32>
  %ids, %s = moe.gate %a router<> : tensor<?x4xf32> -> tensor<?x2xi32>, tensor<?x2xf32>
  // CHECK: moe.gather_counts {{.*}} {layer = 0 : i64}
  %m = moe.gather_counts %sizes : tensor<4xi32> -> tensor<2x4xi32>
  %out = moe.expert rows(%rows : tensor<?x8xf32>) groups(%sizes : tensor<4xi32>)
      per_expert(%all : tensor<4x8x8xf32>) -> tensor<?x8xf32> {
  ^bb0(%r: tensor<?x8xf32>, %we: tensor<8x8xf32>):
    moe.yield %r : tensor<?x8xf32>
  }
  return %out, %m : tensor<?x8xf32>, tensor<2x4xi32>
}
