// RUN: moira-opt %s --moe-shard=ranks=2 -split-input-file -verify-diagnostics

// Ops that tokens cannot be followed through.

func.func @two_dims(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %c0 = arith.constant 0 : index
  %t = tensor.dim %x, %c0 : tensor<?x8xf32>
  // expected-error @+1 {{'tensor.empty' op expected an op that treats tokens independently, got a tensor with two dimensions of tokens}}
  %e = tensor.empty(%t, %t) : tensor<?x?xf32>
  return %x : tensor<?x8xf32>
}

// -----

func.func @gram(%x: tensor<?x8xf32>, %e: tensor<4x4xf32>) -> tensor<?x8xf32> {
  // expected-error @+1 {{'linalg.generic' op expected an op that treats tokens independently, got one that indexes tokens in two ways}}
  %g = linalg.generic {indexing_maps = [affine_map<(i, j, k) -> (i, k)>,
      affine_map<(i, j, k) -> (j, k)>, affine_map<(i, j, k) -> (i, j)>],
      iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %x : tensor<?x8xf32>, tensor<?x8xf32>) outs(%e : tensor<4x4xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %m = arith.mulf %a, %b : f32
    %s = arith.addf %o, %m : f32
    linalg.yield %s : f32
  } -> tensor<4x4xf32>
  return %x : tensor<?x8xf32>
}

// -----

func.func @any_dim(%x: tensor<?x8xf32>, %d: index) -> tensor<?x8xf32> {
  // expected-error @+1 {{'tensor.dim' op expected an op that treats tokens independently, got one that reads a dimension that is not constant}}
  %t = tensor.dim %x, %d : tensor<?x8xf32>
  return %x : tensor<?x8xf32>
}

// -----

func.func @print(%x: tensor<?x8xf32>, %m: memref<1xindex>) -> tensor<?x8xf32> {
  %c0 = arith.constant 0 : index
  %t = tensor.dim %x, %c0 : tensor<?x8xf32>
  // expected-error @+1 {{'memref.store' op expected an op that treats tokens independently, got one with side effects}}
  memref.store %t, %m[%c0] : memref<1xindex>
  return %x : tensor<?x8xf32>
}

// -----

func.func @table(%x: tensor<?x8xf32>, %t: tensor<16x8xf32>) -> tensor<?x8xf32> {
  // expected-error @+1 {{'linalg.generic' op expected an op that treats tokens independently, got one that reads operand #1 by the number of a token}}
  %y = linalg.generic {indexing_maps = [affine_map<(t, d) -> (t, d)>, affine_map<(t, d) -> (t, d)>,
      affine_map<(t, d) -> (t, d)>], iterator_types = ["parallel", "parallel"]}
      ins(%x, %t : tensor<?x8xf32>, tensor<16x8xf32>) outs(%x : tensor<?x8xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %s = arith.addf %a, %b : f32
    linalg.yield %s : f32
  } -> tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}

// -----

func.func @drops(%x: tensor<?x1xf32>) -> tensor<?xf32> {
  %c0 = arith.constant 0 : index
  %t = tensor.dim %x, %c0 : tensor<?x1xf32>
  // expected-error @+1 {{'tensor.extract_slice' op expected an op that treats tokens independently, got a slice that drops dimensions}}
  %y = tensor.extract_slice %x[0, 0] [%t, 1] [1, 1] : tensor<?x1xf32> to tensor<?xf32>
  return %y : tensor<?xf32>
}

// -----

func.func @first_row(%x: tensor<?x8xf32>, %r: tensor<1x8xf32>) -> tensor<?x8xf32> {
  // expected-error @+1 {{'tensor.insert_slice' op expected an op that treats tokens independently, got one that writes over tokens}}
  %y = tensor.insert_slice %r into %x[0, 0] [1, 8] [1, 1] : tensor<1x8xf32> into tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}

// -----

