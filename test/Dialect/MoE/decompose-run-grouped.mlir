// Numbers of what a layer does not show: grouped products in all layouts and in
// both modes, packing, gathering, and random numbers.
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

// Three experts with 2, 0 and 1 rows; N = 3, K = 2.
func.func private @layouts(%x: tensor<?x2xf32>, %sizes: tensor<3xi32>,
    %nk: tensor<3x3x2xf32>, %kn: tensor<3x2x3xf32>, %bias: tensor<3x3xf32>) {
  // Row r of group e: bias[e, n] + sum over k of x[r, k] * w[e][n, k].
  // CHECK: sizes = [3, 3]
  // CHECK-NEXT: {{\[\[}}21, 41, 61],
  // CHECK-NEXT: [31, 61, 91],
  // CHECK-NEXT: [561, 579, 597]]
  %0 = moe.grouped_matmul rows(%x : tensor<?x2xf32>) groups(%sizes : tensor<3xi32>)
      weights(%nk : tensor<3x3x2xf32>) nk bias(%bias : tensor<3x3xf32>)
      -> tensor<?x3xf32> {
  ^bb0(%a: f32):
    moe.yield %a : f32
  }
  %u0 = tensor.cast %0 : tensor<?x3xf32> to tensor<*xf32>
  call @printMemrefF32(%u0) : (tensor<*xf32>) -> ()

  // The same from the transposed weight, then from panels of width 2.
  // CHECK: sizes = [3, 3]
  // CHECK-NEXT: {{\[\[}}21, 41, 61],
  // CHECK-NEXT: [31, 61, 91],
  // CHECK-NEXT: [561, 579, 597]]
  %1 = moe.grouped_matmul rows(%x : tensor<?x2xf32>) groups(%sizes : tensor<3xi32>)
      weights(%kn : tensor<3x2x3xf32>) kn bias(%bias : tensor<3x3xf32>)
      -> tensor<?x3xf32> {
  ^bb0(%a: f32):
    moe.yield %a : f32
  }
  %u1 = tensor.cast %1 : tensor<?x3xf32> to tensor<*xf32>
  call @printMemrefF32(%u1) : (tensor<*xf32>) -> ()

  // Columns beyond N are zero.
  // CHECK: sizes = [2, 2, 2]
  // CHECK: [10, 20],
  // CHECK-NEXT: [5, 10]
  // CHECK-NEXT: [30, 0],
  // CHECK-NEXT: [15, 0]
  %packed = moe.pack %nk nk : tensor<3x3x2xf32> -> tensor<3x2x2x2xf32>
  %first = tensor.extract_slice %packed[0, 0, 0, 0] [1, 2, 2, 2] [1, 1, 1, 1]
      : tensor<3x2x2x2xf32> to tensor<2x2x2xf32>
  %u2 = tensor.cast %first : tensor<2x2x2xf32> to tensor<*xf32>
  call @printMemrefF32(%u2) : (tensor<*xf32>) -> ()

  // CHECK: sizes = [3, 3]
  // CHECK-NEXT: {{\[\[}}21, 41, 61],
  // CHECK-NEXT: [31, 61, 91],
  // CHECK-NEXT: [561, 579, 597]]
  %packed_kn = moe.pack %kn kn : tensor<3x2x3xf32> -> tensor<3x2x2x2xf32>
  %3 = moe.grouped_matmul rows(%x : tensor<?x2xf32>) groups(%sizes : tensor<3xi32>)
      weights(%packed_kn : tensor<3x2x2x2xf32>) panels bias(%bias : tensor<3x3xf32>)
      -> tensor<?x3xf32> {
  ^bb0(%a: f32):
    moe.yield %a : f32
  }
  %u3 = tensor.cast %3 : tensor<?x3xf32> to tensor<*xf32>
  call @printMemrefF32(%u3) : (tensor<*xf32>) -> ()
  return
}

// Two weights, gathered rows, and every kind of epilogue operand.
func.func private @epilogue(%x: tensor<?x2xf32>, %sizes: tensor<3xi32>,
    %nk: tensor<3x3x2xf32>, %bias: tensor<3x3xf32>) {
  // Rows 2, 0 (negative) and 1 of x; (a + b + v) * s + t, where a = b are the
  // products, v the vector, s the scalar and t the element.
  // CHECK: sizes = [3, 3]
  // CHECK-NEXT: {{\[\[}}122, 242, 362],
  // CHECK-NEXT: [412, 812, 1212],
  // CHECK-NEXT: [23005, 23485, 23965]]
  %gather = arith.constant dense<[2, -1, 1]> : tensor<3xi32>
  %g = tensor.cast %gather : tensor<3xi32> to tensor<?xi32>
  %scalars = arith.constant dense<[1.0, 10.0, 40.0]> : tensor<3xf32>
  %s = tensor.cast %scalars : tensor<3xf32> to tensor<?xf32>
  %elements = arith.constant dense<[[1.0, 1.0, 1.0], [2.0, 2.0, 2.0], [5.0, 5.0, 5.0]]>
      : tensor<3x3xf32>
  %t = tensor.cast %elements : tensor<3x3xf32> to tensor<?x3xf32>
  %0 = moe.grouped_matmul rows(%x : tensor<?x2xf32>) groups(%sizes : tensor<3xi32>)
      weights(%nk, %nk : tensor<3x3x2xf32>, tensor<3x3x2xf32>) nk
      gather(%g : tensor<?xi32>) vectors(%bias : tensor<3x3xf32>)
      elements(%t : tensor<?x3xf32>) scalars(%s : tensor<?xf32>) -> tensor<?x3xf32> {
  ^bb0(%a: f32, %b: f32, %v: f32, %e: f32, %c: f32):
    %1 = arith.addf %a, %b : f32
    %2 = arith.addf %1, %v : f32
    %3 = arith.mulf %2, %c : f32
    %4 = arith.addf %3, %e : f32
    moe.yield %4 : f32
  }
  %u0 = tensor.cast %0 : tensor<?x3xf32> to tensor<*xf32>
  call @printMemrefF32(%u0) : (tensor<*xf32>) -> ()
  return
}

