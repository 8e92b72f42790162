// Layer 0 of MixtralForCausalLM: 8 experts of width 14336, 2 per token,
// rows of 4096. Written by moira-import.

#rows = affine_map<(m, n, k) -> (m, k)>
#weights = affine_map<(m, n, k) -> (n, k)>
#sums = affine_map<(m, n, k) -> (m, n)>
#id = affine_map<(m, n) -> (m, n)>
#unary = {indexing_maps = [#id, #id],
          iterator_types = ["parallel", "parallel"]}
#binary = {indexing_maps = [#id, #id, #id],
           iterator_types = ["parallel", "parallel"]}

func.func @main(
    %x: tensor<?x4096xbf16>,
    %router: tensor<8x4096xbf16>
        {moe.param = #moe.param<"model.layers.0.block_sparse_moe.gate.weight">},
    %gate: tensor<8x14336x4096xbf16>
        {moe.param = #moe.param<"model.layers.0.block_sparse_moe.experts.{}.w1.weight">},
    %up: tensor<8x14336x4096xbf16>
        {moe.param = #moe.param<"model.layers.0.block_sparse_moe.experts.{}.w3.weight">},
    %down: tensor<8x4096x14336xbf16>
        {moe.param = #moe.param<"model.layers.0.block_sparse_moe.experts.{}.w2.weight">})
    -> tensor<?x4096xbf16> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %tokens = tensor.dim %x, %c0 : tensor<?x4096xbf16>

  // Logits are rounded to bf16; scores are f32.
  %wide_logits_empty = tensor.empty(%tokens) : tensor<?x8xf32>
  %wide_logits_zero = linalg.fill ins(%zero : f32)
      outs(%wide_logits_empty : tensor<?x8xf32>) -> tensor<?x8xf32>
  %wide_logits = linalg.matmul indexing_maps = [#rows, #weights, #sums]
      ins(%x, %router : tensor<?x4096xbf16>, tensor<8x4096xbf16>)
      outs(%wide_logits_zero : tensor<?x8xf32>) -> tensor<?x8xf32>
  %logits_empty = tensor.empty(%tokens) : tensor<?x8xbf16>
  %logits = linalg.generic #unary
      ins(%wide_logits : tensor<?x8xf32>) outs(%logits_empty : tensor<?x8xbf16>) {
  ^bb0(%wide: f32, %out: bf16):
    %narrow = arith.truncf %wide : f32 to bf16
    linalg.yield %narrow : bf16
  } -> tensor<?x8xbf16>
  %experts, %weights = moe.gate %logits router<normalize = sum_plus_eps>
      : tensor<?x8xbf16> -> tensor<?x2xi32>, tensor<?x2xf32>

  // Dropless: every token gets all its experts.
  %counts = moe.count %experts : tensor<?x2xi32> -> tensor<8xi32>
  %slots, %sizes, %bound = moe.assign %experts choice_major
      counts(%counts : tensor<8xi32>)
      : tensor<?x2xi32> -> tensor<?x2xi32>, tensor<8xi32>, index
  %rows = moe.dispatch %x, %slots, %sizes, %bound
      : tensor<?x4096xbf16>, tensor<?x2xi32>, tensor<8xi32> -> tensor<?x4096xbf16>

  %results = moe.expert rows(%rows : tensor<?x4096xbf16>)
      groups(%sizes : tensor<8xi32>)
      per_expert(%gate, %up, %down
        : tensor<8x14336x4096xbf16>, tensor<8x14336x4096xbf16>, tensor<8x4096x14336xbf16>)
      -> tensor<?x4096xbf16> {
  ^bb0(%r: tensor<?x4096xbf16>, %g: tensor<14336x4096xbf16>, %u: tensor<14336x4096xbf16>,
       %d: tensor<4096x14336xbf16>):
    %i0 = arith.constant 0 : index
    %f0 = arith.constant 0.0 : f32
    %n = tensor.dim %r, %i0 : tensor<?x4096xbf16>
    %a_empty = tensor.empty(%n) : tensor<?x14336xf32>
    %a_zero = linalg.fill ins(%f0 : f32)
        outs(%a_empty : tensor<?x14336xf32>) -> tensor<?x14336xf32>
    %a = linalg.matmul indexing_maps = [#rows, #weights, #sums]
        ins(%r, %g : tensor<?x4096xbf16>, tensor<14336x4096xbf16>)
        outs(%a_zero : tensor<?x14336xf32>) -> tensor<?x14336xf32>
    %b_empty = tensor.empty(%n) : tensor<?x14336xf32>
    %b_zero = linalg.fill ins(%f0 : f32)
        outs(%b_empty : tensor<?x14336xf32>) -> tensor<?x14336xf32>
    %b = linalg.matmul indexing_maps = [#rows, #weights, #sums]
        ins(%r, %u : tensor<?x4096xbf16>, tensor<14336x4096xbf16>)
        outs(%b_zero : tensor<?x14336xf32>) -> tensor<?x14336xf32>
    %h_empty = tensor.empty(%n) : tensor<?x14336xbf16>
    %h = linalg.generic #binary
        ins(%a, %b : tensor<?x14336xf32>, tensor<?x14336xf32>) outs(%h_empty : tensor<?x14336xbf16>) {
    ^bb0(%a0: f32, %b0: f32, %out: bf16):
      %a1_narrow = arith.truncf %a0 : f32 to bf16
      %a1 = arith.extf %a1_narrow : bf16 to f32
      %b1_narrow = arith.truncf %b0 : f32 to bf16
      %b1 = arith.extf %b1_narrow : bf16 to f32
      %one = arith.constant 1.0 : f32
      %minus = arith.negf %a1 : f32
      %exp = math.exp %minus : f32
      %denominator = arith.addf %one, %exp : f32
      %act = arith.divf %a1, %denominator : f32
      %act1_narrow = arith.truncf %act : f32 to bf16
      %act1 = arith.extf %act1_narrow : bf16 to f32
      %product = arith.mulf %act1, %b1 : f32
      %rounded = arith.truncf %product : f32 to bf16
      linalg.yield %rounded : bf16
    } -> tensor<?x14336xbf16>
    %wide_o_empty = tensor.empty(%n) : tensor<?x4096xf32>
    %wide_o_zero = linalg.fill ins(%f0 : f32)
        outs(%wide_o_empty : tensor<?x4096xf32>) -> tensor<?x4096xf32>
    %wide_o = linalg.matmul indexing_maps = [#rows, #weights, #sums]
        ins(%h, %d : tensor<?x14336xbf16>, tensor<4096x14336xbf16>)
        outs(%wide_o_zero : tensor<?x4096xf32>) -> tensor<?x4096xf32>
    %o_empty = tensor.empty(%n) : tensor<?x4096xbf16>
    %o = linalg.generic #unary
        ins(%wide_o : tensor<?x4096xf32>) outs(%o_empty : tensor<?x4096xbf16>) {
    ^bb0(%wide: f32, %out: bf16):
      %narrow = arith.truncf %wide : f32 to bf16
      linalg.yield %narrow : bf16
    } -> tensor<?x4096xbf16>
    moe.yield %o : tensor<?x4096xbf16>
  }

  %y = moe.combine %results, %slots weights(%weights : tensor<?x2xf32>)
      : tensor<?x4096xbf16>, tensor<?x2xi32> -> tensor<?x4096xbf16>
  return %y : tensor<?x4096xbf16>
}
