// The six tokens of docs/routing.md by Tutel's rules, in buffer form: gate,
// count, capacity, assign, dispatch, experts that compute (e + 1) * relu(x), and
// combine. Token t is the row [t + 1, 10 (t + 1)].
//
// RUN: moira-opt %s -convert-moe-to-cpu | %run_loops | FileCheck %s

func.func private @printMemrefF32(memref<*xf32>) attributes {llvm.emit_c_interface}
func.func private @printMemrefI32(memref<*xi32>) attributes {llvm.emit_c_interface}

memref.global "private" constant @tokens : memref<6x4xf32> = dense<[
    [2.0, 1.0, 0.0, -1.0], [2.0, 0.0, 1.0, -1.0], [1.5, 0.5, 0.0, 0.0],
    [0.0, 3.0, 1.0, 0.0], [2.5, 0.0, 0.0, 1.0], [0.5, 0.0, 0.0, 2.0]]>

func.func private @rows(%x: memref<6x2xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c6 = arith.constant 6 : index
  %ten = arith.constant 10.0 : f32
  scf.for %t = %c0 to %c6 step %c1 {
    %t1 = arith.addi %t, %c1 : index
    %i = arith.index_cast %t1 : index to i32
    %f = arith.sitofp %i : i32 to f32
    memref.store %f, %x[%t, %c0] : memref<6x2xf32>
    %g = arith.mulf %f, %ten : f32
    memref.store %g, %x[%t, %c1] : memref<6x2xf32>
  }
  return
}

// Row i of expert e is row first[e] + i, where first is the sum of the lower
// sizes, or e * padded.
func.func private @experts(%rows: memref<?x2xf32>, %sizes: memref<4xi32>, %padded: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c4 = arith.constant 4 : index
  %zero = arith.constant 0.0 : f32
  %isPadded = arith.cmpi ne, %padded, %c0 : index
  scf.for %e = %c0 to %c4 step %c1 iter_args(%first = %c0) -> (index) {
    %s = memref.load %sizes[%e] : memref<4xi32>
    %size = arith.index_cast %s : i32 to index
    %e1 = arith.addi %e, %c1 : index
    %i = arith.index_cast %e1 : index to i32
    %scale = arith.sitofp %i : i32 to f32
    scf.for %r = %c0 to %size step %c1 {
      %row = arith.addi %first, %r : index
      scf.for %d = %c0 to %c2 step %c1 {
        %v = memref.load %rows[%row, %d] : memref<?x2xf32>
        %relu = arith.maximumf %v, %zero : f32
        %y = arith.mulf %scale, %relu : f32
        memref.store %y, %rows[%row, %d] : memref<?x2xf32>
      }
    }
    %step = arith.select %isPadded, %padded, %size : index
    %next = arith.addi %first, %step : index
    scf.yield %next : index
  }
  return
}


// k 1, f 1: C = 2; (2,0) and (4,0) are dropped.
func.func private @c1() {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %c6 = arith.constant 6 : index
  %k = arith.constant 1 : index
  %factor = arith.constant 1.0 : f64
  %logits = memref.get_global @tokens : memref<6x4xf32>
  %x = memref.alloc() : memref<6x2xf32>
  call @rows(%x) : (memref<6x2xf32>) -> ()
  %ids = memref.alloc() : memref<6x1xi32>
  %weights = memref.alloc() : memref<6x1xf32>
  moe.gate %logits router<score = softmax>
      outs(%ids, %weights : memref<6x1xi32>, memref<6x1xf32>) : memref<6x4xf32>
  %counts = memref.alloc() : memref<4xi32>
  moe.count %ids outs(%counts : memref<4xi32>) : memref<6x1xi32>
  %c = moe.capacity tutel tokens(%c6) factor(%factor) top_k(%k)
      counts(%counts : memref<4xi32>) {experts = 4 : i64}
  %slots = memref.alloc() : memref<6x1xi32>
  %sizes = memref.alloc() : memref<4xi32>
  moe.assign %ids choice_major counts(%counts : memref<4xi32>) capacity(%c)
      outs(%slots, %sizes : memref<6x1xi32>, memref<4xi32>) : memref<6x1xi32>
  %s0 = memref.cast %slots : memref<6x1xi32> to memref<*xi32>
  call @printMemrefI32(%s0) : (memref<*xi32>) -> ()
  %s1 = memref.cast %sizes : memref<4xi32> to memref<*xi32>
  call @printMemrefI32(%s1) : (memref<*xi32>) -> ()
  %bound = arith.muli %c6, %k : index
  %rows = memref.alloc(%bound) : memref<?x2xf32>
  moe.dispatch %x, %slots, %sizes, %bound outs(%rows : memref<?x2xf32>)
      : memref<6x2xf32>, memref<6x1xi32>, memref<4xi32>
  call @experts(%rows, %sizes, %c0) : (memref<?x2xf32>, memref<4xi32>, index) -> ()
  %y = memref.alloc() : memref<6x2xf32>
  moe.combine %rows, %slots weights(%weights : memref<6x1xf32>) outs(%y : memref<6x2xf32>)
      : memref<?x2xf32>, memref<6x1xi32>
  %y0 = memref.cast %y : memref<6x2xf32> to memref<*xf32>
  call @printMemrefF32(%y0) : (memref<*xf32>) -> ()
  return
}
// CHECK: {{\[\[}}0],
// CHECK-NEXT: [1],
// CHECK-NEXT: [-1],
// CHECK-NEXT: [2],
// CHECK-NEXT: [-1],
// CHECK-NEXT: [3{{\]\]}}
// CHECK: [2, 1, 0, 1]
// CHECK: {{\[\[}}0.643914, {{.*}}],
// CHECK-NEXT: [1.28783, {{.*}}],
// CHECK-NEXT: [0, {{.*}}],
// CHECK-NEXT: [6.47821, {{.*}}],
// CHECK-NEXT: [0, {{.*}}],
// CHECK-NEXT: [16.0664, {{.*}}{{\]\]}}

