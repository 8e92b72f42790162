// RUN: moira-opt %s -moe-decompose -canonicalize | FileCheck %s

// An expert reads and writes its own rows only.
// CHECK-LABEL: func.func @ragged
// CHECK-SAME: (%[[X:[a-z0-9]*]]: tensor<?x8xf32>, %[[SIZES:[a-z0-9]*]]: tensor<4xi32>, %[[W:[a-z0-9]*]]: tensor<4x8x16xf32>, %[[F:[a-z0-9]*]]: f32)
// CHECK: %[[T:.*]] = tensor.dim %[[X]]
// CHECK: %[[OUT:.*]] = tensor.empty(%[[T]]) : tensor<?x16xf32>
// CHECK: %[[R:.*]]:2 = scf.for %[[E:.*]] = %c0 to %c4 step %c1 iter_args(%[[Y:.*]] = %[[OUT]], %[[BEGIN:.*]] = %c0)
// CHECK: %[[S:.*]] = tensor.extract %[[SIZES]][%[[E]]]
// CHECK: %[[SIZE:.*]] = arith.index_cast %[[S]] : i32 to index
// CHECK: %[[ROWS:.*]] = tensor.extract_slice %[[X]][%[[BEGIN]], 0] [%[[SIZE]], 8] [1, 1]
// CHECK: %[[WE:.*]] = tensor.extract_slice %[[W]][%[[E]], 0, 0] [1, 8, 16] [1, 1, 1] : tensor<4x8x16xf32> to tensor<8x16xf32>
// CHECK: linalg.fill ins(%[[F]] : f32)
// CHECK: %[[P:.*]] = linalg.generic {{.*}} ins(%[[ROWS]], %[[WE]] :
// CHECK: %[[NEXT:.*]] = tensor.insert_slice %[[P]] into %[[Y]][%[[BEGIN]], 0] [%[[SIZE]], 16] [1, 1]
// CHECK: %[[END:.*]] = arith.addi %[[BEGIN]], %[[SIZE]] : index
// CHECK: scf.yield %[[NEXT]], %[[END]]
// CHECK: return %[[R]]#0
func.func @ragged(%x: tensor<?x8xf32>, %sizes: tensor<4xi32>, %w: tensor<4x8x16xf32>,
    %f: f32) -> tensor<?x16xf32> {
  %out = moe.expert rows(%x : tensor<?x8xf32>) groups(%sizes : tensor<4xi32>)
      per_expert(%w : tensor<4x8x16xf32>) shared(%f : f32) -> tensor<?x16xf32> {
  ^bb0(%r: tensor<?x8xf32>, %we: tensor<8x16xf32>, %init: f32):
    %c0 = arith.constant 0 : index
    %n = tensor.dim %r, %c0 : tensor<?x8xf32>
    %e = tensor.empty(%n) : tensor<?x16xf32>
    %z = linalg.fill ins(%init : f32) outs(%e : tensor<?x16xf32>) -> tensor<?x16xf32>
    %y = linalg.matmul ins(%r, %we : tensor<?x8xf32>, tensor<8x16xf32>)
        outs(%z : tensor<?x16xf32>) -> tensor<?x16xf32>
    moe.yield %y : tensor<?x16xf32>
  }
  return %out : tensor<?x16xf32>
}

// Two results of padded rows.
// CHECK-LABEL: func.func @padded
// CHECK: scf.for %[[E:.*]] = %c0 to %c4 step %c1 iter_args(%[[A:.*]] = %{{.*}}, %[[B:.*]] = %{{.*}}) -> (tensor<4x?x8xf32>, tensor<4x?x8xf32>)
// CHECK: %[[ROWS:.*]] = tensor.extract_slice %{{.*}}[%[[E]], 0, 0] [1, %[[SIZE:.*]], 8] [1, 1, 1] : tensor<4x?x8xf32> to tensor<?x8xf32>
// CHECK: tensor.insert_slice %{{.*}} into %[[A]][%[[E]], 0, 0] [1, %[[SIZE]], 8] [1, 1, 1]
// CHECK: tensor.insert_slice %[[ROWS]] into %[[B]][%[[E]], 0, 0] [1, %[[SIZE]], 8] [1, 1, 1]
func.func @padded(%x: tensor<4x?x8xf32>, %sizes: tensor<4xi32>)
    -> (tensor<4x?x8xf32>, tensor<4x?x8xf32>) {
  %out:2 = moe.expert rows(%x : tensor<4x?x8xf32>) groups(%sizes : tensor<4xi32>)
      -> tensor<4x?x8xf32>, tensor<4x?x8xf32> {
  ^bb0(%r: tensor<?x8xf32>):
    %t = math.tanh %r : tensor<?x8xf32>
    moe.yield %t, %r : tensor<?x8xf32>, tensor<?x8xf32>
  }
  return %out#0, %out#1 : tensor<4x?x8xf32>, tensor<4x?x8xf32>
}

