// RUN: moira-opt %s -allow-unregistered-dialect -split-input-file -verify-diagnostics

func.func @grouped_c1_no_weights(%x: tensor<?x8xf32>, %n: tensor<4xi32>) {
  // expected-error @+1 {{'moe.grouped_matmul' op expected one row operand and at least one weight in mode rows, got 1 and 0}}
  %0 = moe.grouped_matmul rows(%x : tensor<?x8xf32>) groups(%n : tensor<4xi32>) nk -> tensor<?x16xf32> {
  ^bb0():
    moe.yield
  }
  return
}

// -----

func.func @grouped_c1_two_rows(%x: tensor<?x8xf32>, %n: tensor<4xi32>, %w: tensor<4x16x8xf32>) {
  // expected-error @+1 {{'moe.grouped_matmul' op expected one row operand and at least one weight in mode rows, got 2 and 1}}
  %0 = moe.grouped_matmul rows(%x, %x : tensor<?x8xf32>, tensor<?x8xf32>) groups(%n : tensor<4xi32>) weights(%w : tensor<4x16x8xf32>) nk -> tensor<?x16xf32> {
  ^bb0(%a: f32):
    moe.yield %a : f32
  }
  return
}

// -----

func.func @grouped_c1_no_rows(%n: tensor<4xi32>) {
  // expected-error @+1 {{'moe.grouped_matmul' op expected one row operand, two in mode contraction, got none}}
  %0 = "moe.grouped_matmul"(%n) <{layout = #moe<weight_layout nk>, operandSegmentSizes = array<i32: 0, 1, 0, 0, 0, 0, 0, 0, 0>}> ({
    "moe.yield"() : () -> ()
  }) : (tensor<4xi32>) -> tensor<4x16x8xf32>
  return
}

// -----

func.func @grouped_c1_contraction_rows(%x: tensor<?x8xf32>, %n: tensor<4xi32>) {
  // expected-error @+1 {{'moe.grouped_matmul' op expected two row operands and nothing else in mode contraction}}
  %0 = moe.grouped_matmul rows(%x : tensor<?x8xf32>) groups(%n : tensor<4xi32>) nk contraction -> tensor<4x8x8xf32> {
  }
  return
}

// -----

func.func @grouped_c1_contraction_weights(%x: tensor<?x8xf32>, %n: tensor<4xi32>, %w: tensor<4x16x8xf32>) {
  // expected-error @+1 {{'moe.grouped_matmul' op expected two row operands and nothing else in mode contraction}}
  %0 = moe.grouped_matmul rows(%x, %x : tensor<?x8xf32>, tensor<?x8xf32>) groups(%n : tensor<4xi32>) weights(%w : tensor<4x16x8xf32>) nk contraction -> tensor<4x8x8xf32> {
  }
  return
}

// -----

func.func @grouped_c1_contraction_scalars(%x: tensor<?x8xf32>, %n: tensor<4xi32>, %s: tensor<?xf32>) {
  // expected-error @+1 {{'moe.grouped_matmul' op expected two row operands and nothing else in mode contraction}}
  %0 = moe.grouped_matmul rows(%x, %x : tensor<?x8xf32>, tensor<?x8xf32>) groups(%n : tensor<4xi32>) nk contraction scalars(%s : tensor<?xf32>) -> tensor<4x8x8xf32> {
  }
  return
}

// -----

func.func @grouped_c1_contraction_gather(%x: tensor<?x8xf32>, %n: tensor<4xi32>, %s: tensor<?xi32>) {
  // expected-error @+1 {{'moe.grouped_matmul' op expected two row operands and nothing else in mode contraction}}
  %0 = moe.grouped_matmul rows(%x, %x : tensor<?x8xf32>, tensor<?x8xf32>) groups(%n : tensor<4xi32>) nk contraction gather(%s : tensor<?xi32>) -> tensor<4x8x8xf32> {
  }
  return
}

// -----

func.func @grouped_c1_contraction_epilogue(%x: tensor<?x8xf32>, %n: tensor<4xi32>) {
  // expected-error @+1 {{'moe.grouped_matmul' op expected two row operands and nothing else in mode contraction}}
  %0 = moe.grouped_matmul rows(%x, %x : tensor<?x8xf32>, tensor<?x8xf32>) groups(%n : tensor<4xi32>) nk contraction -> tensor<4x8x8xf32> {
  ^bb0(%a: f32):
    moe.yield %a : f32
  }
  return
}

// -----

func.func @grouped_c1_contraction_ranks(%x: tensor<?x8xf32>, %n: tensor<4xi32>, %p: tensor<4x5x8xf32>) {
  // expected-error @+1 {{'moe.grouped_matmul' op expected row operands of one rank, got 'tensor<?x8xf32>' and 'tensor<4x5x8xf32>'}}
  %0 = moe.grouped_matmul rows(%x, %p : tensor<?x8xf32>, tensor<4x5x8xf32>) groups(%n : tensor<4xi32>) nk contraction -> tensor<4x8x8xf32> {
  }
  return
}

// -----

func.func @grouped_c1_contraction_result(%x: tensor<?x8xf32>, %n: tensor<4xi32>) {
  // expected-error @+1 {{'moe.grouped_matmul' op expected result of size 8 in dim 2, got 'tensor<4x8x9xf32>'}}
  %0 = moe.grouped_matmul rows(%x, %x : tensor<?x8xf32>, tensor<?x8xf32>) groups(%n : tensor<4xi32>) nk contraction -> tensor<4x8x9xf32> {
  }
  return
}

// -----

