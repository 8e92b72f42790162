// RUN: moira-opt %s -convert-moe-to-gpu="arch=sm_80,sm_90a" | FileCheck %s
// RUN: moira-opt %s -convert-moe-to-gpu="arch=sm_80,sm_90a" \
// RUN:   -moe-embed-kernels="arch=sm_80 emulated=true" | FileCheck %s --check-prefix=EMBED

// Products have a kernel of each style, and the host chooses; what fits one
// style only has no choice.

// CHECK-LABEL: func.func @two
// CHECK: %[[ARCH:.*]] = moira_nv.architecture
// CHECK: %[[LATER:.*]] = arith.cmpi eq, %[[ARCH]], %c90
// CHECK: scf.if %[[LATER]] {
// CHECK: moira_nv.tensor_map
// CHECK: moira_nv.launch @moira_gpu_sm_90a::@grouped_1
// CHECK: } else {
// CHECK: moira_nv.launch @moira_gpu::@grouped_0
func.func @two(%x: memref<?x64xbf16>, %s: memref<4xi32>,
               %w: memref<4x128x64xbf16>, %y: memref<?x128xf32>) {
  moe.grouped_matmul rows(%x : memref<?x64xbf16>) groups(%s : memref<4xi32>)
      weights(%w : memref<4x128x64xbf16>) nk outs(%y : memref<?x128xf32>) {
  ^bb0(%a: f32):
    moe.yield %a : f32
  }
  return
}

// CHECK-LABEL: func.func @one
// CHECK-NOT: moira_nv.architecture
// CHECK: moira_nv.launch @moira_gpu::@grouped_2
func.func @one(%x: memref<?x64xbf16>, %s: memref<4xi32>, %g: memref<?xi32>,
               %w: memref<4x128x64xbf16>, %y: memref<?x128xf32>) {
  moe.grouped_matmul rows(%x : memref<?x64xbf16>) groups(%s : memref<4xi32>)
      weights(%w : memref<4x128x64xbf16>) nk gather(%g : memref<?xi32>)
      outs(%y : memref<?x128xf32>) {
  ^bb0(%a: f32):
    moe.yield %a : f32
  }
  return
}

// EMBED-DAG: gpu.module @moira_gpu attributes {moira.arch = "sm_80"
// EMBED-DAG: gpu.module @moira_gpu_sm_90a attributes {moira.arch = "sm_90a"
