// RUN: moira-opt %s --verify-roundtrip
// RUN: moira-opt %s --mlir-print-op-generic | moira-opt --verify-roundtrip

func.func @layer(%x: tensor<?x8xf32>, %logits: tensor<?x4xf32>,
    %w: tensor<4x8x16xf32> {moe.param = #moe.param<"layers.0.experts.{}.w">})
    -> tensor<?x16xf32> {
  %c0 = arith.constant 0 : index
  %ids, %weights = moe.gate %logits router<normalize = max_sum_eps, eps = 1.0e-20>
      : tensor<?x4xf32> -> tensor<?x2xi32>, tensor<?x2xf32>
  %counts = moe.count %ids : tensor<?x2xi32> -> tensor<4xi32>
  %t = tensor.dim %x, %c0 : tensor<?x8xf32>
  %f = arith.constant 1.25 : f64
  %k = arith.constant 2 : index
  %c = moe.capacity tutel tokens(%t) factor(%f) top_k(%k) counts(%counts : tensor<4xi32>) {experts = 4 : i64}
  %slots, %sizes, %bound = moe.assign %ids choice_major counts(%counts : tensor<4xi32>) capacity(%c)
      : tensor<?x2xi32> -> tensor<?x2xi32>, tensor<4xi32>, index
  %rows = moe.dispatch %x, %slots, %sizes, %bound
      : tensor<?x8xf32>, tensor<?x2xi32>, tensor<4xi32> -> tensor<?x8xf32>
  %out = moe.expert rows(%rows : tensor<?x8xf32>) groups(%sizes : tensor<4xi32>)
      per_expert(%w : tensor<4x8x16xf32>) -> tensor<?x16xf32> {
  ^bb0(%r: tensor<?x8xf32>, %we: tensor<8x16xf32>):
    %zero = arith.constant 0.0 : f32
    %i0 = arith.constant 0 : index
    %n = tensor.dim %r, %i0 : tensor<?x8xf32>
    %e = tensor.empty(%n) : tensor<?x16xf32>
    %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x16xf32>) -> tensor<?x16xf32>
    %y = linalg.matmul ins(%r, %we : tensor<?x8xf32>, tensor<8x16xf32>)
        outs(%z : tensor<?x16xf32>) -> tensor<?x16xf32>
    moe.yield %y : tensor<?x16xf32>
  }
  %y = moe.combine %out, %slots weights(%weights : tensor<?x2xf32>)
      : tensor<?x16xf32>, tensor<?x2xi32> -> tensor<?x16xf32>
  return %y : tensor<?x16xf32>
}

func.func @gates(%l: tensor<?x8xbf16>, %b: tensor<8xf32>, %m: tensor<?xi1>,
    %k: index, %th: f32, %r: tensor<?x4xi32>, %u: tensor<?xf32>, %c: index) {
  %0:2 = moe.gate %l router<score = sigmoid, groups = 4, keep = 2, group_score = sum_top2, normalize = sum_plus_eps, eps = 1.0e-20, scale = 2.5>
      bias(%b : tensor<8xf32>) mask(%m : tensor<?xi1>) top_k(%k) threshold(%th : f32) sample(%u : tensor<?xf32>) {layer = 3 : i64}
      : tensor<?x8xbf16> -> tensor<?x4xi32>, tensor<?x4xf32>
  %1:2 = moe.gate %l router<expert_choice> capacity(%c) : tensor<?x8xbf16> -> tensor<?x8xi32>, tensor<?x8xf32>
  %2:2 = moe.gate %l router<after_top_k> replay(%r : tensor<?x4xi32>) : tensor<?x8xbf16> -> tensor<?x4xi32>, tensor<?x4xf32>
  return
}

func.func @noise(%t: index, %s: i64, %first: index) -> tensor<?x4xf32> {
  %0 = moe.noise normal rows(%t) seed(%s) step(%s) first(%first) {layer = 3 : i64} -> tensor<?x4xf32>
  return %0 : tensor<?x4xf32>
}

func.func @grouped(%x: tensor<?x8xf32>, %sizes: tensor<4xi32>, %g: tensor<4x16x8xf32>,
    %b: tensor<4x16xf32>, %s: tensor<?xf32>, %idx: tensor<?xi32>) -> tensor<?x16xf32> {
  %p = moe.pack %g nk : tensor<4x16x8xf32> -> tensor<4x1x8x32xf32>
  %h = moe.grouped_matmul rows(%x : tensor<?x8xf32>) groups(%sizes : tensor<4xi32>)
      weights(%p, %p : tensor<4x1x8x32xf32>, tensor<4x1x8x32xf32>) panels
      bias(%b, %b : tensor<4x16xf32>, tensor<4x16xf32>) gather(%idx : tensor<?xi32>)
      vectors(%b : tensor<4x16xf32>) scalars(%s : tensor<?xf32>) -> tensor<?x16xf32> {
  ^bb0(%a: f32, %c: f32, %v: f32, %w: f32):
    %m = arith.mulf %a, %c : f32
    %q = arith.mulf %m, %w : f32
    moe.yield %q : f32
  }
  %dw = moe.grouped_matmul rows(%h, %x : tensor<?x16xf32>, tensor<?x8xf32>) groups(%sizes : tensor<4xi32>) nk contraction -> tensor<4x16x8xf32> {}
  return %h : tensor<?x16xf32>
}

func.func @buffers(%x: memref<?x8xf32>, %slots: memref<?x2xi32>, %sizes: memref<4xi32>, %b: index, %o: memref<?x8xf32>) {
  moe.dispatch %x, %slots, %sizes, %b outs(%o : memref<?x8xf32>) : memref<?x8xf32>, memref<?x2xi32>, memref<4xi32>
  return
}

func.func @main_a() { return }
func.func @main_b() { return }
moe.variants @main [@main_a, @main_b] [decode, prefill]
