#id = affine_map<(m, n) -> (m, n)>
func.func @main(%x: tensor<5x64xf32>) -> tensor<2x64x64xbf16> {
  %sizes = arith.constant dense<[3, 2]> : tensor<2xi32>
  %empty = tensor.empty() : tensor<5x64xbf16>
  %rows = linalg.generic {indexing_maps = [#id, #id],
      iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<5x64xf32>) outs(%empty : tensor<5x64xbf16>) {
  ^bb0(%wide: f32, %out: bf16):
    %narrow = arith.truncf %wide : f32 to bf16
    linalg.yield %narrow : bf16
  } -> tensor<5x64xbf16>
  %dw = moe.grouped_matmul rows(%rows, %rows : tensor<5x64xbf16>, tensor<5x64xbf16>)
      groups(%sizes : tensor<2xi32>) nk contraction -> tensor<2x64x64xbf16> {
  }
  return %dw : tensor<2x64x64xbf16>
}
