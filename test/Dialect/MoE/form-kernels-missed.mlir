// RUN: moira-opt %s --moe-form-kernels --split-input-file \
// RUN:   --remarks-filter-missed=moe-form-kernels --remark-format=emitRemark \
// RUN:   --verify-diagnostics -o /dev/null

func.func @narrow_sums(%x: tensor<?x8xbf16>, %w: tensor<8x4xbf16>, %z: tensor<?x4xbf16>) -> tensor<?x4xbf16> {
  // expected-remark @+1 {{'linalg.matmul' stays: a contraction that does not accumulate in f32 (f64 for f64)}}
  %p = linalg.matmul ins(%x, %w : tensor<?x8xbf16>, tensor<8x4xbf16>) outs(%z : tensor<?x4xbf16>) -> tensor<?x4xbf16>
  return %p : tensor<?x4xbf16>
}

// -----

func.func @other_start(%x: tensor<?x8xf32>, %w: tensor<8x4xf32>, %z: tensor<?x4xf32>) -> tensor<?x4xf32> {
  // expected-remark @+1 {{'linalg.matmul' stays: a contraction that starts from neither zero, a bias vector nor another contraction}}
  %p = linalg.matmul ins(%x, %w : tensor<?x8xf32>, tensor<8x4xf32>) outs(%z : tensor<?x4xf32>) -> tensor<?x4xf32>
  return %p : tensor<?x4xf32>
}

// -----

func.func @computed_weight(%x: tensor<?x8xf32>, %w: tensor<8x4xf32>) -> tensor<?x4xf32> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %n = tensor.dim %x, %c0 : tensor<?x8xf32>
  %e = tensor.empty(%n) : tensor<?x4xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x4xf32>) -> tensor<?x4xf32>
  %w2 = arith.mulf %w, %w : tensor<8x4xf32>
  // expected-remark @+1 {{'linalg.matmul' stays: a weight that is computed in every step}}
  %p = linalg.matmul ins(%x, %w2 : tensor<?x8xf32>, tensor<8x4xf32>) outs(%z : tensor<?x4xf32>) -> tensor<?x4xf32>
  return %p : tensor<?x4xf32>
}

// -----

func.func @elementwise_first(%x: tensor<?x8xf32>, %sizes: tensor<2xi32>, %w: tensor<2x8x4xf32>) -> tensor<?x4xf32> {
  %y = moe.expert rows(%x : tensor<?x8xf32>) groups(%sizes : tensor<2xi32>)
      per_expert(%w : tensor<2x8x4xf32>) -> tensor<?x4xf32> {
  ^bb0(%r: tensor<?x8xf32>, %we: tensor<8x4xf32>):
    %c0 = arith.constant 0 : index
    %zero = arith.constant 0.0 : f32
    %n = tensor.dim %r, %c0 : tensor<?x8xf32>
    %e = tensor.empty(%n) : tensor<?x4xf32>
    %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x4xf32>) -> tensor<?x4xf32>
    // expected-remark @+1 {{'math.tanh' stays: elementwise work on rows with no contraction before it}}
    %t = math.tanh %r : tensor<?x8xf32>
    %p = linalg.matmul ins(%t, %we : tensor<?x8xf32>, tensor<8x4xf32>) outs(%z : tensor<?x4xf32>) -> tensor<?x4xf32>
    moe.yield %p : tensor<?x4xf32>
  }
  return %y : tensor<?x4xf32>
}

// -----

#mn = affine_map<(m, n) -> (m, n)>
#m = affine_map<(m, n) -> (m)>

func.func @row_sum(%x: tensor<?x8xf32>, %sizes: tensor<2xi32>, %out: tensor<2x8xf32>) -> tensor<?x8xf32> {
  %y = moe.expert rows(%x : tensor<?x8xf32>) groups(%sizes : tensor<2xi32>) -> tensor<?x8xf32> {
  ^bb0(%r: tensor<?x8xf32>):
    %c0 = arith.constant 0 : index
    %zero = arith.constant 0.0 : f32
    %n = tensor.dim %r, %c0 : tensor<?x8xf32>
    %e = tensor.empty(%n) : tensor<?xf32>
    %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?xf32>) -> tensor<?xf32>
    // expected-remark @+1 {{'linalg.reduce' stays: a reduction that is no product of rows and a weight}}
    %s = linalg.reduce { arith.addf } ins(%r : tensor<?x8xf32>) outs(%z : tensor<?xf32>) dimensions = [1]
    %e2 = tensor.empty(%n) : tensor<?x8xf32>
    %o = linalg.broadcast ins(%s : tensor<?xf32>) outs(%e2 : tensor<?x8xf32>) dimensions = [1]
    moe.yield %o : tensor<?x8xf32>
  }
  return %y : tensor<?x8xf32>
}

