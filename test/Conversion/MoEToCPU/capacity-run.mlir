// The table of docs/routing.md, and others: (T, E, k, f) -> C.
//
// RUN: moira-opt %s -convert-moe-to-cpu | %run_loops | FileCheck %s

func.func private @printI64(i64)
func.func private @printNewline()

func.func private @print(%c: index) {
  %0 = arith.index_cast %c : index to i64
  call @printI64(%0) : (i64) -> ()
  call @printNewline() : () -> ()
  return
}

memref.global "private" constant @counts : memref<4xi32> = dense<[5, 3, 2, 2]>

// The operands come from outside, so that nothing is folded.
func.func private @tutel_0(%t: index, %k: index, %f: f64, %counts: memref<?xi32>) {
  %all = memref.cast %counts : memref<?xi32> to memref<4xi32>
  %c = moe.capacity tutel tokens(%t) factor(%f) top_k(%k) counts(%all : memref<4xi32>) {experts = 4 : i64}
  call @print(%c) : (index) -> ()
  return
}
func.func private @gshard_1(%t: index, %k: index, %f: f64, %counts: memref<?xi32>) {
  %c = moe.capacity gshard tokens(%t) factor(%f) top_k(%k) {experts = 4 : i64}
  call @print(%c) : (index) -> ()
  return
}
func.func private @switch_2(%t: index, %k: index, %f: f64, %counts: memref<?xi32>) {
  %c = moe.capacity switch tokens(%t) factor(%f) top_k(%k) {experts = 4 : i64}
  call @print(%c) : (index) -> ()
  return
}
func.func private @tutel_3(%t: index, %k: index, %f: f64, %counts: memref<?xi32>) {
  %all = memref.cast %counts : memref<?xi32> to memref<16xi32>
  %c = moe.capacity tutel tokens(%t) factor(%f) top_k(%k) counts(%all : memref<16xi32>) {experts = 16 : i64}
  call @print(%c) : (index) -> ()
  return
}
func.func private @gshard_4(%t: index, %k: index, %f: f64, %counts: memref<?xi32>) {
  %c = moe.capacity gshard tokens(%t) factor(%f) top_k(%k) {experts = 16 : i64}
  call @print(%c) : (index) -> ()
  return
}
func.func private @switch_5(%t: index, %k: index, %f: f64, %counts: memref<?xi32>) {
  %c = moe.capacity switch tokens(%t) factor(%f) top_k(%k) {experts = 16 : i64}
  call @print(%c) : (index) -> ()
  return
}
func.func private @tutel_6(%t: index, %k: index, %f: f64, %counts: memref<?xi32>) {
  %all = memref.cast %counts : memref<?xi32> to memref<8xi32>
  %c = moe.capacity tutel tokens(%t) factor(%f) top_k(%k) counts(%all : memref<8xi32>) {experts = 8 : i64}
  call @print(%c) : (index) -> ()
  return
}
func.func private @gshard_7(%t: index, %k: index, %f: f64, %counts: memref<?xi32>) {
  %c = moe.capacity gshard tokens(%t) factor(%f) top_k(%k) {experts = 8 : i64}
  call @print(%c) : (index) -> ()
  return
}
func.func private @switch_8(%t: index, %k: index, %f: f64, %counts: memref<?xi32>) {
  %c = moe.capacity switch tokens(%t) factor(%f) top_k(%k) {experts = 8 : i64}
  call @print(%c) : (index) -> ()
  return
}
func.func private @tutel_9(%t: index, %k: index, %f: f64, %counts: memref<?xi32>) {
  %all = memref.cast %counts : memref<?xi32> to memref<2xi32>
  %c = moe.capacity tutel tokens(%t) factor(%f) top_k(%k) counts(%all : memref<2xi32>) {experts = 2 : i64}
  call @print(%c) : (index) -> ()
  return
}
func.func private @fixed_10(%t: index, %k: index, %f: f64, %counts: memref<?xi32>) {
  %c = moe.capacity fixed tokens(%t) factor(%f) top_k(%k) {experts = 4 : i64}
  call @print(%c) : (index) -> ()
  return
}
func.func private @fixed_11(%t: index, %k: index, %f: f64, %counts: memref<?xi32>) {
  %c = moe.capacity fixed tokens(%t) factor(%f) top_k(%k) {experts = 4 : i64, minimum = 4 : i64}
  call @print(%c) : (index) -> ()
  return
}
func.func private @fixed_12(%t: index, %k: index, %f: f64, %counts: memref<?xi32>) {
  %c = moe.capacity fixed tokens(%t) factor(%f) top_k(%k) {experts = 4 : i64, alignment = 16 : i64}
  call @print(%c) : (index) -> ()
  return
}
func.func private @fixed_13(%t: index, %k: index, %f: f64, %counts: memref<?xi32>) {
  %c = moe.capacity fixed tokens(%t) factor(%f) top_k(%k) {experts = 4 : i64, alignment = 4 : i64}
  call @print(%c) : (index) -> ()
  return
}

