// RUN: moira-opt --moe-shrink-sizes %s | FileCheck %s
// RUN: moira-opt --moe-shrink-sizes=least=64 %s | FileCheck %s --check-prefix=LEAST
// RUN: moira-opt --moe-shrink-sizes %examples/olmoe/layer.mlir | FileCheck %s --check-prefix=OLMOE
// RUN: moira-opt --moe-shrink-sizes %examples/olmoe/tiny.mlir > %t.tiny
// RUN: moira-opt %examples/olmoe/tiny.mlir | cmp - %t.tiny

// Sizes from 128 on are divided by what leaves 32 of the smallest, wherever they
// stand: types, slices, constants of one element.

// CHECK-LABEL: func.func @sizes(
// CHECK-SAME: %{{.*}}: tensor<?x32xf32>, %{{.*}}: tensor<96x32xf32>, %{{.*}}: tensor<100xf32>
// CHECK-SAME: -> (tensor<32x32xf32>, tensor<?x32xf32>, index)
// CHECK: tensor.extract_slice %{{.*}}[64, 0] [32, 32] [1, 1] : tensor<96x32xf32> to tensor<32x32xf32>
// CHECK: arith.constant dense<1.000000e+00> : tensor<32xf32>
// CHECK: arith.constant 32 : index
// CHECK: arith.constant 129 : index
// LEAST-LABEL: func.func @sizes(
// LEAST-SAME: tensor<?x64xf32>, %{{.*}}: tensor<192x64xf32>
func.func @sizes(%x: tensor<?x256xf32>, %w: tensor<768x256xf32>, %v: tensor<100xf32>)
    -> (tensor<256x256xf32>, tensor<?x256xf32>, index) {
  %s = tensor.extract_slice %w[512, 0] [256, 256] [1, 1]
      : tensor<768x256xf32> to tensor<256x256xf32>
  %c = arith.constant dense<1.0> : tensor<256xf32>
  %i = arith.constant 256 : index
  %j = arith.constant 129 : index
  %k = arith.addi %i, %j : index
  %e = tensor.empty(%k) : tensor<?x256xf32>
  %b = linalg.broadcast ins(%c : tensor<256xf32>) outs(%e : tensor<?x256xf32>)
      dimensions = [0]
  return %s, %b, %k : tensor<256x256xf32>, tensor<?x256xf32>, index
}

// OLMOE: func.func @main(%{{.*}}: tensor<?x64xbf16>
// OLMOE-SAME: tensor<64x32x64xbf16>
