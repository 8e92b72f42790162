// RUN: moira-opt %s -split-input-file \
// RUN:     --pass-pipeline='builtin.module(func.func(moe-make-asynchronous,moe-check-schedule))' \
// RUN:   | FileCheck %s

// Sizes, then three loops over the chunks. Groups of a chunk have a line of 64
// bytes. Rows of 32 bytes: chunks begin at the next multiple of 64, and one more
// for each chunk before.
// CHECK-LABEL: func.func @layer
// CHECK-SAME: (%[[HOME:.*]]: memref<?x8xf32>, %[[BACK:.*]]: memref<?x16xf32>, %[[M:.*]]: memref<2x4xi32>,
// CHECK: %[[D:.*]] = moe.chunks equal
// CHECK: %[[END:.*]] = arith.muli %[[D]], %c64
// CHECK: %[[GROUPS:.*]] = memref.alloc(%[[END]]) {{.*}} : memref<?xi8>
// CHECK: %[[NS:.*]] = memref.alloc(%[[D]]) : memref<?xindex>
// CHECK: %[[ALL:.*]] = scf.for %[[I:.*]] = %c0 to %[[D]] step %c1 iter_args(%[[BEFORE:.*]] = %c0)
// CHECK: %[[BEGIN:.*]] = arith.muli %[[I]], %c64
// CHECK: %[[G:.*]] = memref.view %[[GROUPS]][%[[BEGIN]]][] : memref<?xi8> to memref<2xi32>
// CHECK: %[[N:.*]] = moe.receive_sizes %[[M]] {{.*}} chunk(%[[I]] of %[[D]]) outs(%[[G]] : memref<2xi32>)
// CHECK: memref.store %[[N]], %[[NS]][%[[I]]]
// CHECK: %[[NEXT:.*]] = arith.addi %[[BEFORE]], %[[N]]
// CHECK: scf.yield %[[NEXT]]
// CHECK: %[[BYTES:.*]] = arith.muli %[[ALL]], %c32
// CHECK: %[[LINES:.*]] = arith.ceildivui %[[BYTES]], %c64
// CHECK: %[[MOST:.*]] = arith.addi %[[LINES]], %[[D]]
// CHECK: %[[END:.*]] = arith.muli %[[MOST]], %c64
// CHECK: %[[AWAYS:.*]] = memref.alloc(%[[END]]) {{.*}} : memref<?xi8>
// Rows of 64 bytes begin at multiples of 64 by themselves.
// CHECK: %[[END1:.*]] = arith.muli %[[ALL]], %c64
// CHECK: %[[OUTS:.*]] = memref.alloc(%[[END1]]) {{.*}} : memref<?xi8>
// CHECK: %[[SENT:.*]] = memref.alloc(%[[D]]) : memref<?xindex>
// CHECK: %[[RETURNED:.*]] = memref.alloc(%[[D]]) : memref<?xindex>

// CHECK: scf.for %[[I:.*]] = %c0 to %[[D]] step %c1 iter_args(%[[BEFORE:.*]] = %c0)
// CHECK: %[[N:.*]] = memref.load %[[NS]][%[[I]]]
// CHECK: %[[V:.*]] = memref.view %[[AWAYS]][%{{.*}}][%[[N]]] : memref<?xi8> to memref<?x8xf32>
// CHECK: %[[T:.*]] = moe.start_exchange to_experts %[[HOME]], %[[V]], %[[M]] chunk(%[[I]] of %[[D]])
// CHECK: memref.store %[[T]], %[[SENT]][%[[I]]]

// CHECK: scf.for %[[I:.*]] = %c0 to %[[D]] step %c1 iter_args(%[[BEFORE:.*]] = %c0)
// CHECK: %[[N:.*]] = memref.load %[[NS]][%[[I]]]
// CHECK: %[[G:.*]] = memref.view %[[GROUPS]][%{{.*}}][] : memref<?xi8> to memref<2xi32>
// CHECK-NOT: moe.receive_sizes
// CHECK: %[[V:.*]] = memref.view %[[AWAYS]][%{{.*}}][%[[N]]] : memref<?xi8> to memref<?x8xf32>
// CHECK: %[[T:.*]] = memref.load %[[SENT]][%[[I]]]
// CHECK: moe.wait %[[T]]
// CHECK: %[[W:.*]] = memref.view %[[OUTS]][%{{.*}}][%[[N]]] : memref<?xi8> to memref<?x16xf32>
// CHECK: moe.grouped_matmul rows(%[[V]] {{.*}} groups(%[[G]] {{.*}} outs(%[[W]]
// CHECK: %[[T:.*]] = moe.start_exchange to_tokens %[[BACK]], %[[W]], %[[M]] chunk(%[[I]] of %[[D]])
// CHECK: memref.store %[[T]], %[[RETURNED]][%[[I]]]

