// RUN: moira-opt %s --verify-roundtrip | FileCheck %s
// RUN: moira-opt %s --mlir-print-op-generic | moira-opt --verify-roundtrip | FileCheck %s

// Every op in every form reads back as it was printed, from its own syntax and
// from the generic one. The CHECK lines pin what people see.

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

// CHECK-LABEL: func.func @gates
func.func @gates(%l: tensor<?x8xbf16>, %b: tensor<8xf32>, %m: tensor<?xi1>,
    %k: index, %th: f32, %r: tensor<?x4xi32>, %u: tensor<?xf32>, %c: index) {
  // CHECK: moe.gate %{{.*}} router<score = sigmoid, groups = 4, keep = 2, group_score = sum_top2, normalize = sum_plus_eps, eps = 1.0e-20, scale = 2.5> bias(%{{.*}} : tensor<8xf32>) mask(%{{.*}} : tensor<?xi1>) top_k(%{{.*}}) threshold(%{{.*}} : f32) sample(%{{.*}} : tensor<?xf32>) {layer = 3 : i64} : tensor<?x8xbf16> -> tensor<?x4xi32>, tensor<?x4xf32>
  %0:2 = moe.gate %l router<score = sigmoid, groups = 4, keep = 2, group_score = sum_top2, normalize = sum_plus_eps, eps = 1.0e-20, scale = 2.5>
      bias(%b : tensor<8xf32>) mask(%m : tensor<?xi1>) top_k(%k) threshold(%th : f32) sample(%u : tensor<?xf32>) {layer = 3 : i64}
      : tensor<?x8xbf16> -> tensor<?x4xi32>, tensor<?x4xf32>
  // CHECK: moe.gate %{{.*}} router<expert_choice> capacity(%{{.*}}) :
  %1:2 = moe.gate %l router<expert_choice> capacity(%c) : tensor<?x8xbf16> -> tensor<?x8xi32>, tensor<?x8xf32>
  // CHECK: moe.gate %{{.*}} router<after_top_k> replay(%{{.*}} : tensor<?x4xi32>) :
  %2:2 = moe.gate %l router<after_top_k> replay(%r : tensor<?x4xi32>) : tensor<?x8xbf16> -> tensor<?x4xi32>, tensor<?x4xf32>
  // CHECK: moe.gate %{{.*}} router<> :
  %3:2 = moe.gate %l router<> : tensor<?x8xbf16> -> tensor<?x4xi32>, tensor<?x4xf32>
  return
}

// CHECK-LABEL: func.func @gate_element_types
func.func @gate_element_types(%h: tensor<3x8xf16>, %f: tensor<3x8xf32>, %d: tensor<3x8xf64>, %b: tensor<8xf64>) {
  %0:2 = moe.gate %h router<> : tensor<3x8xf16> -> tensor<3x8xi32>, tensor<3x8xf32>
  %1:2 = moe.gate %f router<> : tensor<3x8xf32> -> tensor<3x1xi32>, tensor<3x1xf32>
  %2:2 = moe.gate %d router<> bias(%b : tensor<8xf64>) : tensor<3x8xf64> -> tensor<3x2xi32>, tensor<3x2xf64>
  return
}

// CHECK-LABEL: func.func @capacities
func.func @capacities(%t: index, %f: f64, %k: index, %n: tensor<4xi32>, %nm: memref<4xi32>) {
  // CHECK: moe.capacity tutel tokens(%{{.*}}) factor(%{{.*}}) top_k(%{{.*}}) counts(%{{.*}} : tensor<4xi32>) {alignment = 8 : i64, experts = 4 : i64, minimum = 4 : i64}
  %0 = moe.capacity tutel tokens(%t) factor(%f) top_k(%k) counts(%n : tensor<4xi32>) {experts = 4 : i64, minimum = 4 : i64, alignment = 8 : i64}
  // CHECK: moe.capacity tutel tokens(%{{.*}}) factor(%{{.*}}) top_k(%{{.*}}) counts(%{{.*}} : memref<4xi32>) {experts = 4 : i64}
  %1 = moe.capacity tutel tokens(%t) factor(%f) top_k(%k) counts(%nm : memref<4xi32>) {experts = 4 : i64}
  // CHECK: moe.capacity gshard tokens(
  %2 = moe.capacity gshard tokens(%t) factor(%f) top_k(%k) {experts = 4 : i64}
  // CHECK: moe.capacity switch tokens(
  %3 = moe.capacity switch tokens(%t) factor(%f) top_k(%k) {experts = 4 : i64}
  // CHECK: moe.capacity fixed tokens(
  %4 = moe.capacity fixed tokens(%t) factor(%f) top_k(%k) {experts = 4 : i64}
  %c = arith.constant 1.0 : f64
  // CHECK: moe.capacity tutel tokens(%{{.*}}) factor(%{{.*}}) top_k(%{{.*}}) {experts = 4 : i64}
  %5 = moe.capacity tutel tokens(%t) factor(%c) top_k(%k) {experts = 4 : i64}
  return
}

