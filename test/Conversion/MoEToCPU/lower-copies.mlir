// RUN: moira-opt %s --moe-lower-copies | FileCheck %s

// CHECK-LABEL: @strided
func.func @strided(%a: memref<4x8xf32, strided<[16, 1]>>, %b: memref<4x8xf32>) {
  // CHECK: linalg.generic
  // CHECK-NOT: memref.copy
  memref.copy %a, %b : memref<4x8xf32, strided<[16, 1]>> to memref<4x8xf32>
  return
}

// CHECK-LABEL: @compact
func.func @compact(%a: memref<?x8xf32>, %b: memref<?x8xf32>) {
  // CHECK: memref.copy
  memref.copy %a, %b : memref<?x8xf32> to memref<?x8xf32>
  return
}
