// RUN: moira-opt %s -moe-decompose -canonicalize -cse | FileCheck %s

// CHECK-LABEL: func.func @softmax
// CHECK-SAME: (%[[L:[a-z0-9]*]]: tensor<?x4xbf16>)
// CHECK-DAG: %[[NINF:.*]] = arith.constant 0xFF800000 : f32
// CHECK-DAG: %[[NAN:.*]] = arith.constant 0x7FC00000 : f32
// CHECK-DAG: %[[ZERO:.*]] = arith.constant 0.000000e+00 : f32
// NaN -> -inf, +inf -> the largest finite value.
// CHECK: %[[LOGITS:.*]] = linalg.generic {{.*}} ins(%[[L]] :
// CHECK: %[[V:.*]] = arith.extf
// CHECK: %[[ISNAN:.*]] = arith.cmpf uno, %[[V]], %[[V]] : f32
// CHECK: %[[S:.*]] = arith.select %[[ISNAN]], %[[NINF]], %[[V]] : f32
// CHECK: arith.minimumf %[[S]], %{{.*}} : f32
// exp(l - max), summed in f64, divided in f32.
// CHECK: %[[TOP:.*]] = linalg.generic {{.*}} iterator_types = ["parallel", "reduction"]} ins(%[[LOGITS]] :
// CHECK: arith.maximumf
// CHECK: %[[EXPS:.*]] = linalg.generic {{.*}} ins(%[[LOGITS]], %[[TOP]] :
// CHECK: arith.subf
// CHECK: math.exp
// CHECK: %[[SUMS:.*]] = linalg.generic {{.*}} ins(%[[EXPS]] : tensor<?x4xf32>) outs(%{{.*}} : tensor<?xf64>)
// CHECK: arith.extf
// CHECK: arith.addf %{{.*}}, %{{.*}} : f64
// CHECK: %[[SCORES:.*]] = linalg.generic {{.*}} ins(%[[EXPS]], %[[SUMS]] :
// CHECK: arith.truncf %{{.*}} : f64 to f32
// CHECK: arith.divf
// The largest key that was not taken, twice; ties to the lower id.
// CHECK: %[[R:.*]]:3 = scf.for %[[T:.*]] = %c0 to
// CHECK: scf.for %[[J:.*]] = %c0 to %c2 step %c1 iter_args(%[[IDS:.*]] = %{{.*}}, %[[W:.*]] = %{{.*}}, %[[KEYS:.*]] = %{{.*}})
// CHECK: %[[BEST:.*]]:2 = scf.for %[[E:.*]] = %c0 to %c4 step %c1 iter_args(%{{.*}} = %c0, %[[B:.*]] = %[[NAN]])
// CHECK: %[[KEY:.*]] = tensor.extract %[[KEYS]][%[[T]], %[[E]]]
// CHECK: arith.cmpf ugt, %[[KEY]], %[[B]] : f32
// CHECK: arith.cmpf ord, %[[KEY]], %[[KEY]] : f32
// CHECK: %[[SCORE:.*]] = tensor.extract %[[SCORES]][%[[T]], %[[BEST]]#0]
// CHECK: %[[WEIGHT:.*]] = arith.select %{{.*}}, %[[ZERO]], %[[SCORE]]
// CHECK: tensor.insert %{{.*}} into %[[IDS]][%[[T]], %[[J]]]
// CHECK: tensor.insert %[[WEIGHT]] into %[[W]][%[[T]], %[[J]]]
// CHECK: tensor.insert %[[NAN]] into %[[KEYS]][%[[T]], %[[BEST]]#0]
// CHECK: return %[[R]]#0, %[[R]]#1
func.func @softmax(%l: tensor<?x4xbf16>) -> (tensor<?x2xi32>, tensor<?x2xf32>) {
  %ids, %w = moe.gate %l router<> : tensor<?x4xbf16> -> tensor<?x2xi32>, tensor<?x2xf32>
  return %ids, %w : tensor<?x2xi32>, tensor<?x2xf32>
}

