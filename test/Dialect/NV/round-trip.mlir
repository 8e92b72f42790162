// RUN: moira-opt %s -verify-roundtrip | FileCheck %s

gpu.module @kernels {
  llvm.func @k(%a: !llvm.ptr {llvm.byval = !llvm.array<128 x i8>}, %b: !llvm.ptr<1>, %c: i32) {
    llvm.return
  }
  llvm.func @none() {
    llvm.return
  }
}

// CHECK-LABEL: func.func @launch
// CHECK: %[[COUNT:.*]] = moira_nv.processors
// CHECK: %[[MAP:.*]] = moira_nv.tensor_map %{{.*}} box [16, 64] : memref<?x128xbf16>
// CHECK: moira_nv.launch @kernels::@k grid(%[[COUNT]]) block(128) shared(1024) args(%[[MAP]], %{{.*}}, %{{.*}} : !moira_nv.tensor_map, memref<?x128xbf16>, i32)
// CHECK: moira_nv.launch @kernels::@none grid(%[[COUNT]]) block(32) shared(0) args() {note}
// CHECK: schedule = #moira_nv.schedule<cp_async, tile = [128, 64, 32], stages = 3, warps = [2, 2]>
func.func @launch(%x: memref<?x128xbf16>, %c: i32) {
  %count = moira_nv.processors
  %map = moira_nv.tensor_map %x box [16, 64] : memref<?x128xbf16>
  moira_nv.launch @kernels::@k grid(%count) block(128) shared(1024)
      args(%map, %x, %c : !moira_nv.tensor_map, memref<?x128xbf16>, i32)
  moira_nv.launch @kernels::@none grid(%count) block(32) shared(0) args() {note}
  moira_nv.launch @kernels::@none grid(%count) block(32) shared(0) args()
      {schedule = #moira_nv.schedule<cp_async, tile = [128, 64, 32], stages = 3, warps = [2, 2]>}
  return
}
