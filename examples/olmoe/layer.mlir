// Layer 0 of OlmoeForCausalLM: 64 experts of width 1024, 8 per token,
// rows of 2048. Written by moira-import.

#rows = affine_map<(m, n, k) -> (m, k)>
#weights = affine_map<(m, n, k) -> (n, k)>
#sums = affine_map<(m, n, k) -> (m, n)>
#id = affine_map<(m, n) -> (m, n)>
#unary = {indexing_maps = [#id, #id],
          iterator_types = ["parallel", "parallel"]}
#binary = {indexing_maps = [#id, #id, #id],
           iterator_types = ["parallel", "parallel"]}

func.func @main(
    %x: tensor<?x2048xbf16>,
    %router: tensor<64x2048xbf16>
        {moe.param = #moe.param<"model.layers.0.mlp.gate.weight">},
    %gate: tensor<64x1024x2048xbf16>
        {moe.param = #moe.param<"model.layers.0.mlp.experts.{}.gate_proj.weight">},
    %up: tensor<64x1024x2048xbf16>
        {moe.param = #moe.param<"model.layers.0.mlp.experts.{}.up_proj.weight">},
    %down: tensor<64x2048x1024xbf16>
        {moe.param = #moe.param<"model.layers.0.mlp.experts.{}.down_proj.weight">})
    -> tensor<?x2048xbf16> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %tokens = tensor.dim %x, %c0 : tensor<?x2048xbf16>

  // Logits are rounded to bf16; scores are f32.
  %wide_logits_empty = tensor.empty(%tokens) : tensor<?x64xf32>
  %wide_logits_zero = linalg.fill ins(%zero : f32)
      outs(%wide_logits_empty : tensor<?x64xf32>) -> tensor<?x64xf32>
  %wide_logits = linalg.matmul indexing_maps = [#rows, #weights, #sums]
      ins(%x, %router : tensor<?x2048xbf16>, tensor<64x2048xbf16>)
      outs(%wide_logits_zero : tensor<?x64xf32>) -> tensor<?x64xf32>
  %logits_empty = tensor.empty(%tokens) : tensor<?x64xbf16>
  %logits = linalg.generic #unary
      ins(%wide_logits : tensor<?x64xf32>) outs(%logits_empty : tensor<?x64xbf16>) {
  ^bb0(%wide: f32, %out: bf16):
    %narrow = arith.truncf %wide : f32 to bf16
    linalg.yield %narrow : bf16
  } -> tensor<?x64xbf16>
  %experts, %wide_weights = moe.gate %logits router<>
      : tensor<?x64xbf16> -> tensor<?x8xi32>, tensor<?x8xf32>
  // The model keeps the weights in bf16.
  %weights_empty = tensor.empty(%tokens) : tensor<?x8xf32>
  %weights = linalg.generic #unary
      ins(%wide_weights : tensor<?x8xf32>) outs(%weights_empty : tensor<?x8xf32>) {
  ^bb0(%wide: f32, %out: f32):
    %narrow = arith.truncf %wide : f32 to bf16
    %value = arith.extf %narrow : bf16 to f32
    linalg.yield %value : f32
  } -> tensor<?x8xf32>

  // Dropless: every token gets all its experts.
  %counts = moe.count %experts : tensor<?x8xi32> -> tensor<64xi32>
  %slots, %sizes, %bound = moe.assign %experts choice_major
      counts(%counts : tensor<64xi32>)
      : tensor<?x8xi32> -> tensor<?x8xi32>, tensor<64xi32>, index
  %rows = moe.dispatch %x, %slots, %sizes, %bound
      : tensor<?x2048xbf16>, tensor<?x8xi32>, tensor<64xi32> -> tensor<?x2048xbf16>

  %results = moe.expert rows(%rows : tensor<?x2048xbf16>)
      groups(%sizes : tensor<64xi32>)
      per_expert(%gate, %up, %down
        : tensor<64x1024x2048xbf16>, tensor<64x1024x2048xbf16>, tensor<64x2048x1024xbf16>)
      -> tensor<?x2048xbf16> {
  ^bb0(%r: tensor<?x2048xbf16>, %g: tensor<1024x2048xbf16>, %u: tensor<1024x2048xbf16>,
       %d: tensor<2048x1024xbf16>):
    %i0 = arith.constant 0 : index
    %f0 = arith.constant 0.0 : f32
    %n = tensor.dim %r, %i0 : tensor<?x2048xbf16>
    %a_empty = tensor.empty(%n) : tensor<?x1024xf32>
    %a_zero = linalg.fill ins(%f0 : f32)
        outs(%a_empty : tensor<?x1024xf32>) -> tensor<?x1024xf32>
    %a = linalg.matmul indexing_maps = [#rows, #weights, #sums]
        ins(%r, %g : tensor<?x2048xbf16>, tensor<1024x2048xbf16>)
        outs(%a_zero : tensor<?x1024xf32>) -> tensor<?x1024xf32>
    %b_empty = tensor.empty(%n) : tensor<?x1024xf32>
    %b_zero = linalg.fill ins(%f0 : f32)
        outs(%b_empty : tensor<?x1024xf32>) -> tensor<?x1024xf32>
    %b = linalg.matmul indexing_maps = [#rows, #weights, #sums]
        ins(%r, %u : tensor<?x2048xbf16>, tensor<1024x2048xbf16>)
        outs(%b_zero : tensor<?x1024xf32>) -> tensor<?x1024xf32>
    %h_empty = tensor.empty(%n) : tensor<?x1024xbf16>
    %h = linalg.generic #binary
        ins(%a, %b : tensor<?x1024xf32>, tensor<?x1024xf32>) outs(%h_empty : tensor<?x1024xbf16>) {
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
    } -> tensor<?x1024xbf16>
    %wide_o_empty = tensor.empty(%n) : tensor<?x2048xf32>
    %wide_o_zero = linalg.fill ins(%f0 : f32)
        outs(%wide_o_empty : tensor<?x2048xf32>) -> tensor<?x2048xf32>
    %wide_o = linalg.matmul indexing_maps = [#rows, #weights, #sums]
        ins(%h, %d : tensor<?x1024xbf16>, tensor<2048x1024xbf16>)
        outs(%wide_o_zero : tensor<?x2048xf32>) -> tensor<?x2048xf32>
    %o_empty = tensor.empty(%n) : tensor<?x2048xbf16>
    %o = linalg.generic #unary
        ins(%wide_o : tensor<?x2048xf32>) outs(%o_empty : tensor<?x2048xbf16>) {
    ^bb0(%wide: f32, %out: bf16):
      %narrow = arith.truncf %wide : f32 to bf16
      linalg.yield %narrow : bf16
    } -> tensor<?x2048xbf16>
    moe.yield %o : tensor<?x2048xbf16>
  }

  %y = moe.combine %results, %slots weights(%weights : tensor<?x8xf32>)
      : tensor<?x2048xbf16>, tensor<?x8xi32> -> tensor<?x2048xbf16>
  return %y : tensor<?x2048xbf16>
}
