// RUN: moira-opt %s -split-input-file -convert-moe-to-cpu -canonicalize -cse | FileCheck %s

// Work items are panels of experts; K goes in blocks of 16, which are whole
// cache lines of f32, and squares of them are transposed in registers. What is
// left of K goes one by one. Full panels write no zeros.

// CHECK-LABEL: @nk
func.func @nk(%w: memref<4x64x40xf32>, %p: memref<4x2x40x32xf32>) {
  // CHECK: scf.parallel {{.*}} to (%c8)
  // CHECK: scf.for %[[K:.*]] = %c0 to %c32 step %c16
  // CHECK: scf.for %[[C:.*]] = %c0 to %c32 step %c16
  // CHECK-COUNT-16: vector.load {{.*}} vector<16xf32>
  // CHECK-COUNT-64: vector.shuffle
  // CHECK-COUNT-16: vector.store {{.*}} vector<16xf32>
  // CHECK: scf.for {{.*}} = %c0 to %c32 step %c1
  // CHECK: scf.for {{.*}} = %c32 to %c40
  // CHECK: memref.store
  // CHECK-NOT: %cst
  moe.pack %w nk outs(%p : memref<4x2x40x32xf32>) : memref<4x64x40xf32>
  return
}

// -----

// Pairs: words of two steps, whose halves change places; an odd K is filled up.

// CHECK-LABEL: @pairs
func.func @pairs(%w: memref<4x64x65xbf16>, %p: memref<4x2x33x32x2xbf16>) {
  // CHECK: memref.collapse_shape {{.*}} into memref<4x2x33x64xbf16>
  // CHECK: scf.for {{.*}} = %c0 to %c64 step %c32
  // CHECK: vector.load {{.*}} vector<32xbf16>
  // CHECK: vector.bitcast {{.*}} to vector<16xi32>
  // CHECK: arith.shli
  // CHECK-COUNT-64: vector.shuffle
  // CHECK: vector.store {{.*}} vector<32xbf16>
  // CHECK: memref.store %{{.*}}[%{{.*}}, %{{.*}}, %c32, %{{.*}}, %c1]
  // CHECK: memref.store %cst{{.*}}, %{{.*}}[%{{.*}}, %{{.*}}, %c32, %{{.*}}, %c0]
  moe.pack %w nk outs(%p : memref<4x2x33x32x2xbf16>) : memref<4x64x65xbf16>
  return
}

// -----

// CHECK-LABEL: @kn
func.func @kn(%w: memref<4x40x50xbf16>, %p: memref<4x2x40x32xbf16>) {
  // CHECK: scf.parallel {{.*}} to (%c8)
  // CHECK: %[[VALID:.*]] = arith.minsi
  // CHECK: scf.for {{.*}} to %c40
  // CHECK: scf.for {{.*}} = %c0 to %[[VALID]]
  // CHECK: scf.for {{.*}} = %[[VALID]] to %c32
  // CHECK: memref.store %cst
  moe.pack %w kn outs(%p : memref<4x2x40x32xbf16>) : memref<4x40x50xbf16>
  return
}
