// RUN: moira-opt %s --pass-pipeline='builtin.module(func.func(moe-bound-capacity))' | FileCheck %s

// CHECK-LABEL: @from_counts
// CHECK-SAME: %[[T:[a-z0-9]+]]: index
func.func @from_counts(%t: index, %f: f64, %k: index, %counts: memref<4xi32>) -> index {
  // CHECK: %[[C:.*]] = moe.capacity
  // CHECK: %[[MIN:.*]] = arith.constant 3 : index
  // CHECK: %[[MOST:.*]] = arith.maxsi %[[T]], %[[MIN]]
  // CHECK: arith.ceildivsi %[[MOST]]
  // CHECK: %[[ALIGNED:.*]] = arith.muli
  // CHECK: %[[BOUNDED:.*]] = arith.minsi %[[C]], %[[ALIGNED]]
  // CHECK: return %[[BOUNDED]]
  %c = moe.capacity tutel tokens(%t) factor(%f) top_k(%k) counts(%counts : memref<4xi32>)
      {experts = 4 : i64, minimum = 3 : i64, alignment = 4 : i64}
  return %c : index
}

// Known from shapes already.
// CHECK-LABEL: @from_factor
func.func @from_factor(%t: index, %k: index) -> index {
  // CHECK-NOT: arith.minsi
  %f = arith.constant 1.25 : f64
  %c = moe.capacity tutel tokens(%t) factor(%f) top_k(%k) {experts = 4 : i64}
  return %c : index
}