// k 2, f 1: C = 4; (5,1) is dropped.
func.func private @c2() {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %c6 = arith.constant 6 : index
  %k = arith.constant 2 : index
  %factor = arith.constant 1.0 : f64
  %logits = memref.get_global @tokens : memref<6x4xf32>
  %x = memref.alloc() : memref<6x2xf32>
  call @rows(%x) : (memref<6x2xf32>) -> ()
  %ids = memref.alloc() : memref<6x2xi32>
  %weights = memref.alloc() : memref<6x2xf32>
  moe.gate %logits router<normalize = max_sum_eps>
      outs(%ids, %weights : memref<6x2xi32>, memref<6x2xf32>) : memref<6x4xf32>
  %counts = memref.alloc() : memref<4xi32>
  moe.count %ids outs(%counts : memref<4xi32>) : memref<6x2xi32>
  %c = moe.capacity tutel tokens(%c6) factor(%factor) top_k(%k)
      counts(%counts : memref<4xi32>) {experts = 4 : i64}
  %slots = memref.alloc() : memref<6x2xi32>
  %sizes = memref.alloc() : memref<4xi32>
  moe.assign %ids choice_major counts(%counts : memref<4xi32>) capacity(%c)
      outs(%slots, %sizes : memref<6x2xi32>, memref<4xi32>) : memref<6x2xi32>
  %s0 = memref.cast %slots : memref<6x2xi32> to memref<*xi32>
  call @printMemrefI32(%s0) : (memref<*xi32>) -> ()
  %s1 = memref.cast %sizes : memref<4xi32> to memref<*xi32>
  call @printMemrefI32(%s1) : (memref<*xi32>) -> ()
  %bound = arith.muli %c6, %k : index
  %rows = memref.alloc(%bound) : memref<?x2xf32>
  moe.dispatch %x, %slots, %sizes, %bound outs(%rows : memref<?x2xf32>)
      : memref<6x2xf32>, memref<6x2xi32>, memref<4xi32>
  call @experts(%rows, %sizes, %c0) : (memref<?x2xf32>, memref<4xi32>, index) -> ()
  %y = memref.alloc() : memref<6x2xf32>
  moe.combine %rows, %slots weights(%weights : memref<6x2xf32>) outs(%y : memref<6x2xf32>)
      : memref<?x2xf32>, memref<6x2xi32>
  %y0 = memref.cast %y : memref<6x2xf32> to memref<*xf32>
  call @printMemrefF32(%y0) : (memref<*xf32>) -> ()
  return
}
// CHECK: {{\[\[}}0, 5],
// CHECK-NEXT: [1, 7],
// CHECK-NEXT: [2, 6],
// CHECK-NEXT: [4, 8],
// CHECK-NEXT: [3, 10],
// CHECK-NEXT: [9, -1{{\]\]}}
// CHECK: [4, 3, 2, 2]
// CHECK: {{\[\[}}1.26894, {{.*}}],
// CHECK-NEXT: [3.07577, {{.*}}],
// CHECK-NEXT: [3.80682, {{.*}}],
// CHECK-NEXT: [8.47681, {{.*}}],
// CHECK-NEXT: [7.73638, {{.*}}],
// CHECK-NEXT: [19.6218, {{.*}}{{\]\]}}

