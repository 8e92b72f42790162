// RUN: moira-opt %s -convert-moe-to-cpu | %run_loops | FileCheck %s

func.func private @printMemrefI32(memref<*xi32>) attributes {llvm.emit_c_interface}


// FastMoE places pairs token by token.
memref.global "private" constant @scatter_ids : memref<4x2xi32> = dense<[[0, 2], [2, 1], [0, 1], [2, 0]]>
func.func private @scatter() {
  %ids = memref.get_global @scatter_ids : memref<4x2xi32>
  %counts = memref.alloc() : memref<3xi32>
  moe.count %ids outs(%counts : memref<3xi32>) : memref<4x2xi32>
  %slots = memref.alloc() : memref<4x2xi32>
  %sizes = memref.alloc() : memref<3xi32>
  moe.assign %ids token_major counts(%counts : memref<3xi32>)
      outs(%slots, %sizes : memref<4x2xi32>, memref<3xi32>) : memref<4x2xi32>
  %0 = memref.cast %counts : memref<3xi32> to memref<*xi32>
  call @printMemrefI32(%0) : (memref<*xi32>) -> ()
  %1 = memref.cast %slots : memref<4x2xi32> to memref<*xi32>
  call @printMemrefI32(%1) : (memref<*xi32>) -> ()
  %2 = memref.cast %sizes : memref<3xi32> to memref<*xi32>
  call @printMemrefI32(%2) : (memref<*xi32>) -> ()
  return
}
// CHECK: [3, 2, 3]
// CHECK: {{\[\[}}0, 5],
// CHECK-NEXT: [6, 3],
// CHECK-NEXT: [1, 4],
// CHECK-NEXT: [7, 2{{\]\]}}
// CHECK: [3, 2, 3]

// Ids outside 0..E-1 are unused.
memref.global "private" constant @unused_ids : memref<4x2xi32> = dense<[[0, -1], [2, 1], [3, -9], [2, 0]]>
func.func private @unused() {
  %ids = memref.get_global @unused_ids : memref<4x2xi32>
  %counts = memref.alloc() : memref<3xi32>
  moe.count %ids outs(%counts : memref<3xi32>) : memref<4x2xi32>
  %slots = memref.alloc() : memref<4x2xi32>
  %sizes = memref.alloc() : memref<3xi32>
  moe.assign %ids token_major counts(%counts : memref<3xi32>)
      outs(%slots, %sizes : memref<4x2xi32>, memref<3xi32>) : memref<4x2xi32>
  %0 = memref.cast %counts : memref<3xi32> to memref<*xi32>
  call @printMemrefI32(%0) : (memref<*xi32>) -> ()
  %1 = memref.cast %slots : memref<4x2xi32> to memref<*xi32>
  call @printMemrefI32(%1) : (memref<*xi32>) -> ()
  %2 = memref.cast %sizes : memref<3xi32> to memref<*xi32>
  call @printMemrefI32(%2) : (memref<*xi32>) -> ()
  return
}
// CHECK: [2, 1, 2]
// CHECK: {{\[\[}}0, -1],
// CHECK-NEXT: [3, 2],
// CHECK-NEXT: [-1, -1],
// CHECK-NEXT: [4, 1{{\]\]}}
// CHECK: [2, 1, 2]

// First choices before second ones.
memref.global "private" constant @choice_major_ids : memref<4x2xi32> = dense<[[0, 2], [2, 1], [0, 1], [2, 0]]>
func.func private @choice_major() {
  %ids = memref.get_global @choice_major_ids : memref<4x2xi32>
  %counts = memref.alloc() : memref<3xi32>
  moe.count %ids outs(%counts : memref<3xi32>) : memref<4x2xi32>
  %slots = memref.alloc() : memref<4x2xi32>
  %sizes = memref.alloc() : memref<3xi32>
  moe.assign %ids choice_major counts(%counts : memref<3xi32>)
      outs(%slots, %sizes : memref<4x2xi32>, memref<3xi32>) : memref<4x2xi32>
  %0 = memref.cast %counts : memref<3xi32> to memref<*xi32>
  call @printMemrefI32(%0) : (memref<*xi32>) -> ()
  %1 = memref.cast %slots : memref<4x2xi32> to memref<*xi32>
  call @printMemrefI32(%1) : (memref<*xi32>) -> ()
  %2 = memref.cast %sizes : memref<3xi32> to memref<*xi32>
  call @printMemrefI32(%2) : (memref<*xi32>) -> ()
  return
}
// CHECK: [3, 2, 3]
// CHECK: {{\[\[}}0, 7],
// CHECK-NEXT: [5, 3],
// CHECK-NEXT: [1, 4],
// CHECK-NEXT: [6, 2{{\]\]}}
// CHECK: [3, 2, 3]

