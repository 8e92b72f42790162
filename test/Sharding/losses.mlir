// RUN: moira-opt %s --moe-shard=ranks=2 -split-input-file | FileCheck %s
// RUN: moira-opt %s --moe-token-blocks=ranks=2 -split-input-file | FileCheck %s --check-prefix=BLOCKS

// A loss is one of all ranks; its result is the same on them. In the program of
// one rank that is compared with, the ranks' tokens are blocks, unless the loss
// has blocks of its own.

// CHECK-LABEL: func.func @main
// CHECK: moe.loss switch {{.*}} over_ranks : tensor<?x4xf32> -> tensor<f32>
// CHECK: moe.loss z {{.*}} scope global over_ranks : tensor<?x4xf32> -> tensor<f32>
// CHECK: moe.loss sequence {{.*}} scope block over_ranks {length = 8 : i64} : tensor<?x4xf32> -> tensor<f32>
// BLOCKS-LABEL: func.func @main
// BLOCKS-SAME: %[[B:[^:]*]]: tensor<2xi32> {moe.blocks})
// BLOCKS: moe.loss switch %{{.*}} ids(%{{.*}} : tensor<?x2xi32>) blocks(%[[B]] : tensor<2xi32>) : tensor<?x4xf32>
// BLOCKS: moe.loss z %{{.*}} blocks(%[[B]] : tensor<2xi32>) scope global : tensor<?x4xf32>
// BLOCKS: moe.loss sequence %{{.*}} ids(%{{.*}} : tensor<?x2xi32>) scope block {length = 8 : i64} : tensor<?x4xf32>
func.func @main(%l: tensor<?x4xf32>) -> (tensor<f32>, tensor<f32>, tensor<f32>) {
  %ids, %w = moe.gate %l router<> : tensor<?x4xf32> -> tensor<?x2xi32>, tensor<?x2xf32>
  %0 = moe.loss switch %l ids(%ids : tensor<?x2xi32>) : tensor<?x4xf32> -> tensor<f32>
  %1 = moe.loss z %l scope global : tensor<?x4xf32> -> tensor<f32>
  %2 = moe.loss sequence %l ids(%ids : tensor<?x2xi32>) scope block {length = 8 : i64} : tensor<?x4xf32> -> tensor<f32>
  return %0, %1, %2 : tensor<f32>, tensor<f32>, tensor<f32>
}