// -----

func.func @mixed(%x: tensor<?x8xf32>, %sizes: tensor<2xi32>, %v: tensor<2x4xf32>, %s: tensor<8x4xf32>) -> tensor<?x4xf32> {
  %y = moe.expert rows(%x : tensor<?x8xf32>) groups(%sizes : tensor<2xi32>)
      per_expert(%v : tensor<2x4xf32>) shared(%s : tensor<8x4xf32>) -> tensor<?x4xf32> {
  ^bb0(%r: tensor<?x8xf32>, %ve: tensor<4xf32>, %ws: tensor<8x4xf32>):
    %c0 = arith.constant 0 : index
    %zero = arith.constant 0.0 : f32
    %n = tensor.dim %r, %c0 : tensor<?x8xf32>
    %e = tensor.empty(%n) : tensor<?x4xf32>
    %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x4xf32>) -> tensor<?x4xf32>
    %q = linalg.matmul ins(%r, %ws : tensor<?x8xf32>, tensor<8x4xf32>) outs(%z : tensor<?x4xf32>) -> tensor<?x4xf32>
    %b = linalg.broadcast ins(%ve : tensor<4xf32>) outs(%e : tensor<?x4xf32>) dimensions = [0]
    // expected-remark @+1 {{'arith.addf' stays: a stage that mixes shared weights and per-expert values}}
    %t = arith.addf %q, %b : tensor<?x4xf32>
    moe.yield %t : tensor<?x4xf32>
  }
  return %y : tensor<?x4xf32>
}

// -----

// Sums of squares beside a product: the product is a kernel, the sums a loop.

func.func @other_sum(%x: tensor<?x8xf32>, %sizes: tensor<2xi32>, %w: tensor<2x8x4xf32>) -> (tensor<?x4xf32>, tensor<2x8xf32>) {
  %y:2 = moe.expert rows(%x : tensor<?x8xf32>) groups(%sizes : tensor<2xi32>)
      per_expert(%w : tensor<2x8x4xf32>) -> tensor<?x4xf32>, tensor<2x8xf32> {
  ^bb0(%r: tensor<?x8xf32>, %we: tensor<8x4xf32>):
    %c0 = arith.constant 0 : index
    %zero = arith.constant 0.0 : f32
    %n = tensor.dim %r, %c0 : tensor<?x8xf32>
    %e = tensor.empty(%n) : tensor<?x4xf32>
    %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x4xf32>) -> tensor<?x4xf32>
    %p = linalg.matmul ins(%r, %we : tensor<?x8xf32>, tensor<8x4xf32>) outs(%z : tensor<?x4xf32>) -> tensor<?x4xf32>
    %es = tensor.empty() : tensor<8xf32>
    %zs = linalg.fill ins(%zero : f32) outs(%es : tensor<8xf32>) -> tensor<8xf32>
    // expected-remark @+1 {{'linalg.generic' stays: a sum over rows that is neither one of rows nor a product of two of them}}
    %s = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (n)>], iterator_types = ["reduction", "parallel"]}
        ins(%r : tensor<?x8xf32>) outs(%zs : tensor<8xf32>) {
    ^bb1(%a: f32, %acc: f32):
      %q = arith.mulf %a, %a : f32
      %t = arith.addf %acc, %q : f32
      linalg.yield %t : f32
    } -> tensor<8xf32>
    moe.yield %p, %s : tensor<?x4xf32>, tensor<8xf32>
  }
  return %y#0, %y#1 : tensor<?x4xf32>, tensor<2x8xf32>
}

// -----

// The same alone: no kernel at all.

func.func @only_other_sum(%x: tensor<?x8xf32>, %sizes: tensor<2xi32>) -> tensor<2x8xf32> {
  %y = moe.expert rows(%x : tensor<?x8xf32>) groups(%sizes : tensor<2xi32>) -> tensor<2x8xf32> {
  ^bb0(%r: tensor<?x8xf32>):
    %zero = arith.constant 0.0 : f32
    %es = tensor.empty() : tensor<8xf32>
    %zs = linalg.fill ins(%zero : f32) outs(%es : tensor<8xf32>) -> tensor<8xf32>
    // expected-remark @+1 {{'linalg.generic' stays: a sum over rows that is neither one of rows nor a product of two of them}}
    %s = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (n)>], iterator_types = ["reduction", "parallel"]}
        ins(%r : tensor<?x8xf32>) outs(%zs : tensor<8xf32>) {
    ^bb1(%a: f32, %acc: f32):
      %q = arith.mulf %a, %a : f32
      %t = arith.addf %acc, %q : f32
      linalg.yield %t : f32
    } -> tensor<8xf32>
    moe.yield %s : tensor<8xf32>
  }
  return %y : tensor<2x8xf32>
}
