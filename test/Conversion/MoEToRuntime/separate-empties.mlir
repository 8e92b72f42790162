// RUN: moira-opt %s --cse --moe-separate-empties | FileCheck %s

// CHECK-LABEL: @swap
func.func @swap(%n: index, %i: i32) -> (tensor<?xi32>, tensor<?xi32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %a0 = tensor.empty(%n) : tensor<?xi32>
  %b0 = tensor.empty(%n) : tensor<?xi32>
  // CHECK: %[[B:.*]] = tensor.empty
  // CHECK-NEXT: %[[A:.*]] = tensor.empty
  // CHECK-NEXT: scf.for {{.*}} iter_args(%{{.*}} = %[[A]], %{{.*}} = %[[B]])
  %r:2 = scf.for %j = %c0 to %n step %c1 iter_args(%a = %a0, %b = %b0) -> (tensor<?xi32>, tensor<?xi32>) {
    %x = tensor.insert %i into %a[%j] : tensor<?xi32>
    %y = tensor.insert %i into %b[%j] : tensor<?xi32>
    scf.yield %x, %y : tensor<?xi32>, tensor<?xi32>
  }
  return %r#0, %r#1 : tensor<?xi32>, tensor<?xi32>
}

// Ops that write all of a tensor may share it.
// CHECK-LABEL: @fill
func.func @fill(%n: index, %v: f32, %w: f32) -> (tensor<?xf32>, tensor<?xf32>) {
  %e = tensor.empty(%n) : tensor<?xf32>
  // CHECK: %[[E:.*]] = tensor.empty
  // CHECK-NOT: tensor.empty
  %0 = linalg.fill ins(%v : f32) outs(%e : tensor<?xf32>) -> tensor<?xf32>
  %1 = linalg.fill ins(%w : f32) outs(%e : tensor<?xf32>) -> tensor<?xf32>
  return %0, %1 : tensor<?xf32>, tensor<?xf32>
}
