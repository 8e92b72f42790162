// RUN: moira-opt %s --moe-mark-parts | FileCheck %s

// Parts change within a loop that exchanges rows, and are unknown where an
// iteration begins and where the loop has ended.
// CHECK-LABEL: func.func @layer
// CHECK-SAME: moe.layers = [{{{.*}}placement = #moe.placement<ranks = 2, experts = 4, slots = 2>
// CHECK-SAME: moe.ranks = 2 : i64
// CHECK-SAME: moe.schedule = #moe<schedule equal>
// CHECK: %[[EXCHANGE:.*]] = arith.constant 5 : i64
// CHECK: call @moira_abi_enter(%{{.*}}, %[[EXCHANGE]])
// CHECK: moe.gather_counts
// CHECK: scf.for
// CHECK: %[[EXCHANGE:.*]] = arith.constant 5 : i64
// CHECK: call @moira_abi_enter(%{{.*}}, %[[EXCHANGE]])
// CHECK: moe.receive_sizes
// CHECK-NOT: call
// CHECK: moe.wait
// CHECK: %[[EXPERT:.*]] = arith.constant 3 : i64
// CHECK: call @moira_abi_enter(%{{.*}}, %[[EXPERT]])
// CHECK: moe.grouped_matmul
// CHECK-NOT: call
// CHECK: scf.for
// CHECK: %[[EXCHANGE:.*]] = arith.constant 5 : i64
// CHECK-NEXT: call @moira_abi_enter(%{{.*}}, %[[EXCHANGE]])
// CHECK-NEXT: moe.receive_sizes
// CHECK-NOT: call
// CHECK: %[[COMBINE:.*]] = arith.constant 4 : i64
// CHECK: call @moira_abi_enter(%{{.*}}, %[[COMBINE]])
// CHECK: moe.combine
func.func @layer(%sizes: memref<4xi32>, %m: memref<2x4xi32>, %g: memref<2xi32>,
    %x: memref<?x8xf32>, %p: memref<2x1x8x16xf32>, %out: memref<?x8xf32>,
    %places: memref<?x2xi32>, %t: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  moe.gather_counts %sizes outs(%m : memref<2x4xi32>) {layer = 0 : i64} : memref<4xi32>
  %d = moe.chunks equal {layer = 0 : i64}
  scf.for %i = %c0 to %d step %c1 {
    %n = moe.receive_sizes %m at <ranks = 2, experts = 4, slots = 2> equal chunk(%i of %d)
        outs(%g : memref<2xi32>) {layer = 0 : i64} : memref<2x4xi32> -> index
    moe.wait %t
    moe.grouped_matmul rows(%x : memref<?x8xf32>) groups(%g : memref<2xi32>)
        weights(%p : memref<2x1x8x16xf32>) panels outs(%out : memref<?x8xf32>) attributes {layer = 0 : i64} {
    ^bb0(%a: f32):
      moe.yield %a : f32
    }
  }
  scf.for %i = %c0 to %d step %c1 {
    %n = moe.receive_sizes %m at <ranks = 2, experts = 4, slots = 2> equal chunk(%i of %d)
        outs(%g : memref<2xi32>) {layer = 0 : i64} : memref<2x4xi32> -> index
  }
  moe.combine %x, %places outs(%out : memref<?x8xf32>) {layer = 0 : i64} : memref<?x8xf32>, memref<?x2xi32>
  return
}
