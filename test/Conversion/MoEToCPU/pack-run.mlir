// Both layouts of the same weights give the same panels. w[e][n, k] is
// 100 e + 10 n + k, N = 3, K = 18, panels of 2 columns.
//
// RUN: moira-opt %s -convert-moe-to-cpu | %run_loops | FileCheck %s

func.func private @printMemrefF32(memref<*xf32>) attributes {llvm.emit_c_interface}

func.func private @print(%p: memref<2x2x18x2xf32>) {
  // The last expert, the panel that is half empty, k from 15.
  %0 = memref.subview %p[1, 1, 15, 0] [1, 1, 3, 2] [1, 1, 1, 1]
      : memref<2x2x18x2xf32> to memref<3x2xf32, strided<[2, 1], offset: 138>>
  %1 = memref.cast %0 : memref<3x2xf32, strided<[2, 1], offset: 138>> to memref<*xf32>
  call @printMemrefF32(%1) : (memref<*xf32>) -> ()
  %2 = memref.subview %p[0, 0, 0, 0] [1, 1, 3, 2] [1, 1, 1, 1]
      : memref<2x2x18x2xf32> to memref<3x2xf32, strided<[2, 1]>>
  %3 = memref.cast %2 : memref<3x2xf32, strided<[2, 1]>> to memref<*xf32>
  call @printMemrefF32(%3) : (memref<*xf32>) -> ()
  return
}

func.func @main() {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c3 = arith.constant 3 : index
  %c10 = arith.constant 10 : index
  %c18 = arith.constant 18 : index
  %nk = memref.alloc() : memref<2x3x18xf32>
  %kn = memref.alloc() : memref<2x18x3xf32>
  scf.for %e = %c0 to %c2 step %c1 {
    scf.for %n = %c0 to %c3 step %c1 {
      scf.for %k = %c0 to %c18 step %c1 {
        %0 = arith.muli %e, %c10 : index
        %1 = arith.addi %0, %n : index
        %2 = arith.muli %1, %c10 : index
        %3 = arith.addi %2, %k : index
        %4 = arith.index_cast %3 : index to i32
        %5 = arith.sitofp %4 : i32 to f32
        memref.store %5, %nk[%e, %n, %k] : memref<2x3x18xf32>
        memref.store %5, %kn[%e, %k, %n] : memref<2x18x3xf32>
      }
    }
  }
  %p = memref.alloc() : memref<2x2x18x2xf32>
  moe.pack %nk nk outs(%p : memref<2x2x18x2xf32>) : memref<2x3x18xf32>
  // CHECK: {{\[\[}}135, 0],
  // CHECK-NEXT: [136, 0],
  // CHECK-NEXT: [137, 0{{\]\]}}
  // CHECK: {{\[\[}}0, 10],
  // CHECK-NEXT: [1, 11],
  // CHECK-NEXT: [2, 12{{\]\]}}
  call @print(%p) : (memref<2x2x18x2xf32>) -> ()
  %q = memref.alloc() : memref<2x2x18x2xf32>
  moe.pack %kn kn outs(%q : memref<2x2x18x2xf32>) : memref<2x18x3xf32>
  // CHECK: {{\[\[}}135, 0],
  // CHECK-NEXT: [136, 0],
  // CHECK-NEXT: [137, 0{{\]\]}}
  // CHECK: {{\[\[}}0, 10],
  // CHECK-NEXT: [1, 11],
  // CHECK-NEXT: [2, 12{{\]\]}}
  call @print(%q) : (memref<2x2x18x2xf32>) -> ()
  return
}
