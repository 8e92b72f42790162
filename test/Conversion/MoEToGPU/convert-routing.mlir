// RUN: moira-opt %s -convert-moe-to-gpu | FileCheck %s

// Routing and movement: a launch each, two where sizes come before slots.

// CHECK-LABEL: func.func @route(
// CHECK-SAME: %[[L:.*]]: memref<?x8xbf16>, %[[I:.*]]: memref<?x2xi32>, %[[W:.*]]: memref<?x2xf32>
// CHECK: %[[T:.*]] = arith.index_cast %{{.*}} : index to i32
// CHECK: moira_nv.launch @moira_gpu::@gate_0 grid(%{{.*}}) block(128) shared(256) args(%[[L]], %[[I]], %[[W]], %[[T]] :
// CHECK: moira_nv.launch @moira_gpu::@count_1
// CHECK: %[[LOW:.*]] = arith.maxsi %[[CAPACITY:.*]], %{{.*}} : index
// CHECK: arith.minsi %[[LOW]], %{{.*}} : index
// CHECK: moira_nv.launch @moira_gpu::@sizes_2 {{.*}} args(%[[I]], %[[N:.*]], %{{.*}}, %[[C:.*]] : memref<?x2xi32>, memref<8xi32>, i32, i32)
// CHECK: moira_nv.launch @moira_gpu::@assign_3 {{.*}} args(%[[I]], %[[N]], %{{.*}}, %{{.*}}, %[[C]] :
// CHECK-NOT: moe.
// CHECK: return
func.func @route(%l: memref<?x8xbf16>, %i: memref<?x2xi32>, %w: memref<?x2xf32>,
                 %n: memref<8xi32>, %s: memref<?x2xi32>, %c: index) {
  moe.gate %l router<normalize = max_sum_eps>
      outs(%i, %w : memref<?x2xi32>, memref<?x2xf32>) : memref<?x8xbf16>
  moe.count %i outs(%n : memref<8xi32>) : memref<?x2xi32>
  moe.assign %i choice_major counts(%n : memref<8xi32>) capacity(%c)
      outs(%s, %n : memref<?x2xi32>, memref<8xi32>) : memref<?x2xi32>
  return
}

// CHECK-LABEL: func.func @move(
// CHECK: moira_nv.launch @moira_gpu::@clear_4
// CHECK: moira_nv.launch @moira_gpu::@sources_5
// CHECK: moira_nv.launch @moira_gpu::@dispatch_6
// CHECK: arith.muli
// CHECK: moira_nv.launch @moira_gpu::@combine_7
// CHECK: return
func.func @move(%x: memref<?x16xbf16>, %s: memref<?x2xi32>, %n: memref<8xi32>,
                %w: memref<?x2xf32>, %b: index, %t: memref<?xi32>,
                %r: memref<?x16xbf16>, %p: memref<8x?x16xbf16>,
                %y: memref<?x16xbf16>) {
  moe.sources %s, %b outs(%t : memref<?xi32>) : memref<?x2xi32>
  moe.dispatch %x, %s, %n, %b outs(%r : memref<?x16xbf16>)
      : memref<?x16xbf16>, memref<?x2xi32>, memref<8xi32>
  moe.combine %p, %s weights(%w : memref<?x2xf32>) outs(%y : memref<?x16xbf16>)
      : memref<8x?x16xbf16>, memref<?x2xi32>
  return
}

// Every option is a parameter; gates by expert are three launches.

