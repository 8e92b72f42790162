// RUN: moira-opt %s --moe-token-blocks=ranks=2 -split-input-file -verify-diagnostics

func.func @counts(%t: index, %f: f64, %k: index, %counts: tensor<4xi32>) -> index {
  // expected-error @+1 {{'moe.capacity' op expected counts from a moe.count, to count by block, got another value}}
  %c = moe.capacity tutel tokens(%t) factor(%f) top_k(%k) counts(%counts : tensor<4xi32>) {experts = 4 : i64}
  return %c : index
}
