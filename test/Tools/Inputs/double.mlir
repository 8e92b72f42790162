// y = x + x, without a parameter: exact in every type.

#id = affine_map<(m, n) -> (m, n)>

func.func @main(%x: tensor<?x4xf32>) -> tensor<?x4xf32> {
  %c0 = arith.constant 0 : index
  %tokens = tensor.dim %x, %c0 : tensor<?x4xf32>
  %empty = tensor.empty(%tokens) : tensor<?x4xf32>
  %y = linalg.generic
      {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<?x4xf32>) outs(%empty : tensor<?x4xf32>) {
  ^bb0(%a: f32, %out: f32):
    %sum = arith.addf %a, %a : f32
    linalg.yield %sum : f32
  } -> tensor<?x4xf32>
  return %y : tensor<?x4xf32>
}
