// RUN: moira-opt %s --split-input-file --convert-moe-to-cpu=dot-bf16 --canonicalize --cse | FileCheck %s
// RUN: moira-opt %s --split-input-file --convert-moe-to-cpu='vector-bits=256 vector-registers=16' --canonicalize --cse | FileCheck %s --check-prefix=AVX2

// Work items are (block of rows, range of panels). Rows are staged, and a private
// function per format adds their product with a block of a panel to sums in
// memory; its tiles of 1 to 6 rows are static and keep their sums in registers.

// CHECK-LABEL: @gated
// AVX2-LABEL: @gated
func.func @gated(%x: memref<?x32xf32>, %sizes: memref<4xi32>,
    %g: memref<4x2x32x32xf32>, %u: memref<4x2x32x32xf32>, %out: memref<?x64xf32>) {
  // CHECK: call @moira_abi_workers
  // CHECK: scf.parallel
  // CHECK: memref.alloc()
  // CHECK: vector.load %{{.*}} : memref<?x32xf32>, vector<16xf32>
  // CHECK: func.call @moira_tiles_f32_2x32(
  // CHECK-NOT: masked
  // CHECK: arith.mulf {{.*}} : vector<16xf32>
  // CHECK: vector.store
  // CHECK: moe.cost
  // CHECK: func.func private @moira_abi_workers() -> i32 attributes {moe.abi = "workers"}
  // CHECK: func.func private @moira_tiles_f32_2x32(
  // CHECK-SAME: passthrough = ["noinline"]
  // CHECK: scf.index_switch
  // CHECK: case 1
  // CHECK: scf.for {{.*}} step %c4 iter_args({{.*}}) -> (vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>, index)
  // CHECK: memref.prefetch
  // CHECK: math.fma {{.*}} : vector
  // CHECK: case 5
  // CHECK: default
  // AVX2: vector<8xf32>
  // AVX2-NOT: vector<16xf32>
  moe.grouped_matmul rows(%x : memref<?x32xf32>) groups(%sizes : memref<4xi32>)
      weights(%g, %u : memref<4x2x32x32xf32>, memref<4x2x32x32xf32>) panels
      outs(%out : memref<?x64xf32>) {
  ^bb0(%a: f32, %b: f32):
    %m = arith.mulf %a, %b : f32
    moe.yield %m : f32
  }
  return
}

// -----

// N = 40 of panels of 32: the last panel is masked; bf16 widens in the stage and
// at the load of a panel, and rounds where the epilogue says. K = 6 has a rest.
// CHECK-LABEL: @tail_bf16
func.func @tail_bf16(%x: memref<?x6xbf16>, %sizes: memref<1xi32>,
    %w: memref<1x2x6x32xbf16>, %b: memref<1x40xbf16>, %out: memref<?x40xbf16>) {
  // CHECK: memref.load %{{.*}} : memref<?x6xbf16>
  // CHECK: arith.extf {{.*}} bf16 to f32
  // CHECK: func.call @moira_tiles_bf16_f32_1x32_ragged(
  // CHECK: arith.truncf {{.*}} vector<16xf32> to vector<16xbf16>
  // CHECK: vector.store
  // CHECK: vector.maskedstore
  // CHECK: func.func private @moira_tiles_bf16_f32_1x32_ragged(
  // CHECK: vector.load {{.*}} vector<16xbf16>
  // CHECK: arith.extf {{.*}} vector<16xbf16> to vector<16xf32>
  moe.grouped_matmul rows(%x : memref<?x6xbf16>) groups(%sizes : memref<1xi32>)
      weights(%w : memref<1x2x6x32xbf16>) panels bias(%b : memref<1x40xbf16>)
      outs(%out : memref<?x40xbf16>) {
  ^bb0(%a: f32):
    %r = arith.truncf %a : f32 to bf16
    moe.yield %r : bf16
  }
  return
}

// -----

