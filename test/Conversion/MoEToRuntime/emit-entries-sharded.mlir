// RUN: moira-opt %s --moe-emit-entries=module-name=x.mlir | FileCheck %s

// The manifest says which part of the checkpoint's slices a slot holds, in the
// coordinates of the file: the gate stands beside the up projection, rows of both
// in one transposed matrix; a bias is whole.

// CHECK: moira.manifest = "{
// CHECK-SAME: \22name\22:\22gate_up{}\22
// CHECK-SAME: \22placement\22:{\22dim\22:1,\22experts\22:2,\22interleaved\22:false,\22parts\22:2,\22shards\22:4}
// CHECK-SAME: \22slices\22:1
// CHECK-SAME: \22shape\22:[8,8]
// CHECK-SAME: \22name\22:\22bias{}\22
// CHECK-SAME: \22placement\22:{\22dim\22:-1,\22experts\22:2,\22interleaved\22:false,\22parts\22:1,\22shards\22:4}
// CHECK-SAME: \22name\22:\22router\22
// CHECK-NOT: placement
func.func @main(%ctx: !llvm.ptr, %x: memref<?x8xf32> {moe.name = "x"},
    %g: memref<1x4x8xf32> {moe.param = #moe.param<"gate_up{}", transpose, part = 0 of 2>,
      moe.shard = #moe.shard<experts = 2, shards = 4, dim = 0>,
      moe.packing = {logical = tensor<1x4x8xf32>, function = @pack,
      slices = 1 : i64, source = tensor<8x8xf32>}},
    %b: memref<1x6xf32> {moe.param = #moe.param<"bias{}">,
      moe.shard = #moe.shard<experts = 2, shards = 4>},
    %r: memref<2x8xf32> {moe.param = #moe.param<"router">}) -> index
    attributes {moe.kind = "step", moe.variant = {entry = "main", name = "only"}} {
  %c0 = arith.constant 0 : index
  %t = memref.dim %x, %c0 : memref<?x8xf32>
  return %t : index
}

func.func @pack(%ctx: !llvm.ptr, %source: memref<8x8xf32>) -> memref<4x8xf32>
    attributes {moe.kind = "pack"} {
  %0 = memref.subview %source[0, 0] [8, 4] [1, 1] : memref<8x8xf32> to memref<8x4xf32, strided<[8, 1]>>
  %result = memref.alloc() : memref<4x8xf32>
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %c8 = arith.constant 8 : index
  scf.for %i = %c0 to %c4 step %c1 {
    scf.for %j = %c0 to %c8 step %c1 {
      %v = memref.load %0[%j, %i] : memref<8x4xf32, strided<[8, 1]>>
      memref.store %v, %result[%i, %j] : memref<4x8xf32>
    }
  }
  return %result : memref<4x8xf32>
}
