// Losses over ranks in a program without experts: it knows its ranks.
//
// RUN: moira-compile %s --grid 2 -o %t.moira
// RUN: moira-run %t.moira --tokens 6 --output %t.npy | FileCheck %s
// RUN: moira-run %s --no-cache --ranks 2 --tokens=4,2 --verify | FileCheck %s --check-prefix=VERIFY
// RUN: not moira-run %t.moira --tokens 6 --ranks 3 2>&1 | FileCheck %s --check-prefix=THREE
// CHECK: ranks       2 (inprocess)
// VERIFY: 100.00 % bit-identical
// THREE: expected 2 ranks, as the program was compiled for, got 3

func.func @main(%l: tensor<?x6xf32>) -> tensor<f32> {
  %ids, %w = moe.gate %l router<> : tensor<?x6xf32> -> tensor<?x2xi32>, tensor<?x2xf32>
  %0 = moe.loss switch %l ids(%ids : tensor<?x2xi32>) scope global : tensor<?x6xf32> -> tensor<f32>
  return %0 : tensor<f32>
}
