// Losses of the six tokens of docs/routing.md and of other small inputs, against
// values of public implementations (conformance case C14) and of the formulas.
//
// RUN: moira-run %s --no-cache --verify --output %t.safetensors
// RUN: %python %S/../Tools/Inputs/show.py %t.safetensors | FileCheck %s
// The decomposition of the op itself.
// RUN: moira-opt %s -moe-decompose | moira-run - --no-cache --output %t.plain.safetensors
// RUN: %python %S/../Tools/Inputs/show.py %t.plain.safetensors | FileCheck %s

func.func @main() -> (
    tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>,
    tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>,
    tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>,
    tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>,
    tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>,
    tensor<f32>, tensor<f32>, tensor<f32>) {
  %r6 = arith.constant dense<[[2.0, 1.0, 0.0, -1.0], [2.0, 0.0, 1.0, -1.0],
      [1.5, 0.5, 0.0, 0.0], [0.0, 3.0, 1.0, 0.0], [2.5, 0.0, 0.0, 1.0],
      [0.5, 0.0, 0.0, 2.0]]> : tensor<6x4xf32>
  %ids6 = arith.constant
      dense<[[0, 1], [0, 2], [0, 1], [1, 2], [0, 3], [3, 0]]> : tensor<6x2xi32>
  %flipped = arith.constant dense<[[-1.0, 0.0, 1.0, 2.0], [-1.0, 1.0, 0.0, 2.0],
      [0.0, 0.0, 0.5, 1.5], [0.0, 1.0, 3.0, 0.0], [1.0, 0.0, 0.0, 2.5],
      [2.0, 0.0, 0.0, 0.5]]> : tensor<6x4xf32>
  %mask6 = arith.constant
      dense<[true, true, true, false, false, true]> : tensor<6xi1>
  %b1 = arith.constant dense<[1, 0, 5]> : tensor<3xi32>
  %b2 = arith.constant dense<[1, 5]> : tensor<2xi32>
  %same4 = arith.constant dense<0.5> : tensor<4x4xf32>
  %zero4 = arith.constant dense<0> : tensor<4x1xi32>
  %same7 = arith.constant dense<0.5> : tensor<7x8xf32>
  %ids7 = arith.constant dense<[[0, 1], [2, 3], [0, 3], [5, 1], [0, 1], [7, 6],
      [1, 0]]> : tensor<7x2xi32>
  %p6 = arith.constant dense<[[0.4054651, 0.0], [0.4054651, 0.0],
      [0.4054651, 0.0], [0.4054651, 0.0]]> : tensor<4x2xf32>
  %near = arith.constant dense<[[10.0, 9.0]]> : tensor<1x2xf32>
  %zero1 = arith.constant dense<0> : tensor<1x1xi32>
  %one3 = arith.constant dense<[[3.0], [-1.0], [0.5]]> : tensor<3x1xf32>
  %zero3 = arith.constant dense<0> : tensor<3x1xi32>
  %none = tensor.empty() : tensor<0x4xf32>
  %noids = tensor.empty() : tensor<0x2xi32>
  %nothing = arith.constant dense<false> : tensor<6xi1>
  %odd = arith.constant dense<[[0x7FC00000, 1.0, 2.0], [0xFF800000, 0xFF800000,
      0xFF800000], [0x7F800000, 0.0, 0.0]]> : tensor<3x3xf32>
  %oddids = arith.constant dense<[[2], [0], [0]]> : tensor<3x1xi32>
  %unused = arith.constant dense<[[0, 1], [0, -1], [-1, -1], [1, 2], [0, 3],
      [3, 0]]> : tensor<6x2xi32>
  // Conformance case C14.
  %l0 = moe.loss gshard %r6 ids(%ids6 : tensor<6x2xi32>) : tensor<6x4xf32> -> tensor<f32>
  // The same.
  %l1 = moe.loss load_importance %r6 ids(%ids6 : tensor<6x2xi32>) {noise = 1.0 : f64}
      : tensor<6x4xf32> -> tensor<f32>
  // Logits against logits.
  %l2 = moe.loss load_importance %r6 ids(%ids6 : tensor<6x2xi32>)
      {compare_logits, noise = 1.0 : f64} : tensor<6x4xf32> -> tensor<f32>
  // Thresholds from other logits.
  %l3 = moe.loss load_importance %r6 ids(%ids6 : tensor<6x2xi32>)
      noisy(%flipped : tensor<6x4xf32>) {noise = 2.0 : f64} : tensor<6x4xf32> -> tensor<f32>
  // One block of all.
  %l4 = moe.loss switch %r6 ids(%ids6 : tensor<6x2xi32>) : tensor<6x4xf32> -> tensor<f32>
  // Padding tokens have no part.
  %l5 = moe.loss switch %r6 ids(%ids6 : tensor<6x2xi32>) mask(%mask6 : tensor<6xi1>)
      : tensor<6x4xf32> -> tensor<f32>
  // The mean over two blocks.
  %l6 = moe.loss gshard %r6 ids(%ids6 : tensor<6x2xi32>) scope block {length = 3 : i64}
      : tensor<6x4xf32> -> tensor<f32>
  // Three sequences of two tokens.
  %l7 = moe.loss sequence %r6 ids(%ids6 : tensor<6x2xi32>) score sigmoid scope block
      {length = 2 : i64} : tensor<6x4xf32> -> tensor<f32>
  // An empty block has no part.
  %l8 = moe.loss switch %r6 ids(%ids6 : tensor<6x2xi32>) blocks(%b1 : tensor<3xi32>) scope block
      : tensor<6x4xf32> -> tensor<f32>
  // Blocks do not matter.
  %l9 = moe.loss switch %r6 ids(%ids6 : tensor<6x2xi32>) blocks(%b1 : tensor<3xi32>) scope global
      : tensor<6x4xf32> -> tensor<f32>
  // log(sum of exp), squared.
  %l10 = moe.loss z %r6 : tensor<6x4xf32> -> tensor<f32>
  // By block.
  %l11 = moe.loss z %r6 blocks(%b2 : tensor<2xi32>) scope block : tensor<6x4xf32> -> tensor<f32>
  // Uniform scores give 1, and no more.
  %l12 = moe.loss gshard %same4 ids(%zero4 : tensor<4x1xi32>)
      : tensor<4x4xf32> -> tensor<f32>
  // Also where nothing is a power of two but E.
  %l13 = moe.loss switch %same7 ids(%ids7 : tensor<7x2xi32>)
      : tensor<7x8xf32> -> tensor<f32>
  // All tokens to expert 0 with score 0.6: from counts before drops.
  %l14 = moe.loss switch %p6 ids(%zero4 : tensor<4x1xi32>)
      : tensor<4x2xf32> -> tensor<f32>
  // Scores are far below a logit of 10: no load at all.
  %l15 = moe.loss load_importance %near ids(%zero1 : tensor<1x1xi32>)
      {noise = 1.0 : f64} : tensor<1x2xf32> -> tensor<f32>
  // Logits are not.
  %l16 = moe.loss load_importance %near ids(%zero1 : tensor<1x1xi32>)
      {compare_logits, noise = 1.0 : f64} : tensor<1x2xf32> -> tensor<f32>
  // One expert has no variance.
  %l17 = moe.loss load_importance %one3 ids(%zero3 : tensor<3x1xi32>)
      {noise = 1.0 : f64} : tensor<3x1xf32> -> tensor<f32>
  // And all tokens.
  %l18 = moe.loss gshard %one3 ids(%zero3 : tensor<3x1xi32>)
      : tensor<3x1xf32> -> tensor<f32>
  // No tokens.
  %l19 = moe.loss gshard %none ids(%noids : tensor<0x2xi32>)
      : tensor<0x4xf32> -> tensor<f32>
  // No tokens.
  %l20 = moe.loss switch %none ids(%noids : tensor<0x2xi32>)
      : tensor<0x4xf32> -> tensor<f32>
  // No tokens.
  %l21 = moe.loss load_importance %none ids(%noids : tensor<0x2xi32>)
      {noise = 1.0 : f64} : tensor<0x4xf32> -> tensor<f32>
  // No tokens.
  %l22 = moe.loss z %none : tensor<0x4xf32> -> tensor<f32>
  // Padding only.
  %l23 = moe.loss switch %r6 ids(%ids6 : tensor<6x2xi32>) mask(%nothing : tensor<6xi1>)
      : tensor<6x4xf32> -> tensor<f32>
  // Padding only.
  %l24 = moe.loss z %r6 mask(%nothing : tensor<6xi1>) : tensor<6x4xf32> -> tensor<f32>
  // NaN and infinite logits, as a gate reads them.
  %l25 = moe.loss switch %odd ids(%oddids : tensor<3x1xi32>)
      : tensor<3x3xf32> -> tensor<f32>
  // Unused choices are no pairs.
  %l26 = moe.loss switch %r6 ids(%unused : tensor<6x2xi32>) : tensor<6x4xf32> -> tensor<f32>
  // Nor loads.
  %l27 = moe.loss load_importance %r6 ids(%unused : tensor<6x2xi32>)
      {noise = 1.0 : f64} : tensor<6x4xf32> -> tensor<f32>
  return
      %l0, %l1, %l2, %l3, %l4, %l5, %l6, %l7, %l8, %l9, %l10, %l11, %l12,
      %l13, %l14, %l15, %l16, %l17, %l18, %l19, %l20, %l21, %l22, %l23, %l24,
      %l25, %l26, %l27
      :
      tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>,
      tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>,
      tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>,
      tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>,
      tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>,
      tensor<f32>, tensor<f32>, tensor<f32>
}

