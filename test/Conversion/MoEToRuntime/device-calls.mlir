// RUN: moira-opt %s -moe-emit-entries -canonicalize | FileCheck %s
// RUN: moira-opt %s -moe-emit-entries | FileCheck %s --check-prefix=MANIFEST

// Launches, reads and copies go through the table that the context's `queues`
// leads to: launch is at byte 16, encode at 24, copy at 32, read at 40, write
// at 48.

// MANIFEST: moira.manifest = "
// MANIFEST-SAME: \22device\22:{\22abi\22:1,
// MANIFEST-SAME: \22images\22:[{\22arch\22:\22sm_90a\22,\22cubin\22:[5,3],\22emulated\22:\22moira_emu_module_kernels\22,\22name\22:\22kernels\22,\22ptx\22:[0,5]}]
// MANIFEST-SAME: \22kernels\22:[{\22image\22:0,\22name\22:\22first\22,\22parameters\22:[8,4],\22shared\22:0,\22threads\22:64}
// MANIFEST-SAME: {\22image\22:0,\22name\22:\22second\22,\22parameters\22:[128],\22shared\22:4096,\22threads\22:128}
// The code of all images, one after the other.
// CHECK: moira.gpu_code = "abcdexyz"

gpu.module @kernels attributes {moira.arch = "sm_90a", moira.ptx = "abcde",
                                moira.cubin = "xyz", moira.emulated} {
  llvm.func @first(%p: !llvm.ptr<1>, %n: i32)
      attributes {nvvm.kernel, nvvm.reqntid = array<i32: 64, 1, 1>} {
    llvm.return
  }
  llvm.func @second(%p: !llvm.ptr {llvm.byval = !llvm.array<128 x i8>})
      attributes {nvvm.kernel, nvvm.reqntid = array<i32: 128, 1, 1>} {
    llvm.return
  }
}

// CHECK-LABEL: func.func private @main
// CHECK-DAG: %[[BOX:.*]] = llvm.alloca %{{.*}} x i64 {alignment = 16 : i64}
// CHECK-DAG: %[[MAP:.*]] = llvm.alloca %{{.*}} x i8 {alignment = 64 : i64}
// The processors stand at byte 8, the grid and the number go to the launch.
// CHECK: %[[DEVICE:.*]] = llvm.getelementptr %arg0[56]
// CHECK: llvm.getelementptr %{{.*}}[8]
// CHECK: llvm.getelementptr %{{.*}}[16]
// CHECK: llvm.call %{{.*}}(%arg0, %{{.*}}, %{{.*}}, %{{.*}}) : !llvm.ptr, (!llvm.ptr, i64, i64, !llvm.ptr) -> ()
// encode
// CHECK: llvm.getelementptr %{{.*}}[24]
// CHECK: llvm.call %{{.*}}(%arg0, %[[BOX]], %[[MAP]])
// CHECK: llvm.call %{{.*}}(%arg0, %{{.*}}, %{{.*}}, %{{.*}}) : !llvm.ptr, (!llvm.ptr, i64, i64, !llvm.ptr) -> ()
// copy
// CHECK: llvm.getelementptr %{{.*}}[32]
// CHECK: llvm.call %{{.*}}(%arg0, %{{.*}}, %{{.*}}, %{{.*}}) : !llvm.ptr, (!llvm.ptr, !llvm.ptr, !llvm.ptr, i64) -> ()
// read
// CHECK: llvm.getelementptr %{{.*}}[40]
// CHECK: llvm.call %{{.*}}(%arg0, %{{.*}}, %{{.*}}, %{{.*}}) : !llvm.ptr, (!llvm.ptr, !llvm.ptr, !llvm.ptr, i64) -> ()
// write
// CHECK: llvm.getelementptr %{{.*}}[48]
// CHECK: llvm.call %{{.*}}(%arg0, %{{.*}}, %{{.*}}, %{{.*}}) : !llvm.ptr, (!llvm.ptr, !llvm.ptr, !llvm.ptr, i64) -> ()
// CHECK-NOT: moira_nv
// CHECK: return
func.func @main(%ctx: !llvm.ptr, %x: memref<?x64xbf16> {moe.name = "x"},
                %s: memref<f32> {moe.name = "s"}) -> memref<?x64xbf16>
    attributes {moe.kind = "step", moe.variant = {entry = "main", name = "only"}} {
  %c0 = arith.constant 0 : index
  %n = arith.constant 3 : i32
  %rows = memref.dim %x, %c0 : memref<?x64xbf16>
  %y = memref.alloc(%rows) : memref<?x64xbf16>
  %t = memref.alloc() : memref<1xi32>
  %blocks = moira_nv.processors
  moira_nv.launch @kernels::@first grid(%blocks) block(64) shared(0)
      args(%x, %n : memref<?x64xbf16>, i32)
  %map = moira_nv.tensor_map %x box [8, 64] : memref<?x64xbf16>
  moira_nv.launch @kernels::@second grid(%blocks) block(128) shared(4096)
      args(%map : !moira_nv.tensor_map)
  memref.copy %x, %y : memref<?x64xbf16> to memref<?x64xbf16>
  %0 = memref.load %t[%c0] : memref<1xi32>
  %1 = arith.addi %0, %n : i32
  memref.store %1, %t[%c0] : memref<1xi32>
  return %y : memref<?x64xbf16>
}

// An input of rank 0 comes on the host: the entry gets memory and writes there.
// CHECK-LABEL: func.func @moira_step_main_only
// CHECK: llvm.call %{{.*}}(%arg0, %{{.*}}, %{{.*}}) : !llvm.ptr, (!llvm.ptr, i64, i64) -> !llvm.ptr
// CHECK: llvm.getelementptr %{{.*}}[48]
// CHECK: call @main