// The same, padded: slot = 4 e + place.
func.func private @c2_padded() {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %c6 = arith.constant 6 : index
  %k = arith.constant 2 : index
  %factor = arith.constant 1.0 : f64
  %logits = memref.get_global @tokens : memref<6x4xf32>
  %x = memref.alloc() : memref<6x2xf32>
  call @rows(%x) : (memref<6x2xf32>) -> ()
  %ids = memref.alloc() : memref<6x2xi32>
  %weights = memref.alloc() : memref<6x2xf32>
  moe.gate %logits router<normalize = max_sum_eps>
      outs(%ids, %weights : memref<6x2xi32>, memref<6x2xf32>) : memref<6x4xf32>
  %counts = memref.alloc() : memref<4xi32>
  moe.count %ids outs(%counts : memref<4xi32>) : memref<6x2xi32>
  %c = moe.capacity tutel tokens(%c6) factor(%factor) top_k(%k)
      counts(%counts : memref<4xi32>) {experts = 4 : i64}
  %slots = memref.alloc() : memref<6x2xi32>
  %sizes = memref.alloc() : memref<4xi32>
  moe.assign %ids choice_major padded counts(%counts : memref<4xi32>) capacity(%c)
      outs(%slots, %sizes : memref<6x2xi32>, memref<4xi32>) : memref<6x2xi32>
  %s0 = memref.cast %slots : memref<6x2xi32> to memref<*xi32>
  call @printMemrefI32(%s0) : (memref<*xi32>) -> ()
  %s1 = memref.cast %sizes : memref<4xi32> to memref<*xi32>
  call @printMemrefI32(%s1) : (memref<*xi32>) -> ()
  %bound = arith.muli %c, %c4 : index
  %rows = memref.alloc(%c) : memref<4x?x2xf32>
  moe.dispatch %x, %slots, %sizes, %bound outs(%rows : memref<4x?x2xf32>)
      : memref<6x2xf32>, memref<6x2xi32>, memref<4xi32>
  %flat = memref.collapse_shape %rows [[0, 1], [2]] : memref<4x?x2xf32> into memref<?x2xf32>
  call @experts(%flat, %sizes, %c) : (memref<?x2xf32>, memref<4xi32>, index) -> ()
  %y = memref.alloc() : memref<6x2xf32>
  moe.combine %rows, %slots weights(%weights : memref<6x2xf32>) outs(%y : memref<6x2xf32>)
      : memref<4x?x2xf32>, memref<6x2xi32>
  %y0 = memref.cast %y : memref<6x2xf32> to memref<*xf32>
  call @printMemrefF32(%y0) : (memref<*xf32>) -> ()
  return
}
// CHECK: {{\[\[}}0, 5],
// CHECK-NEXT: [1, 8],
// CHECK-NEXT: [2, 6],
// CHECK-NEXT: [4, 9],
// CHECK-NEXT: [3, 13],
// CHECK-NEXT: [12, -1{{\]\]}}
// CHECK: [4, 3, 2, 2]
// CHECK: {{\[\[}}1.26894, {{.*}}],
// CHECK-NEXT: [3.07577, {{.*}}],
// CHECK-NEXT: [3.80682, {{.*}}],
// CHECK-NEXT: [8.47681, {{.*}}],
// CHECK-NEXT: [7.73638, {{.*}}],
// CHECK-NEXT: [19.6218, {{.*}}{{\]\]}}

// k 2, f 0.5: C = 2; (2,0), (2,1), (4,0) and (5,1) are dropped.
func.func private @c3() {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %c6 = arith.constant 6 : index
  %k = arith.constant 2 : index
  %factor = arith.constant 0.5 : f64
  %logits = memref.get_global @tokens : memref<6x4xf32>
  %x = memref.alloc() : memref<6x2xf32>
  call @rows(%x) : (memref<6x2xf32>) -> ()
  %ids = memref.alloc() : memref<6x2xi32>
  %weights = memref.alloc() : memref<6x2xf32>
  moe.gate %logits router<normalize = max_sum_eps>
      outs(%ids, %weights : memref<6x2xi32>, memref<6x2xf32>) : memref<6x4xf32>
  %counts = memref.alloc() : memref<4xi32>
  moe.count %ids outs(%counts : memref<4xi32>) : memref<6x2xi32>
  %c = moe.capacity tutel tokens(%c6) factor(%factor) top_k(%k)
      counts(%counts : memref<4xi32>) {experts = 4 : i64}
  %slots = memref.alloc() : memref<6x2xi32>
  %sizes = memref.alloc() : memref<4xi32>
  moe.assign %ids choice_major counts(%counts : memref<4xi32>) capacity(%c)
      outs(%slots, %sizes : memref<6x2xi32>, memref<4xi32>) : memref<6x2xi32>
  %s0 = memref.cast %slots : memref<6x2xi32> to memref<*xi32>
  call @printMemrefI32(%s0) : (memref<*xi32>) -> ()
  %s1 = memref.cast %sizes : memref<4xi32> to memref<*xi32>
  call @printMemrefI32(%s1) : (memref<*xi32>) -> ()
  %bound = arith.muli %c6, %k : index
  %rows = memref.alloc(%bound) : memref<?x2xf32>
  moe.dispatch %x, %slots, %sizes, %bound outs(%rows : memref<?x2xf32>)
      : memref<6x2xf32>, memref<6x2xi32>, memref<4xi32>
  call @experts(%rows, %sizes, %c0) : (memref<?x2xf32>, memref<4xi32>, index) -> ()
  %y = memref.alloc() : memref<6x2xf32>
  moe.combine %rows, %slots weights(%weights : memref<6x2xf32>) outs(%y : memref<6x2xf32>)
      : memref<?x2xf32>, memref<6x2xi32>
  %y0 = memref.cast %y : memref<6x2xf32> to memref<*xf32>
  call @printMemrefF32(%y0) : (memref<*xf32>) -> ()
  return
}
// CHECK: {{\[\[}}0, 3],
// CHECK-NEXT: [1, 4],
// CHECK-NEXT: [-1, -1],
// CHECK-NEXT: [2, 5],
// CHECK-NEXT: [-1, 7],
// CHECK-NEXT: [6, -1{{\]\]}}
// CHECK: [2, 2, 2, 2]
// CHECK: {{\[\[}}1.26894, {{.*}}],
// CHECK-NEXT: [3.07577, {{.*}}],
// CHECK-NEXT: [0, {{.*}}],
// CHECK-NEXT: [8.47681, {{.*}}],
// CHECK-NEXT: [3.64851, {{.*}}],
// CHECK-NEXT: [19.6218, {{.*}}{{\]\]}}