// A dropped pair uses up its place.
memref.global "private" constant @limit_ids : memref<8x1xi32> = dense<[[0], [0], [0], [1], [0], [0], [1], [1]]>
func.func private @limit() {
  %ids = memref.get_global @limit_ids : memref<8x1xi32>
  %counts = memref.alloc() : memref<2xi32>
  moe.count %ids outs(%counts : memref<2xi32>) : memref<8x1xi32>
  %c = arith.constant 4 : index
  %slots = memref.alloc() : memref<8x1xi32>
  %sizes = memref.alloc() : memref<2xi32>
  moe.assign %ids token_major counts(%counts : memref<2xi32>) capacity(%c)
      outs(%slots, %sizes : memref<8x1xi32>, memref<2xi32>) : memref<8x1xi32>
  %0 = memref.cast %counts : memref<2xi32> to memref<*xi32>
  call @printMemrefI32(%0) : (memref<*xi32>) -> ()
  %1 = memref.cast %slots : memref<8x1xi32> to memref<*xi32>
  call @printMemrefI32(%1) : (memref<*xi32>) -> ()
  %2 = memref.cast %sizes : memref<2xi32> to memref<*xi32>
  call @printMemrefI32(%2) : (memref<*xi32>) -> ()
  return
}
// CHECK: [5, 3]
// CHECK: {{\[\[}}0],
// CHECK-NEXT: [1],
// CHECK-NEXT: [2],
// CHECK-NEXT: [4],
// CHECK-NEXT: [3],
// CHECK-NEXT: [-1],
// CHECK-NEXT: [5],
// CHECK-NEXT: [6{{\]\]}}
// CHECK: [4, 3]

// Capacity 0, and below.
memref.global "private" constant @nothing_ids : memref<2x1xi32> = dense<[[0], [1]]>
func.func private @nothing() {
  %ids = memref.get_global @nothing_ids : memref<2x1xi32>
  %counts = memref.alloc() : memref<2xi32>
  moe.count %ids outs(%counts : memref<2xi32>) : memref<2x1xi32>
  %c = arith.constant 0 : index
  %slots = memref.alloc() : memref<2x1xi32>
  %sizes = memref.alloc() : memref<2xi32>
  moe.assign %ids token_major counts(%counts : memref<2xi32>) capacity(%c)
      outs(%slots, %sizes : memref<2x1xi32>, memref<2xi32>) : memref<2x1xi32>
  %0 = memref.cast %counts : memref<2xi32> to memref<*xi32>
  call @printMemrefI32(%0) : (memref<*xi32>) -> ()
  %1 = memref.cast %slots : memref<2x1xi32> to memref<*xi32>
  call @printMemrefI32(%1) : (memref<*xi32>) -> ()
  %2 = memref.cast %sizes : memref<2xi32> to memref<*xi32>
  call @printMemrefI32(%2) : (memref<*xi32>) -> ()
  return
}
// CHECK: [1, 1]
// CHECK: {{\[\[}}-1],
// CHECK-NEXT: [-1{{\]\]}}
// CHECK: [0, 0]

