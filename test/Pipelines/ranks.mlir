// The phases of several ranks. With one rank they change nothing.

// RUN: moira-opt %s --moe-to-sharded | FileCheck %s --check-prefix=ONE
// RUN: moira-opt %s --moe-to-scheduled | FileCheck %s --check-prefix=ONE
// RUN: not moira-opt %s --moe-to-scheduled=schedule=ring 2>&1 | FileCheck %s --check-prefix=RING

// RING: schedule: expected equal or groups, got 'ring'

// ONE-LABEL: func.func @main
// ONE-NEXT: %c0 = arith.constant 0 : index
// ONE-NEXT: %c1 = arith.constant 1 : index
// ONE-NEXT: %[[UNUSED:.*]] = arith.addi
// ONE-NEXT: return
func.func @main(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %unused = arith.addi %c0, %c1 : index
  return %x : tensor<?x8xf32>
}
