// RUN: moira-opt %s -allow-unregistered-dialect -split-input-file -verify-diagnostics

func.func @expert_c1_no_rows(%n: tensor<4xi32>) {
  // expected-error @+1 {{'moe.expert' op expected at least one row operand}}
  "moe.expert"(%n) <{operandSegmentSizes = array<i32: 0, 1, 0, 0>}> ({
    "moe.yield"() : () -> ()
  }) : (tensor<4xi32>) -> ()
  return
}

// -----

func.func @expert_c1_mixed(%x: tensor<?x8xf32>, %p: tensor<4x5x8xf32>, %n: tensor<4xi32>) {
  // expected-error @+1 {{'moe.expert' op expected all rows ragged [R, D] or all padded [E, P, D], got 'tensor<?x8xf32>' and 'tensor<4x5x8xf32>'}}
  %0 = moe.expert rows(%x, %p : tensor<?x8xf32>, tensor<4x5x8xf32>) groups(%n : tensor<4xi32>) -> tensor<?x8xf32> {
  ^bb0(%a: tensor<?x8xf32>, %b: tensor<?x8xf32>):
    moe.yield %a : tensor<?x8xf32>
  }
  return
}

// -----

func.func @expert_c1_rank(%x: tensor<8xf32>, %n: tensor<4xi32>) {
  // expected-error @+1 {{'moe.expert' op expected all rows ragged [R, D] or all padded [E, P, D], got 'tensor<8xf32>' and 'tensor<8xf32>'}}
  %0 = moe.expert rows(%x : tensor<8xf32>) groups(%n : tensor<4xi32>) -> tensor<8xf32> {
  ^bb0(%a: tensor<8xf32>):
    moe.yield %a : tensor<8xf32>
  }
  return
}

// -----

func.func @expert_c1_scalar(%x: tensor<f32>, %n: tensor<4xi32>) {
  // expected-error @+1 {{'moe.expert' op expected all rows ragged [R, D] or all padded [E, P, D], got 'tensor<f32>' and 'tensor<f32>'}}
  %0 = moe.expert rows(%x : tensor<f32>) groups(%n : tensor<4xi32>) -> tensor<f32> {
  ^bb0(%a: tensor<f32>):
    moe.yield %a : tensor<f32>
  }
  return
}

// -----

func.func @expert_c2_dynamic(%x: tensor<?x8xf32>, %n: tensor<?xi32>) {
  // expected-error @+1 {{'moe.expert' op expected static E, got sizes 'tensor<?xi32>'}}
  %0 = moe.expert rows(%x : tensor<?x8xf32>) groups(%n : tensor<?xi32>) -> tensor<?x8xf32> {
  ^bb0(%a: tensor<?x8xf32>):
    moe.yield %a : tensor<?x8xf32>
  }
  return
}

// -----

func.func @expert_c2_per_expert(%x: tensor<?x8xf32>, %n: tensor<4xi32>, %w: tensor<5x8xf32>) {
  // expected-error @+1 {{'moe.expert' op expected per-expert operand of size 4 in dim 0, got 'tensor<5x8xf32>'}}
  %0 = moe.expert rows(%x : tensor<?x8xf32>) groups(%n : tensor<4xi32>) per_expert(%w : tensor<5x8xf32>) -> tensor<?x8xf32> {
  ^bb0(%a: tensor<?x8xf32>, %b: tensor<8xf32>):
    moe.yield %a : tensor<?x8xf32>
  }
  return
}

// -----

func.func @expert_c2_per_expert_rank(%x: tensor<?x8xf32>, %n: tensor<4xi32>, %w: tensor<f32>) {
  // expected-error @+1 {{'moe.expert' op expected per-expert operand of rank >= 1, got 'tensor<f32>'}}
  %0 = moe.expert rows(%x : tensor<?x8xf32>) groups(%n : tensor<4xi32>) per_expert(%w : tensor<f32>) -> tensor<?x8xf32> {
  ^bb0(%a: tensor<?x8xf32>, %b: tensor<f32>):
    moe.yield %a : tensor<?x8xf32>
  }
  return
}

// -----

func.func @expert_c2_padded(%x: tensor<3x5x8xf32>, %n: tensor<4xi32>) {
  // expected-error @+1 {{'moe.expert' op expected padded rows of size 4 in dim 0, got 'tensor<3x5x8xf32>'}}
  %0 = moe.expert rows(%x : tensor<3x5x8xf32>) groups(%n : tensor<4xi32>) -> tensor<3x5x8xf32> {
  ^bb0(%a: tensor<?x8xf32>):
    moe.yield %a : tensor<?x8xf32>
  }
  return
}

// -----

func.func @expert_c3_padded_slice(%x: tensor<4x5x8xf32>, %n: tensor<4xi32>) {
  // expected-error @+1 {{'moe.expert' op expected block arguments ('tensor<?x8xf32>'), got ('tensor<5x8xf32>')}}
  %0 = moe.expert rows(%x : tensor<4x5x8xf32>) groups(%n : tensor<4xi32>) -> tensor<4x5x8xf32> {
  ^bb0(%a: tensor<5x8xf32>):
    moe.yield %a : tensor<5x8xf32>
  }
  return
}

// -----

