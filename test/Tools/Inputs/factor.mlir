// Four experts that are the identity, room for factor times an even share.

func.func @main(%x: tensor<?x4xf32>, %logits: tensor<?x4xf32>,
    %factor: f64 {moe.name = "factor"}) -> tensor<?x4xf32> {
  %c0 = arith.constant 0 : index
  %one = arith.constant 1 : index
  %tokens = tensor.dim %x, %c0 : tensor<?x4xf32>
  %ids, %scores = moe.gate %logits router<>
      : tensor<?x4xf32> -> tensor<?x1xi32>, tensor<?x1xf32>
  %counts = moe.count %ids : tensor<?x1xi32> -> tensor<4xi32>
  %capacity = moe.capacity switch tokens(%tokens) factor(%factor) top_k(%one)
      {experts = 4 : i64}
  %slots, %sizes, %bound = moe.assign %ids choice_major
      counts(%counts : tensor<4xi32>) capacity(%capacity)
      : tensor<?x1xi32> -> tensor<?x1xi32>, tensor<4xi32>, index
  %rows = moe.dispatch %x, %slots, %sizes, %bound
      : tensor<?x4xf32>, tensor<?x1xi32>, tensor<4xi32> -> tensor<?x4xf32>
  %y = moe.combine %rows, %slots weights(%scores : tensor<?x1xf32>)
      : tensor<?x4xf32>, tensor<?x1xi32> -> tensor<?x4xf32>
  return %y : tensor<?x4xf32>
}
