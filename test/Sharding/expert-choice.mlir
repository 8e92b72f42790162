// Experts choose among the tokens of a rank; the unsharded counterpart chooses
// block by block, and takes the weights of all tokens by those ids.
//
// RUN: moira-opt %s --moe-token-blocks=ranks=3 -canonicalize -cse | FileCheck %s
// RUN: moira-opt %s --moe-shard=ranks=2 | FileCheck %s --check-prefix=SHARD

// CHECK-LABEL: func.func @main
// CHECK-SAME: %[[LOGITS:[^:]*]]: tensor<?x4xf32>, %[[MASK:[^:]*]]: tensor<?xi1>, %[[BIAS:[^:]*]]: tensor<4xf32>, %[[BLOCKS:[^:]*]]: tensor<3xi32> {moe.blocks})
// CHECK: %[[ALL:.*]] = tensor.empty(%{{.*}}) : tensor<?x4xi32>
// CHECK: %[[IDS:.*]]:2 = scf.for %[[B:.*]] = %c0 to %c3 step %c1 iter_args(%[[BEGIN:.*]] = %c0, %[[SO_FAR:.*]] = %[[ALL]]) -> (index, tensor<?x4xi32>)
// CHECK: %[[EXTRACTED:.*]] = tensor.extract %[[BLOCKS]][%[[B]]]
// CHECK: %[[SIZE:.*]] = arith.index_cast %[[EXTRACTED]]
// CHECK: %[[ROWS:.*]] = tensor.extract_slice %[[LOGITS]][%[[BEGIN]], 0] [%[[SIZE]], 4]
// CHECK: %[[KEPT:.*]] = tensor.extract_slice %[[MASK]][%[[BEGIN]]] [%[[SIZE]]]
// CHECK: %[[CHOSEN:.*]]:2 = moe.gate %[[ROWS]] router<score = sigmoid, expert_choice> bias(%[[BIAS]] : tensor<4xf32>) mask(%[[KEPT]] : tensor<?xi1>) capacity(%c2) {moe.block_choice}
// CHECK: tensor.insert_slice %[[CHOSEN]]#0 into %[[SO_FAR]][%[[BEGIN]], 0] [%[[SIZE]], 4]
// CHECK: moe.gate %[[LOGITS]] router<score = sigmoid> replay(%[[IDS]]#1 : tensor<?x4xi32>) {moe.block_choice}

// SHARD-LABEL: func.func @main
// SHARD: moe.gate %{{.*}} router<score = sigmoid, expert_choice> bias({{.*}}) mask({{.*}}) capacity(%{{.*}})
func.func @main(%logits: tensor<?x4xf32>, %mask: tensor<?xi1>, %bias: tensor<4xf32>) -> (tensor<?x4xi32>, tensor<?x4xf32>) {
  %take = arith.constant 2 : index
  %ids, %weights = moe.gate %logits router<score = sigmoid, expert_choice> bias(%bias : tensor<4xf32>) mask(%mask : tensor<?xi1>) capacity(%take)
      : tensor<?x4xf32> -> tensor<?x4xi32>, tensor<?x4xf32>
  return %ids, %weights : tensor<?x4xi32>, tensor<?x4xf32>
}

