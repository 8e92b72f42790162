// RUN: moira-opt %s --split-input-file --moe-add-context=entry=main | FileCheck %s
// RUN: not moira-opt %s --split-input-file --moe-add-context=entry=nowhere 2>&1 | FileCheck %s --check-prefix=NONE

// NONE: error: expected a function 'nowhere' with a body as entry, got none

// CHECK-LABEL: func.func @main
// CHECK-SAME: (%{{.*}}: !llvm.ptr, %{{.*}}: memref<?x8xf32>)
// CHECK-SAME: moe.kind = "step", moe.variant = {entry = "main", name = "only"}
func.func @main(%x: memref<?x8xf32>) {
  return
}
// Another program of the file, which nothing calls: it goes.
// CHECK-NOT: @helper
func.func @helper(%x: memref<?x8xf32>) {
  return
}

// -----

// CHECK-LABEL: func.func @main_a
// CHECK-SAME: moe.variant = {entry = "main", name = "decode"}
func.func @main_a(%x: memref<2x8xf32> {moe.param = #moe.param<"w", transpose>,
    moe.packing = {logical = tensor<2x8xf32>, function = @pack,
      slices = 1 : i64, source = tensor<8x2xf32>}}) {
  return
}
// CHECK-LABEL: func.func @main_b
// CHECK-SAME: moe.variant = {entry = "main", name = "prefill"}
func.func @main_b(%x: memref<2x8xf32> {moe.param = #moe.param<"w", transpose>,
    moe.packing = {logical = tensor<2x8xf32>, function = @pack,
      slices = 1 : i64, source = tensor<8x2xf32>}}) {
  return
}
// CHECK-LABEL: func.func @pack
// CHECK-SAME: (%{{.*}}: !llvm.ptr, %{{.*}}: memref<8x2xf32>)
// CHECK-SAME: moe.kind = "pack"
func.func @pack(%source: memref<8x2xf32>) -> memref<2x8xf32> {
  %packed = memref.alloc() : memref<2x8xf32>
  return %packed : memref<2x8xf32>
}
moe.variants @main [@main_a, @main_b] [decode, prefill]