// What needs nothing of it stands before the waits.
// CHECK: memref.copy
// CHECK: scf.for %[[I:.*]] = %c0 to %[[D]] step %c1 {
// CHECK: %[[T:.*]] = memref.load %[[RETURNED]][%[[I]]]
// CHECK: moe.wait %[[T]]
// CHECK: memref.copy %[[BACK]]
func.func @layer(%home: memref<?x8xf32>, %back: memref<?x16xf32>,
    %m: memref<2x4xi32>, %w: memref<2x16x8xf32>, %bound: index,
    %result: memref<?x16xf32>, %other: memref<4xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %d = moe.chunks equal {layer = 0 : i64}
  scf.for %i = %c0 to %d step %c1 {
    %g = memref.alloc() : memref<2xi32>
    %n = moe.receive_sizes %m at <ranks = 2, experts = 4, slots = 2> equal
        chunk(%i of %d) outs(%g : memref<2xi32>) {layer = 0 : i64}
        : memref<2x4xi32> -> index
    %away = memref.alloc(%n) : memref<?x8xf32>
    moe.exchange to_experts %home, %m, %n at <ranks = 2, experts = 4, slots = 2> equal
        chunk(%i of %d) outs(%away : memref<?x8xf32>)
        {layer = 0 : i64, moe.queue = "communication"}
        : memref<?x8xf32>, memref<2x4xi32>
    %out = memref.alloc(%n) : memref<?x16xf32>
    moe.grouped_matmul rows(%away : memref<?x8xf32>) groups(%g : memref<2xi32>)
        weights(%w : memref<2x16x8xf32>) nk outs(%out : memref<?x16xf32>) {
    ^bb0(%a: f32):
      moe.yield %a : f32
    }
    moe.exchange to_tokens %out, %m, %bound at <ranks = 2, experts = 4, slots = 2> equal
        chunk(%i of %d) outs(%back : memref<?x16xf32>)
        {layer = 0 : i64, moe.queue = "communication"}
        : memref<?x16xf32>, memref<2x4xi32>
  }
  memref.copy %other, %other : memref<4xf32> to memref<4xf32>
  memref.copy %back, %result : memref<?x16xf32> to memref<?x16xf32>
  return
}

// -----

// Rows that come back as they went need no memory but their own.
// CHECK-LABEL: func.func @nothing_to_do
// CHECK: memref.alloc(%{{.*}}) {{.*}} : memref<?xi8>
// CHECK: scf.for
// CHECK: moe.receive_sizes
// CHECK: memref.alloc(%{{.*}}) {{.*}} : memref<?xi8>
// CHECK-NOT: : memref<?xi8>
// CHECK: scf.for
// CHECK: moe.start_exchange to_experts
// CHECK: scf.for
// CHECK: moe.wait
// CHECK: moe.start_exchange to_tokens
// CHECK: scf.for
// CHECK: moe.wait
func.func @nothing_to_do(%home: memref<?x8xf32>, %back: memref<?x8xf32>,
    %m: memref<2x4xi32>, %bound: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %d = moe.chunks equal
  scf.for %i = %c0 to %d step %c1 {
    %g = memref.alloc() : memref<2xi32>
    %n = moe.receive_sizes %m at <ranks = 2, experts = 4, slots = 2> equal
        chunk(%i of %d) outs(%g : memref<2xi32>) : memref<2x4xi32> -> index
    %away = memref.alloc(%n) : memref<?x8xf32>
    moe.exchange to_experts %home, %m, %n at <ranks = 2, experts = 4, slots = 2> equal
        chunk(%i of %d) outs(%away : memref<?x8xf32>)
        {moe.queue = "communication"} : memref<?x8xf32>, memref<2x4xi32>
    moe.exchange to_tokens %away, %m, %bound at <ranks = 2, experts = 4, slots = 2> equal
        chunk(%i of %d) outs(%back : memref<?x8xf32>)
        {moe.queue = "communication"} : memref<?x8xf32>, memref<2x4xi32>
  }
  return
}

// -----