// k 1, f 0: as many as needed.
func.func private @c4() {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %c6 = arith.constant 6 : index
  %k = arith.constant 1 : index
  %factor = arith.constant 0.0 : f64
  %logits = memref.get_global @tokens : memref<6x4xf32>
  %x = memref.alloc() : memref<6x2xf32>
  call @rows(%x) : (memref<6x2xf32>) -> ()
  %ids = memref.alloc() : memref<6x1xi32>
  %weights = memref.alloc() : memref<6x1xf32>
  moe.gate %logits router<score = softmax>
      outs(%ids, %weights : memref<6x1xi32>, memref<6x1xf32>) : memref<6x4xf32>
  %counts = memref.alloc() : memref<4xi32>
  moe.count %ids outs(%counts : memref<4xi32>) : memref<6x1xi32>
  %c = moe.capacity tutel tokens(%c6) factor(%factor) top_k(%k)
      counts(%counts : memref<4xi32>) {experts = 4 : i64}
  %slots = memref.alloc() : memref<6x1xi32>
  %sizes = memref.alloc() : memref<4xi32>
  moe.assign %ids choice_major counts(%counts : memref<4xi32>) capacity(%c)
      outs(%slots, %sizes : memref<6x1xi32>, memref<4xi32>) : memref<6x1xi32>
  %bound = arith.muli %c6, %k : index
  %rows = memref.alloc(%bound) : memref<?x2xf32>
  moe.dispatch %x, %slots, %sizes, %bound outs(%rows : memref<?x2xf32>)
      : memref<6x2xf32>, memref<6x1xi32>, memref<4xi32>
  call @experts(%rows, %sizes, %c0) : (memref<?x2xf32>, memref<4xi32>, index) -> ()
  %y = memref.alloc() : memref<6x2xf32>
  moe.combine %rows, %slots weights(%weights : memref<6x1xf32>) outs(%y : memref<6x2xf32>)
      : memref<?x2xf32>, memref<6x1xi32>
  %y0 = memref.cast %y : memref<6x2xf32> to memref<*xf32>
  call @printMemrefF32(%y0) : (memref<*xf32>) -> ()
  return
}
// CHECK: {{\[\[}}0.643914, {{.*}}],
// CHECK-NEXT: [1.28783, {{.*}}],
// CHECK-NEXT: [1.65368, {{.*}}],
// CHECK-NEXT: [6.47821, {{.*}}],
// CHECK-NEXT: [3.60412, {{.*}}],
// CHECK-NEXT: [16.0664, {{.*}}{{\]\]}}

// k 2, f 0.
func.func private @c5() {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %c6 = arith.constant 6 : index
  %k = arith.constant 2 : index
  %factor = arith.constant 0.0 : f64
  %logits = memref.get_global @tokens : memref<6x4xf32>
  %x = memref.alloc() : memref<6x2xf32>
  call @rows(%x) : (memref<6x2xf32>) -> ()
  %ids = memref.alloc() : memref<6x2xi32>
  %weights = memref.alloc() : memref<6x2xf32>
  moe.gate %logits router<normalize = max_sum_eps>
      outs(%ids, %weights : memref<6x2xi32>, memref<6x2xf32>) : memref<6x4xf32>
  %counts = memref.alloc() : memref<4xi32>
  moe.count %ids outs(%counts : memref<4xi32>) : memref<6x2xi32>
  %c = moe.capacity tutel tokens(%c6) factor(%factor) top_k(%k)
      counts(%counts : memref<4xi32>) {experts = 4 : i64}
  %slots = memref.alloc() : memref<6x2xi32>
  %sizes = memref.alloc() : memref<4xi32>
  moe.assign %ids choice_major padded counts(%counts : memref<4xi32>) capacity(%c)
      outs(%slots, %sizes : memref<6x2xi32>, memref<4xi32>) : memref<6x2xi32>
  %bound = arith.muli %c, %c4 : index
  %rows = memref.alloc(%c) : memref<4x?x2xf32>
  moe.dispatch %x, %slots, %sizes, %bound outs(%rows : memref<4x?x2xf32>)
      : memref<6x2xf32>, memref<6x2xi32>, memref<4xi32>
  %flat = memref.collapse_shape %rows [[0, 1], [2]] : memref<4x?x2xf32> into memref<?x2xf32>
  call @experts(%flat, %sizes, %c) : (memref<?x2xf32>, memref<4xi32>, index) -> ()
  %y = memref.alloc() : memref<6x2xf32>
  moe.combine %rows, %slots weights(%weights : memref<6x2xf32>) outs(%y : memref<6x2xf32>)
      : memref<4x?x2xf32>, memref<6x2xi32>
  %y0 = memref.cast %y : memref<6x2xf32> to memref<*xf32>
  call @printMemrefF32(%y0) : (memref<*xf32>) -> ()
  return
}
// CHECK: {{\[\[}}1.26894, {{.*}}],
// CHECK-NEXT: [3.07577, {{.*}}],
// CHECK-NEXT: [3.80682, {{.*}}],
// CHECK-NEXT: [8.47681, {{.*}}],
// CHECK-NEXT: [7.73638, {{.*}}],
// CHECK-NEXT: [20.7163, {{.*}}{{\]\]}}

