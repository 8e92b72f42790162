// Collectives become calls of the context's table, with their structures on the
// stack.

// RUN: moira-opt %s -split-input-file --moe-emit-entries | FileCheck %s

// CHECK-LABEL: func.func private @numbers
// CHECK: %[[RANK:.*]] = llvm.getelementptr %{{.*}}[20]
// CHECK: llvm.load %[[RANK]] : !llvm.ptr -> i32
// The layer and the schedule.
// CHECK: %[[LAYER:.*]] = llvm.mlir.constant(2 : i64)
// CHECK: %[[GROUPS:.*]] = llvm.mlir.constant(1 : i64)
// CHECK: llvm.getelementptr %{{.*}}[72]
// CHECK: llvm.call %{{.*}}(%{{.*}}, %[[LAYER]], %[[GROUPS]]) : !llvm.ptr, (!llvm.ptr, i64, i64) -> i64
func.func @numbers(%ctx: !llvm.ptr) -> (index, index)
    attributes {moe.kind = "step", moe.variant = {entry = "numbers", name = "only"}} {
  %p = moe.rank
  %d = moe.chunks groups {layer = 2 : i64}
  return %p, %d : index, index
}

// -----

// CHECK-LABEL: func.func private @counts
// CHECK: %[[BYTES:.*]] = llvm.mlir.constant(32 : i64)
// CHECK: llvm.getelementptr %{{.*}}[80]
// CHECK: llvm.call %{{.*}}(%{{.*}}, %{{.*}}, %[[BYTES]], %{{.*}}) : !llvm.ptr, (!llvm.ptr, !llvm.ptr, i64, !llvm.ptr) -> ()
// CHECK: %[[EXPERTS:.*]] = llvm.mlir.constant(4 : i64)
// CHECK: llvm.getelementptr %{{.*}}[88]
// CHECK: llvm.call %{{.*}}(%{{.*}}, %{{.*}}, %[[EXPERTS]], %{{.*}}, %{{.*}}) : !llvm.ptr, (!llvm.ptr, i64, i64, !llvm.ptr, !llvm.ptr) -> ()
func.func @counts(%ctx: !llvm.ptr, %mine: memref<8xi32>, %all: memref<2x8xi32>,
    %sizes: memref<4xi32>, %m: memref<2x4xi32>)
    attributes {moe.kind = "step", moe.variant = {entry = "counts", name = "only"}} {
  moe.all_gather %mine outs(%all : memref<2x8xi32>) : memref<8xi32>
  moe.gather_counts %sizes outs(%m : memref<2x4xi32>) {layer = 0 : i64} : memref<4xi32>
  return
}

// -----

// An exchange in parts, started and waited for; rows of 32 bytes.
// CHECK-LABEL: func.func private @start
// CHECK: %[[START:.*]] = llvm.alloca %{{.*}} x i8
// CHECK: %[[SIZES:.*]] = llvm.alloca %{{.*}} x i8
// CHECK: llvm.getelementptr %{{.*}}[96]
// CHECK: %[[N:.*]] = llvm.call %{{.*}}(%{{.*}}, %[[SIZES]], %{{.*}}) : !llvm.ptr, (!llvm.ptr, !llvm.ptr, !llvm.ptr) -> i64
// CHECK: %[[SLOTS:.*]] = llvm.mlir.constant(2 : i32)
// CHECK: %[[PLACE:.*]] = llvm.getelementptr %[[START]][20]
// CHECK: llvm.store %[[SLOTS]], %[[PLACE]]
// CHECK: %[[WIDTH:.*]] = llvm.mlir.constant(4 : i64)
// CHECK: %[[ROW:.*]] = llvm.mul %{{.*}}, %[[WIDTH]]
// CHECK: %[[PLACE:.*]] = llvm.getelementptr %[[START]][80]
// CHECK: llvm.store %[[ROW]], %[[PLACE]]
// CHECK: llvm.getelementptr %{{.*}}[104]
// CHECK: %[[T:.*]] = llvm.call %{{.*}}(%{{.*}}, %[[START]]) : !llvm.ptr, (!llvm.ptr, !llvm.ptr) -> i64
// CHECK: llvm.getelementptr %{{.*}}[120]
// CHECK: llvm.call %{{.*}}(%{{.*}}, %{{.*}}) : !llvm.ptr, (!llvm.ptr, i64) -> ()
func.func @start(%ctx: !llvm.ptr, %home: memref<?x8xf32>, %m: memref<2x4xi32>,
    %away: memref<?x8xf32>, %i: index, %d: index) -> index
    attributes {moe.kind = "step", moe.variant = {entry = "start", name = "only"}} {
  %g = memref.alloc() : memref<2xi32>
  %n = moe.receive_sizes %m at <ranks = 2, experts = 4, slots = 2> equal
      chunk(%i of %d) outs(%g : memref<2xi32>) : memref<2x4xi32> -> index
  %t = moe.start_exchange to_experts %home, %away, %m chunk(%i of %d)
      at <ranks = 2, experts = 4, slots = 2> equal
      : memref<?x8xf32>, memref<?x8xf32>, memref<2x4xi32>
  moe.wait %t
  return %n : index
}

