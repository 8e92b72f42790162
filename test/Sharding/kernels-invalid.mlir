// RUN: moira-opt %s --moe-form-kernels=hidden-blocks=3 -verify-diagnostics
// RUN: not moira-opt %s --moe-form-kernels=hidden-blocks=0 2>&1 | FileCheck %s

// CHECK: error: expected at least one hidden block, got 0

// expected-error @+1 {{'func.func' op expected hidden blocks that 2 shards of parameter #0 divide, got 3}}
func.func @blocks(%w: tensor<1x8x6xf32> {moe.param = #moe.param<"w{}">,
    moe.shard = #moe.shard<experts = 2, shards = 2, dim = 0>}) {
  return
}
