// RUN: moira-opt %s --moe-outline-parallel --canonicalize | FileCheck %s

// The loop becomes a body with (context, captures, index, worker); the inner
// dimension stays a loop; constants are cloned, other values travel in a struct.

// CHECK-LABEL: func.func private @main_parallel_0
// CHECK-SAME: (%[[CTX:.*]]: !llvm.ptr, %[[CAPTURES:.*]]: !llvm.ptr, %[[I:.*]]: i64, %{{.*}}: i64)
// CHECK-SAME: moe.kind = "body"
// CHECK-DAG: %[[TWO:.*]] = arith.constant 2.000000e+00 : f32
// CHECK-DAG: %[[C0:.*]] = arith.constant 0 : index
// CHECK: %[[STRUCT:.*]] = llvm.load %[[CAPTURES]]
// CHECK: %[[ROW:.*]] = arith.index_cast %[[I]] : i64 to index
// CHECK: scf.for %[[J:.*]] = %[[C0]]
// CHECK:   %[[V:.*]] = memref.load %{{.*}}[%[[ROW]], %[[J]]]
// CHECK:   arith.mulf %[[V]], %[[TWO]]

// CHECK-LABEL: func.func @main
// CHECK-DAG: %[[BODY:.*]] = constant @main_parallel_0
// CHECK-DAG: %[[SPACE:.*]] = llvm.alloca
// CHECK: llvm.store %{{.*}}, %[[SPACE]]
// CHECK: %[[ADDRESS:.*]] = builtin.unrealized_conversion_cast %[[BODY]]
// CHECK: llvm.call %{{.*}}(%{{.*}}, %[[ADDRESS]], %[[SPACE]], %{{.*}}, %{{.*}})
// CHECK-NOT: scf.parallel
func.func @main(%ctx: !llvm.ptr, %x: memref<?x8xf32>) attributes {moe.kind = "step"} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  %two = arith.constant 2.0 : f32
  %t = memref.dim %x, %c0 : memref<?x8xf32>
  scf.parallel (%i, %j) = (%c0, %c0) to (%t, %c8) step (%c1, %c1) {
    %v = memref.load %x[%i, %j] : memref<?x8xf32>
    %w = arith.mulf %v, %two : f32
    memref.store %w, %x[%i, %j] : memref<?x8xf32>
    scf.reduce
  }
  return
}

// Loops of other functions stay: they may run inside a body.
// CHECK-LABEL: func.func @pack
// CHECK: scf.parallel
func.func @pack(%ctx: !llvm.ptr, %x: memref<4xf32>) attributes {moe.kind = "pack"} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %zero = arith.constant 0.0 : f32
  scf.parallel (%i) = (%c0) to (%c4) step (%c1) {
    memref.store %zero, %x[%i] : memref<4xf32>
    scf.reduce
  }
  return
}

// Equal loops share a body, in one function and in several; others do not.
// CHECK-LABEL: func.func private @twice_parallel_0
// CHECK-NOT: @twice_parallel_1
// CHECK: func.func private @twice_parallel_2
// CHECK-LABEL: func.func @twice
// CHECK-DAG: constant @twice_parallel_0
// CHECK-DAG: constant @twice_parallel_2
func.func @twice(%ctx: !llvm.ptr, %x: memref<8xf32>, %y: memref<8xf32>) attributes {moe.kind = "step"} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  %two = arith.constant 2.0 : f32
  %three = arith.constant 3.0 : f32
  scf.parallel (%i) = (%c0) to (%c8) step (%c1) {
    memref.store %two, %x[%i] : memref<8xf32>
    scf.reduce
  }
  scf.parallel (%i) = (%c0) to (%c8) step (%c1) {
    memref.store %two, %y[%i] : memref<8xf32>
    scf.reduce
  }
  scf.parallel (%i) = (%c0) to (%c8) step (%c1) {
    memref.store %three, %y[%i] : memref<8xf32>
    scf.reduce
  }
  return
}

// CHECK-NOT: @again_parallel_0
// CHECK-LABEL: func.func @again
// CHECK: constant @twice_parallel_0
func.func @again(%ctx: !llvm.ptr, %z: memref<8xf32>) attributes {moe.kind = "step"} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  %two = arith.constant 2.0 : f32
  scf.parallel (%i) = (%c0) to (%c8) step (%c1) {
    memref.store %two, %z[%i] : memref<8xf32>
    scf.reduce
  }
  return
}
