// RUN: moira-opt %s -moe-decompose -split-input-file -verify-diagnostics

func.func @buffers(%ids: memref<?x2xi32>, %counts: memref<4xi32>) {
  // expected-error @+1 {{expected 'moe.count' in tensor form, got its buffer form}}
  moe.count %ids outs(%counts : memref<4xi32>) : memref<?x2xi32>
  return
}

// -----

// What lists functions stays.
func.func @main_a() { return }
moe.variants @main [@main_a] [decode]
