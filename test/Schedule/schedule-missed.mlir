// Layers that cannot be cut stay as they are, with the op that is in the way.

// RUN: moira-opt %s --split-input-file -verify-diagnostics \
// RUN:     --remarks-filter-missed=moe-schedule --remark-format=emitRemark \
// RUN:     --pass-pipeline='builtin.module(func.func(moe-schedule))' \
// RUN:   | FileCheck %s

// CHECK-LABEL: @used_elsewhere
// CHECK-NOT: scf.for
func.func @used_elsewhere(%rows: tensor<?x8xf32>, %m: tensor<2x4xi32>,
    %bound: index) -> (tensor<?x8xf32>, index) {
  %c0 = arith.constant 0 : index
  %groups, %n = moe.receive_sizes %m
      at <ranks = 2, experts = 4, slots = 2> equal
      : tensor<2x4xi32> -> tensor<2xi32>, index
  %away = moe.exchange to_experts %rows, %m, %n
      at <ranks = 2, experts = 4, slots = 2> equal
      : tensor<?x8xf32>, tensor<2x4xi32> -> tensor<?x8xf32>
  // expected-remark @+1 {{'tensor.dim': received rows that are used elsewhere: the layer's exchanges are not cut in chunks}}
  %d = tensor.dim %away, %c0 : tensor<?x8xf32>
  %back = moe.exchange to_tokens %away, %m, %bound
      at <ranks = 2, experts = 4, slots = 2> equal
      : tensor<?x8xf32>, tensor<2x4xi32> -> tensor<?x8xf32>
  return %back, %d : tensor<?x8xf32>, index
}

// -----

// CHECK-LABEL: @rows_meet
// CHECK-NOT: scf.for
func.func @rows_meet(%rows: tensor<?x8xf32>, %m: tensor<2x4xi32>,
    %bound: index, %init: tensor<8xf32>, %out: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %groups, %n = moe.receive_sizes %m
      at <ranks = 2, experts = 4, slots = 2> equal
      : tensor<2x4xi32> -> tensor<2xi32>, index
  %away = moe.exchange to_experts %rows, %m, %n
      at <ranks = 2, experts = 4, slots = 2> equal
      : tensor<?x8xf32>, tensor<2x4xi32> -> tensor<?x8xf32>
  // expected-remark @+1 {{'linalg.reduce': an op that does not treat rows one by one: the layer's exchanges are not cut in chunks}}
  %sum = linalg.reduce { arith.addf } ins(%away : tensor<?x8xf32>)
      outs(%init : tensor<8xf32>) dimensions = [0]
  %e = tensor.empty(%n) : tensor<?x8xf32>
  %all = linalg.broadcast ins(%sum : tensor<8xf32>) outs(%e : tensor<?x8xf32>)
      dimensions = [0]
  %back = moe.exchange to_tokens %all, %m, %bound
      at <ranks = 2, experts = 4, slots = 2> equal
      : tensor<?x8xf32>, tensor<2x4xi32> -> tensor<?x8xf32>
  return %back : tensor<?x8xf32>
}

// -----

// CHECK-LABEL: @other_rows
// CHECK-NOT: scf.for
func.func @other_rows(%rows: tensor<?x8xf32>, %m: tensor<2x4xi32>,
    %bound: index, %others: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %groups, %n = moe.receive_sizes %m
      at <ranks = 2, experts = 4, slots = 2> equal
      : tensor<2x4xi32> -> tensor<2xi32>, index
  %away = moe.exchange to_experts %rows, %m, %n
      at <ranks = 2, experts = 4, slots = 2> equal
      : tensor<?x8xf32>, tensor<2x4xi32> -> tensor<?x8xf32>
  // expected-remark @+1 {{'moe.expert': rows that are not all received: the layer's exchanges are not cut in chunks}}
  %out = moe.expert rows(%away, %others : tensor<?x8xf32>, tensor<?x8xf32>)
      groups(%groups : tensor<2xi32>) -> tensor<?x8xf32> {
  ^bb0(%r: tensor<?x8xf32>, %o: tensor<?x8xf32>):
    moe.yield %r : tensor<?x8xf32>
  }
  %back = moe.exchange to_tokens %out, %m, %bound
      at <ranks = 2, experts = 4, slots = 2> equal
      : tensor<?x8xf32>, tensor<2x4xi32> -> tensor<?x8xf32>
  return %back : tensor<?x8xf32>
}

// -----

// CHECK-LABEL: @one_way
// CHECK-NOT: scf.for
func.func @one_way(%rows: tensor<?x8xf32>, %m: tensor<2x4xi32>) -> tensor<?x8xf32> {
  // expected-remark @+1 {{'moe.receive_sizes': rows that do not come back: the layer's exchanges are not cut in chunks}}
  %groups, %n = moe.receive_sizes %m
      at <ranks = 2, experts = 4, slots = 2> equal
      : tensor<2x4xi32> -> tensor<2xi32>, index
  %away = moe.exchange to_experts %rows, %m, %n
      at <ranks = 2, experts = 4, slots = 2> equal
      : tensor<?x8xf32>, tensor<2x4xi32> -> tensor<?x8xf32>
  return %away : tensor<?x8xf32>
}
