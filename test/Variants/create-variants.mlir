// RUN: moira-opt %s --moe-create-variants --split-input-file | FileCheck %s
// RUN: moira-opt %s --moe-create-variants=rows=prefill --split-input-file | FileCheck %s --check-prefix=ONE

// CHECK: func.func private @layer_decode(%{{.*}}: tensor<?x8xf32>, %{{.*}}: tensor<8xf32> {moe.param = #moe.param<"w">}) -> tensor<?x8xf32>
// CHECK-SAME: attributes {moe.row_class = #moe<row_class decode>}
// CHECK: call @helper
// CHECK: func.func private @layer_prefill(
// CHECK-SAME: attributes {moe.row_class = #moe<row_class prefill>}
// CHECK: moe.variants @layer [@layer_decode, @layer_prefill] [decode, prefill]
// CHECK: func.func private @helper
// ONE-NOT: @layer_decode
// ONE: func.func private @layer_prefill(
// ONE: moe.variants @layer [@layer_prefill] [prefill]
func.func @layer(%x: tensor<?x8xf32>, %w: tensor<8xf32> {moe.param = #moe.param<"w">}) -> tensor<?x8xf32> {
  %0 = call @helper(%x) : (tensor<?x8xf32>) -> tensor<?x8xf32>
  return %0 : tensor<?x8xf32>
}
func.func private @helper(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  return %x : tensor<?x8xf32>
}

// -----

// Of several public functions @main is the entry.

// CHECK: func.func @other()
// CHECK: func.func private @main_decode()
// CHECK: func.func private @main_prefill()
// CHECK: moe.variants @main
func.func @other() {
  return
}
func.func @main() {
  return
}
