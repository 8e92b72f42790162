// RUN: moira-opt %s -convert-moe-to-gpu=fallback=true \
// RUN:   -remarks-filter=.* -remark-format=emitRemark 2> %t.remarks | FileCheck %s
// RUN: FileCheck %s --check-prefix=REMARK --input-file %t.remarks

// What has no kernel stays for loops, and a remark says why.

// CHECK-LABEL: func.func @wide
// CHECK: moe.grouped_matmul
// REMARK: ConvertMoEToGPU
// REMARK-SAME: loops instead of a kernel
// REMARK-SAME: expected rows and weights of bf16 or f16, got 'f64'
func.func @wide(%x: memref<?x64xf64>, %s: memref<4xi32>,
                %w: memref<4x128x64xf64>, %y: memref<?x128xf64>) {
  moe.grouped_matmul rows(%x : memref<?x64xf64>) groups(%s : memref<4xi32>)
      weights(%w : memref<4x128x64xf64>) nk outs(%y : memref<?x128xf64>) {
  ^bb0(%a: f64):
    moe.yield %a : f64
  }
  return
}

// The loads of a layer are reported, as on the processor.

// CHECK-LABEL: func.func @assign
// CHECK: moira_nv.launch @moira_gpu::@sizes_0
// CHECK: moira_nv.launch @moira_gpu::@assign_1
// CHECK: call @moira_abi_loads(%c3_i64, %{{.*}}, %{{.*}})
func.func @assign(%ids: memref<?x2xi32>, %counts: memref<4xi32>,
                  %slots: memref<?x2xi32>, %sizes: memref<4xi32>) {
  moe.assign %ids choice_major counts(%counts : memref<4xi32>)
      outs(%slots, %sizes : memref<?x2xi32>, memref<4xi32>) {layer = 3 : i64}
      : memref<?x2xi32>
  return
}
