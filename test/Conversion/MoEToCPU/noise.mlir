// Numbers depend on seed, step, layer, global token and column only: the second
// and third row of one call are the rows of another that begins one later. The
// expected values come from the reference interpreter (tokens 2^32 - 1 and 2^32,
// seed 0x123456789abcdef0, step 5, layer 3).
//
// RUN: moira-opt %s -convert-moe-to-cpu | %run_loops | FileCheck %s

func.func private @printMemrefF32(memref<*xf32>) attributes {llvm.emit_c_interface}

func.func @main() {
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %seed = arith.constant 1311768467463790320 : i64
  %step = arith.constant 5 : i64
  // The upper half of the step does not enter.
  %same = arith.constant 4294967301 : i64
  %first = arith.constant 4294967295 : index
  %next = arith.constant 4294967296 : index
  %u = memref.alloc() : memref<2x3xf32>
  %out = memref.cast %u : memref<2x3xf32> to memref<*xf32>
  // CHECK: 0.999795, 0.919662, 0.334544
  // CHECK-NEXT: 0.510332, 0.816303, 0.305497
  moe.noise uniform rows(%c2) seed(%seed) step(%step) first(%first)
      outs(%u : memref<2x3xf32>) {layer = 3 : i64}
  call @printMemrefF32(%out) : (memref<*xf32>) -> ()
  // CHECK: 0.01818, 0.375191, -0.143339
  // CHECK-NEXT: -0.264113, 0.0018509, -0.793039
  moe.noise normal rows(%c2) seed(%seed) step(%same) first(%first)
      outs(%u : memref<2x3xf32>) {layer = 3 : i64}
  call @printMemrefF32(%out) : (memref<*xf32>) -> ()
  %v = memref.alloc(%c1) : memref<?x2xf32>
  %one = memref.cast %v : memref<?x2xf32> to memref<*xf32>
  // CHECK: {{\[\[}}-0.264113, 0.0018509{{\]\]}}
  moe.noise normal rows(%c1) seed(%seed) step(%step) first(%next)
      outs(%v : memref<?x2xf32>) {layer = 3 : i64}
  call @printMemrefF32(%one) : (memref<*xf32>) -> ()
  // CHECK-NOT: -0.264113
  moe.noise normal rows(%c1) seed(%seed) step(%step) first(%next)
      outs(%v : memref<?x2xf32>) {layer = 4 : i64}
  call @printMemrefF32(%one) : (memref<*xf32>) -> ()
  return
}
