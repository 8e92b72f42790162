// RUN: moira-opt %s -split-input-file \
// RUN:     -one-shot-bufferize=bufferize-function-boundaries=true \
// RUN:     -canonicalize | FileCheck %s

// CHECK-LABEL: func.func @route
// CHECK-SAME: (%[[L:.*]]: memref<?x4xf32, {{.*}}>, %[[X:.*]]: memref<?x8xf32,
// CHECK-DAG: %[[K:.*]] = arith.constant 2 : index
// CHECK-DAG: %[[T:.*]] = memref.dim %[[L]], %{{.*}} : memref<?x4xf32
// CHECK-DAG: %[[IDS:.*]] = memref.alloc(%{{.*}}) {{.*}} : memref<?x2xi32>
// CHECK-DAG: %[[W:.*]] = memref.alloc(%{{.*}}) {{.*}} : memref<?x2xf32>
// CHECK: moe.gate %[[L]] {{.*}} outs(%[[IDS]], %[[W]] : memref<?x2xi32>, memref<?x2xf32>)
// CHECK: %[[COUNTS:.*]] = memref.alloc() {{.*}} : memref<4xi32>
// CHECK: moe.count %[[IDS]] outs(%[[COUNTS]] : memref<4xi32>)
// CHECK: %[[C:.*]] = moe.capacity tutel {{.*}} counts(%[[COUNTS]] : memref<4xi32>)
// CHECK: moe.assign %[[IDS]] choice_major counts(%[[COUNTS]] : memref<4xi32>) capacity(%[[C]]) outs(%[[SLOTS:.*]], %[[SIZES:.*]] : memref<?x2xi32>, memref<4xi32>)
// CHECK: %[[BOUND:.*]] = arith.muli %[[T]], %[[K]] : index
// CHECK: %[[ROWS:.*]] = memref.alloc(%[[BOUND]]) {{.*}} : memref<?x8xf32>
// CHECK: moe.dispatch %[[X]], %[[SLOTS]], %[[SIZES]], %[[BOUND]] outs(%[[ROWS]] : memref<?x8xf32>)
// CHECK: moe.combine %[[ROWS]], %[[SLOTS]] weights(%[[W]] : memref<?x2xf32>) outs(%[[Y:.*]] : memref<?x8xf32>)
// CHECK-NOT: memref.copy
// CHECK: return %[[Y]]
func.func @route(%logits: tensor<?x4xf32>, %x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %c0 = arith.constant 0 : index
  %ids, %weights = moe.gate %logits router<>
      : tensor<?x4xf32> -> tensor<?x2xi32>, tensor<?x2xf32>
  %counts = moe.count %ids : tensor<?x2xi32> -> tensor<4xi32>
  %t = tensor.dim %x, %c0 : tensor<?x8xf32>
  %f = arith.constant 1.25 : f64
  %k = arith.constant 2 : index
  %c = moe.capacity tutel tokens(%t) factor(%f) top_k(%k)
      counts(%counts : tensor<4xi32>) {experts = 4 : i64}
  %slots, %sizes, %bound = moe.assign %ids choice_major
      counts(%counts : tensor<4xi32>) capacity(%c)
      : tensor<?x2xi32> -> tensor<?x2xi32>, tensor<4xi32>, index
  %rows = moe.dispatch %x, %slots, %sizes, %bound
      : tensor<?x8xf32>, tensor<?x2xi32>, tensor<4xi32> -> tensor<?x8xf32>
  %y = moe.combine %rows, %slots weights(%weights : tensor<?x2xf32>)
      : tensor<?x8xf32>, tensor<?x2xi32> -> tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}

// -----

