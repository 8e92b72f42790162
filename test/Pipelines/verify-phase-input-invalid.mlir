// RUN: moira-opt %s -split-input-file -verify-diagnostics --moe-verify-phase=phase=input

func.func @collective(%sizes: tensor<4xi32>) -> tensor<2x4xi32> {
  // expected-error @+1 {{'moe.gather_counts' op expected no collective at the end of phase input}}
  %m = moe.gather_counts %sizes : tensor<4xi32> -> tensor<2x4xi32>
  return %m : tensor<2x4xi32>
}

// -----

func.func @rank() -> index {
  // expected-error @+1 {{'moe.rank' op expected no collective at the end of phase input}}
  %p = moe.rank
  return %p : index
}
