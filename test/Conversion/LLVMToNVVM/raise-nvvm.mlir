// RUN: moira-opt %s -pass-pipeline='builtin.module(gpu.module(moe-raise-nvvm))' | FileCheck %s

// Intrinsics and inline PTX become ops; kernels are those with the calling
// convention of kernels, and keep of their attributes the number of threads.

// CHECK-LABEL: gpu.module @kernels
// CHECK-NOT: call_intrinsic
// CHECK-NOT: inline_asm
// CHECK-NOT: ptx_kernelcc
gpu.module @kernels {
  // CHECK: llvm.func @intrinsics(%[[P:.*]]: !llvm.ptr<3>, %[[G:.*]]: !llvm.ptr<1>, %[[X:.*]]: f32, %[[B:.*]]: i1) attributes {nvvm.kernel, nvvm.reqntid = array<i32: 128, 1, 1>}
  // CHECK: nvvm.barrier id = %
  // CHECK: nvvm.bar.warp.sync
  // CHECK: nvvm.shfl.sync bfly %{{.*}}, %[[X]], {{.*}} : f32 -> f32
  // CHECK: nvvm.vote.sync ballot
  // CHECK: nvvm.ldmatrix %[[P]] {{{.*}}num = 2{{.*}}}
  // CHECK: nvvm.cp.async.shared.global %[[P]], %[[G]], 16, cache = cg
  // CHECK: nvvm.cp.async.commit.group
  // CHECK: nvvm.cp.async.wait.group 1
  // CHECK: llvm.intr.exp2(%[[X]])
  // CHECK: llvm.fdiv %[[X]], %[[X]]
  llvm.func ptx_kernelcc @intrinsics(%p: !llvm.ptr<3> {llvm.nocapture},
      %g: !llvm.ptr<1>, %x: f32, %b: i1)
      attributes {passthrough = [["nvvm.reqntid", "128"]], will_return} {
    %zero = llvm.mlir.constant(0 : i32) : i32
    %one = llvm.mlir.constant(1 : i32) : i32
    %all = llvm.mlir.constant(-1 : i32) : i32
    %clamp = llvm.mlir.constant(31 : i32) : i32
    llvm.call_intrinsic "llvm.nvvm.barrier.cta.sync.aligned.all"(%zero) : (i32) -> ()
    llvm.call_intrinsic "llvm.nvvm.bar.warp.sync"(%all) : (i32) -> ()
    %s = llvm.call_intrinsic "llvm.nvvm.shfl.sync.bfly.f32"(%all, %x, %one, %clamp) : (i32, f32, i32, i32) -> f32
    %v = llvm.call_intrinsic "llvm.nvvm.vote.ballot.sync"(%all, %b) : (i32, i1) -> i32
    %m = llvm.call_intrinsic "llvm.nvvm.ldmatrix.sync.aligned.m8n8.x2.trans.b16.p3"(%p) : (!llvm.ptr<3>) -> !llvm.struct<(i32, i32)>
    llvm.call_intrinsic "llvm.nvvm.cp.async.cg.shared.global.16"(%p, %g) : (!llvm.ptr<3>, !llvm.ptr<1>) -> ()
    llvm.call_intrinsic "llvm.nvvm.cp.async.commit.group"() : () -> ()
    llvm.call_intrinsic "llvm.nvvm.cp.async.wait.group"(%one) : (i32) -> ()
    %e = llvm.call_intrinsic "llvm.nvvm.ex2.approx.ftz.f32"(%x) : (f32) -> f32
    %d = llvm.call_intrinsic "llvm.nvvm.div.full"(%x, %x) : (f32, f32) -> f32
    llvm.return
  }

  // A predicate is a branch, a register a place in the frame.

  // CHECK: llvm.func @assembly(%[[G:.*]]: !llvm.ptr<1>, %[[B:.*]]: i1)
  // CHECK-SAME: nvvm.kernel
  // CHECK: llvm.store %{{.*}}, %[[R:.*]] : i32, !llvm.ptr
  // CHECK: llvm.cond_br %[[B]], ^[[YES:.*]], ^[[AFTER:.*]]
  // CHECK: ^[[YES]]:
  // CHECK: %[[AT:.*]] = llvm.getelementptr %[[G]][8]
  // CHECK: %[[V:.*]] = llvm.load %[[AT]] : !llvm.ptr<1> -> i32
  // CHECK: llvm.store %[[V]], %[[R]]
  // CHECK: llvm.br ^[[AFTER]]
  // CHECK: ^[[AFTER]]:
  // CHECK: llvm.cond_br %[[B]], ^[[NEXT:.*]], ^{{.*}}
  // CHECK: nvvm.barrier id = %
  // CHECK: llvm.atomicrmw add %[[G]], %{{.*}} acq_rel
  llvm.func ptx_kernelcc @assembly(%g: !llvm.ptr<1>, %b: i1) {
    %v = llvm.inline_asm has_side_effects asm_dialect = att
        "mov.u32 $0, 0x0;\0A\09@$2 ld.global.b32 { $0 }, [ $1 + 8 ];", "=r,l,b"
        %g, %b : (!llvm.ptr<1>, i1) -> i32
    llvm.inline_asm has_side_effects asm_dialect = att
        "@!$1 bar.sync 1; { .reg .u32 old; atom.global.add.u32 old, [$0], $2; }",
        "l,b,r" %g, %b, %v : (!llvm.ptr<1>, i1, i32) -> ()
    llvm.return
  }

  // Not a kernel.
  // CHECK: llvm.func internal @helper
  // CHECK-NOT: nvvm.kernel
  llvm.func internal @helper() {
    llvm.return
  }
}
