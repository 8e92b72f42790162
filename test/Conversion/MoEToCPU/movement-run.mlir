// Rows of 1, 15, 16, 17, 64 and 83 features take every path of a row: 64 lanes,
// 16 lanes, single elements. Feature d of token t is 100 t + d.
//
// RUN: moira-opt %s -convert-moe-to-cpu | %run_loops | FileCheck %s

func.func private @printMemrefF32(memref<*xf32>) attributes {llvm.emit_c_interface}
func.func private @printMemrefI32(memref<*xi32>) attributes {llvm.emit_c_interface}

memref.global "private" constant @slots : memref<3x2xi32> = dense<[[3, 0], [-1, 2], [9, -5]]>
memref.global "private" constant @moved : memref<3x2xi32> = dense<[[3, -1], [0, 2], [900, -5]]>
memref.global "private" constant @weights : memref<3x2xf32> = dense<[[0.5, 2.0], [4.0, 0.25], [1.0, 1.0]]>

// Every sum is exact, so one number tells whether all features are right.
func.func private @features(%n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c3 = arith.constant 3 : index
  %c4 = arith.constant 4 : index
  %c100 = arith.constant 100 : index
  %zero = arith.constant 0.0 : f32
  %x = memref.alloc(%n) : memref<3x?xf32>
  scf.for %t = %c0 to %c3 step %c1 {
    scf.for %d = %c0 to %n step %c1 {
      %0 = arith.muli %t, %c100 : index
      %1 = arith.addi %0, %d : index
      %2 = arith.index_cast %1 : index to i32
      %3 = arith.sitofp %2 : i32 to f32
      memref.store %3, %x[%t, %d] : memref<3x?xf32>
    }
  }
  %slots = memref.get_global @slots : memref<3x2xi32>
  %weights = memref.get_global @weights : memref<3x2xf32>
  %sizes = memref.alloc() : memref<2xi32>
  %rows = memref.alloc(%c2, %n) : memref<2x?x?xf32>
  moe.dispatch %x, %slots, %sizes, %c4 weights(%weights : memref<3x2xf32>)
      outs(%rows : memref<2x?x?xf32>) : memref<3x?xf32>, memref<3x2xi32>, memref<2xi32>
  %y = memref.alloc(%n) : memref<3x?xf32>
  moe.combine %rows, %slots weights(%weights : memref<3x2xf32>)
      outs(%y : memref<3x?xf32>) : memref<2x?x?xf32>, memref<3x2xi32>
  %sums = memref.alloc() : memref<3xf32>
  scf.for %t = %c0 to %c3 step %c1 {
    %sum = scf.for %d = %c0 to %n step %c1 iter_args(%s = %zero) -> (f32) {
      %v = memref.load %y[%t, %d] : memref<3x?xf32>
      %next = arith.addf %s, %v : f32
      scf.yield %next : f32
    }
    memref.store %sum, %sums[%t] : memref<3xf32>
  }
  %out = memref.cast %sums : memref<3xf32> to memref<*xf32>
  call @printMemrefF32(%out) : (memref<*xf32>) -> ()
  return
}

// Token 0: (0.25 + 4) * sum of d; token 1: 0.0625 * sum of (100 + d); token 2
// has no row: 9 is beyond the buffer.
func.func @main() {
  %c1 = arith.constant 1 : index
  %c15 = arith.constant 15 : index
  %c16 = arith.constant 16 : index
  %c17 = arith.constant 17 : index
  %c64 = arith.constant 64 : index
  %c83 = arith.constant 83 : index
  // CHECK: [0, 6.25, 0]
  call @features(%c1) : (index) -> ()
  // CHECK: [446.25, 100.312, 0]
  call @features(%c15) : (index) -> ()
  // CHECK: [510, 107.5, 0]
  call @features(%c16) : (index) -> ()
  // CHECK: [578, 114.75, 0]
  call @features(%c17) : (index) -> ()
  // CHECK: [8568, 526, 0]
  call @features(%c64) : (index) -> ()
  // CHECK: [14462.8, 731.438, 0]
  call @features(%c83) : (index) -> ()
  // Slots 900 and -5 are no rows; nobody stands in row 1, nor from row 4 on.
  // CHECK: [1, -1, 1, 0, {{(-1, )+}}-1]
  %c84 = arith.constant 84 : index
  %slots = memref.get_global @moved : memref<3x2xi32>
  %sources = memref.alloc(%c84) : memref<?xi32>
  moe.sources %slots, %c84 outs(%sources : memref<?xi32>) : memref<3x2xi32>
  %out = memref.cast %sources : memref<?xi32> to memref<*xi32>
  call @printMemrefI32(%out) : (memref<*xi32>) -> ()
  return
}
