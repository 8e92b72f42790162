// RUN: moira-reduce %s --opt-reduction-pass='opt-pass=symbol-dce test=%S/Inputs/has-count.sh' | FileCheck %s

// What the test does not need goes.

// CHECK-NOT: @unused
// CHECK: moe.count
func.func private @unused(%a: tensor<4xi32>) -> tensor<4xi32> {
  return %a : tensor<4xi32>
}

func.func @main(%ids: tensor<?x2xi32>) -> tensor<4xi32> {
  %counts = moe.count %ids : tensor<?x2xi32> -> tensor<4xi32>
  return %counts : tensor<4xi32>
}