memref.global "private" constant @below_ids : memref<2x1xi32> = dense<[[0], [1]]>
func.func private @below() {
  %ids = memref.get_global @below_ids : memref<2x1xi32>
  %counts = memref.alloc() : memref<2xi32>
  moe.count %ids outs(%counts : memref<2xi32>) : memref<2x1xi32>
  %c = arith.constant -3 : index
  %slots = memref.alloc() : memref<2x1xi32>
  %sizes = memref.alloc() : memref<2xi32>
  moe.assign %ids choice_major padded counts(%counts : memref<2xi32>) capacity(%c)
      outs(%slots, %sizes : memref<2x1xi32>, memref<2xi32>) : memref<2x1xi32>
  %0 = memref.cast %counts : memref<2xi32> to memref<*xi32>
  call @printMemrefI32(%0) : (memref<*xi32>) -> ()
  %1 = memref.cast %slots : memref<2x1xi32> to memref<*xi32>
  call @printMemrefI32(%1) : (memref<*xi32>) -> ()
  %2 = memref.cast %sizes : memref<2xi32> to memref<*xi32>
  call @printMemrefI32(%2) : (memref<*xi32>) -> ()
  return
}
// CHECK: [1, 1]
// CHECK: {{\[\[}}-1],
// CHECK-NEXT: [-1{{\]\]}}
// CHECK: [0, 0]

// Rows of expert e begin at e * capacity.
memref.global "private" constant @padded_ids : memref<4x1xi32> = dense<[[1], [1], [1], [0]]>
func.func private @padded() {
  %ids = memref.get_global @padded_ids : memref<4x1xi32>
  %counts = memref.alloc() : memref<3xi32>
  moe.count %ids outs(%counts : memref<3xi32>) : memref<4x1xi32>
  %c = arith.constant 2 : index
  %slots = memref.alloc() : memref<4x1xi32>
  %sizes = memref.alloc() : memref<3xi32>
  moe.assign %ids choice_major padded counts(%counts : memref<3xi32>) capacity(%c)
      outs(%slots, %sizes : memref<4x1xi32>, memref<3xi32>) : memref<4x1xi32>
  %0 = memref.cast %counts : memref<3xi32> to memref<*xi32>
  call @printMemrefI32(%0) : (memref<*xi32>) -> ()
  %1 = memref.cast %slots : memref<4x1xi32> to memref<*xi32>
  call @printMemrefI32(%1) : (memref<*xi32>) -> ()
  %2 = memref.cast %sizes : memref<3xi32> to memref<*xi32>
  call @printMemrefI32(%2) : (memref<*xi32>) -> ()
  return
}
// CHECK: [1, 3, 0]
// CHECK: {{\[\[}}2],
// CHECK-NEXT: [3],
// CHECK-NEXT: [-1],
// CHECK-NEXT: [0{{\]\]}}
// CHECK: [1, 2, 0]

// Tokens by falling priority; ties to the lower token, -0 ties with 0, NaN last.
memref.global "private" constant @by_token_ids : memref<6x1xi32> = dense<[[0], [0], [0], [0], [0], [0]]>
memref.global "private" constant @by_token_priority : memref<6xf32> = dense<[0x7FC00000, 0.0, -0.0, 0.0, 2.5, -1.0]>
func.func private @by_token() {
  %ids = memref.get_global @by_token_ids : memref<6x1xi32>
  %counts = memref.alloc() : memref<1xi32>
  moe.count %ids outs(%counts : memref<1xi32>) : memref<6x1xi32>
  %p = memref.get_global @by_token_priority : memref<6xf32>
  %slots = memref.alloc() : memref<6x1xi32>
  %sizes = memref.alloc() : memref<1xi32>
  moe.assign %ids batch_prioritized counts(%counts : memref<1xi32>)
      priority(%p : memref<6xf32>)
      outs(%slots, %sizes : memref<6x1xi32>, memref<1xi32>) : memref<6x1xi32>
  %0 = memref.cast %counts : memref<1xi32> to memref<*xi32>
  call @printMemrefI32(%0) : (memref<*xi32>) -> ()
  %1 = memref.cast %slots : memref<6x1xi32> to memref<*xi32>
  call @printMemrefI32(%1) : (memref<*xi32>) -> ()
  %2 = memref.cast %sizes : memref<1xi32> to memref<*xi32>
  call @printMemrefI32(%2) : (memref<*xi32>) -> ()
  return
}
// CHECK: [6]
// CHECK: {{\[\[}}5],
// CHECK-NEXT: [1],
// CHECK-NEXT: [2],
// CHECK-NEXT: [3],
// CHECK-NEXT: [0],
// CHECK-NEXT: [4{{\]\]}}
// CHECK: [6]