func.func @grouped_c1_contraction_experts(%x: tensor<?x8xf32>, %n: tensor<4xi32>) {
  // expected-error @+1 {{'moe.grouped_matmul' op expected result of size 4 in dim 0, got 'tensor<5x8x8xf32>'}}
  %0 = moe.grouped_matmul rows(%x, %x : tensor<?x8xf32>, tensor<?x8xf32>) groups(%n : tensor<4xi32>) nk contraction -> tensor<5x8x8xf32> {
  }
  return
}

// -----

func.func @grouped_c1_contraction_result_rank(%x: tensor<?x8xf32>, %n: tensor<4xi32>) {
  // expected-error @+1 {{'moe.grouped_matmul' op expected result of rank 3, got 'tensor<8x8xf32>'}}
  %0 = moe.grouped_matmul rows(%x, %x : tensor<?x8xf32>, tensor<?x8xf32>) groups(%n : tensor<4xi32>) nk contraction -> tensor<8x8xf32> {
  }
  return
}

// -----

func.func @grouped_c2_one_type(%x: tensor<?x8xf32>, %n: tensor<4xi32>, %w: tensor<4x16x8xf32>, %v: tensor<4x16x8xbf16>) {
  // expected-error @+1 {{'moe.grouped_matmul' op expected weights of one type, got 'tensor<4x16x8xf32>' and 'tensor<4x16x8xbf16>'}}
  %0 = moe.grouped_matmul rows(%x : tensor<?x8xf32>) groups(%n : tensor<4xi32>) weights(%w, %v : tensor<4x16x8xf32>, tensor<4x16x8xbf16>) nk -> tensor<?x16xf32> {
  ^bb0(%a: f32, %b: f32):
    moe.yield %a : f32
  }
  return
}

// -----

func.func @grouped_c2_experts(%x: tensor<?x8xf32>, %n: tensor<4xi32>, %w: tensor<5x16x8xf32>) {
  // expected-error @+1 {{'moe.grouped_matmul' op expected weights of size 4 in dim 0, got 'tensor<5x16x8xf32>'}}
  %0 = moe.grouped_matmul rows(%x : tensor<?x8xf32>) groups(%n : tensor<4xi32>) weights(%w : tensor<5x16x8xf32>) nk -> tensor<?x16xf32> {
  ^bb0(%a: f32):
    moe.yield %a : f32
  }
  return
}

// -----

func.func @grouped_c2_k(%x: tensor<?x8xf32>, %n: tensor<4xi32>, %w: tensor<4x16x9xf32>) {
  // expected-error @+1 {{'moe.grouped_matmul' op expected weights of size 8 in dim 2, got 'tensor<4x16x9xf32>'}}
  %0 = moe.grouped_matmul rows(%x : tensor<?x8xf32>) groups(%n : tensor<4xi32>) weights(%w : tensor<4x16x9xf32>) nk -> tensor<?x16xf32> {
  ^bb0(%a: f32):
    moe.yield %a : f32
  }
  return
}

// -----

func.func @grouped_c2_kn(%x: tensor<?x8xf32>, %n: tensor<4xi32>, %w: tensor<4x16x8xf32>) {
  // expected-error @+1 {{'moe.grouped_matmul' op expected weights of size 8 in dim 1, got 'tensor<4x16x8xf32>'}}
  %0 = moe.grouped_matmul rows(%x : tensor<?x8xf32>) groups(%n : tensor<4xi32>) weights(%w : tensor<4x16x8xf32>) kn -> tensor<?x8xf32> {
  ^bb0(%a: f32):
    moe.yield %a : f32
  }
  return
}

// -----

func.func @grouped_c2_rank(%x: tensor<?x8xf32>, %n: tensor<4xi32>, %w: tensor<4x1x8x32xf32>) {
  // expected-error @+1 {{'moe.grouped_matmul' op expected weights of rank 3, got 'tensor<4x1x8x32xf32>'}}
  %0 = moe.grouped_matmul rows(%x : tensor<?x8xf32>) groups(%n : tensor<4xi32>) weights(%w : tensor<4x1x8x32xf32>) nk -> tensor<?x16xf32> {
  ^bb0(%a: f32):
    moe.yield %a : f32
  }
  return
}

// -----

func.func @grouped_c2_n(%x: tensor<?x8xf32>, %n: tensor<4xi32>, %w: tensor<4x16x8xf32>) {
  // expected-error @+1 {{'moe.grouped_matmul' op expected result of size 16 in dim 1, got 'tensor<?x17xf32>'}}
  %0 = moe.grouped_matmul rows(%x : tensor<?x8xf32>) groups(%n : tensor<4xi32>) weights(%w : tensor<4x16x8xf32>) nk -> tensor<?x17xf32> {
  ^bb0(%a: f32):
    moe.yield %a : f32
  }
  return
}

// -----

func.func @grouped_c2_result_rows(%x: tensor<6x8xf32>, %n: tensor<4xi32>, %w: tensor<4x16x8xf32>) {
  // expected-error @+1 {{'moe.grouped_matmul' op expected result of size 6 in dim 0, got 'tensor<7x16xf32>'}}
  %0 = moe.grouped_matmul rows(%x : tensor<6x8xf32>) groups(%n : tensor<4xi32>) weights(%w : tensor<4x16x8xf32>) nk -> tensor<7x16xf32> {
  ^bb0(%a: f32):
    moe.yield %a : f32
  }
  return
}

// -----

