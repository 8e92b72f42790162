// RUN: not moira-opt %s --convert-moe-to-cpu=row-tile=0 2>&1 | FileCheck %s --check-prefix=ROWS
// RUN: not moira-opt %s --convert-moe-to-cpu=cache-bytes=1000 2>&1 | FileCheck %s --check-prefix=CACHE
// RUN: not moira-opt %s --convert-moe-to-cpu=prefetch-level=3 2>&1 | FileCheck %s --check-prefix=LEVEL
// RUN: not moira-opt %s --moe-form-kernels=hidden-blocks=0 2>&1 | FileCheck %s --check-prefix=BLOCKS
//
// ROWS: error: expected a tile of at least one row and a cache of at least 64 KiB, got 0 and 1048576
// CACHE: error: expected a tile of at least one row and a cache of at least 64 KiB, got 6 and 1000
// LEVEL: error: expected a prefetch level of 1 or 2, got 3
// BLOCKS: error: expected at least one hidden block, got 0

// Blocks of the contraction are whole vectors, whatever the cache: 64 steps here.
//
// RUN: moira-opt %s --convert-moe-to-cpu=cache-bytes=70000 --canonicalize | FileCheck %s
//
// CHECK-LABEL: func.func @product
// CHECK-NOT: arith.constant 34 : index
// CHECK: memref.alloc() : memref<15360xf32>
func.func @product(%x: memref<?x256xf32>, %sizes: memref<1xi32>,
    %w: memref<1x1x256x64xf32>, %out: memref<?x64xf32>) {
  moe.grouped_matmul rows(%x : memref<?x256xf32>) groups(%sizes : memref<1xi32>)
      weights(%w : memref<1x1x256x64xf32>) panels outs(%out : memref<?x64xf32>) {
  ^bb0(%sum: f32):
    moe.yield %sum : f32
  }
  return
}
