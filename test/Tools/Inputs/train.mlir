// A layer of experts between an embedding and a head: predicts a byte from the
// one before it. Small, for tests of training.

#rows = affine_map<(m, n, k) -> (m, k)>
#weights = affine_map<(m, n, k) -> (n, k)>
#sums = affine_map<(m, n, k) -> (m, n)>
#id = affine_map<(m, n) -> (m, n)>
#row = affine_map<(m, n) -> (m)>

#elementwise = {indexing_maps = [#id, #id, #id],
                iterator_types = ["parallel", "parallel"]}
#row_sum = {indexing_maps = [#id, #row],
            iterator_types = ["parallel", "reduction"]}

!rows = tensor<?x16xf32>
!router = tensor<4x16xf32>
!up = tensor<4x24x16xf32>
!down = tensor<4x16x24xf32>
!bytes = tensor<?x8xi32>
!vocabulary = tensor<?x128xf32>

func.func private @moe(%x: !rows, %router: !router, %gate: !up, %up: !up,
    %down: !down) -> (!rows, tensor<f32>) {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %t = tensor.dim %x, %c0 : !rows
  %logits_empty = tensor.empty(%t) : tensor<?x4xf32>
  %logits_start = linalg.fill ins(%zero : f32)
      outs(%logits_empty : tensor<?x4xf32>) -> tensor<?x4xf32>
  %logits = linalg.matmul indexing_maps = [#rows, #weights, #sums]
      ins(%x, %router : !rows, !router)
      outs(%logits_start : tensor<?x4xf32>) -> tensor<?x4xf32>
  %ids, %weights = moe.gate %logits router<normalize = max_sum_eps>
      : tensor<?x4xf32> -> tensor<?x2xi32>, tensor<?x2xf32>
  %balance = moe.loss switch %logits ids(%ids : tensor<?x2xi32>) scope global
      : tensor<?x4xf32> -> tensor<f32>

  %counts = moe.count %ids : tensor<?x2xi32> -> tensor<4xi32>
  %slots, %sizes, %bound = moe.assign %ids choice_major
      counts(%counts : tensor<4xi32>)
      : tensor<?x2xi32> -> tensor<?x2xi32>, tensor<4xi32>, index
  %rows = moe.dispatch %x, %slots, %sizes, %bound
      : !rows, tensor<?x2xi32>, tensor<4xi32> -> !rows
  %results = moe.expert rows(%rows : !rows) groups(%sizes : tensor<4xi32>)
      per_expert(%gate, %up, %down : !up, !up, !down) -> !rows {
  ^bb0(%r: !rows, %g: tensor<24x16xf32>, %u: tensor<24x16xf32>,
       %d: tensor<16x24xf32>):
    %i0 = arith.constant 0 : index
    %f0 = arith.constant 0.0 : f32
    %n = tensor.dim %r, %i0 : !rows
    %h_empty = tensor.empty(%n) : tensor<?x24xf32>
    %h_start = linalg.fill ins(%f0 : f32)
        outs(%h_empty : tensor<?x24xf32>) -> tensor<?x24xf32>
    %a = linalg.matmul indexing_maps = [#rows, #weights, #sums]
        ins(%r, %g : !rows, tensor<24x16xf32>)
        outs(%h_start : tensor<?x24xf32>) -> tensor<?x24xf32>
    %b = linalg.matmul indexing_maps = [#rows, #weights, #sums]
        ins(%r, %u : !rows, tensor<24x16xf32>)
        outs(%h_start : tensor<?x24xf32>) -> tensor<?x24xf32>
    %h = linalg.generic #elementwise
        ins(%a, %b : tensor<?x24xf32>, tensor<?x24xf32>)
        outs(%h_empty : tensor<?x24xf32>) {
    ^bb0(%a0: f32, %b0: f32, %out: f32):
      %one = arith.constant 1.0 : f32
      %minus = arith.negf %a0 : f32
      %exp = math.exp %minus : f32
      %denominator = arith.addf %one, %exp : f32
      %act = arith.divf %a0, %denominator : f32
      %product = arith.mulf %act, %b0 : f32
      linalg.yield %product : f32
    } -> tensor<?x24xf32>
    %y_empty = tensor.empty(%n) : !rows
    %y_start = linalg.fill ins(%f0 : f32) outs(%y_empty : !rows) -> !rows
    %y = linalg.matmul indexing_maps = [#rows, #weights, #sums]
        ins(%h, %d : tensor<?x24xf32>, tensor<16x24xf32>)
        outs(%y_start : !rows) -> !rows
    moe.yield %y : !rows
  }
  %y = moe.combine %results, %slots weights(%weights : tensor<?x2xf32>)
      : !rows, tensor<?x2xi32> -> !rows
  return %y, %balance : !rows, tensor<f32>
}

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

func.func @main(%tokens: !bytes, %targets: !bytes,
    %table: tensor<128x16xf32> {moe.param = #moe.param<"embedding.weight">},
    %router: !router {moe.param = #moe.param<"router.weight">},
    %gate: !up {moe.param = #moe.param<"experts.{}.gate.weight">},
    %up: !up {moe.param = #moe.param<"experts.{}.up.weight">},
    %down: !down {moe.param = #moe.param<"experts.{}.down.weight">},
    %head: tensor<128x16xf32> {moe.param = #moe.param<"head.weight">})
    -> (tensor<f32>, tensor<f32>) {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
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
  %x = linalg.matmul ins(%hot, %table : !vocabulary, tensor<128x16xf32>)
      outs(%start : !rows) -> !rows
  %y, %balance = func.call @moe(%x, %router, %gate, %up, %down)
      : (!rows, !router, !up, !up, !down) -> (!rows, tensor<f32>)
  %sum = arith.addf %x, %y : !rows
  %logits_empty = tensor.empty(%t) : !vocabulary
  %logits_start = linalg.fill ins(%zero : f32) outs(%logits_empty : !vocabulary)
      -> !vocabulary
  %logits = linalg.matmul indexing_maps = [#rows, #weights, #sums]
      ins(%sum, %head : !rows, tensor<128x16xf32>)
      outs(%logits_start : !vocabulary) -> !vocabulary
  %loss = func.call @cross_entropy(%logits, %targets)
      : (!vocabulary, !bytes) -> tensor<f32>
  return %loss, %balance : tensor<f32>, tensor<f32>
}