// Without the queue's name an exchange is waited for where it stands, and so is
// one whose memory cannot be kept for each chunk.
// CHECK-LABEL: func.func @in_order
// CHECK: scf.for
// CHECK: %[[T:.*]] = moe.start_exchange to_experts
// CHECK-NEXT: moe.wait %[[T]]
// CHECK: %[[U:.*]] = moe.start_exchange to_tokens
// CHECK-NEXT: moe.wait %[[U]]
// CHECK: scf.for
// CHECK: %[[T:.*]] = moe.start_exchange to_experts
// CHECK-NEXT: moe.wait %[[T]]
func.func @in_order(%home: memref<?x8xf32>, %back: memref<?x8xf32>,
    %m: memref<2x4xi32>, %bound: index, %fixed: memref<?x8xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %d = moe.chunks equal
  scf.for %i = %c0 to %d step %c1 {
    %g = memref.alloc() : memref<2xi32>
    %n = moe.receive_sizes %m at <ranks = 2, experts = 4, slots = 2> equal
        chunk(%i of %d) outs(%g : memref<2xi32>) : memref<2x4xi32> -> index
    %away = memref.alloc(%n) : memref<?x8xf32>
    moe.exchange to_experts %home, %m, %n at <ranks = 2, experts = 4, slots = 2> equal
        chunk(%i of %d) outs(%away : memref<?x8xf32>)
        : memref<?x8xf32>, memref<2x4xi32>
    moe.exchange to_tokens %away, %m, %bound at <ranks = 2, experts = 4, slots = 2> equal
        chunk(%i of %d) outs(%back : memref<?x8xf32>)
        : memref<?x8xf32>, memref<2x4xi32>
  }
  scf.for %i = %c0 to %d step %c1 {
    moe.exchange to_experts %home, %m, %bound at <ranks = 2, experts = 4, slots = 2> equal
        chunk(%i of %d) outs(%fixed : memref<?x8xf32>)
        {moe.queue = "communication"} : memref<?x8xf32>, memref<2x4xi32>
  }
  return
}

// -----

// Gathers of the first layer start with the step, those of the next when the
// exchanges of the first have ended; each is waited for at its first use.
// CHECK-LABEL: func.func @gathers
// CHECK-SAME: (%[[X:.*]]: memref<4x4xf32>, %[[SIZES:.*]]: memref<4xi32>, %[[A:.*]]: memref<2x4x4xf32>, %[[B:.*]]: memref<2x4x4xf32>,
// CHECK: %[[ALL:.*]] = memref.alloc() : memref<4x4x4xf32>
// CHECK: %[[T0:.*]] = moe.start_gather %[[A]], %[[ALL]] replicated at {{.*}} {layer = 0 : i64}
// CHECK: %[[ALL1:.*]] = memref.alloc() : memref<4x4x4xf32>
// CHECK: %[[T1:.*]] = moe.start_gather %[[B]], %[[ALL1]] replicated at {{.*}} {layer = 0 : i64}
// CHECK: moe.gather_counts
// CHECK: moe.wait %[[T0]]
// CHECK-NEXT: moe.grouped_matmul
// CHECK-SAME: weights(%[[ALL]] :
// CHECK: moe.wait %[[T1]]
// CHECK-NEXT: moe.grouped_matmul
// CHECK-SAME: weights(%[[ALL1]] :
// CHECK: %[[U:.*]] = moe.start_exchange
// CHECK-NEXT: moe.wait %[[U]]
// CHECK: %[[T2:.*]] = moe.start_gather %[[A]]
// CHECK-SAME: {layer = 1 : i64}
// CHECK: memref.copy
// CHECK: moe.wait %[[T2]]
// CHECK-NEXT: moe.grouped_matmul
func.func @gathers(%x: memref<4x4xf32>, %sizes: memref<4xi32>,
    %a: memref<2x4x4xf32>, %b: memref<2x4x4xf32>, %y: memref<4x4xf32>,
    %home: memref<?x4xf32>, %away: memref<?x4xf32>, %bound: index) {
  %m = memref.alloc() : memref<2x4xi32>
  moe.gather_counts %sizes outs(%m : memref<2x4xi32>) {layer = 0 : i64}
      : memref<4xi32>
  %all = memref.alloc() : memref<4x4x4xf32>
  moe.gather_weights %a at <ranks = 2, experts = 4, copies = 0, slots = 2>
      outs(%all : memref<4x4x4xf32>) {layer = 0 : i64} : memref<2x4x4xf32>
  %all1 = memref.alloc() : memref<4x4x4xf32>
  moe.gather_weights %b at <ranks = 2, experts = 4, copies = 0, slots = 2>
      outs(%all1 : memref<4x4x4xf32>) {layer = 0 : i64} : memref<2x4x4xf32>
  moe.grouped_matmul rows(%x : memref<4x4xf32>) groups(%sizes : memref<4xi32>)
      weights(%all : memref<4x4x4xf32>) nk outs(%y : memref<4x4xf32>) {
  ^bb0(%s: f32):
    moe.yield %s : f32
  }
  moe.grouped_matmul rows(%x : memref<4x4xf32>) groups(%sizes : memref<4xi32>)
      weights(%all1 : memref<4x4x4xf32>) nk outs(%y : memref<4x4xf32>) {
  ^bb0(%s: f32):
    moe.yield %s : f32
  }
  moe.exchange to_experts %home, %m, %bound at <ranks = 2, experts = 4, slots = 2> equal
      outs(%away : memref<?x4xf32>) {layer = 0 : i64}
      : memref<?x4xf32>, memref<2x4xi32>
  memref.copy %x, %y : memref<4x4xf32> to memref<4x4xf32>
  %all2 = memref.alloc() : memref<4x4x4xf32>
  moe.gather_weights %a at <ranks = 2, experts = 4, copies = 0, slots = 2>
      outs(%all2 : memref<4x4x4xf32>) {layer = 1 : i64} : memref<2x4x4xf32>
  moe.grouped_matmul rows(%x : memref<4x4xf32>) groups(%sizes : memref<4xi32>)
      weights(%all2 : memref<4x4x4xf32>) nk outs(%y : memref<4x4xf32>) {
  ^bb0(%s: f32):
    moe.yield %s : f32
  }
  return
}

