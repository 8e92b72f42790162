// RUN: moira-opt %s -verify-diagnostics -moe-clear-padding

func.func @main(%rows: tensor<4x?x8xf32>, %m: tensor<2x4xi32>, %n: index) -> tensor<?x8xf32>
    attributes {moe.backward = @main_backward, moe.residuals = 0 : i64} {
  // expected-error @+1 {{'tensor.collapse_shape' op expected padded rows of a moe.dispatch, to know which ones gradients may read}}
  %flat = tensor.collapse_shape %rows [[0, 1], [2]] : tensor<4x?x8xf32> into tensor<?x8xf32>
  %away = moe.exchange to_experts %flat, %m, %n at <ranks = 2, experts = 4, slots = 2> equal
      : tensor<?x8xf32>, tensor<2x4xi32> -> tensor<?x8xf32>
  return %away : tensor<?x8xf32>
}

func.func @main_backward() {
  return
}
