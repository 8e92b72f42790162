// RUN: moira-opt %s --moe-create-variants --split-input-file --verify-diagnostics | FileCheck %s

// The way back is an entry of its own; to be named by its entry is no use.
// CHECK: func.func private @layer_decode(
// CHECK-SAME: moe.backward = @layer_backward, moe.residuals = 1 : i64
// CHECK: func.func private @layer_prefill(
// CHECK: moe.variants @layer [@layer_decode, @layer_prefill] [decode, prefill]
// CHECK: func.func private @layer_backward_decode(
// CHECK-SAME: moe.gradient_of = 0
// CHECK: moe.variants @layer_backward [@layer_backward_decode, @layer_backward_prefill] [decode, prefill]
func.func @layer(%x: tensor<?xf32>) -> (tensor<?xf32>, tensor<?xf32>)
    attributes {moe.backward = @layer_backward, moe.residuals = 1 : i64} {
  return %x, %x : tensor<?xf32>, tensor<?xf32>
}
func.func @layer_backward(%x: tensor<?xf32>, %dy: tensor<?xf32>)
    -> (tensor<?xf32> {moe.gradient_of = 0 : i64}) {
  return %dy : tensor<?xf32>
}

// -----

// expected-error @+1 {{expected a function 'nothing' with a body as its way back, got none}}
func.func @main() attributes {moe.backward = @nothing, moe.residuals = 0 : i64} {
  return
}

// -----

// expected-error @+1 {{expected a function's name as 'moe.backward', got "main"}}
func.func @main() attributes {moe.backward = "main"} {
  return
}

// -----

// expected-error @+1 {{expected an i64 of 0 or more, and not more than there are results, as 'moe.residuals', got 1 : i64}}
func.func @main() attributes {moe.residuals = 1 : i64} {
  return
}

// -----

func.func @main() {
  // expected-error @+1 {{expected 'moe.backward' on a function only}}
  %c = arith.constant {moe.backward = @main} 0 : index
  return
}