// CHECK-LABEL: func.func @assigns
func.func @assigns(%ids: tensor<?x2xi32>, %n: tensor<4xi32>, %c: index, %p1: tensor<?xf32>, %p2: tensor<?x2xf64>, %b: tensor<3xi32>) {
  // CHECK: moe.assign %{{.*}} choice_major counts(%{{.*}} : tensor<4xi32>) : tensor<?x2xi32> -> tensor<?x2xi32>, tensor<4xi32>, index
  %0:3 = moe.assign %ids choice_major counts(%n : tensor<4xi32>) : tensor<?x2xi32> -> tensor<?x2xi32>, tensor<4xi32>, index
  // CHECK: moe.assign %{{.*}} token_major padded counts(%{{.*}} : tensor<4xi32>) capacity(%{{.*}}) blocks(%{{.*}} : tensor<3xi32>) {layer = 1 : i64} :
  %1:3 = moe.assign %ids token_major padded counts(%n : tensor<4xi32>) capacity(%c) blocks(%b : tensor<3xi32>) {layer = 1 : i64} : tensor<?x2xi32> -> tensor<?x2xi32>, tensor<4xi32>, index
  // CHECK: moe.assign %{{.*}} batch_prioritized counts(%{{.*}} : tensor<4xi32>) capacity(%{{.*}}) priority(%{{.*}} : tensor<?xf32>) :
  %2:3 = moe.assign %ids batch_prioritized counts(%n : tensor<4xi32>) capacity(%c) priority(%p1 : tensor<?xf32>) : tensor<?x2xi32> -> tensor<?x2xi32>, tensor<4xi32>, index
  // CHECK: moe.assign %{{.*}} expert_probability counts(%{{.*}} : tensor<4xi32>) priority(%{{.*}} : tensor<?x2xf64>) :
  %3:3 = moe.assign %ids expert_probability counts(%n : tensor<4xi32>) priority(%p2 : tensor<?x2xf64>) : tensor<?x2xi32> -> tensor<?x2xi32>, tensor<4xi32>, index
  return
}

// CHECK-LABEL: func.func @movement
func.func @movement(%x: tensor<?x8xbf16>, %s: tensor<?x2xi32>, %n: tensor<4xi32>, %b: index, %w: tensor<?x2xf32>) {
  // CHECK: moe.dispatch %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} weights(%{{.*}} : tensor<?x2xf32>) : tensor<?x8xbf16>, tensor<?x2xi32>, tensor<4xi32> -> tensor<4x?x8xbf16>
  %0 = moe.dispatch %x, %s, %n, %b weights(%w : tensor<?x2xf32>) : tensor<?x8xbf16>, tensor<?x2xi32>, tensor<4xi32> -> tensor<4x?x8xbf16>
  // CHECK: moe.combine %{{.*}}, %{{.*}} : tensor<4x?x8xbf16>, tensor<?x2xi32> -> tensor<?x8xbf16>
  %1 = moe.combine %0, %s : tensor<4x?x8xbf16>, tensor<?x2xi32> -> tensor<?x8xbf16>
  // CHECK: moe.combine %{{.*}}, %{{.*}} weights(%{{.*}} : tensor<?x2xf32>) :
  %2 = moe.combine %0, %s weights(%w : tensor<?x2xf32>) : tensor<4x?x8xbf16>, tensor<?x2xi32> -> tensor<?x8xbf16>
  // CHECK: moe.sources %{{.*}}, %{{.*}} : tensor<?x2xi32> -> tensor<?xi32>
  %3 = moe.sources %s, %b : tensor<?x2xi32> -> tensor<?xi32>
  return
}

