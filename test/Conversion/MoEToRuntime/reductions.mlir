// Sums over ranks become calls of the context's table.

// RUN: moira-opt %s -split-input-file --moe-emit-entries | FileCheck %s

// Elements are counted where they are not known; types have the contract's numbers.
// CHECK-LABEL: func.func private @all
// CHECK: %[[ONE:.*]] = llvm.mlir.constant(1 : i64)
// CHECK: %[[BF16:.*]] = llvm.mlir.constant(3 : i32)
// CHECK: llvm.getelementptr %{{.*}}[128]
// CHECK: %[[T:.*]] = llvm.call %{{.*}}(%{{.*}}, %{{.*}}, %{{.*}}, %[[ONE]], %[[BF16]]) : !llvm.ptr, (!llvm.ptr, !llvm.ptr, !llvm.ptr, i64, i32) -> i64
// CHECK: llvm.getelementptr %{{.*}}[120]
// CHECK: llvm.call %{{.*}}(%{{.*}}, %[[T]])
// CHECK: %[[COUNT:.*]] = llvm.mul
// CHECK: %[[ALL:.*]] = llvm.mul %[[COUNT]]
// CHECK: %[[I64:.*]] = llvm.mlir.constant(7 : i32)
// CHECK: llvm.getelementptr %{{.*}}[128]
// CHECK: llvm.call %{{.*}}(%{{.*}}, %{{.*}}, %{{.*}}, %[[ALL]], %[[I64]])
func.func @all(%ctx: !llvm.ptr, %x: memref<bf16>, %y: memref<bf16>,
    %a: memref<?x8xi64>, %b: memref<?x8xi64>)
    attributes {moe.kind = "step", moe.variant = {entry = "all", name = "only"}} {
  moe.all_reduce %x outs(%y : memref<bf16>) : memref<bf16>
  %t = moe.start_all_reduce %a, %b : memref<?x8xi64>, memref<?x8xi64>
  moe.wait %t
  return
}

// -----

// Two slots of 2048 elements.
// CHECK-LABEL: func.func private @weights
// CHECK: %[[REDUCE:.*]] = llvm.alloca
// CHECK: %[[NONE:.*]] = llvm.mlir.constant(-1 : i32)
// CHECK: %[[P:.*]] = llvm.getelementptr %[[REDUCE]][24]
// CHECK: llvm.store %[[NONE]], %[[P]]
// CHECK: %[[YES:.*]] = llvm.mlir.constant(1 : i32)
// CHECK: %[[P:.*]] = llvm.getelementptr %[[REDUCE]][28]
// CHECK: %[[COUNT:.*]] = llvm.mlir.constant(2048 : i64)
// CHECK: %[[P:.*]] = llvm.getelementptr %[[REDUCE]][48]
// CHECK: llvm.store %[[COUNT]], %[[P]]
// CHECK: llvm.getelementptr %{{.*}}[136]
// CHECK: %[[T:.*]] = llvm.call %{{.*}}(%{{.*}}, %[[REDUCE]]) : !llvm.ptr, (!llvm.ptr, !llvm.ptr) -> i64
// CHECK: llvm.getelementptr %{{.*}}[120]
// CHECK: llvm.call %{{.*}}(%{{.*}}, %[[T]])
func.func @weights(%ctx: !llvm.ptr, %all: memref<8x64x32xf32>, %w: memref<2x64x32xf32>)
    attributes {moe.kind = "step", moe.variant = {entry = "weights", name = "only"}} {
  moe.reduce_weights %all at <ranks = 4, experts = 8, copies = 0, slots = 2>
      outs(%w : memref<2x64x32xf32>) : memref<8x64x32xf32>
  return
}