func.func @concat(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  // expected-error @+1 {{'tensor.concat' op expected an op that treats tokens independently, got a concatenation of tokens}}
  %y = tensor.concat dim(0) %x, %x : (tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}

// -----

func.func @softmax(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  // expected-error @+1 {{'linalg.softmax' op expected an op that treats tokens independently, got a softmax over tokens}}
  %y = linalg.softmax dimension(0) ins(%x : tensor<?x8xf32>) outs(%x : tensor<?x8xf32>) -> tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}

// -----

func.func @mixed_operands(%x: tensor<?x8xf32>, %d: index, %f: f32) -> tensor<?x8xf32> {
  %y = tensor.splat %f[%d] : tensor<?x8xf32>
  // expected-error @+1 {{'arith.addf' op expected an op that treats tokens independently, got operands of which not all have tokens in the same dim}}
  %s = arith.addf %x, %y : tensor<?x8xf32>
  return %s : tensor<?x8xf32>
}

// -----

func.func @fixed(%x: tensor<?x8xf32>) -> tensor<4x8xf32> {
  // expected-error @+1 {{'tensor.cast' op expected an op that treats tokens independently, got a fixed number of tokens}}
  %y = tensor.cast %x : tensor<?x8xf32> to tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}

// -----

func.func @loop(%x: tensor<?x?xf32>) -> tensor<?x?xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %t = tensor.dim %x, %c0 : tensor<?x?xf32>
  %d = tensor.dim %x, %c1 : tensor<?x?xf32>
  // expected-error @+1 {{'scf.for' op expected an op that treats tokens independently, got a loop that carries tokens in different dims}}
  %y = scf.for %i = %c0 to %c4 step %c1 iter_args(%a = %x) -> tensor<?x?xf32> {
    %e = tensor.empty(%d, %t) : tensor<?x?xf32>
    %p = linalg.transpose ins(%a : tensor<?x?xf32>) outs(%e : tensor<?x?xf32>) permutation = [1, 0]
    scf.yield %p : tensor<?x?xf32>
  }
  return %y : tensor<?x?xf32>
}

// -----

func.func @branches(%x: tensor<?x8xf32>, %c: i1, %d: index, %f: f32) -> tensor<?x8xf32> {
  %y = tensor.splat %f[%d] : tensor<?x8xf32>
  // expected-error @+1 {{'scf.if' op expected an op that treats tokens independently, got branches of which one yields tokens}}
  %s = scf.if %c -> tensor<?x8xf32> {
    scf.yield %x : tensor<?x8xf32>
  } else {
    scf.yield %y : tensor<?x8xf32>
  }
  return %s : tensor<?x8xf32>
}

// -----

func.func @condition(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %c0 = arith.constant 0 : index
  %t = tensor.dim %x, %c0 : tensor<?x8xf32>
  %c = arith.cmpi eq, %t, %c0 : index
  // expected-error @+1 {{'scf.if' op expected the same condition on all ranks, got a value of one rank's tokens}}
  %s = scf.if %c -> tensor<?x8xf32> {
    scf.yield %x : tensor<?x8xf32>
  } else {
    scf.yield %x : tensor<?x8xf32>
  }
  return %s : tensor<?x8xf32>
}

// -----

func.func @noise(%seed: i64, %n: index) -> i64 {
  %c0 = arith.constant 0 : index
  // expected-error @+1 {{'moe.noise' op expected as many rows as this rank has tokens}}
  %x = moe.noise normal rows(%n) seed(%seed) step(%seed) first(%c0) {layer = 0 : i64} -> tensor<?x4xf32>
  return %seed : i64
}

// -----

func.func @ids_in_columns(%ids: tensor<?x2xi32>) -> tensor<4xi32> {
  %c0 = arith.constant 0 : index
  %t = tensor.dim %ids, %c0 : tensor<?x2xi32>
  %e = tensor.empty(%t) : tensor<2x?xi32>
  %p = linalg.transpose ins(%ids : tensor<?x2xi32>) outs(%e : tensor<2x?xi32>) permutation = [1, 0]
  %q = tensor.cast %p : tensor<2x?xi32> to tensor<?x?xi32>
  // expected-error @+1 {{'moe.count' op expected ids with a row per token of this rank in dim 0, got tokens in another dim}}
  %c = moe.count %q : tensor<?x?xi32> -> tensor<4xi32>
  return %c : tensor<4xi32>
}

// -----

func.func @made_up_ids(%d: index, %i: i32) -> tensor<4xi32> {
  %ids = tensor.splat %i[%d] : tensor<?x2xi32>
  // expected-error @+1 {{'moe.count' op expected ids with a row per token of this rank in dim 0, got no tokens}}
  %c = moe.count %ids : tensor<?x2xi32> -> tensor<4xi32>
  return %c : tensor<4xi32>
}

// -----

// expected-error @+1 {{'func.func' op expected a body of one block, got 2}}
func.func @blocks(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  cf.br ^next
^next:
  return %x : tensor<?x8xf32>
}