// -----

// Weights that the step computes are gathered where they are there.
// CHECK-LABEL: func.func @computed
// CHECK: memref.copy
// CHECK: %[[T:.*]] = moe.start_gather
// CHECK-NEXT: moe.wait %[[T]]
func.func @computed(%a: memref<2x4x4xf32>, %all: memref<4x4x4xf32>) {
  %w = memref.alloc() : memref<2x4x4xf32>
  memref.copy %a, %w : memref<2x4x4xf32> to memref<2x4x4xf32>
  moe.gather_weights %w at <ranks = 2, experts = 4, copies = 0, slots = 2>
      outs(%all : memref<4x4x4xf32>) : memref<2x4x4xf32>
  return
}

// -----

// Straight code: a transfer starts when what it reads is there, and is waited for
// where its memory is used next, or at the end.
// CHECK-LABEL: func.func @straight
// CHECK-SAME: (%[[X:.*]]: memref<4x4xf32>, %[[Y:.*]]: memref<4x4xf32>, %[[Z:.*]]: memref<4x4xf32>, %[[W:.*]]: memref<4x4x4xf32>, %[[M:.*]]: memref<2x4xi32>,
// CHECK: %[[SHARDS:.*]] = memref.alloc() : memref<2x4x4xf32>
// CHECK: %[[U:.*]] = moe.start_reduce %[[W]], %[[SHARDS]] replicated at {{.*}} {layer = 3 : i64}
// CHECK: %[[ROWS:.*]] = memref.alloc() : memref<4x4xf32>
// CHECK: memref.copy %[[X]], %[[ROWS]]
// CHECK: %[[T:.*]] = moe.start_exchange to_tokens %{{.*}}, %[[ROWS]], %[[M]]
// Products that read the same rows run beside it.
// CHECK-NEXT: memref.copy %[[ROWS]], %[[Z]]
// CHECK-NEXT: moe.wait %[[T]]
// CHECK-NEXT: memref.copy %{{.*}}, %[[Y]]
// CHECK-NEXT: %[[SUM:.*]] = memref.alloc() : memref<4x4xf32>
// CHECK-NEXT: %[[V:.*]] = moe.start_all_reduce %[[Y]], %[[SUM]]
// CHECK-NEXT: memref.copy %[[Z]], %[[X]]
// What it reads is written.
// CHECK-NEXT: moe.wait %[[V]]
// CHECK-NEXT: memref.copy %[[X]], %[[Y]]
// CHECK-NEXT: moe.wait %[[U]]
// CHECK-NEXT: return
func.func @straight(%x: memref<4x4xf32>, %y: memref<4x4xf32>, %z: memref<4x4xf32>,
    %w: memref<4x4x4xf32>, %m: memref<2x4xi32>, %bound: index)
    -> (memref<2x4x4xf32>, memref<4x4xf32>) {
  %rows = memref.alloc() : memref<4x4xf32>
  memref.copy %x, %rows : memref<4x4xf32> to memref<4x4xf32>
  memref.copy %rows, %z : memref<4x4xf32> to memref<4x4xf32>
  %back = memref.alloc() : memref<4x4xf32>
  moe.exchange to_tokens %rows, %m, %bound at <ranks = 2, experts = 4, slots = 2> equal
      outs(%back : memref<4x4xf32>) {moe.queue = "communication"}
      : memref<4x4xf32>, memref<2x4xi32>
  %shards = memref.alloc() : memref<2x4x4xf32>
  moe.reduce_weights %w at <ranks = 2, experts = 4, copies = 0, slots = 2>
      outs(%shards : memref<2x4x4xf32>) {layer = 3 : i64} : memref<4x4x4xf32>
  memref.copy %back, %y : memref<4x4xf32> to memref<4x4xf32>
  %sum = memref.alloc() : memref<4x4xf32>
  moe.all_reduce %y outs(%sum : memref<4x4xf32>) : memref<4x4xf32>
  memref.copy %z, %x : memref<4x4xf32> to memref<4x4xf32>
  memref.copy %x, %y : memref<4x4xf32> to memref<4x4xf32>
  return %shards, %sum : memref<2x4x4xf32>, memref<4x4xf32>
}
