// RUN: moira-opt %s -split-input-file -verify-diagnostics --moe-verify-phase=phase=kernels

func.func @expert(%x: tensor<?x8xf32>, %n: tensor<4xi32>) -> tensor<?x8xf32> {
  // expected-error @+1 {{'moe.expert' op expected no expert at the end of phase kernels}}
  %y = moe.expert rows(%x : tensor<?x8xf32>) groups(%n : tensor<4xi32>) -> tensor<?x8xf32> {
  ^bb0(%r: tensor<?x8xf32>):
    moe.yield %r : tensor<?x8xf32>
  }
  return %y : tensor<?x8xf32>
}

// -----

func.func @unpacked(%x: tensor<?x8xf32>, %n: tensor<4xi32>,
    %w: tensor<4x16x8xf32> {moe.param = #moe.param<"w">}) -> tensor<?x16xf32> {
  // expected-error @+1 {{'moe.grouped_matmul' op expected the panels of a parameter at the end of phase kernels, got layout nk}}
  %y = moe.grouped_matmul rows(%x : tensor<?x8xf32>) groups(%n : tensor<4xi32>)
      weights(%w : tensor<4x16x8xf32>) nk -> tensor<?x16xf32> {
  ^bb0(%a: f32):
    moe.yield %a : f32
  }
  return %y : tensor<?x16xf32>
}

// -----

// A computed weight may stay as it is.
func.func @computed(%x: tensor<?x8xf32>, %n: tensor<4xi32>,
    %w: tensor<4x16x8xf32>) -> tensor<?x16xf32> {
  %y = moe.grouped_matmul rows(%x : tensor<?x8xf32>) groups(%n : tensor<4xi32>)
      weights(%w : tensor<4x16x8xf32>) nk -> tensor<?x16xf32> {
  ^bb0(%a: f32):
    moe.yield %a : f32
  }
  return %y : tensor<?x16xf32>
}
