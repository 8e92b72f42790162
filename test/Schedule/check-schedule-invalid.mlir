// Faults put into a schedule, one at a time.

// RUN: moira-opt %s -split-input-file -verify-diagnostics \
// RUN:     --pass-pipeline='builtin.module(func.func(moe-check-schedule))'

// The wait before the products is missing.
func.func @no_wait_before_products(%home: memref<?x8xf32>, %back: memref<?x8xf32>,
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
    // expected-note @+1 {{'moe.start_exchange' starts it here, in chunk 0}}
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
    %v = memref.subview %away[%r, 0] [%n, 8] [1, 1]
        : memref<?x8xf32> to memref<?x8xf32, strided<[8, 1], offset: ?>>
    %w = memref.subview %out[%r, 0] [%n, 8] [1, 1]
        : memref<?x8xf32> to memref<?x8xf32, strided<[8, 1], offset: ?>>
    // expected-error @+1 {{'memref.copy' op expected a wait for the transfer that writes this memory before it is read, got none in chunk 0 of 1}}
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

// -----

// The wait for what comes back is missing.
func.func @no_wait_before_use(%home: memref<?x8xf32>, %back: memref<?x8xf32>,
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
    // expected-note @+1 {{'moe.start_exchange' starts it here, in chunk 0}}
    %u = moe.start_exchange to_tokens %back, %w, %m chunk(%i of %d)
        at <ranks = 2, experts = 4, slots = 2> equal
        : memref<?x8xf32>, memref<?x8xf32, strided<[8, 1], offset: ?>>, memref<2x4xi32>
    memref.store %u, %backs[%i] : memref<?xindex>
    %next = arith.addi %r, %n : index
    scf.yield %next : index
  }
  // expected-error @+1 {{'memref.copy' op expected a wait for the transfer that writes this memory before it is read, got none with 1 chunk}}
  memref.copy %back, %result : memref<?x8xf32> to memref<?x8xf32>
  return
}

// -----

// Nobody reads what comes back, yet the transfer outlives the function.
func.func @never_waited(%home: memref<?x8xf32>, %back: memref<?x8xf32>,
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
    // expected-error @+1 {{'moe.start_exchange' op expected a wait for this transfer before the function ends, got none for chunk 0 of 1}}
    %u = moe.start_exchange to_tokens %back, %w, %m chunk(%i of %d)
        at <ranks = 2, experts = 4, slots = 2> equal
        : memref<?x8xf32>, memref<?x8xf32, strided<[8, 1], offset: ?>>, memref<2x4xi32>
    memref.store %u, %backs[%i] : memref<?xindex>
    %next = arith.addi %r, %n : index
    scf.yield %next : index
  }
  return
}

// -----

// Only the first chunk is waited for: with two, the second is in flight.
func.func @first_wait_only(%home: memref<?x8xf32>, %back: memref<?x8xf32>,
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
    // expected-note @+1 {{'moe.start_exchange' starts it here, in chunk 1}}
    %u = moe.start_exchange to_tokens %back, %w, %m chunk(%i of %d)
        at <ranks = 2, experts = 4, slots = 2> equal
        : memref<?x8xf32>, memref<?x8xf32, strided<[8, 1], offset: ?>>, memref<2x4xi32>
    memref.store %u, %backs[%i] : memref<?xindex>
    %next = arith.addi %r, %n : index
    scf.yield %next : index
  }
  %t0 = memref.load %backs[%c0] : memref<?xindex>
  moe.wait %t0
  // expected-error @+1 {{'memref.copy' op expected a wait for the transfer that writes this memory before it is read, got none with 2 chunks}}
  memref.copy %back, %result : memref<?x8xf32> to memref<?x8xf32>
  return
}

// -----

