// RUN: moira-opt %s --moe-expand-math | FileCheck %s
// RUN: moira-opt %s --moe-expand-math=expand-f16 | FileCheck %s --check-prefix=F16

// CHECK-LABEL: @to_bf16
// CHECK-NOT: arith.truncf
// CHECK: arith.trunci {{.*}} : i32 to i16
// CHECK-NEXT: arith.bitcast {{.*}} : i16 to bf16
func.func @to_bf16(%x: f32) -> bf16 {
  %0 = arith.truncf %x : f32 to bf16
  return %0 : bf16
}

// CHECK-LABEL: @vectors
// CHECK: arith.cmpf uno, {{.*}} : vector<16xf32>
// CHECK: arith.bitcast {{.*}} : vector<16xi16> to vector<16xbf16>
func.func @vectors(%x: vector<16xf32>) -> vector<16xbf16> {
  %0 = arith.truncf %x : vector<16xf32> to vector<16xbf16>
  return %0 : vector<16xbf16>
}

// Rounded to odd on the way.
// CHECK-LABEL: @from_f64
// CHECK: arith.truncf {{.*}} : f64 to f32
// CHECK: arith.cmpf one
// CHECK: arith.ori
// CHECK: arith.truncf {{.*}} : f32 to f16
func.func @from_f64(%x: f64) -> f16 {
  %0 = arith.truncf %x : f64 to f16
  return %0 : f16
}

// CHECK-LABEL: @no_shortcut
// CHECK-NOT: fastmath
func.func @no_shortcut(%x: f32) -> f32 {
  %0 = arith.truncf %x fastmath<contract> : f32 to f16
  %1 = arith.extf %0 fastmath<contract> : f16 to f32
  return %1 : f32
}

// With expand-f16 no conversion of f16 is left.
// F16-LABEL: @halves
// F16-NOT: f16{{.*}} to f32
// F16: arith.extui {{.*}} : vector<8xi16> to vector<8xi32>
// F16: arith.mulf {{.*}} : vector<8xf32>
// F16: arith.trunci {{.*}} : vector<8xi32> to vector<8xi16>
// F16-NOT: arith.truncf
// CHECK-LABEL: @halves
// CHECK: arith.extf {{.*}} : vector<8xf16> to vector<8xf32>
func.func @halves(%x: vector<8xf16>, %y: f16) -> (vector<8xf16>, f64) {
  %0 = arith.extf %x : vector<8xf16> to vector<8xf32>
  %1 = arith.addf %0, %0 : vector<8xf32>
  %2 = arith.truncf %1 : vector<8xf32> to vector<8xf16>
  %3 = arith.extf %y : f16 to f64
  return %2, %3 : vector<8xf16>, f64
}
