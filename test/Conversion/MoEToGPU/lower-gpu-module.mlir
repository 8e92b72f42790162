// RUN: moira-opt %s -pass-pipeline='builtin.module(gpu.module(moe-lower-gpu-module))' | FileCheck %s

// Regions become branches, exp the project's own polynomial; what is of nvvm
// stays.

// CHECK-LABEL: llvm.func @kernel
// CHECK-NOT: scf.
// CHECK-NOT: arith.
// CHECK-NOT: math.
// CHECK: llvm.cond_br
// CHECK: nvvm.barrier0
// CHECK: llvm.intr.fma
// CHECK-NOT: llvm.intr.exp
gpu.module @kernels {
  llvm.func @kernel(%p: !llvm.ptr<1>, %n: i32) attributes {nvvm.kernel} {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    scf.for %i = %c0 to %n step %c1 : i32 {
      nvvm.barrier0
      %x = llvm.load %p : !llvm.ptr<1> -> f32
      %y = math.exp %x : f32
      llvm.store %y, %p : f32, !llvm.ptr<1>
    }
    llvm.return
  }
}
