// RUN: moira-opt %s --split-input-file --verify-diagnostics

// expected-error @+1 {{expected logical, source, slices and function in 'moe.packing' of argument #0}}
func.func @packing(%w: tensor<4x1x8x16xf32> {moe.packing = {logical = tensor<4x16x8xf32>}}) {
  return
}

// -----

// The rules for parameters are those of the type in the program.
// expected-error @+1 {{expected parameter #0 of static shape and rank 1 to 3, got 'tensor<4x1x8x16xf32>'}}
func.func @logical(%w: tensor<4x1x8x16xf32> {moe.packing = {function = @f,
    logical = tensor<4x1x8x16xf32>, slices = 4 : i64, source = tensor<16x8xf32>},
    moe.param = #moe.param<"w">}) {
  return
}
