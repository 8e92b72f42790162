// RUN: moira-opt %s -split-input-file -verify-diagnostics --moe-emit-entries

func.func @columns(%ctx: !llvm.ptr, %home: memref<?x16xf32>, %m: memref<2x4xi32>,
    %away: memref<?x8xf32>, %n: index)
    attributes {moe.kind = "step", moe.variant = {entry = "main", name = "only"}} {
  %left = memref.subview %home[0, 0] [%n, 8] [1, 1]
      : memref<?x16xf32> to memref<?x8xf32, strided<[16, 1]>>
  // expected-error @+1 {{'moe.exchange' op expected compact memory, got 'memref<?x8xf32, strided<[16, 1]>>'}}
  moe.exchange to_experts %left, %m, %n at <ranks = 2, experts = 4, slots = 2> equal
      outs(%away : memref<?x8xf32>)
      : memref<?x8xf32, strided<[16, 1]>>, memref<2x4xi32>
  return
}

// -----

func.func @weights(%ctx: !llvm.ptr, %w: memref<2x?x4xf32>, %all: memref<4x?x4xf32>)
    attributes {moe.kind = "step", moe.variant = {entry = "main", name = "only"}} {
  // expected-error @+1 {{'moe.gather_weights' op expected weights of static shape, got 'memref<2x?x4xf32>'}}
  moe.gather_weights %w at <ranks = 2, experts = 4, copies = 0, slots = 2>
      outs(%all : memref<4x?x4xf32>) : memref<2x?x4xf32>
  return
}

// -----

func.func @shards(%ctx: !llvm.ptr, %w: memref<1x64x32xf32>, %all: memref<1x64x64xf32>)
    attributes {moe.kind = "step", moe.variant = {entry = "main", name = "only"}} {
  // expected-error @+1 {{'moe.gather_weights' op expected shards of dim 1 and one part, got dim 2 and 1 parts}}
  moe.gather_weights %w dim 2
      at <ranks = 4, experts = 2, shards = 2, copies = 1, slots = 1>
      outs(%all : memref<1x64x64xf32>) : memref<1x64x32xf32>
  return
}

// -----

func.func @sums(%ctx: !llvm.ptr, %all: memref<1x64x64xf32>, %w: memref<1x64x32xf32>)
    attributes {moe.kind = "step", moe.variant = {entry = "main", name = "only"}} {
  // expected-error @+1 {{'moe.reduce_weights' op expected shards of dim 1 and one part, got dim 2 and 1 parts}}
  moe.reduce_weights %all dim 2
      at <ranks = 4, experts = 2, shards = 2, copies = 1, slots = 1>
      outs(%w : memref<1x64x32xf32>) : memref<1x64x64xf32>
  return
}

// -----

func.func @dynamic(%ctx: !llvm.ptr, %all: memref<4x?x4xf32>, %w: memref<2x?x4xf32>)
    attributes {moe.kind = "step", moe.variant = {entry = "main", name = "only"}} {
  // expected-error @+1 {{'moe.start_reduce' op expected weights of static shape, got 'memref<4x?x4xf32>'}}
  %t = moe.start_reduce %all, %w at <ranks = 2, experts = 4, copies = 0, slots = 2>
      : memref<4x?x4xf32>, memref<2x?x4xf32>
  return
}

// -----

func.func @strided(%ctx: !llvm.ptr, %x: memref<4x8xf32, strided<[16, 1]>>, %y: memref<4x8xf32>)
    attributes {moe.kind = "step", moe.variant = {entry = "main", name = "only"}} {
  // expected-error @+1 {{'moe.all_reduce' op expected compact memory, got 'memref<4x8xf32, strided<[16, 1]>>'}}
  moe.all_reduce %x outs(%y : memref<4x8xf32>) : memref<4x8xf32, strided<[16, 1]>>
  return
}
