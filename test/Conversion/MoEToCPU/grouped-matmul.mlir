// RUN: moira-opt %s --split-input-file --convert-moe-to-cpu --canonicalize --cse | FileCheck %s
// RUN: moira-opt %s --split-input-file --convert-moe-to-cpu='vector-bits=256 vector-registers=16' --canonicalize --cse | FileCheck %s --check-prefix=AVX2

// Work items are (expert, block of rows, panel); tiles of 1 to 6 rows are
// static; the contraction keeps its accumulators in registers.

// CHECK-LABEL: @gated
// AVX2-LABEL: @gated
func.func @gated(%x: memref<?x32xf32>, %sizes: memref<4xi32>,
    %g: memref<4x2x32x32xf32>, %u: memref<4x2x32x32xf32>, %out: memref<?x64xf32>) {
  // CHECK: scf.parallel
  // CHECK: scf.index_switch
  // CHECK: case 1
  // CHECK: scf.for {{.*}} step %c4 iter_args({{.*}}) -> (vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>)
  // CHECK: math.fma {{.*}} : vector
  // CHECK-NOT: masked
  // CHECK: arith.mulf {{.*}} : vector<16xf32>
  // CHECK: vector.store
  // CHECK: case 5
  // CHECK: default
  // CHECK: moe.cost
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

// N = 40 of panels of 32: the last panel is masked; bf16 widens at the load and
// rounds where the epilogue says.
// CHECK-LABEL: @tail_bf16
func.func @tail_bf16(%x: memref<?x6xbf16>, %sizes: memref<1xi32>,
    %w: memref<1x2x6x32xbf16>, %b: memref<1x40xbf16>, %out: memref<?x40xbf16>) {
  // CHECK: vector.load {{.*}} vector<16xbf16>
  // CHECK: arith.extf {{.*}} vector<16xbf16> to vector<16xf32>
  // CHECK: arith.truncf {{.*}} vector<16xf32> to vector<16xbf16>
  // CHECK: vector.store
  // CHECK: vector.maskedstore
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

// Weights that are not packed, and the contraction over rows: one chain each.
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
  moe.grouped_matmul rows(%out, %x : memref<?x?xf32>, memref<?x?xf32>)
      groups(%sizes : memref<3xi32>) nk contraction outs(%dw : memref<3x?x?xf32>) {
  }
  return
}

// -----

// The one column of the last tile is a scalar store: LLVM stores more than the
// lane of such a mask.
// CHECK-LABEL: @one_column
func.func @one_column(%x: memref<?x4xbf16>, %sizes: memref<1xi32>,
    %w: memref<1x1x4x32xbf16>, %out: memref<?x17xbf16>) {
  // CHECK: case 1
  // CHECK: vector.store {{.*}} : memref<?x17xbf16>, vector<16xbf16>
  // CHECK-NOT: vector.maskedstore
  // CHECK: vector.extract {{.*}}[0] : bf16 from vector<16xbf16>
  // CHECK: memref.store {{.*}} : memref<?x17xbf16>
  moe.grouped_matmul rows(%x : memref<?x4xbf16>) groups(%sizes : memref<1xi32>)
      weights(%w : memref<1x1x4x32xbf16>) panels outs(%out : memref<?x17xbf16>) {
  ^bb0(%p: f32):
    %t = arith.truncf %p : f32 to bf16
    moe.yield %t : bf16
  }
  return
}