// k 1, f 1, best tokens first; tokens 0 and 1 tie.
func.func private @c7() {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %c6 = arith.constant 6 : index
  %k = arith.constant 1 : index
  %factor = arith.constant 1.0 : f64
  %logits = memref.get_global @tokens : memref<6x4xf32>
  %x = memref.alloc() : memref<6x2xf32>
  call @rows(%x) : (memref<6x2xf32>) -> ()
  %ids = memref.alloc() : memref<6x1xi32>
  %weights = memref.alloc() : memref<6x1xf32>
  moe.gate %logits router<score = softmax>
      outs(%ids, %weights : memref<6x1xi32>, memref<6x1xf32>) : memref<6x4xf32>
  %counts = memref.alloc() : memref<4xi32>
  moe.count %ids outs(%counts : memref<4xi32>) : memref<6x1xi32>
  %c = moe.capacity tutel tokens(%c6) factor(%factor) top_k(%k)
      counts(%counts : memref<4xi32>) {experts = 4 : i64}
  %p = memref.alloc() : memref<6xf32>
  scf.for %t = %c0 to %c6 step %c1 {
    %best = memref.load %weights[%t, %c0] : memref<6x1xf32>
    memref.store %best, %p[%t] : memref<6xf32>
  }
  %slots = memref.alloc() : memref<6x1xi32>
  %sizes = memref.alloc() : memref<4xi32>
  moe.assign %ids batch_prioritized counts(%counts : memref<4xi32>) capacity(%c) priority(%p : memref<6xf32>)
      outs(%slots, %sizes : memref<6x1xi32>, memref<4xi32>) : memref<6x1xi32>
  %s0 = memref.cast %slots : memref<6x1xi32> to memref<*xi32>
  call @printMemrefI32(%s0) : (memref<*xi32>) -> ()
  %s1 = memref.cast %sizes : memref<4xi32> to memref<*xi32>
  call @printMemrefI32(%s1) : (memref<*xi32>) -> ()
  %bound = arith.muli %c6, %k : index
  %rows = memref.alloc(%bound) : memref<?x2xf32>
  moe.dispatch %x, %slots, %sizes, %bound outs(%rows : memref<?x2xf32>)
      : memref<6x2xf32>, memref<6x1xi32>, memref<4xi32>
  call @experts(%rows, %sizes, %c0) : (memref<?x2xf32>, memref<4xi32>, index) -> ()
  %y = memref.alloc() : memref<6x2xf32>
  moe.combine %rows, %slots weights(%weights : memref<6x1xf32>) outs(%y : memref<6x2xf32>)
      : memref<?x2xf32>, memref<6x1xi32>
  %y0 = memref.cast %y : memref<6x2xf32> to memref<*xf32>
  call @printMemrefF32(%y0) : (memref<*xf32>) -> ()
  return
}
// CHECK: {{\[\[}}1],
// CHECK-NEXT: [-1],
// CHECK-NEXT: [-1],
// CHECK-NEXT: [2],
// CHECK-NEXT: [0],
// CHECK-NEXT: [3{{\]\]}}
// CHECK: [2, 1, 0, 1]
// CHECK: {{\[\[}}0.643914, {{.*}}],
// CHECK-NEXT: [0, {{.*}}],
// CHECK-NEXT: [0, {{.*}}],
// CHECK-NEXT: [6.47821, {{.*}}],
// CHECK-NEXT: [3.60412, {{.*}}],
// CHECK-NEXT: [16.0664, {{.*}}{{\]\]}}

