// A decoder-only transformer of 2 M parameters with mixture-of-experts layers:
// 4 layers, rows of 96, 4 heads, sequences of 64 bytes, 8 experts of width 192
// of which each token takes 2. @main gives the loss of next bytes.
//
// Sequences are independent: dim 0 is what ranks share. T = 64 * sequences rows.

#rows = affine_map<(m, n, k) -> (m, k)>
#weights = affine_map<(m, n, k) -> (n, k)>
#sums = affine_map<(m, n, k) -> (m, n)>
#id = affine_map<(m, n) -> (m, n)>
#row = affine_map<(m, n) -> (m)>
#column = affine_map<(m, n) -> (n)>
#place = affine_map<(b, s, n) -> (s, n)>
#all = affine_map<(b, s, n) -> (b, s, n)>
// Of attention: batch, head, query i, key j, feature d.
#query = affine_map<(b, h, i, j, d) -> (b, i, h, d)>
#key = affine_map<(b, h, i, j, d) -> (b, j, h, d)>
#score = affine_map<(b, h, i, j, d) -> (b, h, i, j)>
#mixed_query = affine_map<(b, i, h, d, j) -> (b, h, i, j)>
#mixed_value = affine_map<(b, i, h, d, j) -> (b, j, h, d)>
#mixed = affine_map<(b, i, h, d, j) -> (b, i, h, d)>
#scores = affine_map<(b, h, i, j) -> (b, h, i, j)>

#elementwise = {indexing_maps = [#id, #id, #id],
                iterator_types = ["parallel", "parallel"]}
#row_sum = {indexing_maps = [#id, #row],
            iterator_types = ["parallel", "reduction"]}

!rows = tensor<?x96xf32>
!square = tensor<96x96xf32>

