// RUN: moira-opt %s -split-input-file -verify-diagnostics --moe-verify-phase=phase=bufferized

func.func @in_order(%home: memref<?x8xf32>, %m: memref<2x4xi32>, %n: index,
    %away: memref<?x8xf32>) {
  // expected-error @+1 {{'moe.exchange' op expected a start and a wait at the end of phase bufferized}}
  moe.exchange to_experts %home, %m, %n at <ranks = 2, experts = 4, slots = 2> equal
      outs(%away : memref<?x8xf32>) : memref<?x8xf32>, memref<2x4xi32>
  return
}