// DeepSeek-V3: biased scores select, unbiased ones weight.
// CHECK-LABEL: func.func @grouped
// CHECK-SAME: (%{{.*}}: tensor<6x8xf32>, %[[BIAS:[a-z0-9]*]]: tensor<8xf32>)
// CHECK-DAG: %[[SCALE:.*]] = arith.constant 2.500000e+00 : f32
// CHECK-DAG: %[[EPS:.*]] = arith.constant 9.9999999999999995E-21 : f64
// CHECK: arith.minimumf
// CHECK: %[[SCORES:.*]] = linalg.generic
// CHECK: arith.negf
// CHECK: math.exp
// CHECK: arith.divf
// CHECK: %[[KEYS:.*]] = linalg.generic {{.*}} ins(%{{.*}}, %[[SCORES]], %[[BIAS]] :
// CHECK: arith.addf
// CHECK: %[[G:.*]] = tensor.expand_shape %[[KEYS]] {{.*}} : tensor<6x8xf32> into tensor<6x4x2xf32>
// The two best of each group.
// CHECK: linalg.generic {{.*}} iterator_types = ["parallel", "parallel", "reduction"]} ins(%[[G]] :
// CHECK: arith.minimumf
// CHECK: arith.maximumf
// CHECK: arith.maximumf
// How many groups are better.
// CHECK: %[[RANKS:.*]] = linalg.generic {{.*}} outs(%{{.*}} : tensor<6x4xi32>)
// CHECK: %[[MASKED:.*]] = linalg.generic {{.*}} ins(%[[G]], %[[RANKS]] :
// CHECK: arith.cmpi slt, %{{.*}}, %c2_i32 : i32
// CHECK: tensor.collapse_shape %[[MASKED]]
// CHECK: scf.for
// CHECK: tensor.extract %[[SCORES]]
// CHECK: arith.addf %{{.*}}, %[[EPS]] : f64
// CHECK: arith.mulf %{{.*}}, %[[SCALE]] : f32
func.func @grouped(%l: tensor<6x8xf32>, %bias: tensor<8xf32>)
    -> (tensor<6x2xi32>, tensor<6x2xf32>) {
  %ids, %w = moe.gate %l router<score = sigmoid, groups = 4, keep = 2,
      group_score = sum_top2, normalize = sum_plus_eps, eps = 1.0e-20, scale = 2.5>
      bias(%bias : tensor<8xf32>) : tensor<6x8xf32> -> tensor<6x2xi32>, tensor<6x2xf32>
  return %ids, %w : tensor<6x2xi32>, tensor<6x2xf32>
}

// CHECK-LABEL: func.func @operands
// CHECK-SAME: %[[MASK:[a-z0-9]*]]: tensor<?xi1>, %[[K:[a-z0-9]*]]: index, %[[TH:[a-z0-9]*]]: f32, %[[U:[a-z0-9]*]]: tensor<?xf32>)
// CHECK: %[[AT_LEAST:.*]] = arith.maxsi %[[K]], %c0 : index
// CHECK: %[[USED:.*]] = arith.minsi %[[AT_LEAST]], %c2 : index
// CHECK: scf.for %{{.*}} = %c0 to %[[USED]]
// CHECK: %[[OPEN:.*]] = arith.cmpf oge, %{{.*}}, %[[TH]] : f32
// CHECK: arith.select %[[OPEN]], %{{.*}}, %c-1_i32 : i32
// CHECK: linalg.generic {{.*}} ins(%{{.*}}, %{{.*}}, %[[U]] :
// CHECK: linalg.index 1
// CHECK: arith.cmpf oge
// CHECK: linalg.generic {{.*}} ins(%{{.*}}, %{{.*}}, %[[MASK]] :
func.func @operands(%l: tensor<?x4xf32>, %mask: tensor<?xi1>, %k: index, %th: f32,
    %u: tensor<?xf32>) -> (tensor<?x2xi32>, tensor<?x2xf32>) {
  %ids, %w = moe.gate %l router<> mask(%mask : tensor<?xi1>) top_k(%k)
      threshold(%th : f32) sample(%u : tensor<?xf32>)
      : tensor<?x4xf32> -> tensor<?x2xi32>, tensor<?x2xf32>
  return %ids, %w : tensor<?x2xi32>, tensor<?x2xf32>
}

// The softmax is over the selected logits; ids that are no expert are unused.
// CHECK-LABEL: func.func @replay
// CHECK-SAME: %[[IDS:[a-z0-9]*]]: tensor<?x2xi32>)
// CHECK-NOT: math.exp
// CHECK: scf.for
// CHECK: %[[ID:.*]] = tensor.extract %[[IDS]]
// CHECK: arith.cmpi ult, %[[ID]], %c4_i32 : i32
// CHECK: scf.if
// CHECK: math.exp
func.func @replay(%l: tensor<?x4xf64>, %r: tensor<?x2xi32>)
    -> (tensor<?x2xi32>, tensor<?x2xf64>) {
  %ids, %w = moe.gate %l router<after_top_k> replay(%r : tensor<?x2xi32>)
      : tensor<?x4xf64> -> tensor<?x2xi32>, tensor<?x2xf64>
  return %ids, %w : tensor<?x2xi32>, tensor<?x2xf64>
}

// Every expert sorts the unmasked tokens and takes the first ones.
// CHECK-LABEL: func.func @expert_choice
// CHECK-SAME: %[[MASK:[a-z0-9]*]]: tensor<?xi1>, %[[C:[a-z0-9]*]]: index)
// CHECK: scf.for %[[E:.*]] = %c0 to %c4
// CHECK: %[[OPEN:.*]]:2 = scf.for
// CHECK: tensor.extract %[[MASK]]
// CHECK: math.ctlz
// CHECK: arith.cmpf oge
// CHECK: %[[TAKEN:.*]] = arith.minsi %{{.*}}, %[[OPEN]]#1 : index
// CHECK: scf.for %{{.*}} = %c0 to %[[TAKEN]]
func.func @expert_choice(%l: tensor<?x4xf32>, %mask: tensor<?xi1>, %c: index)
    -> (tensor<?x4xi32>, tensor<?x4xf32>) {
  %ids, %w = moe.gate %l router<expert_choice> mask(%mask : tensor<?xi1>) capacity(%c)
      : tensor<?x4xf32> -> tensor<?x4xi32>, tensor<?x4xf32>
  return %ids, %w : tensor<?x4xi32>, tensor<?x4xf32>
}
