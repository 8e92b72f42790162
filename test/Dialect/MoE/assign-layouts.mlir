// RUN: moira-opt %s --moe-assign-layouts --split-input-file | FileCheck %s
// RUN: moira-opt %s --moe-assign-layouts=panel-width=32 --split-input-file | FileCheck %s --check-prefix=NARROW
// RUN: moira-opt %s --moe-assign-layouts='panel-width=16 lanes=8' --split-input-file | FileCheck %s --check-prefix=LANES
// RUN: moira-opt %s --moe-assign-layouts=pairs --split-input-file | FileCheck %s --check-prefix=PAIRS

// Two weights share the width of a panel; the last panel is filled with zeros.

// CHECK-LABEL: func @gated(
// CHECK-SAME: %[[G:[^ ]*]]: tensor<4x4x8x32xbf16> {moe.packing = {form = {{[^@]*}}function = @moe_pack_0, logical = tensor<4x100x8xbf16>, slices = 4 : i64, source = tensor<100x8xbf16>}, moe.param = #moe.param<"experts.{}.gate">}
// CHECK-SAME: %[[U:[^ ]*]]: tensor<4x4x8x32xbf16> {moe.packing = {form = {{[^@]*}}function = @moe_pack_0,
// CHECK: moe.grouped_matmul {{.*}} weights(%[[G]], %[[U]] : tensor<4x4x8x32xbf16>, tensor<4x4x8x32xbf16>) panels -> tensor<?x100xbf16>
// CHECK: func private @moe_pack_0(%[[S:.*]]: tensor<100x8xbf16>) -> tensor<4x8x32xbf16>
// CHECK-NEXT: %[[E:.*]] = tensor.expand_shape %[[S]] {{\[\[}}0, 1], [2]] output_shape [1, 100, 8]
// CHECK-NEXT: %[[P:.*]] = moe.pack %[[E]] nk : tensor<1x100x8xbf16> -> tensor<1x4x8x32xbf16>
// CHECK-NEXT: %[[C:.*]] = tensor.collapse_shape %[[P]] {{\[\[}}0, 1], [2], [3]]
// CHECK-NEXT: return %[[C]]
// NARROW-LABEL: func @gated(
// NARROW-SAME: tensor<4x7x8x16xbf16>
// LANES-LABEL: func @gated(
// LANES-SAME: tensor<4x13x8x8xbf16>
func.func @gated(%x: tensor<?x8xbf16>, %s: tensor<4xi32>,
    %g: tensor<4x100x8xbf16> {moe.param = #moe.param<"experts.{}.gate">},
    %u: tensor<4x100x8xbf16> {moe.param = #moe.param<"experts.{}.up">}) -> tensor<?x100xbf16> {
  %h = moe.grouped_matmul rows(%x : tensor<?x8xbf16>) groups(%s : tensor<4xi32>)
      weights(%g, %u : tensor<4x100x8xbf16>, tensor<4x100x8xbf16>) nk -> tensor<?x100xbf16> {
  ^bb0(%a: f32, %b: f32):
    %m = arith.mulf %a, %b : f32
    %t = arith.truncf %m : f32 to bf16
    moe.yield %t : bf16
  }
  return %h : tensor<?x100xbf16>
}

// -----

// A dense weight comes as one slice; a [K, N] weight whose checkpoint is
// transposed is packed from [N, K]; f64 has half the columns; a small matrix a
// narrow panel. The functions are made once per packing.

// CHECK-LABEL: func @dense(
// CHECK-SAME: %[[R:[^ ]*]]: tensor<1x2x8x64xf32> {moe.packing = {form = {{[^@]*}}function = @moe_pack_0, logical = tensor<100x8xf32>, slices = 1 : i64, source = tensor<100x8xf32>}, moe.param = #moe.param<"router">}
// CHECK-SAME: %[[T:[^ ]*]]: tensor<2x1x8x64xf32> {moe.packing = {form = {{[^@]*}}function = @moe_pack_2, logical = tensor<2x8x50xf32>, slices = 2 : i64, source = tensor<50x8xf32>}
// CHECK-SAME: %[[W:[^ ]*]]: tensor<2x2x8x32xf64> {moe.packing = {form = {{[^@]*}}function = @moe_pack_1,
// CHECK-SAME: %[[V:[^ ]*]]: tensor<2x1x8x16xf32> {moe.packing = {form = {{[^@]*}}function = @moe_pack_3,
// CHECK-NOT: tensor.expand_shape
// CHECK: weights(%[[R]] : tensor<1x2x8x64xf32>) panels
// CHECK: weights(%[[T]] : tensor<2x1x8x64xf32>) panels
// CHECK: weights(%[[W]] : tensor<2x2x8x32xf64>) panels
// CHECK: weights(%[[V]] : tensor<2x1x8x16xf32>) panels
// CHECK: func private @moe_pack_2(%{{.*}}: tensor<50x8xf32>) -> tensor<1x8x64xf32>
// CHECK: moe.pack %{{.*}} nk : tensor<1x50x8xf32>
// CHECK: func private @moe_pack_3(%{{.*}}: tensor<8x5xf32>) -> tensor<1x8x16xf32>
// CHECK: moe.pack %{{.*}} kn : tensor<1x8x5xf32>
func.func @dense(%x: tensor<?x8xf32>, %y: tensor<?x8xf64>, %s1: tensor<1xi32>, %s: tensor<2xi32>,
    %r: tensor<100x8xf32> {moe.param = #moe.param<"router">},
    %t: tensor<2x8x50xf32> {moe.param = #moe.param<"e.{}.t", transpose>},
    %w: tensor<2x50x8xf64> {moe.param = #moe.param<"e.w">},
    %v: tensor<2x8x5xf32> {moe.param = #moe.param<"e.v">})
    -> (tensor<?x100xf32>, tensor<?x50xf32>, tensor<?x50xf64>, tensor<?x5xf32>) {
  %r1 = tensor.expand_shape %r [[0, 1], [2]] output_shape [1, 100, 8] : tensor<100x8xf32> into tensor<1x100x8xf32>
  %0 = moe.grouped_matmul rows(%x : tensor<?x8xf32>) groups(%s1 : tensor<1xi32>)
      weights(%r1 : tensor<1x100x8xf32>) nk -> tensor<?x100xf32> {
  ^bb0(%a: f32):
    moe.yield %a : f32
  }
  %1 = moe.grouped_matmul rows(%x : tensor<?x8xf32>) groups(%s : tensor<2xi32>)
      weights(%t : tensor<2x8x50xf32>) kn -> tensor<?x50xf32> {
  ^bb0(%a: f32):
    moe.yield %a : f32
  }
  %2 = moe.grouped_matmul rows(%y : tensor<?x8xf64>) groups(%s : tensor<2xi32>)
      weights(%w : tensor<2x50x8xf64>) nk -> tensor<?x50xf64> {
  ^bb0(%a: f64):
    moe.yield %a : f64
  }
  %3 = moe.grouped_matmul rows(%x : tensor<?x8xf32>) groups(%s : tensor<2xi32>)
      weights(%v : tensor<2x8x5xf32>) kn -> tensor<?x5xf32> {
  ^bb0(%a: f32):
    moe.yield %a : f32
  }
  return %0, %1, %2, %3 : tensor<?x100xf32>, tensor<?x50xf32>, tensor<?x50xf64>, tensor<?x5xf32>
}

// -----

// gpt-oss: the checkpoint holds [K, 2N] with gate and up in turns. Written as
// two parameters, or as one that is sliced: two packed arguments either way.

// CHECK-LABEL: func @parts(
// CHECK-SAME: %[[G:[^ ]*]]: tensor<4x1x8x32xbf16> {moe.packing = {form = {{[^@]*}}function = @moe_pack_0, logical = tensor<4x20x8xbf16>, slices = 4 : i64, source = tensor<8x40xbf16>}
// CHECK-SAME: %[[U:[^ ]*]]: tensor<4x1x8x32xbf16> {moe.packing = {form = {{[^@]*}}function = @moe_pack_1,
// CHECK: func private @moe_pack_0(%[[S:.*]]: tensor<8x40xbf16>)
// CHECK: %[[SL:.*]] = tensor.extract_slice %[[S]][0, 0] [8, 20] [1, 2]
// CHECK: %[[E:.*]] = tensor.expand_shape %[[SL]]
// CHECK: moe.pack %[[E]] kn : tensor<1x8x20xbf16>
// CHECK: func private @moe_pack_1
// CHECK: tensor.extract_slice %{{.*}}[0, 1] [8, 20] [1, 2]
func.func @parts(%x: tensor<?x8xbf16>, %s: tensor<4xi32>,
    %g: tensor<4x20x8xbf16> {moe.param = #moe.param<"gate_up", transpose, part = 0 of 2, interleaved>},
    %u: tensor<4x20x8xbf16> {moe.param = #moe.param<"gate_up", transpose, part = 1 of 2, interleaved>}) -> tensor<?x20xbf16> {
  %h = moe.grouped_matmul rows(%x : tensor<?x8xbf16>) groups(%s : tensor<4xi32>)
      weights(%g, %u : tensor<4x20x8xbf16>, tensor<4x20x8xbf16>) nk -> tensor<?x20xbf16> {
  ^bb0(%a: f32, %b: f32):
    %m = arith.mulf %a, %b : f32
    %t = arith.truncf %m : f32 to bf16
    moe.yield %t : bf16
  }
  return %h : tensor<?x20xbf16>
}

// -----

// CHECK-LABEL: func @sliced(
// CHECK-SAME: %[[G:[^ ]*]]: tensor<4x1x8x32xbf16> {moe.packing = {form = {{[^@]*}}function = @moe_pack_0, logical = tensor<4x40x8xbf16>, slices = 4 : i64, source = tensor<80x8xbf16>}
// CHECK-SAME: %[[U:[^ ]*]]: tensor<4x1x8x32xbf16> {moe.packing = {form = {{[^@]*}}function = @moe_pack_1,
// CHECK-NOT: tensor<4x40x8xbf16> {moe.param
// CHECK: weights(%[[G]], %[[U]]
// The second part of two blocks of 40 rows; of it the even and the odd rows.
// CHECK: func private @moe_pack_0
// CHECK: tensor.extract_slice %{{.*}}[40, 0] [20, 8] [2, 1]
// CHECK: func private @moe_pack_1
// CHECK: tensor.extract_slice %{{.*}}[41, 0] [20, 8] [2, 1]
func.func @sliced(%x: tensor<?x8xbf16>, %s: tensor<4xi32>,
    %w: tensor<4x40x8xbf16> {moe.param = #moe.param<"w.{}", part = 1 of 2>}) -> tensor<?x20xbf16> {
  %g = tensor.extract_slice %w[0, 0, 0] [4, 20, 8] [1, 2, 1] : tensor<4x40x8xbf16> to tensor<4x20x8xbf16>
  %u = tensor.extract_slice %w[0, 1, 0] [4, 20, 8] [1, 2, 1] : tensor<4x40x8xbf16> to tensor<4x20x8xbf16>
  %h = moe.grouped_matmul rows(%x : tensor<?x8xbf16>) groups(%s : tensor<4xi32>)
      weights(%g, %u : tensor<4x20x8xbf16>, tensor<4x20x8xbf16>) nk -> tensor<?x20xbf16> {
  ^bb0(%a: f32, %b: f32):
    %m = arith.mulf %a, %b : f32
    %t = arith.truncf %m : f32 to bf16
    moe.yield %t : bf16
  }
  return %h : tensor<?x20xbf16>
}

// -----

// A parameter that is also read as it is stays, next to its packed copy.
// Parameters that are not packed get a function when the checkpoint differs.

// CHECK-LABEL: func @both(
// CHECK-SAME: %[[P:[^ ]*]]: tensor<2x1x8x16xf32> {moe.packing = {{.*}}, moe.param = #moe.param<"w">}
// CHECK-SAME: %[[W:[^ ]*]]: tensor<2x8x16xf32> {moe.param = #moe.param<"w">}
// CHECK-SAME: %[[B:[^ ]*]]: tensor<16xf32> {moe.param = #moe.param<"b">}
// CHECK-SAME: %[[T:[^ ]*]]: tensor<3x5xf32> {moe.packing = {form = {{[^@]*}}function = @moe_pack_1, logical = tensor<3x5xf32>, slices = 1 : i64, source = tensor<5x6xf32>}, moe.param = #moe.param<"t", transpose, part = 1 of 2>}
// CHECK: return %{{.*}}, %[[W]], %[[B]], %[[T]]
// CHECK: func private @moe_pack_1(%[[S:.*]]: tensor<5x6xf32>) -> tensor<3x5xf32>
// CHECK: %[[SL:.*]] = tensor.extract_slice %[[S]][0, 3] [5, 3] [1, 1]
// CHECK: %[[TR:.*]] = linalg.transpose ins(%[[SL]] : tensor<5x3xf32>)
// CHECK: return %[[TR]]
func.func @both(%x: tensor<?x8xf32>, %s: tensor<2xi32>,
    %w: tensor<2x8x16xf32> {moe.param = #moe.param<"w">},
    %b: tensor<16xf32> {moe.param = #moe.param<"b">},
    %t: tensor<3x5xf32> {moe.param = #moe.param<"t", transpose, part = 1 of 2>})
    -> (tensor<?x16xf32>, tensor<2x8x16xf32>, tensor<16xf32>, tensor<3x5xf32>) {
  %0 = moe.grouped_matmul rows(%x : tensor<?x8xf32>) groups(%s : tensor<2xi32>)
      weights(%w : tensor<2x8x16xf32>) kn -> tensor<?x16xf32> {
  ^bb0(%a: f32):
    moe.yield %a : f32
  }
  return %0, %w, %b, %t : tensor<?x16xf32>, tensor<2x8x16xf32>, tensor<16xf32>, tensor<3x5xf32>
}

// -----

// Every other element of a bias: consecutive from loading on, or copied.

// CHECK-LABEL: func @strided_bias(
// CHECK-SAME: %[[W:[^ ]*]]: tensor<2x1x8x64xf32>
// CHECK-SAME: %[[P:[^ ]*]]: tensor<2x40xf32> {moe.packing = {form = {{[^@]*}}function = @[[F:[^,]*]], logical = tensor<2x80xf32>, slices = 1 : i64, source = tensor<2x80xf32>}, moe.param = #moe.param<"b">}
// CHECK-SAME: %[[Q:[^ ]*]]: tensor<2x40xf32> {moe.packing = {form = {{[^@]*}}function = @[[G:[^,]*]], logical = tensor<2x80xf32>, slices = 2 : i64, source = tensor<80xf32>}, moe.param = #moe.param<"b.{}">}
// CHECK-SAME: %[[I:[^ ]*]]: tensor<2x80xf32>)
// CHECK: %[[S:.*]] = tensor.extract_slice %[[I]][0, 0] [2, 40] [1, 2]
// CHECK: %[[C:.*]] = bufferization.alloc_tensor() copy(%[[S]]) : tensor<2x40xf32>
// CHECK: bias(%[[P]] : tensor<2x40xf32>) vectors(%[[Q]], %[[C]] : tensor<2x40xf32>, tensor<2x40xf32>)
// CHECK: func private @[[F]](%{{.*}}: tensor<2x80xf32>) -> tensor<2x40xf32>
// CHECK: tensor.extract_slice %{{.*}}[0, 1] [2, 40] [1, 2]
// CHECK: func private @[[G]](%{{.*}}: tensor<80xf32>) -> tensor<40xf32>
// CHECK: tensor.extract_slice %{{.*}}[0] [40] [2]
func.func @strided_bias(%x: tensor<?x8xf32>, %s: tensor<2xi32>,
    %w: tensor<2x40x8xf32> {moe.param = #moe.param<"w">},
    %b: tensor<2x80xf32> {moe.param = #moe.param<"b">},
    %c: tensor<2x80xf32> {moe.param = #moe.param<"b.{}">}, %i: tensor<2x80xf32>) -> tensor<?x40xf32> {
  %b1 = tensor.extract_slice %b[0, 1] [2, 40] [1, 2] : tensor<2x80xf32> to tensor<2x40xf32>
  %c1 = tensor.extract_slice %c[0, 0] [2, 40] [1, 2] : tensor<2x80xf32> to tensor<2x40xf32>
  %i1 = tensor.extract_slice %i[0, 0] [2, 40] [1, 2] : tensor<2x80xf32> to tensor<2x40xf32>
  %0 = moe.grouped_matmul rows(%x : tensor<?x8xf32>) groups(%s : tensor<2xi32>)
      weights(%w : tensor<2x40x8xf32>) nk bias(%b1 : tensor<2x40xf32>)
      vectors(%c1, %i1 : tensor<2x40xf32>, tensor<2x40xf32>) -> tensor<?x40xf32> {
  ^bb0(%a: f32, %v: f32, %u: f32):
    %m = arith.mulf %a, %v : f32
    %n = arith.addf %m, %u : f32
    moe.yield %n : f32
  }
  return %0 : tensor<?x40xf32>
}

// -----

// A gradient reads the panels of the forward product, wherever it stands; a
// target with a dot product has pairs of steps, in rows of an odd K too.

// CHECK-LABEL: func @gradient(
// CHECK-SAME: tensor<4x2x9x64xbf16> {moe.packing = {form = {{[^@]*}}function = @moe_pack_0,
// CHECK-NOT: moe.packing
// CHECK: weights(%{{.*}} : tensor<4x2x9x64xbf16>) transposed_panels -> tensor<?x9xbf16>
// CHECK: weights(%{{.*}} : tensor<4x2x9x64xbf16>) panels -> tensor<?x100xbf16>
// PAIRS-LABEL: func @gradient(
// PAIRS-SAME: tensor<4x2x5x64x2xbf16> {moe.packing = {form = {{[^@]*}}function = @moe_pack_0,
// PAIRS: weights(%{{.*}} : tensor<4x2x5x64x2xbf16>) transposed_panels -> tensor<?x9xbf16>
// PAIRS: weights(%{{.*}} : tensor<4x2x5x64x2xbf16>) panels -> tensor<?x100xbf16>
// PAIRS: func private @moe_pack_0(%{{.*}}: tensor<100x9xbf16>) -> tensor<2x5x64x2xbf16>
func.func @gradient(%x: tensor<?x9xbf16>, %dy: tensor<?x100xbf16>, %s: tensor<4xi32>,
    %w: tensor<4x100x9xbf16> {moe.param = #moe.param<"experts.{}.w">})
    -> (tensor<?x100xbf16>, tensor<?x9xbf16>) {
  %dx = moe.grouped_matmul rows(%dy : tensor<?x100xbf16>) groups(%s : tensor<4xi32>)
      weights(%w : tensor<4x100x9xbf16>) kn -> tensor<?x9xbf16> {
  ^bb0(%a: f32):
    %t = arith.truncf %a : f32 to bf16
    moe.yield %t : bf16
  }
  %y = moe.grouped_matmul rows(%x : tensor<?x9xbf16>) groups(%s : tensor<4xi32>)
      weights(%w : tensor<4x100x9xbf16>) nk -> tensor<?x100xbf16> {
  ^bb0(%a: f32):
    %t = arith.truncf %a : f32 to bf16
    moe.yield %t : bf16
  }
  return %y, %dx : tensor<?x100xbf16>, tensor<?x9xbf16>
}

// -----

// The hidden dimension of an expert in three blocks: columns of the first
// product, and a chain each of the second.

// CHECK-LABEL: func @blocks(
// CHECK-SAME: tensor<4x6x8x64xf32>
// CHECK-SAME: tensor<4x3x100x16xf32>
// CHECK: moe.grouped_matmul {{.*}} panels -> tensor<?x300xf32> attributes {hidden = #moe.hidden<3 of n>}
// CHECK: moe.grouped_matmul {{.*}} panels -> tensor<?x8xf32> attributes {hidden = #moe.hidden<3 of k>}
// CHECK: moe.pack %{{.*}} nk {hidden = #moe.hidden<3 of n>} : tensor<1x300x8xf32> -> tensor<1x6x8x64xf32>
// CHECK: moe.pack %{{.*}} nk {hidden = #moe.hidden<3 of k>} : tensor<1x8x300xf32>
func.func @blocks(%x: tensor<?x8xf32>, %s: tensor<4xi32>,
    %a: tensor<4x300x8xf32> {moe.param = #moe.param<"experts.{}.a">},
    %b: tensor<4x8x300xf32> {moe.param = #moe.param<"experts.{}.b">})
    -> tensor<?x8xf32> {
  %0 = moe.grouped_matmul rows(%x : tensor<?x8xf32>) groups(%s : tensor<4xi32>)
      weights(%a : tensor<4x300x8xf32>) nk -> tensor<?x300xf32>
      attributes {hidden = #moe.hidden<3 of n>} {
  ^bb0(%sum: f32):
    moe.yield %sum : f32
  }
  %1 = moe.grouped_matmul rows(%0 : tensor<?x300xf32>) groups(%s : tensor<4xi32>)
      weights(%b : tensor<4x8x300xf32>) nk -> tensor<?x8xf32>
      attributes {hidden = #moe.hidden<3 of k>} {
  ^bb0(%sum: f32):
    moe.yield %sum : f32
  }
  return %1 : tensor<?x8xf32>
}
