// RUN: moira-opt %s -split-input-file --moe-shard=ranks=4 -canonicalize -cse | FileCheck %s
// RUN: moira-opt %s -split-input-file --moe-shard=ranks=4 --moe-fold-replicates -canonicalize -cse | FileCheck %s --check-prefix=FOLDED

// FOLDED-NOT: moe.replicate

// A loss: the mean over all ranks' tokens of what a rank computes for each. What
// ranks share is used with one rank's tokens behind a moe.replicate; what they share
// among themselves is not.

// CHECK-LABEL: func.func @loss
// CHECK-SAME: %[[X:[^:]*]]: tensor<?x8xf32>, %[[W:[^:]*]]: tensor<8x4xf32> {moe.param
// CHECK-SAME: %[[B:[^:]*]]: tensor<4xf32> {moe.param
// CHECK-SAME: %[[SCALE:[^:]*]]: f32
// CHECK-DAG: %[[T0:.*]] = tensor.from_elements %[[SCALE]] : tensor<f32>
// CHECK-DAG: %[[T1:.*]] = moe.replicate %[[T0]] : tensor<f32>
// CHECK-DAG: %[[S:.*]] = tensor.extract %[[T1]][] : tensor<f32>
// CHECK-DAG: %[[WR:.*]] = moe.replicate %[[W]] : tensor<8x4xf32>
// CHECK-NOT: moe.replicate
// CHECK: linalg.matmul ins(%[[X]], %[[WR]] :
// CHECK: arith.mulf %{{.*}}, %[[S]]
// CHECK: %[[MINE:.*]] = linalg.reduce {{.*}} outs(%{{.*}} : tensor<4xf32>) dimensions = [0]
// CHECK: %[[SUM:.*]] = moe.all_reduce %[[MINE]] : tensor<4xf32> -> tensor<4xf32>
// CHECK: %[[ONES:.*]] = linalg.generic {{.*}} outs(%{{.*}} : tensor<f32>)
// CHECK: %[[N:.*]] = moe.all_reduce %[[ONES]] : tensor<f32> -> tensor<f32>
// What both have is divided where all have it.
// CHECK: arith.addf %[[SUM]], %[[B]]
// CHECK-NOT: moe.replicate
// CHECK: return
// FOLDED-LABEL: func.func @loss
// FOLDED-SAME: %[[X:[^:]*]]: tensor<?x8xf32>, %[[W:[^:]*]]: tensor<8x4xf32>
// FOLDED-SAME: %[[SCALE:[^:]*]]: f32
// FOLDED: linalg.matmul ins(%[[X]], %[[W]] :
// FOLDED: arith.mulf %{{.*}}, %[[SCALE]]
func.func @loss(%x: tensor<?x8xf32>, %w: tensor<8x4xf32> {moe.param = #moe.param<"w">},
    %b: tensor<4xf32> {moe.param = #moe.param<"b">}, %scale: f32) -> (tensor<4xf32>, tensor<f32>) {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %one = arith.constant 1.0 : f32
  %t = tensor.dim %x, %c0 : tensor<?x8xf32>
  %e = tensor.empty(%t) : tensor<?x4xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x4xf32>) -> tensor<?x4xf32>
  %y = linalg.matmul ins(%x, %w : tensor<?x8xf32>, tensor<8x4xf32>) outs(%z : tensor<?x4xf32>) -> tensor<?x4xf32>
  %s = linalg.generic {indexing_maps = [affine_map<(t, d) -> (t, d)>, affine_map<(t, d) -> (t, d)>],
      iterator_types = ["parallel", "parallel"]} ins(%y : tensor<?x4xf32>) outs(%e : tensor<?x4xf32>) {
  ^bb0(%a: f32, %o: f32):
    %m = arith.mulf %a, %scale : f32
    linalg.yield %m : f32
  } -> tensor<?x4xf32>
  %z4 = arith.constant dense<0.0> : tensor<4xf32>
  %sum = linalg.reduce { arith.addf } ins(%s : tensor<?x4xf32>) outs(%z4 : tensor<4xf32>) dimensions = [0]
  %e1 = tensor.empty(%t) : tensor<?xf32>
  %ones = linalg.fill ins(%one : f32) outs(%e1 : tensor<?xf32>) -> tensor<?xf32>
  %z0 = arith.constant dense<0.0> : tensor<f32>
  %n = linalg.generic {indexing_maps = [affine_map<(t) -> (t)>, affine_map<(t) -> ()>],
      iterator_types = ["reduction"]} ins(%ones : tensor<?xf32>) outs(%z0 : tensor<f32>) {
  ^bb0(%a: f32, %o: f32):
    %m = arith.addf %o, %a : f32
    linalg.yield %m : f32
  } -> tensor<f32>
  %r = arith.addf %sum, %b : tensor<4xf32>
  return %r, %n : tensor<4xf32>, tensor<f32>
}

// -----

// What a sum starts from counts once, not on each rank.

// CHECK-LABEL: func.func @starts
// CHECK-SAME: %[[X:[^:]*]]: tensor<?x8xf32>, %[[B:[^:]*]]: tensor<8xf32>
// CHECK: %[[ZERO:.*]] = linalg.fill ins(%cst : f32) outs(%{{.*}} : tensor<8xf32>)
// CHECK: %[[MINE:.*]] = linalg.reduce {{.*}} ins(%[[X]] : tensor<?x8xf32>) outs(%[[ZERO]] : tensor<8xf32>)
// CHECK: %[[SUM:.*]] = moe.all_reduce %[[MINE]]
// CHECK: %[[ALL:.*]] = arith.addf %[[B]], %[[SUM]]
// CHECK: return %[[ALL]]
func.func @starts(%x: tensor<?x8xf32>, %b: tensor<8xf32>) -> tensor<8xf32> {
  %s = linalg.reduce { arith.addf } ins(%x : tensor<?x8xf32>) outs(%b : tensor<8xf32>) dimensions = [0]
  return %s : tensor<8xf32>
}

// -----

// A contraction over tokens, and one over integers.

// CHECK-LABEL: func.func @contraction
// CHECK: %[[MINE:.*]] = linalg.generic
// CHECK: %[[ALL:.*]] = moe.all_reduce %[[MINE]] : tensor<8x4xf32> -> tensor<8x4xf32>
// CHECK: %[[N:.*]] = linalg.reduce
// CHECK: %[[ALLN:.*]] = moe.all_reduce %[[N]] : tensor<4xi64> -> tensor<4xi64>
// CHECK: return %[[ALL]], %[[ALLN]]
func.func @contraction(%x: tensor<?x8xf32>, %y: tensor<?x4xf32>, %i: tensor<?x4xi64>)
    -> (tensor<8x4xf32>, tensor<4xi64>) {
  %z = arith.constant dense<0.0> : tensor<8x4xf32>
  %g = linalg.generic {indexing_maps = [affine_map<(i, j, t) -> (t, i)>,
      affine_map<(i, j, t) -> (t, j)>, affine_map<(i, j, t) -> (i, j)>],
      iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %y : tensor<?x8xf32>, tensor<?x4xf32>) outs(%z : tensor<8x4xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %m = arith.mulf %a, %b : f32
    %s = arith.addf %m, %o : f32
    linalg.yield %s : f32
  } -> tensor<8x4xf32>
  %zi = arith.constant dense<0> : tensor<4xi64>
  %n = linalg.reduce { arith.addi } ins(%i : tensor<?x4xi64>) outs(%zi : tensor<4xi64>) dimensions = [0]
  return %g, %n : tensor<8x4xf32>, tensor<4xi64>
}

// -----

// Counts are those of all ranks for all but routing.

// CHECK-LABEL: func.func @counts
// CHECK: %[[MINE:.*]] = moe.count
// CHECK: %[[ALL:.*]] = moe.all_reduce %[[MINE]] : tensor<4xi32> -> tensor<4xi32>
// CHECK: moe.assign %{{.*}} choice_major counts(%[[MINE]] : tensor<4xi32>)
// CHECK: return %{{.*}}, %[[ALL]]
func.func @counts(%ids: tensor<?x2xi32>) -> (tensor<?x2xi32>, tensor<4xi32>) {
  %counts = moe.count %ids : tensor<?x2xi32> -> tensor<4xi32>
  %slots, %sizes, %bound = moe.assign %ids choice_major counts(%counts : tensor<4xi32>)
      : tensor<?x2xi32> -> tensor<?x2xi32>, tensor<4xi32>, index
  return %slots, %counts : tensor<?x2xi32>, tensor<4xi32>
}

// -----

// Layers in a loop: what all have enters each iteration.

// CHECK-LABEL: func.func @loop
// CHECK-SAME: %[[X:[^:]*]]: tensor<?x8xf32>, %[[W:[^:]*]]: tensor<8x8xf32>
// CHECK: %[[R:.*]] = moe.replicate %[[W]]
// CHECK: scf.for
// CHECK: linalg.matmul ins(%{{.*}}, %[[R]] :
func.func @loop(%x: tensor<?x8xf32>, %w: tensor<8x8xf32>, %n: index) -> tensor<?x8xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %t = tensor.dim %x, %c0 : tensor<?x8xf32>
  %e = tensor.empty(%t) : tensor<?x8xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x8xf32>) -> tensor<?x8xf32>
  %y = scf.for %i = %c0 to %n step %c1 iter_args(%a = %x) -> tensor<?x8xf32> {
    %m = linalg.matmul ins(%a, %w : tensor<?x8xf32>, tensor<8x8xf32>) outs(%z : tensor<?x8xf32>) -> tensor<?x8xf32>
    scf.yield %m : tensor<?x8xf32>
  }
  return %y : tensor<?x8xf32>
}

// -----

// A router's weights, and weights that several places may hold: with a spare slot
// there may be replicas, whose gradients are one sum.

// CHECK-LABEL: func.func @nothing_of_one_rank
// CHECK-NOT: moe.replicate
// CHECK: return
func.func @nothing_of_one_rank(%w: tensor<8x8xf32>, %v: tensor<8x8xf32>, %x: tensor<?x8xf32>)
    -> (tensor<8x8xf32>, tensor<?x8xf32>) {
  %s = arith.addf %w, %v : tensor<8x8xf32>
  %m = arith.addf %x, %x : tensor<?x8xf32>
  return %s, %m : tensor<8x8xf32>, tensor<?x8xf32>
}
