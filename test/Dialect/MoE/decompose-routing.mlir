// RUN: moira-opt %s -moe-decompose -canonicalize -cse | FileCheck %s

// CHECK-LABEL: func.func @count
// CHECK: scf.for %[[T:.*]] = %c0 to
// CHECK: scf.for %[[J:.*]] = %c0 to %c2
// CHECK: %[[ID:.*]] = tensor.extract %{{.*}}[%[[T]], %[[J]]] : tensor<?x2xi32>
// CHECK: %[[IN:.*]] = arith.cmpi ult, %[[ID]], %c4_i32 : i32
// CHECK: scf.if %[[IN]]
// CHECK: %[[E:.*]] = arith.index_cast %[[ID]]
// CHECK: %[[N:.*]] = tensor.extract %[[COUNTS:.*]][%[[E]]] : tensor<4xi32>
// CHECK: %[[N1:.*]] = arith.addi %[[N]], %c1_i32 : i32
// CHECK: tensor.insert %[[N1]] into %[[COUNTS]][%[[E]]]
func.func @count(%ids: tensor<?x2xi32>) -> tensor<4xi32> {
  %0 = moe.count %ids : tensor<?x2xi32> -> tensor<4xi32>
  return %0 : tensor<4xi32>
}

// CHECK-LABEL: func.func @tutel
// CHECK: arith.ceildivsi
// CHECK: math.absf
// CHECK: arith.fptosi
// CHECK: scf.for
// CHECK: arith.maxsi
// CHECK: arith.cmpf olt
// CHECK: arith.cmpf oeq
// CHECK: arith.minsi
func.func @tutel(%t: index, %f: f64, %k: index, %counts: tensor<4xi32>) -> index {
  %0 = moe.capacity tutel tokens(%t) factor(%f) top_k(%k)
      counts(%counts : tensor<4xi32>) {experts = 4 : i64}
  return %0 : index
}

// CHECK-LABEL: func.func @gshard
// CHECK: math.ceil
// CHECK: arith.divsi %{{.*}}, %c4_i64 : i64
// CHECK: arith.maxsi %{{.*}}, %c2_i64 : i64
func.func @gshard(%t: index, %f: f64, %k: index) -> index {
  %0 = moe.capacity gshard tokens(%t) factor(%f) top_k(%k)
      {experts = 4 : i64, minimum = 2 : i64}
  return %0 : index
}

// CHECK-LABEL: func.func @switch
// CHECK: arith.divf
// CHECK: math.ceil
// CHECK: arith.ceildivsi %{{.*}}, %c8_i64 : i64
func.func @switch(%t: index, %f: f64, %k: index) -> index {
  %0 = moe.capacity switch tokens(%t) factor(%f) top_k(%k)
      {experts = 4 : i64, alignment = 8 : i64}
  return %0 : index
}

// Choices outside, tokens inside; slots become rows by the offset of the group.
// CHECK-LABEL: func.func @choice_major
// CHECK-SAME: (%[[IDS:[a-z0-9]*]]: tensor<?x2xi32>, %{{.*}}: tensor<4xi32>)
// CHECK: %[[BOUND:.*]] = arith.muli %{{.*}}, %c2 : index
// CHECK: %[[R:.*]]:2 = scf.for %[[J:.*]] = %c0 to %c2 step
// CHECK: scf.for %[[T:.*]] = %c0 to %{{.*}} step %c1 iter_args(%[[SLOTS:.*]] = %{{.*}}, %[[SIZES:.*]] = %{{.*}})
// CHECK: %[[ID:.*]] = tensor.extract %[[IDS]][%[[T]], %[[J]]]
// CHECK: %[[SIZE:.*]] = tensor.extract %[[SIZES]]
// CHECK: %[[SLOT:.*]] = arith.select %{{.*}}, %[[SIZE]], %c-1_i32 : i32
// CHECK: tensor.insert %[[SLOT]] into %[[SLOTS]][%[[T]], %[[J]]]
// CHECK: tensor.insert %{{.*}} into %[[SIZES]]
// CHECK: %[[OFFSETS:.*]]:2 = scf.for %{{.*}} = %c0 to %c4
// CHECK: %[[FLAT:.*]] = linalg.generic {{.*}} ins(%[[IDS]] : tensor<?x2xi32>) outs(%[[R]]#0 : tensor<?x2xi32>)
// CHECK: tensor.extract %[[OFFSETS]]#0
// CHECK: return %[[FLAT]], %[[R]]#1, %[[BOUND]]
func.func @choice_major(%ids: tensor<?x2xi32>, %counts: tensor<4xi32>)
    -> (tensor<?x2xi32>, tensor<4xi32>, index) {
  %slots, %sizes, %bound = moe.assign %ids choice_major counts(%counts : tensor<4xi32>)
      : tensor<?x2xi32> -> tensor<?x2xi32>, tensor<4xi32>, index
  return %slots, %sizes, %bound : tensor<?x2xi32>, tensor<4xi32>, index
}

