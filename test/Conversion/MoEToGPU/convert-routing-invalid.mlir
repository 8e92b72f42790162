// RUN: moira-opt %s -split-input-file -convert-moe-to-gpu -verify-diagnostics

func.func @tensors(%i: tensor<?x2xi32>) -> tensor<8xi32> {
  // expected-error @below {{'moe.count' op expected the buffer form, got the tensor form}}
  %n = moe.count %i : tensor<?x2xi32> -> tensor<8xi32>
  return %n : tensor<8xi32>
}

// -----

func.func @wide(%l: memref<?x8xf64>, %i: memref<?x2xi32>, %w: memref<?x2xf64>) {
  // expected-error @below {{'moe.gate' op expected f32, bf16 or f16 on a GPU, got 'f64'}}
  moe.gate %l router<>
      outs(%i, %w : memref<?x2xi32>, memref<?x2xf64>) : memref<?x8xf64>
  return
}

// -----

func.func @many(%l: memref<?x2048xf32>, %i: memref<?x2xi32>, %w: memref<?x2xf32>) {
  // expected-error @below {{'moe.gate' op expected at most 1024 experts and 32 of them chosen on a GPU, got 2 of 2048}}
  moe.gate %l router<>
      outs(%i, %w : memref<?x2xi32>, memref<?x2xf32>) : memref<?x2048xf32>
  return
}

// -----

func.func @priorities(%i: memref<?x2xi32>, %n: memref<8xi32>, %p: memref<?xf64>,
                      %s: memref<?x2xi32>, %m: memref<8xi32>) {
  // expected-error @below {{'moe.assign' op expected a priority of f32 on a GPU, got f64}}
  moe.assign %i batch_prioritized counts(%n : memref<8xi32>)
      priority(%p : memref<?xf64>)
      outs(%s, %m : memref<?x2xi32>, memref<8xi32>) : memref<?x2xi32>
  return
}

// -----

func.func @byExpert(%l: memref<?x2048xf32>, %i: memref<?x2048xi32>,
                    %w: memref<?x2048xf32>, %c: index) {
  // expected-error @below {{'moe.gate' op expected at most 1024 experts and 1024 of them chosen on a GPU, got 2048 of 2048}}
  moe.gate %l router<expert_choice> capacity(%c)
      outs(%i, %w : memref<?x2048xi32>, memref<?x2048xf32>) : memref<?x2048xf32>
  return
}

// -----

func.func @choices(%i: memref<?x?xi32>, %n: memref<8xi32>) {
  // expected-error @below {{'moe.count' op expected a static number of choices on a GPU, got a dynamic one}}
  moe.count %i outs(%n : memref<8xi32>) : memref<?x?xi32>
  return
}

// -----

func.func @features(%x: memref<?x?xf32>, %s: memref<?x2xi32>, %n: memref<8xi32>,
                    %b: index, %r: memref<?x?xf32>) {
  // expected-error @below {{'moe.dispatch' op expected static features and choices on a GPU, got dynamic ones}}
  moe.dispatch %x, %s, %n, %b outs(%r : memref<?x?xf32>)
      : memref<?x?xf32>, memref<?x2xi32>, memref<8xi32>
  return
}

// -----

func.func @strided(%s: memref<?x2xi32, strided<[4, 1]>>, %b: index,
                   %t: memref<?xi32>) {
  // expected-error @below {{'moe.sources' op expected memrefs with the identity layout on a GPU, got 'memref<?x2xi32, strided<[4, 1]>>'}}
  moe.sources %s, %b outs(%t : memref<?xi32>)
      : memref<?x2xi32, strided<[4, 1]>>
  return
}
