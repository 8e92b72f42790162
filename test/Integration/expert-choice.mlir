// Experts that choose their tokens, verified: there is no routing to replay. The
// ids are returned twice, once by the program and once for the check.
//
// RUN: moira-run %s --no-cache --tokens 37 --verify | FileCheck %s
// CHECK: verify passed: 37 of 37 rows
// CHECK: 100.00 % bit-identical

func.func @main(%x: tensor<?x3xf32>, %logits: tensor<?x4xf32>)
    -> (tensor<?x3xf32>, tensor<?x4xi32>) {
  %take = arith.constant 12 : index
  %ids, %weights = moe.gate %logits router<score = sigmoid, expert_choice> capacity(%take)
      : tensor<?x4xf32> -> tensor<?x4xi32>, tensor<?x4xf32>
  %counts = moe.count %ids : tensor<?x4xi32> -> tensor<4xi32>
  %slots, %sizes, %bound = moe.assign %ids token_major counts(%counts : tensor<4xi32>)
      : tensor<?x4xi32> -> tensor<?x4xi32>, tensor<4xi32>, index
  %rows = moe.dispatch %x, %slots, %sizes, %bound
      : tensor<?x3xf32>, tensor<?x4xi32>, tensor<4xi32> -> tensor<?x3xf32>
  %y = moe.combine %rows, %slots weights(%weights : tensor<?x4xf32>)
      : tensor<?x3xf32>, tensor<?x4xi32> -> tensor<?x3xf32>
  return %y, %ids : tensor<?x3xf32>, tensor<?x4xi32>
}
