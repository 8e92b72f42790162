// RUN: moira-opt %s -split-input-file -convert-moe-to-cpu -canonicalize -cse | FileCheck %s

// Work items are panels of experts; K goes in blocks of 16, which are whole
// cache lines of f32. Full panels write no zeros.

// CHECK-LABEL: @nk
func.func @nk(%w: memref<4x64x40xf32>, %p: memref<4x2x40x32xf32>) {
  // CHECK: scf.parallel {{.*}} to (%c8)
  // CHECK: scf.for %[[K:.*]] = %c0 to %c32 step %c16
  // CHECK: scf.for {{.*}} = %c0 to %c32 step %c1
  // CHECK: scf.for {{.*}} = %[[K]] to
  // CHECK: scf.for {{.*}} = %c0 to %c32 step %c1
  // CHECK: scf.for {{.*}} = %c32 to %c40
  // CHECK-NOT: %cst
  moe.pack %w nk outs(%p : memref<4x2x40x32xf32>) : memref<4x64x40xf32>
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
