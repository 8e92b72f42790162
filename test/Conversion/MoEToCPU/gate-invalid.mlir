// RUN: moira-opt %s -split-input-file -convert-moe-to-cpu -verify-diagnostics

func.func @tensor_form(%logits: tensor<?x4xf32>) {
  // expected-error@+1 {{'moe.gate' op expected the buffer form, got the tensor form}}
  %0:2 = moe.gate %logits router<score = softmax>
      : tensor<?x4xf32> -> tensor<?x2xi32>, tensor<?x2xf32>
  return
}