// CHECK-LABEL: func.func @options(
// CHECK-SAME: %[[L:.*]]: memref<?x16xf32>, %[[B:.*]]: memref<16xf32>, %[[M:.*]]: memref<?xi1>, %[[P:.*]]: memref<?x2xi32>, %[[U:.*]]: memref<?xf32>, %[[K:.*]]: index, %[[H:.*]]: f32, %[[I:.*]]: memref<?x2xi32>, %[[W:.*]]: memref<?x2xf32>)
// CHECK: moira_nv.launch @moira_gpu::@gate_8 {{.*}} shared(576) args(%[[L]], %[[B]], %[[M]], %[[P]], %[[U]], %[[I]], %[[W]], %{{.*}}, %{{.*}}, %[[H]] :
func.func @options(%l: memref<?x16xf32>, %b: memref<16xf32>, %m: memref<?xi1>,
                   %p: memref<?x2xi32>, %u: memref<?xf32>, %k: index, %h: f32,
                   %i: memref<?x2xi32>, %w: memref<?x2xf32>) {
  moe.gate %l router<groups = 4, keep = 2> bias(%b : memref<16xf32>)
      mask(%m : memref<?xi1>) top_k(%k) threshold(%h : f32)
      replay(%p : memref<?x2xi32>) sample(%u : memref<?xf32>)
      outs(%i, %w : memref<?x2xi32>, memref<?x2xf32>) : memref<?x16xf32>
  return
}

// CHECK-LABEL: func.func @byExpert(
// CHECK: moira_nv.launch @moira_gpu::@scores_9
// CHECK: moira_nv.launch @moira_gpu::@choice_10
// CHECK: moira_nv.launch @moira_gpu::@weights_11
// CHECK: moira_nv.launch @moira_gpu::@scores_12
// CHECK: moira_nv.launch @moira_gpu::@choice_13
// CHECK-NOT: moira_nv.launch
// CHECK: return
func.func @byExpert(%l: memref<?x8xf32>, %c: index, %i: memref<?x8xi32>,
                    %w: memref<?x8xf32>) {
  moe.gate %l router<normalize = sum_plus_eps, expert_choice> capacity(%c)
      outs(%i, %w : memref<?x8xi32>, memref<?x8xf32>) : memref<?x8xf32>
  moe.gate %l router<expert_choice> capacity(%c)
      outs(%i, %w : memref<?x8xi32>, memref<?x8xf32>) : memref<?x8xf32>
  return
}

// CHECK-LABEL: func.func @place(
// CHECK-SAME: %[[I:.*]]: memref<?x2xi32>, %[[N:.*]]: memref<8xi32>, %[[P:.*]]: memref<?x2xf32>, %[[B:.*]]: memref<?xi32>, %[[S:.*]]: memref<?x2xi32>)
// CHECK: moira_nv.launch @moira_gpu::@sizes_14 {{.*}} args(%[[I]], %[[B]], %[[N]], %{{.*}}, %{{.*}}, %{{.*}} :
// CHECK: %[[SCRATCH:.*]] = memref.alloc(%{{.*}}) : memref<?xi64>
// CHECK: moira_nv.launch @moira_gpu::@assign_15 {{.*}} shared(320) args(%[[I]], %[[P]], %[[B]], %[[N]], %[[S]], %[[SCRATCH]], %{{.*}}, %{{.*}}, %{{.*}} :
func.func @place(%i: memref<?x2xi32>, %n: memref<8xi32>, %p: memref<?x2xf32>,
                 %b: memref<?xi32>, %s: memref<?x2xi32>) {
  moe.assign %i expert_probability counts(%n : memref<8xi32>)
      priority(%p : memref<?x2xf32>) blocks(%b : memref<?xi32>)
      outs(%s, %n : memref<?x2xi32>, memref<8xi32>) : memref<?x2xi32>
  return
}

// CHECK-LABEL: func.func @noise(
// CHECK-SAME: %[[T:.*]]: index, %[[SEED:.*]]: i64, %[[STEP:.*]]: i64, %[[O:.*]]: memref<?x8xf32>)
// CHECK: moira_nv.launch @moira_gpu::@noise_16 {{.*}} args(%[[O]], %{{.*}}, %[[SEED]], %[[STEP]], %{{.*}} : memref<?x8xf32>, i32, i64, i64, i64)
func.func @noise(%t: index, %seed: i64, %step: i64, %o: memref<?x8xf32>) {
  moe.noise normal rows(%t) seed(%seed) step(%step) first(%t)
      outs(%o : memref<?x8xf32>) {layer = 1 : i64}
  return
}
