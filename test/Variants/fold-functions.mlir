// RUN: moira-opt --moe-fold-functions %s | FileCheck %s


// Functions and constants that are the same but for names and locations become
// one, and so do their callers, which are the same only then.

// CHECK-LABEL: llvm.mlir.global internal constant @table_a
// CHECK-NOT: @table_b
// CHECK: llvm.mlir.global internal @state_a
// CHECK: llvm.mlir.global internal @state_b
llvm.mlir.global internal constant @table_a(dense<[1, 2]> : tensor<2xi32>) : !llvm.array<2 x i32>
llvm.mlir.global internal constant @table_b(dense<[1, 2]> : tensor<2xi32>) : !llvm.array<2 x i32>
// Variables are two.
llvm.mlir.global internal @state_a(0 : i32) : i32
llvm.mlir.global internal @state_b(0 : i32) : i32

// CHECK: llvm.func internal @leaf_a
// CHECK:   llvm.mlir.addressof @table_a
// CHECK-NOT: @leaf_b
llvm.func internal @leaf_a(%x: i32, %p: !llvm.ptr) -> i32 {
  %t = llvm.mlir.addressof @table_a : !llvm.ptr
  %c = llvm.icmp "eq" %t, %p : !llvm.ptr
  llvm.cond_br %c, ^same, ^other
^same:
  %y = llvm.add %x, %x : i32
  llvm.return %y : i32
^other:
  llvm.return %x : i32
}
llvm.func internal @leaf_b(%x: i32, %p: !llvm.ptr) -> i32 {
  %t = llvm.mlir.addressof @table_b : !llvm.ptr
  %c = llvm.icmp "eq" %t, %p : !llvm.ptr
  llvm.cond_br %c, ^same, ^other
^same:
  %y = llvm.add %x, %x : i32
  llvm.return %y : i32
^other:
  llvm.return %x : i32
}

// Other arithmetic, other attributes and other types stay.
// CHECK: llvm.func internal @leaf_c
// CHECK: llvm.func internal @leaf_d
// CHECK: llvm.func internal @leaf_e
llvm.func internal @leaf_c(%x: i32) -> i32 {
  %y = llvm.add %x, %x : i32
  llvm.return %y : i32
}
llvm.func internal @leaf_d(%x: i32) -> i32 {
  %y = llvm.mul %x, %x : i32
  llvm.return %y : i32
}
llvm.func internal @leaf_e(%x: i64) -> i64 {
  %y = llvm.add %x, %x : i64
  llvm.return %y : i64
}

// CHECK: llvm.func internal @caller_a
// CHECK:   llvm.call @leaf_a
// CHECK-NOT: @caller_b
llvm.func internal @caller_a(%p: !llvm.ptr) -> i32 {
  %0 = llvm.mlir.constant(1 : i32) : i32
  %1 = llvm.call @leaf_a(%0, %p) : (i32, !llvm.ptr) -> i32
  llvm.return %1 : i32
}
llvm.func internal @caller_b(%p: !llvm.ptr) -> i32 {
  %0 = llvm.mlir.constant(1 : i32) : i32
  %1 = llvm.call @leaf_b(%0, %p) : (i32, !llvm.ptr) -> i32
  llvm.return %1 : i32
}
llvm.func internal @caller_c(%p: !llvm.ptr) -> i32 {
  %0 = llvm.mlir.constant(1 : i32) : i32
  %1 = llvm.call @leaf_b(%0, %p) : (i32, !llvm.ptr) -> i32
  llvm.return %1 : i32
}

// What others name stays, and names what is left.
// CHECK: llvm.func @entry_a
// CHECK:   llvm.mlir.addressof @caller_a
// CHECK: llvm.func @entry_b
// CHECK:   llvm.mlir.addressof @caller_a
llvm.func @entry_a() -> !llvm.ptr {
  %0 = llvm.mlir.addressof @caller_a : !llvm.ptr
  llvm.return %0 : !llvm.ptr
}
llvm.func @entry_b() -> !llvm.ptr {
  %0 = llvm.mlir.addressof @caller_c : !llvm.ptr
  llvm.return %0 : !llvm.ptr
}
