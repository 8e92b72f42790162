// combine adds in choice order, whoever computes it: the same bits in every run
// and for every number of threads. Seven rows of different experts meet in each
// sum, so that another order would show; the reversed program proves it.
//
// RUN: rm -rf %t && mkdir %t
// RUN: moira-run %s --cache-dir %t/c --seed 3 --tokens 613 --threads 1 --output %t/1.npy --verify | FileCheck %s
// CHECK: values 100.00 % bit-identical
// RUN: moira-run %s --cache-dir %t/c --seed 3 --tokens 613 --threads 1 --output %t/again.npy
// RUN: cmp %t/1.npy %t/again.npy
// RUN: moira-run %s --cache-dir %t/c --seed 3 --tokens 613 --threads 2 --output %t/2.npy
// RUN: cmp %t/1.npy %t/2.npy
// RUN: moira-run %s --cache-dir %t/c --seed 3 --tokens 613 --threads 7 --repeat 3 --output %t/7.npy
// RUN: cmp %t/1.npy %t/7.npy
// RUN: sed 's/combine %%out, %%slots/combine %%out, %%reversed/' %s > %t/reversed.mlir
// RUN: moira-run %t/reversed.mlir --no-cache --seed 3 --tokens 613 --output %t/reversed.npy
// RUN: not cmp %t/1.npy %t/reversed.npy

#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#mn = affine_map<(m, n, k) -> (m, n)>

func.func @main(%x: tensor<?x40xf32>, %logits: tensor<?x9xf32>,
    %w: tensor<9x200x40xf32> {moe.param = #moe.param<"experts.{}.w">}) -> tensor<?x200xf32> {
  %ids, %weights = moe.gate %logits router<> : tensor<?x9xf32> -> tensor<?x7xi32>, tensor<?x7xf32>
  %counts = moe.count %ids : tensor<?x7xi32> -> tensor<9xi32>
  %slots, %sizes, %bound = moe.assign %ids choice_major counts(%counts : tensor<9xi32>)
      : tensor<?x7xi32> -> tensor<?x7xi32>, tensor<9xi32>, index
  %rows = moe.dispatch %x, %slots, %sizes, %bound
      : tensor<?x40xf32>, tensor<?x7xi32>, tensor<9xi32> -> tensor<?x40xf32>
  %out = moe.expert rows(%rows : tensor<?x40xf32>) groups(%sizes : tensor<9xi32>)
      per_expert(%w : tensor<9x200x40xf32>) -> tensor<?x200xf32> {
  ^bb0(%r: tensor<?x40xf32>, %we: tensor<200x40xf32>):
    %c0 = arith.constant 0 : index
    %zero = arith.constant 0.0 : f32
    %n = tensor.dim %r, %c0 : tensor<?x40xf32>
    %e = tensor.empty(%n) : tensor<?x200xf32>
    %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x200xf32>) -> tensor<?x200xf32>
    %p = linalg.matmul indexing_maps = [#mk, #nk, #mn]
        ins(%r, %we : tensor<?x40xf32>, tensor<200x40xf32>) outs(%z : tensor<?x200xf32>) -> tensor<?x200xf32>
    moe.yield %p : tensor<?x200xf32>
  }
  %c0 = arith.constant 0 : index
  %c6 = arith.constant 6 : index
  %tokens = tensor.dim %slots, %c0 : tensor<?x7xi32>
  %empty = tensor.empty(%tokens) : tensor<?x7xi32>
  %reversed = linalg.generic {indexing_maps = [affine_map<(t, j) -> (t, j)>], iterator_types = ["parallel", "parallel"]}
      outs(%empty : tensor<?x7xi32>) {
  ^bb0(%o: i32):
    %t = linalg.index 0 : index
    %j = linalg.index 1 : index
    %back = arith.subi %c6, %j : index
    %slot = tensor.extract %slots[%t, %back] : tensor<?x7xi32>
    linalg.yield %slot : i32
  } -> tensor<?x7xi32>
  %y = moe.combine %out, %slots : tensor<?x200xf32>, tensor<?x7xi32> -> tensor<?x200xf32>
  return %y : tensor<?x200xf32>
}