// All first choices before any second one.
memref.global "private" constant @by_token_choices_ids : memref<3x2xi32> = dense<[[0, 1], [1, 0], [0, 1]]>
memref.global "private" constant @by_token_choices_priority : memref<3xf32> = dense<[1.0, 2.0, 3.0]>
func.func private @by_token_choices() {
  %ids = memref.get_global @by_token_choices_ids : memref<3x2xi32>
  %counts = memref.alloc() : memref<2xi32>
  moe.count %ids outs(%counts : memref<2xi32>) : memref<3x2xi32>
  %p = memref.get_global @by_token_choices_priority : memref<3xf32>
  %slots = memref.alloc() : memref<3x2xi32>
  %sizes = memref.alloc() : memref<2xi32>
  moe.assign %ids batch_prioritized counts(%counts : memref<2xi32>)
      priority(%p : memref<3xf32>)
      outs(%slots, %sizes : memref<3x2xi32>, memref<2xi32>) : memref<3x2xi32>
  %0 = memref.cast %counts : memref<2xi32> to memref<*xi32>
  call @printMemrefI32(%0) : (memref<*xi32>) -> ()
  %1 = memref.cast %slots : memref<3x2xi32> to memref<*xi32>
  call @printMemrefI32(%1) : (memref<*xi32>) -> ()
  %2 = memref.cast %sizes : memref<2xi32> to memref<*xi32>
  call @printMemrefI32(%2) : (memref<*xi32>) -> ()
  return
}
// CHECK: [3, 3]
// CHECK: {{\[\[}}1, 5],
// CHECK-NEXT: [3, 2],
// CHECK-NEXT: [0, 4{{\]\]}}
// CHECK: [3, 3]

// Pairs by falling priority; ties to the lower token, then the lower choice.
memref.global "private" constant @by_pair_ids : memref<4x2xi32> = dense<[[0, 1], [1, 0], [0, 0], [-1, 1]]>
memref.global "private" constant @by_pair_priority : memref<4x2xf32> = dense<[[0.5, 0.25], [0xFF800000, 0.75], [0.5, 0.5], [0.9, 0.9]]>
func.func private @by_pair() {
  %ids = memref.get_global @by_pair_ids : memref<4x2xi32>
  %counts = memref.alloc() : memref<2xi32>
  moe.count %ids outs(%counts : memref<2xi32>) : memref<4x2xi32>
  %p = memref.get_global @by_pair_priority : memref<4x2xf32>
  %slots = memref.alloc() : memref<4x2xi32>
  %sizes = memref.alloc() : memref<2xi32>
  moe.assign %ids expert_probability counts(%counts : memref<2xi32>)
      priority(%p : memref<4x2xf32>)
      outs(%slots, %sizes : memref<4x2xi32>, memref<2xi32>) : memref<4x2xi32>
  %0 = memref.cast %counts : memref<2xi32> to memref<*xi32>
  call @printMemrefI32(%0) : (memref<*xi32>) -> ()
  %1 = memref.cast %slots : memref<4x2xi32> to memref<*xi32>
  call @printMemrefI32(%1) : (memref<*xi32>) -> ()
  %2 = memref.cast %sizes : memref<2xi32> to memref<*xi32>
  call @printMemrefI32(%2) : (memref<*xi32>) -> ()
  return
}
// CHECK: [4, 3]
// CHECK: {{\[\[}}1, 5],
// CHECK-NEXT: [6, 0],
// CHECK-NEXT: [2, 3],
// CHECK-NEXT: [-1, 4{{\]\]}}
// CHECK: [4, 3]