// More choices than experts: legal, means E.
// CHECK-LABEL: func.func @clipped
func.func @clipped(%l: tensor<?x4xf32>) -> tensor<?x9xi32> {
  // CHECK: moe.gate {{.*}} -> tensor<?x9xi32>, tensor<?x9xf32>
  %ids, %w = moe.gate %l router<> : tensor<?x4xf32> -> tensor<?x9xi32>, tensor<?x9xf32>
  return %ids : tensor<?x9xi32>
}

// CHECK-LABEL: func.func @noise
func.func @noise(%t: index, %s: i64, %first: index) -> tensor<?x4xf32> {
  // CHECK: moe.noise normal rows(%{{.*}}) seed(%{{.*}}) step(%{{.*}}) first(%{{.*}}) {layer = 3 : i64} -> tensor<?x4xf32>
  %0 = moe.noise normal rows(%t) seed(%s) step(%s) first(%first) {layer = 3 : i64} -> tensor<?x4xf32>
  // CHECK: moe.noise uniform rows(
  %1 = moe.noise uniform rows(%t) seed(%s) step(%s) first(%first) {layer = 3 : i64} -> tensor<?x4xf32>
  return %0 : tensor<?x4xf32>
}

// Several row operands, padded rows, no per-expert operand, shared operands of
// any type, several results, everything that keeps rows apart.
// CHECK-LABEL: func.func @experts
func.func @experts(%a: tensor<4x?x8xbf16>, %b: tensor<4x?x16xf32>, %n: tensor<4xi32>, %bias: tensor<4x8xf32>, %s: f32, %m: tensor<8x8xf32>) {
  // CHECK: moe.expert rows(%{{.*}}, %{{.*}} : tensor<4x?x8xbf16>, tensor<4x?x16xf32>) groups(%{{.*}} : tensor<4xi32>) per_expert(%{{.*}} : tensor<4x8xf32>) shared(%{{.*}}, %{{.*}} : f32, tensor<8x8xf32>) -> tensor<4x?x8xf32>, tensor<4x?x16xf32> attributes {layer = 2 : i64} {
  %0:2 = moe.expert rows(%a, %b : tensor<4x?x8xbf16>, tensor<4x?x16xf32>) groups(%n : tensor<4xi32>)
      per_expert(%bias : tensor<4x8xf32>) shared(%s, %m : f32, tensor<8x8xf32>)
      -> tensor<4x?x8xf32>, tensor<4x?x16xf32> attributes {layer = 2 : i64} {
  ^bb0(%ra: tensor<?x8xbf16>, %rb: tensor<?x16xf32>, %be: tensor<8xf32>, %sc: f32, %mm: tensor<8x8xf32>):
    %c0 = arith.constant 0 : index
    %rows = tensor.dim %ra, %c0 : tensor<?x8xbf16>
    %wide = arith.extf %ra : tensor<?x8xbf16> to tensor<?x8xf32>
    %init = tensor.empty(%rows) : tensor<?x8xf32>
    %start = linalg.broadcast ins(%be : tensor<8xf32>) outs(%init : tensor<?x8xf32>) dimensions = [0]
    %y = linalg.matmul ins(%wide, %mm : tensor<?x8xf32>, tensor<8x8xf32>) outs(%start : tensor<?x8xf32>) -> tensor<?x8xf32>
    %cols = tensor.empty(%rows) : tensor<8x?xf32>
    %t = linalg.transpose ins(%y : tensor<?x8xf32>) outs(%cols : tensor<8x?xf32>) permutation = [1, 0]
    %back = linalg.transpose ins(%t : tensor<8x?xf32>) outs(%init : tensor<?x8xf32>) permutation = [1, 0]
    %half = tensor.extract_slice %rb[0, 8] [%rows, 8] [1, 1] : tensor<?x16xf32> to tensor<?x8xf32>
    %sum = arith.addf %back, %half : tensor<?x8xf32>
    %e = tensor.expand_shape %sum [[0], [1, 2]] output_shape [%rows, 2, 4] : tensor<?x8xf32> into tensor<?x2x4xf32>
    %f = tensor.collapse_shape %e [[0], [1, 2]] : tensor<?x2x4xf32> into tensor<?x8xf32>
    %g = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> ()>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
        ins(%f, %sc : tensor<?x8xf32>, f32) outs(%init : tensor<?x8xf32>) {
    ^bb1(%p: f32, %q: f32, %o: f32):
      %j = linalg.index 1 : index
      %r = arith.mulf %p, %q : f32
      linalg.yield %r : f32
    } -> tensor<?x8xf32>
    moe.yield %g, %rb : tensor<?x8xf32>, tensor<?x16xf32>
  }
  return
}

