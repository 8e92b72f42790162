// RUN: moira-opt %s -split-input-file -moe-outline-kernels | FileCheck %s

// A thread per iteration; sizes, bounds and the number of iterations travel
// along.

// CHECK-LABEL: func.func @double
// CHECK-SAME: (%[[X:.*]]: memref<?x4xf32>, %[[Y:.*]]: memref<?x4xf32>)
// CHECK-DAG: %[[ROWS:.*]] = memref.dim %[[X]]
// CHECK-DAG: %[[TOTAL:.*]] = arith.muli
// CHECK-DAG: moira_nv.processors
// CHECK: moira_nv.launch @moira_gpu::@loop_0 grid(%{{.*}}) block(128) shared(0)
// CHECK-SAME: : memref<?x4xf32>, i64, memref<?x4xf32>, i64, i64, i64)
// CHECK-NOT: scf.parallel
// CHECK: gpu.module @moira_gpu
// CHECK: llvm.func @loop_0(%{{.*}}: !llvm.ptr<1>, %{{.*}}: i64, %{{.*}}: !llvm.ptr<1>, %{{.*}}: i64, %{{.*}}: i64, %{{.*}}: i64)
// CHECK-SAME: nvvm.reqntid = array<i32: 128, 1, 1>
// CHECK: scf.for
// CHECK: arith.remui
// CHECK: memref.load
// CHECK: memref.store
func.func @double(%x: memref<?x4xf32>, %y: memref<?x4xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %n = memref.dim %x, %c0 : memref<?x4xf32>
  scf.parallel (%i, %j) = (%c0, %c0) to (%n, %c4) step (%c1, %c1) {
    %0 = memref.load %x[%i, %j] : memref<?x4xf32>
    %1 = arith.addf %0, %0 : f32
    memref.store %1, %y[%i, %j] : memref<?x4xf32>
  }
  return
}

// -----

// Another loop is one thread's, and so is a store; what a loop computes comes
// back through memory, and the host reads it.

// CHECK-LABEL: func.func @sum
// CHECK: %[[PLACE:.*]] = memref.alloc() : memref<1xi32>
// CHECK: moira_nv.launch @moira_gpu::@serial_0 grid(%{{.*}}) block(1)
// CHECK: %[[SUM:.*]] = memref.load %[[PLACE]]
// CHECK: moira_nv.launch @moira_gpu::@serial_1
// CHECK-SAME: args(%[[SUM]], %{{.*}} : i32, memref<1xi32>)
// CHECK: return
// CHECK: llvm.func @serial_0
// CHECK: memref.store
// CHECK: llvm.func @serial_1
func.func @sum(%x: memref<8xi32>, %y: memref<1xi32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  %zero = arith.constant 0 : i32
  %sum = scf.for %i = %c0 to %c8 step %c1 iter_args(%s = %zero) -> i32 {
    %0 = memref.load %x[%i] : memref<8xi32>
    %1 = arith.addi %s, %0 : i32
    scf.yield %1 : i32
  }
  memref.store %sum, %y[%c0] : memref<1xi32>
  return
}

// -----

// A loop around kernels is the host's. Strides and offset of a view, an i1, a
// bf16 and an index are parameters.

// CHECK-LABEL: func.func @inside
// CHECK: scf.for
// CHECK-DAG: memref.extract_strided_metadata
// CHECK-DAG: arith.extui %{{.*}} : i1 to i32
// CHECK-DAG: arith.bitcast %{{.*}} : bf16 to i16
// CHECK: moira_nv.launch @moira_gpu::@loop_0
// CHECK-SAME: i16, memref<bf16>, i64, i32, i64)
func.func @inside(%x: memref<4x8xbf16>, %flag: i1, %value: bf16) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  scf.for %i = %c0 to %c4 step %c1 {
    %row = memref.subview %x[%i, 0] [1, 8] [1, 1]
        : memref<4x8xbf16> to memref<8xbf16, strided<[1], offset: ?>>
    scf.parallel (%j) = (%c0) to (%c4) step (%c1) {
      scf.if %flag {
        memref.store %value, %row[%j] : memref<8xbf16, strided<[1], offset: ?>>
      }
    }
  }
  return
}

// -----

// Constants are the host's: steps work on a copy. A parallel loop inside
// another is one thread's.

// CHECK-LABEL: func.func @constant
// CHECK: %[[HERE:.*]] = memref.get_global
// CHECK: %[[THERE:.*]] = memref.alloc() : memref<4xf32>
// CHECK: memref.copy %[[HERE]], %[[THERE]]
// CHECK: moira_nv.launch
// CHECK-SAME: %[[THERE]]
// CHECK: llvm.func @loop_0
// CHECK: scf.for
// CHECK: scf.for
// CHECK-NOT: scf.parallel
memref.global "private" constant @table : memref<4xf32> = dense<[1.0, 2.0, 3.0, 4.0]>
func.func @constant(%y: memref<4x4xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %t = memref.get_global @table : memref<4xf32>
  scf.parallel (%i) = (%c0) to (%c4) step (%c1) {
    %0 = memref.load %t[%i] : memref<4xf32>
    scf.parallel (%j) = (%c0) to (%c4) step (%c1) {
      memref.store %0, %y[%i, %j] : memref<4x4xf32>
    }
  }
  return
}

// -----

// Only steps have memory of the device, where functions have a kind.

// CHECK-LABEL: func.func @pack
// CHECK: scf.parallel
func.func @pack(%x: memref<4xf32>) attributes {moe.kind = "pack"} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %zero = arith.constant 0.0 : f32
  scf.parallel (%i) = (%c0) to (%c4) step (%c1) {
    memref.store %zero, %x[%i] : memref<4xf32>
  }
  return
}

// -----

// Tickets are the host's, and need no kernel.

// CHECK-LABEL: func.func @tickets
// CHECK: memref.alloc(%{{.*}}) {moira_nv.on_host} : memref<?xindex>
// CHECK-NOT: moira_nv.launch
// CHECK: return
func.func @tickets(%n: index, %x: memref<?x4xf32>, %y: memref<?x4xf32>,
                   %counts: memref<2x4xi32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %tickets = memref.alloc(%n) : memref<?xindex>
  scf.for %i = %c0 to %n step %c1 {
    %ticket = moe.start_exchange to_experts %x, %y, %counts chunk(%i of %n)
        at <ranks = 2, experts = 4, slots = 2> equal {layer = 0 : i64}
        : memref<?x4xf32>, memref<?x4xf32>, memref<2x4xi32>
    memref.store %ticket, %tickets[%i] : memref<?xindex>
  }
  scf.for %i = %c0 to %n step %c1 {
    %ticket = memref.load %tickets[%i] : memref<?xindex>
    moe.wait %ticket
  }
  return
}
