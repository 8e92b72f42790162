// Work of an expert that no kernel takes: the compiler says which and why, and
// the program runs and gives the oracle's bits all the same.
//
// RUN: moira-opt %s --moe-to-kernels --remarks-filter-missed=moe-form-kernels \
// RUN:   --remark-format=emitRemark -o /dev/null 2>&1 | FileCheck %s --check-prefix=REMARK
// RUN: moira-run %s --no-cache --tokens 37 --verify | FileCheck %s --check-prefix=RESULT
//
// REMARK: unfused.mlir:[[#]]:{{.*}}remark: {{.*}}'math.tanh' stays: elementwise work on rows with no contraction before it
// RESULT: verify passed
// RESULT: 100.00 % bit-identical

func.func @main(%x: tensor<?x8xf32>, %logits: tensor<?x4xf32>,
    %w: tensor<4x5x8xf32> {moe.param = #moe.param<"experts.{}.w">}) -> tensor<?x5xf32> {
  %ids, %weights = moe.gate %logits router<normalize = sum_plus_eps>
      : tensor<?x4xf32> -> tensor<?x2xi32>, tensor<?x2xf32>
  %counts = moe.count %ids : tensor<?x2xi32> -> tensor<4xi32>
  %slots, %sizes, %bound = moe.assign %ids choice_major counts(%counts : tensor<4xi32>)
      : tensor<?x2xi32> -> tensor<?x2xi32>, tensor<4xi32>, index
  %rows = moe.dispatch %x, %slots, %sizes, %bound
      : tensor<?x8xf32>, tensor<?x2xi32>, tensor<4xi32> -> tensor<?x8xf32>
  %out = moe.expert rows(%rows : tensor<?x8xf32>) groups(%sizes : tensor<4xi32>)
      per_expert(%w : tensor<4x5x8xf32>) -> tensor<?x5xf32> {
  ^bb0(%r: tensor<?x8xf32>, %we: tensor<5x8xf32>):
    %c0 = arith.constant 0 : index
    %zero = arith.constant 0.0 : f32
    %n = tensor.dim %r, %c0 : tensor<?x8xf32>
    %e = tensor.empty(%n) : tensor<?x5xf32>
    %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x5xf32>) -> tensor<?x5xf32>
    %t = math.tanh %r : tensor<?x8xf32>
    %p = linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>,
        affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
        ins(%t, %we : tensor<?x8xf32>, tensor<5x8xf32>) outs(%z : tensor<?x5xf32>) -> tensor<?x5xf32>
    moe.yield %p : tensor<?x5xf32>
  }
  %y = moe.combine %out, %slots weights(%weights : tensor<?x2xf32>)
      : tensor<?x5xf32>, tensor<?x2xi32> -> tensor<?x5xf32>
  return %y : tensor<?x5xf32>
}