// CHECK-LABEL: func.func @expert_without_results
func.func @expert_without_results(%x: tensor<0x8xf32>, %n: tensor<1xi32>) {
  "moe.expert"(%x, %n) <{operandSegmentSizes = array<i32: 1, 1, 0, 0>}> ({
  ^bb0(%r: tensor<?x8xf32>):
    "moe.yield"() : () -> ()
  }) : (tensor<0x8xf32>, tensor<1xi32>) -> ()
  return
}

// CHECK-LABEL: func.func @grouped
func.func @grouped(%x: tensor<?x8xf32>, %sizes: tensor<4xi32>, %g: tensor<4x16x8xf32>,
    %b: tensor<4x16xf32>, %s: tensor<?xf32>, %idx: tensor<?xi32>) -> tensor<?x16xf32> {
  // CHECK: moe.pack %{{.*}} nk : tensor<4x16x8xf32> -> tensor<4x1x8x32xf32>
  %p = moe.pack %g nk : tensor<4x16x8xf32> -> tensor<4x1x8x32xf32>
  // CHECK: moe.grouped_matmul rows(%{{.*}} : tensor<?x8xf32>) groups(%{{.*}} : tensor<4xi32>) weights(%{{.*}}, %{{.*}} : tensor<4x1x8x32xf32>, tensor<4x1x8x32xf32>) panels bias(%{{.*}}, %{{.*}} : tensor<4x16xf32>, tensor<4x16xf32>) gather(%{{.*}} : tensor<?xi32>) vectors(%{{.*}} : tensor<4x16xf32>) scalars(%{{.*}} : tensor<?xf32>) -> tensor<?x16xf32> {
  %h = moe.grouped_matmul rows(%x : tensor<?x8xf32>) groups(%sizes : tensor<4xi32>)
      weights(%p, %p : tensor<4x1x8x32xf32>, tensor<4x1x8x32xf32>) panels
      bias(%b, %b : tensor<4x16xf32>, tensor<4x16xf32>) gather(%idx : tensor<?xi32>)
      vectors(%b : tensor<4x16xf32>) scalars(%s : tensor<?xf32>) -> tensor<?x16xf32> {
  ^bb0(%a: f32, %c: f32, %v: f32, %w: f32):
    %m = arith.mulf %a, %c : f32
    %q = arith.mulf %m, %w : f32
    moe.yield %q : f32
  }
  // CHECK: moe.grouped_matmul rows({{.*}}) groups({{.*}}) nk contraction -> tensor<4x16x8xf32> {
  %dw = moe.grouped_matmul rows(%h, %x : tensor<?x16xf32>, tensor<?x8xf32>) groups(%sizes : tensor<4xi32>) nk contraction -> tensor<4x16x8xf32> {}
  return %h : tensor<?x16xf32>
}

