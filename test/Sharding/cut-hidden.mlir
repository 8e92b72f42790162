// RUN: moira-opt %s --pass-pipeline='builtin.module(func.func(moe-cut-hidden{blocks=2}))' | FileCheck %s --check-prefixes=CHECK,TWO
// RUN: moira-opt %s --pass-pipeline='builtin.module(func.func(moe-cut-hidden{blocks=1}))' | FileCheck %s --check-prefix=ONE

// CHECK-LABEL: func.func @main
// CHECK: %[[H:.*]] = math.tanh
// CHECK: %[[START:.*]] = linalg.fill {{.*}} -> tensor<?x6xf32>
// TWO: %[[H0:.*]] = tensor.extract_slice %[[H]][0, 0] [%{{.*}}, 8] [1, 1] : tensor<?x16xf32> to tensor<?x8xf32>
// TWO: %[[D0:.*]] = tensor.extract_slice %[[D:.*]][0, 0] [6, 8] [1, 1] : tensor<6x16xf32> to tensor<6x8xf32>
// TWO: %[[S0:.*]] = linalg.matmul {{.*}} ins(%[[H0]], %[[D0]] : tensor<?x8xf32>, tensor<6x8xf32>) outs(%[[START]] : tensor<?x6xf32>)
// TWO: %[[ZERO:.*]] = linalg.fill
// TWO: %[[H1:.*]] = tensor.extract_slice %[[H]][0, 8]
// TWO: %[[D1:.*]] = tensor.extract_slice %[[D]][0, 8]
// TWO: %[[S1:.*]] = linalg.matmul {{.*}} ins(%[[H1]], %[[D1]] : tensor<?x8xf32>, tensor<6x8xf32>) outs(%[[ZERO]] : tensor<?x6xf32>)
// TWO: %[[SUM:.*]] = linalg.generic {{.*}} ins(%[[S0]], %[[S1]] : tensor<?x6xf32>, tensor<?x6xf32>)
// TWO: arith.addf
// TWO: moe.yield %[[SUM]]

// ONE-NOT: tensor.extract_slice
func.func @main(%x: tensor<?x8xf32>, %logits: tensor<?x2xf32>,
    %g: tensor<2x16x8xf32> {moe.param = #moe.param<"gate{}">},
    %d: tensor<2x6x16xf32> {moe.param = #moe.param<"down{}">}) -> tensor<?x6xf32> {
  %ids, %weights = moe.gate %logits router<>
      : tensor<?x2xf32> -> tensor<?x1xi32>, tensor<?x1xf32>
  %counts = moe.count %ids : tensor<?x1xi32> -> tensor<2xi32>
  %slots, %sizes, %bound = moe.assign %ids choice_major counts(%counts : tensor<2xi32>)
      : tensor<?x1xi32> -> tensor<?x1xi32>, tensor<2xi32>, index
  %rows = moe.dispatch %x, %slots, %sizes, %bound
      : tensor<?x8xf32>, tensor<?x1xi32>, tensor<2xi32> -> tensor<?x8xf32>
  %y = moe.expert rows(%rows : tensor<?x8xf32>) groups(%sizes : tensor<2xi32>)
      per_expert(%g, %d : tensor<2x16x8xf32>, tensor<2x6x16xf32>) -> tensor<?x6xf32> {
  ^bb0(%r: tensor<?x8xf32>, %ge: tensor<16x8xf32>, %de: tensor<6x16xf32>):
    %i0 = arith.constant 0 : index
    %zero = arith.constant 0.0 : f32
    %n = tensor.dim %r, %i0 : tensor<?x8xf32>
    %e = tensor.empty(%n) : tensor<?x16xf32>
    %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x16xf32>) -> tensor<?x16xf32>
    %a = linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>,
        affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
        ins(%r, %ge : tensor<?x8xf32>, tensor<16x8xf32>) outs(%z : tensor<?x16xf32>) -> tensor<?x16xf32>
    %h = math.tanh %a : tensor<?x16xf32>
    %e6 = tensor.empty(%n) : tensor<?x6xf32>
    %z6 = linalg.fill ins(%zero : f32) outs(%e6 : tensor<?x6xf32>) -> tensor<?x6xf32>
    %m = linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>,
        affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
        ins(%h, %de : tensor<?x16xf32>, tensor<6x16xf32>) outs(%z6 : tensor<?x6xf32>) -> tensor<?x6xf32>
    moe.yield %m : tensor<?x6xf32>
  }
  %out = moe.combine %y, %slots weights(%weights : tensor<?x1xf32>)
      : tensor<?x6xf32>, tensor<?x1xi32> -> tensor<?x6xf32>
  return %out : tensor<?x6xf32>
}
