// Four experts of one matrix, two per token, dropless.

#rows = affine_map<(m, n, k) -> (m, k)>
#weights = affine_map<(m, n, k) -> (n, k)>
#sums = affine_map<(m, n, k) -> (m, n)>

func.func @main(%x: tensor<?x4xf32>,
    %router: tensor<4x4xf32> {moe.param = #moe.param<"router">},
    %w: tensor<4x2x4xf32> {moe.param = #moe.param<"experts.{}.w">})
    -> tensor<?x2xf32> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %tokens = tensor.dim %x, %c0 : tensor<?x4xf32>
  %empty = tensor.empty(%tokens) : tensor<?x4xf32>
  %init = linalg.fill ins(%zero : f32)
      outs(%empty : tensor<?x4xf32>) -> tensor<?x4xf32>
  %logits = linalg.matmul indexing_maps = [#rows, #weights, #sums]
      ins(%x, %router : tensor<?x4xf32>, tensor<4x4xf32>)
      outs(%init : tensor<?x4xf32>) -> tensor<?x4xf32>
  %ids, %scores = moe.gate %logits router<>
      : tensor<?x4xf32> -> tensor<?x2xi32>, tensor<?x2xf32>
  %counts = moe.count %ids : tensor<?x2xi32> -> tensor<4xi32>
  %slots, %sizes, %bound = moe.assign %ids choice_major
      counts(%counts : tensor<4xi32>)
      : tensor<?x2xi32> -> tensor<?x2xi32>, tensor<4xi32>, index
  %rows = moe.dispatch %x, %slots, %sizes, %bound
      : tensor<?x4xf32>, tensor<?x2xi32>, tensor<4xi32> -> tensor<?x4xf32>
  %results = moe.expert rows(%rows : tensor<?x4xf32>)
      groups(%sizes : tensor<4xi32>)
      per_expert(%w : tensor<4x2x4xf32>) -> tensor<?x2xf32> {
  ^bb0(%r: tensor<?x4xf32>, %m: tensor<2x4xf32>):
    %i0 = arith.constant 0 : index
    %f0 = arith.constant 0.0 : f32
    %n = tensor.dim %r, %i0 : tensor<?x4xf32>
    %o_empty = tensor.empty(%n) : tensor<?x2xf32>
    %o_zero = linalg.fill ins(%f0 : f32)
        outs(%o_empty : tensor<?x2xf32>) -> tensor<?x2xf32>
    %o = linalg.matmul indexing_maps = [#rows, #weights, #sums]
        ins(%r, %m : tensor<?x4xf32>, tensor<2x4xf32>)
        outs(%o_zero : tensor<?x2xf32>) -> tensor<?x2xf32>
    moe.yield %o : tensor<?x2xf32>
  }
  %y = moe.combine %results, %slots
      : tensor<?x2xf32>, tensor<?x2xi32> -> tensor<?x2xf32>
  return %y : tensor<?x2xf32>
}