// CHECK-LABEL: func.func @grouped_padded
func.func @grouped_padded(%x: tensor<4x5x8xbf16>, %sizes: tensor<4xi32>, %w: tensor<4x8x16xbf16>, %e: tensor<4x5x16xf32>, %s: tensor<4x5xf32>) -> tensor<4x5x16xbf16> {
  // CHECK: weights(%{{.*}} : tensor<4x8x16xbf16>) kn elements(%{{.*}} : tensor<4x5x16xf32>) scalars(%{{.*}} : tensor<4x5xf32>) -> tensor<4x5x16xbf16> attributes {layer = 7 : i64} {
  %0 = moe.grouped_matmul rows(%x : tensor<4x5x8xbf16>) groups(%sizes : tensor<4xi32>)
      weights(%w : tensor<4x8x16xbf16>) kn elements(%e : tensor<4x5x16xf32>) scalars(%s : tensor<4x5xf32>)
      -> tensor<4x5x16xbf16> attributes {layer = 7 : i64} {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %m = math.fma %a, %b, %c : f32
    %t = arith.truncf %m : f32 to bf16
    moe.yield %t : bf16
  }
  return %0 : tensor<4x5x16xbf16>
}

// CHECK-LABEL: func.func @buffers
func.func @buffers(%x: memref<?x8xf32>, %l: memref<?x4xf32>, %bias: memref<4xf32>,
    %ids: memref<?x2xi32>, %w: memref<?x2xf32>, %slots: memref<?x2xi32>, %sizes: memref<4xi32>, %b: index,
    %rows: memref<?x8xf32>, %y: memref<?x8xf32>, %wt: memref<4x16x8xf32>, %wp: memref<4x1x8x32xf32>,
    %h: memref<?x16xf32>, %dw: memref<4x16x8xf32>, %seed: i64, %noise: memref<?x4xf32, strided<[8, 1], offset: ?>>) {
  // CHECK: moe.gate %{{.*}} router<> bias(%{{.*}} : memref<4xf32>) outs(%{{.*}}, %{{.*}} : memref<?x2xi32>, memref<?x2xf32>) : memref<?x4xf32>
  moe.gate %l router<> bias(%bias : memref<4xf32>) outs(%ids, %w : memref<?x2xi32>, memref<?x2xf32>) : memref<?x4xf32>
  // CHECK: moe.count %{{.*}} outs(%{{.*}} : memref<4xi32>) : memref<?x2xi32>
  moe.count %ids outs(%sizes : memref<4xi32>) : memref<?x2xi32>
  // CHECK: moe.assign %{{.*}} token_major counts(%{{.*}} : memref<4xi32>) outs(%{{.*}}, %{{.*}} : memref<?x2xi32>, memref<4xi32>) : memref<?x2xi32>
  moe.assign %ids token_major counts(%sizes : memref<4xi32>) outs(%slots, %sizes : memref<?x2xi32>, memref<4xi32>) : memref<?x2xi32>
  // CHECK: moe.dispatch %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} outs(%{{.*}} : memref<?x8xf32>) : memref<?x8xf32>, memref<?x2xi32>, memref<4xi32>
  moe.dispatch %x, %slots, %sizes, %b outs(%rows : memref<?x8xf32>) : memref<?x8xf32>, memref<?x2xi32>, memref<4xi32>
  // CHECK: moe.combine %{{.*}}, %{{.*}} weights(%{{.*}} : memref<?x2xf32>) outs(%{{.*}} : memref<?x8xf32>) : memref<?x8xf32>, memref<?x2xi32>
  moe.combine %rows, %slots weights(%w : memref<?x2xf32>) outs(%y : memref<?x8xf32>) : memref<?x8xf32>, memref<?x2xi32>
  // CHECK: moe.sources %{{.*}}, %{{.*}} outs(%{{.*}} : memref<4xi32>) : memref<?x2xi32>
  moe.sources %slots, %b outs(%sizes : memref<4xi32>) : memref<?x2xi32>
  // CHECK: moe.pack %{{.*}} nk outs(%{{.*}} : memref<4x1x8x32xf32>) : memref<4x16x8xf32>
  moe.pack %wt nk outs(%wp : memref<4x1x8x32xf32>) : memref<4x16x8xf32>
  // CHECK: moe.grouped_matmul rows({{.*}}) groups({{.*}}) weights({{.*}}) panels outs(%{{.*}} : memref<?x16xf32>) {
  moe.grouped_matmul rows(%rows : memref<?x8xf32>) groups(%sizes : memref<4xi32>) weights(%wp : memref<4x1x8x32xf32>) panels outs(%h : memref<?x16xf32>) {
  ^bb0(%a: f32):
    moe.yield %a : f32
  }
  // CHECK: moe.grouped_matmul rows({{.*}}) groups({{.*}}) nk contraction outs(%{{.*}} : memref<4x16x8xf32>) {
  moe.grouped_matmul rows(%h, %rows : memref<?x16xf32>, memref<?x8xf32>) groups(%sizes : memref<4xi32>) nk contraction outs(%dw : memref<4x16x8xf32>) {}
  // CHECK: moe.noise uniform rows({{.*}}) seed({{.*}}) step({{.*}}) first({{.*}}) outs(%{{.*}} : memref<?x4xf32, strided<[8, 1], offset: ?>>) {layer = 0 : i64}
  moe.noise uniform rows(%b) seed(%seed) step(%seed) first(%b) outs(%noise : memref<?x4xf32, strided<[8, 1], offset: ?>>) {layer = 0 : i64}
  return
}