func.func @expert_c3_per_expert(%x: tensor<?x8xf32>, %n: tensor<4xi32>, %e: tensor<4x8x16xf32>, %v: f32) {
  // expected-error @+1 {{'moe.expert' op expected block arguments ('tensor<?x8xf32>', 'tensor<8x16xf32>', 'f32'), got ('tensor<?x8xf32>', 'tensor<4x8x16xf32>', 'f32')}}
  %0 = moe.expert rows(%x : tensor<?x8xf32>) groups(%n : tensor<4xi32>) per_expert(%e : tensor<4x8x16xf32>) shared(%v : f32) -> tensor<?x8xf32> {
  ^bb0(%a: tensor<?x8xf32>, %b: tensor<4x8x16xf32>, %c: f32):
    moe.yield %a : tensor<?x8xf32>
  }
  return
}

// -----

func.func @expert_c3_shared(%x: tensor<?x8xf32>, %n: tensor<4xi32>, %e: tensor<4x8x16xf32>, %v: f32) {
  // expected-error @+1 {{'moe.expert' op expected block arguments ('tensor<?x8xf32>', 'tensor<8x16xf32>', 'f32'), got ('tensor<?x8xf32>', 'tensor<8x16xf32>', 'f64')}}
  %0 = moe.expert rows(%x : tensor<?x8xf32>) groups(%n : tensor<4xi32>) per_expert(%e : tensor<4x8x16xf32>) shared(%v : f32) -> tensor<?x8xf32> {
  ^bb0(%a: tensor<?x8xf32>, %b: tensor<8x16xf32>, %c: f64):
    moe.yield %a : tensor<?x8xf32>
  }
  return
}

// -----

func.func @expert_c3_count(%x: tensor<?x8xf32>, %n: tensor<4xi32>, %e: tensor<4x8x16xf32>, %v: f32) {
  // expected-error @+1 {{'moe.expert' op expected block arguments ('tensor<?x8xf32>', 'tensor<8x16xf32>', 'f32'), got ('tensor<?x8xf32>', 'tensor<8x16xf32>')}}
  %0 = moe.expert rows(%x : tensor<?x8xf32>) groups(%n : tensor<4xi32>) per_expert(%e : tensor<4x8x16xf32>) shared(%v : f32) -> tensor<?x8xf32> {
  ^bb0(%a: tensor<?x8xf32>, %b: tensor<8x16xf32>):
    moe.yield %a : tensor<?x8xf32>
  }
  return
}

// -----

func.func @expert_c4_rank(%x: tensor<?x8xf32>, %n: tensor<4xi32>, %e: tensor<4x8x16xf32>, %v: f32) {
  // expected-error @+1 {{'moe.expert' op expected a result of rank 2 like the rows, got 'tensor<4x5x8xf32>'}}
  %0 = moe.expert rows(%x : tensor<?x8xf32>) groups(%n : tensor<4xi32>) per_expert(%e : tensor<4x8x16xf32>) shared(%v : f32) -> tensor<4x5x8xf32> {
  ^bb0(%r: tensor<?x8xf32>, %w: tensor<8x16xf32>, %s: f32):
    moe.yield %r : tensor<?x8xf32>
  }
  return
}

// -----

func.func @expert_c4_rows(%x: tensor<6x8xf32>, %n: tensor<4xi32>, %e: tensor<4x8x16xf32>, %v: f32) {
  // expected-error @+1 {{'moe.expert' op expected result of size 6 in dim 0, got 'tensor<7x8xf32>'}}
  %0 = moe.expert rows(%x : tensor<6x8xf32>) groups(%n : tensor<4xi32>) per_expert(%e : tensor<4x8x16xf32>) shared(%v : f32) -> tensor<7x8xf32> {
  ^bb0(%r: tensor<?x8xf32>, %w: tensor<8x16xf32>, %s: f32):
    moe.yield %r : tensor<?x8xf32>
  }
  return
}

// -----

func.func @expert_c4_yield_type(%x: tensor<?x8xf32>, %n: tensor<4xi32>, %e: tensor<4x8x16xf32>, %v: f32) {
  %0 = moe.expert rows(%x : tensor<?x8xf32>) groups(%n : tensor<4xi32>) per_expert(%e : tensor<4x8x16xf32>) shared(%v : f32) -> tensor<?x16xf32> {
  ^bb0(%r: tensor<?x8xf32>, %w: tensor<8x16xf32>, %s: f32):
    // expected-error @+1 {{'moe.yield' op expected to yield ('tensor<?x16xf32>'), got ('tensor<?x8xf32>')}}
    moe.yield %r : tensor<?x8xf32>
  }
  return
}

// -----

func.func @expert_c4_yield_count(%x: tensor<?x8xf32>, %n: tensor<4xi32>, %e: tensor<4x8x16xf32>, %v: f32) {
  %0 = moe.expert rows(%x : tensor<?x8xf32>) groups(%n : tensor<4xi32>) per_expert(%e : tensor<4x8x16xf32>) shared(%v : f32) -> tensor<?x16xf32> {
  ^bb0(%r: tensor<?x8xf32>, %w: tensor<8x16xf32>, %s: f32):
    // expected-error @+1 {{'moe.yield' op expected to yield ('tensor<?x16xf32>'), got ()}}
    moe.yield
  }
  return
}

// -----

// A sum over rows mixes tokens.
func.func @expert_c5_reduces_rows(%x: tensor<?x8xf32>, %n: tensor<4xi32>, %e: tensor<4x8x16xf32>, %v: f32) {
  %0 = moe.expert rows(%x : tensor<?x8xf32>) groups(%n : tensor<4xi32>) per_expert(%e : tensor<4x8x16xf32>) shared(%v : f32) -> tensor<?x16xf32> {
  ^bb0(%r: tensor<?x8xf32>, %w: tensor<8x16xf32>, %s: f32):
    %z = tensor.empty() : tensor<8xf32>
    // expected-error @+1 {{'linalg.reduce' op expected a reduction over rows to begin with zeros or a sum over rows, operand #1 is neither}}
    %sum = linalg.reduce ins(%r : tensor<?x8xf32>) outs(%z : tensor<8xf32>) dimensions = [0]
      (%a: f32, %b: f32) { %t = arith.addf %a, %b : f32 linalg.yield %t : f32 }
    %y = "test.use"() : () -> tensor<?x16xf32>
    moe.yield %y : tensor<?x16xf32>
  }
  return
}

