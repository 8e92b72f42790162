// RUN: moira-opt %s --split-input-file --verify-diagnostics --moe-differentiate=entry=main

// expected-error @below {{expected a function 'main' with a body as entry, got none}}
module {
  func.func @other(%x: tensor<2xf32>) -> tensor<2xf32> {
    return %x : tensor<2xf32>
  }
}

// -----

// expected-error @below {{'func.func' op expected a function without 'moe.backward' to differentiate}}
func.func @main(%x: tensor<2xf32>) -> tensor<2xf32>
    attributes {moe.backward = @other} {
  return %x : tensor<2xf32>
}

// -----

func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
  return %x : tensor<2xf32>
}
// expected-error @below {{'func.func' op expected no symbol 'main_backward': it is to be made}}
func.func @main_backward() {
  return
}

// -----

// expected-error @below {{'func.func' op expected one block to differentiate, got 2}}
func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
  cf.br ^bb1
^bb1:
  return %x : tensor<2xf32>
}

// -----

func.func private @outside(tensor<2xf32>) -> tensor<2xf32>
func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
  // expected-error @below {{'func.call' op expected an op with a rule for its gradient, got one without}}
  %y = call @outside(%x) : (tensor<2xf32>) -> tensor<2xf32>
  return %y : tensor<2xf32>
}

// -----