// CHECK-LABEL: func.func @grouped
// CHECK-SAME: (%[[X:[a-z0-9]*]]: tensor<?x8xbf16>, %[[SIZES:[a-z0-9]*]]: tensor<4xi32>, %[[G:[a-z0-9]*]]: tensor<4x16x8xbf16>, %[[BIAS:[a-z0-9]*]]: tensor<4x16xf32>, %[[IDX:[a-z0-9]*]]: tensor<?xi32>, %[[S:[a-z0-9]*]]: tensor<?xf32>
// All experts share one buffer for the transposed weight.
// CHECK: %[[KN:.*]] = tensor.empty() : tensor<8x16xbf16>
// CHECK: scf.for %[[E:.*]] = %c0 to %c4
// A negative index reads row 0.
// CHECK: linalg.generic
// CHECK: %[[I:.*]] = tensor.extract %[[IDX]]
// CHECK: %[[ROW:.*]] = arith.maxsi %[[I]], %c0_i32 : i32
// CHECK: %[[ROWI:.*]] = arith.index_cast %[[ROW]]
// CHECK: tensor.extract %[[X]][%[[ROWI]], %{{.*}}]
// CHECK: %[[W:.*]] = tensor.extract_slice %[[G]][%[[E]], 0, 0] [1, 16, 8]
// CHECK: linalg.transpose ins(%[[W]] : tensor<16x8xbf16>) outs(%[[KN]] :
// CHECK: tensor.extract_slice %[[BIAS]][%[[E]], 0] [1, 16]
// CHECK: %[[ACC:.*]] = linalg.generic {{.*}} iterator_types = ["parallel", "reduction", "parallel"]
// CHECK: math.fma
// CHECK: tensor.extract_slice %[[S]]
// CHECK: linalg.generic {{.*}} ins(%[[ACC]], %{{.*}} : tensor<?x16xf32>, tensor<?xf32>) outs(%{{.*}} : tensor<?x16xbf16>)
// CHECK: arith.mulf
// CHECK: arith.truncf
// CHECK: tensor.insert_slice
func.func @grouped(%x: tensor<?x8xbf16>, %sizes: tensor<4xi32>, %g: tensor<4x16x8xbf16>,
    %b: tensor<4x16xf32>, %idx: tensor<?xi32>, %s: tensor<?xf32>) -> tensor<?x16xbf16> {
  %h = moe.grouped_matmul rows(%x : tensor<?x8xbf16>) groups(%sizes : tensor<4xi32>)
      weights(%g : tensor<4x16x8xbf16>) nk bias(%b : tensor<4x16xf32>)
      gather(%idx : tensor<?xi32>) scalars(%s : tensor<?xf32>) -> tensor<?x16xbf16> {
  ^bb0(%a: f32, %w: f32):
    %q = arith.mulf %a, %w : f32
    %t = arith.truncf %q : f32 to bf16
    moe.yield %t : bf16
  }
  return %h : tensor<?x16xbf16>
}

// CHECK-LABEL: func.func @weight_gradient
// CHECK: scf.for %[[E:.*]] = %c0 to %c4
// CHECK: %[[ZERO:.*]] = linalg.fill ins(%cst : f32)
// CHECK: linalg.generic {{.*}} iterator_types = ["parallel", "reduction", "parallel"]} ins(%{{.*}}, %{{.*}} : tensor<?x16xf32>, tensor<?x8xf32>) outs(%[[ZERO]] : tensor<16x8xf32>)
// CHECK: tensor.insert_slice %{{.*}} into %{{.*}}[%[[E]], 0, 0] [1, 16, 8]
func.func @weight_gradient(%a: tensor<?x16xf32>, %b: tensor<?x8xf32>,
    %sizes: tensor<4xi32>) -> tensor<4x16x8xf32> {
  %dw = moe.grouped_matmul rows(%a, %b : tensor<?x16xf32>, tensor<?x8xf32>)
      groups(%sizes : tensor<4xi32>) nk contraction -> tensor<4x16x8xf32> {}
  return %dw : tensor<4x16x8xf32>
}

// CHECK-LABEL: func.func @pack
// CHECK-SAME: (%[[W:[a-z0-9]*]]: tensor<4x8x100xf32>)
// CHECK: linalg.generic {{.*}} iterator_types = ["parallel", "parallel", "parallel", "parallel"]} outs(%{{.*}} : tensor<4x4x8x32xf32>)
// CHECK-DAG: %[[E:.*]] = linalg.index 0
// CHECK-DAG: %[[K:.*]] = linalg.index 2
// CHECK-DAG: %[[P:.*]] = linalg.index 1
// CHECK-DAG: %[[C:.*]] = linalg.index 3
// CHECK-DAG: %[[FIRST:.*]] = arith.muli %[[P]], %c32 : index
// CHECK-DAG: %[[N:.*]] = arith.addi %[[FIRST]], %[[C]] : index
// CHECK: arith.cmpi ult, %[[N]], %c100 : index
// CHECK: tensor.extract %[[W]][%[[E]], %[[K]], %[[N]]]
func.func @pack(%w: tensor<4x8x100xf32>) -> tensor<4x4x8x32xf32> {
  %p = moe.pack %w kn : tensor<4x8x100xf32> -> tensor<4x4x8x32xf32>
  return %p : tensor<4x4x8x32xf32>
}
