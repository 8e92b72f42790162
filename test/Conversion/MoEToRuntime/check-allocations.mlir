// RUN: moira-opt %s --moe-check-allocations | FileCheck %s

// CHECK-LABEL: llvm.func @step
// CHECK: %[[P:.*]] = llvm.call
// CHECK: %[[NULL:.*]] = llvm.mlir.zero
// CHECK: %[[FAILED:.*]] = llvm.icmp "eq" %[[P]], %[[NULL]]
// CHECK: llvm.cond_br %[[FAILED]], ^[[EXIT:.*]], ^[[REST:.*]]
// CHECK: ^[[REST]]:
// CHECK: llvm.store
// CHECK: llvm.return
// CHECK: ^[[EXIT]]:
// CHECK-NEXT: llvm.return
llvm.func @step(%ctx: !llvm.ptr, %alloc: !llvm.ptr, %n: i64) {
  %p = llvm.call %alloc(%ctx, %n, %n) : !llvm.ptr, (!llvm.ptr, i64, i64) -> !llvm.ptr
  llvm.store %n, %p : i64, !llvm.ptr
  llvm.return
}
