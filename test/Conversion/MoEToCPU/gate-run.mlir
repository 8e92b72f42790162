// RUN: moira-opt %s -convert-moe-to-cpu | %run_loops | FileCheck %s

func.func private @printMemrefF32(memref<*xf32>) attributes {llvm.emit_c_interface}
func.func private @printMemrefI32(memref<*xi32>) attributes {llvm.emit_c_interface}


// Ties, NaN and infinities (docs/routing.md).
memref.global "private" constant @special_logits : memref<6x4xf32> = dense<[[1.0, 1.0, 1.0, 1.0], [0x7FC00000, 1.0, 2.0, 3.0], [0x7FC00000, 0x7FC00000, 0x7FC00000, 0x7FC00000], [0xFF800000, 0xFF800000, 0xFF800000, 0xFF800000], [0x7F800000, 0.0, 0x7F800000, 0.0], [2.0, 1.0, 0.0, -1.0]]>
func.func private @special() {
  %0 = memref.get_global @special_logits : memref<6x4xf32>
  %logits = memref.cast %0 : memref<6x4xf32> to memref<?x4xf32>
  %1 = memref.alloc() : memref<6x2xi32>
  %ids = memref.cast %1 : memref<6x2xi32> to memref<?x2xi32>
  %2 = memref.alloc() : memref<6x2xf32>
  %weights = memref.cast %2 : memref<6x2xf32> to memref<?x2xf32>
  moe.gate %logits router<normalize = max_sum_eps>
      outs(%ids, %weights : memref<?x2xi32>, memref<?x2xf32>) : memref<?x4xf32>
  %3 = memref.cast %1 : memref<6x2xi32> to memref<*xi32>
  call @printMemrefI32(%3) : (memref<*xi32>) -> ()
  %4 = memref.cast %2 : memref<6x2xf32> to memref<*xf32>
  call @printMemrefF32(%4) : (memref<*xf32>) -> ()
  return
}
// CHECK: {{\[\[}}0, 1],
// CHECK-NEXT: [3, 2],
// CHECK-NEXT: [0, 1],
// CHECK-NEXT: [0, 1],
// CHECK-NEXT: [0, 2],
// CHECK-NEXT: [0, 1{{\]\]}}
// CHECK: {{\[\[}}0.5, 0.5],
// CHECK-NEXT: [0.731059, 0.268941],
// CHECK-NEXT: [0, 0],
// CHECK-NEXT: [0, 0],
// CHECK-NEXT: [0.5, 0.5],
// CHECK-NEXT: [0.731059, 0.268941{{\]\]}}

// Not normalised: never the logits themselves.
memref.global "private" constant @plain_logits : memref<1x4xf32> = dense<[[2.0, 1.0, 0.0, -1.0]]>
func.func private @plain() {
  %0 = memref.get_global @plain_logits : memref<1x4xf32>
  %logits = memref.cast %0 : memref<1x4xf32> to memref<?x4xf32>
  %1 = memref.alloc() : memref<1x2xi32>
  %ids = memref.cast %1 : memref<1x2xi32> to memref<?x2xi32>
  %2 = memref.alloc() : memref<1x2xf32>
  %weights = memref.cast %2 : memref<1x2xf32> to memref<?x2xf32>
  moe.gate %logits router<score = softmax>
      outs(%ids, %weights : memref<?x2xi32>, memref<?x2xf32>) : memref<?x4xf32>
  %3 = memref.cast %1 : memref<1x2xi32> to memref<*xi32>
  call @printMemrefI32(%3) : (memref<*xi32>) -> ()
  %4 = memref.cast %2 : memref<1x2xf32> to memref<*xf32>
  call @printMemrefF32(%4) : (memref<*xf32>) -> ()
  return
}
// CHECK: {{\[\[}}0, 1{{\]\]}}
// CHECK: {{\[\[}}0.643914, 0.236883{{\]\]}}

// One choice: its score, or 1 when normalised.
memref.global "private" constant @single_logits : memref<1x4xf32> = dense<[[2.0, 1.0, 0.0, -1.0]]>
func.func private @single() {
  %0 = memref.get_global @single_logits : memref<1x4xf32>
  %logits = memref.cast %0 : memref<1x4xf32> to memref<?x4xf32>
  %1 = memref.alloc() : memref<1x1xi32>
  %ids = memref.cast %1 : memref<1x1xi32> to memref<?x1xi32>
  %2 = memref.alloc() : memref<1x1xf32>
  %weights = memref.cast %2 : memref<1x1xf32> to memref<?x1xf32>
  moe.gate %logits router<score = softmax>
      outs(%ids, %weights : memref<?x1xi32>, memref<?x1xf32>) : memref<?x4xf32>
  %3 = memref.cast %1 : memref<1x1xi32> to memref<*xi32>
  call @printMemrefI32(%3) : (memref<*xi32>) -> ()
  %4 = memref.cast %2 : memref<1x1xf32> to memref<*xf32>
  call @printMemrefF32(%4) : (memref<*xf32>) -> ()
  return
}
// CHECK: {{\[\[}}0{{\]\]}}
// CHECK: {{\[\[}}0.643914{{\]\]}}