// -----

// The Gram matrix of the rows.
func.func @expert_c5_matmul_over_rows(%x: tensor<?x8xf32>, %n: tensor<4xi32>, %e: tensor<4x8x16xf32>, %v: f32) {
  %0 = moe.expert rows(%x : tensor<?x8xf32>) groups(%n : tensor<4xi32>) per_expert(%e : tensor<4x8x16xf32>) shared(%v : f32) -> tensor<?x16xf32> {
  ^bb0(%r: tensor<?x8xf32>, %w: tensor<8x16xf32>, %s: f32):
    %z = tensor.empty() : tensor<8x8xf32>
    // expected-error @+1 {{'linalg.generic' op expected a reduction over rows to begin with zeros or a sum over rows, operand #2 is neither}}
    %g = linalg.generic {indexing_maps = [affine_map<(i, j, k) -> (k, i)>, affine_map<(i, j, k) -> (k, j)>, affine_map<(i, j, k) -> (i, j)>], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%r, %r : tensor<?x8xf32>, tensor<?x8xf32>) outs(%z : tensor<8x8xf32>) {
    ^bb1(%a: f32, %b: f32, %c: f32):
      %p = arith.mulf %a, %b : f32
      %q = arith.addf %p, %c : f32
      linalg.yield %q : f32
    } -> tensor<8x8xf32>
    %y = "test.use"() : () -> tensor<?x16xf32>
    moe.yield %y : tensor<?x16xf32>
  }
  return
}

// -----

// Attention-like: a tensor whose two dims both count rows.
func.func @expert_c5_rows_against_rows(%x: tensor<?x8xf32>, %n: tensor<4xi32>, %e: tensor<4x8x16xf32>, %v: f32) {
  %0 = moe.expert rows(%x : tensor<?x8xf32>) groups(%n : tensor<4xi32>) per_expert(%e : tensor<4x8x16xf32>) shared(%v : f32) -> tensor<?x8xf32> {
  ^bb0(%r: tensor<?x8xf32>, %w: tensor<8x16xf32>, %s: f32):
    %c0 = arith.constant 0 : index
    %m = tensor.dim %r, %c0 : tensor<?x8xf32>
    // expected-error @+1 {{'tensor.empty' op expected one dimension that counts rows}}
    %i = tensor.empty(%m, %m) : tensor<?x?xf32>
    moe.yield %r : tensor<?x8xf32>
  }
  return
}

// -----

// Row i of one operand meets column i of another.
func.func @expert_c5_transposed_operand(%x: tensor<?x8xf32>, %n: tensor<4xi32>, %e: tensor<4x8x16xf32>, %v: f32) {
  %0 = moe.expert rows(%x : tensor<?x8xf32>) groups(%n : tensor<4xi32>) per_expert(%e : tensor<4x8x16xf32>) shared(%v : f32) -> tensor<?x8xf32> {
  ^bb0(%r: tensor<?x8xf32>, %w: tensor<8x16xf32>, %s: f32):
    %c0 = arith.constant 0 : index
    %m = tensor.dim %r, %c0 : tensor<?x8xf32>
    %i = tensor.empty(%m) : tensor<8x?xf32>
    %t = linalg.transpose ins(%r : tensor<?x8xf32>) outs(%i : tensor<8x?xf32>) permutation = [1, 0]
    %j = tensor.empty(%m) : tensor<?x8xf32>
    // expected-error @+1 {{'linalg.generic' op expected every operand to count rows in the same loop, operand #1 does not}}
    %y = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
        ins(%r, %t : tensor<?x8xf32>, tensor<8x?xf32>) outs(%j : tensor<?x8xf32>) {
    ^bb1(%a: f32, %b: f32, %c: f32):
      linalg.yield %a : f32
    } -> tensor<?x8xf32>
    moe.yield %y : tensor<?x8xf32>
  }
  return
}

// -----

// A convolution along the rows.
func.func @expert_c5_shifted_rows(%x: tensor<?x8xf32>, %n: tensor<4xi32>, %e: tensor<4x8x16xf32>, %v: tensor<3xf32>) {
  %0 = moe.expert rows(%x : tensor<?x8xf32>) groups(%n : tensor<4xi32>) per_expert(%e : tensor<4x8x16xf32>) shared(%v : tensor<3xf32>) -> tensor<?x8xf32> {
  ^bb0(%r: tensor<?x8xf32>, %w: tensor<8x16xf32>, %s: tensor<3xf32>):
    %c0 = arith.constant 0 : index
    %m = tensor.dim %r, %c0 : tensor<?x8xf32>
    %i = tensor.empty(%m) : tensor<?x8xf32>
    // expected-error @+1 {{'linalg.generic' op expected every operand to count rows in the same loop, operand #0 does not}}
    %y = linalg.generic {indexing_maps = [affine_map<(i, j, k) -> (i + k, j)>, affine_map<(i, j, k) -> (k)>, affine_map<(i, j, k) -> (i, j)>], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%r, %s : tensor<?x8xf32>, tensor<3xf32>) outs(%i : tensor<?x8xf32>) {
    ^bb1(%a: f32, %b: f32, %c: f32):
      linalg.yield %a : f32
    } -> tensor<?x8xf32>
    moe.yield %y : tensor<?x8xf32>
  }
  return
}

