// RUN: moira-opt %s --moe-expand-math | FileCheck %s

// CHECK-LABEL: func.func @scalar
// CHECK-SAME: (%[[X:.*]]: f32)
// CHECK-DAG: %[[LOG2E:.*]] = arith.constant 1.44269502 : f32
// CHECK-DAG: %[[HIGH:.*]] = arith.constant 88.722{{.*}} : f32
// CHECK-DAG: %[[LOW:.*]] = arith.constant -1.040000e+02 : f32
// CHECK-DAG: %[[ABOVE:.*]] = arith.cmpf ogt, %[[X]], %[[HIGH]] : f32
// CHECK-DAG: %[[BELOW:.*]] = arith.cmpf olt, %[[X]], %[[LOW]] : f32
// CHECK-DAG: %[[NAN:.*]] = arith.cmpf uno, %[[X]], %[[X]] : f32
// CHECK: %[[SAFE:.*]] = arith.select %{{.*}}, %{{.*}}, %[[X]] : f32
// CHECK: arith.mulf %[[SAFE]], %[[LOG2E]] : f32
// CHECK-COUNT-8: math.fma
// CHECK-NOT: math.fma
// CHECK: arith.fptosi
// CHECK-COUNT-2: arith.bitcast %{{.*}} : i32 to f32
// CHECK: %[[P:.*]] = arith.select %[[BELOW]]
// CHECK: arith.select %[[NAN]], %[[X]], %[[P]] : f32
// CHECK-NOT: math.exp
func.func @scalar(%x: f32) -> f32 {
  %0 = math.exp %x : f32
  return %0 : f32
}

// CHECK-LABEL: func.func @vectors
// CHECK-COUNT-8: math.fma {{.*}} : vector<8xf32>
// CHECK: arith.extf %{{.*}} : vector<4xbf16> to vector<4xf32>
// CHECK-COUNT-8: math.fma {{.*}} : vector<4xf32>
// CHECK: arith.trunci %{{.*}} : vector<4xi32> to vector<4xi16>
func.func @vectors(%x: vector<8xf32>, %y: vector<4xbf16>)
    -> (vector<8xf32>, vector<4xbf16>) {
  %0 = math.exp %x : vector<8xf32>
  %1 = math.exp %y : vector<4xbf16>
  return %0, %1 : vector<8xf32>, vector<4xbf16>
}

// f64 is the C library's, and so is what has no good polynomial.
// CHECK-LABEL: func.func @kept
// CHECK: math.exp %{{.*}} : f64
// CHECK: math.sin %{{.*}} : f32
// CHECK: math.powf %{{.*}} : f32
func.func @kept(%x: f64, %y: f32) -> (f64, f32, f32) {
  %0 = math.exp %x : f64
  %1 = math.sin %y : f32
  %2 = math.powf %y, %y : f32
  return %0, %1, %2 : f64, f32, f32
}

// CHECK-LABEL: func.func @polynomials
// CHECK-NOT: math.{{tanh|erf|log|expm1|exp }}
// CHECK: return
func.func @polynomials(%x: f32, %y: f16) -> (f32, f32, f32, f32, f16) {
  %0 = math.tanh %x : f32
  %1 = math.erf %x : f32
  %2 = math.log1p %x : f32
  %3 = math.expm1 %x : f32
  %4 = math.log %y : f16
  return %0, %1, %2, %3, %4 : f32, f32, f32, f32, f16
}

// The upper bound is applied last, of f64 and vectors too.
// CHECK-LABEL: func.func @clamps
// CHECK: %[[A:.*]] = arith.maximumf %[[X:.*]], %[[L:.*]] : f64
// CHECK: arith.minimumf %[[A]], %[[H:.*]] : f64
// CHECK: %[[B:.*]] = arith.maximumf %{{.*}} : vector<8xf32>
// CHECK: arith.minimumf %[[B]], %{{.*}} : vector<8xf32>
func.func @clamps(%x: f64, %l: f64, %h: f64, %v: vector<8xf32>,
    %vl: vector<8xf32>, %vh: vector<8xf32>) -> (f64, vector<8xf32>) {
  %0 = math.clampf %x to [%l, %h] : f64
  %1 = math.clampf %v to [%vl, %vh] : vector<8xf32>
  return %0, %1 : f64, vector<8xf32>
}