func.func @grouped_c2_result_rank(%x: tensor<?x8xf32>, %n: tensor<4xi32>, %w: tensor<4x16x8xf32>) {
  // expected-error @+1 {{'moe.grouped_matmul' op expected a result of rank 2 like the rows, got 'tensor<f32>'}}
  %0 = moe.grouped_matmul rows(%x : tensor<?x8xf32>) groups(%n : tensor<4xi32>) weights(%w : tensor<4x16x8xf32>) nk -> tensor<f32> {
  ^bb0(%a: f32):
    moe.yield %a : f32
  }
  return
}

// -----

func.func @grouped_c2_panels_rank(%x: tensor<?x8xf32>, %n: tensor<4xi32>, %w: tensor<4x16x8xf32>) {
  // expected-error @+1 {{'moe.grouped_matmul' op expected panels [E, ceil(N/w), K, w] and a result with static N, got 'tensor<4x16x8xf32>' and 'tensor<?x16xf32>'}}
  %0 = moe.grouped_matmul rows(%x : tensor<?x8xf32>) groups(%n : tensor<4xi32>) weights(%w : tensor<4x16x8xf32>) panels -> tensor<?x16xf32> {
  ^bb0(%a: f32):
    moe.yield %a : f32
  }
  return
}

// -----

func.func @grouped_c2_panels_static_n(%x: tensor<?x8xf32>, %n: tensor<4xi32>, %w: tensor<4x1x8x32xf32>) {
  // expected-error @+1 {{'moe.grouped_matmul' op expected panels [E, ceil(N/w), K, w] and a result with static N, got 'tensor<4x1x8x32xf32>' and 'tensor<?x?xf32>'}}
  %0 = moe.grouped_matmul rows(%x : tensor<?x8xf32>) groups(%n : tensor<4xi32>) weights(%w : tensor<4x1x8x32xf32>) panels -> tensor<?x?xf32> {
  ^bb0(%a: f32):
    moe.yield %a : f32
  }
  return
}

// -----

func.func @grouped_c2_panels_width(%x: tensor<?x8xf32>, %n: tensor<4xi32>, %w: tensor<4x1x8x0xf32>) {
  // expected-error @+1 {{'moe.grouped_matmul' op expected panels [E, ceil(N/w), K, w] and a result with static N, got 'tensor<4x1x8x0xf32>' and 'tensor<?x16xf32>'}}
  %0 = moe.grouped_matmul rows(%x : tensor<?x8xf32>) groups(%n : tensor<4xi32>) weights(%w : tensor<4x1x8x0xf32>) panels -> tensor<?x16xf32> {
  ^bb0(%a: f32):
    moe.yield %a : f32
  }
  return
}

// -----

func.func @grouped_c2_panels_count(%x: tensor<?x8xf32>, %n: tensor<4xi32>, %w: tensor<4x1x8x32xf32>) {
  // expected-error @+1 {{'moe.grouped_matmul' op expected panels of size 2 in dim 1, got 'tensor<4x1x8x32xf32>'}}
  %0 = moe.grouped_matmul rows(%x : tensor<?x8xf32>) groups(%n : tensor<4xi32>) weights(%w : tensor<4x1x8x32xf32>) panels -> tensor<?x33xf32> {
  ^bb0(%a: f32):
    moe.yield %a : f32
  }
  return
}

// -----

func.func @grouped_c2_panels_k(%x: tensor<?x8xf32>, %n: tensor<4xi32>, %w: tensor<4x1x9x32xf32>) {
  // expected-error @+1 {{'moe.grouped_matmul' op expected panels of size 8 in dim 2, got 'tensor<4x1x9x32xf32>'}}
  %0 = moe.grouped_matmul rows(%x : tensor<?x8xf32>) groups(%n : tensor<4xi32>) weights(%w : tensor<4x1x9x32xf32>) panels -> tensor<?x16xf32> {
  ^bb0(%a: f32):
    moe.yield %a : f32
  }
  return
}

// -----

func.func @grouped_c3_bias_count(%x: tensor<?x8xf32>, %n: tensor<4xi32>, %w: tensor<4x16x8xf32>, %b: tensor<4x16xf32>) {
  // expected-error @+1 {{'moe.grouped_matmul' op expected no bias or one per accumulator, got 2}}
  %0 = moe.grouped_matmul rows(%x : tensor<?x8xf32>) groups(%n : tensor<4xi32>) weights(%w : tensor<4x16x8xf32>) nk bias(%b, %b : tensor<4x16xf32>, tensor<4x16xf32>) -> tensor<?x16xf32> {
  ^bb0(%a: f32):
    moe.yield %a : f32
  }
  return
}

// -----

func.func @grouped_c3_bias_shape(%x: tensor<?x8xf32>, %n: tensor<4xi32>, %w: tensor<4x16x8xf32>, %b: tensor<4x8xf32>) {
  // expected-error @+1 {{'moe.grouped_matmul' op expected bias of size 16 in dim 1, got 'tensor<4x8xf32>'}}
  %0 = moe.grouped_matmul rows(%x : tensor<?x8xf32>) groups(%n : tensor<4xi32>) weights(%w : tensor<4x16x8xf32>) nk bias(%b : tensor<4x8xf32>) -> tensor<?x16xf32> {
  ^bb0(%a: f32):
    moe.yield %a : f32
  }
  return
}

// -----

func.func @grouped_c3_vector(%x: tensor<?x8xf32>, %n: tensor<4xi32>, %w: tensor<4x16x8xf32>, %b: tensor<5x16xf32>) {
  // expected-error @+1 {{'moe.grouped_matmul' op expected vector of size 4 in dim 0, got 'tensor<5x16xf32>'}}
  %0 = moe.grouped_matmul rows(%x : tensor<?x8xf32>) groups(%n : tensor<4xi32>) weights(%w : tensor<4x16x8xf32>) nk vectors(%b : tensor<5x16xf32>) -> tensor<?x16xf32> {
  ^bb0(%a: f32):
    moe.yield %a : f32
  }
  return
}

