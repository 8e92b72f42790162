// RUN: moira-opt %s --moe-emit-entries=module-name=x.mlir | FileCheck %s
// RUN: moira-opt %s --moe-emit-entries=module-name=x.mlir | FileCheck %s --check-prefix=MANIFEST

// MANIFEST: moira.manifest = "{
// MANIFEST-SAME: \22name\22:\22x\22,\22shape\22:[-1,8]
// MANIFEST-SAME: \22results\22:[{\22dtype\22:\22f32\22,\22shape\22:[-1,8]},{\22dtype\22:\22i64\22,\22shape\22:[]}]
// MANIFEST-SAME: \22step\22:\22moira_step_main_only\22
// MANIFEST-SAME: \22logical_shape\22:[2,8]
// MANIFEST-SAME: \22name\22:\22w\22
// MANIFEST-SAME: \22packed_slice_bytes\22:64
// MANIFEST-SAME: \22shape\22:[8,2]

// The result's own buffer is the caller's storage; the other allocation comes
// from the arena; the loop's allocation is released in each iteration.
// CHECK-LABEL: func.func private @main(
// CHECK-SAME: llvm.linkage = #llvm.linkage<internal>
// CHECK-NOT: memref.alloc
// CHECK: scf.for
// CHECK: llvm.call %{{.*}} : !llvm.ptr, (!llvm.ptr, i64) -> i64
// CHECK: llvm.call %{{.*}} : !llvm.ptr, (!llvm.ptr, i64, i64) -> !llvm.ptr
// CHECK: llvm.call %{{.*}} : !llvm.ptr, (!llvm.ptr, i64, i64) -> ()
// CHECK: return
// CHECK-LABEL: func.func @moira_step_main_only(%{{.*}}: !llvm.ptr, %{{.*}}: !llvm.ptr)
// CHECK: call @main
func.func @main(%ctx: !llvm.ptr, %x: memref<?x8xf32> {moe.name = "x"},
    %w: memref<2x8xf32> {moe.param = #moe.param<"w", transpose>,
      moe.packing = {logical = tensor<2x8xf32>, function = @pack,
      slices = 1 : i64, source = tensor<8x2xf32>}}) -> (memref<?x8xf32>, index)
    attributes {moe.kind = "step", moe.variant = {entry = "main", name = "only"}} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %t = memref.dim %x, %c0 : memref<?x8xf32>
  %y = memref.alloc(%t) : memref<?x8xf32>
  %n = arith.muli %t, %c2 : index
  %scratch = memref.alloc(%n) : memref<?xf32>
  scf.for %i = %c0 to %c2 step %c1 {
    %inner = memref.alloc(%t) : memref<?xf32>
    memref.copy %inner, %inner : memref<?xf32> to memref<?xf32>
  }
  memref.copy %x, %y : memref<?x8xf32> to memref<?x8xf32>
  return %y, %t : memref<?x8xf32>, index
}

// CHECK-LABEL: func.func private @pack(
// CHECK-SAME: %{{.*}}: !llvm.ptr, %{{.*}}: memref<8x2xf32>, %{{.*}}: !llvm.ptr)
// CHECK-NOT: memref.alloc
// CHECK-LABEL: func.func @moira_pack_0
// CHECK: call @pack
func.func @pack(%ctx: !llvm.ptr, %source: memref<8x2xf32>) -> memref<2x8xf32>
    attributes {moe.kind = "pack"} {
  %packed = memref.alloc() : memref<2x8xf32>
  return %packed : memref<2x8xf32>
}

// Workspace: the sum of 64-byte multiples, from the input's shape alone.
// CHECK-LABEL: func.func @moira_workspace_main_only
// CHECK: llvm.load
// CHECK: arith.muli
// CHECK: arith.andi
// CHECK-NOT: memref
// CHECK: return %{{.*}} : i64
