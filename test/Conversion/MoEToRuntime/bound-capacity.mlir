// RUN: moira-opt %s --pass-pipeline='builtin.module(func.func(moe-bound-capacity))' | FileCheck %s

// CHECK-LABEL: @from_counts
// CHECK-SAME: %[[T:[a-z0-9]+]]: index, %{{.*}}, %{{.*}}, %[[IDS:[a-z0-9]+]]:
func.func @from_counts(%t: index, %k: index, %counts: memref<4xi32>, %ids: memref<?x2xi32>) -> index {
  // The tokens may be those of a block; the counts are those of all.
  // CHECK: %[[C:.*]] = moe.capacity
  // CHECK: %[[ALL:.*]] = memref.dim %[[IDS]]
  // CHECK: %[[MIN:.*]] = arith.constant 3 : index
  // CHECK: %[[MOST:.*]] = arith.maxsi %[[ALL]], %[[MIN]]
  // CHECK: arith.ceildivsi %[[MOST]]
  // CHECK: %[[ALIGNED:.*]] = arith.muli
  // CHECK: %[[BOUNDED:.*]] = arith.minsi %[[C]], %[[ALIGNED]]
  // CHECK: return %[[BOUNDED]]
  moe.count %ids outs(%counts : memref<4xi32>) : memref<?x2xi32>
  %f = arith.constant 0.0 : f64
  %c = moe.capacity tutel tokens(%t) factor(%f) top_k(%k) counts(%counts : memref<4xi32>)
      {experts = 4 : i64, minimum = 3 : i64, alignment = 4 : i64}
  return %c : index
}

// Known from shapes already; may be more than the tokens.
// CHECK-LABEL: @from_factor
func.func @from_factor(%t: index, %k: index, %counts: memref<4xi32>, %ids: memref<?x2xi32>) -> index {
  // CHECK: moe.capacity tutel
  // CHECK-NOT: counts
  // CHECK-NOT: arith.minsi
  moe.count %ids outs(%counts : memref<4xi32>) : memref<?x2xi32>
  %f = arith.constant 1.25 : f64
  %c = moe.capacity tutel tokens(%t) factor(%f) top_k(%k) counts(%counts : memref<4xi32>) {experts = 4 : i64}
  return %c : index
}

// CHECK-LABEL: @from_any_factor
func.func @from_any_factor(%t: index, %f: f64, %k: index, %counts: memref<4xi32>, %ids: memref<?x2xi32>) -> index {
  // CHECK: moe.capacity tutel {{.*}} counts
  // CHECK-NOT: arith.minsi
  moe.count %ids outs(%counts : memref<4xi32>) : memref<?x2xi32>
  %c = moe.capacity tutel tokens(%t) factor(%f) top_k(%k) counts(%counts : memref<4xi32>) {experts = 4 : i64}
  return %c : index
}
