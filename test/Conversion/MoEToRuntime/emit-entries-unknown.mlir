// RUN: moira-opt %s --moe-emit-entries --canonicalize | FileCheck %s

// A size that is data, without a bound: the workspace is unknown.
// CHECK-LABEL: func.func @moira_workspace_main_only
// CHECK: %[[UNKNOWN:.*]] = llvm.mlir.constant(-1 : i64)
// CHECK: return %[[UNKNOWN]]
func.func @main(%ctx: !llvm.ptr, %n: memref<1xindex>)
    attributes {moe.kind = "step", moe.variant = {entry = "main", name = "only"}} {
  %c0 = arith.constant 0 : index
  %size = memref.load %n[%c0] : memref<1xindex>
  %scratch = memref.alloc(%size) : memref<?xf32>
  return
}
