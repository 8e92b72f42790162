// RUN: moira-opt %s -convert-moe-to-gpu | FileCheck %s

// Routing and movement: a launch each, two where sizes come before slots.

// CHECK-LABEL: func.func @route(
// CHECK-SAME: %[[L:.*]]: memref<?x8xbf16>, %[[I:.*]]: memref<?x2xi32>, %[[W:.*]]: memref<?x2xf32>
// CHECK: %[[T:.*]] = arith.index_cast %{{.*}} : index to i32
// CHECK: moira_nv.launch @moira_gpu::@gate_0 grid(%{{.*}}) block(128) shared(256) args(%[[L]], %[[I]], %[[W]], %[[T]] :
// CHECK: moira_nv.launch @moira_gpu::@count_1
// CHECK: arith.maxsi
// CHECK: moira_nv.launch @moira_gpu::@sizes_2 {{.*}} args(%[[I]], %[[N:.*]], %{{.*}}, %[[C:.*]] : memref<?x2xi32>, memref<8xi32>, i32, i32)
// CHECK: moira_nv.launch @moira_gpu::@assign_3 {{.*}} args(%[[I]], %[[N]], %{{.*}}, %{{.*}}, %[[C]] :
// CHECK-NOT: moe.
// CHECK: return
func.func @route(%l: memref<?x8xbf16>, %i: memref<?x2xi32>, %w: memref<?x2xf32>,
                 %n: memref<8xi32>, %s: memref<?x2xi32>, %c: index) {
  moe.gate %l router<normalize = max_sum_eps>
      outs(%i, %w : memref<?x2xi32>, memref<?x2xf32>) : memref<?x8xbf16>
  moe.count %i outs(%n : memref<8xi32>) : memref<?x2xi32>
  moe.assign %i choice_major counts(%n : memref<8xi32>) capacity(%c)
      outs(%s, %n : memref<?x2xi32>, memref<8xi32>) : memref<?x2xi32>
  return
}

// CHECK-LABEL: func.func @move(
// CHECK: moira_nv.launch @moira_gpu::@clear_4
// CHECK: moira_nv.launch @moira_gpu::@sources_5
// CHECK: moira_nv.launch @moira_gpu::@dispatch_6
// CHECK: arith.muli
// CHECK: moira_nv.launch @moira_gpu::@combine_7
// CHECK: return
func.func @move(%x: memref<?x16xbf16>, %s: memref<?x2xi32>, %n: memref<8xi32>,
                %w: memref<?x2xf32>, %b: index, %t: memref<?xi32>,
                %r: memref<?x16xbf16>, %p: memref<8x?x16xbf16>,
                %y: memref<?x16xbf16>) {
  moe.sources %s, %b outs(%t : memref<?xi32>) : memref<?x2xi32>
  moe.dispatch %x, %s, %n, %b outs(%r : memref<?x16xbf16>)
      : memref<?x16xbf16>, memref<?x2xi32>, memref<8xi32>
  moe.combine %p, %s weights(%w : memref<?x2xf32>) outs(%y : memref<?x16xbf16>)
      : memref<8x?x16xbf16>, memref<?x2xi32>
  return
}