// CHECK-DAG: result0 F32 [] 1.5047{{$}}
// CHECK-DAG: result1 F32 [] 0.403175
// CHECK-DAG: result2 F32 [] 0.405622
// CHECK-DAG: result3 F32 [] 0.20118{{[56]}}
// CHECK-DAG: result4 F32 [] 1.2075{{$}}
// CHECK-DAG: result5 F32 [] 1.32284
// CHECK-DAG: result6 F32 [] 1.83507
// CHECK-DAG: result7 F32 [] 1.19677
// CHECK-DAG: result8 F32 [] 1.44925
// CHECK-DAG: result9 F32 [] 1.2075{{$}}
// CHECK-DAG: result10 F32 [] 6.72858
// CHECK-DAG: result11 F32 [] 6.41896
// CHECK-DAG: result12 F32 [] 1{{$}}
// CHECK-DAG: result13 F32 [] 1{{$}}
// CHECK-DAG: result14 F32 [] 1.2{{$}}
// CHECK-DAG: result15 F32 [] 0.213552
// CHECK-DAG: result16 F32 [] 1.04705
// CHECK-DAG: result17 F32 [] 0{{$}}
// CHECK-DAG: result18 F32 [] 1{{$}}
// CHECK-DAG: result19 F32 [] 0{{$}}
// CHECK-DAG: result20 F32 [] 0{{$}}
// CHECK-DAG: result21 F32 [] 0{{$}}
// CHECK-DAG: result22 F32 [] 0{{$}}
// CHECK-DAG: result23 F32 [] 0{{$}}
// CHECK-DAG: result24 F32 [] 0{{$}}
// CHECK-DAG: result25 F32 [] 0.910353
// CHECK-DAG: result26 F32 [] 1.24391
// CHECK-DAG: result27 F32 [] 0.546754
