// RUN: moira-opt %s --moe-add-updates=rules=sgd,adamw | FileCheck %s
// RUN: not moira-opt %s --moe-add-updates=rules=lion 2>&1 | FileCheck %s --check-prefix=LION

// LION: error: expected an update rule, sgd, adam or adamw, got 'lion'

// One function per rule and type of parameters; types of inputs do not count.
// CHECK-LABEL: func.func @main
// CHECK-LABEL: func.func private @moira_update_sgd_f32(
// CHECK-SAME: tensor<1x?xf32> {moe.name = "parameter"}
// CHECK-SAME: tensor<1x?xf32> {moe.name = "gradient"}
// CHECK-SAME: tensor<1x?xf32> {moe.name = "momentum_buffer"}
// CHECK-SAME: f32 {moe.name = "learning_rate"}
// CHECK-SAME: -> (tensor<1x?xf32>, tensor<1x?xf32>) attributes {moe.update = "sgd"}
// CHECK: linalg.generic
// CHECK-LABEL: func.func private @moira_update_sgd_bf16(
// CHECK-SAME: tensor<1x?xf32> {moe.name = "parameter"}
// CHECK-SAME: -> (tensor<1x?xf32>, tensor<1x?xf32>, tensor<1x?xbf16>)
// CHECK: arith.truncf
// CHECK-LABEL: func.func private @moira_update_adamw_f32(
// CHECK: math.sqrt
// CHECK-NOT: math.fma
// CHECK-LABEL: func.func private @moira_update_adamw_bf16(
// CHECK-NOT: func.func
func.func @main(%x: tensor<?x4xf64>,
    %a: tensor<4xf32> {moe.param = #moe.param<"a">},
    %b: tensor<2x4xbf16> {moe.param = #moe.param<"b">},
    %c: tensor<8xf32> {moe.param = #moe.param<"c">}) -> tensor<?x4xf64> {
  return %x : tensor<?x4xf64>
}
