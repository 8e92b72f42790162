// RUN: moira-opt %s --moe-mark-parts | FileCheck %s
// RUN: moira-opt %s --moe-mark-parts=ranks=3 | FileCheck %s --check-prefix=RANKS

// CHECK: func.func private @moira_abi_enter(i64, i64) attributes {moe.abi = "enter"}
// CHECK-LABEL: func.func @layer
// CHECK-SAME: moe.flops_per_token = 256
// CHECK-SAME: moe.layers = [{experts = 4 : i64, flops_per_row = 128 : i64, index = 0 : i64, top_k = 2 : i64}]
func.func @layer(%l: memref<?x4xf32>, %ids: memref<?x2xi32>, %w: memref<?x2xf32>,
    %counts: memref<4xi32>, %sizes: memref<4xi32>, %one: memref<1xi32>,
    %x: memref<?x8xf32>, %p: memref<4x1x8x16xf32>, %q: memref<1x1x8x16xf32>,
    %out: memref<?x8xf32>) {
  // CHECK: %[[GATE:.*]] = arith.constant 1 : i64
  // CHECK: call @moira_abi_enter(%{{.*}}, %[[GATE]])
  // CHECK: moe.gate
  moe.gate %l router<> outs(%ids, %w : memref<?x2xi32>, memref<?x2xf32>) {layer = 0 : i64} : memref<?x4xf32>
  // CHECK-NOT: call
  // CHECK: moe.count
  moe.count %ids outs(%counts : memref<4xi32>) : memref<?x2xi32>
  // CHECK: %[[EXPERT:.*]] = arith.constant 3 : i64
  // CHECK: call @moira_abi_enter(%{{.*}}, %[[EXPERT]])
  // CHECK: moe.grouped_matmul
  moe.grouped_matmul rows(%x : memref<?x8xf32>) groups(%sizes : memref<4xi32>)
      weights(%p : memref<4x1x8x16xf32>) panels outs(%out : memref<?x8xf32>) attributes {layer = 0 : i64} {
  ^bb0(%a: f32):
    moe.yield %a : f32
  }
  // Dense work is charged to the rest of the step.
  // CHECK: arith.constant 0 : i64
  // CHECK-NEXT: %[[OTHER:.*]] = arith.constant 0 : i64
  // CHECK-NEXT: call @moira_abi_enter(%{{.*}}, %[[OTHER]])
  // CHECK: moe.grouped_matmul
  moe.grouped_matmul rows(%x : memref<?x8xf32>) groups(%one : memref<1xi32>)
      weights(%q, %q : memref<1x1x8x16xf32>, memref<1x1x8x16xf32>) panels outs(%out : memref<?x8xf32>) {
  ^bb0(%a: f32, %b: f32):
    %s = arith.addf %a, %b : f32
    moe.yield %s : f32
  }
  return
}

// The way back: gradients of weights are a part of their layer, and one layer
// follows another within a part.
// CHECK-LABEL: func.func @way_back
func.func @way_back(%l: memref<?x4xf32>, %ids: memref<?x2xi32>, %w: memref<?x2xf32>,
    %slots: memref<?x2xi32>, %rows: memref<?x8xf32>, %dy: memref<?x8xf32>,
    %dx: memref<?x8xf32>, %dl: memref<?x4xf32>) {
  // CHECK: %[[COMBINE:.*]] = arith.constant 4 : i64
  // CHECK-NEXT: call @moira_abi_enter(%{{.*}}, %[[COMBINE]])
  // CHECK-NEXT: moe.pair_dot
  moe.pair_dot %rows, %dy, %slots outs(%w : memref<?x2xf32>) {layer = 1 : i64} : memref<?x8xf32>, memref<?x8xf32>, memref<?x2xi32>
  // CHECK: %[[LAYER:.*]] = arith.constant 1 : i64
  // CHECK-NEXT: %[[GATE:.*]] = arith.constant 1 : i64
  // CHECK-NEXT: call @moira_abi_enter(%[[LAYER]], %[[GATE]])
  // CHECK-NEXT: moe.gate_gradient
  moe.gate_gradient %l, %ids, %w router<> outs(%dl : memref<?x4xf32>) {layer = 1 : i64} : memref<?x4xf32>, memref<?x2xi32>, memref<?x2xf32>
  // CHECK: arith.constant 1 : i64
  // CHECK: call @moira_abi_enter
  // CHECK: moe.combine
  moe.combine %rows, %slots outs(%dx : memref<?x8xf32>) {layer = 1 : i64} : memref<?x8xf32>, memref<?x2xi32>
  // CHECK: %[[ZERO:.*]] = arith.constant 0 : i64
  // CHECK-NEXT: %[[AGAIN:.*]] = arith.constant 4 : i64
  // CHECK-NEXT: call @moira_abi_enter(%[[ZERO]], %[[AGAIN]])
  // CHECK-NEXT: moe.combine
  moe.combine %rows, %slots outs(%dx : memref<?x8xf32>) {layer = 0 : i64} : memref<?x8xf32>, memref<?x2xi32>
  return
}

// Sums over ranks without experts: a program for as many ranks all the same.
// CHECK-LABEL: func.func @losses
// CHECK-NOT: moe.ranks
// RANKS-LABEL: func.func @losses
// RANKS-SAME: moe.ranks = 3
func.func @losses(%mine: memref<f32>, %sum: memref<f32>) {
  moe.all_reduce %mine outs(%sum : memref<f32>) : memref<f32>
  return
}

// A function without layers takes no time of note.
// RANKS-LABEL: @plain
// RANKS-NOT: moe.ranks
// CHECK-LABEL: @plain
func.func @plain(%x: memref<?x8xf32>) {
  // CHECK-NOT: call
  return
}
