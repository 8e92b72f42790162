// Two experts of width 256, one per token, rows of 64, with room for `factor`
// times an even share. Made with moira-import; the capacity is by hand.

#rows = affine_map<(m, n, k) -> (m, k)>
#weights = affine_map<(m, n, k) -> (n, k)>
#sums = affine_map<(m, n, k) -> (m, n)>
#id = affine_map<(m, n) -> (m, n)>
#binary = {indexing_maps = [#id, #id, #id],
           iterator_types = ["parallel", "parallel"]}

func.func @main(
    %x: tensor<?x64xf32>, %factor: f64 {moe.name = "factor"},
    %router: tensor<2x64xf32>
        {moe.param = #moe.param<"model.layers.0.mlp.gate.weight">},
    %gate: tensor<2x256x64xf32>
        {moe.param = #moe.param<"model.layers.0.mlp.experts.{}.gate_proj.weight">},
    %up: tensor<2x256x64xf32>
        {moe.param = #moe.param<"model.layers.0.mlp.experts.{}.up_proj.weight">},
    %down: tensor<2x64x256xf32>
        {moe.param = #moe.param<"model.layers.0.mlp.experts.{}.down_proj.weight">})
    -> tensor<?x64xf32> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %tokens = tensor.dim %x, %c0 : tensor<?x64xf32>

  // Logits and scores are f32.
  %logits_empty = tensor.empty(%tokens) : tensor<?x2xf32>
  %logits_zero = linalg.fill ins(%zero : f32)
      outs(%logits_empty : tensor<?x2xf32>) -> tensor<?x2xf32>
  %logits = linalg.matmul indexing_maps = [#rows, #weights, #sums]
      ins(%x, %router : tensor<?x64xf32>, tensor<2x64xf32>)
      outs(%logits_zero : tensor<?x2xf32>) -> tensor<?x2xf32>
  %experts, %weights = moe.gate %logits router<>
      : tensor<?x2xf32> -> tensor<?x1xi32>, tensor<?x1xf32>

  // What does not fit is dropped.
  %c1 = arith.constant 1 : index
  %counts = moe.count %experts : tensor<?x1xi32> -> tensor<2xi32>
  %capacity = moe.capacity switch tokens(%tokens) factor(%factor) top_k(%c1)
      {experts = 2 : i64}
  %slots, %sizes, %bound = moe.assign %experts choice_major
      counts(%counts : tensor<2xi32>) capacity(%capacity)
      : tensor<?x1xi32> -> tensor<?x1xi32>, tensor<2xi32>, index
  %rows = moe.dispatch %x, %slots, %sizes, %bound
      : tensor<?x64xf32>, tensor<?x1xi32>, tensor<2xi32> -> tensor<?x64xf32>

  %results = moe.expert rows(%rows : tensor<?x64xf32>)
      groups(%sizes : tensor<2xi32>)
      per_expert(%gate, %up, %down
        : tensor<2x256x64xf32>, tensor<2x256x64xf32>, tensor<2x64x256xf32>)
      -> tensor<?x64xf32> {
  ^bb0(%r: tensor<?x64xf32>, %g: tensor<256x64xf32>, %u: tensor<256x64xf32>,
       %d: tensor<64x256xf32>):
    %i0 = arith.constant 0 : index
    %f0 = arith.constant 0.0 : f32
    %n = tensor.dim %r, %i0 : tensor<?x64xf32>
    %a_empty = tensor.empty(%n) : tensor<?x256xf32>
    %a_zero = linalg.fill ins(%f0 : f32)
        outs(%a_empty : tensor<?x256xf32>) -> tensor<?x256xf32>
    %a = linalg.matmul indexing_maps = [#rows, #weights, #sums]
        ins(%r, %g : tensor<?x64xf32>, tensor<256x64xf32>)
        outs(%a_zero : tensor<?x256xf32>) -> tensor<?x256xf32>
    %b_empty = tensor.empty(%n) : tensor<?x256xf32>
    %b_zero = linalg.fill ins(%f0 : f32)
        outs(%b_empty : tensor<?x256xf32>) -> tensor<?x256xf32>
    %b = linalg.matmul indexing_maps = [#rows, #weights, #sums]
        ins(%r, %u : tensor<?x64xf32>, tensor<256x64xf32>)
        outs(%b_zero : tensor<?x256xf32>) -> tensor<?x256xf32>
    %h_empty = tensor.empty(%n) : tensor<?x256xf32>
    %h = linalg.generic #binary
        ins(%a, %b : tensor<?x256xf32>, tensor<?x256xf32>) outs(%h_empty : tensor<?x256xf32>) {
    ^bb0(%a0: f32, %b0: f32, %out: f32):
      %one = arith.constant 1.0 : f32
      %minus = arith.negf %a0 : f32
      %exp = math.exp %minus : f32
      %denominator = arith.addf %one, %exp : f32
      %act = arith.divf %a0, %denominator : f32
      %product = arith.mulf %act, %b0 : f32
      linalg.yield %product : f32
    } -> tensor<?x256xf32>
    %o_empty = tensor.empty(%n) : tensor<?x64xf32>
    %o_zero = linalg.fill ins(%f0 : f32)
        outs(%o_empty : tensor<?x64xf32>) -> tensor<?x64xf32>
    %o = linalg.matmul indexing_maps = [#rows, #weights, #sums]
        ins(%h, %d : tensor<?x256xf32>, tensor<64x256xf32>)
        outs(%o_zero : tensor<?x64xf32>) -> tensor<?x64xf32>
    moe.yield %o : tensor<?x64xf32>
  }

  %y = moe.combine %results, %slots weights(%weights : tensor<?x1xf32>)
      : tensor<?x64xf32>, tensor<?x1xi32> -> tensor<?x64xf32>
  return %y : tensor<?x64xf32>
}
