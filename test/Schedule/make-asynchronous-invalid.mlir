// RUN: moira-opt %s -split-input-file -verify-diagnostics \
// RUN:     --pass-pipeline='builtin.module(func.func(moe-make-asynchronous))'

// A transfer puts bytes one after the other.
func.func @columns(%w: memref<1x64x32xf32>, %all: memref<1x64x64xf32>) {
  // expected-error @+1 {{'moe.gather_weights' op expected shards of dim 1 and one part, got dim 2 and 1 parts}}
  moe.gather_weights %w dim 2
      at <ranks = 4, experts = 2, shards = 2, copies = 1, slots = 1>
      outs(%all : memref<1x64x64xf32>) : memref<1x64x32xf32>
  return
}

// -----

func.func @parts(%w: memref<1x64x32xf32>, %all: memref<1x128x32xf32>) {
  // expected-error @+1 {{'moe.gather_weights' op expected shards of dim 1 and one part, got dim 1 and 2 parts}}
  moe.gather_weights %w dim 1
      at <ranks = 4, experts = 2, shards = 2, copies = 1, slots = 1>
      outs(%all : memref<1x128x32xf32>) {parts = 2 : i64} : memref<1x64x32xf32>
  return
}

// -----

func.func @gradients(%all: memref<1x64x64xf32>, %w: memref<1x64x32xf32>) {
  // expected-error @+1 {{'moe.reduce_weights' op expected shards of dim 1 and one part, got dim 2 and 1 parts}}
  moe.reduce_weights %all dim 2
      at <ranks = 4, experts = 2, shards = 2, copies = 1, slots = 1>
      outs(%w : memref<1x64x32xf32>) : memref<1x64x64xf32>
  return
}
