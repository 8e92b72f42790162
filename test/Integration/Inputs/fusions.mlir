#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#mn = affine_map<(m, n, k) -> (m, n)>
#id = affine_map<(m, n) -> (m, n)>
#row = affine_map<(m, n) -> (m, 0)>
func.func @main(%x: tensor<?x24xbf16>, %pair: tensor<?x1xf32>, %router: tensor<6x24xbf16> {moe.param = #moe.param<"router">},
    %router_bias: tensor<6xf32> {moe.param = #moe.param<"router_bias">},
    %w: tensor<6x40x24xbf16> {moe.param = #moe.param<"gate_up", transpose>},
    %b: tensor<6x40xbf16> {moe.param = #moe.param<"gate_up_bias">},
    %down: tensor<6x24x20xbf16> {moe.param = #moe.param<"down.{}">},
    %db: tensor<6x24xbf16> {moe.param = #moe.param<"down_bias">}) -> tensor<?x24xbf16> {
  %c0 = arith.constant 0 : index
  %t = tensor.dim %x, %c0 : tensor<?x24xbf16>
  %le = tensor.empty(%t) : tensor<?x6xf32>
  %lz = linalg.broadcast ins(%router_bias : tensor<6xf32>) outs(%le : tensor<?x6xf32>) dimensions = [0]
  %wide_logits = linalg.matmul indexing_maps = [#mk, #nk, #mn]
      ins(%x, %router : tensor<?x24xbf16>, tensor<6x24xbf16>) outs(%lz : tensor<?x6xf32>) -> tensor<?x6xf32>
  %logits = arith.truncf %wide_logits : tensor<?x6xf32> to tensor<?x6xbf16>
  %ids, %weights = moe.gate %logits router<after_top_k> : tensor<?x6xbf16> -> tensor<?x3xi32>, tensor<?x3xf32>
  %counts = moe.count %ids : tensor<?x3xi32> -> tensor<6xi32>
  %slots, %sizes, %bound = moe.assign %ids choice_major counts(%counts : tensor<6xi32>) : tensor<?x3xi32> -> tensor<?x3xi32>, tensor<6xi32>, index
  %rows = moe.dispatch %x, %slots, %sizes, %bound : tensor<?x24xbf16>, tensor<?x3xi32>, tensor<6xi32> -> tensor<?x24xbf16>
  %pairs = moe.dispatch %pair, %slots, %sizes, %bound : tensor<?x1xf32>, tensor<?x3xi32>, tensor<6xi32> -> tensor<?x1xf32>
  %y = moe.expert rows(%rows, %pairs : tensor<?x24xbf16>, tensor<?x1xf32>) groups(%sizes : tensor<6xi32>)
      per_expert(%w, %b, %down, %db : tensor<6x40x24xbf16>, tensor<6x40xbf16>, tensor<6x24x20xbf16>, tensor<6x24xbf16>) -> tensor<?x24xbf16> {
  ^bb0(%r: tensor<?x24xbf16>, %s: tensor<?x1xf32>, %we: tensor<40x24xbf16>, %be: tensor<40xbf16>, %d: tensor<24x20xbf16>, %dbe: tensor<24xbf16>):
    %i0 = arith.constant 0 : index
    %n = tensor.dim %r, %i0 : tensor<?x24xbf16>
    %e2 = tensor.empty(%n) : tensor<?x40xf32>
    %wide = arith.extf %be : tensor<40xbf16> to tensor<40xf32>
    %init = linalg.broadcast ins(%wide : tensor<40xf32>) outs(%e2 : tensor<?x40xf32>) dimensions = [0]
    %gu = linalg.contract indexing_maps = [#mk, #nk, #mn] ins(%r, %we : tensor<?x24xbf16>, tensor<40x24xbf16>) outs(%init : tensor<?x40xf32>) -> tensor<?x40xf32>
    %g = tensor.extract_slice %gu[0, 0] [%n, 20] [1, 2] : tensor<?x40xf32> to tensor<?x20xf32>
    %u = tensor.extract_slice %gu[0, 1] [%n, 20] [1, 2] : tensor<?x40xf32> to tensor<?x20xf32>
    %e = tensor.empty(%n) : tensor<?x20xbf16>
    %h = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%g, %u : tensor<?x20xf32>, tensor<?x20xf32>) outs(%e : tensor<?x20xbf16>) {
    ^bb0(%a: f32, %c: f32, %out: bf16):
      %limit = arith.constant 7.0 : f32
      %low = arith.constant -7.0 : f32
      %one = arith.constant 1.0 : f32
      %alpha = arith.constant 1.702 : f32
      %ga = arith.minimumf %a, %limit : f32
      %ub = arith.minimumf %c, %limit : f32
      %uc = arith.maximumf %ub, %low : f32
      %scaled = arith.mulf %ga, %alpha : f32
      %neg = arith.negf %scaled : f32
      %exp = math.exp %neg : f32
      %den = arith.addf %one, %exp : f32
      %glu = arith.divf %ga, %den : f32
      %u1 = arith.addf %uc, %one : f32
      %p = arith.mulf %u1, %glu : f32
      %q = arith.truncf %p : f32 to bf16
      linalg.yield %q : bf16
    } -> tensor<?x20xbf16>
    %e3 = tensor.empty(%n) : tensor<?x24xf32>
    %wide2 = arith.extf %dbe : tensor<24xbf16> to tensor<24xf32>
    %init2 = linalg.broadcast ins(%wide2 : tensor<24xf32>) outs(%e3 : tensor<?x24xf32>) dimensions = [0]
    %o = linalg.contract indexing_maps = [#mk, #nk, #mn] ins(%h, %d : tensor<?x20xbf16>, tensor<24x20xbf16>) outs(%init2 : tensor<?x24xf32>) -> tensor<?x24xf32>
    %e4 = tensor.empty(%n) : tensor<?x24xbf16>
    %q = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
        ins(%o, %s : tensor<?x24xf32>, tensor<?x1xf32>) outs(%e4 : tensor<?x24xbf16>) {
    ^bb0(%a: f32, %c: f32, %out: bf16):
      %p = arith.mulf %a, %c : f32
      %rounded = arith.truncf %p : f32 to bf16
      linalg.yield %rounded : bf16
    } -> tensor<?x24xbf16>
    moe.yield %q : tensor<?x24xbf16>
  }
  %z = moe.combine %y, %slots : tensor<?x24xbf16>, tensor<?x3xi32> -> tensor<?x24xbf16>
  return %z : tensor<?x24xbf16>
}
