// RUN: moira-opt %s -split-input-file -convert-moe-to-cpu -canonicalize -cse | FileCheck %s

// Parallel over tokens; a row of static size needs no scalar loop.

// CHECK-LABEL: @dispatch
// CHECK-SAME: %[[X:.*]]: memref<?x2048xbf16>, %[[SLOTS:.*]]: memref<?x8xi32>
func.func @dispatch(%x: memref<?x2048xbf16>, %slots: memref<?x8xi32>,
    %sizes: memref<64xi32>, %bound: index, %rows: memref<?x2048xbf16>) {
  // CHECK: scf.parallel (%[[T:.*]]) =
  // CHECK: scf.for %[[J:.*]] = %c0 to %c8
  // CHECK: %[[SLOT:.*]] = memref.load %[[SLOTS]][%[[T]], %[[J]]]
  // CHECK: arith.cmpi ult
  // CHECK: scf.if
  // CHECK: scf.for %[[D:.*]] = %c0 to %c2048 step %c64
  // CHECK: %[[V:.*]] = vector.load %[[X]][%[[T]], %[[D]]] : {{.*}}, vector<64xbf16>
  // CHECK-NEXT: vector.store %[[V]]
  // CHECK-NOT: scf.for
  moe.dispatch %x, %slots, %sizes, %bound outs(%rows : memref<?x2048xbf16>)
      : memref<?x2048xbf16>, memref<?x8xi32>, memref<64xi32>
  return
}

// -----

// Weights multiply in f32, rounded once. A padded buffer is one list of rows.

// CHECK-LABEL: @weighted
func.func @weighted(%x: memref<?x20xf16>, %slots: memref<?x2xi32>, %w: memref<?x2xf32>,
    %sizes: memref<4xi32>, %bound: index, %rows: memref<4x?x20xf16>) {
  // CHECK: %[[FLAT:.*]] = memref.collapse_shape {{.*}} memref<4x?x20xf16> into memref<?x20xf16>
  // CHECK: vector.load {{.*}} vector<16xf16>
  // CHECK: arith.extf
  // CHECK: arith.mulf {{.*}} : vector<16xf32>
  // CHECK: arith.truncf
  // CHECK: vector.store {{.*}}, %[[FLAT]]
  // CHECK: scf.for {{.*}} %c16 to %c20
  // CHECK: arith.mulf {{.*}} : f32
  moe.dispatch %x, %slots, %sizes, %bound weights(%w : memref<?x2xf32>)
      outs(%rows : memref<4x?x20xf16>) : memref<?x20xf16>, memref<?x2xi32>, memref<4xi32>
  return
}

// -----

// Sums stay in registers over the choices and are rounded once.

// CHECK-LABEL: @combine
func.func @combine(%rows: memref<?x?xbf16>, %slots: memref<?x2xi32>, %w: memref<?x2xf32>,
    %y: memref<?x?xbf16>) {
  // CHECK: scf.parallel
  // CHECK: scf.for {{.*}} step %c64
  // CHECK: %[[SUM:.*]] = scf.for {{.*}} to %c2 {{.*}} -> (vector<64xf32>)
  // CHECK: scf.if
  // CHECK: math.fma {{.*}} : vector<64xf32>
  // CHECK: %[[Y:.*]] = arith.truncf %[[SUM]] : vector<64xf32> to vector<64xbf16>
  // CHECK: vector.store %[[Y]]
  // CHECK: scf.for {{.*}} step %c16
  // CHECK: math.fma {{.*}} : vector<16xf32>
  // CHECK: scf.for {{.*}} step %c1
  // CHECK: math.fma {{.*}} : f32
  moe.combine %rows, %slots weights(%w : memref<?x2xf32>) outs(%y : memref<?x?xbf16>)
      : memref<?x?xbf16>, memref<?x2xi32>
  return
}

// -----

// Rows whose neighbours are apart in memory go one by one; f64 sums in f64.

// CHECK-LABEL: @strided
func.func @strided(%rows: memref<4x?x8xf64, strided<[?, ?, 2], offset: ?>>,
    %slots: memref<?x2xi32>, %y: memref<?x8xf64>) {
  // CHECK-NOT: collapse_shape
  // CHECK-NOT: vector.
  // CHECK: arith.divui
  // CHECK: arith.remui
  // CHECK: arith.addf {{.*}} : f64
  // CHECK-NOT: truncf
  // CHECK: return
  moe.combine %rows, %slots outs(%y : memref<?x8xf64>)
      : memref<4x?x8xf64, strided<[?, ?, 2], offset: ?>>, memref<?x2xi32>
  return
}

// -----

// No row is without an entry; slots outside the rows are passed over.

// CHECK-LABEL: @sources
// CHECK-SAME: %[[SLOTS:.*]]: memref<?x8xi32>, %{{.*}}: index, %[[OUT:.*]]: memref<?xi32>
func.func @sources(%slots: memref<?x8xi32>, %bound: index, %out: memref<?xi32>) {
  // CHECK-DAG: %[[NONE:.*]] = arith.constant dense<-1> : vector<64xi32>
  // CHECK: vector.store %[[NONE]], %[[OUT]]
  // CHECK: scf.parallel (%[[T:.*]]) =
  // CHECK: %[[TOKEN:.*]] = arith.index_cast %[[T]] : index to i32
  // CHECK: scf.for %[[J:.*]] = %c0 to %c8
  // CHECK: memref.load %[[SLOTS]][%[[T]], %[[J]]]
  // CHECK: arith.cmpi ult
  // CHECK: scf.if
  // CHECK: memref.store %[[TOKEN]], %[[OUT]]
  moe.sources %slots, %bound outs(%out : memref<?xi32>) : memref<?x8xi32>
  return
}
