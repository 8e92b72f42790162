// RUN: moira-opt %s -moe-expand-losses -split-input-file | FileCheck %s --implicit-check-not=moe.loss

// Of one rank: nothing is exchanged; values are in test/Integration/losses.mlir.

// CHECK-LABEL: func.func @one_rank
// CHECK-NOT: moe.all_reduce
// CHECK: math.exp
// CHECK-NOT: moe.all_reduce
// CHECK: return
func.func @one_rank(%l: tensor<?x4xf32>, %i: tensor<?x2xi32>) -> tensor<f32> {
  %0 = moe.loss switch %l ids(%i : tensor<?x2xi32>) : tensor<?x4xf32> -> tensor<f32>
  return %0 : tensor<f32>
}

// -----

// Over ranks: the ranks' losses, and how many of them have tokens.

// CHECK-LABEL: func.func @average
// CHECK-NOT: moe.all_reduce
// CHECK: linalg.generic {indexing_maps = [{{.*}}], iterator_types = ["reduction"]}
// CHECK: moe.all_reduce %{{.*}} : tensor<f32>
// CHECK-NOT: moe.all_reduce
// CHECK: moe.all_reduce %{{.*}} : tensor<i32>
// CHECK-NOT: moe.all_reduce
// CHECK: arith.divf
// CHECK: return
func.func @average(%l: tensor<?x4xf32>) -> tensor<f32> {
  %0 = moe.loss z %l over_ranks : tensor<?x4xf32> -> tensor<f32>
  return %0 : tensor<f32>
}

// -----

// Of all tokens: the numbers of tokens, the sums of scores and the pairs.

// CHECK-LABEL: func.func @global
// CHECK: moe.all_reduce %{{.*}} : tensor<1xi32>
// CHECK: math.exp
// CHECK: moe.all_reduce %{{.*}} : tensor<1x4xf32>
// CHECK: moe.all_reduce %{{.*}} : tensor<1x4xi32>
// CHECK-NOT: moe.all_reduce
// CHECK: return
func.func @global(%l: tensor<?x4xf32>, %i: tensor<?x2xi32>) -> tensor<f32> {
  %0 = moe.loss gshard %l ids(%i : tensor<?x2xi32>) scope global over_ranks : tensor<?x4xf32> -> tensor<f32>
  return %0 : tensor<f32>
}

// -----

// Blocks of equal length are a reshape, rows behind the last whole one are left
// out; others compare a row's block.

// CHECK-LABEL: func.func @blocks
// CHECK: arith.divui
// CHECK: tensor.extract_slice
// CHECK: tensor.expand_shape {{.*}} into tensor<?x8xi32>
// CHECK: tensor.expand_shape {{.*}} into tensor<?x8xf32>
// CHECK: linalg.index
func.func @blocks(%l: tensor<?x4xf32>, %b: tensor<?xi32>) -> (tensor<f32>, tensor<f32>) {
  %0 = moe.loss z %l scope block {length = 8 : i64} : tensor<?x4xf32> -> tensor<f32>
  %1 = moe.loss z %l blocks(%b : tensor<?xi32>) scope block : tensor<?x4xf32> -> tensor<f32>
  return %0, %1 : tensor<f32>, tensor<f32>
}
