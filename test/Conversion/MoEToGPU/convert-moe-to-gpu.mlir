// RUN: moira-opt %s -split-input-file -convert-moe-to-gpu | FileCheck %s
// RUN: moira-opt %s -split-input-file -convert-moe-to-gpu=arch=sm_90a | FileCheck %s --check-prefix=SM90

// Rows of experts times their weights, rounded once.

// CHECK: module attributes {gpu.container_module}
// CHECK-LABEL: func.func @rows(
// CHECK-SAME: %[[X:.*]]: memref<?x64xbf16>, %[[S:.*]]: memref<4xi32>, %[[W:.*]]: memref<4x128x64xbf16>, %[[Y:.*]]: memref<?x128xbf16>
// CHECK-DAG: %[[ZERO:.*]] = arith.constant 0 : i32
// CHECK-DAG: %[[GRID:.*]] = moira_nv.processors
// CHECK: moira_nv.launch @moira_gpu::@grouped_0 grid(%[[GRID]]) block(256) shared(65536) args(%[[X]], %[[S]], %[[W]], %[[Y]], %[[ZERO]] :
// CHECK-NOT: moe.grouped_matmul
// CHECK: gpu.module @moira_gpu
// CHECK: llvm.mlir.global external @moira_shared() {addr_space = 3 : i32, alignment = 1024 : i64} : !llvm.array<0 x i8>
// CHECK: llvm.func @grouped_0(%{{.*}}: !llvm.ptr<1>, {{.*}}, %{{.*}}: i32) attributes {gpu.kernel, {{.*}}nvvm.kernel, {{.*}}nvvm.reqntid = array<i32: 256, 1, 1>}
// CHECK: nvvm.cp.async.shared.global
// CHECK: nvvm.cp.async.wait.group 2
// CHECK: nvvm.barrier0
// CHECK: nvvm.ldmatrix
// CHECK: nvvm.mma.sync

// SM90-LABEL: func.func @rows(
// SM90-SAME: %[[X:.*]]: memref<?x64xbf16>, %[[S:.*]]: memref<4xi32>, %[[W:.*]]: memref<4x128x64xbf16>
// SM90: %[[A:.*]] = moira_nv.tensor_map %[[X]] box [128, 64] : memref<?x64xbf16>
// SM90: %[[B:.*]] = moira_nv.tensor_map %[[W]] box [1, 256, 64] : memref<4x128x64xbf16>
// SM90: moira_nv.launch @moira_gpu::@grouped_0 grid(%{{.*}}) block(384) shared(196672) args(%[[A]], %[[B]], %[[S]], %{{.*}}, %{{.*}} :
// SM90: llvm.func @grouped_0(%{{.*}}: !llvm.ptr {llvm.align = 64 : i64, llvm.byval = !llvm.array<128 x i8>, nvvm.grid_constant}
// SM90: nvvm.setmaxregister decrease 40
// SM90: nvvm.cp.async.bulk.tensor.shared.cluster.global
// SM90: nvvm.setmaxregister increase 232
// SM90: nvvm.wgmma.mma_async
func.func @rows(%x: memref<?x64xbf16>, %s: memref<4xi32>,
                %w: memref<4x128x64xbf16>, %y: memref<?x128xbf16>) {
  moe.grouped_matmul rows(%x : memref<?x64xbf16>) groups(%s : memref<4xi32>)
      weights(%w : memref<4x128x64xbf16>) nk outs(%y : memref<?x128xbf16>) {
  ^bb0(%a: f32):
    %r = arith.truncf %a : f32 to bf16
    moe.yield %r : bf16
  }
  return
}

// -----

// The attribute chooses; padded groups hand over their room.

// CHECK-LABEL: func.func @scheduled(
// CHECK: %[[ROOM:.*]] = memref.dim %{{.*}}, %{{.*}} : memref<4x?x64xf16>
// CHECK: %[[STRIDE:.*]] = arith.index_cast %[[ROOM]] : index to i32
// CHECK: moira_nv.launch @moira_gpu::@grouped_0 grid(%{{.*}}) block(128) shared(36864) args({{.*}}, %[[STRIDE]] :
func.func @scheduled(%x: memref<4x?x64xf16>, %s: memref<4xi32>,
                     %w: memref<4x64x128xf16>, %y: memref<4x?x128xf32>) {
  moe.grouped_matmul rows(%x : memref<4x?x64xf16>) groups(%s : memref<4xi32>)
      weights(%w : memref<4x64x128xf16>) kn outs(%y : memref<4x?x128xf32>)
      attributes {moira_nv.schedule = #moira_nv.schedule<cp_async, tile = [128, 64, 32], stages = 3, warps = [2, 2]>} {
  ^bb0(%a: f32):
    moe.yield %a : f32
  }
  return
}

// -----

// What bulk copies cannot do falls back to the older style. Gradients of
// weights are theirs.

