// RUN: moira-opt %s -split-input-file -convert-moe-to-cpu -canonicalize -cse | FileCheck %s

// CHECK-LABEL: @count
// CHECK-SAME: %[[IDS:.*]]: memref<?x2xi32>, %[[COUNTS:.*]]: memref<3xi32>
func.func @count(%ids: memref<?x2xi32>, %counts: memref<3xi32>) {
  // CHECK: scf.for {{.*}} to %c3
  // CHECK:   memref.store %c0_i32, %[[COUNTS]]
  // CHECK: %[[T:.*]] = memref.dim %[[IDS]]
  // CHECK: scf.for %[[I:.*]] = %c0 to %[[T]]
  // CHECK:   scf.for %[[J:.*]] = %c0 to %c2
  // CHECK:     memref.load %[[IDS]][%[[I]], %[[J]]]
  // CHECK:     arith.cmpi ult, {{.*}}, %c3
  // CHECK:     scf.if
  // CHECK:       memref.store {{.*}}, %[[COUNTS]]
  moe.count %ids outs(%counts : memref<3xi32>) : memref<?x2xi32>
  return
}

// -----

// Without capacity and blocks: one pass that places, one that adds offsets. The
// layer's loads go to the runtime.

// CHECK-LABEL: @choice_major
func.func @choice_major(%ids: memref<?x2xi32>, %counts: memref<4xi32>,
    %slots: memref<?x2xi32>, %sizes: memref<4xi32>) {
  // CHECK: scf.for {{.*}} to %c2
  // CHECK-NEXT: scf.for {{.*}} to %{{.*}} step
  // CHECK-NOT: arith.minsi
  // CHECK: arith.cmpi sge
  // CHECK: %[[C:.*]] = memref.cast %{{.*}} : memref<4xi32> to memref<?xi32>
  // CHECK: %[[S:.*]] = memref.cast %{{.*}} : memref<4xi32> to memref<?xi32>
  // CHECK: call @moira_abi_loads(%c5_i64, %[[C]], %[[S]])
  moe.assign %ids choice_major counts(%counts : memref<4xi32>)
      outs(%slots, %sizes : memref<?x2xi32>, memref<4xi32>) {layer = 5 : i64} : memref<?x2xi32>
  return
}
// CHECK: func.func private @moira_abi_loads(i64, memref<?xi32>, memref<?xi32>) attributes {moe.abi = "loads"}

// -----

// Each block is sorted by itself. The sort is there once per module and type.

// CHECK-LABEL: @priorities
func.func @priorities(%ids: memref<?x2xi32>, %counts: memref<4xi32>,
    %c: index, %blocks: memref<?xi32>, %p: memref<?xf32>, %q: memref<?x2xf32>, %r: memref<?xf64>,
    %slots: memref<?x2xi32>, %sizes: memref<4xi32>) {
  // CHECK: scf.for
  // CHECK: call @moira_sort_i32
  moe.assign %ids batch_prioritized counts(%counts : memref<4xi32>) capacity(%c)
      priority(%p : memref<?xf32>) blocks(%blocks : memref<?xi32>)
      outs(%slots, %sizes : memref<?x2xi32>, memref<4xi32>) : memref<?x2xi32>
  // CHECK: call @moira_sort_i32
  moe.assign %ids expert_probability counts(%counts : memref<4xi32>)
      priority(%q : memref<?x2xf32>)
      outs(%slots, %sizes : memref<?x2xi32>, memref<4xi32>) : memref<?x2xi32>
  // CHECK: call @moira_sort_i64
  moe.assign %ids batch_prioritized counts(%counts : memref<4xi32>)
      priority(%r : memref<?xf64>)
      outs(%slots, %sizes : memref<?x2xi32>, memref<4xi32>) : memref<?x2xi32>
  return
}
// CHECK: func.func private @moira_sort_i32(%{{.*}}: memref<?xi32>, %{{.*}}: memref<?xi32>, %{{.*}}: memref<?xi32>, %{{.*}}: index, %{{.*}}: index)
// CHECK: scf.for {{.*}} %c0 to %c32 step %c16
// CHECK: func.func private @moira_sort_i64
// CHECK: scf.for {{.*}} %c0 to %c64 step %c16
// CHECK-NOT: func.func
