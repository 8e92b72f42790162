// RUN: moira-opt %s -split-input-file -verify-diagnostics

func.func @expert_c4_sum_shape(%x: tensor<?x8xf32>, %dy: tensor<?x16xf32>, %n: tensor<4xi32>) {
  // expected-error @+1 {{'moe.expert' op expected sums of static [E, ...] with E = 4, got 'tensor<3x16xf32>'}}
  %0 = moe.expert rows(%x, %dy : tensor<?x8xf32>, tensor<?x16xf32>) groups(%n : tensor<4xi32>) -> tensor<3x16xf32> {
  ^bb0(%r: tensor<?x8xf32>, %d: tensor<?x16xf32>):
    %zero = arith.constant 0.0 : f32
    %e = tensor.empty() : tensor<16xf32>
    %z = linalg.fill ins(%zero : f32) outs(%e : tensor<16xf32>) -> tensor<16xf32>
    %sum = linalg.reduce ins(%d : tensor<?x16xf32>) outs(%z : tensor<16xf32>) dimensions = [0]
      (%a: f32, %b: f32) { %t = arith.addf %a, %b : f32 linalg.yield %t : f32 }
    moe.yield %sum : tensor<16xf32>
  }
  return
}

// -----

func.func @expert_c4_sum_dynamic(%x: tensor<?x8xf32>, %dy: tensor<?x16xf32>, %n: tensor<4xi32>) {
  // expected-error @+1 {{'moe.expert' op expected sums of static [E, ...] with E = 4, got 'tensor<?x16xf32>'}}
  %0 = moe.expert rows(%x, %dy : tensor<?x8xf32>, tensor<?x16xf32>) groups(%n : tensor<4xi32>) -> tensor<?x16xf32> {
  ^bb0(%r: tensor<?x8xf32>, %d: tensor<?x16xf32>):
    %zero = arith.constant 0.0 : f32
    %e = tensor.empty() : tensor<16xf32>
    %z = linalg.fill ins(%zero : f32) outs(%e : tensor<16xf32>) -> tensor<16xf32>
    %sum = linalg.reduce ins(%d : tensor<?x16xf32>) outs(%z : tensor<16xf32>) dimensions = [0]
      (%a: f32, %b: f32) { %t = arith.addf %a, %b : f32 linalg.yield %t : f32 }
    moe.yield %sum : tensor<16xf32>
  }
  return
}

// -----

// The value does not come from rows.
func.func @expert_c5_sum_of_other(%x: tensor<?x8xf32>, %dy: tensor<?x16xf32>, %n: tensor<4xi32>) {
  %0 = moe.expert rows(%x, %dy : tensor<?x8xf32>, tensor<?x16xf32>) groups(%n : tensor<4xi32>) -> tensor<4x16xf32> {
  ^bb0(%r: tensor<?x8xf32>, %d: tensor<?x16xf32>):
    %zero = arith.constant 0.0 : f32
    %e = tensor.empty() : tensor<16xf32>
    %z = linalg.fill ins(%zero : f32) outs(%e : tensor<16xf32>) -> tensor<16xf32>
    %y = arith.constant dense<1.0> : tensor<16xf32>
    // expected-error @+1 {{'moe.yield' op expected a sum over rows as operand #0 of an expert's yield, of static shape}}
    moe.yield %y : tensor<16xf32>
  }
  return
}

// -----

// Not a sum.
func.func @expert_c5_maximum(%x: tensor<?x8xf32>, %dy: tensor<?x16xf32>, %n: tensor<4xi32>) {
  %0 = moe.expert rows(%x, %dy : tensor<?x8xf32>, tensor<?x16xf32>) groups(%n : tensor<4xi32>) -> tensor<4x16xf32> {
  ^bb0(%r: tensor<?x8xf32>, %d: tensor<?x16xf32>):
    %zero = arith.constant 0.0 : f32
    %e = tensor.empty() : tensor<16xf32>
    %z = linalg.fill ins(%zero : f32) outs(%e : tensor<16xf32>) -> tensor<16xf32>
    // expected-error @+1 {{'linalg.reduce' op expected a reduction over rows to add to its accumulator, result #0 does not}}
    %sum = linalg.reduce ins(%d : tensor<?x16xf32>) outs(%z : tensor<16xf32>) dimensions = [0]
      (%a: f32, %b: f32) { %t = arith.maximumf %a, %b : f32 linalg.yield %t : f32 }
    moe.yield %sum : tensor<16xf32>
  }
  return
}

// -----