// -----

// The row's number picks the column.
func.func @expert_c5_diagonal(%x: tensor<?x8xf32>, %n: tensor<4xi32>, %e: tensor<4x8x16xf32>, %v: f32) {
  %0 = moe.expert rows(%x : tensor<?x8xf32>) groups(%n : tensor<4xi32>) per_expert(%e : tensor<4x8x16xf32>) shared(%v : f32) -> tensor<?x8xf32> {
  ^bb0(%r: tensor<?x8xf32>, %w: tensor<8x16xf32>, %s: f32):
    %c0 = arith.constant 0 : index
    %m = tensor.dim %r, %c0 : tensor<?x8xf32>
    %i = tensor.empty(%m) : tensor<?xf32>
    // expected-error @+1 {{'linalg.generic' op expected every operand to count rows in the same loop, operand #0 does not}}
    %y = linalg.generic {indexing_maps = [affine_map<(i) -> (i, i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
        ins(%r : tensor<?x8xf32>) outs(%i : tensor<?xf32>) {
    ^bb1(%a: f32, %b: f32):
      linalg.yield %a : f32
    } -> tensor<?xf32>
    moe.yield %r : tensor<?x8xf32>
  }
  return
}

// -----

// A shared operand indexed by the row's place in its group.
func.func @expert_c5_per_row_weights(%x: tensor<?x8xf32>, %n: tensor<4xi32>, %e: tensor<4x8x16xf32>, %v: tensor<?x8xf32>) {
  %0 = moe.expert rows(%x : tensor<?x8xf32>) groups(%n : tensor<4xi32>) per_expert(%e : tensor<4x8x16xf32>) shared(%v : tensor<?x8xf32>) -> tensor<?x8xf32> {
  ^bb0(%r: tensor<?x8xf32>, %w: tensor<8x16xf32>, %s: tensor<?x8xf32>):
    %c0 = arith.constant 0 : index
    %m = tensor.dim %r, %c0 : tensor<?x8xf32>
    %i = tensor.empty(%m) : tensor<?x8xf32>
    // expected-error @+1 {{'linalg.generic' op expected the rows' loop to index rows only, it indexes operand #1}}
    %y = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
        ins(%r, %s : tensor<?x8xf32>, tensor<?x8xf32>) outs(%i : tensor<?x8xf32>) {
    ^bb1(%a: f32, %b: f32, %c: f32):
      %p = arith.mulf %a, %b : f32
      linalg.yield %p : f32
    } -> tensor<?x8xf32>
    moe.yield %y : tensor<?x8xf32>
  }
  return
}

// -----

// A value that depends on the row's place in its group.
func.func @expert_c5_row_number(%x: tensor<?x8xf32>, %n: tensor<4xi32>, %e: tensor<4x8x16xf32>, %v: f32) {
  %0 = moe.expert rows(%x : tensor<?x8xf32>) groups(%n : tensor<4xi32>) per_expert(%e : tensor<4x8x16xf32>) shared(%v : f32) -> tensor<?x8xf32> {
  ^bb0(%r: tensor<?x8xf32>, %w: tensor<8x16xf32>, %s: f32):
    %c0 = arith.constant 0 : index
    %m = tensor.dim %r, %c0 : tensor<?x8xf32>
    %i = tensor.empty(%m) : tensor<?x8xf32>
    // expected-error @+1 {{'linalg.generic' op expected no linalg.index of the rows' loop}}
    %y = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
        ins(%r : tensor<?x8xf32>) outs(%i : tensor<?x8xf32>) {
    ^bb1(%a: f32, %b: f32):
      %row = linalg.index 0 : index
      %k = arith.index_cast %row : index to i32
      %f = arith.sitofp %k : i32 to f32
      linalg.yield %f : f32
    } -> tensor<?x8xf32>
    moe.yield %y : tensor<?x8xf32>
  }
  return
}

// -----

// Every row times row 0, read inside the linalg body.
func.func @expert_c5_extract_inside(%x: tensor<?x8xf32>, %n: tensor<4xi32>, %e: tensor<4x8x16xf32>, %v: f32) {
  %0 = moe.expert rows(%x : tensor<?x8xf32>) groups(%n : tensor<4xi32>) per_expert(%e : tensor<4x8x16xf32>) shared(%v : f32) -> tensor<?x8xf32> {
  ^bb0(%r: tensor<?x8xf32>, %w: tensor<8x16xf32>, %s: f32):
    %c0 = arith.constant 0 : index
    %m = tensor.dim %r, %c0 : tensor<?x8xf32>
    %i = tensor.empty(%m) : tensor<?x8xf32>
    // expected-error @+1 {{'linalg.generic' op expected rows as operands, not inside the body}}
    %y = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
        ins(%r : tensor<?x8xf32>) outs(%i : tensor<?x8xf32>) {
    ^bb1(%a: f32, %b: f32):
      %first = tensor.extract %r[%c0, %c0] : tensor<?x8xf32>
      %p = arith.mulf %a, %first : f32
      linalg.yield %p : f32
    } -> tensor<?x8xf32>
    moe.yield %y : tensor<?x8xf32>
  }
  return
}

// -----

func.func @expert_c5_rows_only_inside(%x: tensor<?x8xf32>, %n: tensor<4xi32>, %e: tensor<4x8x16xf32>, %v: f32) {
  %0 = moe.expert rows(%x : tensor<?x8xf32>) groups(%n : tensor<4xi32>) per_expert(%e : tensor<4x8x16xf32>) shared(%v : f32) -> tensor<?x8xf32> {
  ^bb0(%r: tensor<?x8xf32>, %w: tensor<8x16xf32>, %s: f32):
    %c0 = arith.constant 0 : index
    %i = tensor.empty() : tensor<8xf32>
    // expected-error @+1 {{'linalg.generic' op expected rows as operands, not inside the body}}
    %g = linalg.generic {indexing_maps = [affine_map<(j) -> (j)>], iterator_types = ["parallel"]}
        outs(%i : tensor<8xf32>) {
    ^bb1(%b: f32):
      %first = tensor.extract %r[%c0, %c0] : tensor<?x8xf32>
      linalg.yield %first : f32
    } -> tensor<8xf32>
    moe.yield %r : tensor<?x8xf32>
  }
  return
}

// -----

func.func @expert_c5_extract(%x: tensor<?x8xf32>, %n: tensor<4xi32>, %e: tensor<4x8x16xf32>, %v: f32) {
  %0 = moe.expert rows(%x : tensor<?x8xf32>) groups(%n : tensor<4xi32>) per_expert(%e : tensor<4x8x16xf32>) shared(%v : f32) -> tensor<?x8xf32> {
  ^bb0(%r: tensor<?x8xf32>, %w: tensor<8x16xf32>, %s: f32):
    %c0 = arith.constant 0 : index
    // expected-error @+1 {{'tensor.extract' op expected an op that treats rows independently in an expert's body}}
    %first = tensor.extract %r[%c0, %c0] : tensor<?x8xf32>
    moe.yield %r : tensor<?x8xf32>
  }
  return
}

// -----

// The number of rows in the group depends on the other tokens.
func.func @expert_c5_count_as_value(%x: tensor<?x8xf32>, %n: tensor<4xi32>, %e: tensor<4x8x16xf32>, %v: f32) {
  %0 = moe.expert rows(%x : tensor<?x8xf32>) groups(%n : tensor<4xi32>) per_expert(%e : tensor<4x8x16xf32>) shared(%v : f32) -> tensor<?x8xf32> {
  ^bb0(%r: tensor<?x8xf32>, %w: tensor<8x16xf32>, %s: f32):
    %c0 = arith.constant 0 : index
    %m = tensor.dim %r, %c0 : tensor<?x8xf32>
    // expected-error @+1 {{'arith.index_cast' op expected the number of rows to size tensors only}}
    %k = arith.index_cast %m : index to i32
    moe.yield %r : tensor<?x8xf32>
  }
  return
}

// -----

func.func @expert_c5_count_into_linalg(%x: tensor<?x8xf32>, %n: tensor<4xi32>, %e: tensor<4x8x16xf32>, %v: f32) {
  %0 = moe.expert rows(%x : tensor<?x8xf32>) groups(%n : tensor<4xi32>) per_expert(%e : tensor<4x8x16xf32>) shared(%v : f32) -> tensor<?x8xf32> {
  ^bb0(%r: tensor<?x8xf32>, %w: tensor<8x16xf32>, %s: f32):
    %c0 = arith.constant 0 : index
    %m = tensor.dim %r, %c0 : tensor<?x8xf32>
    %i = tensor.empty(%m) : tensor<?x8xindex>
    // expected-error @+1 {{'linalg.fill' op expected the number of rows to size tensors only}}
    %f = linalg.fill ins(%m : index) outs(%i : tensor<?x8xindex>) -> tensor<?x8xindex>
    moe.yield %r : tensor<?x8xf32>
  }
  return
}

// -----

func.func @expert_c5_unknown_op(%x: tensor<?x8xf32>, %n: tensor<4xi32>, %e: tensor<4x8x16xf32>, %v: f32) {
  %0 = moe.expert rows(%x : tensor<?x8xf32>) groups(%n : tensor<4xi32>) per_expert(%e : tensor<4x8x16xf32>) shared(%v : f32) -> tensor<?x8xf32> {
  ^bb0(%r: tensor<?x8xf32>, %w: tensor<8x16xf32>, %s: f32):
    // expected-error @+1 {{'test.index' op expected an op without side effects in an expert's body}}
    %k = "test.index"() : () -> index
    moe.yield %r : tensor<?x8xf32>
  }
  return
}

// -----

func.func @expert_c5_dynamic_dim(%x: tensor<?x8xf32>, %n: tensor<4xi32>, %e: tensor<4x8x16xf32>, %v: index) {
  %0 = moe.expert rows(%x : tensor<?x8xf32>) groups(%n : tensor<4xi32>) per_expert(%e : tensor<4x8x16xf32>) shared(%v : index) -> tensor<?x8xf32> {
  ^bb0(%r: tensor<?x8xf32>, %w: tensor<8x16xf32>, %s: index):
    // expected-error @+1 {{'tensor.dim' op expected a constant dimension of rows}}
    %m = tensor.dim %r, %s : tensor<?x8xf32>
    moe.yield %r : tensor<?x8xf32>
  }
  return
}

// -----

func.func @expert_c5_part_of_the_rows(%x: tensor<?x8xf32>, %n: tensor<4xi32>, %e: tensor<4x8x16xf32>, %v: f32) {
  %0 = moe.expert rows(%x : tensor<?x8xf32>) groups(%n : tensor<4xi32>) per_expert(%e : tensor<4x8x16xf32>) shared(%v : f32) -> tensor<?x8xf32> {
  ^bb0(%r: tensor<?x8xf32>, %w: tensor<8x16xf32>, %s: f32):
    // expected-error @+1 {{'tensor.extract_slice' op expected a slice that keeps all rows}}
    %p = tensor.extract_slice %r[1, 0] [3, 8] [1, 1] : tensor<?x8xf32> to tensor<3x8xf32>
    moe.yield %r : tensor<?x8xf32>
  }
  return
}

// -----

func.func @expert_c5_reordered_rows(%x: tensor<?x8xf32>, %n: tensor<4xi32>, %e: tensor<4x8x16xf32>, %v: f32) {
  %0 = moe.expert rows(%x : tensor<?x8xf32>) groups(%n : tensor<4xi32>) per_expert(%e : tensor<4x8x16xf32>) shared(%v : f32) -> tensor<?x8xf32> {
  ^bb0(%r: tensor<?x8xf32>, %w: tensor<8x16xf32>, %s: f32):
    %c0 = arith.constant 0 : index
    %m = tensor.dim %r, %c0 : tensor<?x8xf32>
    // expected-error @+1 {{'tensor.extract_slice' op expected a slice that keeps all rows}}
    %p = tensor.extract_slice %r[0, 0] [%m, 8] [2, 1] : tensor<?x8xf32> to tensor<?x8xf32>
    moe.yield %p : tensor<?x8xf32>
  }
  return
}

// -----

func.func @expert_c5_rank_reducing_slice(%x: tensor<?x8xf32>, %n: tensor<4xi32>, %e: tensor<4x8x16xf32>, %v: f32) {
  %0 = moe.expert rows(%x : tensor<?x8xf32>) groups(%n : tensor<4xi32>) per_expert(%e : tensor<4x8x16xf32>) shared(%v : f32) -> tensor<?x8xf32> {
  ^bb0(%r: tensor<?x8xf32>, %w: tensor<8x16xf32>, %s: f32):
    %c0 = arith.constant 0 : index
    %m = tensor.dim %r, %c0 : tensor<?x8xf32>
    // expected-error @+1 {{'tensor.extract_slice' op expected a slice that keeps the rank of rows}}
    %p = tensor.extract_slice %r[0, 0] [%m, 1] [1, 1] : tensor<?x8xf32> to tensor<?xf32>
    moe.yield %r : tensor<?x8xf32>
  }
  return
}

// -----

// Weights cut by the number of rows.
func.func @expert_c5_slice_of_weights_by_count(%x: tensor<?x8xf32>, %n: tensor<4xi32>, %e: tensor<4x8x16xf32>, %v: f32) {
  %0 = moe.expert rows(%x : tensor<?x8xf32>) groups(%n : tensor<4xi32>) per_expert(%e : tensor<4x8x16xf32>) shared(%v : f32) -> tensor<?x16xf32> {
  ^bb0(%r: tensor<?x8xf32>, %w: tensor<8x16xf32>, %s: f32):
    %c0 = arith.constant 0 : index
    %m = tensor.dim %r, %c0 : tensor<?x8xf32>
    // expected-error @+1 {{'tensor.extract_slice' op expected the number of rows to size rows only}}
    %p = tensor.extract_slice %w[0, 0] [%m, 16] [1, 1] : tensor<8x16xf32> to tensor<?x16xf32>
    moe.yield %p : tensor<?x16xf32>
  }
  return
}

// -----

func.func @expert_c5_collapsed_rows(%x: tensor<?x8xf32>, %n: tensor<4xi32>, %e: tensor<4x8x16xf32>, %v: f32) {
  %0 = moe.expert rows(%x : tensor<?x8xf32>) groups(%n : tensor<4xi32>) per_expert(%e : tensor<4x8x16xf32>) shared(%v : f32) -> tensor<?x8xf32> {
  ^bb0(%r: tensor<?x8xf32>, %w: tensor<8x16xf32>, %s: f32):
    // expected-error @+1 {{'tensor.collapse_shape' op expected a reshape that leaves rows alone}}
    %p = tensor.collapse_shape %r [[0, 1]] : tensor<?x8xf32> into tensor<?xf32>
    moe.yield %r : tensor<?x8xf32>
  }
  return
}

// -----

func.func @expert_c5_expanded_rows(%x: tensor<?x8xf32>, %n: tensor<4xi32>, %e: tensor<4x8x16xf32>, %v: f32) {
  %0 = moe.expert rows(%x : tensor<?x8xf32>) groups(%n : tensor<4xi32>) per_expert(%e : tensor<4x8x16xf32>) shared(%v : f32) -> tensor<?x8xf32> {
  ^bb0(%r: tensor<?x8xf32>, %w: tensor<8x16xf32>, %s: f32):
    %c0 = arith.constant 0 : index
    %m = tensor.dim %r, %c0 : tensor<?x8xf32>
    // expected-error @+1 {{'tensor.expand_shape' op expected a reshape that leaves rows alone}}
    %p = tensor.expand_shape %r [[0, 1], [2]] output_shape [%m, 1, 8] : tensor<?x8xf32> into tensor<?x1x8xf32>
    moe.yield %r : tensor<?x8xf32>
  }
  return
}

// -----

func.func @expert_c5_concatenated(%x: tensor<?x8xf32>, %n: tensor<4xi32>, %e: tensor<4x8x16xf32>, %v: f32) {
  %0 = moe.expert rows(%x : tensor<?x8xf32>) groups(%n : tensor<4xi32>) per_expert(%e : tensor<4x8x16xf32>) shared(%v : f32) -> tensor<?x8xf32> {
  ^bb0(%r: tensor<?x8xf32>, %w: tensor<8x16xf32>, %s: f32):
    // expected-error @+1 {{'tensor.concat' op expected an op that treats rows independently in an expert's body}}
    %p = tensor.concat dim(0) %r, %r : (tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
    moe.yield %p : tensor<?x8xf32>
  }
  return
}

// -----

func.func @expert_c5_loop_over_rows(%x: tensor<?x8xf32>, %n: tensor<4xi32>, %e: tensor<4x8x16xf32>, %v: f32) {
  %0 = moe.expert rows(%x : tensor<?x8xf32>) groups(%n : tensor<4xi32>) per_expert(%e : tensor<4x8x16xf32>) shared(%v : f32) -> tensor<?x8xf32> {
  ^bb0(%r: tensor<?x8xf32>, %w: tensor<8x16xf32>, %s: f32):
    %c0 = arith.constant 0 : index
    %m = tensor.dim %r, %c0 : tensor<?x8xf32>
    %c1 = arith.constant 1 : index
    // expected-error @+1 {{'scf.for' op expected an op that treats rows independently in an expert's body}}
    %p = scf.for %k = %c0 to %m step %c1 iter_args(%a = %r) -> tensor<?x8xf32> { scf.yield %a : tensor<?x8xf32> }
    moe.yield %p : tensor<?x8xf32>
  }
  return
}

// -----

func.func @expert_c5_fixed_number(%x: tensor<?x8xf32>, %n: tensor<4xi32>, %e: tensor<4x8x16xf32>, %v: f32) {
  %0 = moe.expert rows(%x : tensor<?x8xf32>) groups(%n : tensor<4xi32>) per_expert(%e : tensor<4x8x16xf32>) shared(%v : f32) -> tensor<?x8xf32> {
  ^bb0(%r: tensor<?x8xf32>, %w: tensor<8x16xf32>, %s: f32):
    // expected-error @+1 {{'tensor.cast' op expected any number of rows, got 'tensor<4x8xf32>'}}
    %p = tensor.cast %r : tensor<?x8xf32> to tensor<4x8xf32>
    moe.yield %r : tensor<?x8xf32>
  }
  return
}

// -----

func.func @expert_c5_unranked(%x: tensor<?x8xf32>, %n: tensor<4xi32>, %e: tensor<4x8x16xf32>, %v: f32) {
  %0 = moe.expert rows(%x : tensor<?x8xf32>) groups(%n : tensor<4xi32>) per_expert(%e : tensor<4x8x16xf32>) shared(%v : f32) -> tensor<?x8xf32> {
  ^bb0(%r: tensor<?x8xf32>, %w: tensor<8x16xf32>, %s: f32):
    // expected-error @+1 {{'tensor.cast' op expected any number of rows, got 'tensor<*xf32>'}}
    %p = tensor.cast %r : tensor<?x8xf32> to tensor<*xf32>
    moe.yield %r : tensor<?x8xf32>
  }
  return
}

// -----

func.func @expert_c5_elementwise_with_shared(%x: tensor<?x8xf32>, %n: tensor<4xi32>, %e: tensor<4x8x16xf32>, %v: tensor<?x8xf32>) {
  %0 = moe.expert rows(%x : tensor<?x8xf32>) groups(%n : tensor<4xi32>) per_expert(%e : tensor<4x8x16xf32>) shared(%v : tensor<?x8xf32>) -> tensor<?x8xf32> {
  ^bb0(%r: tensor<?x8xf32>, %w: tensor<8x16xf32>, %s: tensor<?x8xf32>):
    // expected-error @+1 {{'arith.addf' op expected rows as every tensor operand}}
    %p = arith.addf %r, %s : tensor<?x8xf32>
    moe.yield %p : tensor<?x8xf32>
  }
  return
}

// -----

func.func @expert_c5_elementwise_transposed(%x: tensor<?x8xf32>, %n: tensor<4xi32>, %e: tensor<4x8x16xf32>, %v: f32) {
  %0 = moe.expert rows(%x : tensor<?x8xf32>) groups(%n : tensor<4xi32>) per_expert(%e : tensor<4x8x16xf32>) shared(%v : f32) -> tensor<?x8xf32> {
  ^bb0(%r: tensor<?x8xf32>, %w: tensor<8x16xf32>, %s: f32):
    %c0 = arith.constant 0 : index
    %m = tensor.dim %r, %c0 : tensor<?x8xf32>
    %i = tensor.empty(%m) : tensor<8x?xf32>
    %t = linalg.transpose ins(%r : tensor<?x8xf32>) outs(%i : tensor<8x?xf32>) permutation = [1, 0]
    %u = tensor.cast %t : tensor<8x?xf32> to tensor<?x?xf32>
    %q = tensor.cast %r : tensor<?x8xf32> to tensor<?x?xf32>
    // expected-error @+1 {{'arith.addf' op expected operands to count rows in the same dimension}}
    %p = arith.addf %u, %q : tensor<?x?xf32>
    moe.yield %r : tensor<?x8xf32>
  }
  return
}

// -----

func.func @expert_c5_yields_shared(%x: tensor<?x8xf32>, %n: tensor<4xi32>, %e: tensor<4x8x16xf32>, %v: tensor<?x8xf32>) {
  %0 = moe.expert rows(%x : tensor<?x8xf32>) groups(%n : tensor<4xi32>) per_expert(%e : tensor<4x8x16xf32>) shared(%v : tensor<?x8xf32>) -> tensor<?x8xf32> {
  ^bb0(%r: tensor<?x8xf32>, %w: tensor<8x16xf32>, %s: tensor<?x8xf32>):
    // expected-error @+1 {{'moe.yield' op expected one row per row as operand #0 of an expert's yield}}
    moe.yield %s : tensor<?x8xf32>
  }
  return
}

// -----

func.func @expert_c5_side_effect(%x: tensor<?x8xf32>, %n: tensor<4xi32>, %e: tensor<4x8x16xf32>, %v: memref<4xf32>) {
  %0 = moe.expert rows(%x : tensor<?x8xf32>) groups(%n : tensor<4xi32>) per_expert(%e : tensor<4x8x16xf32>) shared(%v : memref<4xf32>) -> tensor<?x8xf32> {
  ^bb0(%r: tensor<?x8xf32>, %w: tensor<8x16xf32>, %s: memref<4xf32>):
    %c0 = arith.constant 0 : index
    // expected-error @+1 {{'memref.load' op expected an op without side effects in an expert's body}}
    %k = memref.load %s[%c0] : memref<4xf32>
    moe.yield %r : tensor<?x8xf32>
  }
  return
}

// -----

// All rows write one result.
func.func @expert_c5_row_sums_forgotten(%x: tensor<?x8xf32>, %n: tensor<4xi32>, %e: tensor<4x8x16xf32>, %v: tensor<8xf32>) {
  %0 = moe.expert rows(%x : tensor<?x8xf32>) groups(%n : tensor<4xi32>) per_expert(%e : tensor<4x8x16xf32>) shared(%v : tensor<8xf32>) -> tensor<?x8xf32> {
  ^bb0(%r: tensor<?x8xf32>, %w: tensor<8x16xf32>, %s: tensor<8xf32>):
    %c0 = arith.constant 0 : index
    %m = tensor.dim %r, %c0 : tensor<?x8xf32>
    %i = tensor.empty(%m) : tensor<?x8xf32>
    // expected-error @+1 {{'linalg.generic' op expected result #0 to keep the rows}}
    %y = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (j)>], iterator_types = ["parallel", "parallel"]}
        ins(%r : tensor<?x8xf32>) outs(%s : tensor<8xf32>) {
    ^bb1(%a: f32, %b: f32):
      linalg.yield %a : f32
    } -> tensor<8xf32>
    moe.yield %r : tensor<?x8xf32>
  }
  return
}

// -----

func.func @expert_c6_bf16(%x: tensor<?x8xbf16>, %n: tensor<4xi32>, %e: tensor<4x8x16xbf16>) {
  %0 = moe.expert rows(%x : tensor<?x8xbf16>) groups(%n : tensor<4xi32>) per_expert(%e : tensor<4x8x16xbf16>) -> tensor<?x16xbf16> {
  ^bb0(%r: tensor<?x8xbf16>, %w: tensor<8x16xbf16>):
    %c0 = arith.constant 0 : index
    %m = tensor.dim %r, %c0 : tensor<?x8xbf16>
    %i = tensor.empty(%m) : tensor<?x16xbf16>
    // expected-error @+1 {{'linalg.matmul' op expected f32 outs of a contraction in moe.expert, got 'bf16' (it would round at every k)}}
    %y = linalg.matmul ins(%r, %w : tensor<?x8xbf16>, tensor<8x16xbf16>) outs(%i : tensor<?x16xbf16>) -> tensor<?x16xbf16>
    moe.yield %y : tensor<?x16xbf16>
  }
  return
}

// -----

func.func @expert_c6_f16(%x: tensor<?x8xf16>, %n: tensor<4xi32>, %e: tensor<4x8x16xf16>) {
  %0 = moe.expert rows(%x : tensor<?x8xf16>) groups(%n : tensor<4xi32>) per_expert(%e : tensor<4x8x16xf16>) -> tensor<?x16xf16> {
  ^bb0(%r: tensor<?x8xf16>, %w: tensor<8x16xf16>):
    %c0 = arith.constant 0 : index
    %m = tensor.dim %r, %c0 : tensor<?x8xf16>
    %i = tensor.empty(%m) : tensor<?x16xf16>
    // expected-error @+1 {{'linalg.matmul' op expected f32 outs of a contraction in moe.expert, got 'f16' (it would round at every k)}}
    %y = linalg.matmul ins(%r, %w : tensor<?x8xf16>, tensor<8x16xf16>) outs(%i : tensor<?x16xf16>) -> tensor<?x16xf16>
    moe.yield %y : tensor<?x16xf16>
  }
  return
}

// -----

func.func @yield_outside() {
  // expected-error @+1 {{'moe.yield' op expects parent op to be one of 'moe.expert, moe.grouped_matmul'}}
  moe.yield
}

// -----

func.func @isolated(%x: tensor<?x8xf32>, %n: tensor<4xi32>) {
  // expected-note @+1 {{required by region isolation constraints}}
  %0 = moe.expert rows(%x : tensor<?x8xf32>) groups(%n : tensor<4xi32>) -> tensor<?x8xf32> {
  ^bb0(%r: tensor<?x8xf32>):
    // expected-error @+1 {{'moe.yield' op using value defined outside the region}}
    moe.yield %x : tensor<?x8xf32>
  }
  return
}

// -----

func.func @expert_c4_dynamic_features(%x: tensor<?x?xf32>, %n: tensor<4xi32>) -> tensor<?x?xf32> {
  // expected-error @+1 {{'moe.expert' op expected a result with static features, got 'tensor<?x?xf32>'}}
  %y = moe.expert rows(%x : tensor<?x?xf32>) groups(%n : tensor<4xi32>) -> tensor<?x?xf32> {
  ^bb0(%r: tensor<?x?xf32>):
    moe.yield %r : tensor<?x?xf32>
  }
  return %y : tensor<?x?xf32>
}