// What is needed comes from the counts, not from the order.
func.func private @b1() {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %c6 = arith.constant 6 : index
  %k = arith.constant 2 : index
  %factor = arith.constant 0.0 : f64
  %logits = memref.get_global @tokens : memref<6x4xf32>
  %x = memref.alloc() : memref<6x2xf32>
  call @rows(%x) : (memref<6x2xf32>) -> ()
  %ids = memref.alloc() : memref<6x2xi32>
  %weights = memref.alloc() : memref<6x2xf32>
  moe.gate %logits router<normalize = max_sum_eps>
      outs(%ids, %weights : memref<6x2xi32>, memref<6x2xf32>) : memref<6x4xf32>
  %counts = memref.alloc() : memref<4xi32>
  moe.count %ids outs(%counts : memref<4xi32>) : memref<6x2xi32>
  %c = moe.capacity tutel tokens(%c6) factor(%factor) top_k(%k)
      counts(%counts : memref<4xi32>) {experts = 4 : i64}
  %p = memref.alloc() : memref<6xf32>
  scf.for %t = %c0 to %c6 step %c1 {
    %best = memref.load %weights[%t, %c0] : memref<6x2xf32>
    memref.store %best, %p[%t] : memref<6xf32>
  }
  %slots = memref.alloc() : memref<6x2xi32>
  %sizes = memref.alloc() : memref<4xi32>
  moe.assign %ids batch_prioritized counts(%counts : memref<4xi32>) capacity(%c) priority(%p : memref<6xf32>)
      outs(%slots, %sizes : memref<6x2xi32>, memref<4xi32>) : memref<6x2xi32>
  %bound = arith.muli %c6, %k : index
  %rows = memref.alloc(%bound) : memref<?x2xf32>
  moe.dispatch %x, %slots, %sizes, %bound outs(%rows : memref<?x2xf32>)
      : memref<6x2xf32>, memref<6x2xi32>, memref<4xi32>
  call @experts(%rows, %sizes, %c0) : (memref<?x2xf32>, memref<4xi32>, index) -> ()
  %y = memref.alloc() : memref<6x2xf32>
  moe.combine %rows, %slots weights(%weights : memref<6x2xf32>) outs(%y : memref<6x2xf32>)
      : memref<?x2xf32>, memref<6x2xi32>
  %y0 = memref.cast %y : memref<6x2xf32> to memref<*xf32>
  call @printMemrefF32(%y0) : (memref<*xf32>) -> ()
  return
}
// CHECK: {{\[\[}}1.26894, {{.*}}],
// CHECK-NEXT: [3.07577, {{.*}}],
// CHECK-NEXT: [3.80682, {{.*}}],
// CHECK-NEXT: [8.47681, {{.*}}],
// CHECK-NEXT: [7.73638, {{.*}}],
// CHECK-NEXT: [20.7163, {{.*}}{{\]\]}}

// k 4, f 1: C = 8; every expert gets every token.
func.func private @c9() {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %c6 = arith.constant 6 : index
  %k = arith.constant 4 : index
  %factor = arith.constant 1.0 : f64
  %logits = memref.get_global @tokens : memref<6x4xf32>
  %x = memref.alloc() : memref<6x2xf32>
  call @rows(%x) : (memref<6x2xf32>) -> ()
  %ids = memref.alloc() : memref<6x4xi32>
  %weights = memref.alloc() : memref<6x4xf32>
  moe.gate %logits router<normalize = max_sum_eps>
      outs(%ids, %weights : memref<6x4xi32>, memref<6x4xf32>) : memref<6x4xf32>
  %counts = memref.alloc() : memref<4xi32>
  moe.count %ids outs(%counts : memref<4xi32>) : memref<6x4xi32>
  %c = moe.capacity tutel tokens(%c6) factor(%factor) top_k(%k)
      counts(%counts : memref<4xi32>) {experts = 4 : i64}
  %slots = memref.alloc() : memref<6x4xi32>
  %sizes = memref.alloc() : memref<4xi32>
  moe.assign %ids choice_major counts(%counts : memref<4xi32>) capacity(%c)
      outs(%slots, %sizes : memref<6x4xi32>, memref<4xi32>) : memref<6x4xi32>
  %s0 = memref.cast %slots : memref<6x4xi32> to memref<*xi32>
  call @printMemrefI32(%s0) : (memref<*xi32>) -> ()
  %s1 = memref.cast %sizes : memref<4xi32> to memref<*xi32>
  call @printMemrefI32(%s1) : (memref<*xi32>) -> ()
  %bound = arith.muli %c6, %k : index
  %rows = memref.alloc(%bound) : memref<?x2xf32>
  moe.dispatch %x, %slots, %sizes, %bound outs(%rows : memref<?x2xf32>)
      : memref<6x2xf32>, memref<6x4xi32>, memref<4xi32>
  call @experts(%rows, %sizes, %c0) : (memref<?x2xf32>, memref<4xi32>, index) -> ()
  %y = memref.alloc() : memref<6x2xf32>
  moe.combine %rows, %slots weights(%weights : memref<6x4xf32>) outs(%y : memref<6x2xf32>)
      : memref<?x2xf32>, memref<6x4xi32>
  %y0 = memref.cast %y : memref<6x2xf32> to memref<*xf32>
  call @printMemrefF32(%y0) : (memref<*xf32>) -> ()
  return
}
// CHECK: {{\[\[}}0, 7, 14, 20],
// CHECK-NEXT: [1, 12, 9, 21],
// CHECK-NEXT: [2, 8, 15, 22],
// CHECK-NEXT: [6, 13, 5, 23],
// CHECK-NEXT: [3, 19, 10, 16],
// CHECK-NEXT: [18, 4, 11, 17{{\]\]}}
// CHECK: [6, 6, 6, 6]
// CHECK: {{\[\[}}1.50735, {{.*}}],
// CHECK-NEXT: [3.31417, {{.*}}],
// CHECK-NEXT: [5.45328, {{.*}}],
// CHECK-NEXT: [8.59963, {{.*}}],
// CHECK-NEXT: [8.3001, {{.*}}],
// CHECK-NEXT: [19.6806, {{.*}}{{\]\]}}

