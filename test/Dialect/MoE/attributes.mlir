// RUN: moira-opt %s -allow-unregistered-dialect --verify-roundtrip | FileCheck %s

// Only what differs from a default is printed, numbers as the shortest decimal
// that reads back as the same double.

// CHECK: "test.defaults"() {r = #moe.router<>}
"test.defaults"() {r = #moe.router<score = softmax, groups = 1, keep = 1, group_score = max, normalize = none, eps = 0.0, scale = 1.0>} : () -> ()

// CHECK: "test.every_key"() {r = #moe.router<score = sigmoid, after_top_k, groups = 8, keep = 4, group_score = sum_top2, normalize = max_sum_eps, eps = 1.0e-20, scale = 2.5>}
"test.every_key"() {r = #moe.router<scale = 2.5, eps = 1.0e-20, normalize = max_sum_eps, group_score = sum_top2, keep = 4, groups = 8, after_top_k, score = sigmoid>} : () -> ()

// CHECK: "test.scores"() {a = #moe.router<score = identity>, b = #moe.router<score = sqrtsoftplus, expert_choice>}
"test.scores"() {a = #moe.router<score = identity>, b = #moe.router<score = sqrtsoftplus, expert_choice>} : () -> ()

// CHECK: "test.numbers"() {a = #moe.router<scale = 0.1>, b = #moe.router<scale = 1.0e+300>, c = #moe.router<eps = 5.0e-324>, d = #moe.router<scale = -0.3333333333333333>, e = #moe.router<scale = 0.0>, f = #moe.router<scale = 16.0>}
"test.numbers"() {a = #moe.router<scale = 0.1>, b = #moe.router<scale = 1.0e300>, c = #moe.router<eps = 4.9406564584124654e-324>, d = #moe.router<scale = -0.33333333333333331>, e = #moe.router<scale = 0.0>, f = #moe.router<scale = 16.0>} : () -> ()

// CHECK: "test.params"() {a = #moe.param<"w">, b = #moe.param<"a.{}.b", transpose, part = 2 of 3, interleaved>, c = #moe.param<"say \22hi\22">}
"test.params"() {a = #moe.param<"w", part = 0 of 1>, b = #moe.param<"a.{}.b", interleaved, part = 2 of 3, transpose>, c = #moe.param<"say \22hi\22">} : () -> ()

// CHECK: "test.enums"() {a = #moe<order batch_prioritized>, b = #moe<capacity_rule gshard>, c = #moe<distribution uniform>, d = #moe<weight_layout panels>, e = #moe<row_class prefill>}
"test.enums"() {a = #moe<order batch_prioritized>, b = #moe<capacity_rule gshard>, c = #moe<distribution uniform>, d = #moe<weight_layout panels>, e = #moe<row_class prefill>} : () -> ()