// -----

// The forms that wait where they stand; a view's offset is part of the pointer.
// CHECK-LABEL: func.func private @sync
// CHECK: llvm.extractvalue %{{.*}}[2]
// CHECK: llvm.getelementptr %{{.*}}[104]
// CHECK: %[[T:.*]] = llvm.call %{{.*}} : !llvm.ptr, (!llvm.ptr, !llvm.ptr) -> i64
// CHECK: llvm.getelementptr %{{.*}}[120]
// CHECK: llvm.call %{{.*}}(%{{.*}}, %[[T]])
// The parameter's index, and the bytes of one slot.
// CHECK: %[[PARAMETER:.*]] = llvm.mlir.constant(1 : i32)
// CHECK: llvm.getelementptr %[[GATHER:.*]][24]
// CHECK: %[[BYTES:.*]] = llvm.mlir.constant(64 : i64)
// CHECK: llvm.getelementptr %[[GATHER]][48]
// CHECK: llvm.getelementptr %{{.*}}[112]
// CHECK: %[[U:.*]] = llvm.call
// CHECK: llvm.getelementptr %{{.*}}[120]
// CHECK: llvm.call %{{.*}}(%{{.*}}, %[[U]])
func.func @sync(%ctx: !llvm.ptr,
    %v: memref<4xf32> {moe.param = #moe.param<"v">,
      moe.packing = {logical = tensor<4xf32>, function = @pack_v,
      slices = 1 : i64, source = tensor<4xf32>}},
    %w: memref<2x4x4xf32> {moe.param = #moe.param<"w.{}">,
      moe.packing = {logical = tensor<2x4x4xf32>, function = @pack_w,
      slices = 2 : i64, source = tensor<4x4xf32>}},
    %home: memref<?x8xf32>, %m: memref<2x4xi32>, %away: memref<?x8xf32>,
    %begin: index, %n: index)
    attributes {moe.kind = "step", moe.variant = {entry = "sync", name = "only"}} {
  %part = memref.subview %away[%begin, 0] [%n, 8] [1, 1]
      : memref<?x8xf32> to memref<?x8xf32, strided<[8, 1], offset: ?>>
  moe.exchange to_experts %home, %m, %n at <ranks = 2, experts = 4, slots = 2> equal
      outs(%part : memref<?x8xf32, strided<[8, 1], offset: ?>>)
      : memref<?x8xf32>, memref<2x4xi32>
  %all = memref.alloc() : memref<4x4x4xf32>
  moe.gather_weights %w at <ranks = 2, experts = 4, copies = 0, slots = 2>
      outs(%all : memref<4x4x4xf32>) : memref<2x4x4xf32>
  return
}
func.func @pack_v(%ctx: !llvm.ptr, %source: memref<4xf32>) -> memref<4xf32>
    attributes {moe.kind = "pack"} {
  %packed = memref.alloc() : memref<4xf32>
  return %packed : memref<4xf32>
}
func.func @pack_w(%ctx: !llvm.ptr, %source: memref<4x4xf32>) -> memref<4x4xf32>
    attributes {moe.kind = "pack"} {
  %packed = memref.alloc() : memref<4x4xf32>
  return %packed : memref<4x4xf32>
}

// -----

// The plan of the layer's place in the manifest, 24 bytes each; without a table
// the units stand in order.
// CHECK-LABEL: func.func private @shards
// CHECK: %[[PLANS:.*]] = llvm.load
// CHECK: %[[PLACE:.*]] = llvm.getelementptr %[[PLANS]][40]
// CHECK: %[[TABLE:.*]] = llvm.load %[[PLACE]] : !llvm.ptr -> !llvm.ptr
// CHECK: %[[IDENTITY:.*]] = llvm.icmp "eq" %[[TABLE]]
// CHECK: %[[FIRST:.*]] = arith.muli
// CHECK: scf.for
// CHECK: %[[UNIT:.*]] = arith.addi %[[FIRST]]
// CHECK: %[[HELD:.*]] = scf.if %[[IDENTITY]] -> (i32)
// CHECK: scf.yield %[[UNIT]]
// CHECK: llvm.getelementptr %[[TABLE]][%[[UNIT]]] : (!llvm.ptr, i32) -> !llvm.ptr, i32
// CHECK: arith.cmpi ult, %[[HELD]]
// CHECK: arith.remui %[[HELD]]
// CHECK: memref.store
func.func @shards(%ctx: !llvm.ptr, %h: memref<1xi32>)
    attributes {moe.kind = "step", moe.variant = {entry = "shards", name = "only"},
      moe.layers = [{index = 3 : i64}, {index = 7 : i64}]} {
  moe.slot_shards
      at <ranks = 4, experts = 2, shards = 2, copies = 2, slots = 1>
      outs(%h : memref<1xi32>) {layer = 7 : i64}
  return
}
