// Of a file with several programs the entry is compiled, and the others, with
// layers of their own, are left alone.
//
// RUN: moira-compile %s --entry first -o %t.moira
// RUN: moira-compile --describe %t.moira | FileCheck %s
// RUN: moira-run %s --entry second --tokens 3 --no-cache --verify | FileCheck %s --check-prefix=SECOND
// RUN: not moira-compile %s -o %t.none 2>&1 | FileCheck %s --check-prefix=NONE
//
// CHECK: first
// CHECK-NOT: second
// SECOND: passed: 3 of 3 rows
// NONE: expected a function 'main' with a body as entry, got none

func.func @first(%x: tensor<?x8xf32>) -> tensor<?x2xi32> {
  %ids, %weights = moe.gate %x router<> : tensor<?x8xf32> -> tensor<?x2xi32>, tensor<?x2xf32>
  return %ids : tensor<?x2xi32>
}

func.func @second(%x: tensor<?x4xf32>) -> tensor<?x1xf32> {
  %ids, %weights = moe.gate %x router<> : tensor<?x4xf32> -> tensor<?x1xi32>, tensor<?x1xf32>
  return %weights : tensor<?x1xf32>
}
