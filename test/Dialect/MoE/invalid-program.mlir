// RUN: moira-opt %s -split-input-file -verify-diagnostics

func.func @a() { return }
func.func @b() { return }
// expected-error @+1 {{'moe.variants' op expected as many functions as row classes, and at least one, got 2 and 1}}
moe.variants @variants_c1_counts [@a, @b] [decode]

// -----

// expected-error @+1 {{'moe.variants' op expected as many functions as row classes, and at least one, got 0 and 0}}
moe.variants @variants_c1_none [] []

// -----

func.func @a() { return }
// expected-error @+1 {{'moe.variants' op expected a function, got @missing}}
moe.variants @variants_c2_missing [@a, @missing] [decode, prefill]

// -----

func.func @a() { return }
// expected-note @+1 {{this function differs}}
func.func @b(%x: i32) { return }
// expected-error @+1 {{'moe.variants' op expected functions of one type '() -> ()', got '(i32) -> ()'}}
moe.variants @variants_c2_types [@a, @b] [decode, prefill]

// -----

func.func @a() { return }
// expected-error @+1 {{expected decode or prefill, got 'warmup'}}
moe.variants @row_class_name [@a] [warmup]

// -----

// expected-error @+1 {{expected a name with at most one '{}', got ''}}
func.func @param_c1_empty(%w: tensor<4xf32> {moe.param = #moe.param<"">}) { return }

// -----

// expected-error @+1 {{expected a name with at most one '{}', got 'layers.{}.experts.{}'}}
func.func @param_c1_twice(%w: tensor<4x4xf32> {moe.param = #moe.param<"layers.{}.experts.{}">}) { return }

// -----

// expected-error @+1 {{expected part in [0, 2), got 2}}
func.func @param_c2_last(%w: tensor<4x4xf32> {moe.param = #moe.param<"w", part = 2 of 2>}) { return }

// -----

// expected-error @+1 {{expected part in [0, 2), got -1}}
func.func @param_c2_negative(%w: tensor<4x4xf32> {moe.param = #moe.param<"w", part = -1 of 2>}) { return }

// -----

// expected-error @+1 {{'func.func' op expected parameter #0 of static shape and rank 1 to 3, got 'tensor<?x4xf32>'}}
func.func @param_c3_dynamic(%w: tensor<?x4xf32> {moe.param = #moe.param<"w">}) { return }

// -----

// expected-error @+1 {{'func.func' op expected parameter #1 of static shape and rank 1 to 3, got 'tensor<1x2x3x4xf32>'}}
func.func @param_c3_rank(%x: f32, %w: tensor<1x2x3x4xf32> {moe.param = #moe.param<"w">}) { return }

// -----

// expected-error @+1 {{'func.func' op expected parameter #0 of static shape and rank 1 to 3, got 'f32'}}
func.func @param_c3_scalar(%w: f32 {moe.param = #moe.param<"w">}) { return }

// -----

// expected-error @+1 {{'func.func' op expected parameter #0 of rank >= 2 for the name 'experts.{}.b', got 'tensor<4xf32>'}}
func.func @param_c3_stacked(%w: tensor<4xf32> {moe.param = #moe.param<"experts.{}.b">}) { return }

// -----

// expected-error @+1 {{'func.func' op expected parameter #0 with two dims besides the stacked one for 'transpose' or 'part', got 'tensor<4x8xf32>'}}
func.func @param_c3_transpose(%w: tensor<4x8xf32> {moe.param = #moe.param<"experts.{}.b", transpose>}) { return }

// -----

// expected-error @+1 {{'func.func' op expected parameter #0 with two dims besides the stacked one for 'transpose' or 'part', got 'tensor<8xf32>'}}
func.func @param_c3_part(%w: tensor<8xf32> {moe.param = #moe.param<"b", part = 0 of 2>}) { return }

// -----

// expected-error @+1 {{'func.func' op expected #moe.param as 'moe.param' of argument #0, got "w"}}
func.func @param_kind(%w: tensor<8xf32> {moe.param = "w"}) { return }

// -----

// expected-error @+1 {{'func.func' op expected 'moe.param' as attribute of argument #0, got 'moe.parm'}}
func.func @param_name(%w: tensor<8xf32> {moe.parm = #moe.param<"w">}) { return }

// -----

// expected-error @+1 {{expected transpose, part or interleaved}}
func.func @param_key(%w: tensor<8x8xf32> {moe.param = #moe.param<"w", transposed>}) { return }

// -----

// expected-error @+1 {{'func.func' op expected no attribute 'moe.banana' on an op}}
func.func @op_attribute() attributes {moe.banana} { return }

// -----

// expected-error @+1 {{'func.func' op expected #moe.row_class as 'moe.row_class', got "decode"}}
func.func @row_class_kind() attributes {moe.row_class = "decode"} { return }

// -----

func.func @queue(%t: index) {
  // expected-error @+1 {{'moe.wait' op expected "compute" or "communication" as 'moe.queue', got "copies"}}
  moe.wait %t {moe.queue = "copies"}
  return
}

// -----

func.func @stage(%t: index) {
  // expected-error @+1 {{'moe.wait' op expected an i64 of 0 or more as 'moe.stage', got -1 : i64}}
  moe.wait %t {moe.stage = -1 : i64}
  return
}
