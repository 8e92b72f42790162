// RUN: moira-opt %s -moe-expose-routing | FileCheck %s
// RUN: moira-opt %s -moe-expose-routing="replay=true function=two" | FileCheck %s --check-prefix=REPLAY

// CHECK-LABEL: func.func @two(
// CHECK-SAME: %[[L:[a-z0-9]*]]: tensor<?x4xf32>, %[[P:[a-z0-9]*]]: tensor<8xf32> {moe.param = #moe.param<"p">})
// CHECK-SAME: -> (tensor<?x2xf32>, tensor<?x4xf32>, tensor<?x2xi32>, tensor<?x4xf32>, tensor<?x4xi32>)
// CHECK: %[[A:.*]]:2 = moe.gate %[[L]]
// CHECK: %[[B:.*]]:2 = moe.gate %[[L]]
// CHECK: return %[[A]]#1, %[[L]], %[[A]]#0, %[[L]], %[[B]]#0

// Expert choice takes no ids.
// REPLAY-LABEL: func.func @two(
// REPLAY-SAME: %[[L:.*]]: tensor<?x4xf32>, %{{.*}}: tensor<8xf32> {moe.param = #moe.param<"p">}, %[[R:.*]]: tensor<?x2xi32>)
// REPLAY: moe.gate %[[L]] router<> replay(%[[R]] : tensor<?x2xi32>)
// REPLAY: moe.gate %[[L]] router<expert_choice> capacity(
func.func @two(%l: tensor<?x4xf32>, %p: tensor<8xf32> {moe.param = #moe.param<"p">})
    -> tensor<?x2xf32> {
  %c = arith.constant 2 : index
  %0:2 = moe.gate %l router<> : tensor<?x4xf32> -> tensor<?x2xi32>, tensor<?x2xf32>
  %1:2 = moe.gate %l router<expert_choice> capacity(%c)
      : tensor<?x4xf32> -> tensor<?x4xi32>, tensor<?x4xf32>
  return %0#1 : tensor<?x2xf32>
}

// Only public functions, unless one is named; none without gates.
// CHECK-LABEL: func.func private @helper
// CHECK-SAME: -> tensor<?x2xf32>
// REPLAY-LABEL: func.func private @helper
// REPLAY-SAME: (%{{[^,]*}}: tensor<?x4xf32>) -> tensor<?x2xf32>
func.func private @helper(%l: tensor<?x4xf32>) -> tensor<?x2xf32> {
  %0:2 = moe.gate %l router<> : tensor<?x4xf32> -> tensor<?x2xi32>, tensor<?x2xf32>
  return %0#1 : tensor<?x2xf32>
}

// CHECK-LABEL: func.func @dense
// CHECK-SAME: -> tensor<?x4xf32>
func.func @dense(%l: tensor<?x4xf32>) -> tensor<?x4xf32> {
  return %l : tensor<?x4xf32>
}
