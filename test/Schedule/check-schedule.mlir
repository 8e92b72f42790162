// Schedules that keep every rule; the pass changes nothing.

// RUN: moira-opt %s --pass-pipeline='builtin.module(func.func(moe-check-schedule))' \
// RUN:   | FileCheck %s

// CHECK-LABEL: @by_chunks
// CHECK: moe.start_exchange to_experts
// CHECK: moe.start_exchange to_tokens
func.func @by_chunks(%home: memref<?x8xf32>, %back: memref<?x8xf32>,
    %result: memref<?x8xf32>, %m: memref<2x4xi32>, %flag: i1) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %d = moe.chunks equal
  %g = memref.alloc() : memref<2xi32>
  %total = moe.receive_sizes %m at <ranks = 2, experts = 4, slots = 2> equal
      outs(%g : memref<2xi32>) : memref<2x4xi32> -> index
  %away = memref.alloc(%total) : memref<?x8xf32>
  %out = memref.alloc(%total) : memref<?x8xf32>
  %tickets = memref.alloc(%d) : memref<?xindex>
  %backs = memref.alloc(%d) : memref<?xindex>
  %sent = scf.for %i = %c0 to %d step %c1 iter_args(%r = %c0) -> index {
    %n = moe.receive_sizes %m at <ranks = 2, experts = 4, slots = 2> equal
        chunk(%i of %d) outs(%g : memref<2xi32>) : memref<2x4xi32> -> index
    %v = memref.subview %away[%r, 0] [%n, 8] [1, 1]
        : memref<?x8xf32> to memref<?x8xf32, strided<[8, 1], offset: ?>>
    %t = moe.start_exchange to_experts %home, %v, %m chunk(%i of %d)
        at <ranks = 2, experts = 4, slots = 2> equal
        : memref<?x8xf32>, memref<?x8xf32, strided<[8, 1], offset: ?>>, memref<2x4xi32>
    memref.store %t, %tickets[%i] : memref<?xindex>
    %next = arith.addi %r, %n : index
    scf.yield %next : index
  }
  %done = scf.for %i = %c0 to %d step %c1 iter_args(%r = %c0) -> index {
    %n = moe.receive_sizes %m at <ranks = 2, experts = 4, slots = 2> equal
        chunk(%i of %d) outs(%g : memref<2xi32>) : memref<2x4xi32> -> index
    %t = memref.load %tickets[%i] : memref<?xindex>
    moe.wait %t
    %v = memref.subview %away[%r, 0] [%n, 8] [1, 1]
        : memref<?x8xf32> to memref<?x8xf32, strided<[8, 1], offset: ?>>
    %w = memref.subview %out[%r, 0] [%n, 8] [1, 1]
        : memref<?x8xf32> to memref<?x8xf32, strided<[8, 1], offset: ?>>
    memref.copy %v, %w : memref<?x8xf32, strided<[8, 1], offset: ?>> to memref<?x8xf32, strided<[8, 1], offset: ?>>
    %u = moe.start_exchange to_tokens %back, %w, %m chunk(%i of %d)
        at <ranks = 2, experts = 4, slots = 2> equal
        : memref<?x8xf32>, memref<?x8xf32, strided<[8, 1], offset: ?>>, memref<2x4xi32>
    memref.store %u, %backs[%i] : memref<?xindex>
    %next = arith.addi %r, %n : index
    scf.yield %next : index
  }
  scf.for %i = %c0 to %d step %c1 {
    %t = memref.load %backs[%i] : memref<?xindex>
    moe.wait %t
  }
  memref.copy %back, %result : memref<?x8xf32> to memref<?x8xf32>
  return
}

// A wait ends what was started before, so the last is enough.
// CHECK-LABEL: @last_wait
func.func @last_wait(%home: memref<?x8xf32>, %back: memref<?x8xf32>,
    %result: memref<?x8xf32>, %m: memref<2x4xi32>, %flag: i1) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %d = moe.chunks equal
  %g = memref.alloc() : memref<2xi32>
  %total = moe.receive_sizes %m at <ranks = 2, experts = 4, slots = 2> equal
      outs(%g : memref<2xi32>) : memref<2x4xi32> -> index
  %away = memref.alloc(%total) : memref<?x8xf32>
  %out = memref.alloc(%total) : memref<?x8xf32>
  %tickets = memref.alloc(%d) : memref<?xindex>
  %backs = memref.alloc(%d) : memref<?xindex>
  %sent = scf.for %i = %c0 to %d step %c1 iter_args(%r = %c0) -> index {
    %n = moe.receive_sizes %m at <ranks = 2, experts = 4, slots = 2> equal
        chunk(%i of %d) outs(%g : memref<2xi32>) : memref<2x4xi32> -> index
    %v = memref.subview %away[%r, 0] [%n, 8] [1, 1]
        : memref<?x8xf32> to memref<?x8xf32, strided<[8, 1], offset: ?>>
    %t = moe.start_exchange to_experts %home, %v, %m chunk(%i of %d)
        at <ranks = 2, experts = 4, slots = 2> equal
        : memref<?x8xf32>, memref<?x8xf32, strided<[8, 1], offset: ?>>, memref<2x4xi32>
    memref.store %t, %tickets[%i] : memref<?xindex>
    %next = arith.addi %r, %n : index
    scf.yield %next : index
  }
  %done = scf.for %i = %c0 to %d step %c1 iter_args(%r = %c0) -> index {
    %n = moe.receive_sizes %m at <ranks = 2, experts = 4, slots = 2> equal
        chunk(%i of %d) outs(%g : memref<2xi32>) : memref<2x4xi32> -> index
    %t = memref.load %tickets[%i] : memref<?xindex>
    moe.wait %t
    %v = memref.subview %away[%r, 0] [%n, 8] [1, 1]
        : memref<?x8xf32> to memref<?x8xf32, strided<[8, 1], offset: ?>>
    %w = memref.subview %out[%r, 0] [%n, 8] [1, 1]
        : memref<?x8xf32> to memref<?x8xf32, strided<[8, 1], offset: ?>>
    memref.copy %v, %w : memref<?x8xf32, strided<[8, 1], offset: ?>> to memref<?x8xf32, strided<[8, 1], offset: ?>>
    %u = moe.start_exchange to_tokens %back, %w, %m chunk(%i of %d)
        at <ranks = 2, experts = 4, slots = 2> equal
        : memref<?x8xf32>, memref<?x8xf32, strided<[8, 1], offset: ?>>, memref<2x4xi32>
    memref.store %u, %backs[%i] : memref<?xindex>
    %next = arith.addi %r, %n : index
    scf.yield %next : index
  }
  %last = arith.subi %d, %c1 : index
  %t0 = memref.load %backs[%last] : memref<?xindex>
  moe.wait %t0
  memref.copy %back, %result : memref<?x8xf32> to memref<?x8xf32>
  return
}

