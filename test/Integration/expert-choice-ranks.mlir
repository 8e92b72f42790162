// Experts that choose their tokens choose among those of a rank: against one rank
// with the same token blocks, blocks without tokens among them, and gradients.
//
// RUN: moira-run %s --no-cache --ranks 2 --tokens 37 --verify | FileCheck %s
// RUN: moira-run %s --no-cache --ranks 4 --tokens 3 --degree 2 --schedule groups --verify | FileCheck %s
// RUN: moira-run %s --no-cache --ranks 2 --tokens=0,9 --grad --verify | FileCheck %s
// CHECK: verify passed
// CHECK: 100.00 % bit-identical

func.func @main(%x: tensor<?x8xf32>, %logits: tensor<?x4xf32>, %mask: tensor<?xi1>,
                %w: tensor<4x8x8xf32> {moe.param = #moe.param<"w{}">})
    -> tensor<?x8xf32> {
  %take = arith.constant 5 : index
  %ids, %weights = moe.gate %logits router<score = sigmoid, normalize = max_sum_eps, eps = 1.0e-20, expert_choice> mask(%mask : tensor<?xi1>) capacity(%take)
      : tensor<?x4xf32> -> tensor<?x4xi32>, tensor<?x4xf32>
  %counts = moe.count %ids : tensor<?x4xi32> -> tensor<4xi32>
  %slots, %sizes, %bound = moe.assign %ids token_major counts(%counts : tensor<4xi32>)
      : tensor<?x4xi32> -> tensor<?x4xi32>, tensor<4xi32>, index
  %rows = moe.dispatch %x, %slots, %sizes, %bound
      : tensor<?x8xf32>, tensor<?x4xi32>, tensor<4xi32> -> tensor<?x8xf32>
  %z = moe.expert rows(%rows : tensor<?x8xf32>) groups(%sizes : tensor<4xi32>)
      per_expert(%w : tensor<4x8x8xf32>) -> tensor<?x8xf32> {
  ^bb0(%r: tensor<?x8xf32>, %we: tensor<8x8xf32>):
    %c0 = arith.constant 0 : index
    %zero = arith.constant 0.0 : f32
    %n = tensor.dim %r, %c0 : tensor<?x8xf32>
    %e = tensor.empty(%n) : tensor<?x8xf32>
    %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x8xf32>) -> tensor<?x8xf32>
    %m = linalg.matmul ins(%r, %we : tensor<?x8xf32>, tensor<8x8xf32>) outs(%f : tensor<?x8xf32>) -> tensor<?x8xf32>
    moe.yield %m : tensor<?x8xf32>
  }
  %y = moe.combine %z, %slots weights(%weights : tensor<?x4xf32>)
      : tensor<?x8xf32>, tensor<?x4xi32> -> tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}
