// The worked example of docs/routing.md (conformance cases C2 and C3): six
// tokens, four experts that compute (e + 1) * relu(x), two choices.
//
// RUN: moira-opt %s -moe-decompose -moe-expand-math | mlir-opt \
// RUN:   -one-shot-bufferize="bufferize-function-boundaries function-boundary-type-conversion=identity-layout-map" \
// RUN:   -arith-expand -convert-linalg-to-loops -expand-strided-metadata \
// RUN:   -lower-affine -convert-scf-to-cf -convert-vector-to-llvm \
// RUN:   -finalize-memref-to-llvm -convert-math-to-llvm -convert-math-to-libm \
// RUN:   -convert-arith-to-llvm -convert-cf-to-llvm -convert-func-to-llvm \
// RUN:   -reconcile-unrealized-casts \
// RUN: | mlir-runner -e main -entry-point-result=void \
// RUN:   -shared-libs=%mlir_libs/libmlir_runner_utils.so,%mlir_libs/libmlir_c_runner_utils.so \
// RUN: | FileCheck %s

func.func private @printMemrefF32(tensor<*xf32>) attributes {llvm.emit_c_interface}
func.func private @printMemrefI32(tensor<*xi32>) attributes {llvm.emit_c_interface}

func.func private @layer(%logits: tensor<?x4xf32>, %factor: f64)
    -> (tensor<?x2xi32>, tensor<?x2xi32>, tensor<4xi32>, tensor<?x2xf32>) {
  %c0 = arith.constant 0 : index
  %k = arith.constant 2 : index
  %t = tensor.dim %logits, %c0 : tensor<?x4xf32>
  // Row t is [t + 1, 10 (t + 1)].
  %x = tensor.generate %t {
  ^bb0(%i: index, %d: index):
    %one = arith.constant 1 : index
    %nine = arith.constant 9 : index
    %i1 = arith.addi %i, %one : index
    %f = arith.muli %d, %nine : index
    %f1 = arith.addi %f, %one : index
    %v = arith.muli %i1, %f1 : index
    %vi = arith.index_cast %v : index to i32
    %vf = arith.sitofp %vi : i32 to f32
    tensor.yield %vf : f32
  } : tensor<?x2xf32>
  %w = arith.constant dense<[[[1.0, 0.0], [0.0, 1.0]], [[2.0, 0.0], [0.0, 2.0]],
      [[3.0, 0.0], [0.0, 3.0]], [[4.0, 0.0], [0.0, 4.0]]]> : tensor<4x2x2xf32>
  %ids, %weights = moe.gate %logits router<normalize = max_sum_eps>
      : tensor<?x4xf32> -> tensor<?x2xi32>, tensor<?x2xf32>
  %counts = moe.count %ids : tensor<?x2xi32> -> tensor<4xi32>
  %c = moe.capacity tutel tokens(%t) factor(%factor) top_k(%k)
      counts(%counts : tensor<4xi32>) {experts = 4 : i64}
  %slots, %sizes, %bound = moe.assign %ids choice_major
      counts(%counts : tensor<4xi32>) capacity(%c)
      : tensor<?x2xi32> -> tensor<?x2xi32>, tensor<4xi32>, index
  %rows = moe.dispatch %x, %slots, %sizes, %bound
      : tensor<?x2xf32>, tensor<?x2xi32>, tensor<4xi32> -> tensor<?x2xf32>
  %out = moe.expert rows(%rows : tensor<?x2xf32>) groups(%sizes : tensor<4xi32>)
      per_expert(%w : tensor<4x2x2xf32>) -> tensor<?x2xf32> {
  ^bb0(%r: tensor<?x2xf32>, %we: tensor<2x2xf32>):
    %i0 = arith.constant 0 : index
    %zero = arith.constant 0.0 : f32
    %n = tensor.dim %r, %i0 : tensor<?x2xf32>
    %e = tensor.empty(%n) : tensor<?x2xf32>
    %relu = linalg.generic {
        indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>],
        iterator_types = ["parallel", "parallel"]}
        ins(%r : tensor<?x2xf32>) outs(%e : tensor<?x2xf32>) {
    ^bb1(%a: f32, %o: f32):
      %m = arith.maximumf %a, %zero : f32
      linalg.yield %m : f32
    } -> tensor<?x2xf32>
    %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x2xf32>) -> tensor<?x2xf32>
    %y = linalg.matmul ins(%relu, %we : tensor<?x2xf32>, tensor<2x2xf32>)
        outs(%z : tensor<?x2xf32>) -> tensor<?x2xf32>
    moe.yield %y : tensor<?x2xf32>
  }
  %y = moe.combine %out, %slots weights(%weights : tensor<?x2xf32>)
      : tensor<?x2xf32>, tensor<?x2xi32> -> tensor<?x2xf32>
  return %ids, %slots, %sizes, %y
      : tensor<?x2xi32>, tensor<?x2xi32>, tensor<4xi32>, tensor<?x2xf32>
}