// k 2, f 1, not normalised.
func.func private @c11() {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %c6 = arith.constant 6 : index
  %k = arith.constant 2 : index
  %factor = arith.constant 1.0 : f64
  %logits = memref.get_global @tokens : memref<6x4xf32>
  %x = memref.alloc() : memref<6x2xf32>
  call @rows(%x) : (memref<6x2xf32>) -> ()
  %ids = memref.alloc() : memref<6x2xi32>
  %weights = memref.alloc() : memref<6x2xf32>
  moe.gate %logits router<score = softmax>
      outs(%ids, %weights : memref<6x2xi32>, memref<6x2xf32>) : memref<6x4xf32>
  %counts = memref.alloc() : memref<4xi32>
  moe.count %ids outs(%counts : memref<4xi32>) : memref<6x2xi32>
  %c = moe.capacity tutel tokens(%c6) factor(%factor) top_k(%k)
      counts(%counts : memref<4xi32>) {experts = 4 : i64}
  %slots = memref.alloc() : memref<6x2xi32>
  %sizes = memref.alloc() : memref<4xi32>
  moe.assign %ids choice_major counts(%counts : memref<4xi32>) capacity(%c)
      outs(%slots, %sizes : memref<6x2xi32>, memref<4xi32>) : memref<6x2xi32>
  %bound = arith.muli %c6, %k : index
  %rows = memref.alloc(%bound) : memref<?x2xf32>
  moe.dispatch %x, %slots, %sizes, %bound outs(%rows : memref<?x2xf32>)
      : memref<6x2xf32>, memref<6x2xi32>, memref<4xi32>
  call @experts(%rows, %sizes, %c0) : (memref<?x2xf32>, memref<4xi32>, index) -> ()
  %y = memref.alloc() : memref<6x2xf32>
  moe.combine %rows, %slots weights(%weights : memref<6x2xf32>) outs(%y : memref<6x2xf32>)
      : memref<?x2xf32>, memref<6x2xi32>
  %y0 = memref.cast %y : memref<6x2xf32> to memref<*xf32>
  call @printMemrefF32(%y0) : (memref<*xf32>) -> ()
  return
}
// CHECK: {{\[\[}}1.11768, {{.*}}],
// CHECK-NEXT: [2.70913, {{.*}}],
// CHECK-NEXT: [2.87038, {{.*}}],
// CHECK-NEXT: [7.7933, {{.*}}],
// CHECK-NEXT: [6.82088, {{.*}}],
// CHECK-NEXT: [16.0664, {{.*}}{{\]\]}}

// Weights on the way in.
func.func private @c12() {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %c6 = arith.constant 6 : index
  %k = arith.constant 2 : index
  %factor = arith.constant 0.0 : f64
  %logits = memref.get_global @tokens : memref<6x4xf32>
  %x = memref.alloc() : memref<6x2xf32>
  call @rows(%x) : (memref<6x2xf32>) -> ()
  %ids = memref.alloc() : memref<6x2xi32>
  %weights = memref.alloc() : memref<6x2xf32>
  moe.gate %logits router<normalize = max_sum_eps>
      outs(%ids, %weights : memref<6x2xi32>, memref<6x2xf32>) : memref<6x4xf32>
  %counts = memref.alloc() : memref<4xi32>
  moe.count %ids outs(%counts : memref<4xi32>) : memref<6x2xi32>
  %c = moe.capacity tutel tokens(%c6) factor(%factor) top_k(%k)
      counts(%counts : memref<4xi32>) {experts = 4 : i64}
  %slots = memref.alloc() : memref<6x2xi32>
  %sizes = memref.alloc() : memref<4xi32>
  moe.assign %ids choice_major counts(%counts : memref<4xi32>) capacity(%c)
      outs(%slots, %sizes : memref<6x2xi32>, memref<4xi32>) : memref<6x2xi32>
  %bound = arith.muli %c6, %k : index
  %rows = memref.alloc(%bound) : memref<?x2xf32>
  moe.dispatch %x, %slots, %sizes, %bound weights(%weights : memref<6x2xf32>) outs(%rows : memref<?x2xf32>)
      : memref<6x2xf32>, memref<6x2xi32>, memref<4xi32>
  call @experts(%rows, %sizes, %c0) : (memref<?x2xf32>, memref<4xi32>, index) -> ()
  %y = memref.alloc() : memref<6x2xf32>
  moe.combine %rows, %slots outs(%y : memref<6x2xf32>)
      : memref<?x2xf32>, memref<6x2xi32>
  %y0 = memref.cast %y : memref<6x2xf32> to memref<*xf32>
  call @printMemrefF32(%y0) : (memref<*xf32>) -> ()
  return
}
// CHECK: {{\[\[}}1.26894, {{.*}}],
// CHECK-NEXT: [3.07577, {{.*}}],
// CHECK-NEXT: [3.80682, {{.*}}],
// CHECK-NEXT: [8.47681, {{.*}}],
// CHECK-NEXT: [7.73638, {{.*}}],
// CHECK-NEXT: [20.7163, {{.*}}{{\]\]}}