memref.global "private" constant @single_normalised_logits : memref<2x4xf32> = dense<[[2.0, 1.0, 0.0, -1.0], [0.0, 0.0, 0.0, 3.0]]>
func.func private @single_normalised() {
  %0 = memref.get_global @single_normalised_logits : memref<2x4xf32>
  %logits = memref.cast %0 : memref<2x4xf32> to memref<?x4xf32>
  %1 = memref.alloc() : memref<2x1xi32>
  %ids = memref.cast %1 : memref<2x1xi32> to memref<?x1xi32>
  %2 = memref.alloc() : memref<2x1xf32>
  %weights = memref.cast %2 : memref<2x1xf32> to memref<?x1xf32>
  moe.gate %logits router<normalize = max_sum_eps>
      outs(%ids, %weights : memref<?x1xi32>, memref<?x1xf32>) : memref<?x4xf32>
  %3 = memref.cast %1 : memref<2x1xi32> to memref<*xi32>
  call @printMemrefI32(%3) : (memref<*xi32>) -> ()
  %4 = memref.cast %2 : memref<2x1xf32> to memref<*xf32>
  call @printMemrefF32(%4) : (memref<*xf32>) -> ()
  return
}
// CHECK: {{\[\[}}0],
// CHECK-NEXT: [3{{\]\]}}
// CHECK: {{\[\[}}1],
// CHECK-NEXT: [1{{\]\]}}

// Softmax over the selected logits only.
memref.global "private" constant @after_logits : memref<2x4xf32> = dense<[[2.0, 1.0, 0.0, -1.0], [0x7FC00000, 0x7FC00000, 0x7FC00000, 0x7FC00000]]>
func.func private @after() {
  %0 = memref.get_global @after_logits : memref<2x4xf32>
  %logits = memref.cast %0 : memref<2x4xf32> to memref<?x4xf32>
  %1 = memref.alloc() : memref<2x2xi32>
  %ids = memref.cast %1 : memref<2x2xi32> to memref<?x2xi32>
  %2 = memref.alloc() : memref<2x2xf32>
  %weights = memref.cast %2 : memref<2x2xf32> to memref<?x2xf32>
  moe.gate %logits router<after_top_k>
      outs(%ids, %weights : memref<?x2xi32>, memref<?x2xf32>) : memref<?x4xf32>
  %3 = memref.cast %1 : memref<2x2xi32> to memref<*xi32>
  call @printMemrefI32(%3) : (memref<*xi32>) -> ()
  %4 = memref.cast %2 : memref<2x2xf32> to memref<*xf32>
  call @printMemrefF32(%4) : (memref<*xf32>) -> ()
  return
}
// CHECK: {{\[\[}}0, 1],
// CHECK-NEXT: [0, 1{{\]\]}}
// CHECK: {{\[\[}}0.731059, 0.268941],
// CHECK-NEXT: [0, 0{{\]\]}}

memref.global "private" constant @after_sigmoid_logits : memref<1x4xf32> = dense<[[0.0, 0xFF800000, 0xFF800000, 0xFF800000]]>
func.func private @after_sigmoid() {
  %0 = memref.get_global @after_sigmoid_logits : memref<1x4xf32>
  %logits = memref.cast %0 : memref<1x4xf32> to memref<?x4xf32>
  %1 = memref.alloc() : memref<1x2xi32>
  %ids = memref.cast %1 : memref<1x2xi32> to memref<?x2xi32>
  %2 = memref.alloc() : memref<1x2xf32>
  %weights = memref.cast %2 : memref<1x2xf32> to memref<?x2xf32>
  moe.gate %logits router<score = sigmoid, after_top_k>
      outs(%ids, %weights : memref<?x2xi32>, memref<?x2xf32>) : memref<?x4xf32>
  %3 = memref.cast %1 : memref<1x2xi32> to memref<*xi32>
  call @printMemrefI32(%3) : (memref<*xi32>) -> ()
  %4 = memref.cast %2 : memref<1x2xf32> to memref<*xf32>
  call @printMemrefF32(%4) : (memref<*xf32>) -> ()
  return
}
// CHECK: {{\[\[}}0, 1{{\]\]}}
// CHECK: {{\[\[}}0.5, 0{{\]\]}}

// The bias selects and never enters a weight.
memref.global "private" constant @bias_logits : memref<1x4xf32> = dense<[[0.0, 0.0, 0.0, 0.0]]>
func.func private @bias() {
  %0 = memref.get_global @bias_logits : memref<1x4xf32>
  %logits = memref.cast %0 : memref<1x4xf32> to memref<?x4xf32>
  %1 = memref.alloc() : memref<1x2xi32>
  %ids = memref.cast %1 : memref<1x2xi32> to memref<?x2xi32>
  %2 = memref.alloc() : memref<1x2xf32>
  %weights = memref.cast %2 : memref<1x2xf32> to memref<?x2xf32>
  %b = memref.get_global @bias_bias : memref<4xf32>
  moe.gate %logits router<score = sigmoid, normalize = sum_plus_eps, scale = 2.5>
      bias(%b : memref<4xf32>)
      outs(%ids, %weights : memref<?x2xi32>, memref<?x2xf32>) : memref<?x4xf32>
  %3 = memref.cast %1 : memref<1x2xi32> to memref<*xi32>
  call @printMemrefI32(%3) : (memref<*xi32>) -> ()
  %4 = memref.cast %2 : memref<1x2xf32> to memref<*xf32>
  call @printMemrefF32(%4) : (memref<*xf32>) -> ()
  return
}
// CHECK: {{\[\[}}3, 2{{\]\]}}
// CHECK: {{\[\[}}1.25, 1.25{{\]\]}}
memref.global "private" constant @bias_bias : memref<4xf32> = dense<[0.0, 0.1, 0.2, 0.3]>