// Weight gradients; that of the expert without rows is zero.
func.func private @gradient(%x: tensor<?x2xf32>, %sizes: tensor<3xi32>) {
  // CHECK: sizes = [3, 2, 2]
  // CHECK: [5, 6],
  // CHECK-NEXT: [6, 8]
  // CHECK-NEXT: [0, 0],
  // CHECK-NEXT: [0, 0]
  // CHECK-NEXT: [9, 18],
  // CHECK-NEXT: [18, 36]
  %a = arith.constant dense<[[1.0, 2.0], [2.0, 2.0], [3.0, 6.0]]> : tensor<3x2xf32>
  %left = tensor.cast %a : tensor<3x2xf32> to tensor<?x2xf32>
  %dw = moe.grouped_matmul rows(%left, %x : tensor<?x2xf32>, tensor<?x2xf32>)
      groups(%sizes : tensor<3xi32>) nk contraction -> tensor<3x2x2xf32> {}
  %u0 = tensor.cast %dw : tensor<3x2x2xf32> to tensor<*xf32>
  call @printMemrefF32(%u0) : (tensor<*xf32>) -> ()
  return
}

// Philox4x32-10 of counter 0 and key 0 begins with 0x6627e8d5, 0xe169c58d.
func.func private @noise(%t: index) {
  // (0x6627e8 + 1/2) / 2^24
  // CHECK: sizes = [1, 1]
  // CHECK-NEXT: {{\[\[}}0.399046
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0 : i64
  %0 = moe.noise uniform rows(%t) seed(%zero) step(%zero) first(%c0)
      {layer = 0 : i64} -> tensor<?x1xf32>
  %u0 = tensor.cast %0 : tensor<?x1xf32> to tensor<*xf32>
  call @printMemrefF32(%u0) : (tensor<*xf32>) -> ()
  // sqrt(-2 ln 0.399046) cos(2 pi 0.880520)
  // CHECK: sizes = [1, 1]
  // CHECK-NEXT: {{\[\[}}0.991138
  %1 = moe.noise normal rows(%t) seed(%zero) step(%zero) first(%c0)
      {layer = 0 : i64} -> tensor<?x1xf32>
  %u1 = tensor.cast %1 : tensor<?x1xf32> to tensor<*xf32>
  call @printMemrefF32(%u1) : (tensor<*xf32>) -> ()
  return
}

func.func @main() {
  %rows = arith.constant dense<[[1.0, 2.0], [2.0, 2.0], [3.0, 6.0]]> : tensor<3x2xf32>
  %x = tensor.cast %rows : tensor<3x2xf32> to tensor<?x2xf32>
  %sizes = arith.constant dense<[2, 0, 1]> : tensor<3xi32>
  %nk = arith.constant dense<[[[10.0, 5.0], [20.0, 10.0], [30.0, 15.0]],
      [[1.0, 1.0], [1.0, 1.0], [1.0, 1.0]],
      [[100.0, 43.0], [100.0, 46.0], [100.0, 49.0]]]> : tensor<3x3x2xf32>
  %kn = arith.constant dense<[[[10.0, 20.0, 30.0], [5.0, 10.0, 15.0]],
      [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]],
      [[100.0, 100.0, 100.0], [43.0, 46.0, 49.0]]]> : tensor<3x2x3xf32>
  %bias = arith.constant dense<[[1.0, 1.0, 1.0], [2.0, 2.0, 2.0], [3.0, 3.0, 3.0]]>
      : tensor<3x3xf32>
  call @layouts(%x, %sizes, %nk, %kn, %bias) : (tensor<?x2xf32>, tensor<3xi32>,
      tensor<3x3x2xf32>, tensor<3x2x3xf32>, tensor<3x3xf32>) -> ()
  call @epilogue(%x, %sizes, %nk, %bias) : (tensor<?x2xf32>, tensor<3xi32>,
      tensor<3x3x2xf32>, tensor<3x3xf32>) -> ()
  call @gradient(%x, %sizes) : (tensor<?x2xf32>, tensor<3xi32>) -> ()
  %one = arith.constant 1 : index
  call @noise(%one) : (index) -> ()
  return
}