// -----

func.func @grouped_c3_elements(%x: tensor<?x8xf32>, %n: tensor<4xi32>, %w: tensor<4x16x8xf32>) {
  // expected-error @+1 {{'moe.grouped_matmul' op expected elements of size 16 in dim 1, got 'tensor<?x8xf32>'}}
  %0 = moe.grouped_matmul rows(%x : tensor<?x8xf32>) groups(%n : tensor<4xi32>) weights(%w : tensor<4x16x8xf32>) nk elements(%x : tensor<?x8xf32>) -> tensor<?x16xf32> {
  ^bb0(%a: f32):
    moe.yield %a : f32
  }
  return
}

// -----

func.func @grouped_c3_scalars(%x: tensor<?x8xf32>, %n: tensor<4xi32>, %w: tensor<4x16x8xf32>, %s: tensor<4x5xf32>) {
  // expected-error @+1 {{'moe.grouped_matmul' op expected scalars of rank 1, got 'tensor<4x5xf32>'}}
  %0 = moe.grouped_matmul rows(%x : tensor<?x8xf32>) groups(%n : tensor<4xi32>) weights(%w : tensor<4x16x8xf32>) nk scalars(%s : tensor<4x5xf32>) -> tensor<?x16xf32> {
  ^bb0(%a: f32):
    moe.yield %a : f32
  }
  return
}

// -----

func.func @grouped_c3_padded_scalars(%x: tensor<4x5x8xf32>, %n: tensor<4xi32>, %w: tensor<4x16x8xf32>, %s: tensor<4x6xf32>) {
  // expected-error @+1 {{'moe.grouped_matmul' op expected scalars of size 5 in dim 1, got 'tensor<4x6xf32>'}}
  %0 = moe.grouped_matmul rows(%x : tensor<4x5x8xf32>) groups(%n : tensor<4xi32>) weights(%w : tensor<4x16x8xf32>) nk scalars(%s : tensor<4x6xf32>) -> tensor<4x5x16xf32> {
  ^bb0(%a: f32):
    moe.yield %a : f32
  }
  return
}

// -----

func.func @grouped_c4_accumulator(%x: tensor<?x8xbf16>, %n: tensor<4xi32>, %w: tensor<4x16x8xbf16>) {
  // expected-error @+1 {{'moe.grouped_matmul' op expected epilogue arguments ('f32'), got ('bf16')}}
  %0 = moe.grouped_matmul rows(%x : tensor<?x8xbf16>) groups(%n : tensor<4xi32>) weights(%w : tensor<4x16x8xbf16>) nk -> tensor<?x16xbf16> {
  ^bb0(%a: bf16):
    moe.yield %a : bf16
  }
  return
}

// -----

func.func @grouped_c4_f64(%x: tensor<?x8xf64>, %n: tensor<4xi32>, %w: tensor<4x16x8xf64>) {
  // expected-error @+1 {{'moe.grouped_matmul' op expected epilogue arguments ('f64'), got ('f32')}}
  %0 = moe.grouped_matmul rows(%x : tensor<?x8xf64>) groups(%n : tensor<4xi32>) weights(%w : tensor<4x16x8xf64>) nk -> tensor<?x16xf32> {
  ^bb0(%a: f32):
    moe.yield %a : f32
  }
  return
}

// -----

func.func @grouped_c4_per_weight(%x: tensor<?x8xf32>, %n: tensor<4xi32>, %w: tensor<4x16x8xf32>) {
  // expected-error @+1 {{'moe.grouped_matmul' op expected epilogue arguments ('f32', 'f32'), got ('f32')}}
  %0 = moe.grouped_matmul rows(%x : tensor<?x8xf32>) groups(%n : tensor<4xi32>) weights(%w, %w : tensor<4x16x8xf32>, tensor<4x16x8xf32>) nk -> tensor<?x16xf32> {
  ^bb0(%a: f32):
    moe.yield %a : f32
  }
  return
}

// -----

func.func @grouped_c4_operands(%x: tensor<?x8xf32>, %n: tensor<4xi32>, %w: tensor<4x16x8xf32>, %b: tensor<4x16xbf16>, %s: tensor<?xf32>) {
  // expected-error @+1 {{'moe.grouped_matmul' op expected epilogue arguments ('f32', 'bf16', 'f32'), got ('f32', 'f32', 'bf16')}}
  %0 = moe.grouped_matmul rows(%x : tensor<?x8xf32>) groups(%n : tensor<4xi32>) weights(%w : tensor<4x16x8xf32>) nk vectors(%b : tensor<4x16xbf16>) scalars(%s : tensor<?xf32>) -> tensor<?x16xf32> {
  ^bb0(%a: f32, %c: f32, %d: bf16):
    moe.yield %a : f32
  }
  return
}

// -----

func.func @grouped_c4_ops(%x: tensor<?x8xf32>, %n: tensor<4xi32>, %w: tensor<4x16x8xf32>) {
  %0 = moe.grouped_matmul rows(%x : tensor<?x8xf32>) groups(%n : tensor<4xi32>) weights(%w : tensor<4x16x8xf32>) nk -> tensor<?x16xf32> {
  ^bb0(%a: f32):
    // expected-error @+1 {{'tensor.empty' op expected only arith and math in an epilogue}}
    %t = tensor.empty() : tensor<4xf32>
    moe.yield %a : f32
  }
  return
}