func.func @main() {
  %g = memref.get_global @counts : memref<4xi32>
  %four = memref.cast %g : memref<4xi32> to memref<?xi32>
  %n2 = memref.alloc() : memref<2xi32>
  %e2 = memref.cast %n2 : memref<2xi32> to memref<?xi32>
  %n8 = memref.alloc() : memref<8xi32>
  %e8 = memref.cast %n8 : memref<8xi32> to memref<?xi32>
  %n16 = memref.alloc() : memref<16xi32>
  %e16 = memref.cast %n16 : memref<16xi32> to memref<?xi32>
  %k1 = arith.constant 1 : index
  %k2 = arith.constant 2 : index
  %t0 = arith.constant 0 : index
  %t1 = arith.constant 1 : index
  %t3 = arith.constant 3 : index
  %t5 = arith.constant 5 : index
  %t6 = arith.constant 6 : index
  %t7 = arith.constant 7 : index
  %t8 = arith.constant 8 : index
  %t9 = arith.constant 9 : index
  %t16 = arith.constant 16 : index
  %t4096 = arith.constant 4096 : index
  %t16384 = arith.constant 16384 : index
  %f0 = arith.constant 1.0 : f64
  %f1 = arith.constant 1.1 : f64
  %f2 = arith.constant 0.1 : f64
  %f3 = arith.constant 1.2 : f64
  %f4 = arith.constant 0.5 : f64
  %f5 = arith.constant 0.4 : f64
  %f6 = arith.constant 1.25 : f64
  %f7 = arith.constant 7.9 : f64
  %f8 = arith.constant -3.0 : f64
  %f9 = arith.constant 0.0 : f64
  %f10 = arith.constant 5.0 : f64
  %f11 = arith.constant -0.5 : f64
  %f12 = arith.constant -9.0 : f64
  %f13 = arith.constant -0.0 : f64
  %f14 = arith.constant 0x7FF8000000000000 : f64
  %f15 = arith.constant 1.0e+300 : f64
  %f16 = arith.constant 0x7FF0000000000000 : f64
  %f17 = arith.constant -1.0e+300 : f64
  // CHECK: {{^}}2{{$}}
  call @tutel_0(%t6, %k1, %f0, %four) : (index, index, f64, memref<?xi32>) -> ()
  // CHECK: {{^}}1{{$}}
  call @gshard_1(%t6, %k1, %f0, %four) : (index, index, f64, memref<?xi32>) -> ()
  // CHECK: {{^}}2{{$}}
  call @switch_2(%t6, %k1, %f0, %four) : (index, index, f64, memref<?xi32>) -> ()
  // CHECK: {{^}}4{{$}}
  call @tutel_0(%t6, %k2, %f0, %four) : (index, index, f64, memref<?xi32>) -> ()
  // CHECK: {{^}}3{{$}}
  call @gshard_1(%t6, %k2, %f0, %four) : (index, index, f64, memref<?xi32>) -> ()
  // CHECK: {{^}}3{{$}}
  call @switch_2(%t6, %k2, %f0, %four) : (index, index, f64, memref<?xi32>) -> ()
  // CHECK: {{^}}8{{$}}
  call @tutel_0(%t16, %k2, %f1, %four) : (index, index, f64, memref<?xi32>) -> ()
  // CHECK: {{^}}9{{$}}
  call @gshard_1(%t16, %k2, %f1, %four) : (index, index, f64, memref<?xi32>) -> ()
  // CHECK: {{^}}9{{$}}
  call @switch_2(%t16, %k2, %f1, %four) : (index, index, f64, memref<?xi32>) -> ()
  // CHECK: {{^}}25{{$}}
  call @tutel_3(%t4096, %k1, %f2, %e16) : (index, index, f64, memref<?xi32>) -> ()
  // CHECK: {{^}}25{{$}}
  call @gshard_4(%t4096, %k1, %f2, %four) : (index, index, f64, memref<?xi32>) -> ()
  // CHECK: {{^}}26{{$}}
  call @switch_5(%t4096, %k1, %f2, %four) : (index, index, f64, memref<?xi32>) -> ()
  // CHECK: {{^}}2{{$}}
  call @tutel_6(%t1, %k2, %f3, %e8) : (index, index, f64, memref<?xi32>) -> ()
  // CHECK: {{^}}0{{$}}
  call @gshard_7(%t1, %k2, %f3, %four) : (index, index, f64, memref<?xi32>) -> ()
  // CHECK: {{^}}1{{$}}
  call @switch_8(%t1, %k2, %f3, %four) : (index, index, f64, memref<?xi32>) -> ()
  // CHECK: {{^}}0{{$}}
  call @tutel_0(%t0, %k2, %f0, %four) : (index, index, f64, memref<?xi32>) -> ()
  // CHECK: {{^}}2{{$}}
  call @tutel_6(%t1, %k2, %f0, %e8) : (index, index, f64, memref<?xi32>) -> ()
  // CHECK: {{^}}0{{$}}
  call @tutel_0(%t3, %k1, %f4, %four) : (index, index, f64, memref<?xi32>) -> ()
  // CHECK: {{^}}0{{$}}
  call @tutel_0(%t5, %k2, %f5, %four) : (index, index, f64, memref<?xi32>) -> ()
  // CHECK: {{^}}2{{$}}
  call @tutel_0(%t5, %k2, %f4, %four) : (index, index, f64, memref<?xi32>) -> ()
  // CHECK: {{^}}5{{$}}
  call @tutel_9(%t7, %k1, %f6, %e2) : (index, index, f64, memref<?xi32>) -> ()
  // CHECK: {{^}}4{{$}}
  call @tutel_0(%t8, %k2, %f6, %four) : (index, index, f64, memref<?xi32>) -> ()
  // CHECK: {{^}}2{{$}}
  call @tutel_0(%t6, %k1, %f0, %four) : (index, index, f64, memref<?xi32>) -> ()
  // CHECK: {{^}}16384{{$}}
  call @tutel_9(%t16384, %k2, %f0, %e2) : (index, index, f64, memref<?xi32>) -> ()
  // CHECK: {{^}}0{{$}}
  call @gshard_1(%t16, %k1, %f2, %four) : (index, index, f64, memref<?xi32>) -> ()
  // CHECK: {{^}}4{{$}}
  call @gshard_1(%t16, %k1, %f1, %four) : (index, index, f64, memref<?xi32>) -> ()
  // CHECK: {{^}}1{{$}}
  call @gshard_1(%t16, %k2, %f2, %four) : (index, index, f64, memref<?xi32>) -> ()
  // CHECK: {{^}}7{{$}}
  call @fixed_10(%t9, %k1, %f7, %four) : (index, index, f64, memref<?xi32>) -> ()
  // CHECK: {{^}}0{{$}}
  call @fixed_10(%t9, %k1, %f8, %four) : (index, index, f64, memref<?xi32>) -> ()
  // CHECK: {{^}}4{{$}}
  call @fixed_11(%t9, %k1, %f9, %four) : (index, index, f64, memref<?xi32>) -> ()
  // CHECK: {{^}}16{{$}}
  call @fixed_12(%t9, %k1, %f10, %four) : (index, index, f64, memref<?xi32>) -> ()
  // CHECK: {{^}}8{{$}}
  call @fixed_13(%t9, %k1, %f10, %four) : (index, index, f64, memref<?xi32>) -> ()
  // CHECK: {{^}}2{{$}}
  call @tutel_0(%t6, %k2, %f11, %four) : (index, index, f64, memref<?xi32>) -> ()
  // CHECK: {{^}}5{{$}}
  call @tutel_0(%t6, %k2, %f12, %four) : (index, index, f64, memref<?xi32>) -> ()
  // CHECK: {{^}}5{{$}}
  call @tutel_0(%t6, %k2, %f9, %four) : (index, index, f64, memref<?xi32>) -> ()
  // CHECK: {{^}}5{{$}}
  call @tutel_0(%t6, %k2, %f13, %four) : (index, index, f64, memref<?xi32>) -> ()
  // CHECK: {{^}}0{{$}}
  call @tutel_0(%t6, %k2, %f14, %four) : (index, index, f64, memref<?xi32>) -> ()
  // CHECK: {{^}}2147483647{{$}}
  call @fixed_10(%t6, %k1, %f15, %four) : (index, index, f64, memref<?xi32>) -> ()
  // CHECK: {{^}}2147483647{{$}}
  call @switch_2(%t6, %k1, %f16, %four) : (index, index, f64, memref<?xi32>) -> ()
  // CHECK: {{^}}0{{$}}
  call @gshard_1(%t6, %k1, %f17, %four) : (index, index, f64, memref<?xi32>) -> ()
  return
}
