// Like layer.mlir with one choice and room for one row per expert.

func.func @main(%x: tensor<?x4xf32>, %logits: tensor<?x4xf32>)
    -> tensor<?x4xf32> {
  %ids, %scores = moe.gate %logits router<>
      : tensor<?x4xf32> -> tensor<?x1xi32>, tensor<?x1xf32>
  %counts = moe.count %ids : tensor<?x1xi32> -> tensor<4xi32>
  %one = arith.constant 1 : index
  %slots, %sizes, %bound = moe.assign %ids choice_major
      counts(%counts : tensor<4xi32>) capacity(%one)
      : tensor<?x1xi32> -> tensor<?x1xi32>, tensor<4xi32>, index
  %rows = moe.dispatch %x, %slots, %sizes, %bound
      : tensor<?x4xf32>, tensor<?x1xi32>, tensor<4xi32> -> tensor<?x4xf32>
  %y = moe.combine %rows, %slots weights(%scores : tensor<?x1xf32>)
      : tensor<?x4xf32>, tensor<?x1xi32> -> tensor<?x4xf32>
  return %y : tensor<?x4xf32>
}