// Weights that are not packed, and shapes that are not known: one chain each.
// CHECK-LABEL: @unpacked
func.func @unpacked(%x: memref<?x?xf32>, %sizes: memref<3xi32>,
    %w: memref<3x?x?xf32>, %out: memref<?x?xf32>, %dw: memref<3x?x?xf32>) {
  // CHECK: scf.parallel
  // CHECK: math.fma
  moe.grouped_matmul rows(%x : memref<?x?xf32>) groups(%sizes : memref<3xi32>)
      weights(%w : memref<3x?x?xf32>) kn outs(%out : memref<?x?xf32>) {
  ^bb0(%a: f32):
    moe.yield %a : f32
  }
  // CHECK: scf.parallel
  // CHECK: math.fma
  // CHECK-NOT: moira_tiles
  moe.grouped_matmul rows(%out, %x : memref<?x?xf32>, memref<?x?xf32>)
      groups(%sizes : memref<3xi32>) nk contraction outs(%dw : memref<3x?x?xf32>) {
  }
  return
}

// -----

// Pairs of bf16: halves of staged words change places, and the target's
// instruction adds two products. Nothing of it without a dot product.
// CHECK-LABEL: func.func @pairs
// CHECK-SAME: moe.numerics = "cpu-dot-bf16"
func.func @pairs(%x: memref<?x64xbf16>, %sizes: memref<2xi32>,
    %w: memref<2x1x32x64x2xbf16>, %out: memref<?x64xf32>) {
  // CHECK: vector.bitcast %{{.*}} : vector<32xbf16> to vector<16xi32>
  // CHECK: arith.shli
  // CHECK: arith.shrui
  // CHECK: func.call @moira_tiles_bf16_f32_1x64_pairs(
  // CHECK: func.func private @moira_tiles_bf16_f32_1x64_pairs(
  // CHECK: vector.broadcast %{{.*}} : i32 to vector<16xi32>
  // CHECK: llvm.call_intrinsic "llvm.x86.avx512bf16.dpbf16ps.512"
  moe.grouped_matmul rows(%x : memref<?x64xbf16>) groups(%sizes : memref<2xi32>)
      weights(%w : memref<2x1x32x64x2xbf16>) panels outs(%out : memref<?x64xf32>) {
  ^bb0(%p: f32):
    moe.yield %p : f32
  }
  return
}

// -----

// The gradient of rows transposes blocks of the forward panels into a scratch
// panel; the rows of the gradient are the columns of the scratch.
// CHECK-LABEL: func.func @rows_gradient
func.func @rows_gradient(%dy: memref<?x64xf32>, %sizes: memref<2xi32>,
    %w: memref<2x1x128x64xf32>, %dx: memref<?x128xf32>) {
  // CHECK: scf.parallel
  // CHECK-COUNT-64: vector.shuffle
  // CHECK-NOT: vector.shuffle
  // CHECK: func.call @moira_tiles_f32_1x64(
  moe.grouped_matmul rows(%dy : memref<?x64xf32>) groups(%sizes : memref<2xi32>)
      weights(%w : memref<2x1x128x64xf32>) transposed_panels outs(%dx : memref<?x128xf32>) {
  ^bb0(%p: f32):
    moe.yield %p : f32
  }
  return
}

// -----

// The gradient of weights: the rows of a group are the steps, in pairs where the
// target has a dot product of them, and the kernel writes the result.
// CHECK-LABEL: func.func @weights_gradient
// CHECK-SAME: moe.numerics = "cpu-dot-bf16"
// AVX2-LABEL: func.func @weights_gradient
// AVX2-NOT: moe.numerics
func.func @weights_gradient(%dy: memref<?x64xbf16>, %x: memref<?x128xbf16>,
    %sizes: memref<2xi32>, %dw: memref<2x64x128xf32>) {
  // CHECK: scf.parallel
  // Columns need no transpose: two rows become pairs, for the left factors as for
  // the panel.
  // CHECK-NOT: vector.shuffle
  // CHECK: vector.interleave %{{.*}}, %{{.*}} : vector<32xbf16>
  // CHECK: vector.store %{{.*}} : memref<{{.*}}xi32>, vector<32xi32>
  // CHECK: vector.interleave %{{.*}}, %{{.*}} : vector<32xbf16>
  // CHECK: vector.store %{{.*}} : memref<{{.*}}xbf16>, vector<64xbf16>
  // CHECK: func.call @moira_tiles_bf16_f32_1x64_pairs_ragged_steps_to_f32(
  // CHECK-NOT: llvm.fence
  // CHECK: return
  // Of bf16 rows, which are read ahead.
  // AVX2: @moira_tiles_f32_1x64_ragged_steps_to_f32_from_bf16(
  moe.grouped_matmul rows(%dy, %x : memref<?x64xbf16>, memref<?x128xbf16>)
      groups(%sizes : memref<2xi32>) nk contraction outs(%dw : memref<2x64x128xf32>) {
  }
  return
}