// Masked groups lose against negative keys, too.
memref.global "private" constant @negative_logits : memref<1x4xf32> = dense<[[0.0, 0.0, 0.0, 0.0]]>
func.func private @negative() {
  %0 = memref.get_global @negative_logits : memref<1x4xf32>
  %logits = memref.cast %0 : memref<1x4xf32> to memref<?x4xf32>
  %1 = memref.alloc() : memref<1x2xi32>
  %ids = memref.cast %1 : memref<1x2xi32> to memref<?x2xi32>
  %2 = memref.alloc() : memref<1x2xf32>
  %weights = memref.cast %2 : memref<1x2xf32> to memref<?x2xf32>
  %b = memref.get_global @negative_bias : memref<4xf32>
  moe.gate %logits router<score = identity, groups = 2, keep = 1>
      bias(%b : memref<4xf32>)
      outs(%ids, %weights : memref<?x2xi32>, memref<?x2xf32>) : memref<?x4xf32>
  %3 = memref.cast %1 : memref<1x2xi32> to memref<*xi32>
  call @printMemrefI32(%3) : (memref<*xi32>) -> ()
  %4 = memref.cast %2 : memref<1x2xf32> to memref<*xf32>
  call @printMemrefF32(%4) : (memref<*xf32>) -> ()
  return
}
// CHECK: {{\[\[}}0, 1{{\]\]}}
// CHECK: {{\[\[}}0, 0{{\]\]}}
memref.global "private" constant @negative_bias : memref<4xf32> = dense<[-0.3, -0.4, -0.5, -0.6]>

// Group scores: the best, or the sum of the two best; ties to group 0.
memref.global "private" constant @groups_logits : memref<3x4xf32> = dense<[[1.0, 1.0, 1.0, 1.0], [3.0, 0.0, 2.0, 2.0], [0.0, 3.0, 2.0, 4.0]]>
func.func private @groups() {
  %0 = memref.get_global @groups_logits : memref<3x4xf32>
  %logits = memref.cast %0 : memref<3x4xf32> to memref<?x4xf32>
  %1 = memref.alloc() : memref<3x2xi32>
  %ids = memref.cast %1 : memref<3x2xi32> to memref<?x2xi32>
  %2 = memref.alloc() : memref<3x2xf32>
  %weights = memref.cast %2 : memref<3x2xf32> to memref<?x2xf32>
  moe.gate %logits router<normalize = max_sum_eps, groups = 2, keep = 1>
      outs(%ids, %weights : memref<?x2xi32>, memref<?x2xf32>) : memref<?x4xf32>
  %3 = memref.cast %1 : memref<3x2xi32> to memref<*xi32>
  call @printMemrefI32(%3) : (memref<*xi32>) -> ()
  %4 = memref.cast %2 : memref<3x2xf32> to memref<*xf32>
  call @printMemrefF32(%4) : (memref<*xf32>) -> ()
  return
}
// CHECK: {{\[\[}}0, 1],
// CHECK-NEXT: [0, 1],
// CHECK-NEXT: [3, 2{{\]\]}}
// CHECK: {{\[\[}}0.5, 0.5],
// CHECK-NEXT: [0.952574, 0.0474259],
// CHECK-NEXT: [0.880797, 0.119203{{\]\]}}

memref.global "private" constant @groups_sum_logits : memref<1x4xf32> = dense<[[1.0, -9.0, 0.9, 0.9]]>
func.func private @groups_sum() {
  %0 = memref.get_global @groups_sum_logits : memref<1x4xf32>
  %logits = memref.cast %0 : memref<1x4xf32> to memref<?x4xf32>
  %1 = memref.alloc() : memref<1x2xi32>
  %ids = memref.cast %1 : memref<1x2xi32> to memref<?x2xi32>
  %2 = memref.alloc() : memref<1x2xf32>
  %weights = memref.cast %2 : memref<1x2xf32> to memref<?x2xf32>
  moe.gate %logits router<normalize = max_sum_eps, groups = 2, keep = 1, group_score = sum_top2>
      outs(%ids, %weights : memref<?x2xi32>, memref<?x2xf32>) : memref<?x4xf32>
  %3 = memref.cast %1 : memref<1x2xi32> to memref<*xi32>
  call @printMemrefI32(%3) : (memref<*xi32>) -> ()
  %4 = memref.cast %2 : memref<1x2xf32> to memref<*xf32>
  call @printMemrefF32(%4) : (memref<*xf32>) -> ()
  return
}
// CHECK: {{\[\[}}2, 3{{\]\]}}
// CHECK: {{\[\[}}0.5, 0.5{{\]\]}}

