// Sparse feed-forward layer of Switch-base-8: 8 experts of width 3072, 1 per
// token, at most 64 tokens per expert, rows of 768.

#rows = affine_map<(m, n, k) -> (m, k)>
#weights = affine_map<(m, n, k) -> (n, k)>
#sums = affine_map<(m, n, k) -> (m, n)>
#id = affine_map<(m, n) -> (m, n)>
#unary = {indexing_maps = [#id, #id],
          iterator_types = ["parallel", "parallel"]}

func.func @main(
    %x: tensor<?x768xf32>,
    %router: tensor<8x768xf32>
        {moe.param = #moe.param<"encoder.block.1.layer.1.mlp.router.classifier.weight">},
    %wi: tensor<8x3072x768xf32>
        {moe.param = #moe.param<"encoder.block.1.layer.1.mlp.experts.expert_{}.wi.weight">},
    %wo: tensor<8x768x3072xf32>
        {moe.param = #moe.param<"encoder.block.1.layer.1.mlp.experts.expert_{}.wo.weight">})
    -> tensor<?x768xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %tokens = tensor.dim %x, %c0 : tensor<?x768xf32>

  // Logits and scores are f32 whatever the rows' type. The weight of a token's
  // expert is its probability, not normalized.
  %logits_empty = tensor.empty(%tokens) : tensor<?x8xf32>
  %logits_zero = linalg.fill ins(%zero : f32)
      outs(%logits_empty : tensor<?x8xf32>) -> tensor<?x8xf32>
  %logits = linalg.matmul indexing_maps = [#rows, #weights, #sums]
      ins(%x, %router : tensor<?x768xf32>, tensor<8x768xf32>)
      outs(%logits_zero : tensor<?x8xf32>) -> tensor<?x8xf32>
  %experts, %weights = moe.gate %logits router<>
      : tensor<?x8xf32> -> tensor<?x1xi32>, tensor<?x1xf32>

  // A fixed capacity: later tokens of a full expert are dropped and give 0.
  %counts = moe.count %experts : tensor<?x1xi32> -> tensor<8xi32>
  %limit = arith.constant 64.0 : f64
  %capacity = moe.capacity fixed tokens(%tokens) factor(%limit) top_k(%c1)
      {experts = 8 : i64}
  %slots, %sizes, %bound = moe.assign %experts choice_major
      counts(%counts : tensor<8xi32>) capacity(%capacity)
      : tensor<?x1xi32> -> tensor<?x1xi32>, tensor<8xi32>, index
  %rows = moe.dispatch %x, %slots, %sizes, %bound
      : tensor<?x768xf32>, tensor<?x1xi32>, tensor<8xi32> -> tensor<?x768xf32>

  %results = moe.expert rows(%rows : tensor<?x768xf32>)
      groups(%sizes : tensor<8xi32>)
      per_expert(%wi, %wo : tensor<8x3072x768xf32>, tensor<8x768x3072xf32>)
      -> tensor<?x768xf32> {
  ^bb0(%r: tensor<?x768xf32>, %i: tensor<3072x768xf32>, %o: tensor<768x3072xf32>):
    %i0 = arith.constant 0 : index
    %f0 = arith.constant 0.0 : f32
    %n = tensor.dim %r, %i0 : tensor<?x768xf32>
    %a_empty = tensor.empty(%n) : tensor<?x3072xf32>
    %a_zero = linalg.fill ins(%f0 : f32)
        outs(%a_empty : tensor<?x3072xf32>) -> tensor<?x3072xf32>
    %a = linalg.matmul indexing_maps = [#rows, #weights, #sums]
        ins(%r, %i : tensor<?x768xf32>, tensor<3072x768xf32>)
        outs(%a_zero : tensor<?x3072xf32>) -> tensor<?x3072xf32>
    %h_empty = tensor.empty(%n) : tensor<?x3072xf32>
    %h = linalg.generic #unary
        ins(%a : tensor<?x3072xf32>) outs(%h_empty : tensor<?x3072xf32>) {
    ^bb0(%a0: f32, %out: f32):
      %least = arith.constant 0.0 : f32
      %act = arith.maximumf %a0, %least : f32
      linalg.yield %act : f32
    } -> tensor<?x3072xf32>
    %b_empty = tensor.empty(%n) : tensor<?x768xf32>
    %b_zero = linalg.fill ins(%f0 : f32)
        outs(%b_empty : tensor<?x768xf32>) -> tensor<?x768xf32>
    %b = linalg.matmul indexing_maps = [#rows, #weights, #sums]
        ins(%h, %o : tensor<?x3072xf32>, tensor<768x3072xf32>)
        outs(%b_zero : tensor<?x768xf32>) -> tensor<?x768xf32>
    moe.yield %b : tensor<?x768xf32>
  }

  %y = moe.combine %results, %slots weights(%weights : tensor<?x1xf32>)
      : tensor<?x768xf32>, tensor<?x1xi32> -> tensor<?x768xf32>
  return %y : tensor<?x768xf32>
}