// f 0.4: C = 2 * trunc(0.4 * 2) = 0.
func.func private @none() {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %c6 = arith.constant 6 : index
  %k = arith.constant 2 : index
  %factor = arith.constant 0.4 : f64
  %logits = memref.get_global @tokens : memref<6x4xf32>
  %x = memref.alloc() : memref<6x2xf32>
  call @rows(%x) : (memref<6x2xf32>) -> ()
  %ids = memref.alloc() : memref<6x2xi32>
  %weights = memref.alloc() : memref<6x2xf32>
  moe.gate %logits router<normalize = max_sum_eps>
      outs(%ids, %weights : memref<6x2xi32>, memref<6x2xf32>) : memref<6x4xf32>
  %counts = memref.alloc() : memref<4xi32>
  moe.count %ids outs(%counts : memref<4xi32>) : memref<6x2xi32>
  %c = moe.capacity tutel tokens(%c6) factor(%factor) top_k(%k)
      counts(%counts : memref<4xi32>) {experts = 4 : i64}
  %slots = memref.alloc() : memref<6x2xi32>
  %sizes = memref.alloc() : memref<4xi32>
  moe.assign %ids choice_major padded counts(%counts : memref<4xi32>) capacity(%c)
      outs(%slots, %sizes : memref<6x2xi32>, memref<4xi32>) : memref<6x2xi32>
  %s0 = memref.cast %slots : memref<6x2xi32> to memref<*xi32>
  call @printMemrefI32(%s0) : (memref<*xi32>) -> ()
  %s1 = memref.cast %sizes : memref<4xi32> to memref<*xi32>
  call @printMemrefI32(%s1) : (memref<*xi32>) -> ()
  %bound = arith.muli %c, %c4 : index
  %rows = memref.alloc(%c) : memref<4x?x2xf32>
  moe.dispatch %x, %slots, %sizes, %bound outs(%rows : memref<4x?x2xf32>)
      : memref<6x2xf32>, memref<6x2xi32>, memref<4xi32>
  %flat = memref.collapse_shape %rows [[0, 1], [2]] : memref<4x?x2xf32> into memref<?x2xf32>
  call @experts(%flat, %sizes, %c) : (memref<?x2xf32>, memref<4xi32>, index) -> ()
  %y = memref.alloc() : memref<6x2xf32>
  moe.combine %rows, %slots weights(%weights : memref<6x2xf32>) outs(%y : memref<6x2xf32>)
      : memref<4x?x2xf32>, memref<6x2xi32>
  %y0 = memref.cast %y : memref<6x2xf32> to memref<*xf32>
  call @printMemrefF32(%y0) : (memref<*xf32>) -> ()
  return
}
// CHECK: {{\[\[}}-1, -1],
// CHECK-NEXT: [-1, -1],
// CHECK-NEXT: [-1, -1],
// CHECK-NEXT: [-1, -1],
// CHECK-NEXT: [-1, -1],
// CHECK-NEXT: [-1, -1{{\]\]}}
// CHECK: [0, 0, 0, 0]
// CHECK: {{\[\[}}0, {{.*}}],
// CHECK-NEXT: [0, {{.*}}],
// CHECK-NEXT: [0, {{.*}}],
// CHECK-NEXT: [0, {{.*}}],
// CHECK-NEXT: [0, {{.*}}],
// CHECK-NEXT: [0, {{.*}}{{\]\]}}

func.func @main() {
  call @c1() : () -> ()
  call @c2() : () -> ()
  call @c2_padded() : () -> ()
  call @c3() : () -> ()
  call @c4() : () -> ()
  call @c5() : () -> ()
  call @c7() : () -> ()
  call @b1() : () -> ()
  call @c9() : () -> ()
  call @c11() : () -> ()
  call @c12() : () -> ()
  call @none() : () -> ()
  return
}