// -----

func.func @grouped_c4_unregistered(%x: tensor<?x8xf32>, %n: tensor<4xi32>, %w: tensor<4x16x8xf32>) {
  %0 = moe.grouped_matmul rows(%x : tensor<?x8xf32>) groups(%n : tensor<4xi32>) weights(%w : tensor<4x16x8xf32>) nk -> tensor<?x16xf32> {
  ^bb0(%a: f32):
    // expected-error @+1 {{'test.op' op expected only arith and math in an epilogue}}
    %t = "test.op"() : () -> f32
    moe.yield %t : f32
  }
  return
}

// -----

func.func @grouped_c4_unknown_dialect(%x: tensor<?x8xf32>, %n: tensor<4xi32>, %w: tensor<4x16x8xf32>) {
  %0 = moe.grouped_matmul rows(%x : tensor<?x8xf32>) groups(%n : tensor<4xi32>) weights(%w : tensor<4x16x8xf32>) nk -> tensor<?x16xf32> {
  ^bb0(%a: f32):
    // expected-error @+1 {{expected only arith and math in an epilogue}}
    %t = "nodialect.op"() : () -> f32
    moe.yield %t : f32
  }
  return
}

// -----

func.func @grouped_c4_yield_type(%x: tensor<?x8xf32>, %n: tensor<4xi32>, %w: tensor<4x16x8xf32>) {
  %0 = moe.grouped_matmul rows(%x : tensor<?x8xf32>) groups(%n : tensor<4xi32>) weights(%w : tensor<4x16x8xf32>) nk -> tensor<?x16xbf16> {
  ^bb0(%a: f32):
    // expected-error @+1 {{'moe.yield' op expected to yield ('bf16'), got ('f32')}}
    moe.yield %a : f32
  }
  return
}

// -----

func.func @grouped_c4_yield_count(%x: tensor<?x8xf32>, %n: tensor<4xi32>, %w: tensor<4x16x8xf32>) {
  %0 = moe.grouped_matmul rows(%x : tensor<?x8xf32>) groups(%n : tensor<4xi32>) weights(%w : tensor<4x16x8xf32>) nk -> tensor<?x16xf32> {
  ^bb0(%a: f32):
    // expected-error @+1 {{'moe.yield' op expected to yield ('f32'), got ('f32', 'f32')}}
    moe.yield %a, %a : f32, f32
  }
  return
}

// -----

func.func @grouped_c5_padded(%x: tensor<4x5x8xf32>, %n: tensor<4xi32>, %w: tensor<4x16x8xf32>, %g: tensor<?xi32>) {
  // expected-error @+1 {{'moe.grouped_matmul' op expected ragged rows with gather, got 'tensor<4x5x8xf32>'}}
  %0 = moe.grouped_matmul rows(%x : tensor<4x5x8xf32>) groups(%n : tensor<4xi32>) weights(%w : tensor<4x16x8xf32>) nk gather(%g : tensor<?xi32>) -> tensor<4x5x16xf32> {
  ^bb0(%a: f32):
    moe.yield %a : f32
  }
  return
}

// -----

func.func @grouped_c5_result(%x: tensor<?x8xf32>, %n: tensor<4xi32>, %w: tensor<4x16x8xf32>, %g: tensor<6xi32>) {
  // expected-error @+1 {{'moe.grouped_matmul' op expected result of size 6 in dim 0, got 'tensor<7x16xf32>'}}
  %0 = moe.grouped_matmul rows(%x : tensor<?x8xf32>) groups(%n : tensor<4xi32>) weights(%w : tensor<4x16x8xf32>) nk gather(%g : tensor<6xi32>) -> tensor<7x16xf32> {
  ^bb0(%a: f32):
    moe.yield %a : f32
  }
  return
}

// -----

func.func @grouped_c6_weights(%x: tensor<?x8xf32>, %n: tensor<4xi32>, %w: tensor<4x16x8xf64>) {
  // expected-error @+1 {{'moe.grouped_matmul' op expected rows, weights and bias all of f64 or none, got 'tensor<?x8xf32>' and 'tensor<4x16x8xf64>'}}
  %0 = moe.grouped_matmul rows(%x : tensor<?x8xf32>) groups(%n : tensor<4xi32>) weights(%w : tensor<4x16x8xf64>) nk -> tensor<?x16xf32> {
  ^bb0(%a: f32):
    moe.yield %a : f32
  }
  return
}

// -----

func.func @grouped_c6_bias(%x: tensor<?x8xf32>, %n: tensor<4xi32>, %w: tensor<4x16x8xf32>, %b: tensor<4x16xf64>) {
  // expected-error @+1 {{'moe.grouped_matmul' op expected rows, weights and bias all of f64 or none, got 'tensor<?x8xf32>' and 'tensor<4x16xf64>'}}
  %0 = moe.grouped_matmul rows(%x : tensor<?x8xf32>) groups(%n : tensor<4xi32>) weights(%w : tensor<4x16x8xf32>) nk bias(%b : tensor<4x16xf64>) -> tensor<?x16xf32> {
  ^bb0(%a: f32):
    moe.yield %a : f32
  }
  return
}

// -----

func.func @grouped_c6_contraction(%x: tensor<?x8xf32>, %n: tensor<4xi32>, %y: tensor<?x8xf64>) {
  // expected-error @+1 {{'moe.grouped_matmul' op expected rows, weights and bias all of f64 or none, got 'tensor<?x8xf32>' and 'tensor<?x8xf64>'}}
  %0 = moe.grouped_matmul rows(%x, %y : tensor<?x8xf32>, tensor<?x8xf64>) groups(%n : tensor<4xi32>) nk contraction -> tensor<4x8x8xf32> {
  }
  return
}