// Choices from a run-time k on are unused.
memref.global "private" constant @run_time_k_logits : memref<2x4xf32> = dense<[[2.0, 1.0, 0.0, -1.0], [0.0, 0.0, 0.0, 0.0]]>
func.func private @run_time_k() {
  %0 = memref.get_global @run_time_k_logits : memref<2x4xf32>
  %logits = memref.cast %0 : memref<2x4xf32> to memref<?x4xf32>
  %1 = memref.alloc() : memref<2x3xi32>
  %ids = memref.cast %1 : memref<2x3xi32> to memref<?x3xi32>
  %2 = memref.alloc() : memref<2x3xf32>
  %weights = memref.cast %2 : memref<2x3xf32> to memref<?x3xf32>
  %k = arith.constant 2 : index
  moe.gate %logits router<normalize = max_sum_eps> top_k(%k)
      outs(%ids, %weights : memref<?x3xi32>, memref<?x3xf32>) : memref<?x4xf32>
  %3 = memref.cast %1 : memref<2x3xi32> to memref<*xi32>
  call @printMemrefI32(%3) : (memref<*xi32>) -> ()
  %4 = memref.cast %2 : memref<2x3xf32> to memref<*xf32>
  call @printMemrefF32(%4) : (memref<*xf32>) -> ()
  return
}
// CHECK: {{\[\[}}0, 1, -1],
// CHECK-NEXT: [0, 1, -1{{\]\]}}
// CHECK: {{\[\[}}0.731059, 0.268941, 0],
// CHECK-NEXT: [0.5, 0.5, 0{{\]\]}}

// A run-time k above K means K, one below 0 means 0.
memref.global "private" constant @large_k_logits : memref<1x2xf32> = dense<[[0.0, 0.0]]>
func.func private @large_k() {
  %0 = memref.get_global @large_k_logits : memref<1x2xf32>
  %logits = memref.cast %0 : memref<1x2xf32> to memref<?x2xf32>
  %1 = memref.alloc() : memref<1x2xi32>
  %ids = memref.cast %1 : memref<1x2xi32> to memref<?x2xi32>
  %2 = memref.alloc() : memref<1x2xf32>
  %weights = memref.cast %2 : memref<1x2xf32> to memref<?x2xf32>
  %k = arith.constant 9 : index
  moe.gate %logits router<after_top_k> top_k(%k)
      outs(%ids, %weights : memref<?x2xi32>, memref<?x2xf32>) : memref<?x2xf32>
  %3 = memref.cast %1 : memref<1x2xi32> to memref<*xi32>
  call @printMemrefI32(%3) : (memref<*xi32>) -> ()
  %4 = memref.cast %2 : memref<1x2xf32> to memref<*xf32>
  call @printMemrefF32(%4) : (memref<*xf32>) -> ()
  return
}
// CHECK: {{\[\[}}0, 1{{\]\]}}
// CHECK: {{\[\[}}0.5, 0.5{{\]\]}}

memref.global "private" constant @negative_k_logits : memref<1x2xf32> = dense<[[0.0, 0.0]]>
func.func private @negative_k() {
  %0 = memref.get_global @negative_k_logits : memref<1x2xf32>
  %logits = memref.cast %0 : memref<1x2xf32> to memref<?x2xf32>
  %1 = memref.alloc() : memref<1x2xi32>
  %ids = memref.cast %1 : memref<1x2xi32> to memref<?x2xi32>
  %2 = memref.alloc() : memref<1x2xf32>
  %weights = memref.cast %2 : memref<1x2xf32> to memref<?x2xf32>
  %k = arith.constant -1 : index
  moe.gate %logits router<after_top_k> top_k(%k)
      outs(%ids, %weights : memref<?x2xi32>, memref<?x2xf32>) : memref<?x2xf32>
  %3 = memref.cast %1 : memref<1x2xi32> to memref<*xi32>
  call @printMemrefI32(%3) : (memref<*xi32>) -> ()
  %4 = memref.cast %2 : memref<1x2xf32> to memref<*xf32>
  call @printMemrefF32(%4) : (memref<*xf32>) -> ()
  return
}
// CHECK: {{\[\[}}-1, -1{{\]\]}}
// CHECK: {{\[\[}}0, 0{{\]\]}}

// A token may keep one choice, or none.
memref.global "private" constant @threshold_logits : memref<2x4xf32> = dense<[[2.0, 1.0, 0.0, -1.0], [0.0, 0.0, 0.0, 0.0]]>
func.func private @threshold() {
  %0 = memref.get_global @threshold_logits : memref<2x4xf32>
  %logits = memref.cast %0 : memref<2x4xf32> to memref<?x4xf32>
  %1 = memref.alloc() : memref<2x2xi32>
  %ids = memref.cast %1 : memref<2x2xi32> to memref<?x2xi32>
  %2 = memref.alloc() : memref<2x2xf32>
  %weights = memref.cast %2 : memref<2x2xf32> to memref<?x2xf32>
  %th = arith.constant 0.3 : f32
  moe.gate %logits router<normalize = max_sum_eps> threshold(%th : f32)
      outs(%ids, %weights : memref<?x2xi32>, memref<?x2xf32>) : memref<?x4xf32>
  %3 = memref.cast %1 : memref<2x2xi32> to memref<*xi32>
  call @printMemrefI32(%3) : (memref<*xi32>) -> ()
  %4 = memref.cast %2 : memref<2x2xf32> to memref<*xf32>
  call @printMemrefF32(%4) : (memref<*xf32>) -> ()
  return
}
// CHECK: {{\[\[}}0, -1],
// CHECK-NEXT: [-1, -1{{\]\]}}
// CHECK: {{\[\[}}1, 0],
// CHECK-NEXT: [0, 0{{\]\]}}