// x @ w^T.
func.func private @linear(%x: !rows, %w: !square) -> !rows {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %t = tensor.dim %x, %c0 : !rows
  %empty = tensor.empty(%t) : !rows
  %start = linalg.fill ins(%zero : f32) outs(%empty : !rows) -> !rows
  %y = linalg.matmul indexing_maps = [#rows, #weights, #sums]
      ins(%x, %w : !rows, !square) outs(%start : !rows) -> !rows
  return %y : !rows
}

func.func private @add(%x: !rows, %y: !rows) -> !rows {
  %sum = arith.addf %x, %y : !rows
  return %sum : !rows
}

// x / sqrt(mean(x^2) + 1e-5) * g, row by row.
func.func private @norm(%x: !rows, %g: tensor<96xf32>) -> !rows {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %t = tensor.dim %x, %c0 : !rows
  %empty = tensor.empty(%t) : tensor<?xf32>
  %start = linalg.fill ins(%zero : f32) outs(%empty : tensor<?xf32>)
      -> tensor<?xf32>
  %squares = linalg.generic #row_sum
      ins(%x : !rows) outs(%start : tensor<?xf32>) {
  ^bb0(%a: f32, %sum: f32):
    %square = arith.mulf %a, %a : f32
    %next = arith.addf %sum, %square : f32
    linalg.yield %next : f32
  } -> tensor<?xf32>
  %out = tensor.empty(%t) : !rows
  %y = linalg.generic {indexing_maps = [#id, #row, #column, #id],
                       iterator_types = ["parallel", "parallel"]}
      ins(%x, %squares, %g : !rows, tensor<?xf32>, tensor<96xf32>)
      outs(%out : !rows) {
  ^bb0(%a: f32, %s: f32, %gain: f32, %o: f32):
    %width = arith.constant 96.0 : f32
    %eps = arith.constant 1.0e-5 : f32
    %mean = arith.divf %s, %width : f32
    %more = arith.addf %mean, %eps : f32
    %inverse = math.rsqrt %more : f32
    %b = arith.mulf %a, %inverse : f32
    %c = arith.mulf %b, %gain : f32
    linalg.yield %c : f32
  } -> !rows
  return %y : !rows
}

!heads = tensor<?x64x4x24xf32>
!matrix = tensor<?x4x64x64xf32>

func.func private @split(%x: !rows, %sequences: index) -> !heads {
  %bytes = tensor.expand_shape %x [[0, 1], [2]]
      output_shape [%sequences, 64, 96] : !rows into tensor<?x64x96xf32>
  %heads = tensor.expand_shape %bytes [[0], [1], [2, 3]]
      output_shape [%sequences, 64, 4, 24] : tensor<?x64x96xf32> into !heads
  return %heads : !heads
}

// Causal attention of 4 heads; a query sees the keys up to its own place.
func.func private @attention(%x: !rows, %sequences: index, %wq: !square,
    %wk: !square, %wv: !square, %wo: !square) -> !rows {
  %zero = arith.constant 0.0 : f32
  %q_rows = func.call @linear(%x, %wq) : (!rows, !square) -> !rows
  %k_rows = func.call @linear(%x, %wk) : (!rows, !square) -> !rows
  %v_rows = func.call @linear(%x, %wv) : (!rows, !square) -> !rows
  %q = func.call @split(%q_rows, %sequences) : (!rows, index) -> !heads
  %k = func.call @split(%k_rows, %sequences) : (!rows, index) -> !heads
  %v = func.call @split(%v_rows, %sequences) : (!rows, index) -> !heads

  %empty = tensor.empty(%sequences) : !matrix
  %start = linalg.fill ins(%zero : f32) outs(%empty : !matrix) -> !matrix
  %products = linalg.generic {indexing_maps = [#query, #key, #score],
      iterator_types = ["parallel", "parallel", "parallel", "parallel",
                        "reduction"]}
      ins(%q, %k : !heads, !heads) outs(%start : !matrix) {
  ^bb0(%a: f32, %b: f32, %sum: f32):
    %product = arith.mulf %a, %b : f32
    %next = arith.addf %sum, %product : f32
    linalg.yield %next : f32
  } -> !matrix
  %masked = linalg.generic {indexing_maps = [#scores, #scores],
      iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%products : !matrix) outs(%empty : !matrix) {
  ^bb0(%a: f32, %o: f32):
    %i = linalg.index 2 : index
    %j = linalg.index 3 : index
    %scale = arith.constant 0.204124145 : f32 // 1 / sqrt(24)
    %never = arith.constant 0xFF800000 : f32
    %scaled = arith.mulf %a, %scale : f32
    %seen = arith.cmpi ule, %j, %i : index
    %b = arith.select %seen, %scaled, %never : f32
    linalg.yield %b : f32
  } -> !matrix
  %weights = linalg.softmax dimension(3) ins(%masked : !matrix)
      outs(%empty : !matrix) -> !matrix

  %out_empty = tensor.empty(%sequences) : !heads
  %out_start = linalg.fill ins(%zero : f32) outs(%out_empty : !heads) -> !heads
  %mixed = linalg.generic {indexing_maps = [#mixed_query, #mixed_value, #mixed],
      iterator_types = ["parallel", "parallel", "parallel", "parallel",
                        "reduction"]}
      ins(%weights, %v : !matrix, !heads) outs(%out_start : !heads) {
  ^bb0(%a: f32, %b: f32, %sum: f32):
    %product = arith.mulf %a, %b : f32
    %next = arith.addf %sum, %product : f32
    linalg.yield %next : f32
  } -> !heads
  %bytes = tensor.collapse_shape %mixed [[0], [1], [2, 3]]
      : !heads into tensor<?x64x96xf32>
  %rows = tensor.collapse_shape %bytes [[0, 1], [2]]
      : tensor<?x64x96xf32> into !rows
  %y = func.call @linear(%rows, %wo) : (!rows, !square) -> !rows
  return %y : !rows
}

!router = tensor<8x96xf32>
!up = tensor<8x192x96xf32>
!down = tensor<8x96x192xf32>

// Two of eight experts per row, each down(silu(gate(x)) * up(x)); and how evenly
// the router spreads the rows: 1 is even.
func.func private @moe(%x: !rows, %router: !router, %gate: !up, %up: !up,
    %down: !down) -> (!rows, tensor<f32>) {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %t = tensor.dim %x, %c0 : !rows
  %logits_empty = tensor.empty(%t) : tensor<?x8xf32>
  %logits_start = linalg.fill ins(%zero : f32)
      outs(%logits_empty : tensor<?x8xf32>) -> tensor<?x8xf32>
  %logits = linalg.matmul indexing_maps = [#rows, #weights, #sums]
      ins(%x, %router : !rows, !router)
      outs(%logits_start : tensor<?x8xf32>) -> tensor<?x8xf32>
  %ids, %weights = moe.gate %logits router<normalize = max_sum_eps>
      : tensor<?x8xf32> -> tensor<?x2xi32>, tensor<?x2xf32>
  %balance = moe.loss switch %logits ids(%ids : tensor<?x2xi32>) scope global
      : tensor<?x8xf32> -> tensor<f32>

  %counts = moe.count %ids : tensor<?x2xi32> -> tensor<8xi32>
  %slots, %sizes, %bound = moe.assign %ids choice_major
      counts(%counts : tensor<8xi32>)
      : tensor<?x2xi32> -> tensor<?x2xi32>, tensor<8xi32>, index
  %rows = moe.dispatch %x, %slots, %sizes, %bound
      : !rows, tensor<?x2xi32>, tensor<8xi32> -> !rows
  %results = moe.expert rows(%rows : !rows) groups(%sizes : tensor<8xi32>)
      per_expert(%gate, %up, %down : !up, !up, !down) -> !rows {
  ^bb0(%r: !rows, %g: tensor<192x96xf32>, %u: tensor<192x96xf32>,
       %d: tensor<96x192xf32>):
    %i0 = arith.constant 0 : index
    %f0 = arith.constant 0.0 : f32
    %n = tensor.dim %r, %i0 : !rows
    %h_empty = tensor.empty(%n) : tensor<?x192xf32>
    %h_start = linalg.fill ins(%f0 : f32)
        outs(%h_empty : tensor<?x192xf32>) -> tensor<?x192xf32>
    %a = linalg.matmul indexing_maps = [#rows, #weights, #sums]
        ins(%r, %g : !rows, tensor<192x96xf32>)
        outs(%h_start : tensor<?x192xf32>) -> tensor<?x192xf32>
    %b = linalg.matmul indexing_maps = [#rows, #weights, #sums]
        ins(%r, %u : !rows, tensor<192x96xf32>)
        outs(%h_start : tensor<?x192xf32>) -> tensor<?x192xf32>
    %h = linalg.generic #elementwise
        ins(%a, %b : tensor<?x192xf32>, tensor<?x192xf32>)
        outs(%h_empty : tensor<?x192xf32>) {
    ^bb0(%a0: f32, %b0: f32, %out: f32):
      %one = arith.constant 1.0 : f32
      %minus = arith.negf %a0 : f32
      %exp = math.exp %minus : f32
      %denominator = arith.addf %one, %exp : f32
      %act = arith.divf %a0, %denominator : f32
      %product = arith.mulf %act, %b0 : f32
      linalg.yield %product : f32
    } -> tensor<?x192xf32>
    %y_empty = tensor.empty(%n) : !rows
    %y_start = linalg.fill ins(%f0 : f32) outs(%y_empty : !rows) -> !rows
    %y = linalg.matmul indexing_maps = [#rows, #weights, #sums]
        ins(%h, %d : tensor<?x192xf32>, tensor<96x192xf32>)
        outs(%y_start : !rows) -> !rows
    moe.yield %y : !rows
  }
  %y = moe.combine %results, %slots weights(%weights : tensor<?x2xf32>)
      : !rows, tensor<?x2xi32> -> !rows
  return %y, %balance : !rows, tensor<f32>
}

// x + attention(norm(x)), then x + moe(norm(x)).
func.func private @layer(%x: !rows, %sequences: index,
    %norm1: tensor<96xf32>, %wq: !square, %wk: !square, %wv: !square,
    %wo: !square, %norm2: tensor<96xf32>, %router: !router, %gate: !up,
    %up: !up, %down: !down) -> (!rows, tensor<f32>) {
  %a = func.call @norm(%x, %norm1) : (!rows, tensor<96xf32>) -> !rows
  %b = func.call @attention(%a, %sequences, %wq, %wk, %wv, %wo)
      : (!rows, index, !square, !square, !square, !square) -> !rows
  %c = func.call @add(%x, %b) : (!rows, !rows) -> !rows
  %d = func.call @norm(%c, %norm2) : (!rows, tensor<96xf32>) -> !rows
  %e, %balance = func.call @moe(%d, %router, %gate, %up, %down)
      : (!rows, !router, !up, !up, !down) -> (!rows, tensor<f32>)
  %f = func.call @add(%c, %e) : (!rows, !rows) -> !rows
  return %f, %balance : !rows, tensor<f32>
}

!bytes = tensor<?x64xi32>
!vocabulary = tensor<?x128xf32>

// The rows of the bytes, and of their places in the sequence. A product with
// ones and zeros, so that its gradient is one too.
func.func private @embed(%tokens: !bytes, %bytes: tensor<128x96xf32>,
    %places: tensor<64x96xf32>) -> !rows {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %sequences = tensor.dim %tokens, %c0 : !bytes
  %ids = tensor.collapse_shape %tokens [[0, 1]] : !bytes into tensor<?xi32>
  %t = tensor.dim %ids, %c0 : tensor<?xi32>
  %hot_empty = tensor.empty(%t) : !vocabulary
  %hot = linalg.generic {indexing_maps = [#row, #id],
                         iterator_types = ["parallel", "parallel"]}
      ins(%ids : tensor<?xi32>) outs(%hot_empty : !vocabulary) {
  ^bb0(%byte: i32, %o: f32):
    %v = linalg.index 1 : index
    %number = arith.index_cast %v : index to i32
    %same = arith.cmpi eq, %byte, %number : i32
    %yes = arith.constant 1.0 : f32
    %no = arith.constant 0.0 : f32
    %value = arith.select %same, %yes, %no : f32
    linalg.yield %value : f32
  } -> !vocabulary
  %empty = tensor.empty(%t) : !rows
  %start = linalg.fill ins(%zero : f32) outs(%empty : !rows) -> !rows
  %rows = linalg.matmul ins(%hot, %bytes : !vocabulary, tensor<128x96xf32>)
      outs(%start : !rows) -> !rows
  %split = tensor.expand_shape %rows [[0, 1], [2]]
      output_shape [%sequences, 64, 96] : !rows into tensor<?x64x96xf32>
  %out = tensor.empty(%sequences) : tensor<?x64x96xf32>
  %placed = linalg.generic {indexing_maps = [#all, #place, #all],
      iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%split, %places : tensor<?x64x96xf32>, tensor<64x96xf32>)
      outs(%out : tensor<?x64x96xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %sum = arith.addf %a, %b : f32
    linalg.yield %sum : f32
  } -> tensor<?x64x96xf32>
  %x = tensor.collapse_shape %placed [[0, 1], [2]]
      : tensor<?x64x96xf32> into !rows
  return %x : !rows
}

// The mean over all bytes of log(sum(exp(logits))) - logits[target].
func.func private @cross_entropy(%logits: !vocabulary, %targets: !bytes)
    -> tensor<f32> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %never = arith.constant 0xFF800000 : f32
  %ids = tensor.collapse_shape %targets [[0, 1]] : !bytes into tensor<?xi32>
  %t = tensor.dim %ids, %c0 : tensor<?xi32>
  %empty = tensor.empty(%t) : tensor<?xf32>
  %start = linalg.fill ins(%zero : f32) outs(%empty : tensor<?xf32>)
      -> tensor<?xf32>
  %least = linalg.fill ins(%never : f32) outs(%empty : tensor<?xf32>)
      -> tensor<?xf32>
  %top = linalg.generic #row_sum
      ins(%logits : !vocabulary) outs(%least : tensor<?xf32>) {
  ^bb0(%a: f32, %most: f32):
    %next = arith.maximumf %most, %a : f32
    linalg.yield %next : f32
  } -> tensor<?xf32>
  %sums = linalg.generic {indexing_maps = [#id, #row, #row],
                          iterator_types = ["parallel", "reduction"]}
      ins(%logits, %top : !vocabulary, tensor<?xf32>)
      outs(%start : tensor<?xf32>) {
  ^bb0(%a: f32, %most: f32, %sum: f32):
    %below = arith.subf %a, %most : f32
    %power = math.exp %below : f32
    %next = arith.addf %sum, %power : f32
    linalg.yield %next : f32
  } -> tensor<?xf32>
  %chosen = linalg.generic {indexing_maps = [#id, #row, #row],
                            iterator_types = ["parallel", "reduction"]}
      ins(%logits, %ids : !vocabulary, tensor<?xi32>)
      outs(%start : tensor<?xf32>) {
  ^bb0(%a: f32, %byte: i32, %sum: f32):
    %v = linalg.index 1 : index
    %number = arith.index_cast %v : index to i32
    %same = arith.cmpi eq, %byte, %number : i32
    %no = arith.constant 0.0 : f32
    %value = arith.select %same, %a, %no : f32
    %next = arith.addf %sum, %value : f32
    linalg.yield %next : f32
  } -> tensor<?xf32>
  // Sums over all bytes of all ranks, and how many there are.
  %none = tensor.empty() : tensor<f32>
  %nothing = linalg.fill ins(%zero : f32) outs(%none : tensor<f32>)
      -> tensor<f32>
  %total = linalg.generic {
      indexing_maps = [affine_map<(t) -> (t)>, affine_map<(t) -> (t)>,
                       affine_map<(t) -> (t)>, affine_map<(t) -> ()>],
      iterator_types = ["reduction"]}
      ins(%top, %sums, %chosen
          : tensor<?xf32>, tensor<?xf32>, tensor<?xf32>)
      outs(%nothing : tensor<f32>) {
  ^bb0(%most: f32, %sum: f32, %value: f32, %all: f32):
    %log = math.log %sum : f32
    %full = arith.addf %log, %most : f32
    %loss = arith.subf %full, %value : f32
    %next = arith.addf %all, %loss : f32
    linalg.yield %next : f32
  } -> tensor<f32>
  %number = linalg.generic {
      indexing_maps = [affine_map<(t) -> (t)>, affine_map<(t) -> ()>],
      iterator_types = ["reduction"]}
      ins(%ids : tensor<?xi32>) outs(%nothing : tensor<f32>) {
  ^bb0(%byte: i32, %all: f32):
    %one = arith.constant 1.0 : f32
    %next = arith.addf %all, %one : f32
    linalg.yield %next : f32
  } -> tensor<f32>
  %mean = arith.divf %total, %number : tensor<f32>
  return %mean : tensor<f32>
}

// The loss, and its parts: the cross entropy and the sum over layers of how
// unevenly tokens are spread.
func.func @main(
    %tokens: tensor<?x64xi32>,
    %targets: tensor<?x64xi32>,
    %bytes: tensor<128x96xf32> {moe.param = #moe.param<"embedding.weight">},
    %places: tensor<64x96xf32> {moe.param = #moe.param<"positions.weight">},
    %norm1_0: tensor<96xf32>
        {moe.param = #moe.param<"layers.0.attention_norm.weight">},
    %wq_0: !square
        {moe.param = #moe.param<"layers.0.attention.q_proj.weight">},
    %wk_0: !square
        {moe.param = #moe.param<"layers.0.attention.k_proj.weight">},
    %wv_0: !square
        {moe.param = #moe.param<"layers.0.attention.v_proj.weight">},
    %wo_0: !square
        {moe.param = #moe.param<"layers.0.attention.o_proj.weight">},
    %norm2_0: tensor<96xf32>
        {moe.param = #moe.param<"layers.0.moe_norm.weight">},
    %router_0: !router
        {moe.param = #moe.param<"layers.0.moe.router.weight">},
    %gate_0: !up
        {moe.param = #moe.param<"layers.0.moe.experts.{}.gate_proj.weight">},
    %up_0: !up
        {moe.param = #moe.param<"layers.0.moe.experts.{}.up_proj.weight">},
    %down_0: !down
        {moe.param = #moe.param<"layers.0.moe.experts.{}.down_proj.weight">},
    %norm1_1: tensor<96xf32>
        {moe.param = #moe.param<"layers.1.attention_norm.weight">},
    %wq_1: !square
        {moe.param = #moe.param<"layers.1.attention.q_proj.weight">},
    %wk_1: !square
        {moe.param = #moe.param<"layers.1.attention.k_proj.weight">},
    %wv_1: !square
        {moe.param = #moe.param<"layers.1.attention.v_proj.weight">},
    %wo_1: !square
        {moe.param = #moe.param<"layers.1.attention.o_proj.weight">},
    %norm2_1: tensor<96xf32>
        {moe.param = #moe.param<"layers.1.moe_norm.weight">},
    %router_1: !router
        {moe.param = #moe.param<"layers.1.moe.router.weight">},
    %gate_1: !up
        {moe.param = #moe.param<"layers.1.moe.experts.{}.gate_proj.weight">},
    %up_1: !up
        {moe.param = #moe.param<"layers.1.moe.experts.{}.up_proj.weight">},
    %down_1: !down
        {moe.param = #moe.param<"layers.1.moe.experts.{}.down_proj.weight">},
    %norm1_2: tensor<96xf32>
        {moe.param = #moe.param<"layers.2.attention_norm.weight">},
    %wq_2: !square
        {moe.param = #moe.param<"layers.2.attention.q_proj.weight">},
    %wk_2: !square
        {moe.param = #moe.param<"layers.2.attention.k_proj.weight">},
    %wv_2: !square
        {moe.param = #moe.param<"layers.2.attention.v_proj.weight">},
    %wo_2: !square
        {moe.param = #moe.param<"layers.2.attention.o_proj.weight">},
    %norm2_2: tensor<96xf32>
        {moe.param = #moe.param<"layers.2.moe_norm.weight">},
    %router_2: !router
        {moe.param = #moe.param<"layers.2.moe.router.weight">},
    %gate_2: !up
        {moe.param = #moe.param<"layers.2.moe.experts.{}.gate_proj.weight">},
    %up_2: !up
        {moe.param = #moe.param<"layers.2.moe.experts.{}.up_proj.weight">},
    %down_2: !down
        {moe.param = #moe.param<"layers.2.moe.experts.{}.down_proj.weight">},
    %norm1_3: tensor<96xf32>
        {moe.param = #moe.param<"layers.3.attention_norm.weight">},
    %wq_3: !square
        {moe.param = #moe.param<"layers.3.attention.q_proj.weight">},
    %wk_3: !square
        {moe.param = #moe.param<"layers.3.attention.k_proj.weight">},
    %wv_3: !square
        {moe.param = #moe.param<"layers.3.attention.v_proj.weight">},
    %wo_3: !square
        {moe.param = #moe.param<"layers.3.attention.o_proj.weight">},
    %norm2_3: tensor<96xf32>
        {moe.param = #moe.param<"layers.3.moe_norm.weight">},
    %router_3: !router
        {moe.param = #moe.param<"layers.3.moe.router.weight">},
    %gate_3: !up
        {moe.param = #moe.param<"layers.3.moe.experts.{}.gate_proj.weight">},
    %up_3: !up
        {moe.param = #moe.param<"layers.3.moe.experts.{}.up_proj.weight">},
    %down_3: !down
        {moe.param = #moe.param<"layers.3.moe.experts.{}.down_proj.weight">},
    %norm: tensor<96xf32> {moe.param = #moe.param<"norm.weight">},
    %head: tensor<128x96xf32> {moe.param = #moe.param<"head.weight">})
    -> (tensor<f32>, tensor<f32>, tensor<f32>) {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %sequences = tensor.dim %tokens, %c0 : !bytes
  %x0 = func.call @embed(%tokens, %bytes, %places)
      : (!bytes, tensor<128x96xf32>, tensor<64x96xf32>) -> !rows
  %x1, %balance0 = func.call @layer(%x0, %sequences, %norm1_0, %wq_0, %wk_0,
      %wv_0, %wo_0, %norm2_0, %router_0, %gate_0, %up_0, %down_0)
      : (!rows, index, tensor<96xf32>, !square, !square, !square, !square,
         tensor<96xf32>, !router, !up, !up, !down) -> (!rows, tensor<f32>)
  %x2, %balance1 = func.call @layer(%x1, %sequences, %norm1_1, %wq_1, %wk_1,
      %wv_1, %wo_1, %norm2_1, %router_1, %gate_1, %up_1, %down_1)
      : (!rows, index, tensor<96xf32>, !square, !square, !square, !square,
         tensor<96xf32>, !router, !up, !up, !down) -> (!rows, tensor<f32>)
  %x3, %balance2 = func.call @layer(%x2, %sequences, %norm1_2, %wq_2, %wk_2,
      %wv_2, %wo_2, %norm2_2, %router_2, %gate_2, %up_2, %down_2)
      : (!rows, index, tensor<96xf32>, !square, !square, !square, !square,
         tensor<96xf32>, !router, !up, !up, !down) -> (!rows, tensor<f32>)
  %x4, %balance3 = func.call @layer(%x3, %sequences, %norm1_3, %wq_3, %wk_3,
      %wv_3, %wo_3, %norm2_3, %router_3, %gate_3, %up_3, %down_3)
      : (!rows, index, tensor<96xf32>, !square, !square, !square, !square,
         tensor<96xf32>, !router, !up, !up, !down) -> (!rows, tensor<f32>)
  %last = func.call @norm(%x4, %norm) : (!rows, tensor<96xf32>) -> !rows
  %t = tensor.dim %last, %c0 : !rows
  %logits_empty = tensor.empty(%t) : !vocabulary
  %logits_start = linalg.fill ins(%zero : f32)
      outs(%logits_empty : !vocabulary) -> !vocabulary
  %logits = linalg.matmul indexing_maps = [#rows, #weights, #sums]
      ins(%last, %head : !rows, tensor<128x96xf32>)
      outs(%logits_start : !vocabulary) -> !vocabulary
  %entropy = func.call @cross_entropy(%logits, %targets)
      : (!vocabulary, !bytes) -> tensor<f32>

  %balance01 = arith.addf %balance0, %balance1 : tensor<f32>
  %balance23 = arith.addf %balance2, %balance3 : tensor<f32>
  %balance = arith.addf %balance01, %balance23 : tensor<f32>
  %weight = arith.constant dense<0.01> : tensor<f32>
  %part = arith.mulf %balance, %weight : tensor<f32>
  %loss = arith.addf %entropy, %part : tensor<f32>
  return %loss, %entropy, %balance : tensor<f32>, tensor<f32>, tensor<f32>
}