// -----

func.func @grouped_c6_result(%x: tensor<?x8xf32>, %n: tensor<4xi32>, %w: tensor<4x16x8xf32>) {
  // expected-error @+1 {{'moe.grouped_matmul' op expected a result of f16, bf16, f32 or f64, got 'tensor<?x16xi32>'}}
  %0 = moe.grouped_matmul rows(%x : tensor<?x8xf32>) groups(%n : tensor<4xi32>) weights(%w : tensor<4x16x8xf32>) nk -> tensor<?x16xi32> {
  ^bb0(%a: f32):
    %i = arith.fptosi %a : f32 to i32
    moe.yield %i : i32
  }
  return
}

// -----

func.func @grouped_form(%x: tensor<?x8xf32>, %n: tensor<4xi32>, %w: tensor<4x16x8xf32>, %o: memref<?x16xf32>) {
  // expected-error @+1 {{'moe.grouped_matmul' op expected no tensor among memref operands, got 'tensor<?x8xf32>' as operand #0}}
  moe.grouped_matmul rows(%x : tensor<?x8xf32>) groups(%n : tensor<4xi32>) weights(%w : tensor<4x16x8xf32>) nk outs(%o : memref<?x16xf32>) {
  ^bb0(%a: f32):
    moe.yield %a : f32
  }
  return
}

// -----

func.func @pack_c1_layout(%w: tensor<4x16x8xf32>) {
  // expected-error @+1 {{'moe.pack' op expected layout nk or kn, got panels}}
  %0 = moe.pack %w panels : tensor<4x16x8xf32> -> tensor<4x1x8x32xf32>
  return
}

// -----

func.func @pack_c1_dynamic(%w: tensor<?x16x8xf32>) {
  // expected-error @+1 {{'moe.pack' op expected static [E, ceil(N/w), K, w] x 'f32' from static weights, got 'tensor<?x16x8xf32>' and 'tensor<4x1x8x32xf32>'}}
  %0 = moe.pack %w nk : tensor<?x16x8xf32> -> tensor<4x1x8x32xf32>
  return
}

// -----

func.func @pack_c1_dynamic_result(%w: tensor<4x16x8xf32>) {
  // expected-error @+1 {{'moe.pack' op expected static [E, ceil(N/w), K, w] x 'f32' from static weights, got 'tensor<4x16x8xf32>' and 'tensor<4x?x8x32xf32>'}}
  %0 = moe.pack %w nk : tensor<4x16x8xf32> -> tensor<4x?x8x32xf32>
  return
}

// -----

func.func @pack_c1_rank(%w: tensor<4x16x8xf32>) {
  // expected-error @+1 {{'moe.pack' op expected static [E, ceil(N/w), K, w] x 'f32' from static weights, got 'tensor<4x16x8xf32>' and 'tensor<4x8x16xf32>'}}
  %0 = moe.pack %w nk : tensor<4x16x8xf32> -> tensor<4x8x16xf32>
  return
}

// -----

func.func @pack_c1_element(%w: tensor<4x16x8xf32>) {
  // expected-error @+1 {{'moe.pack' op expected static [E, ceil(N/w), K, w] x 'f32' from static weights, got 'tensor<4x16x8xf32>' and 'tensor<4x1x8x32xbf16>'}}
  %0 = moe.pack %w nk : tensor<4x16x8xf32> -> tensor<4x1x8x32xbf16>
  return
}

// -----

func.func @pack_c1_width(%w: tensor<4x16x8xf32>) {
  // expected-error @+1 {{'moe.pack' op expected panels of width >= 1, got 'tensor<4x1x8x0xf32>'}}
  %0 = moe.pack %w nk : tensor<4x16x8xf32> -> tensor<4x1x8x0xf32>
  return
}

// -----

func.func @pack_c1_panels(%w: tensor<4x100x8xf32>) {
  // expected-error @+1 {{'moe.pack' op expected panels of size 4 in dim 1, got 'tensor<4x3x8x32xf32>'}}
  %0 = moe.pack %w nk : tensor<4x100x8xf32> -> tensor<4x3x8x32xf32>
  return
}

// -----

func.func @pack_c1_experts(%w: tensor<4x16x8xf32>) {
  // expected-error @+1 {{'moe.pack' op expected panels of size 4 in dim 0, got 'tensor<5x1x8x32xf32>'}}
  %0 = moe.pack %w nk : tensor<4x16x8xf32> -> tensor<5x1x8x32xf32>
  return
}

// -----

func.func @pack_c1_kn(%w: tensor<4x16x8xf32>) {
  // expected-error @+1 {{'moe.pack' op expected panels of size 16 in dim 2, got 'tensor<4x1x8x32xf32>'}}
  %0 = moe.pack %w kn : tensor<4x16x8xf32> -> tensor<4x1x8x32xf32>
  return
}

// -----

func.func @pack_c1_pairs(%w: tensor<4x16x9xbf16>) {
  // expected-error @+1 {{'moe.pack' op expected panels of size 5 in dim 2, got 'tensor<4x1x4x32x2xbf16>'}}
  %0 = moe.pack %w nk : tensor<4x16x9xbf16> -> tensor<4x1x4x32x2xbf16>
  return
}

// -----

