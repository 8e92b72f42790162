// RUN: moira-opt %s --moe-assign-layouts=hidden-blocks=3 -verify-diagnostics

// expected-error @+1 {{'func.func' op expected hidden blocks that 2 shards of parameter #0 divide, got 3}}
func.func @blocks(%w: tensor<1x8x6xf32> {moe.param = #moe.param<"w{}">,
    moe.shard = #moe.shard<experts = 2, shards = 2, dim = 0>}) {
  return
}