// CHECK-LABEL: func.func @losses
func.func @losses(%l: tensor<?x4xf32>, %n: tensor<?x4xbf16>, %d: tensor<?x4xf64>,
    %i: tensor<?x2xi32>, %m: tensor<?xi1>, %b: tensor<?xi32>) {
  // CHECK: moe.loss gshard %{{.*}} ids(%{{.*}} : tensor<?x2xi32>) : tensor<?x4xf32> -> tensor<f32>
  %0 = moe.loss gshard %l ids(%i : tensor<?x2xi32>) scope rank : tensor<?x4xf32> -> tensor<f32>
  // CHECK: moe.loss switch %{{.*}} ids(%{{.*}} : tensor<?x2xi32>) mask(%{{.*}} : tensor<?xi1>) score sigmoid scope global over_ranks : tensor<?x4xbf16> -> tensor<f32>
  %1 = moe.loss switch %n ids(%i : tensor<?x2xi32>) mask(%m : tensor<?xi1>) score sigmoid scope global over_ranks : tensor<?x4xbf16> -> tensor<f32>
  // CHECK: moe.loss sequence %{{.*}} ids(%{{.*}} : tensor<?x2xi32>) scope block {length = 64 : i64} : tensor<?x4xf32> -> tensor<f32>
  %2 = moe.loss sequence %l ids(%i : tensor<?x2xi32>) scope block {length = 64 : i64} : tensor<?x4xf32> -> tensor<f32>
  // CHECK: moe.loss load_importance %{{.*}} ids(%{{.*}} : tensor<?x2xi32>) noisy(%{{.*}} : tensor<?x4xf64>) {compare_logits, noise = 1.000000e+00 : f64} : tensor<?x4xf64> -> tensor<f64>
  %3 = moe.loss load_importance %d ids(%i : tensor<?x2xi32>) noisy(%d : tensor<?x4xf64>) {noise = 1.0 : f64, compare_logits} : tensor<?x4xf64> -> tensor<f64>
  // CHECK: moe.loss z %{{.*}} blocks(%{{.*}} : tensor<?xi32>) scope block : tensor<?x4xf32> -> tensor<f32>
  %4 = moe.loss z %l blocks(%b : tensor<?xi32>) scope block : tensor<?x4xf32> -> tensor<f32>
  return
}

// CHECK: func.func @params(%{{.*}}: tensor<4x8x16xf32> {moe.param = #moe.param<"l.0.experts.{}.w", transpose, part = 1 of 2, interleaved>}
func.func @params(%a: tensor<4x8x16xf32> {moe.param = #moe.param<"l.0.experts.{}.w", transpose, part = 1 of 2, interleaved>},
                  %b: tensor<8x16xf32> {moe.param = #moe.param<"router", part = 0 of 3>},
                  %c: tensor<16xf32> {moe.param = #moe.param<"bias">}) {
  return
}

func.func @main_a() attributes {moe.row_class = #moe<row_class decode>} { return }
func.func @main_b() { return }
// CHECK: moe.variants @main [@main_a, @main_b] [decode, prefill]
moe.variants @main [@main_a, @main_b] [decode, prefill]
// CHECK: moe.variants private @helper [@main_a] [decode]
moe.variants private @helper [@main_a] [decode]
