// RUN: moira-opt %s --canonicalize --split-input-file | FileCheck %s

// Every number here is worked out by hand from the published formula.

// Tutel: k * trunc(f * ceil(T / E)) = 2 * trunc(1.25 * ceil(10 / 4)) = 6.
// CHECK-LABEL: func.func @tutel
// CHECK-DAG: %[[SIX:.*]] = arith.constant 6 : index
// CHECK-DAG: %[[FOUR:.*]] = arith.constant 4 : index
// CHECK: return %[[SIX]], %[[FOUR]]
func.func @tutel() -> (index, index) {
  %t10 = arith.constant 10 : index
  %t6 = arith.constant 6 : index
  %k = arith.constant 2 : index
  %f = arith.constant 1.25 : f64
  %one = arith.constant 1.0 : f64
  %0 = moe.capacity tutel tokens(%t10) factor(%f) top_k(%k) {experts = 4 : i64}
  %1 = moe.capacity tutel tokens(%t6) factor(%one) top_k(%k) {experts = 4 : i64}
  return %0, %1 : index, index
}

// -----

// GShard: floor(ceil(f * T) * k / E) = floor(ceil(12.5) * 2 / 4) = 6.
// Switch: ceil(f * k * T / E) = ceil(1.25 * 2 * 10 / 4) = 7.
// Fixed: trunc(1.25) = 1.
// CHECK-LABEL: func.func @others
// CHECK-DAG: %[[A:.*]] = arith.constant 6 : index
// CHECK-DAG: %[[B:.*]] = arith.constant 7 : index
// CHECK-DAG: %[[C:.*]] = arith.constant 1 : index
// CHECK: return %[[A]], %[[B]], %[[C]]
func.func @others() -> (index, index, index) {
  %t = arith.constant 10 : index
  %k = arith.constant 2 : index
  %f = arith.constant 1.25 : f64
  %0 = moe.capacity gshard tokens(%t) factor(%f) top_k(%k) {experts = 4 : i64}
  %1 = moe.capacity switch tokens(%t) factor(%f) top_k(%k) {experts = 4 : i64}
  %2 = moe.capacity fixed tokens(%t) factor(%f) top_k(%k) {experts = 4 : i64}
  return %0, %1, %2 : index, index, index
}

// -----

// First the minimum (4), then up to a multiple of 3; never negative.
// CHECK-LABEL: func.func @bounds
// CHECK-DAG: %[[SIX:.*]] = arith.constant 6 : index
// CHECK-DAG: %[[ZERO:.*]] = arith.constant 0 : index
// CHECK: return %[[SIX]], %[[ZERO]], %[[ZERO]]
func.func @bounds() -> (index, index, index) {
  %t = arith.constant 10 : index
  %zero = arith.constant 0 : index
  %k = arith.constant 2 : index
  %f = arith.constant 1.0 : f64
  %n = arith.constant -5.0 : f64
  %0 = moe.capacity fixed tokens(%t) factor(%f) top_k(%k) {experts = 4 : i64, minimum = 4 : i64, alignment = 3 : i64}
  %1 = moe.capacity fixed tokens(%t) factor(%n) top_k(%k) {experts = 4 : i64}
  %2 = moe.capacity switch tokens(%zero) factor(%f) top_k(%k) {experts = 4 : i64}
  return %0, %1, %2 : index, index, index
}

// -----

// What needs the counts, is not known, or does not fit stays for run time.
// CHECK-LABEL: func.func @stays
// CHECK-COUNT-5: moe.capacity
func.func @stays(%n: tensor<4xi32>, %u: index) -> (index, index, index, index, index) {
  %t = arith.constant 10 : index
  %k = arith.constant 2 : index
  %zero = arith.constant 0.0 : f64
  %huge = arith.constant 1.0e300 : f64
  %nan = arith.constant 0x7FF8000000000000 : f64
  %one = arith.constant 1.0 : f64
  %0 = moe.capacity tutel tokens(%t) factor(%zero) top_k(%k) counts(%n : tensor<4xi32>) {experts = 4 : i64}
  %1 = moe.capacity switch tokens(%t) factor(%huge) top_k(%k) {experts = 4 : i64}
  %2 = moe.capacity switch tokens(%t) factor(%nan) top_k(%k) {experts = 4 : i64}
  %3 = moe.capacity switch tokens(%u) factor(%one) top_k(%k) {experts = 4 : i64}
  %4 = moe.capacity fixed tokens(%t) factor(%one) top_k(%k) {experts = 4 : i64, minimum = 9223372036854775807 : i64, alignment = 2 : i64}
  return %0, %1, %2, %3, %4 : index, index, index, index, index
}

// -----

// Ops in tensor form that nobody uses go away; buffer forms stay.
// CHECK-LABEL: func.func @dead
// CHECK-NEXT: moe.count %{{.*}} outs
// CHECK-NEXT: return
func.func @dead(%l: tensor<?x4xf32>, %x: tensor<?x8xf32>, %ids: memref<?x2xi32>, %c: memref<4xi32>) {
  %0:2 = moe.gate %l router<> : tensor<?x4xf32> -> tensor<?x2xi32>, tensor<?x2xf32>
  %1 = moe.count %0#0 : tensor<?x2xi32> -> tensor<4xi32>
  %2:3 = moe.assign %0#0 token_major counts(%1 : tensor<4xi32>) : tensor<?x2xi32> -> tensor<?x2xi32>, tensor<4xi32>, index
  %3 = moe.dispatch %x, %2#0, %2#1, %2#2 : tensor<?x8xf32>, tensor<?x2xi32>, tensor<4xi32> -> tensor<?x8xf32>
  %4 = moe.combine %3, %2#0 : tensor<?x8xf32>, tensor<?x2xi32> -> tensor<?x8xf32>
  moe.count %ids outs(%c : memref<4xi32>) : memref<?x2xi32>
  return
}
