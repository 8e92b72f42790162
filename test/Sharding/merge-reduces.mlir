// RUN: moira-opt %s --moe-merge-reduces=bytes=64 --verify-each | FileCheck %s
// RUN: moira-opt %s --moe-merge-reduces=bytes=0 | FileCheck %s --check-prefix=NONE
// RUN: not moira-opt %s --moe-merge-reduces=bytes=-1 2>&1 | FileCheck %s --check-prefix=NEGATIVE
// NEGATIVE: expected 0 or more bytes, got -1

// Those of one type, up to 64 bytes, where the last stands.
// CHECK-LABEL: func.func @merged
// CHECK-SAME: (%[[A:.*]]: tensor<8xf32>, %[[B:.*]]: tensor<2x3xf32>, %[[C:.*]]: tensor<f32>, %[[D:.*]]: tensor<4xf32>, %[[H:.*]]: tensor<4xbf16>
// CHECK: %[[HALF:.*]] = moe.all_reduce %[[H]] : tensor<4xbf16>
// CHECK: %[[E:.*]] = tensor.empty() : tensor<15xf32>
// CHECK: %[[WITH_A:.*]] = tensor.insert_slice %[[A]] into %[[E]][0] [8] [1]
// CHECK: %[[FLAT:.*]] = tensor.collapse_shape %[[B]] {{\[\[}}0, 1]]
// CHECK: %[[WITH_B:.*]] = tensor.insert_slice %[[FLAT]] into %[[WITH_A]][8] [6] [1]
// CHECK: %[[ONE:.*]] = tensor.expand_shape %[[C]]
// CHECK: %[[ALL:.*]] = tensor.insert_slice %[[ONE]] into %[[WITH_B]][14] [1] [1]
// CHECK: %[[SUM:.*]] = moe.all_reduce %[[ALL]] : tensor<15xf32> -> tensor<15xf32>
// CHECK: %[[SA:.*]] = tensor.extract_slice %[[SUM]][0] [8] [1]
// CHECK: %[[SB:.*]] = tensor.extract_slice %[[SUM]][8] [6] [1]
// CHECK: %[[RB:.*]] = tensor.expand_shape %[[SB]]
// CHECK: %[[SC:.*]] = tensor.extract_slice %[[SUM]][14] [1] [1]
// CHECK: %[[RC:.*]] = tensor.collapse_shape %[[SC]]
// CHECK: %[[SD:.*]] = moe.all_reduce %[[D]] : tensor<4xf32>
// CHECK: return %[[SA]], %[[RB]], %[[RC]], %[[SD]], %[[HALF]]
// NONE-LABEL: func.func @merged
// NONE-COUNT-5: moe.all_reduce
func.func @merged(%a: tensor<8xf32>, %b: tensor<2x3xf32>, %c: tensor<f32>,
    %d: tensor<4xf32>, %h: tensor<4xbf16>)
    -> (tensor<8xf32>, tensor<2x3xf32>, tensor<f32>, tensor<4xf32>, tensor<4xbf16>) {
  %0 = moe.all_reduce %a : tensor<8xf32> -> tensor<8xf32>
  %1 = moe.all_reduce %b : tensor<2x3xf32> -> tensor<2x3xf32>
  %4 = moe.all_reduce %h : tensor<4xbf16> -> tensor<4xbf16>
  %2 = moe.all_reduce %c : tensor<f32> -> tensor<f32>
  %3 = moe.all_reduce %d : tensor<4xf32> -> tensor<4xf32>
  return %0, %1, %2, %3, %4 : tensor<8xf32>, tensor<2x3xf32>, tensor<f32>, tensor<4xf32>, tensor<4xbf16>
}

// One that is read before the next stays; so do large and dynamic ones.
// CHECK-LABEL: func.func @apart
// CHECK-COUNT-4: moe.all_reduce
// CHECK-NOT: tensor.insert_slice
func.func @apart(%a: tensor<4xf32>, %l: tensor<17xf32>, %n: tensor<?xf32>)
    -> (tensor<4xf32>, tensor<17xf32>, tensor<?xf32>) {
  %0 = moe.all_reduce %a : tensor<4xf32> -> tensor<4xf32>
  %1 = arith.negf %0 : tensor<4xf32>
  %2 = moe.all_reduce %1 : tensor<4xf32> -> tensor<4xf32>
  %3 = moe.all_reduce %l : tensor<17xf32> -> tensor<17xf32>
  %4 = moe.all_reduce %n : tensor<?xf32> -> tensor<?xf32>
  return %2, %3, %4 : tensor<4xf32>, tensor<17xf32>, tensor<?xf32>
}