memref.global "private" constant @mask_logits : memref<2x4xf32> = dense<[[2.0, 1.0, 0.0, -1.0], [2.0, 1.0, 0.0, -1.0]]>
func.func private @mask() {
  %0 = memref.get_global @mask_logits : memref<2x4xf32>
  %logits = memref.cast %0 : memref<2x4xf32> to memref<?x4xf32>
  %1 = memref.alloc() : memref<2x2xi32>
  %ids = memref.cast %1 : memref<2x2xi32> to memref<?x2xi32>
  %2 = memref.alloc() : memref<2x2xf32>
  %weights = memref.cast %2 : memref<2x2xf32> to memref<?x2xf32>
  %m0 = memref.get_global @mask_tokens : memref<2xi1>
  %m = memref.cast %m0 : memref<2xi1> to memref<?xi1>
  moe.gate %logits router<normalize = max_sum_eps> mask(%m : memref<?xi1>)
      outs(%ids, %weights : memref<?x2xi32>, memref<?x2xf32>) : memref<?x4xf32>
  %3 = memref.cast %1 : memref<2x2xi32> to memref<*xi32>
  call @printMemrefI32(%3) : (memref<*xi32>) -> ()
  %4 = memref.cast %2 : memref<2x2xf32> to memref<*xf32>
  call @printMemrefF32(%4) : (memref<*xf32>) -> ()
  return
}
// CHECK: {{\[\[}}-1, -1],
// CHECK-NEXT: [0, 1{{\]\]}}
// CHECK: {{\[\[}}0, 0],
// CHECK-NEXT: [0.731059, 0.268941{{\]\]}}
memref.global "private" constant @mask_tokens : memref<2xi1> = dense<[false, true]>

// Ids that are no experts are unused.
memref.global "private" constant @replay_logits : memref<3x4xf32> = dense<[[2.0, 1.0, 0.0, -1.0], [2.0, 1.0, 0.0, -1.0], [2.0, 1.0, 0.0, -1.0]]>
func.func private @replay() {
  %0 = memref.get_global @replay_logits : memref<3x4xf32>
  %logits = memref.cast %0 : memref<3x4xf32> to memref<?x4xf32>
  %1 = memref.alloc() : memref<3x2xi32>
  %ids = memref.cast %1 : memref<3x2xi32> to memref<?x2xi32>
  %2 = memref.alloc() : memref<3x2xf32>
  %weights = memref.cast %2 : memref<3x2xf32> to memref<?x2xf32>
  %r0 = memref.get_global @replay_ids : memref<3x2xi32>
  %r = memref.cast %r0 : memref<3x2xi32> to memref<?x2xi32>
  moe.gate %logits router<score = softmax> replay(%r : memref<?x2xi32>)
      outs(%ids, %weights : memref<?x2xi32>, memref<?x2xf32>) : memref<?x4xf32>
  %3 = memref.cast %1 : memref<3x2xi32> to memref<*xi32>
  call @printMemrefI32(%3) : (memref<*xi32>) -> ()
  %4 = memref.cast %2 : memref<3x2xf32> to memref<*xf32>
  call @printMemrefF32(%4) : (memref<*xf32>) -> ()
  return
}
// CHECK: {{\[\[}}1, 0],
// CHECK-NEXT: [-1, 3],
// CHECK-NEXT: [-1, -1{{\]\]}}
// CHECK: {{\[\[}}0.236883, 0.643914],
// CHECK-NEXT: [0, 0.0320586],
// CHECK-NEXT: [0, 0{{\]\]}}
memref.global "private" constant @replay_ids : memref<3x2xi32> = dense<[[1, 0], [-1, 3], [4, -7]]>

// The second choice is used when twice its weight is at least the draw.
memref.global "private" constant @sample_logits : memref<2x4xf32> = dense<[[2.0, 1.0, 0.0, -1.0], [2.0, 1.0, 0.0, -1.0]]>
func.func private @sample() {
  %0 = memref.get_global @sample_logits : memref<2x4xf32>
  %logits = memref.cast %0 : memref<2x4xf32> to memref<?x4xf32>
  %1 = memref.alloc() : memref<2x2xi32>
  %ids = memref.cast %1 : memref<2x2xi32> to memref<?x2xi32>
  %2 = memref.alloc() : memref<2x2xf32>
  %weights = memref.cast %2 : memref<2x2xf32> to memref<?x2xf32>
  %s0 = memref.get_global @sample_draws : memref<2xf32>
  %s = memref.cast %s0 : memref<2xf32> to memref<?xf32>
  moe.gate %logits router<normalize = max_sum_eps> sample(%s : memref<?xf32>)
      outs(%ids, %weights : memref<?x2xi32>, memref<?x2xf32>) : memref<?x4xf32>
  %3 = memref.cast %1 : memref<2x2xi32> to memref<*xi32>
  call @printMemrefI32(%3) : (memref<*xi32>) -> ()
  %4 = memref.cast %2 : memref<2x2xf32> to memref<*xf32>
  call @printMemrefF32(%4) : (memref<*xf32>) -> ()
  return
}
// CHECK: {{\[\[}}0, 1],
// CHECK-NEXT: [0, -1{{\]\]}}
// CHECK: {{\[\[}}0.731059, 0.268941],
// CHECK-NEXT: [0.731059, 0{{\]\]}}
memref.global "private" constant @sample_draws : memref<2xf32> = dense<[0.5, 0.6]>