// The accumulator is read twice: products, not sums.
func.func @expert_c5_doubles(%x: tensor<?x8xf32>, %dy: tensor<?x16xf32>, %n: tensor<4xi32>) {
  %0 = moe.expert rows(%x, %dy : tensor<?x8xf32>, tensor<?x16xf32>) groups(%n : tensor<4xi32>) -> tensor<4x16xf32> {
  ^bb0(%r: tensor<?x8xf32>, %d: tensor<?x16xf32>):
    %zero = arith.constant 0.0 : f32
    %e = tensor.empty() : tensor<16xf32>
    %z = linalg.fill ins(%zero : f32) outs(%e : tensor<16xf32>) -> tensor<16xf32>
    // expected-error @+1 {{'linalg.reduce' op expected a reduction over rows to add to its accumulator, result #0 does not}}
    %sum = linalg.reduce ins(%d : tensor<?x16xf32>) outs(%z : tensor<16xf32>) dimensions = [0]
      (%a: f32, %b: f32) { %u = arith.mulf %a, %b : f32 %t = arith.addf %u, %b : f32 linalg.yield %t : f32 }
    moe.yield %sum : tensor<16xf32>
  }
  return
}

// -----

// An expert without rows would not give zeros.
func.func @expert_c5_affine(%x: tensor<?x8xf32>, %dy: tensor<?x16xf32>, %n: tensor<4xi32>) {
  %0 = moe.expert rows(%x, %dy : tensor<?x8xf32>, tensor<?x16xf32>) groups(%n : tensor<4xi32>) -> tensor<4x16xf32> {
  ^bb0(%r: tensor<?x8xf32>, %d: tensor<?x16xf32>):
    %zero = arith.constant 0.0 : f32
    %e = tensor.empty() : tensor<16xf32>
    %z = linalg.fill ins(%zero : f32) outs(%e : tensor<16xf32>) -> tensor<16xf32>
    %sum = linalg.reduce ins(%d : tensor<?x16xf32>) outs(%z : tensor<16xf32>) dimensions = [0]
      (%a: f32, %b: f32) { %t = arith.addf %a, %b : f32 linalg.yield %t : f32 }
    %one = arith.constant dense<1.0> : tensor<16xf32>
    // expected-error @+1 {{'arith.addf' op expected an op that is linear in sums over rows}}
    %y = arith.addf %sum, %one : tensor<16xf32>
    moe.yield %y : tensor<16xf32>
  }
  return
}

// -----

func.func @expert_c5_square(%x: tensor<?x8xf32>, %dy: tensor<?x16xf32>, %n: tensor<4xi32>) {
  %0 = moe.expert rows(%x, %dy : tensor<?x8xf32>, tensor<?x16xf32>) groups(%n : tensor<4xi32>) -> tensor<4x16xf32> {
  ^bb0(%r: tensor<?x8xf32>, %d: tensor<?x16xf32>):
    %zero = arith.constant 0.0 : f32
    %e = tensor.empty() : tensor<16xf32>
    %z = linalg.fill ins(%zero : f32) outs(%e : tensor<16xf32>) -> tensor<16xf32>
    %sum = linalg.reduce ins(%d : tensor<?x16xf32>) outs(%z : tensor<16xf32>) dimensions = [0]
      (%a: f32, %b: f32) { %t = arith.addf %a, %b : f32 linalg.yield %t : f32 }
    // expected-error @+1 {{'linalg.map' op expected an op that is linear in sums over rows}}
    %y = linalg.map { arith.mulf } ins(%sum, %sum : tensor<16xf32>, tensor<16xf32>) outs(%e : tensor<16xf32>)
    moe.yield %y : tensor<16xf32>
  }
  return
}

// -----

// A sum over all rows comes back to each: rows would not be independent.
func.func @expert_c5_sum_to_rows(%x: tensor<?x8xf32>, %dy: tensor<?x16xf32>, %n: tensor<4xi32>) {
  %0 = moe.expert rows(%x, %dy : tensor<?x8xf32>, tensor<?x16xf32>) groups(%n : tensor<4xi32>) -> tensor<?x16xf32> {
  ^bb0(%r: tensor<?x8xf32>, %d: tensor<?x16xf32>):
    %zero = arith.constant 0.0 : f32
    %e = tensor.empty() : tensor<16xf32>
    %z = linalg.fill ins(%zero : f32) outs(%e : tensor<16xf32>) -> tensor<16xf32>
    %sum = linalg.reduce ins(%d : tensor<?x16xf32>) outs(%z : tensor<16xf32>) dimensions = [0]
      (%a: f32, %b: f32) { %t = arith.addf %a, %b : f32 linalg.yield %t : f32 }
    %c0 = arith.constant 0 : index
    %m = tensor.dim %r, %c0 : tensor<?x8xf32>
    %i = tensor.empty(%m) : tensor<?x16xf32>
    // expected-error @+1 {{'linalg.generic' op expected no sum over rows beside rows, got one as operand #1}}
    %y = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
        ins(%d, %sum : tensor<?x16xf32>, tensor<16xf32>) outs(%i : tensor<?x16xf32>) {
    ^bb1(%a: f32, %b: f32, %c: f32):
      %p = arith.mulf %a, %b : f32
      linalg.yield %p : f32
    } -> tensor<?x16xf32>
    moe.yield %y : tensor<?x16xf32>
  }
  return
}