func.func @main(%x: tensor<4xf32>) -> tensor<2xf32> {
  %e = tensor.empty() : tensor<2xf32>
  // expected-error @below {{'linalg.generic' op expected projected permutations as maps to differentiate, operand #0 has affine_map<(d0) -> (d0 * 2)>}}
  %y = linalg.generic {indexing_maps = [affine_map<(i) -> (2 * i)>,
      affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      ins(%x : tensor<4xf32>) outs(%e : tensor<2xf32>) {
  ^bb0(%a: f32, %o: f32):
    linalg.yield %a : f32
  } -> tensor<2xf32>
  return %y : tensor<2xf32>
}

// -----

// A constant in a map of more than one element.
func.func @main(%x: tensor<4x3xf32>) -> tensor<4xf32> {
  %e = tensor.empty() : tensor<4xf32>
  // expected-error @below {{'linalg.generic' op expected projected permutations as maps to differentiate, operand #0 has affine_map<(d0) -> (d0, 0)>}}
  %y = linalg.generic {indexing_maps = [affine_map<(i) -> (i, 0)>,
      affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      ins(%x : tensor<4x3xf32>) outs(%e : tensor<4xf32>) {
  ^bb0(%a: f32, %o: f32):
    linalg.yield %a : f32
  } -> tensor<4xf32>
  return %y : tensor<4xf32>
}

// -----

func.func @main(%x: tensor<4xf32>) -> tensor<f32> {
  %one = arith.constant dense<1.0> : tensor<f32>
  // expected-error @below {{'linalg.reduce' op expected a reduction that adds or takes an extremum to differentiate, result #0 does neither}}
  %y = linalg.reduce { arith.mulf } ins(%x : tensor<4xf32>)
      outs(%one : tensor<f32>) dimensions = [0]
  return %y : tensor<f32>
}

// -----

func.func @main(%x: tensor<4xf32>, %ids: tensor<3xi32>) -> tensor<3xf32> {
  %e = tensor.empty() : tensor<3xf32>
  // expected-error @below {{'linalg.generic' op expected tensors to differentiate as operands, got one read inside the body}}
  %y = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>,
      affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      ins(%ids : tensor<3xi32>) outs(%e : tensor<3xf32>) {
  ^bb0(%a: i32, %o: f32):
    %i = arith.index_cast %a : i32 to index
    %v = tensor.extract %x[%i] : tensor<4xf32>
    linalg.yield %v : f32
  } -> tensor<3xf32>
  return %y : tensor<3xf32>
}

// -----

func.func @main(%x: memref<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {
  // Ops that no gradient reaches need no rule.
  %c0 = arith.constant 0 : index
  %0 = memref.load %x[%c0] : memref<4xf32>
  return %y : tensor<4xf32>
}

// -----

func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %e = tensor.empty() : tensor<4xf32>
  %y = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>,
      affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>) {
  ^bb0(%a: f32, %o: f32):
    // expected-error @below {{'math.sincos' op expected a scalar operation with a derivative, got one without a rule}}
    %s, %c = math.sincos %a : f32
    linalg.yield %s : f32
  } -> tensor<4xf32>
  return %y : tensor<4xf32>
}

// -----

func.func @main(%s: f32) -> f32 {
  %t = arith.truncf %s : f32 to f16
  // expected-error @below {{'arith.bitcast' op expected a scalar operation with a derivative, got one without a rule}}
  %b = arith.bitcast %t : f16 to bf16
  %y = arith.extf %b : bf16 to f32
  return %y : f32
}

// -----

func.func @main(%x: tensor<4xf32>, %s: f32) -> tensor<5xf32> {
  // expected-error @below {{'tensor.pad' op expected padding with a constant to differentiate}}
  %y = tensor.pad %x low[1] high[0] {
  ^bb0(%i: index):
    tensor.yield %s : f32
  } : tensor<4xf32> to tensor<5xf32>
  return %y : tensor<5xf32>
}

// -----

func.func @main(%x: tensor<4xf32>, %n: index, %c: i1) -> tensor<4xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  // expected-error @below {{'scf.for' op expected an op with a rule for its gradient, got one without}}
  %y = scf.for %i = %c0 to %n step %c1 iter_args(%a = %x) -> tensor<4xf32> {
    %b = math.exp %a : tensor<4xf32>
    scf.yield %b : tensor<4xf32>
  }
  return %y : tensor<4xf32>
}

// -----

func.func @main(%rows: tensor<?x4xf32>, %slots: tensor<?x2xi32>)
    -> tensor<?x4xf32> {
  // expected-error @below {{'moe.combine' op expected slots of a moe.assign to differentiate}}
  %y = moe.combine %rows, %slots
      : tensor<?x4xf32>, tensor<?x2xi32> -> tensor<?x4xf32>
  return %y : tensor<?x4xf32>
}

// -----

func.func @main(%rows: tensor<?x4xf32>, %matrix: tensor<2x2xi32>, %b: index,
    %i: index, %d: index) -> tensor<?x4xf32> {
  // expected-error @below {{'moe.exchange' op expected whole exchanges to differentiate, got one in chunks}}
  %y = moe.exchange to_experts %rows, %matrix, %b
      at <ranks = 2, experts = 2, slots = 1> equal chunk(%i of %d)
      : tensor<?x4xf32>, tensor<2x2xi32> -> tensor<?x4xf32>
  return %y : tensor<?x4xf32>
}

// -----

func.func @main(%rows: tensor<?x4xf32>, %matrix: tensor<4x2xi32>, %n: index)
    -> tensor<?x4xf32> {
  %home = moe.exchange to_tokens %rows, %matrix, %n
      at <ranks = 4, experts = 2, shards = 2, copies = 2, slots = 1> equal
      : tensor<?x4xf32>, tensor<4x2xi32> -> tensor<2x?x4xf32>
  %0 = tensor.extract_slice %home[0, 0, 0] [1, %n, 4] [1, 1, 1]
      : tensor<2x?x4xf32> to tensor<?x4xf32>
  // expected-error @below {{'tensor.extract_slice' op expected the copies of an exchange to be added up, to differentiate}}
  %1 = tensor.extract_slice %home[1, 0, 0] [1, %n, 4] [1, 1, 1]
      : tensor<2x?x4xf32> to tensor<?x4xf32>
  %e = tensor.empty(%n) : tensor<?x4xf32>
  %y = linalg.mul ins(%0, %1 : tensor<?x4xf32>, tensor<?x4xf32>)
      outs(%e : tensor<?x4xf32>) -> tensor<?x4xf32>
  return %y : tensor<?x4xf32>
}

// -----

func.func @main(%x: tensor<?x4xf32>, %sizes: tensor<2xi32>) -> tensor<2x4xf32> {
  // expected-error @below {{'moe.expert' op expected rows as results to differentiate, got sums over rows of 'tensor<2x4xf32>'}}
  %y = moe.expert rows(%x : tensor<?x4xf32>) groups(%sizes : tensor<2xi32>)
      -> tensor<2x4xf32> {
  ^bb0(%r: tensor<?x4xf32>):
    %zero = arith.constant 0.0 : f32
    %e = tensor.empty() : tensor<4xf32>
    %f = linalg.fill ins(%zero : f32) outs(%e : tensor<4xf32>) -> tensor<4xf32>
    %s = linalg.reduce { arith.addf } ins(%r : tensor<?x4xf32>)
        outs(%f : tensor<4xf32>) dimensions = [0]
    moe.yield %s : tensor<4xf32>
  }
  return %y : tensor<2x4xf32>
}
