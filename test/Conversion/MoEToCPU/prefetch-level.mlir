// The next block goes to the second-level cache, or to the first: there blocks of
// up to 20 rows have a quarter of the bytes, 128 steps of 64 columns, and stay.
// RUN: moira-opt %s --convert-moe-to-cpu --canonicalize --cse | FileCheck %s --check-prefix=SECOND
// RUN: moira-opt %s --convert-moe-to-cpu=prefetch-level=1 --canonicalize --cse | FileCheck %s --check-prefix=FIRST

// SECOND-LABEL: func.func @product
// SECOND-DAG: arith.constant 512 : index
// SECOND-NOT: arith.constant 20 : index
// SECOND: call @moira_tiles_f32_1x64
// SECOND: memref.prefetch {{.*}} locality<2>
// SECOND-NOT: locality<3>

// FIRST-LABEL: func.func @product
// FIRST-DAG: arith.constant 20 : index
// FIRST-DAG: arith.constant 128 : index
// FIRST-DAG: arith.constant 512 : index
// FIRST: call @moira_tiles_f32_1x64
// FIRST-LABEL: func.func private @moira_tiles_f32_1x64
// FIRST: memref.prefetch {{.*}} locality<3>
// FIRST-NOT: locality<2>
func.func @product(%x: memref<?x1024xf32>, %sizes: memref<2xi32>,
    %w: memref<2x1x1024x64xf32>, %out: memref<?x64xf32>) {
  moe.grouped_matmul rows(%x : memref<?x1024xf32>) groups(%sizes : memref<2xi32>)
      weights(%w : memref<2x1x1024x64xf32>) panels outs(%out : memref<?x64xf32>) {
  ^bb0(%sum: f32):
    moe.yield %sum : f32
  }
  return
}
