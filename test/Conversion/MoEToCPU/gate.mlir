// RUN: moira-opt %s -split-input-file -convert-moe-to-cpu -canonicalize -cse | FileCheck %s

// One parallel loop over tokens; maximum, exponentials, ordered f64 sum and
// division are loops of their own; then insertion into the best K.

// CHECK-LABEL: @softmax
// CHECK-SAME: %[[LOGITS:.*]]: memref<?x64xbf16>
func.func @softmax(%logits: memref<?x64xbf16>, %ids: memref<?x8xi32>, %weights: memref<?x8xf32>) {
  // CHECK: %[[T:.*]] = memref.dim %[[LOGITS]], %c0
  // CHECK: scf.parallel (%[[I:.*]]) = (%c0) to (%[[T]])
  // CHECK-COUNT-2: memref.alloca() : memref<64xf32>
  // CHECK: %[[TOP:.*]] = scf.for {{.*}} to %c64
  // CHECK: memref.load %[[LOGITS]][%[[I]]
  // CHECK: arith.extf {{.*}} : bf16 to f32
  // CHECK: arith.cmpf uno
  // CHECK: arith.maximumf {{.*}} fastmath<nnan,nsz>
  // CHECK: scf.for {{.*}} to %c64
  // CHECK: math.exp {{.*}} : f32
  // CHECK: scf.for {{.*}} to %c64 {{.*}} -> (f64)
  // CHECK: arith.addf {{.*}} : f64
  // CHECK: arith.truncf {{.*}} : f64 to f32
  // CHECK: scf.for {{.*}} to %c64
  // CHECK: arith.divf
  // CHECK: memref.alloca() : memref<9xf32>
  // CHECK: memref.alloca() : memref<9xi32>
  // CHECK: scf.for {{.*}} %c0 to %c8
  // CHECK: scf.while
  // CHECK: scf.for {{.*}} %c8 to %c64
  // CHECK: scf.if
  // CHECK: scf.while
  // CHECK-NOT: moe.
  moe.gate %logits router<score = softmax>
      outs(%ids, %weights : memref<?x8xi32>, memref<?x8xf32>) : memref<?x64xbf16>
  return
}

// -----

// f64 logits stay f64; replay selects nothing.

// CHECK-LABEL: @replay
func.func @replay(%logits: memref<?x4xf64>, %replay: memref<?x2xi32>,
    %ids: memref<?x2xi32>, %weights: memref<?x2xf64>) {
  // CHECK: math.exp {{.*}} : f64
  // CHECK-NOT: truncf
  // CHECK-NOT: scf.while
  // CHECK: return
  moe.gate %logits router<score = softmax> replay(%replay : memref<?x2xi32>)
      outs(%ids, %weights : memref<?x2xi32>, memref<?x2xf64>) : memref<?x4xf64>
  return
}

// -----

// Expert choice: keys by expert, a search of the bits of the key, no sort.

// CHECK-LABEL: @expert_choice
func.func @expert_choice(%logits: memref<?x4xf32>, %c: index,
    %ids: memref<?x4xi32>, %weights: memref<?x4xf32>) {
  // CHECK: %[[KEYS:.*]] = memref.alloc({{.*}}) : memref<4x?xi32>
  // CHECK: scf.parallel
  // CHECK: memref.store {{.*}}, %[[KEYS]]
  // CHECK: scf.parallel {{.*}} to (%c4)
  // CHECK: scf.for {{.*}} to %c32
  // CHECK: scf.for
  // CHECK: arith.cmpi sge
  // CHECK-NOT: call
  moe.gate %logits router<expert_choice> capacity(%c)
      outs(%ids, %weights : memref<?x4xi32>, memref<?x4xf32>) : memref<?x4xf32>
  return
}

// -----

// Beyond 2048 experts scratch leaves the stack.

// CHECK-LABEL: @many_experts
func.func @many_experts(%logits: memref<?x4000xf32>, %ids: memref<?x2xi32>, %weights: memref<?x2xf32>) {
  // CHECK: memref.alloc({{.*}}) : memref<?x2x4000xf32>
  // CHECK: memref.alloc({{.*}}) : memref<?x3xf32>
  // CHECK: memref.alloc({{.*}}) : memref<?x3xi32>
  // CHECK: scf.parallel
  // CHECK-NOT: memref.alloca
  // CHECK: return
  moe.gate %logits router<score = identity>
      outs(%ids, %weights : memref<?x2xi32>, memref<?x2xf32>) : memref<?x4000xf32>
  return
}
