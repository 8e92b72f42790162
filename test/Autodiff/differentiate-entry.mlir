// RUN: moira-opt %s --moe-differentiate=entry=layer | FileCheck %s --check-prefixes=CHECK,LAYER
// RUN: moira-opt %s --moe-differentiate | FileCheck %s --check-prefixes=CHECK,MAIN
// RUN: moira-opt %s --moe-differentiate=entry=layer --moe-differentiate=entry=main | FileCheck %s --check-prefix=BOTH

// The entry is the one named, else @main; others stay as they are.

// LAYER: func.func @layer({{.*}} attributes {moe.backward = @layer_backward, moe.residuals = 1 : i64}
// LAYER: func.func @layer_backward(
// MAIN: func.func @layer(%{{[^)]*}}) -> tensor<4xf32> {
// CHECK: func.func @main(
// LAYER-NOT: @main_backward
// MAIN: func.func @main_backward(

// BOTH-DAG: @layer_backward(
// BOTH-DAG: @main_backward(
func.func @layer(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = math.exp %x : tensor<4xf32>
  return %y : tensor<4xf32>
}
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = math.sin %x : tensor<4xf32>
  return %y : tensor<4xf32>
}