// SM90-LABEL: func.func @gathered(
// SM90-NOT: moira_nv.tensor_map
// SM90: moira_nv.launch @moira_gpu::@grouped_0 grid(%{{.*}}) block(256)
// SM90-LABEL: func.func @gradient(
// SM90-DAG: moira_nv.tensor_map %{{.*}} box [64, 64] : memref<?x128xbf16>
// SM90-DAG: moira_nv.tensor_map %{{.*}} box [64, 64] : memref<?x64xbf16>
// SM90: moira_nv.launch @moira_gpu::@grouped_1 grid(%{{.*}}) block(384) shared(196672)
func.func @gathered(%x: memref<?x64xbf16>, %s: memref<4xi32>, %g: memref<?xi32>,
                    %w: memref<4x128x64xbf16>, %y: memref<?x128xbf16>) {
  moe.grouped_matmul rows(%x : memref<?x64xbf16>) groups(%s : memref<4xi32>)
      weights(%w : memref<4x128x64xbf16>) nk gather(%g : memref<?xi32>)
      outs(%y : memref<?x128xbf16>) {
  ^bb0(%a: f32):
    %r = arith.truncf %a : f32 to bf16
    moe.yield %r : bf16
  }
  return
}

func.func @gradient(%dy: memref<?x128xbf16>, %x: memref<?x64xbf16>,
                    %s: memref<4xi32>, %dw: memref<4x128x64xf32>) {
  moe.grouped_matmul rows(%dy, %x : memref<?x128xbf16>, memref<?x64xbf16>)
      groups(%s : memref<4xi32>) nk contraction
      outs(%dw : memref<4x128x64xf32>) {}
  return
}

// -----

// The variant for a few rows per expert has tiles of 16 rows, on either
// architecture.

// CHECK-LABEL: func.func @decode(
// CHECK: moira_nv.launch @moira_gpu::@grouped_0 grid(%{{.*}}) block(128) shared(73728)
// SM90-LABEL: func.func @decode(
// SM90: moira_nv.launch @moira_gpu::@grouped_0 grid(%{{.*}}) block(128) shared(73728)
func.func @decode(%x: memref<?x64xbf16>, %s: memref<4xi32>,
                  %w: memref<4x128x64xbf16>, %y: memref<?x128xbf16>)
    attributes {moe.row_class = #moe<row_class decode>} {
  moe.grouped_matmul rows(%x : memref<?x64xbf16>) groups(%s : memref<4xi32>)
      weights(%w : memref<4x128x64xbf16>) nk outs(%y : memref<?x128xbf16>) {
  ^bb0(%a: f32):
    %r = arith.truncf %a : f32 to bf16
    moe.yield %r : bf16
  }
  return
}

// -----

// f32 has multiply-adds instead of tensor cores, on either architecture.

// CHECK-LABEL: func.func @single(
// CHECK: moira_nv.launch @moira_gpu::@grouped_0 grid(%{{.*}}) block(256) shared(65536)
// CHECK: llvm.func @grouped_0
// CHECK: nvvm.cp.async.shared.global
// CHECK: math.fma
// CHECK-NOT: nvvm.mma.sync
// SM90-LABEL: func.func @single(
// SM90: moira_nv.launch @moira_gpu::@grouped_0 grid(%{{.*}}) block(256) shared(65536)
func.func @single(%x: memref<?x64xf32>, %s: memref<4xi32>,
                  %w: memref<4x128x64xf32>, %y: memref<?x128xf32>) {
  moe.grouped_matmul rows(%x : memref<?x64xf32>) groups(%s : memref<4xi32>)
      weights(%w : memref<4x128x64xf32>) nk outs(%y : memref<?x128xf32>) {
  ^bb0(%a: f32):
    moe.yield %a : f32
  }
  return
}

// -----

// Panels and hidden blocks are read as they are, both ways; products of one
// chain are one kernel, and so are all results of one product.

// CHECK-LABEL: func.func @packed(
// CHECK: moira_nv.launch @moira_gpu::@grouped_0 {{.*}} args(%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} :
// CHECK: moira_nv.launch @moira_gpu::@grouped_1 {{.*}} args(%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} :
// CHECK: moira_nv.launch @moira_gpu::@grouped_2 {{.*}} args(%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} :
// CHECK-NOT: moe.grouped_matmul
func.func @packed(%x: memref<?x64xbf16>, %s: memref<4xi32>,
                  %w: memref<4x4x64x32xbf16>, %y: memref<?x128xbf16>,
                  %z: memref<?x128xf32>, %dx: memref<?x64xf32>,
                  %v: memref<4x64x64xbf16>) {
  moe.grouped_matmul rows(%x : memref<?x64xbf16>) groups(%s : memref<4xi32>)
      weights(%w : memref<4x4x64x32xbf16>) panels
      outs(%y, %z : memref<?x128xbf16>, memref<?x128xf32>)
      attributes {hidden = #moe.hidden<4 of n>} {
  ^bb0(%a: f32):
    %r = arith.truncf %a : f32 to bf16
    moe.yield %r, %a : bf16, f32
  }
  moe.grouped_matmul rows(%y : memref<?x128xbf16>) groups(%s : memref<4xi32>)
      weights(%w : memref<4x4x64x32xbf16>) transposed_panels
      outs(%dx : memref<?x64xf32>)
      attributes {hidden = #moe.hidden<4 of k>} {
  ^bb0(%a: f32):
    moe.yield %a : f32
  }
  moe.grouped_matmul rows(%x, %x : memref<?x64xbf16>, memref<?x64xbf16>)
      groups(%s : memref<4xi32>)
      weights(%v, %v : memref<4x64x64xbf16>, memref<4x64x64xbf16>) kn chained
      outs(%dx : memref<?x64xf32>) {
  ^bb0(%a: f32):
    moe.yield %a : f32
  }
  return
}