func.func @pack_c1_transposed(%w: tensor<4x16x8xf32>) {
  // expected-error @+1 {{'moe.pack' op expected layout nk or kn, got transposed_panels}}
  %0 = moe.pack %w transposed_panels : tensor<4x16x8xf32> -> tensor<4x1x8x32xf32>
  return
}

// -----

func.func @hidden_c1_pack(%w: tensor<4x16x9xf32>) {
  // expected-error @+1 {{'moe.pack' op expected a dimension k that is a multiple of 2 hidden blocks, got 9}}
  %0 = moe.pack %w nk {hidden = #moe.hidden<2 of k>} : tensor<4x16x9xf32> -> tensor<4x2x4x32xf32>
  return
}

// -----

func.func @hidden_c1_panels(%w: tensor<4x16x8xf32>) {
  // expected-error @+1 {{'moe.pack' op expected panels of size 2 in dim 1, got 'tensor<4x1x8x32xf32>'}}
  %0 = moe.pack %w nk {hidden = #moe.hidden<2 of n>} : tensor<4x16x8xf32> -> tensor<4x1x8x32xf32>
  return
}

// -----

func.func @grouped_c7_blocks(%x: tensor<?x8xf32>, %n: tensor<4xi32>, %w: tensor<4x16x8xf32>) {
  // expected-error @+1 {{'moe.grouped_matmul' op expected a dimension n that is a multiple of 3 hidden blocks, got 16}}
  %0 = moe.grouped_matmul rows(%x : tensor<?x8xf32>) groups(%n : tensor<4xi32>) weights(%w : tensor<4x16x8xf32>) nk -> tensor<?x16xf32> attributes {hidden = #moe.hidden<3 of n>} {
  ^bb0(%a: f32):
    moe.yield %a : f32
  }
  return
}

// -----

func.func @grouped_c7_dynamic(%x: tensor<?x?xf32>, %n: tensor<4xi32>, %w: tensor<4x16x?xf32>) {
  // expected-error @+1 {{'moe.grouped_matmul' op expected a dimension k that is a multiple of 2 hidden blocks, got ?}}
  %0 = moe.grouped_matmul rows(%x : tensor<?x?xf32>) groups(%n : tensor<4xi32>) weights(%w : tensor<4x16x?xf32>) nk -> tensor<?x16xf32> attributes {hidden = #moe.hidden<2 of k>} {
  ^bb0(%a: f32):
    moe.yield %a : f32
  }
  return
}

// -----

func.func @grouped_c7_contraction(%x: tensor<?x8xf32>, %n: tensor<4xi32>) {
  // expected-error @+1 {{'moe.grouped_matmul' op expected two row operands and nothing else in mode contraction}}
  %0 = moe.grouped_matmul rows(%x, %x : tensor<?x8xf32>, tensor<?x8xf32>) groups(%n : tensor<4xi32>) nk contraction -> tensor<4x8x8xf32> attributes {hidden = #moe.hidden<2 of k>} {
  }
  return
}

// -----

func.func @grouped_c2_pairs(%x: tensor<?x8xf32>, %n: tensor<4xi32>, %w: tensor<4x1x4x32x2xbf16>) {
  // expected-error @+1 {{'moe.grouped_matmul' op expected rows and panels of bf16 where panels hold pairs, got 'tensor<?x8xf32>' and 'tensor<4x1x4x32x2xbf16>'}}
  %0 = moe.grouped_matmul rows(%x : tensor<?x8xf32>) groups(%n : tensor<4xi32>) weights(%w : tensor<4x1x4x32x2xbf16>) panels -> tensor<?x16xf32> {
  ^bb0(%a: f32):
    moe.yield %a : f32
  }
  return
}

// -----

func.func @grouped_c2_transposed(%x: tensor<?x8xf32>, %n: tensor<4xi32>, %w: tensor<4x1x16x32xf32>) {
  // expected-error @+1 {{'moe.grouped_matmul' op expected one weight of transposed panels, got 2}}
  %0 = moe.grouped_matmul rows(%x : tensor<?x8xf32>) groups(%n : tensor<4xi32>) weights(%w, %w : tensor<4x1x16x32xf32>, tensor<4x1x16x32xf32>) transposed_panels -> tensor<?x16xf32> {
  ^bb0(%a: f32, %b: f32):
    moe.yield %a : f32
  }
  return
}

// -----

func.func @grouped_c2_transposed_shape(%x: tensor<?x8xf32>, %n: tensor<4xi32>, %w: tensor<4x1x8x32xf32>) {
  // expected-error @+1 {{'moe.grouped_matmul' op expected panels of size 16 in dim 2, got 'tensor<4x1x8x32xf32>'}}
  %0 = moe.grouped_matmul rows(%x : tensor<?x8xf32>) groups(%n : tensor<4xi32>) weights(%w : tensor<4x1x8x32xf32>) transposed_panels -> tensor<?x16xf32> {
  ^bb0(%a: f32):
    moe.yield %a : f32
  }
  return
}

// -----

func.func @grouped_c4_yield_results(%x: tensor<?x8xf32>, %n: tensor<4xi32>, %w: tensor<4x16x8xf32>) {
  %0:2 = moe.grouped_matmul rows(%x : tensor<?x8xf32>) groups(%n : tensor<4xi32>) weights(%w : tensor<4x16x8xf32>) nk -> tensor<?x16xf32>, tensor<?x16xbf16> {
  ^bb0(%a: f32):
    // expected-error @+1 {{'moe.yield' op expected to yield ('f32', 'bf16'), got ('f32', 'f32')}}
    moe.yield %a, %a : f32, f32
  }
  return
}

// -----

func.func @grouped_c8_shapes(%x: tensor<?x8xf32>, %n: tensor<4xi32>, %w: tensor<4x16x8xf32>) {
  // expected-error @+1 {{'moe.grouped_matmul' op expected result of size 16 in dim 1, got 'tensor<?x8xf32>'}}
  %0:2 = moe.grouped_matmul rows(%x : tensor<?x8xf32>) groups(%n : tensor<4xi32>) weights(%w : tensor<4x16x8xf32>) nk -> tensor<?x16xf32>, tensor<?x8xf32> {
  ^bb0(%a: f32):
    moe.yield %a, %a : f32, f32
  }
  return
}

// -----

func.func @grouped_c8_none(%x: tensor<?x8xf32>, %n: tensor<4xi32>, %w: tensor<4x16x8xf32>) {
  // expected-error @+1 {{'moe.grouped_matmul' op expected at least one result, got 0}}
  moe.grouped_matmul rows(%x : tensor<?x8xf32>) groups(%n : tensor<4xi32>) weights(%w : tensor<4x16x8xf32>) nk {
  ^bb0(%a: f32):
    moe.yield
  }
  return
}

// -----

func.func @grouped_c8_contraction(%x: tensor<?x8xf32>, %n: tensor<4xi32>) {
  // expected-error @+1 {{'moe.grouped_matmul' op expected one result, got 2}}
  %0:2 = moe.grouped_matmul rows(%x, %x : tensor<?x8xf32>, tensor<?x8xf32>) groups(%n : tensor<4xi32>) nk contraction -> tensor<4x8x8xf32>, tensor<4x8x8xf32> {
    moe.yield
  }
  return
}

// -----

func.func @grouped_c1_chained_rows(%x: tensor<?x8xf32>, %n: tensor<4xi32>, %w: tensor<4x16x8xf32>) {
  // expected-error @+1 {{'moe.grouped_matmul' op expected as many row operands, of one type, as weights, at least two, and no gather with chained, got 1 and 2}}
  %0 = moe.grouped_matmul rows(%x : tensor<?x8xf32>) groups(%n : tensor<4xi32>) weights(%w, %w : tensor<4x16x8xf32>, tensor<4x16x8xf32>) nk chained -> tensor<?x16xf32> {
  ^bb0(%a: f32):
    moe.yield %a : f32
  }
  return
}

// -----

func.func @grouped_c1_chained_types(%x: tensor<?x8xf32>, %y: tensor<?x8xbf16>, %n: tensor<4xi32>, %w: tensor<4x16x8xf32>) {
  // expected-error @+1 {{'moe.grouped_matmul' op expected as many row operands, of one type, as weights, at least two, and no gather with chained, got 2 and 2}}
  %0 = moe.grouped_matmul rows(%x, %y : tensor<?x8xf32>, tensor<?x8xbf16>) groups(%n : tensor<4xi32>) weights(%w, %w : tensor<4x16x8xf32>, tensor<4x16x8xf32>) nk chained -> tensor<?x16xf32> {
  ^bb0(%a: f32):
    moe.yield %a : f32
  }
  return
}

// -----

func.func @grouped_c4_chained(%x: tensor<?x8xf32>, %n: tensor<4xi32>, %w: tensor<4x16x8xf32>) {
  // expected-error @+1 {{'moe.grouped_matmul' op expected epilogue arguments ('f32'), got ('f32', 'f32')}}
  %0 = moe.grouped_matmul rows(%x, %x : tensor<?x8xf32>, tensor<?x8xf32>) groups(%n : tensor<4xi32>) weights(%w, %w : tensor<4x16x8xf32>, tensor<4x16x8xf32>) nk chained -> tensor<?x16xf32> {
  ^bb0(%a: f32, %b: f32):
    moe.yield %a : f32
  }
  return
}

// -----

func.func @grouped_c7_chained(%x: tensor<?x8xf32>, %n: tensor<4xi32>, %w: tensor<4x16x8xf32>) {
  // expected-error @+1 {{'moe.grouped_matmul' op expected a dimension k that is a multiple of 3 hidden blocks, got 8}}
  %0 = moe.grouped_matmul rows(%x, %x : tensor<?x8xf32>, tensor<?x8xf32>) groups(%n : tensor<4xi32>) weights(%w, %w : tensor<4x16x8xf32>, tensor<4x16x8xf32>) nk chained -> tensor<?x16xf32> attributes {hidden = #moe.hidden<3 of k>} {
  ^bb0(%a: f32):
    moe.yield %a : f32
  }
  return
}

// -----

func.func @grouped_c8_layout(%x: tensor<?x8xf32>, %n: tensor<4xi32>) {
  // expected-error @+1 {{'moe.grouped_matmul' op expected the layout nk, or panels and a result of static [E, ceil(N/w), K, w] in mode contraction, got kn and 'tensor<4x8x8xf32>'}}
  %0 = moe.grouped_matmul rows(%x, %x : tensor<?x8xf32>, tensor<?x8xf32>) groups(%n : tensor<4xi32>) kn contraction -> tensor<4x8x8xf32> {
    moe.yield
  }
  return
}

// -----

func.func @grouped_c8_panels(%x: tensor<?x8xf32>, %n: tensor<4xi32>) {
  // expected-error @+1 {{'moe.grouped_matmul' op expected panels of size 1 in dim 1, got 'tensor<4x2x8x16xf32>'}}
  %0 = moe.grouped_matmul rows(%x, %x : tensor<?x8xf32>, tensor<?x8xf32>) groups(%n : tensor<4xi32>) panels contraction -> tensor<4x2x8x16xf32> {
    moe.yield
  }
  return
}
