// RUN: moira-opt %s -split-input-file -verify-diagnostics --moe-verify-phase=phase=scheduled

func.func @no_loop(%m: tensor<2x4xi32>, %i: index, %d: index) -> index {
  // expected-error @+1 {{'moe.receive_sizes' op expected the chunk of a loop over 'moe.chunks' at the end of phase scheduled}}
  %g, %n = moe.receive_sizes %m at <ranks = 2, experts = 4, slots = 2> equal
      chunk(%i of %d) : tensor<2x4xi32> -> tensor<2xi32>, index
  return %n : index
}

// -----

func.func @other_loop(%m: tensor<2x4xi32>, %d: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %d step %c1 {
    // expected-error @+1 {{'moe.receive_sizes' op expected the chunk of a loop over 'moe.chunks' at the end of phase scheduled}}
    %g, %n = moe.receive_sizes %m at <ranks = 2, experts = 4, slots = 2> equal
        chunk(%i of %d) : tensor<2x4xi32> -> tensor<2xi32>, index
  }
  return
}

// -----

func.func @buffers(%m: memref<2x4xi32>, %sizes: memref<4xi32>) {
  // expected-error @+1 {{'moe.gather_counts' op expected no asynchronous or buffer form at the end of phase scheduled}}
  moe.gather_counts %sizes outs(%m : memref<2x4xi32>) : memref<4xi32>
  return
}