// Rounded to bf16 the logits tie; in f32 they do not.
memref.global "private" constant @rounded_logits : memref<1x2xbf16> = dense<[[1.0, 1.0009765625]]>
func.func private @rounded() {
  %0 = memref.get_global @rounded_logits : memref<1x2xbf16>
  %logits = memref.cast %0 : memref<1x2xbf16> to memref<?x2xbf16>
  %1 = memref.alloc() : memref<1x1xi32>
  %ids = memref.cast %1 : memref<1x1xi32> to memref<?x1xi32>
  %2 = memref.alloc() : memref<1x1xf32>
  %weights = memref.cast %2 : memref<1x1xf32> to memref<?x1xf32>
  moe.gate %logits router<score = identity>
      outs(%ids, %weights : memref<?x1xi32>, memref<?x1xf32>) : memref<?x2xbf16>
  %3 = memref.cast %1 : memref<1x1xi32> to memref<*xi32>
  call @printMemrefI32(%3) : (memref<*xi32>) -> ()
  %4 = memref.cast %2 : memref<1x1xf32> to memref<*xf32>
  call @printMemrefF32(%4) : (memref<*xf32>) -> ()
  return
}
// CHECK: {{\[\[}}0{{\]\]}}
// CHECK: {{\[\[}}1{{\]\]}}

memref.global "private" constant @exact_logits : memref<1x2xf32> = dense<[[1.0, 1.0009765625]]>
func.func private @exact() {
  %0 = memref.get_global @exact_logits : memref<1x2xf32>
  %logits = memref.cast %0 : memref<1x2xf32> to memref<?x2xf32>
  %1 = memref.alloc() : memref<1x1xi32>
  %ids = memref.cast %1 : memref<1x1xi32> to memref<?x1xi32>
  %2 = memref.alloc() : memref<1x1xf32>
  %weights = memref.cast %2 : memref<1x1xf32> to memref<?x1xf32>
  moe.gate %logits router<score = identity>
      outs(%ids, %weights : memref<?x1xi32>, memref<?x1xf32>) : memref<?x2xf32>
  %3 = memref.cast %1 : memref<1x1xi32> to memref<*xi32>
  call @printMemrefI32(%3) : (memref<*xi32>) -> ()
  %4 = memref.cast %2 : memref<1x1xf32> to memref<*xf32>
  call @printMemrefF32(%4) : (memref<*xf32>) -> ()
  return
}
// CHECK: {{\[\[}}1{{\]\]}}
// CHECK: {{\[\[}}1.00098{{\]\]}}

memref.global "private" constant @softplus_logits : memref<1x4xf32> = dense<[[0.0, -30.0, 20.0, 0x7FC00000]]>
func.func private @softplus() {
  %0 = memref.get_global @softplus_logits : memref<1x4xf32>
  %logits = memref.cast %0 : memref<1x4xf32> to memref<?x4xf32>
  %1 = memref.alloc() : memref<1x2xi32>
  %ids = memref.cast %1 : memref<1x2xi32> to memref<?x2xi32>
  %2 = memref.alloc() : memref<1x2xf32>
  %weights = memref.cast %2 : memref<1x2xf32> to memref<?x2xf32>
  moe.gate %logits router<score = sqrtsoftplus>
      outs(%ids, %weights : memref<?x2xi32>, memref<?x2xf32>) : memref<?x4xf32>
  %3 = memref.cast %1 : memref<1x2xi32> to memref<*xi32>
  call @printMemrefI32(%3) : (memref<*xi32>) -> ()
  %4 = memref.cast %2 : memref<1x2xf32> to memref<*xf32>
  call @printMemrefF32(%4) : (memref<*xf32>) -> ()
  return
}
// CHECK: {{\[\[}}2, 0{{\]\]}}
// CHECK: {{\[\[}}4.47214, 0.832555{{\]\]}}

memref.global "private" constant @one_expert_logits : memref<2x1xf32> = dense<[[7.0], [0xFF800000]]>
func.func private @one_expert() {
  %0 = memref.get_global @one_expert_logits : memref<2x1xf32>
  %logits = memref.cast %0 : memref<2x1xf32> to memref<?x1xf32>
  %1 = memref.alloc() : memref<2x1xi32>
  %ids = memref.cast %1 : memref<2x1xi32> to memref<?x1xi32>
  %2 = memref.alloc() : memref<2x1xf32>
  %weights = memref.cast %2 : memref<2x1xf32> to memref<?x1xf32>
  moe.gate %logits router<score = softmax>
      outs(%ids, %weights : memref<?x1xi32>, memref<?x1xf32>) : memref<?x1xf32>
  %3 = memref.cast %1 : memref<2x1xi32> to memref<*xi32>
  call @printMemrefI32(%3) : (memref<*xi32>) -> ()
  %4 = memref.cast %2 : memref<2x1xf32> to memref<*xf32>
  call @printMemrefF32(%4) : (memref<*xf32>) -> ()
  return
}
// CHECK: {{\[\[}}0],
// CHECK-NEXT: [0{{\]\]}}
// CHECK: {{\[\[}}1],
// CHECK-NEXT: [0{{\]\]}}

