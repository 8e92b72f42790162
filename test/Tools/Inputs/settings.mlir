// Padded groups of four experts, whose capacity factor and number of choices are
// inputs: f > 0, 0 (room for all) or < 0 (for all, up to a bound), as Tutel has
// them.

func.func @main(%x: tensor<?x8xf32>, %logits: tensor<?x4xf32>,
    %f: f64 {moe.name = "f"}, %k: index {moe.name = "k"},
    %w: tensor<4x8x8xf32> {moe.param = #moe.param<"w{}">}) -> tensor<?x8xf32> {
  %c0 = arith.constant 0 : index
  %t = tensor.dim %x, %c0 : tensor<?x8xf32>
  %ids, %scores = moe.gate %logits router<> top_k(%k)
      : tensor<?x4xf32> -> tensor<?x2xi32>, tensor<?x2xf32>
  %counts = moe.count %ids : tensor<?x2xi32> -> tensor<4xi32>
  %c = moe.capacity tutel tokens(%t) factor(%f) top_k(%k)
      counts(%counts : tensor<4xi32>) {experts = 4 : i64}
  %slots, %sizes, %bound = moe.assign %ids choice_major padded
      counts(%counts : tensor<4xi32>) capacity(%c)
      : tensor<?x2xi32> -> tensor<?x2xi32>, tensor<4xi32>, index
  %rows = moe.dispatch %x, %slots, %sizes, %bound
      : tensor<?x8xf32>, tensor<?x2xi32>, tensor<4xi32> -> tensor<4x?x8xf32>
  %y = moe.expert rows(%rows : tensor<4x?x8xf32>) groups(%sizes : tensor<4xi32>)
      per_expert(%w : tensor<4x8x8xf32>) -> tensor<4x?x8xf32> {
  ^bb0(%r: tensor<?x8xf32>, %we: tensor<8x8xf32>):
    %i0 = arith.constant 0 : index
    %zero = arith.constant 0.0 : f32
    %n = tensor.dim %r, %i0 : tensor<?x8xf32>
    %e = tensor.empty(%n) : tensor<?x8xf32>
    %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x8xf32>) -> tensor<?x8xf32>
    %m = linalg.matmul ins(%r, %we : tensor<?x8xf32>, tensor<8x8xf32>)
        outs(%z : tensor<?x8xf32>) -> tensor<?x8xf32>
    moe.yield %m : tensor<?x8xf32>
  }
  %out = moe.combine %y, %slots weights(%scores : tensor<?x2xf32>)
      : tensor<4x?x8xf32>, tensor<?x2xi32> -> tensor<?x8xf32>
  return %out : tensor<?x8xf32>
}
