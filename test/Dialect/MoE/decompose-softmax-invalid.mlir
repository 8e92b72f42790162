// RUN: moira-opt %s -moe-decompose-softmax -verify-diagnostics

func.func @buffers(%x: memref<?x8xf32>, %y: memref<?x8xf32>) {
  // expected-error @+1 {{'linalg.softmax' op expected a softmax of tensors, got 'memref<?x8xf32>'}}
  linalg.softmax dimension(1) ins(%x : memref<?x8xf32>) outs(%y : memref<?x8xf32>)
  return
}