memref.global "private" constant @all_experts_logits : memref<1x4xf32> = dense<[[1.0, 3.0, 0.0, 2.0]]>
func.func private @all_experts() {
  %0 = memref.get_global @all_experts_logits : memref<1x4xf32>
  %logits = memref.cast %0 : memref<1x4xf32> to memref<?x4xf32>
  %1 = memref.alloc() : memref<1x4xi32>
  %ids = memref.cast %1 : memref<1x4xi32> to memref<?x4xi32>
  %2 = memref.alloc() : memref<1x4xf32>
  %weights = memref.cast %2 : memref<1x4xf32> to memref<?x4xf32>
  moe.gate %logits router<score = identity>
      outs(%ids, %weights : memref<?x4xi32>, memref<?x4xf32>) : memref<?x4xf32>
  %3 = memref.cast %1 : memref<1x4xi32> to memref<*xi32>
  call @printMemrefI32(%3) : (memref<*xi32>) -> ()
  %4 = memref.cast %2 : memref<1x4xf32> to memref<*xf32>
  call @printMemrefF32(%4) : (memref<*xf32>) -> ()
  return
}
// CHECK: {{\[\[}}1, 3, 0, 2{{\]\]}}
// CHECK: {{\[\[}}3, 2, 1, 0{{\]\]}}

// Two tokens per expert; ties to the lower token.
memref.global "private" constant @expert_choice_logits : memref<4x2xf32> = dense<[[1.0, 5.0], [3.0, 4.0], [1.0, 4.0], [0.0, 0x7FC00000]]>
func.func private @expert_choice() {
  %0 = memref.get_global @expert_choice_logits : memref<4x2xf32>
  %logits = memref.cast %0 : memref<4x2xf32> to memref<?x2xf32>
  %1 = memref.alloc() : memref<4x2xi32>
  %ids = memref.cast %1 : memref<4x2xi32> to memref<?x2xi32>
  %2 = memref.alloc() : memref<4x2xf32>
  %weights = memref.cast %2 : memref<4x2xf32> to memref<?x2xf32>
  %c = arith.constant 2 : index
  moe.gate %logits router<score = identity, expert_choice> capacity(%c)
      outs(%ids, %weights : memref<?x2xi32>, memref<?x2xf32>) : memref<?x2xf32>
  %3 = memref.cast %1 : memref<4x2xi32> to memref<*xi32>
  call @printMemrefI32(%3) : (memref<*xi32>) -> ()
  %4 = memref.cast %2 : memref<4x2xf32> to memref<*xf32>
  call @printMemrefF32(%4) : (memref<*xf32>) -> ()
  return
}
// CHECK: {{\[\[}}0, 1],
// CHECK-NEXT: [0, 1],
// CHECK-NEXT: [-1, -1],
// CHECK-NEXT: [-1, -1{{\]\]}}
// CHECK: {{\[\[}}1, 5],
// CHECK-NEXT: [3, 4],
// CHECK-NEXT: [0, 0],
// CHECK-NEXT: [0, 0{{\]\]}}

// Masked tokens are never taken; -inf is taken with weight 0.
memref.global "private" constant @expert_choice_mask_logits : memref<4x2xf32> = dense<[[1.0, 5.0], [3.0, 4.0], [1.0, 4.0], [0.0, 0x7FC00000]]>
func.func private @expert_choice_mask() {
  %0 = memref.get_global @expert_choice_mask_logits : memref<4x2xf32>
  %logits = memref.cast %0 : memref<4x2xf32> to memref<?x2xf32>
  %1 = memref.alloc() : memref<4x2xi32>
  %ids = memref.cast %1 : memref<4x2xi32> to memref<?x2xi32>
  %2 = memref.alloc() : memref<4x2xf32>
  %weights = memref.cast %2 : memref<4x2xf32> to memref<?x2xf32>
  %c = arith.constant 9 : index
  %m0 = memref.get_global @choice_tokens : memref<4xi1>
  %m = memref.cast %m0 : memref<4xi1> to memref<?xi1>
  moe.gate %logits router<score = identity, expert_choice> mask(%m : memref<?xi1>) capacity(%c)
      outs(%ids, %weights : memref<?x2xi32>, memref<?x2xf32>) : memref<?x2xf32>
  %3 = memref.cast %1 : memref<4x2xi32> to memref<*xi32>
  call @printMemrefI32(%3) : (memref<*xi32>) -> ()
  %4 = memref.cast %2 : memref<4x2xf32> to memref<*xf32>
  call @printMemrefF32(%4) : (memref<*xf32>) -> ()
  return
}
// CHECK: {{\[\[}}-1, -1],
// CHECK-NEXT: [0, 1],
// CHECK-NEXT: [0, 1],
// CHECK-NEXT: [0, 1{{\]\]}}
// CHECK: {{\[\[}}0, 0],
// CHECK-NEXT: [3, 4],
// CHECK-NEXT: [1, 4],
// CHECK-NEXT: [0, 0{{\]\]}}
memref.global "private" constant @choice_tokens : memref<4xi1> = dense<[false, true, true, true]>