// A group of a padded buffer has capacity * blocks rows; every block may add
// `capacity` rows to what stands already.
// CHECK-LABEL: func.func @padded_blocks
// CHECK-SAME: %[[C:[a-z0-9]*]]: index, %[[BLOCKS:[a-z0-9]*]]: tensor<3xi32>)
// CHECK: scf.for %[[B:.*]] = %c0 to %c3
// CHECK: %[[ROWS:.*]] = tensor.extract %[[BLOCKS]][%[[B]]]
// CHECK: linalg.generic {{.*}} ins(%{{.*}} : tensor<4xi32>) outs(%{{.*}} : tensor<4xindex>)
// CHECK: arith.addi %{{.*}}, %[[C]] : index
// CHECK: scf.for %[[T:.*]] = %{{.*}} to
// CHECK: scf.for %[[J:.*]] = %c0 to %c2
// CHECK: tensor.extract %{{.*}}[%[[T]], %[[J]]]
// CHECK: arith.cmpi slt
// CHECK: %[[P:.*]] = arith.muli %[[C]], %c3 : index
// CHECK: %[[P32:.*]] = arith.index_cast %[[P]]
// CHECK: arith.muli %{{.*}}, %[[P32]] : i32
func.func @padded_blocks(%ids: tensor<?x2xi32>, %counts: tensor<4xi32>, %c: index,
    %blocks: tensor<3xi32>) -> (tensor<?x2xi32>, tensor<4xi32>, index) {
  %slots, %sizes, %bound = moe.assign %ids token_major padded
      counts(%counts : tensor<4xi32>) capacity(%c) blocks(%blocks : tensor<3xi32>)
      : tensor<?x2xi32> -> tensor<?x2xi32>, tensor<4xi32>, index
  return %slots, %sizes, %bound : tensor<?x2xi32>, tensor<4xi32>, index
}

// The orders by priority sort once: tokens, or pairs.
// CHECK-LABEL: func.func @priorities
// CHECK-SAME: %[[PT:[a-z0-9]*]]: tensor<?xf32>, %[[PP:[a-z0-9]*]]: tensor<?x2xf32>)
// CHECK: tensor.empty(%{{.*}}) : tensor<?xi32>
// CHECK: math.ctlz
// CHECK: tensor.extract %[[PT]]
// CHECK: arith.cmpf oge
// CHECK: tensor.extract %{{.*}} : tensor<?x2xi32>
// CHECK: math.ctlz
// CHECK: tensor.extract %[[PP]]
// CHECK: arith.cmpf oge
func.func @priorities(%ids: tensor<?x2xi32>, %counts: tensor<4xi32>, %pt: tensor<?xf32>,
    %pp: tensor<?x2xf32>) -> (tensor<?x2xi32>, tensor<?x2xi32>) {
  %0:3 = moe.assign %ids batch_prioritized counts(%counts : tensor<4xi32>)
      priority(%pt : tensor<?xf32>)
      : tensor<?x2xi32> -> tensor<?x2xi32>, tensor<4xi32>, index
  %1:3 = moe.assign %ids expert_probability counts(%counts : tensor<4xi32>)
      priority(%pp : tensor<?x2xf32>)
      : tensor<?x2xi32> -> tensor<?x2xi32>, tensor<4xi32>, index
  return %0#0, %1#0 : tensor<?x2xi32>, tensor<?x2xi32>
}

// CHECK-LABEL: func.func @noise
// CHECK-SAME: (%{{.*}}: index, %[[SEED:[a-z0-9]*]]: i64, %{{.*}}: i64, %[[FIRST:[a-z0-9]*]]: index)
// CHECK: linalg.generic {{.*}} outs(%{{.*}} : tensor<?x4xf32>)
// CHECK: arith.addi %[[FIRST]], %{{.*}} : index
// CHECK: scf.for %{{.*}} = %c0 to %c10
// CHECK-COUNT-2: arith.mului_extended
// CHECK-COUNT-4: arith.xori
// CHECK: arith.uitofp %{{.*}} : i32 to f64
// CHECK: math.log %{{.*}} : f64
// CHECK: math.sqrt %{{.*}} : f64
// CHECK: math.cos %{{.*}} : f64
// CHECK: arith.truncf %{{.*}} : f64 to f32
func.func @noise(%t: index, %seed: i64, %step: i64, %first: index) -> tensor<?x4xf32> {
  %0 = moe.noise normal rows(%t) seed(%seed) step(%step) first(%first)
      {layer = 3 : i64} -> tensor<?x4xf32>
  return %0 : tensor<?x4xf32>
}
