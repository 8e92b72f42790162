// RUN: moira-opt %s --moe-emit-entries --canonicalize | FileCheck %s

// A value that is returned twice: made in the first result, copied to the second.
// CHECK-LABEL: func.func private @main
// CHECK-NOT: memref.alloc
// CHECK: %[[FIRST:.*]] = builtin.unrealized_conversion_cast {{.*}} to memref<4xf32>
// CHECK: memref.store %{{.*}}, %[[FIRST]]
// CHECK: %[[SECOND:.*]] = builtin.unrealized_conversion_cast {{.*}} to memref<4xf32>
// CHECK: memref.copy %[[FIRST]], %[[SECOND]]
func.func @main(%ctx: !llvm.ptr, %v: f32) -> (memref<4xf32>, memref<4xf32>)
    attributes {moe.kind = "step", moe.variant = {entry = "main", name = "only"}} {
  %c0 = arith.constant 0 : index
  %y = memref.alloc() : memref<4xf32>
  memref.store %v, %y[%c0] : memref<4xf32>
  return %y, %y : memref<4xf32>, memref<4xf32>
}