memref.global "private" constant @expert_choice_none_logits : memref<2x2xf32> = dense<[[1.0, 5.0], [3.0, 4.0]]>
func.func private @expert_choice_none() {
  %0 = memref.get_global @expert_choice_none_logits : memref<2x2xf32>
  %logits = memref.cast %0 : memref<2x2xf32> to memref<?x2xf32>
  %1 = memref.alloc() : memref<2x2xi32>
  %ids = memref.cast %1 : memref<2x2xi32> to memref<?x2xi32>
  %2 = memref.alloc() : memref<2x2xf32>
  %weights = memref.cast %2 : memref<2x2xf32> to memref<?x2xf32>
  %c = arith.constant 0 : index
  moe.gate %logits router<score = identity, expert_choice> capacity(%c)
      outs(%ids, %weights : memref<?x2xi32>, memref<?x2xf32>) : memref<?x2xf32>
  %3 = memref.cast %1 : memref<2x2xi32> to memref<*xi32>
  call @printMemrefI32(%3) : (memref<*xi32>) -> ()
  %4 = memref.cast %2 : memref<2x2xf32> to memref<*xf32>
  call @printMemrefF32(%4) : (memref<*xf32>) -> ()
  return
}
// CHECK: {{\[\[}}-1, -1],
// CHECK-NEXT: [-1, -1{{\]\]}}
// CHECK: {{\[\[}}0, 0],
// CHECK-NEXT: [0, 0{{\]\]}}

// 300 experts, all of them chosen: the ids are the whole order.
func.func private @many() {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c300 = arith.constant 300 : index
  %c7 = arith.constant 7 : index
  %logits = memref.alloc() : memref<1x300xf32>
  scf.for %e = %c0 to %c300 step %c1 {
    // 7 and 300 have no common factor: every value once.
    %m = arith.muli %e, %c7 : index
    %r = arith.remui %m, %c300 : index
    %i = arith.index_cast %r : index to i32
    %f = arith.sitofp %i : i32 to f32
    memref.store %f, %logits[%c0, %e] : memref<1x300xf32>
  }
  %ids = memref.alloc() : memref<1x300xi32>
  %weights = memref.alloc() : memref<1x300xf32>
  moe.gate %logits router<score = identity>
      outs(%ids, %weights : memref<1x300xi32>, memref<1x300xf32>) : memref<1x300xf32>
  %head = memref.subview %ids[0, 0] [1, 4] [1, 1] : memref<1x300xi32> to memref<1x4xi32, strided<[300, 1]>>
  %0 = memref.cast %head : memref<1x4xi32, strided<[300, 1]>> to memref<*xi32>
  call @printMemrefI32(%0) : (memref<*xi32>) -> ()
  %tail = memref.subview %weights[0, 296] [1, 4] [1, 1] : memref<1x300xf32> to memref<1x4xf32, strided<[300, 1], offset: 296>>
  %1 = memref.cast %tail : memref<1x4xf32, strided<[300, 1], offset: 296>> to memref<*xf32>
  call @printMemrefF32(%1) : (memref<*xf32>) -> ()
  return
}
// CHECK: {{\[\[}}257, 214, 171, 128{{\]\]}}
// CHECK: {{\[\[}}3, 2, 1, 0{{\]\]}}

// No tokens: nothing is read or written.
func.func private @empty() {
  %c0 = arith.constant 0 : index
  %logits = memref.alloc(%c0) : memref<?x4xf32>
  %ids = memref.alloc(%c0) : memref<?x2xi32>
  %weights = memref.alloc(%c0) : memref<?x2xf32>
  moe.gate %logits router<normalize = max_sum_eps>
      outs(%ids, %weights : memref<?x2xi32>, memref<?x2xf32>) : memref<?x4xf32>
  return
}

func.func @main() {
  call @special() : () -> ()
  call @plain() : () -> ()
  call @single() : () -> ()
  call @single_normalised() : () -> ()
  call @after() : () -> ()
  call @after_sigmoid() : () -> ()
  call @bias() : () -> ()
  call @negative() : () -> ()
  call @groups() : () -> ()
  call @groups_sum() : () -> ()
  call @run_time_k() : () -> ()
  call @large_k() : () -> ()
  call @negative_k() : () -> ()
  call @threshold() : () -> ()
  call @mask() : () -> ()
  call @replay() : () -> ()
  call @sample() : () -> ()
  call @rounded() : () -> ()
  call @exact() : () -> ()
  call @softplus() : () -> ()
  call @one_expert() : () -> ()
  call @all_experts() : () -> ()
  call @expert_choice() : () -> ()
  call @expert_choice_mask() : () -> ()
  call @expert_choice_none() : () -> ()
  call @many() : () -> ()
  call @empty() : () -> ()
  return
}