// Capacity and order hold within a block; positions go on.
memref.global "private" constant @blocks_ids : memref<7x1xi32> = dense<[[0], [0], [0], [0], [0], [1], [0]]>
memref.global "private" constant @blocks_blocks : memref<3xi32> = dense<[3, 0, 4]>
func.func private @blocks() {
  %ids = memref.get_global @blocks_ids : memref<7x1xi32>
  %counts = memref.alloc() : memref<2xi32>
  moe.count %ids outs(%counts : memref<2xi32>) : memref<7x1xi32>
  %c = arith.constant 2 : index
  %b = memref.get_global @blocks_blocks : memref<3xi32>
  %slots = memref.alloc() : memref<7x1xi32>
  %sizes = memref.alloc() : memref<2xi32>
  moe.assign %ids choice_major counts(%counts : memref<2xi32>) capacity(%c)
      blocks(%b : memref<3xi32>)
      outs(%slots, %sizes : memref<7x1xi32>, memref<2xi32>) : memref<7x1xi32>
  %0 = memref.cast %counts : memref<2xi32> to memref<*xi32>
  call @printMemrefI32(%0) : (memref<*xi32>) -> ()
  %1 = memref.cast %slots : memref<7x1xi32> to memref<*xi32>
  call @printMemrefI32(%1) : (memref<*xi32>) -> ()
  %2 = memref.cast %sizes : memref<2xi32> to memref<*xi32>
  call @printMemrefI32(%2) : (memref<*xi32>) -> ()
  return
}
// CHECK: [6, 1]
// CHECK: {{\[\[}}0],
// CHECK-NEXT: [1],
// CHECK-NEXT: [-1],
// CHECK-NEXT: [2],
// CHECK-NEXT: [3],
// CHECK-NEXT: [4],
// CHECK-NEXT: [-1{{\]\]}}
// CHECK: [4, 1]

// Padded rows: capacity * blocks per expert.
memref.global "private" constant @blocks_padded_ids : memref<7x1xi32> = dense<[[0], [0], [0], [1], [0], [1], [0]]>
memref.global "private" constant @blocks_padded_blocks : memref<2xi32> = dense<[3, 4]>
func.func private @blocks_padded() {
  %ids = memref.get_global @blocks_padded_ids : memref<7x1xi32>
  %counts = memref.alloc() : memref<2xi32>
  moe.count %ids outs(%counts : memref<2xi32>) : memref<7x1xi32>
  %c = arith.constant 2 : index
  %b = memref.get_global @blocks_padded_blocks : memref<2xi32>
  %slots = memref.alloc() : memref<7x1xi32>
  %sizes = memref.alloc() : memref<2xi32>
  moe.assign %ids choice_major padded counts(%counts : memref<2xi32>) capacity(%c)
      blocks(%b : memref<2xi32>)
      outs(%slots, %sizes : memref<7x1xi32>, memref<2xi32>) : memref<7x1xi32>
  %0 = memref.cast %counts : memref<2xi32> to memref<*xi32>
  call @printMemrefI32(%0) : (memref<*xi32>) -> ()
  %1 = memref.cast %slots : memref<7x1xi32> to memref<*xi32>
  call @printMemrefI32(%1) : (memref<*xi32>) -> ()
  %2 = memref.cast %sizes : memref<2xi32> to memref<*xi32>
  call @printMemrefI32(%2) : (memref<*xi32>) -> ()
  return
}
// CHECK: [5, 2]
// CHECK: {{\[\[}}0],
// CHECK-NEXT: [1],
// CHECK-NEXT: [-1],
// CHECK-NEXT: [4],
// CHECK-NEXT: [2],
// CHECK-NEXT: [5],
// CHECK-NEXT: [3{{\]\]}}
// CHECK: [4, 2]