// Results leave before they are there.
func.func @start_before_products(%home: memref<?x8xf32>, %back: memref<?x8xf32>,
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
    // expected-note @+1 {{'moe.start_exchange' starts it here, in chunk 0}}
    %u = moe.start_exchange to_tokens %back, %w, %m chunk(%i of %d)
        at <ranks = 2, experts = 4, slots = 2> equal
        : memref<?x8xf32>, memref<?x8xf32, strided<[8, 1], offset: ?>>, memref<2x4xi32>
    memref.store %u, %backs[%i] : memref<?xindex>
    // expected-error @+1 {{'memref.copy' op expected a wait for the transfer that reads this memory before it is written, got none in chunk 0 of 1}}
    memref.copy %v, %w : memref<?x8xf32, strided<[8, 1], offset: ?>> to memref<?x8xf32, strided<[8, 1], offset: ?>>
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

// -----

// Products before the wait.
func.func @products_before_wait(%home: memref<?x8xf32>, %back: memref<?x8xf32>,
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
    // expected-note @+1 {{'moe.start_exchange' starts it here, in chunk 0}}
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
    %v = memref.subview %away[%r, 0] [%n, 8] [1, 1]
        : memref<?x8xf32> to memref<?x8xf32, strided<[8, 1], offset: ?>>
    %w = memref.subview %out[%r, 0] [%n, 8] [1, 1]
        : memref<?x8xf32> to memref<?x8xf32, strided<[8, 1], offset: ?>>
    // expected-error @+1 {{'memref.copy' op expected a wait for the transfer that writes this memory before it is read, got none in chunk 0 of 1}}
    memref.copy %v, %w : memref<?x8xf32, strided<[8, 1], offset: ?>> to memref<?x8xf32, strided<[8, 1], offset: ?>>
    moe.wait %t
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

// -----

// One buffer receives all chunks.
func.func @one_away_buffer(%home: memref<?x8xf32>, %back: memref<?x8xf32>,
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
    %v = memref.subview %away[%c0, 0] [%n, 8] [1, 1]
        : memref<?x8xf32> to memref<?x8xf32, strided<[8, 1], offset: ?>>
    // expected-note @+2 {{'moe.start_exchange' starts it here, in chunk 0}}
    // expected-error @+1 {{'moe.start_exchange' op expected memory that no other transfer in flight writes, got the same in chunk 1 of 2}}
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

// -----

// The way back reuses the memory of all chunks for their results.
func.func @one_result_buffer(%home: memref<?x8xf32>, %back: memref<?x8xf32>,
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
    %w = memref.subview %out[%c0, 0] [%n, 8] [1, 1]
        : memref<?x8xf32> to memref<?x8xf32, strided<[8, 1], offset: ?>>
    // expected-error @+1 {{'memref.copy' op expected a wait for the transfer that reads this memory before it is written, got none in chunk 1 of 2}}
    memref.copy %v, %w : memref<?x8xf32, strided<[8, 1], offset: ?>> to memref<?x8xf32, strided<[8, 1], offset: ?>>
    // expected-note @+1 {{'moe.start_exchange' starts it here, in chunk 0}}
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

// -----

// Rows at home change while they are sent.
func.func @home_written(%home: memref<?x8xf32>, %back: memref<?x8xf32>,
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
    // expected-note @+1 {{'moe.start_exchange' starts it here, in chunk 0}}
    %t = moe.start_exchange to_experts %home, %v, %m chunk(%i of %d)
        at <ranks = 2, experts = 4, slots = 2> equal
        : memref<?x8xf32>, memref<?x8xf32, strided<[8, 1], offset: ?>>, memref<2x4xi32>
    memref.store %t, %tickets[%i] : memref<?xindex>
    %next = arith.addi %r, %n : index
    scf.yield %next : index
  }
  // expected-error @+1 {{'memref.copy' op expected a wait for the transfer that reads this memory before it is written, got none with 1 chunk}}
  memref.copy %result, %home : memref<?x8xf32> to memref<?x8xf32>
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

// -----

// Counts change while the transfer still reads them.
func.func @counts_written(%home: memref<?x8xf32>, %back: memref<?x8xf32>,
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
    // expected-note @+1 {{'moe.start_exchange' starts it here, in chunk 0}}
    %t = moe.start_exchange to_experts %home, %v, %m chunk(%i of %d)
        at <ranks = 2, experts = 4, slots = 2> equal
        : memref<?x8xf32>, memref<?x8xf32, strided<[8, 1], offset: ?>>, memref<2x4xi32>
    memref.store %t, %tickets[%i] : memref<?xindex>
    %next = arith.addi %r, %n : index
    scf.yield %next : index
  }
  %some = memref.alloc() : memref<4xi32>
  // expected-error @+1 {{'moe.gather_counts' op expected a wait for the transfer that reads this memory before it is written, got none with 1 chunk}}
  moe.gather_counts %some outs(%m : memref<2x4xi32>) : memref<4xi32>
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

// -----

// Results are overwritten as they come.
func.func @back_written(%home: memref<?x8xf32>, %back: memref<?x8xf32>,
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
    // expected-note @+1 {{'moe.start_exchange' starts it here, in chunk 0}}
    %u = moe.start_exchange to_tokens %back, %w, %m chunk(%i of %d)
        at <ranks = 2, experts = 4, slots = 2> equal
        : memref<?x8xf32>, memref<?x8xf32, strided<[8, 1], offset: ?>>, memref<2x4xi32>
    memref.store %u, %backs[%i] : memref<?xindex>
    %next = arith.addi %r, %n : index
    scf.yield %next : index
  }
  // expected-error @+1 {{'memref.copy' op expected a wait for the transfer that writes this memory before it is written, got none with 1 chunk}}
  memref.copy %result, %back : memref<?x8xf32> to memref<?x8xf32>
  memref.copy %back, %result : memref<?x8xf32> to memref<?x8xf32>
  return
}

// -----

// Freed before the last chunk has gone.
func.func @freed_early(%home: memref<?x8xf32>, %back: memref<?x8xf32>,
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
    // expected-note @+1 {{'moe.start_exchange' starts it here, in chunk 0}}
    %u = moe.start_exchange to_tokens %back, %w, %m chunk(%i of %d)
        at <ranks = 2, experts = 4, slots = 2> equal
        : memref<?x8xf32>, memref<?x8xf32, strided<[8, 1], offset: ?>>, memref<2x4xi32>
    memref.store %u, %backs[%i] : memref<?xindex>
    %next = arith.addi %r, %n : index
    scf.yield %next : index
  }
  // expected-error @+1 {{'memref.dealloc' op expected a wait for the transfer of this memory before its life ends, got none with 1 chunk}}
  memref.dealloc %out : memref<?x8xf32>
  scf.for %i = %c0 to %d step %c1 {
    %t = memref.load %backs[%i] : memref<?xindex>
    moe.wait %t
  }
  memref.copy %back, %result : memref<?x8xf32> to memref<?x8xf32>
  return
}

// -----

// The results' memory ends with the iteration.
func.func @scoped_memory(%home: memref<?x8xf32>, %back: memref<?x8xf32>,
    %result: memref<?x8xf32>, %m: memref<2x4xi32>, %flag: i1) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %d = moe.chunks equal
  %g = memref.alloc() : memref<2xi32>
  %total = moe.receive_sizes %m at <ranks = 2, experts = 4, slots = 2> equal
      outs(%g : memref<2xi32>) : memref<2x4xi32> -> index
  %away = memref.alloc(%total) : memref<?x8xf32>
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
    // expected-error @+1 {{'memref.alloc' op expected a wait for the transfer of this memory before the iteration ends that allocates it, got none in chunk 0 of 1}}
    %w = memref.alloc(%n) : memref<?x8xf32>
    memref.copy %v, %w : memref<?x8xf32, strided<[8, 1], offset: ?>> to memref<?x8xf32>
    // expected-note @+1 {{'moe.start_exchange' starts it here, in chunk 0}}
    %u = moe.start_exchange to_tokens %back, %w, %m chunk(%i of %d)
        at <ranks = 2, experts = 4, slots = 2> equal
        : memref<?x8xf32>, memref<?x8xf32>, memref<2x4xi32>
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

// -----

// Tickets that nothing has stored.
func.func @no_ticket(%home: memref<?x8xf32>, %back: memref<?x8xf32>,
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
    %next = arith.addi %r, %n : index
    scf.yield %next : index
  }
  scf.for %i = %c0 to %d step %c1 {
    %t = memref.load %backs[%i] : memref<?xindex>
    // expected-error @+1 {{'moe.wait' op expected the ticket of a transfer, got none in chunk 0 of 1}}
    moe.wait %t
  }
  memref.copy %back, %result : memref<?x8xf32> to memref<?x8xf32>
  return
}

// -----

// A number is no ticket.
func.func @number_as_ticket(%home: memref<?x8xf32>, %back: memref<?x8xf32>,
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
    // expected-error @+1 {{'moe.wait' op expected the ticket of a transfer, got none in chunk 0 of 1}}
    moe.wait %i
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

// -----

// Another rank may decide otherwise.
func.func @condition(%home: memref<?x8xf32>, %back: memref<?x8xf32>,
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
    %next = arith.addi %r, %n : index
    scf.yield %next : index
  }
  // expected-note @+1 {{the condition is here}}
  scf.if %flag {
    // expected-error @+1 {{'moe.start_exchange' op expected a condition that all ranks share, got another}}
    %t = moe.start_exchange to_experts %home, %away, %m chunk(%c0 of %c1)
        at <ranks = 2, experts = 4, slots = 2> equal
        : memref<?x8xf32>, memref<?x8xf32>, memref<2x4xi32>
    moe.wait %t
  }
  %done = scf.for %i = %c0 to %d step %c1 iter_args(%r = %c0) -> index {
    %n = moe.receive_sizes %m at <ranks = 2, experts = 4, slots = 2> equal
        chunk(%i of %d) outs(%g : memref<2xi32>) : memref<2x4xi32> -> index
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

// -----

// The number of this rank differs from another's.
func.func @condition_of_rank(%home: memref<?x8xf32>, %back: memref<?x8xf32>,
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
    %next = arith.addi %r, %n : index
    scf.yield %next : index
  }
  %p = moe.rank
  %first = arith.cmpi eq, %p, %c0 : index
  // expected-note @+1 {{the condition is here}}
  scf.if %first {
    // expected-error @+1 {{'moe.start_exchange' op expected a condition that all ranks share, got another}}
    %t = moe.start_exchange to_experts %home, %away, %m chunk(%c0 of %c1)
        at <ranks = 2, experts = 4, slots = 2> equal
        : memref<?x8xf32>, memref<?x8xf32>, memref<2x4xi32>
    moe.wait %t
  }
  %done = scf.for %i = %c0 to %d step %c1 iter_args(%r = %c0) -> index {
    %n = moe.receive_sizes %m at <ranks = 2, experts = 4, slots = 2> equal
        chunk(%i of %d) outs(%g : memref<2xi32>) : memref<2x4xi32> -> index
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

// -----

// So do the rows received.
func.func @loop_of_rank(%home: memref<?x8xf32>, %back: memref<?x8xf32>,
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
    %next = arith.addi %r, %n : index
    scf.yield %next : index
  }
  // expected-note @+1 {{the loop is here}}
  scf.for %i = %c0 to %total step %c1 {
    // expected-error @+1 {{'moe.start_exchange' op expected a loop of a length that all ranks share, got another}}
    %t = moe.start_exchange to_experts %home, %away, %m chunk(%c0 of %c1)
        at <ranks = 2, experts = 4, slots = 2> equal
        : memref<?x8xf32>, memref<?x8xf32>, memref<2x4xi32>
    moe.wait %t
  }
  %done = scf.for %i = %c0 to %d step %c1 iter_args(%r = %c0) -> index {
    %n = moe.receive_sizes %m at <ranks = 2, experts = 4, slots = 2> equal
        chunk(%i of %d) outs(%g : memref<2xi32>) : memref<2x4xi32> -> index
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

// -----

// Iterations of a parallel loop have no order.
func.func @parallel(%home: memref<?x8xf32>, %back: memref<?x8xf32>,
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
    %next = arith.addi %r, %n : index
    scf.yield %next : index
  }
  // expected-note @+1 {{around it}}
  scf.parallel (%i) = (%c0) to (%d) step (%c1) {
    // expected-error @+1 {{'moe.start_exchange' op expected control flow that all ranks share, got 'scf.parallel'}}
    %t = moe.start_exchange to_experts %home, %away, %m chunk(%c0 of %c1)
        at <ranks = 2, experts = 4, slots = 2> equal
        : memref<?x8xf32>, memref<?x8xf32>, memref<2x4xi32>
    moe.wait %t
  }
  %done = scf.for %i = %c0 to %d step %c1 iter_args(%r = %c0) -> index {
    %n = moe.receive_sizes %m at <ranks = 2, experts = 4, slots = 2> equal
        chunk(%i of %d) outs(%g : memref<2xi32>) : memref<2x4xi32> -> index
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

// -----

// A product with weights that are on their way.
func.func @weights(%local: memref<2x8x8xf32>, %x: memref<?x8xf32>,
    %sizes: memref<4xi32>, %y: memref<?x8xf32>) {
  %whole = memref.alloc() : memref<4x8x8xf32>
  // expected-note @+1 {{'moe.start_gather' starts it here}}
  %t = moe.start_gather %local, %whole at <ranks = 2, experts = 4, copies = 0, slots = 2>
      : memref<2x8x8xf32>, memref<4x8x8xf32>
  // expected-error @+1 {{'moe.grouped_matmul' op expected a wait for the transfer that writes this memory before it is read, got none with 1 chunk}}
  moe.grouped_matmul rows(%x : memref<?x8xf32>) groups(%sizes : memref<4xi32>)
      weights(%whole : memref<4x8x8xf32>) nk outs(%y : memref<?x8xf32>) {
  ^bb0(%a: f32):
    moe.yield %a : f32
  }
  moe.wait %t
  return
}

// -----

// A loop that changes buffers may write into any.
func.func @swapped(%home: memref<?x8xf32>, %away: memref<?x8xf32>,
    %m: memref<2x4xi32>, %n: index, %other: memref<?x8xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %one = arith.constant 1.0 : f32
  // expected-note @+1 {{'moe.start_exchange' starts it here}}
  %t = moe.start_exchange to_experts %home, %away, %m chunk(%c0 of %c1)
      at <ranks = 2, experts = 4, slots = 2> equal
      : memref<?x8xf32>, memref<?x8xf32>, memref<2x4xi32>
  %last:2 = scf.for %i = %c0 to %n step %c1 iter_args(%a = %other, %b = %away)
      -> (memref<?x8xf32>, memref<?x8xf32>) {
    // expected-error @+1 {{'memref.store' op expected a wait for the transfer that writes this memory before it is written, got none with 1 chunk}}
    memref.store %one, %a[%c0, %c0] : memref<?x8xf32>
    scf.yield %b, %a : memref<?x8xf32>, memref<?x8xf32>
  }
  moe.wait %t
  return
}

// -----

// A gradient whose sum is on its way.
func.func @gradients(%whole: memref<4x8x8xf32>, %shards: memref<2x8x8xf32>,
    %result: memref<2x8x8xf32>) {
  // expected-note @+1 {{'moe.start_reduce' starts it here}}
  %t = moe.start_reduce %whole, %shards at <ranks = 2, experts = 4, copies = 0, slots = 2>
      : memref<4x8x8xf32>, memref<2x8x8xf32>
  // expected-error @+1 {{'memref.copy' op expected a wait for the transfer that writes this memory before it is read, got none with 1 chunk}}
  memref.copy %shards, %result : memref<2x8x8xf32> to memref<2x8x8xf32>
  moe.wait %t
  return
}

// -----

// A sum whose addend changes before it is sent.
func.func @sum(%mine: memref<8xf32>, %sum: memref<8xf32>, %other: memref<8xf32>) {
  // expected-note @+1 {{'moe.start_all_reduce' starts it here}}
  %t = moe.start_all_reduce %mine, %sum : memref<8xf32>, memref<8xf32>
  // expected-error @+1 {{'memref.copy' op expected a wait for the transfer that reads this memory before it is written, got none with 1 chunk}}
  memref.copy %other, %mine : memref<8xf32> to memref<8xf32>
  moe.wait %t
  return
}

// -----

func.func @two_sums(%mine: memref<8xf32>, %sum: memref<8xf32>) {
  // expected-note @+1 {{'moe.start_all_reduce' starts it here}}
  %t = moe.start_all_reduce %mine, %sum : memref<8xf32>, memref<8xf32>
  // expected-error @+1 {{'moe.start_all_reduce' op expected memory that no other transfer in flight writes, got the same with 1 chunk}}
  %u = moe.start_all_reduce %mine, %sum : memref<8xf32>, memref<8xf32>
  moe.wait %u
  return
}

// -----

func.func @sum_of_rank(%mine: memref<8xf32>, %sum: memref<8xf32>) {
  %p = moe.rank
  %c0 = arith.constant 0 : index
  %first = arith.cmpi eq, %p, %c0 : index
  // expected-note @+1 {{the condition is here}}
  scf.if %first {
    // expected-error @+1 {{'moe.start_all_reduce' op expected a condition that all ranks share, got another}}
    %t = moe.start_all_reduce %mine, %sum : memref<8xf32>, memref<8xf32>
    moe.wait %t
  }
  return
}
