// RUN: moira-opt %s --moe-lower-bf16 --split-input-file --verify-diagnostics | FileCheck %s

// CHECK-LABEL: llvm.func @moves
// CHECK-SAME: (%[[P:.*]]: !llvm.ptr, %[[I:.*]]: i64, %[[C:.*]]: vector<8xi1>, %[[A:.*]]: i16) -> i16
llvm.func @moves(%p: !llvm.ptr, %i: i64, %c: vector<8xi1>, %a: bf16) -> bf16 {
  // CHECK: llvm.mlir.constant(16256 : i16) : i16
  %one = llvm.mlir.constant(1.0 : bf16) : bf16
  // CHECK: llvm.mlir.constant(dense<-16384> : vector<8xi16>) : vector<8xi16>
  %twos = llvm.mlir.constant(dense<-2.0> : vector<8xbf16>) : vector<8xbf16>
  // CHECK: llvm.getelementptr %[[P]][%[[I]]] : (!llvm.ptr, i64) -> !llvm.ptr, i16
  %q = llvm.getelementptr %p[%i] : (!llvm.ptr, i64) -> !llvm.ptr, bf16
  // CHECK: llvm.load {{.*}} : !llvm.ptr -> vector<8xi16>
  %v = llvm.load %q : !llvm.ptr -> vector<8xbf16>
  // CHECK: llvm.select {{.*}} : vector<8xi1>, vector<8xi16>
  %s = llvm.select %c, %v, %twos : vector<8xi1>, vector<8xbf16>
  // CHECK: llvm.intr.masked.store {{.*}} : vector<8xi16>, vector<8xi1> into !llvm.ptr
  llvm.intr.masked.store %s, %q, %c {alignment = 2 : i32} : vector<8xbf16>, vector<8xi1> into !llvm.ptr
  // CHECK: llvm.return %{{.*}} : i16
  llvm.return %one : bf16
}

// -----

// The target's own instructions keep their types.
// CHECK-LABEL: llvm.func @instruction
llvm.func @instruction(%a: vector<16xf32>, %p: !llvm.ptr) {
  // CHECK: %[[R:.*]] = llvm.call_intrinsic "llvm.x86.avx512bf16.cvtneps2bf16.512"({{.*}}) : (vector<16xf32>) -> vector<16xbf16>
  %0 = llvm.call_intrinsic "llvm.x86.avx512bf16.cvtneps2bf16.512"(%a) : (vector<16xf32>) -> vector<16xbf16>
  // CHECK: %[[I:.*]] = llvm.bitcast %[[R]] : vector<16xbf16> to vector<16xi16>
  // CHECK: llvm.store %[[I]]
  llvm.store %0, %p : vector<16xbf16>, !llvm.ptr
  llvm.return
}

// -----

llvm.func @computes(%a: bf16) -> bf16 {
  // expected-error @+1 {{expected no arithmetic on bf16 in this phase}}
  %0 = llvm.fadd %a, %a : bf16
  llvm.return %0 : bf16
}