memref.global "private" constant @blocks_by_pair_ids : memref<3x2xi32> = dense<[[0, 0], [0, 0], [0, 0]]>
memref.global "private" constant @blocks_by_pair_priority : memref<3x2xf32> = dense<[[1.0, 2.0], [3.0, 0.0], [1.0, 9.0]]>
memref.global "private" constant @blocks_by_pair_blocks : memref<2xi32> = dense<[2, 1]>
func.func private @blocks_by_pair() {
  %ids = memref.get_global @blocks_by_pair_ids : memref<3x2xi32>
  %counts = memref.alloc() : memref<1xi32>
  moe.count %ids outs(%counts : memref<1xi32>) : memref<3x2xi32>
  %c = arith.constant 3 : index
  %p = memref.get_global @blocks_by_pair_priority : memref<3x2xf32>
  %b = memref.get_global @blocks_by_pair_blocks : memref<2xi32>
  %slots = memref.alloc() : memref<3x2xi32>
  %sizes = memref.alloc() : memref<1xi32>
  moe.assign %ids expert_probability counts(%counts : memref<1xi32>) capacity(%c)
      priority(%p : memref<3x2xf32>)
      blocks(%b : memref<2xi32>)
      outs(%slots, %sizes : memref<3x2xi32>, memref<1xi32>) : memref<3x2xi32>
  %0 = memref.cast %counts : memref<1xi32> to memref<*xi32>
  call @printMemrefI32(%0) : (memref<*xi32>) -> ()
  %1 = memref.cast %slots : memref<3x2xi32> to memref<*xi32>
  call @printMemrefI32(%1) : (memref<*xi32>) -> ()
  %2 = memref.cast %sizes : memref<1xi32> to memref<*xi32>
  call @printMemrefI32(%2) : (memref<*xi32>) -> ()
  return
}
// CHECK: [6]
// CHECK: {{\[\[}}2, 1],
// CHECK-NEXT: [0, -1],
// CHECK-NEXT: [4, 3{{\]\]}}
// CHECK: [5]

// Blocks that do not cover the tokens leave the rest without rows, too large ones end with the tokens.
memref.global "private" constant @blocks_short_ids : memref<3x1xi32> = dense<[[0], [0], [0]]>
memref.global "private" constant @blocks_short_blocks : memref<2xi32> = dense<[1, 1]>
func.func private @blocks_short() {
  %ids = memref.get_global @blocks_short_ids : memref<3x1xi32>
  %counts = memref.alloc() : memref<1xi32>
  moe.count %ids outs(%counts : memref<1xi32>) : memref<3x1xi32>
  %b = memref.get_global @blocks_short_blocks : memref<2xi32>
  %slots = memref.alloc() : memref<3x1xi32>
  %sizes = memref.alloc() : memref<1xi32>
  moe.assign %ids token_major counts(%counts : memref<1xi32>)
      blocks(%b : memref<2xi32>)
      outs(%slots, %sizes : memref<3x1xi32>, memref<1xi32>) : memref<3x1xi32>
  %0 = memref.cast %counts : memref<1xi32> to memref<*xi32>
  call @printMemrefI32(%0) : (memref<*xi32>) -> ()
  %1 = memref.cast %slots : memref<3x1xi32> to memref<*xi32>
  call @printMemrefI32(%1) : (memref<*xi32>) -> ()
  %2 = memref.cast %sizes : memref<1xi32> to memref<*xi32>
  call @printMemrefI32(%2) : (memref<*xi32>) -> ()
  return
}
// CHECK: [3]
// CHECK: {{\[\[}}0],
// CHECK-NEXT: [1],
// CHECK-NEXT: [-1{{\]\]}}
// CHECK: [2]

memref.global "private" constant @blocks_long_ids : memref<3x1xi32> = dense<[[0], [0], [0]]>
memref.global "private" constant @blocks_long_blocks : memref<3xi32> = dense<[2, -4, 9]>
func.func private @blocks_long() {
  %ids = memref.get_global @blocks_long_ids : memref<3x1xi32>
  %counts = memref.alloc() : memref<1xi32>
  moe.count %ids outs(%counts : memref<1xi32>) : memref<3x1xi32>
  %b = memref.get_global @blocks_long_blocks : memref<3xi32>
  %slots = memref.alloc() : memref<3x1xi32>
  %sizes = memref.alloc() : memref<1xi32>
  moe.assign %ids token_major counts(%counts : memref<1xi32>)
      blocks(%b : memref<3xi32>)
      outs(%slots, %sizes : memref<3x1xi32>, memref<1xi32>) : memref<3x1xi32>
  %0 = memref.cast %counts : memref<1xi32> to memref<*xi32>
  call @printMemrefI32(%0) : (memref<*xi32>) -> ()
  %1 = memref.cast %slots : memref<3x1xi32> to memref<*xi32>
  call @printMemrefI32(%1) : (memref<*xi32>) -> ()
  %2 = memref.cast %sizes : memref<1xi32> to memref<*xi32>
  call @printMemrefI32(%2) : (memref<*xi32>) -> ()
  return
}
// CHECK: [3]
// CHECK: {{\[\[}}0],
// CHECK-NEXT: [1],
// CHECK-NEXT: [2{{\]\]}}
// CHECK: [3]

