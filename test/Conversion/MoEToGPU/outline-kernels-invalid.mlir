// RUN: moira-opt %s -split-input-file -moe-outline-kernels -verify-diagnostics

func.func @allocates(%x: memref<4xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  scf.parallel (%i) = (%c0) to (%c4) step (%c1) {
    // expected-error @below {{'memref.alloc' op expected no such op in a kernel, got one}}
    %0 = memref.alloc() : memref<4xf32>
    memref.copy %0, %x : memref<4xf32> to memref<4xf32>
  }
  return
}

// -----

func.func @reduces(%x: memref<4xf32>, %y: memref<f32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %zero = arith.constant 0.0 : f32
  // expected-error @below {{'scf.parallel' op expected a loop without reductions on a GPU, got one with}}
  %sum = scf.parallel (%i) = (%c0) to (%c4) step (%c1) init (%zero) -> f32 {
    %0 = memref.load %x[%i] : memref<4xf32>
    scf.reduce(%0 : f32) {
    ^bb0(%a: f32, %b: f32):
      %1 = arith.addf %a, %b : f32
      scf.reduce.return %1 : f32
    }
  }
  memref.store %sum, %y[] : memref<f32>
  return
}

// -----

func.func private @sort(memref<4xi32>)

func.func @calls(%x: memref<4xi32>) {
  // expected-error @below {{'func.call' op expected a kernel for a GPU, got a call of 'sort'}}
  func.call @sort(%x) : (memref<4xi32>) -> ()
  return
}

// -----

func.func @chooses(%x: memref<4xf32>, %y: memref<4xf32>, %z: memref<4xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  // expected-error @below {{'scf.for' op expected numbers as results on a GPU, got 'memref<4xf32>'}}
  %r = scf.for %i = %c0 to %c4 step %c1 iter_args(%m = %x) -> memref<4xf32> {
    %0 = memref.load %m[%i] : memref<4xf32>
    memref.store %0, %z[%i] : memref<4xf32>
    scf.yield %y : memref<4xf32>
  }
  memref.copy %r, %z : memref<4xf32> to memref<4xf32>
  return
}