func.func private @show(%factor: f64) {
  %l = arith.constant dense<[[2.0, 1.0, 0.0, -1.0], [2.0, 0.0, 1.0, -1.0],
      [1.5, 0.5, 0.0, 0.0], [0.0, 3.0, 1.0, 0.0], [2.5, 0.0, 0.0, 1.0],
      [0.5, 0.0, 0.0, 2.0]]> : tensor<6x4xf32>
  %logits = tensor.cast %l : tensor<6x4xf32> to tensor<?x4xf32>
  %ids, %slots, %sizes, %y = call @layer(%logits, %factor)
      : (tensor<?x4xf32>, f64)
      -> (tensor<?x2xi32>, tensor<?x2xi32>, tensor<4xi32>, tensor<?x2xf32>)
  %u0 = tensor.cast %ids : tensor<?x2xi32> to tensor<*xi32>
  call @printMemrefI32(%u0) : (tensor<*xi32>) -> ()
  %u1 = tensor.cast %slots : tensor<?x2xi32> to tensor<*xi32>
  call @printMemrefI32(%u1) : (tensor<*xi32>) -> ()
  %u2 = tensor.cast %sizes : tensor<4xi32> to tensor<*xi32>
  call @printMemrefI32(%u2) : (tensor<*xi32>) -> ()
  %u3 = tensor.cast %y : tensor<?x2xf32> to tensor<*xf32>
  call @printMemrefF32(%u3) : (tensor<*xf32>) -> ()
  return
}

func.func @main() {
  %one = arith.constant 1.0 : f64
  call @show(%one) : (f64) -> ()
  %half = arith.constant 0.5 : f64
  call @show(%half) : (f64) -> ()
  return
}

// f = 1: C = 4, token 5's second choice is dropped.
// CHECK: sizes = [6, 2]
// CHECK-NEXT: {{\[\[}}0, 1],
// CHECK-NEXT: [0, 2],
// CHECK-NEXT: [0, 1],
// CHECK-NEXT: [1, 2],
// CHECK-NEXT: [0, 3],
// CHECK-NEXT: [3, 0]]
// CHECK: sizes = [6, 2]
// CHECK-NEXT: {{\[\[}}0, 5],
// CHECK-NEXT: [1, 7],
// CHECK-NEXT: [2, 6],
// CHECK-NEXT: [4, 8],
// CHECK-NEXT: [3, 10],
// CHECK-NEXT: [9, -1]]
// CHECK: [4, 3, 2, 2]
// CHECK: sizes = [6, 2]
// CHECK-NEXT: {{\[\[}}1.26894, 12.6894],
// CHECK-NEXT: [3.07577, 30.7577],
// CHECK-NEXT: [3.80682, 38.0682],
// CHECK-NEXT: [8.47681, 84.7681],
// CHECK-NEXT: [7.73638, 77.3638],
// CHECK-NEXT: [19.6218, 196.218]]

// f = 1/2: C = 2.
// CHECK: sizes = [6, 2]
// CHECK: sizes = [6, 2]
// CHECK-NEXT: {{\[\[}}0, 3],
// CHECK-NEXT: [1, 4],
// CHECK-NEXT: [-1, -1],
// CHECK-NEXT: [2, 5],
// CHECK-NEXT: [-1, 7],
// CHECK-NEXT: [6, -1]]
// CHECK: [2, 2, 2, 2]
// CHECK: sizes = [6, 2]
// CHECK-NEXT: {{\[\[}}1.26894, 12.6894],
// CHECK-NEXT: [3.07577, 30.7577],
// CHECK-NEXT: [0, 0],
// CHECK-NEXT: [8.47681, 84.7681],
// CHECK-NEXT: [3.64851, 36.4851],
// CHECK-NEXT: [19.6218, 196.218]]
