// RUN: moira-opt %s -split-input-file -verify-diagnostics --moe-verify-phase=phase=sharded

func.func @chunks() -> index {
  // expected-error @+1 {{'moe.chunks' op expected no chunks at the end of phase sharded}}
  %d = moe.chunks equal
  return %d : index
}

// -----

func.func @chunk(%m: tensor<2x4xi32>, %i: index, %d: index) -> index {
  // expected-error @+1 {{'moe.receive_sizes' op expected no chunks at the end of phase sharded}}
  %g, %n = moe.receive_sizes %m at <ranks = 2, experts = 4, slots = 2> equal
      chunk(%i of %d) : tensor<2x4xi32> -> tensor<2xi32>, index
  return %n : index
}

// -----

func.func @wait(%t: index) {
  // expected-error @+1 {{'moe.wait' op expected no asynchronous or buffer form at the end of phase sharded}}
  moe.wait %t
  return
}
