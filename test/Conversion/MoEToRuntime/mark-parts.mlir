// RUN: moira-opt %s --moe-mark-parts | FileCheck %s

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

// A function without layers takes no time of note.
// CHECK-LABEL: @plain
func.func @plain(%x: memref<?x8xf32>) {
  // CHECK-NOT: call
  return
}