// 70000 tokens want one expert, and the layer's loads are reported.
func.func @moira_abi_loads(%layer: i64, %counts: memref<?xi32>, %sizes: memref<?xi32>) {
  %0 = memref.cast %counts : memref<?xi32> to memref<*xi32>
  call @printMemrefI32(%0) : (memref<*xi32>) -> ()
  %1 = memref.cast %sizes : memref<?xi32> to memref<*xi32>
  call @printMemrefI32(%1) : (memref<*xi32>) -> ()
  return
}
func.func private @long() {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %n = arith.constant 70000 : index
  %ids = memref.alloc(%n) : memref<?x1xi32>
  %p = memref.alloc(%n) : memref<?xf32>
  scf.for %t = %c0 to %n step %c1 {
    %e = arith.constant 1 : i32
    memref.store %e, %ids[%t, %c0] : memref<?x1xi32>
    %i = arith.index_cast %t : index to i32
    %f = arith.sitofp %i : i32 to f32
    memref.store %f, %p[%t] : memref<?xf32>
  }
  %counts = memref.alloc() : memref<2xi32>
  moe.count %ids outs(%counts : memref<2xi32>) : memref<?x1xi32>
  %slots = memref.alloc(%n) : memref<?x1xi32>
  %sizes = memref.alloc() : memref<2xi32>
  moe.assign %ids batch_prioritized counts(%counts : memref<2xi32>) priority(%p : memref<?xf32>)
      outs(%slots, %sizes : memref<?x1xi32>, memref<2xi32>) {layer = 3 : i64} : memref<?x1xi32>
  %tail = memref.subview %slots[69998, 0] [2, 1] [1, 1] : memref<?x1xi32> to memref<2x1xi32, strided<[1, 1], offset: 69998>>
  %0 = memref.cast %tail : memref<2x1xi32, strided<[1, 1], offset: 69998>> to memref<*xi32>
  call @printMemrefI32(%0) : (memref<*xi32>) -> ()
  return
}
// CHECK: [0, 70000]
// CHECK: [0, 70000]
// CHECK: {{\[\[}}1],
// CHECK-NEXT: [0{{\]\]}}

// No tokens.
func.func private @empty() {
  %c0 = arith.constant 0 : index
  %ids = memref.alloc(%c0) : memref<?x2xi32>
  %counts = memref.alloc() : memref<2xi32>
  moe.count %ids outs(%counts : memref<2xi32>) : memref<?x2xi32>
  %p = memref.alloc(%c0) : memref<?x2xf32>
  %slots = memref.alloc(%c0) : memref<?x2xi32>
  %sizes = memref.alloc() : memref<2xi32>
  moe.assign %ids expert_probability counts(%counts : memref<2xi32>) priority(%p : memref<?x2xf32>)
      outs(%slots, %sizes : memref<?x2xi32>, memref<2xi32>) : memref<?x2xi32>
  %0 = memref.cast %sizes : memref<2xi32> to memref<*xi32>
  call @printMemrefI32(%0) : (memref<*xi32>) -> ()
  return
}
// CHECK: [0, 0]

func.func @main() {
  call @scatter() : () -> ()
  call @unused() : () -> ()
  call @choice_major() : () -> ()
  call @limit() : () -> ()
  call @nothing() : () -> ()
  call @below() : () -> ()
  call @padded() : () -> ()
  call @by_token() : () -> ()
  call @by_token_choices() : () -> ()
  call @by_pair() : () -> ()
  call @blocks() : () -> ()
  call @blocks_padded() : () -> ()
  call @blocks_by_pair() : () -> ()
  call @blocks_short() : () -> ()
  call @blocks_long() : () -> ()
  call @long() : () -> ()
  call @empty() : () -> ()
  return
}