// A padded buffer has E * capacity * blocks rows.
// CHECK-LABEL: func.func @padded
// CHECK-SAME: %{{.*}}: memref<?x2xi32, {{.*}}>, %{{.*}}: memref<4xi32, {{.*}}>, %[[C:.*]]: index, %{{.*}}: memref<3xi32
// CHECK: moe.assign {{.*}} choice_major padded {{.*}} blocks(
// CHECK: %[[B:.*]] = arith.muli %[[C]], %{{.*}} : index
// CHECK: %[[P:.*]] = arith.divsi %[[B]], %{{.*}} : index
// CHECK: memref.alloc(%[[P]]) {{.*}} : memref<4x?x8xf32>
// CHECK: moe.dispatch
func.func @padded(%ids: tensor<?x2xi32>, %counts: tensor<4xi32>, %c: index,
    %blocks: tensor<3xi32>, %x: tensor<?x8xf32>) -> tensor<4x?x8xf32> {
  %slots, %sizes, %bound = moe.assign %ids choice_major padded
      counts(%counts : tensor<4xi32>) capacity(%c) blocks(%blocks : tensor<3xi32>)
      : tensor<?x2xi32> -> tensor<?x2xi32>, tensor<4xi32>, index
  %rows = moe.dispatch %x, %slots, %sizes, %bound
      : tensor<?x8xf32>, tensor<?x2xi32>, tensor<4xi32> -> tensor<4x?x8xf32>
  return %rows : tensor<4x?x8xf32>
}

// -----

// CHECK-LABEL: func.func @grouped
// CHECK: %[[P:.*]] = memref.alloc() {{.*}} : memref<4x1x8x32xf32>
// CHECK: moe.pack %{{.*}} nk outs(%[[P]] : memref<4x1x8x32xf32>)
// CHECK: %[[H:.*]] = memref.alloc(%{{.*}}) {{.*}} : memref<?x16xf32>
// CHECK: moe.grouped_matmul rows({{.*}}) groups({{.*}}) weights(%[[P]] : memref<4x1x8x32xf32>) panels gather({{.*}}) outs(%[[H]] : memref<?x16xf32>)
// CHECK: ^bb0(%[[A:.*]]: f32):
// CHECK: arith.mulf %[[A]], %[[A]] : f32
// CHECK: moe.yield
func.func @grouped(%x: tensor<?x8xf32>, %sizes: tensor<4xi32>,
    %g: tensor<4x16x8xf32>, %index: tensor<?xi32>) -> tensor<?x16xf32> {
  %p = moe.pack %g nk : tensor<4x16x8xf32> -> tensor<4x1x8x32xf32>
  %h = moe.grouped_matmul rows(%x : tensor<?x8xf32>) groups(%sizes : tensor<4xi32>)
      weights(%p : tensor<4x1x8x32xf32>) panels gather(%index : tensor<?xi32>)
      -> tensor<?x16xf32> {
  ^bb0(%a: f32):
    %m = arith.mulf %a, %a : f32
    moe.yield %m : f32
  }
  return %h : tensor<?x16xf32>
}

// -----

// Without a shaped operand, `outs` alone tells the form.
// CHECK-LABEL: func.func @noise
// CHECK: %[[N:.*]] = memref.alloc(%{{.*}}) {{.*}} : memref<?x4xf32>
// CHECK: moe.noise normal {{.*}} outs(%[[N]] : memref<?x4xf32>) {layer = 3 : i64}
func.func @noise(%t: index, %s: i64, %first: index) -> tensor<?x4xf32> {
  %0 = moe.noise normal rows(%t) seed(%s) step(%s) first(%first)
      {layer = 3 : i64} -> tensor<?x4xf32>
  return %0 : tensor<?x4xf32>
}

// -----

// CHECK-LABEL: func.func @sources
// CHECK-SAME: %[[SLOTS:.*]]: memref<?x2xi32, {{.*}}>, %[[BOUND:.*]]: index
// CHECK: %[[T:.*]] = memref.alloc(%[[BOUND]]) {{.*}} : memref<?xi32>
// CHECK: moe.sources %[[SLOTS]], %[[BOUND]] outs(%[[T]] : memref<?xi32>)
// CHECK-NOT: memref.copy
func.func @sources(%slots: tensor<?x2xi32>, %bound: index) -> tensor<?xi32> {
  %tokens = moe.sources %slots, %bound : tensor<?x2xi32> -> tensor<?xi32>
  return %tokens : tensor<?xi32>
}
