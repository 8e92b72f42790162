// RUN: moira-opt %s --moe-form-kernels --split-input-file | FileCheck %s

#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#mn = affine_map<(m, n, k) -> (m, n)>
#id = affine_map<(m, n) -> (m, n)>
#col = affine_map<(m, n) -> (n)>
#row = affine_map<(m, n) -> (m, 0)>

// Gated SwiGLU in bf16: both products in one op, roundings kept.
// CHECK-LABEL: func @swiglu_bf16(
// CHECK-SAME: %[[X:.*]]: tensor<?x8xbf16>, %[[S:.*]]: tensor<4xi32>,
// CHECK-SAME: %[[G:.*]]: tensor<4x16x8xbf16>, %[[U:.*]]: tensor<4x16x8xbf16>, %[[D:.*]]: tensor<4x8x16xbf16>)
// CHECK-NOT: moe.expert
// CHECK: %[[H:.*]] = moe.grouped_matmul rows(%[[X]] : tensor<?x8xbf16>) groups(%[[S]] : tensor<4xi32>)
// CHECK-SAME: weights(%[[G]], %[[U]] : tensor<4x16x8xbf16>, tensor<4x16x8xbf16>) nk -> tensor<?x16xbf16>
// CHECK-SAME: attributes {layer = 3 : i64}
// CHECK-NEXT: ^bb0(%[[A:.*]]: f32, %[[B:.*]]: f32):
// CHECK: math.exp
// CHECK: arith.divf %[[A]]
// CHECK: arith.mulf %{{.*}}, %[[B]] : f32
// CHECK-NEXT: arith.truncf %{{.*}} : f32 to bf16
// CHECK-NEXT: moe.yield
// CHECK: %[[Y:.*]] = moe.grouped_matmul rows(%[[H]] : tensor<?x16xbf16>)
// CHECK-SAME: weights(%[[D]] : tensor<4x8x16xbf16>) nk -> tensor<?x8xbf16>
// CHECK: return %[[Y]]
func.func @swiglu_bf16(%x: tensor<?x8xbf16>, %sizes: tensor<4xi32>,
    %gate: tensor<4x16x8xbf16>, %up: tensor<4x16x8xbf16>,
    %down: tensor<4x8x16xbf16>) -> tensor<?x8xbf16> {
  %y = moe.expert rows(%x : tensor<?x8xbf16>) groups(%sizes : tensor<4xi32>)
      per_expert(%gate, %up, %down : tensor<4x16x8xbf16>, tensor<4x16x8xbf16>, tensor<4x8x16xbf16>)
      -> tensor<?x8xbf16> attributes {layer = 3 : i64} {
  ^bb0(%r: tensor<?x8xbf16>, %g: tensor<16x8xbf16>, %u: tensor<16x8xbf16>, %d: tensor<8x16xbf16>):
    %c0 = arith.constant 0 : index
    %zero = arith.constant 0.0 : f32
    %n = tensor.dim %r, %c0 : tensor<?x8xbf16>
    %e = tensor.empty(%n) : tensor<?x16xf32>
    %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x16xf32>) -> tensor<?x16xf32>
    %a = linalg.matmul indexing_maps = [#mk, #nk, #mn]
        ins(%r, %g : tensor<?x8xbf16>, tensor<16x8xbf16>) outs(%z : tensor<?x16xf32>) -> tensor<?x16xf32>
    %b = linalg.matmul indexing_maps = [#mk, #nk, #mn]
        ins(%r, %u : tensor<?x8xbf16>, tensor<16x8xbf16>) outs(%z : tensor<?x16xf32>) -> tensor<?x16xf32>
    // SiLU as separate tensor ops; %a is read twice.
    %neg = linalg.map { arith.negf } ins(%a : tensor<?x16xf32>) outs(%e : tensor<?x16xf32>)
    %exp = linalg.exp ins(%neg : tensor<?x16xf32>) outs(%e : tensor<?x16xf32>) -> tensor<?x16xf32>
    %one = arith.constant 1.0 : f32
    %ones = linalg.fill ins(%one : f32) outs(%e : tensor<?x16xf32>) -> tensor<?x16xf32>
    %den = linalg.add ins(%ones, %exp : tensor<?x16xf32>, tensor<?x16xf32>) outs(%e : tensor<?x16xf32>) -> tensor<?x16xf32>
    %act = arith.divf %a, %den : tensor<?x16xf32>
    %mul = arith.mulf %act, %b : tensor<?x16xf32>
    %h = arith.truncf %mul : tensor<?x16xf32> to tensor<?x16xbf16>
    %e2 = tensor.empty(%n) : tensor<?x8xf32>
    %z2 = linalg.fill ins(%zero : f32) outs(%e2 : tensor<?x8xf32>) -> tensor<?x8xf32>
    %o = linalg.matmul indexing_maps = [#mk, #nk, #mn]
        ins(%h, %d : tensor<?x16xbf16>, tensor<8x16xbf16>) outs(%z2 : tensor<?x8xf32>) -> tensor<?x8xf32>
    %t = arith.truncf %o : tensor<?x8xf32> to tensor<?x8xbf16>
    moe.yield %t : tensor<?x8xbf16>
  }
  return %y : tensor<?x8xbf16>
}

// -----

// ReLU over padded rows, [K, N] weights, biases in bf16 of which one product
// has none; linalg.contract.

#mk = affine_map<(m, n, k) -> (m, k)>
#kn = affine_map<(m, n, k) -> (k, n)>
#mn = affine_map<(m, n, k) -> (m, n)>

// CHECK-LABEL: func @relu_bias_padded(
// CHECK-SAME: %[[X:.*]]: tensor<4x?x8xf32>, %[[S:.*]]: tensor<4xi32>,
// CHECK-SAME: %[[A:.*]]: tensor<4x8x16xf32>, %[[B:.*]]: tensor<4x8x16xf32>, %[[BIAS:.*]]: tensor<4x16xbf16>)
// CHECK: %[[ZERO:.*]] = arith.constant dense<0.000000e+00> : tensor<4x16xf32>
// CHECK: moe.grouped_matmul rows(%[[X]] : tensor<4x?x8xf32>)
// CHECK-SAME: weights(%[[A]], %[[B]] : tensor<4x8x16xf32>, tensor<4x8x16xf32>) kn
// CHECK-SAME: bias(%[[BIAS]], %[[ZERO]] : tensor<4x16xbf16>, tensor<4x16xf32>) -> tensor<4x?x16xf32>
// CHECK: arith.maximumf
// CHECK: arith.addf
func.func @relu_bias_padded(%x: tensor<4x?x8xf32>, %sizes: tensor<4xi32>,
    %a: tensor<4x8x16xf32>, %b: tensor<4x8x16xf32>, %bias: tensor<4x16xbf16>) -> tensor<4x?x16xf32> {
  %y = moe.expert rows(%x : tensor<4x?x8xf32>) groups(%sizes : tensor<4xi32>)
      per_expert(%a, %b, %bias : tensor<4x8x16xf32>, tensor<4x8x16xf32>, tensor<4x16xbf16>)
      -> tensor<4x?x16xf32> {
  ^bb0(%r: tensor<?x8xf32>, %wa: tensor<8x16xf32>, %wb: tensor<8x16xf32>, %v: tensor<16xbf16>):
    %c0 = arith.constant 0 : index
    %zero = arith.constant 0.0 : f32
    %n = tensor.dim %r, %c0 : tensor<?x8xf32>
    %e = tensor.empty(%n) : tensor<?x16xf32>
    %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x16xf32>) -> tensor<?x16xf32>
    %wide = arith.extf %v : tensor<16xbf16> to tensor<16xf32>
    %init = linalg.broadcast ins(%wide : tensor<16xf32>) outs(%e : tensor<?x16xf32>) dimensions = [0]
    %p = linalg.contract indexing_maps = [#mk, #kn, #mn]
        ins(%r, %wa : tensor<?x8xf32>, tensor<8x16xf32>) outs(%init : tensor<?x16xf32>) -> tensor<?x16xf32>
    %q = linalg.matmul ins(%r, %wb : tensor<?x8xf32>, tensor<8x16xf32>) outs(%z : tensor<?x16xf32>) -> tensor<?x16xf32>
    %relu = linalg.elementwise kind=#linalg.elementwise_kind<max_signed>
        ins(%p, %z : tensor<?x16xf32>, tensor<?x16xf32>) outs(%e : tensor<?x16xf32>) -> tensor<?x16xf32>
    %s = arith.addf %relu, %q : tensor<?x16xf32>
    moe.yield %s : tensor<?x16xf32>
  }
  return %y : tensor<4x?x16xf32>
}

// -----

// GELU, exact and by tanh, with a transposed weight, a vector after the
// product, a second rows operand and one value per row.

#id = affine_map<(m, n) -> (m, n)>
#col = affine_map<(m, n) -> (n)>
#row = affine_map<(m, n) -> (m, 0)>

// CHECK-LABEL: func @gelu(
// CHECK-SAME: %[[X:.*]]: tensor<?x8xf16>, %[[R:.*]]: tensor<?x16xf16>, %[[P:.*]]: tensor<?x1xf32>, %[[S:.*]]: tensor<4xi32>, %[[W:.*]]: tensor<4x16x8xf16>, %[[V:.*]]: tensor<4x1x16xf32>)
// CHECK-DAG: %[[VEC:.*]] = tensor.collapse_shape %[[V]] {{\[\[}}0], [1, 2]] : tensor<4x1x16xf32> into tensor<4x16xf32>
// CHECK-DAG: %[[SCALAR:.*]] = tensor.collapse_shape %[[P]] {{\[\[}}0, 1]] : tensor<?x1xf32> into tensor<?xf32>
// CHECK: moe.grouped_matmul rows(%[[X]] : tensor<?x8xf16>)
// CHECK-SAME: weights(%[[W]] : tensor<4x16x8xf16>) nk
// CHECK-SAME: vectors(%[[VEC]] : tensor<4x16xf32>) elements(%[[R]] : tensor<?x16xf16>) scalars(%[[SCALAR]] : tensor<?xf32>) -> tensor<?x16xf16>
// CHECK-NEXT: ^bb0(%[[ACC:.*]]: f32, %[[VE:.*]]: f32, %[[EL:.*]]: f16, %[[SC:.*]]: f32):
// CHECK-DAG: arith.addf %[[ACC]], %[[VE]] : f32
// CHECK-DAG: math.erf
// CHECK-DAG: math.tanh
// CHECK-DAG: arith.extf %[[EL]] : f16 to f32
// CHECK-DAG: arith.mulf %{{.*}}, %[[SC]] : f32
// CHECK: arith.truncf %{{.*}} : f32 to f16
func.func @gelu(%x: tensor<?x8xf16>, %res: tensor<?x16xf16>, %probs: tensor<?x1xf32>,
    %sizes: tensor<4xi32>, %w: tensor<4x16x8xf16>, %vec: tensor<4x1x16xf32>) -> tensor<?x16xf16> {
  %y = moe.expert rows(%x, %res, %probs : tensor<?x8xf16>, tensor<?x16xf16>, tensor<?x1xf32>) groups(%sizes : tensor<4xi32>)
      per_expert(%w, %vec : tensor<4x16x8xf16>, tensor<4x1x16xf32>) -> tensor<?x16xf16> {
  ^bb0(%r: tensor<?x8xf16>, %rr: tensor<?x16xf16>, %pp: tensor<?x1xf32>, %we: tensor<16x8xf16>, %v2: tensor<1x16xf32>):
    %c0 = arith.constant 0 : index
    %zero = arith.constant 0.0 : f32
    %n = tensor.dim %r, %c0 : tensor<?x8xf16>
    %e = tensor.empty(%n) : tensor<?x16xf32>
    %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x16xf32>) -> tensor<?x16xf32>
    %te = tensor.empty() : tensor<8x16xf16>
    %wt = linalg.transpose ins(%we : tensor<16x8xf16>) outs(%te : tensor<8x16xf16>) permutation = [1, 0]
    %p = linalg.matmul ins(%r, %wt : tensor<?x8xf16>, tensor<8x16xf16>) outs(%z : tensor<?x16xf32>) -> tensor<?x16xf32>
    %v = tensor.collapse_shape %v2 [[0, 1]] : tensor<1x16xf32> into tensor<16xf32>
    %oe = tensor.empty(%n) : tensor<?x16xf16>
    %o = linalg.generic {indexing_maps = [#id, #col, #id, #row, #id], iterator_types = ["parallel", "parallel"]}
        ins(%p, %v, %rr, %pp : tensor<?x16xf32>, tensor<16xf32>, tensor<?x16xf16>, tensor<?x1xf32>) outs(%oe : tensor<?x16xf16>) {
    ^bb0(%acc: f32, %bias: f32, %el: f16, %prob: f32, %out: f16):
      %half = arith.constant 0.5 : f32
      %one = arith.constant 1.0 : f32
      %rsqrt2 = arith.constant 0.707106769 : f32
      %h = arith.addf %acc, %bias : f32
      %s = arith.mulf %h, %rsqrt2 : f32
      %erf = math.erf %s : f32
      %e1 = arith.addf %one, %erf : f32
      %hh = arith.mulf %half, %h : f32
      %gelu = arith.mulf %hh, %e1 : f32
      %c = arith.constant 0.797884583 : f32
      %k = arith.constant 0.044715 : f32
      %h2 = arith.mulf %h, %h : f32
      %h3 = arith.mulf %h2, %h : f32
      %kh = arith.mulf %k, %h3 : f32
      %in = arith.addf %h, %kh : f32
      %ci = arith.mulf %c, %in : f32
      %tanh = math.tanh %ci : f32
      %sum = arith.addf %gelu, %tanh : f32
      %wide = arith.extf %el : f16 to f32
      %res0 = arith.addf %sum, %wide : f32
      %scaled = arith.mulf %res0, %prob : f32
      %t = arith.truncf %scaled : f32 to f16
      linalg.yield %t : f16
    } -> tensor<?x16xf16>
    moe.yield %o : tensor<?x16xf16>
  }
  return %y : tensor<?x16xf16>
}

// -----

// gpt-oss: one weight holds gate and up in turns, with a bias; the clamped
// activation. The weight and the bias are sliced instead of the product.

#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#mn = affine_map<(m, n, k) -> (m, n)>
#id = affine_map<(m, n) -> (m, n)>

// CHECK-LABEL: func @gpt_oss(
// CHECK-SAME: %[[X:.*]]: tensor<?x8xbf16>, %[[S:.*]]: tensor<4xi32>, %[[W:.*]]: tensor<4x32x8xbf16>, %[[B:.*]]: tensor<4x32xbf16>)
// CHECK-DAG: %[[G:.*]] = tensor.extract_slice %[[W]][0, 0, 0] [4, 16, 8] [1, 2, 1] : tensor<4x32x8xbf16> to tensor<4x16x8xbf16>
// CHECK-DAG: %[[U:.*]] = tensor.extract_slice %[[W]][0, 1, 0] [4, 16, 8] [1, 2, 1] : tensor<4x32x8xbf16> to tensor<4x16x8xbf16>
// CHECK-DAG: %[[GB:.*]] = tensor.extract_slice %[[B]][0, 0] [4, 16] [1, 2] : tensor<4x32xbf16> to tensor<4x16xbf16>
// CHECK-DAG: %[[UB:.*]] = tensor.extract_slice %[[B]][0, 1] [4, 16] [1, 2] : tensor<4x32xbf16> to tensor<4x16xbf16>
// CHECK: moe.grouped_matmul rows(%[[X]] : tensor<?x8xbf16>)
// CHECK-SAME: weights(%[[G]], %[[U]] : tensor<4x16x8xbf16>, tensor<4x16x8xbf16>) nk
// CHECK-SAME: bias(%[[GB]], %[[UB]] : tensor<4x16xbf16>, tensor<4x16xbf16>) -> tensor<?x16xf32>
// CHECK: arith.minimumf
// CHECK: arith.maximumf
func.func @gpt_oss(%x: tensor<?x8xbf16>, %sizes: tensor<4xi32>, %w: tensor<4x32x8xbf16>, %b: tensor<4x32xbf16>) -> tensor<?x16xf32> {
  %y = moe.expert rows(%x : tensor<?x8xbf16>) groups(%sizes : tensor<4xi32>)
      per_expert(%w, %b : tensor<4x32x8xbf16>, tensor<4x32xbf16>) -> tensor<?x16xf32> {
  ^bb0(%r: tensor<?x8xbf16>, %we: tensor<32x8xbf16>, %be: tensor<32xbf16>):
    %c0 = arith.constant 0 : index
    %n = tensor.dim %r, %c0 : tensor<?x8xbf16>
    %e2 = tensor.empty(%n) : tensor<?x32xf32>
    %wide = arith.extf %be : tensor<32xbf16> to tensor<32xf32>
    %init = linalg.broadcast ins(%wide : tensor<32xf32>) outs(%e2 : tensor<?x32xf32>) dimensions = [0]
    %gu = linalg.contract indexing_maps = [#mk, #nk, #mn]
        ins(%r, %we : tensor<?x8xbf16>, tensor<32x8xbf16>) outs(%init : tensor<?x32xf32>) -> tensor<?x32xf32>
    %g = tensor.extract_slice %gu[0, 0] [%n, 16] [1, 2] : tensor<?x32xf32> to tensor<?x16xf32>
    %u = tensor.extract_slice %gu[0, 1] [%n, 16] [1, 2] : tensor<?x32xf32> to tensor<?x16xf32>
    %e = tensor.empty(%n) : tensor<?x16xf32>
    %o = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%g, %u : tensor<?x16xf32>, tensor<?x16xf32>) outs(%e : tensor<?x16xf32>) {
    ^bb0(%a: f32, %c: f32, %out: f32):
      %limit = arith.constant 7.0 : f32
      %low = arith.constant -7.0 : f32
      %one = arith.constant 1.0 : f32
      %alpha = arith.constant 1.702 : f32
      %ga = arith.minimumf %a, %limit : f32
      %ub = arith.minimumf %c, %limit : f32
      %uc = arith.maximumf %ub, %low : f32
      %s = arith.mulf %ga, %alpha : f32
      %neg = arith.negf %s : f32
      %exp = math.exp %neg : f32
      %den = arith.addf %one, %exp : f32
      %glu = arith.divf %ga, %den : f32
      %u1 = arith.addf %uc, %one : f32
      %p = arith.mulf %u1, %glu : f32
      linalg.yield %p : f32
    } -> tensor<?x16xf32>
    moe.yield %o : tensor<?x16xf32>
  }
  return %y : tensor<?x16xf32>
}

// -----

// Three weights of one stage: two in one op, the third a product of its own.
// Its result comes back as elements.

// CHECK-LABEL: func @three_weights(
// CHECK-SAME: %[[X:.*]]: tensor<?x8xf64>, %{{.*}}: tensor<2xi32>, %[[A:.*]]: tensor<2x8x4xf64>, %[[B:.*]]: tensor<2x8x4xf64>, %[[C:.*]]: tensor<2x8x4xf64>)
// CHECK: %[[T:.*]] = moe.grouped_matmul rows(%[[X]] {{.*}} weights(%[[C]] : tensor<2x8x4xf64>) kn -> tensor<?x4xf64>
// CHECK-NEXT: ^bb0(%[[ACC:.*]]: f64):
// CHECK-NEXT: moe.yield %[[ACC]] : f64
// CHECK: moe.grouped_matmul rows(%[[X]] {{.*}} weights(%[[A]], %[[B]] : {{.*}}) kn elements(%[[T]] : tensor<?x4xf64>) -> tensor<?x4xf64>
func.func @three_weights(%x: tensor<?x8xf64>, %sizes: tensor<2xi32>, %a: tensor<2x8x4xf64>, %b: tensor<2x8x4xf64>, %c: tensor<2x8x4xf64>) -> tensor<?x4xf64> {
  %y = moe.expert rows(%x : tensor<?x8xf64>) groups(%sizes : tensor<2xi32>)
      per_expert(%a, %b, %c : tensor<2x8x4xf64>, tensor<2x8x4xf64>, tensor<2x8x4xf64>) -> tensor<?x4xf64> {
  ^bb0(%r: tensor<?x8xf64>, %wa: tensor<8x4xf64>, %wb: tensor<8x4xf64>, %wc: tensor<8x4xf64>):
    %c0 = arith.constant 0 : index
    %zero = arith.constant 0.0 : f64
    %n = tensor.dim %r, %c0 : tensor<?x8xf64>
    %e = tensor.empty(%n) : tensor<?x4xf64>
    %z = linalg.fill ins(%zero : f64) outs(%e : tensor<?x4xf64>) -> tensor<?x4xf64>
    %pa = linalg.matmul ins(%r, %wa : tensor<?x8xf64>, tensor<8x4xf64>) outs(%z : tensor<?x4xf64>) -> tensor<?x4xf64>
    %pb = linalg.matmul ins(%r, %wb : tensor<?x8xf64>, tensor<8x4xf64>) outs(%z : tensor<?x4xf64>) -> tensor<?x4xf64>
    %pc = linalg.matmul ins(%r, %wc : tensor<?x8xf64>, tensor<8x4xf64>) outs(%z : tensor<?x4xf64>) -> tensor<?x4xf64>
    %ab = arith.mulf %pa, %pb : tensor<?x4xf64>
    %abc = arith.addf %ab, %pc : tensor<?x4xf64>
    moe.yield %abc : tensor<?x4xf64>
  }
  return %y : tensor<?x4xf64>
}

// -----

// A product that a later stage reads again, and two results.

// CHECK-LABEL: func @two_stages(
// CHECK: %[[H:.*]] = moe.grouped_matmul {{.*}} -> tensor<?x8xf32>
// CHECK: math.tanh
// CHECK: %[[Y:.*]] = moe.grouped_matmul rows(%[[H]] {{.*}} elements(%[[H]] : tensor<?x8xf32>) -> tensor<?x8xf32>
// CHECK: return %[[Y]], %[[H]]
func.func @two_stages(%x: tensor<?x8xf32>, %sizes: tensor<2xi32>, %a: tensor<2x8x8xf32>, %b: tensor<2x8x8xf32>) -> (tensor<?x8xf32>, tensor<?x8xf32>) {
  %y:2 = moe.expert rows(%x : tensor<?x8xf32>) groups(%sizes : tensor<2xi32>)
      per_expert(%a, %b : tensor<2x8x8xf32>, tensor<2x8x8xf32>) -> tensor<?x8xf32>, tensor<?x8xf32> {
  ^bb0(%r: tensor<?x8xf32>, %wa: tensor<8x8xf32>, %wb: tensor<8x8xf32>):
    %c0 = arith.constant 0 : index
    %zero = arith.constant 0.0 : f32
    %n = tensor.dim %r, %c0 : tensor<?x8xf32>
    %e = tensor.empty(%n) : tensor<?x8xf32>
    %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x8xf32>) -> tensor<?x8xf32>
    %p = linalg.matmul ins(%r, %wa : tensor<?x8xf32>, tensor<8x8xf32>) outs(%z : tensor<?x8xf32>) -> tensor<?x8xf32>
    %h = linalg.tanh ins(%p : tensor<?x8xf32>) outs(%e : tensor<?x8xf32>) -> tensor<?x8xf32>
    %q = linalg.matmul ins(%h, %wb : tensor<?x8xf32>, tensor<8x8xf32>) outs(%z : tensor<?x8xf32>) -> tensor<?x8xf32>
    %s = arith.addf %q, %h : tensor<?x8xf32>
    moe.yield %s, %h : tensor<?x8xf32>, tensor<?x8xf32>
  }
  return %y#0, %y#1 : tensor<?x8xf32>, tensor<?x8xf32>
}

// -----

// Shared weights: all groups together are one group.

// CHECK-LABEL: func @shared(
// CHECK-SAME: %[[X:.*]]: tensor<?x8xf32>, %[[S:.*]]: tensor<2xi32>, %[[W:.*]]: tensor<8x4xf32>, %[[V:.*]]: tensor<4xf32>, %[[D:.*]]: tensor<2x4x8xf32>, %[[BIAS:.*]]: tensor<8xf32>)
// CHECK: %[[ROW:.*]] = tensor.expand_shape %[[S]] {{\[\[}}0, 1]] output_shape [1, 2]
// CHECK: %[[SUM:.*]] = linalg.reduce
// CHECK-SAME: ins(%[[ROW]] : tensor<1x2xi32>)
// CHECK-DAG: %[[W1:.*]] = tensor.expand_shape %[[W]] {{\[\[}}0, 1], [2]] output_shape [1, 8, 4]
// CHECK-DAG: %[[V1:.*]] = tensor.expand_shape %[[V]] {{\[\[}}0, 1]] output_shape [1, 4]
// CHECK: %[[H:.*]] = moe.grouped_matmul rows(%[[X]] : tensor<?x8xf32>) groups(%[[SUM]] : tensor<1xi32>) weights(%[[W1]] : tensor<1x8x4xf32>) kn vectors(%[[V1]] : tensor<1x4xf32>)
// A shared vector next to weights per expert is repeated.
// CHECK: %[[B:.*]] = linalg.broadcast ins(%[[BIAS]] : tensor<8xf32>) outs(%{{.*}} : tensor<2x8xf32>) dimensions = [0]
// CHECK: moe.grouped_matmul rows(%[[H]] : tensor<?x4xf32>) groups(%[[S]] : tensor<2xi32>) weights(%[[D]] : tensor<2x4x8xf32>) kn bias(%[[B]] : tensor<2x8xf32>)
func.func @shared(%x: tensor<?x8xf32>, %sizes: tensor<2xi32>, %w: tensor<8x4xf32>, %v: tensor<4xf32>, %down: tensor<2x4x8xf32>, %bias: tensor<8xf32>) -> tensor<?x8xf32> {
  %y = moe.expert rows(%x : tensor<?x8xf32>) groups(%sizes : tensor<2xi32>) per_expert(%down : tensor<2x4x8xf32>)
      shared(%w, %v, %bias : tensor<8x4xf32>, tensor<4xf32>, tensor<8xf32>) -> tensor<?x8xf32> {
  ^bb0(%r: tensor<?x8xf32>, %d: tensor<4x8xf32>, %ws: tensor<8x4xf32>, %vs: tensor<4xf32>, %bs: tensor<8xf32>):
    %c0 = arith.constant 0 : index
    %zero = arith.constant 0.0 : f32
    %n = tensor.dim %r, %c0 : tensor<?x8xf32>
    %e = tensor.empty(%n) : tensor<?x4xf32>
    %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x4xf32>) -> tensor<?x4xf32>
    %p = linalg.matmul ins(%r, %ws : tensor<?x8xf32>, tensor<8x4xf32>) outs(%z : tensor<?x4xf32>) -> tensor<?x4xf32>
    %vb = linalg.broadcast ins(%vs : tensor<4xf32>) outs(%e : tensor<?x4xf32>) dimensions = [0]
    %h = arith.addf %p, %vb : tensor<?x4xf32>
    %e2 = tensor.empty(%n) : tensor<?x8xf32>
    %init = linalg.broadcast ins(%bs : tensor<8xf32>) outs(%e2 : tensor<?x8xf32>) dimensions = [0]
    %o = linalg.matmul ins(%h, %d : tensor<?x4xf32>, tensor<4x8xf32>) outs(%init : tensor<?x8xf32>) -> tensor<?x8xf32>
    moe.yield %o : tensor<?x8xf32>
  }
  return %y : tensor<?x8xf32>
}

// -----

// Rows that pass through unchanged.

// CHECK-LABEL: func @identity(
// CHECK-SAME: %[[X:.*]]: tensor<?x8xf32>
// CHECK-NEXT: return %[[X]]
func.func @identity(%x: tensor<?x8xf32>, %sizes: tensor<2xi32>) -> tensor<?x8xf32> {
  %y = moe.expert rows(%x : tensor<?x8xf32>) groups(%sizes : tensor<2xi32>) -> tensor<?x8xf32> {
  ^bb0(%r: tensor<?x8xf32>):
    moe.yield %r : tensor<?x8xf32>
  }
  return %y : tensor<?x8xf32>
}
