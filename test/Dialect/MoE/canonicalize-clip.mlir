// RUN: moira-opt %s --canonicalize 2>&1 | FileCheck %s
// RUN: moira-opt %s --moe-decompose 2>&1 | FileCheck %s --check-prefix=ORACLE

// K = 6 of 4 experts means 4: the last two choices are unused, with a warning.

// CHECK: warning: top-k 6 of 4 experts means 4
// CHECK-LABEL: @clip
// CHECK-DAG: %[[NONE:.*]] = arith.constant -1 : i32
// CHECK: %[[R:.*]] = tensor.extract_slice %{{.*}}[0, 0] [%{{.*}}, 4] [1, 1]
// CHECK: %[[G:.*]]:2 = moe.gate %{{.*}} router<> replay(%[[R]] : tensor<?x4xi32>) : tensor<?x4xf32> -> tensor<?x4xi32>, tensor<?x4xf32>
// CHECK: %[[FILLED:.*]] = linalg.fill ins(%[[NONE]] : i32)
// CHECK: tensor.insert_slice %[[G]]#0 into %[[FILLED]][0, 0] [%{{.*}}, 4] [1, 1]

// ORACLE: warning: top-k 6 of 4 experts means 4
// ORACLE-LABEL: @clip
// ORACLE-NOT: moe.gate
func.func @clip(%l: tensor<?x4xf32>, %r: tensor<?x6xi32>) -> (tensor<?x6xi32>, tensor<?x6xf32>) {
  %ids, %w = moe.gate %l router<> replay(%r : tensor<?x6xi32>)
      : tensor<?x4xf32> -> tensor<?x6xi32>, tensor<?x6xf32>
  return %ids, %w : tensor<?x6xi32>, tensor<?x6xf32>
}
