// RUN: moira-opt %s -allow-unregistered-dialect -split-input-file -verify-diagnostics

// expected-error @+1 {{expected 1 <= keep <= groups, got keep = 3, groups = 2}}
"test.router_c1_many"() {r = #moe.router<groups = 2, keep = 3>} : () -> ()

// -----

// expected-error @+1 {{expected 1 <= keep <= groups, got keep = 0, groups = 2}}
"test.router_c1_none"() {r = #moe.router<groups = 2, keep = 0>} : () -> ()

// -----

// expected-error @+1 {{expected 1 <= keep <= groups, got keep = 1, groups = -8}}
"test.router_c1_negative"() {r = #moe.router<groups = -8>} : () -> ()

// -----

// expected-error @+1 {{expected a finite eps >= 0, got -1.000000e-06}}
"test.router_c2_negative"() {r = #moe.router<eps = -1.0e-6>} : () -> ()

// -----

// expected-error @+1 {{expected a finite eps >= 0, got INF}}
"test.router_c2_infinite_eps"() {r = #moe.router<eps = 0x7FF0000000000000>} : () -> ()

// -----

// expected-error @+1 {{expected a finite scale, got nan}}
"test.router_c2_nan_scale"() {r = #moe.router<scale = 0x7FF8000000000000>} : () -> ()

// -----

// expected-error @+1 {{expected softmax or sigmoid with after_top_k, got identity}}
"test.router_c3"() {r = #moe.router<score = identity, after_top_k>} : () -> ()

// -----

// expected-error @+1 {{expected softmax or sigmoid with after_top_k, got sqrtsoftplus}}
"test.router_c3_sqrtsoftplus"() {r = #moe.router<after_top_k, score = sqrtsoftplus>} : () -> ()

// -----

// expected-error @+1 {{expected expert_choice without groups and after_top_k}}
"test.router_c4_groups"() {r = #moe.router<groups = 2, expert_choice>} : () -> ()

// -----

// expected-error @+1 {{expected expert_choice without groups and after_top_k}}
"test.router_c4_after_top_k"() {r = #moe.router<after_top_k, expert_choice>} : () -> ()

// -----

// expected-error @+1 {{expected score, after_top_k, groups, keep, group_score, normalize, eps, scale or expert_choice, got 'topk'}}
"test.key"() {r = #moe.router<topk = 2>} : () -> ()

// -----

// expected-error @+1 {{expected 'keep' only once}}
"test.twice"() {r = #moe.router<groups = 2, keep = 1, keep = 2>} : () -> ()

// -----

// expected-error @+1 {{expected softmax, sigmoid, sqrtsoftplus or identity, got 'tanh'}}
"test.score"() {r = #moe.router<score = tanh>} : () -> ()

// -----

// expected-error @+1 {{expected max or sum_top2, got 'mean'}}
"test.group_score"() {r = #moe.router<group_score = mean>} : () -> ()

// -----

// expected-error @+1 {{expected none, sum_plus_eps or max_sum_eps, got 'l2'}}
"test.normalize"() {r = #moe.router<normalize = l2>} : () -> ()

// -----

// expected-error @+1 {{expected at least one hidden block, got 0}}
"test.hidden_c1_none"() {h = #moe.hidden<0 of n>} : () -> ()

// -----

// expected-error @+1 {{expected at least one rank, expert, shard and slot, got 4, 0, 1 and 2}}
"test.placement_c1"() {p = #moe.placement<ranks = 4, experts = 0, slots = 2>} : () -> ()

// -----

// expected-error @+1 {{expected copies of 0 or a divisor of 4 shards, got 3}}
"test.placement_c2"() {p = #moe.placement<ranks = 4, experts = 1, shards = 4, copies = 3, slots = 1>} : () -> ()

// -----

// expected-error @+1 {{expected copies of 0 or a divisor of 1 shards, got -1}}
"test.placement_c2_negative"() {p = #moe.placement<ranks = 4, experts = 4, copies = -1, slots = 1>} : () -> ()

// -----

// expected-error @+1 {{expected slots for 8 shards of experts, got 4 * 1}}
"test.placement_c3"() {p = #moe.placement<ranks = 4, experts = 8, slots = 1>} : () -> ()

// -----

// expected-error @+1 {{expected at least one expert, shard and part and a dim of 0 or more, got 8, 0, 1 and 0}}
"test.shard_c1"() {s = #moe.shard<experts = 8, shards = 0>} : () -> ()

// -----

// expected-error @+1 {{expected at least one expert, shard and part and a dim of 0 or more, got 8, 2, 1 and -1}}
"test.shard_c1_dim"() {s = #moe.shard<experts = 8, shards = 2, dim = -1>} : () -> ()

// -----

// expected-error @+1 {{expected 'moe.shard' on a parameter only, got it on argument #0}}
func.func @shard_c2(%w: tensor<2x8x8xf32> {moe.shard = #moe.shard<experts = 8>}) {
  return
}

// -----

// expected-error @+1 {{expected #moe.shard as 'moe.shard' of argument #0, got 3 : i64}}
func.func @shard_c2_kind(%w: tensor<2x8x8xf32> {moe.param = #moe.param<"w">, moe.shard = 3 : i64}) {
  return
}

// -----

// expected-error @+1 {{expected a unit attribute as 'moe.blocks' of argument #0, got 3 : i64}}
func.func @blocks_kind(%b: tensor<2xi32> {moe.blocks = 3 : i64}) {
  return
}

// -----

func.func @hidden_places_count(%x: tensor<?x8xf32>, %s: tensor<4xi32>, %w: tensor<4x8xf32>) -> tensor<?x8xf32> {
  // expected-error @+1 {{'moe.expert' op expected 'moe.hidden_places' on a moe.expert only, three numbers per per-expert operand, got array<i64: 0, 1>}}
  %y = moe.expert rows(%x : tensor<?x8xf32>) groups(%s : tensor<4xi32>)
      per_expert(%w : tensor<4x8xf32>) -> tensor<?x8xf32> attributes {moe.hidden_places = array<i64: 0, 1>} {
  ^bb0(%r: tensor<?x8xf32>, %we: tensor<8xf32>):
    moe.yield %r : tensor<?x8xf32>
  }
  return %y : tensor<?x8xf32>
}

// -----

func.func @hidden_places_kind(%x: tensor<?x8xf32>, %s: tensor<4xi32>, %w: tensor<4x8xf32>) -> tensor<?x8xf32> {
  // expected-error @+1 {{'moe.expert' op expected 'moe.hidden_places' on a moe.expert only, three numbers per per-expert operand, got 3 : i64}}
  %y = moe.expert rows(%x : tensor<?x8xf32>) groups(%s : tensor<4xi32>)
      per_expert(%w : tensor<4x8xf32>) -> tensor<?x8xf32> attributes {moe.hidden_places = 3 : i64} {
  ^bb0(%r: tensor<?x8xf32>, %we: tensor<8xf32>):
    moe.yield %r : tensor<?x8xf32>
  }
  return %y : tensor<?x8xf32>
}

// -----

func.func @hidden_places_dim(%x: tensor<?x8xf32>, %s: tensor<4xi32>, %w: tensor<4x8xf32>) -> tensor<?x8xf32> {
  // expected-error @+1 {{'moe.expert' op expected in 'moe.hidden_places' a static dim of whole parts for per-expert operand #0, 'tensor<4x8xf32>', got dim 1 of 1 parts}}
  %y = moe.expert rows(%x : tensor<?x8xf32>) groups(%s : tensor<4xi32>)
      per_expert(%w : tensor<4x8xf32>) -> tensor<?x8xf32> attributes {moe.hidden_places = array<i64: 1, 1, 0>} {
  ^bb0(%r: tensor<?x8xf32>, %we: tensor<8xf32>):
    moe.yield %r : tensor<?x8xf32>
  }
  return %y : tensor<?x8xf32>
}

// -----

func.func @hidden_places_parts(%x: tensor<?x8xf32>, %s: tensor<4xi32>, %w: tensor<4x8xf32>) -> tensor<?x8xf32> {
  // expected-error @+1 {{'moe.expert' op expected in 'moe.hidden_places' a static dim of whole parts for per-expert operand #0, 'tensor<4x8xf32>', got dim 0 of 3 parts}}
  %y = moe.expert rows(%x : tensor<?x8xf32>) groups(%s : tensor<4xi32>)
      per_expert(%w : tensor<4x8xf32>) -> tensor<?x8xf32> attributes {moe.hidden_places = array<i64: 0, 3, 0>} {
  ^bb0(%r: tensor<?x8xf32>, %we: tensor<8xf32>):
    moe.yield %r : tensor<?x8xf32>
  }
  return %y : tensor<?x8xf32>
}

// -----

// expected-error @+1 {{'func.func' op expected 'moe.hidden_places' on a moe.expert only, three numbers per per-expert operand, got array<i64>}}
func.func @hidden_places_op() attributes {moe.hidden_places = array<i64>} {
  return
}