// -----

// In panels of pairs two rows of sums are one of the result; sums of dot products
// are rounded by the target's instruction.
// CHECK-LABEL: func.func @packed_gradient
func.func @packed_gradient(%dy: memref<?x64xbf16>, %x: memref<?x128xbf16>,
    %sizes: memref<2xi32>, %dw: memref<2x2x64x32x2xbf16>) {
  // CHECK: func.call @moira_tiles_bf16_f32_1x64_pairs_ragged_steps_to_bf16_pairs(
  // CHECK: func.func private @moira_tiles_bf16_f32_1x64_pairs_ragged_steps_to_bf16_pairs(
  // CHECK: call_intrinsic "llvm.x86.avx512bf16.cvtne2ps2bf16.512"
  // CHECK: arith.cmpi ugt, %{{.*}} : vector<32xi16>
  // CHECK: vector.shuffle
  moe.grouped_matmul rows(%dy, %x : memref<?x64xbf16>, memref<?x128xbf16>)
      groups(%sizes : memref<2xi32>) panels contraction
      outs(%dw : memref<2x2x64x32x2xbf16>) {
  }
  return
}

// -----

// Columns that end within a panel: the sums are written after the kernel.
// CHECK-LABEL: func.func @ragged_gradient
func.func @ragged_gradient(%dy: memref<?x64xf32>, %x: memref<?x100xf32>,
    %sizes: memref<2xi32>, %dw: memref<2x64x100xf32>) {
  // CHECK: func.call @moira_tiles_f32_1x64_ragged_steps(
  // CHECK: vector.store {{.*}} : memref<2x64x100xf32>
  moe.grouped_matmul rows(%dy, %x : memref<?x64xf32>, memref<?x100xf32>)
      groups(%sizes : memref<2xi32>) nk contraction outs(%dw : memref<2x64x100xf32>) {
  }
  return
}

// -----

// What an epilogue reads of other tensors is asked for before the last steps.
// CHECK-LABEL: func.func @epilogue_reads
func.func @epilogue_reads(%dy: memref<?x64xf32>, %sizes: memref<2xi32>,
    %w: memref<2x1x128x64xf32>, %g: memref<?x128xf32>, %dx: memref<?x128xf32>) {
  // CHECK: memref.prefetch %{{.*}} locality<2>, data : memref<?x128xf32>
  // CHECK: func.call @moira_tiles_f32_1x64(
  // CHECK: vector.load %{{.*}} : memref<?x128xf32>, vector<16xf32>
  moe.grouped_matmul rows(%dy : memref<?x64xf32>) groups(%sizes : memref<2xi32>)
      weights(%w : memref<2x1x128x64xf32>) transposed_panels
      elements(%g : memref<?x128xf32>) outs(%dx : memref<?x128xf32>) {
  ^bb0(%p: f32, %e: f32):
    %v = arith.mulf %p, %e : f32
    moe.yield %v : f32
  }
  return
}

// -----

// The one column of the last tile is a scalar store: LLVM stores more than the
// lane of such a mask.
// CHECK-LABEL: @one_column
func.func @one_column(%x: memref<?x4xbf16>, %sizes: memref<1xi32>,
    %w: memref<1x1x4x32xbf16>, %out: memref<?x17xbf16>) {
  // CHECK: scf.if
  // CHECK: vector.extract {{.*}}[0] : bf16 from vector<16xbf16>
  // CHECK: memref.store {{.*}} : memref<?x17xbf16>
  // CHECK: else
  // CHECK: vector.maskedstore {{.*}} : memref<?x17xbf16>
  moe.grouped_matmul rows(%x : memref<?x4xbf16>) groups(%sizes : memref<1xi32>)
      weights(%w : memref<1x1x4x32xbf16>) panels outs(%out : memref<?x17xbf16>) {
  ^bb0(%p: f32):
    %t = arith.truncf %p : f32 to bf16
    moe.yield %t : bf16
  }
  return
}