// Conditions and loops of constants are shared.
// CHECK-LABEL: @constants
func.func @constants(%home: memref<?x8xf32>, %away: memref<?x8xf32>, %m: memref<2x4xi32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  scf.for %i = %c0 to %c3 step %c1 {
    %first = arith.cmpi eq, %i, %c0 : index
    scf.if %first {
      %t = moe.start_exchange to_experts %home, %away, %m chunk(%c0 of %c1)
          at <ranks = 2, experts = 4, slots = 2> equal
          : memref<?x8xf32>, memref<?x8xf32>, memref<2x4xi32>
      moe.wait %t
    }
  }
  return
}

// Memory that the iteration hands on lives on.
// CHECK-LABEL: @handed_on
func.func @handed_on(%home: memref<?x8xf32>, %first: memref<?x8xf32>, %m: memref<2x4xi32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c4 = arith.constant 4 : index
  %t0 = moe.start_exchange to_experts %home, %first, %m chunk(%c0 of %c1)
      at <ranks = 2, experts = 4, slots = 2> equal
      : memref<?x8xf32>, memref<?x8xf32>, memref<2x4xi32>
  %last:2 = scf.for %i = %c0 to %c2 step %c1 iter_args(%before = %first, %t = %t0)
      -> (memref<?x8xf32>, index) {
    moe.wait %t
    memref.copy %before, %before : memref<?x8xf32> to memref<?x8xf32>
    %next = memref.alloc(%c4) : memref<?x8xf32>
    %u = moe.start_exchange to_experts %home, %next, %m chunk(%c0 of %c1)
        at <ranks = 2, experts = 4, slots = 2> equal
        : memref<?x8xf32>, memref<?x8xf32>, memref<2x4xi32>
    scf.yield %next, %u : memref<?x8xf32>, index
  }
  moe.wait %last#1
  return
}

// Loops without transfers are seen by what they touch.
// CHECK-LABEL: @other_memory
func.func @other_memory(%home: memref<?x8xf32>, %away: memref<?x8xf32>, %m: memref<2x4xi32>,
    %n: index, %other: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %t = moe.start_exchange to_experts %home, %away, %m chunk(%c0 of %c1)
      at <ranks = 2, experts = 4, slots = 2> equal
      : memref<?x8xf32>, memref<?x8xf32>, memref<2x4xi32>
  scf.for %i = %c0 to %n step %c1 {
    %v = memref.load %home[%i, %c0] : memref<?x8xf32>
    memref.store %v, %other[%i] : memref<?xf32>
  }
  moe.wait %t
  return
}

// Constants, and memory that a loop hands on, are no memory in flight.
// CHECK-LABEL: @constants_and_carried
memref.global "private" constant @zeros : memref<4xf32> = dense<0.0>
func.func @constants_and_carried(%home: memref<?x8xf32>, %away: memref<?x8xf32>,
    %m: memref<2x4xi32>, %n: index, %other: memref<4xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %one = arith.constant 1.0 : f32
  %t = moe.start_exchange to_experts %home, %away, %m chunk(%c0 of %c1)
      at <ranks = 2, experts = 4, slots = 2> equal
      : memref<?x8xf32>, memref<?x8xf32>, memref<2x4xi32>
  %z = memref.get_global @zeros : memref<4xf32>
  memref.copy %z, %other : memref<4xf32> to memref<4xf32>
  %last = scf.for %i = %c0 to %n step %c1 iter_args(%o = %other) -> memref<4xf32> {
    memref.store %one, %o[%c0] : memref<4xf32>
    scf.yield %o : memref<4xf32>
  }
  memref.store %one, %last[%c0] : memref<4xf32>
  moe.wait %t
  return
}
