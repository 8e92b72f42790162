// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Cases.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>

namespace moira::reference {

static const double nan = std::numeric_limits<double>::quiet_NaN();
static const double inf = std::numeric_limits<double>::infinity();

//===----------------------------------------------------------------------===//
// Comparison
//===----------------------------------------------------------------------===//

template <typename T>
static std::string compareExact(const char *what, const std::vector<T> &want,
                                const std::vector<T> &got) {
  if (want.empty() || want == got)
    return "";
  std::ostringstream os;
  os << what << ": expected";
  for (const T &value : want)
    os << " " << value;
  os << ", got";
  for (const T &value : got)
    os << " " << value;
  return os.str();
}

static std::string compareReals(const char *what,
                                const std::vector<double> &want,
                                const std::vector<double> &got,
                                double tolerance) {
  if (want.empty())
    return "";
  std::ostringstream os;
  if (want.size() != got.size()) {
    os << what << ": expected " << want.size() << " values, got " << got.size();
    return os.str();
  }
  for (size_t i = 0; i < want.size(); ++i) {
    double bound = tolerance * std::max(1.0, std::fabs(want[i]));
    if (std::fabs(want[i] - got[i]) <= bound)
      continue;
    os.precision(9);
    os << what << "[" << i << "]: expected " << want[i] << ", got " << got[i];
    return os.str();
  }
  return "";
}

static std::vector<std::pair<int, int>> droppedPairs(const LayerResult &r) {
  std::vector<std::pair<int, int>> dropped;
  for (int64_t t = 0; t < r.gate.ids.rows; ++t)
    for (int64_t j = 0; j < r.gate.ids.cols; ++j)
      if (r.gate.ids(t, j) >= 0 && r.assignment.slots(t, j) < 0)
        dropped.push_back({t, j});
  return dropped;
}

static std::vector<double> firstColumn(const Reals &y) {
  std::vector<double> column;
  for (int64_t t = 0; t < y.rows; ++t)
    column.push_back(y(t, 0));
  return column;
}

std::string mismatch(const Case &c, const LayerResult &r) {
  const Expected &e = c.expected;
  if (e.capacity && r.capacity && *e.capacity != *r.capacity)
    return "capacity: expected " + std::to_string(*e.capacity) + ", got " +
           std::to_string(*r.capacity);
  std::vector<std::string> found = {
      compareExact("ids", e.ids.data, r.gate.ids.data),
      compareExact("counts", e.counts, r.counts),
      compareExact("sizes", e.sizes, r.assignment.sizes),
      compareExact("slots", e.slots.data, r.assignment.slots.data),
      compareReals("weights", e.weights.data, r.gate.weights.data, c.tolerance),
      compareReals("y", e.y.data, r.y.data, c.tolerance),
      compareReals("y[:, 0]", e.firstColumn, firstColumn(r.y), c.tolerance)};
  if (!r.assignment.places.data.empty())
    found.push_back(
        compareExact("places", e.places.data, r.assignment.places.data));
  for (bool choices : {false, true}) {
    const Ids &want = choices ? e.choiceOfSlot : e.tokenOfSlot;
    if (!want.data.empty() && r.assignment.padded)
      found.push_back(compareExact(
          choices ? "choice of slot" : "token of slot", want.data,
          reversedIds(r.assignment, c.layer.experts, choices).data));
  }
  for (const std::string &text : found)
    if (!text.empty())
      return text;
  if (e.dropped && *e.dropped != droppedPairs(r)) {
    std::ostringstream os;
    os << "dropped pairs: got";
    for (auto [t, j] : droppedPairs(r))
      os << " (" << t << ", " << j << ")";
    return os.str();
  }
  return "";
}

//===----------------------------------------------------------------------===//
// Builders
//===----------------------------------------------------------------------===//

static Reals scaledIdentity(int64_t n, double scale) {
  Reals m(n, n);
  for (int64_t i = 0; i < n; ++i)
    m(i, i) = scale;
  return m;
}

Case sixTokens(std::string name, int64_t k, std::optional<double> factor,
               double bias) {
  Case c;
  c.name = std::move(name);
  c.layer.experts = 4;
  c.layer.features = c.layer.hidden = c.layer.outFeatures = 2;
  c.layer.router.topK = k;
  if (k > 1)
    c.layer.router.normalize = Normalize::MaxSumEps;
  if (factor)
    c.layer.capacity = Capacity{CapacityRule::Tutel, *factor};
  c.layer.padded = true;
  c.inputs.gate.logits = {{2, 1, 0, -1}, {2, 0, 1, -1},  {1.5, .5, 0, 0},
                          {0, 3, 1, 0},  {2.5, 0, 0, 1}, {.5, 0, 0, 2}};
  c.inputs.x = Reals(6, 2);
  for (int64_t t = 0; t < 6; ++t) {
    c.inputs.x(t, 0) = t + 1;
    c.inputs.x(t, 1) = 10 * (t + 1);
  }
  for (int e = 0; e < 4; ++e) {
    c.inputs.w1.push_back(scaledIdentity(2, 1));
    c.inputs.w2.push_back(scaledIdentity(2, e + 1));
    if (bias != 0)
      c.inputs.b2.push_back({bias, bias});
  }
  return c;
}

Case routerCase(std::string name, Reals logits, Router router) {
  Case c;
  c.name = std::move(name);
  c.layer.experts = logits.cols;
  c.layer.router = router;
  c.layer.activation = Activation::Identity;
  c.inputs.x = Reals(logits.rows, 1, 1.0);
  c.inputs.w1.assign(logits.cols, Reals{{1}});
  c.inputs.w2 = c.inputs.w1;
  c.inputs.gate.logits = std::move(logits);
  return c;
}

static Router topK(int64_t k, Normalize normalize = Normalize::None) {
  Router router;
  router.topK = k;
  router.normalize = normalize;
  return router;
}
static const Normalize bySum = Normalize::SumPlusEps;

/// Replays ids with logits of 0: only places and rows are of interest.
static Case replayCase(std::string name, Ids ids, int64_t experts) {
  Case c = routerCase(std::move(name), Reals(ids.rows, experts),
                      topK(ids.cols, bySum));
  for (int64_t t = 0; t < ids.rows; ++t)
    c.inputs.x(t, 0) = t + 1;
  c.inputs.gate.replay = std::move(ids);
  return c;
}

//===----------------------------------------------------------------------===//
// Cases
//===----------------------------------------------------------------------===//

using Dropped = std::vector<std::pair<int, int>>;

/// Tutel's rules on the six tokens.
static void addSixTokenCases(std::vector<Case> &cases) {
  auto add = [&](Case c, int64_t capacity, Counts counts, Dropped dropped,
                 std::vector<double> y) {
    c.expected.capacity = capacity;
    c.expected.counts = std::move(counts);
    c.expected.dropped = std::move(dropped);
    c.expected.firstColumn = std::move(y);
    cases.push_back(c);
    // The ragged form keeps the same pairs.
    c.name += "-ragged";
    c.layer.padded = false;
    c.expected.slots = {};
    c.expected.tokenOfSlot = c.expected.choiceOfSlot = {};
    cases.push_back(c);
  };
  add(sixTokens("c1", 1, 1), 2, {4, 1, 0, 1}, {{2, 0}, {4, 0}},
      {.643914, 1.287829, 0, 6.478208, 0, 16.0664});

  Case c2 = sixTokens("c2", 2, 1);
  c2.expected.ids = {{0, 1}, {0, 2}, {0, 1}, {1, 2}, {0, 3}, {3, 0}};
  c2.expected.places = {{0, 1}, {1, 0}, {2, 2}, {0, 1}, {3, 1}, {0, 4}};
  c2.expected.slots = {{0, 5}, {1, 8}, {2, 6}, {4, 9}, {3, 13}, {12, -1}};
  c2.expected.sizes = {4, 3, 2, 2};
  c2.expected.tokenOfSlot = {
      {0, 1, 2, 4}, {3, 0, 2, -1}, {1, 3, -1, -1}, {5, 4, -1, -1}};
  c2.expected.choiceOfSlot = {
      {0, 0, 0, 0}, {0, 1, 1, -1}, {1, 1, -1, -1}, {0, 1, -1, -1}};
  std::vector<double> y2 = {1.268941, 3.075766, 3.806824,
                            8.476812, 7.736383, 19.621787};
  add(c2, 4, {5, 3, 2, 2}, {{5, 1}}, y2);
  cases.back().expected.slots = {{0, 5}, {1, 7},  {2, 6},
                                 {4, 8}, {3, 10}, {9, -1}};

  add(sixTokens("c3", 2, .5), 2, {5, 3, 2, 2}, {{2, 0}, {2, 1}, {4, 0}, {5, 1}},
      {1.268941, 3.075766, 0, 8.476812, 3.64851, 19.621787});
  std::vector<double> y4 = {.643914,  1.287829, 1.653676,
                            6.478208, 3.604123, 16.0664};
  add(sixTokens("c4", 1, 0), 4, {4, 1, 0, 1}, {}, y4);
  std::vector<double> y5 = y2;
  y5[5] = 20.716341;
  add(sixTokens("c5", 2, 0), 5, {5, 3, 2, 2}, {}, y5);

  Case c7 = sixTokens("c7", 1, 1);
  c7.layer.order = Order::BatchPrioritized;
  std::vector<double> y7 = {.643914, 0, 0, 6.478208, 3.604123, 16.0664};
  add(c7, 2, {4, 1, 0, 1}, {{1, 0}, {2, 0}}, y7);
  // The needed capacity comes from counts, not from the sorted order.
  Case b1 = sixTokens("b1-batch-prioritized-dropless", 2, 0);
  b1.layer.order = Order::BatchPrioritized;
  add(b1, 5, {5, 3, 2, 2}, {}, y5);

  add(sixTokens("c9-all-experts", 4, 1), 8, {6, 6, 6, 6}, {},
      {1.507347, 3.314172, 5.453279, 8.599631, 8.300099, 19.680563});
  Case c11 = sixTokens("c11-not-normalised", 2, 1);
  c11.layer.router.normalize = Normalize::None;
  add(c11, 4, {5, 3, 2, 2}, {{5, 1}},
      {1.11768, 2.709125, 2.870383, 7.793303, 6.820877, 16.0664});

  auto plus = [](std::vector<double> y, double bias) {
    for (double &value : y)
      value += bias;
    return y;
  };
  add(sixTokens("c12-weights-on-output", 2, 0, .5), 5, {5, 3, 2, 2}, {},
      plus(y5, .5));
  Case pre = sixTokens("c12-weights-on-input", 2, 0, .5);
  pre.layer.weightsOnInput = true;
  add(pre, 5, {5, 3, 2, 2}, {}, plus(y5, 1));

  // Factors below 0 cap what is needed.
  add(sixTokens("capped-below-need", 2, -.5), 2, {5, 3, 2, 2},
      {{2, 0}, {2, 1}, {4, 0}, {5, 1}},
      {1.268941, 3.075766, 0, 8.476812, 3.64851, 19.621787});
  add(sixTokens("capped-above-need", 2, -9), 5, {5, 3, 2, 2}, {}, y5);
  // T = 6, f = 0.4: trunc(0.8) = 0 rows for every expert.
  add(sixTokens("capacity-0", 2, .4), 0, {5, 3, 2, 2},
      {{0, 0},
       {0, 1},
       {1, 0},
       {1, 1},
       {2, 0},
       {2, 1},
       {3, 0},
       {3, 1},
       {4, 0},
       {4, 1},
       {5, 0},
       {5, 1}},
      {0, 0, 0, 0, 0, 0});
}

/// FastMoE: scatter with and without unused choices, limits and pruning.
static void addScatterCases(std::vector<Case> &cases) {
  auto add = [&](Case c, Counts counts, Ids slots) {
    c.layer.order = Order::TokenMajor;
    c.expected.counts = std::move(counts);
    c.expected.slots = std::move(slots);
    cases.push_back(std::move(c));
  };
  Case all = replayCase("scatter", {{0, 2}, {2, 1}, {0, 1}, {2, 0}}, 3);
  all.expected.y = {{1}, {2}, {3}, {4}};
  add(all, {3, 2, 3}, {{0, 5}, {6, 3}, {1, 4}, {7, 2}});

  Case some =
      replayCase("scatter-unused", {{0, -1}, {2, 1}, {-1, -1}, {2, 0}}, 3);
  some.expected.weights = {{1, 0}, {.5, .5}, {0, 0}, {.5, .5}};
  some.expected.y = {{1}, {2}, {0}, {4}};
  add(some, {2, 1, 2}, {{0, -1}, {3, 2}, {-1, -1}, {4, 1}});

  Case limit = replayCase("limit", {{0}, {0}, {0}, {1}, {0}, {0}, {1}, {1}}, 2);
  limit.layer.capacity = Capacity{CapacityRule::Fixed, 4};
  limit.expected.sizes = {4, 3};
  limit.expected.y = {{1}, {2}, {3}, {4}, {5}, {0}, {7}, {8}};
  add(limit, {5, 3}, {{0}, {1}, {2}, {4}, {3}, {-1}, {5}, {6}});

  Case prune = replayCase("prune", {{0}, {0}, {0}, {1}}, 2);
  prune.layer.capacity = Capacity{CapacityRule::Fixed, 2};
  add(prune, {3, 1}, {{0}, {1}, {-1}, {2}});

  Case owner = replayCase("unused-choice-first", {{-1, 2}, {-1, -1}}, 3);
  owner.expected.y = {{1}, {0}};
  add(owner, {0, 0, 1}, {{-1, 0}, {-1, -1}});
}

/// Capacity rules of other systems, and block-wise capacity.
static void addCapacityCases(std::vector<Case> &cases) {
  auto add = [&](Case c, int64_t capacity, Counts sizes) {
    c.expected.capacity = capacity;
    c.expected.sizes = std::move(sizes);
    cases.push_back(std::move(c));
  };
  Case eight = replayCase("switch-all-to-one", Ids(8, 1, 0), 4);
  eight.layer.capacity = Capacity{CapacityRule::Switch, 1};
  eight.expected.y = {{1}, {2}, {0}, {0}, {0}, {0}, {0}, {0}};
  add(eight, 2, {2, 0, 0, 0});
  Case one = replayCase("gshard-capacity-0", {{3, 1}}, 8);
  one.layer.capacity = Capacity{CapacityRule::GShard, 1.2};
  one.expected.y = {{0}};
  add(one, 0, Counts(8, 0));
  Case five = replayCase("five-tokens-one-expert", Ids(5, 1, 0), 4);
  five.layer.capacity = Capacity{CapacityRule::Tutel, 1};
  add(five, 2, {2, 0, 0, 0});
  Case above = replayCase("capacity-above-tokens", {{0}, {1}, {0}, {1}}, 2);
  above.layer.capacity = Capacity{CapacityRule::Tutel, 1, 8};
  above.layer.padded = true;
  above.expected.slots = {{0}, {8}, {1}, {9}};
  add(above, 8, {2, 2});
  Case minimum = replayCase("one-token-minimum-4", {{5}}, 8);
  minimum.layer.capacity = Capacity{CapacityRule::Tutel, 1, 4};
  minimum.expected.y = {{1}};
  add(minimum, 4, {0, 0, 0, 0, 0, 1, 0, 0});
  Case aligned = replayCase("aligned-to-16", Ids(4, 1, 0), 5);
  aligned.layer.capacity = Capacity{CapacityRule::Tutel, 0, 0, 16};
  aligned.layer.padded = true;
  aligned.expected.y = {{1}, {2}, {3}, {4}};
  add(aligned, 16, {4, 0, 0, 0, 0});
  // Blocks of 4 and 2 tokens share one capacity: that of the larger.
  Case blocks = replayCase("blocks-4-and-2", {{0}, {0}, {0}, {1}, {0}, {0}}, 2);
  blocks.layer.capacity = Capacity{CapacityRule::Tutel, 1};
  blocks.layer.blocks = {4, 2};
  blocks.expected.slots = {{0}, {1}, {-1}, {4}, {2}, {3}};
  add(blocks, 2, {4, 1});
  blocks.name += "-padded";
  blocks.layer.padded = true;
  blocks.expected.slots = {{0}, {1}, {-1}, {4}, {2}, {3}};
  add(blocks, 2, {4, 1});
}

/// Published faults of routers, each with the smallest input that shows it.
static void addRouterCases(std::vector<Case> &cases) {
  auto add = [&](std::string name, Reals logits, Router router, Ids ids,
                 Reals weights, double tolerance = 1e-6) -> Case & {
    Case c = routerCase(std::move(name), std::move(logits), router);
    c.expected.ids = std::move(ids);
    c.expected.weights = std::move(weights);
    c.tolerance = tolerance;
    cases.push_back(std::move(c));
    return cases.back();
  };
  const double w0 = .7310586, w1 = .2689414; // softmax of [1, 0]
  add("nan-logit", {{nan, 1, 2, 3}, {3, 2, 1, 0}}, topK(2, bySum),
      {{3, 2}, {0, 1}}, {{w0, w1}, {w0, w1}});
  add("nan-row", {{nan, nan, nan, nan}}, topK(2, bySum), {{0, 1}}, {{0, 0}}, 0);
  add("minus-inf-row", {{-inf, -inf, -inf}}, topK(2, bySum), {{0, 1}}, {{0, 0}},
      0);
  add("plus-inf", {{inf, 0, inf, 0}}, topK(2), {{0, 2}}, {{.5, .5}}, 0);
  add("ties", {{1, 1, 1, 1}}, topK(2, bySum), {{0, 1}}, {{.5, .5}}, 0);
  Router grouped = topK(2, bySum);
  grouped.groups = 2;
  add("ties-in-groups", {{1, 1, 1, 1}}, grouped, {{0, 1}}, {{.5, .5}}, 0);

  Router negative = topK(2, bySum);
  negative.score = Score::Identity;
  negative.groups = 2;
  add("masked-groups-are-minus-inf", {{-.3, -.4, -.5, -.6}}, negative, {{0, 1}},
      {});
  Router sumTop2 = negative;
  sumTop2.groupScore = GroupScore::SumTop2;
  add("group-score-sum-of-two", {{5, 0, 3, 3}}, sumTop2, {{2, 3}}, {{.5, .5}});
  add("group-score-max", {{5, 0, 3, 3}}, negative, {{0, 1}}, {{1, 0}});

  Router v3 = topK(2, bySum);
  v3.score = Score::Sigmoid;
  v3.eps = 1e-20;
  v3.scale = 2.5;
  add("bias-selects-only", {{0, 0, 0, 0}}, v3, {{3, 2}}, {{1.25, 1.25}})
      .inputs.gate.bias = {0, .1, .2, .3};
  add("bias-cannot-revive-nan", {{nan, 0, 0, nan}}, v3, {{1, 2}},
      {{1.25, 1.25}})
      .inputs.gate.bias = {9, 0, 0, 9};

  Reals row = {{2, 1, 0, -1}};
  add("not-normalised", row, topK(2), {{0, 1}}, {{.6439143, .2368828}});
  add("normalised", row, topK(2, bySum), {{0, 1}}, {{w0, w1}});
  add("one-choice", row, topK(1), {{0}}, {{.6439143}});
  add("one-choice-normalised", row, topK(1, bySum), {{0}}, {{1}}, 0);
  Router after = topK(2);
  after.afterTopK = true;
  add("softmax-after-top-k", row, after, {{0, 1}}, {{w0, w1}});
  add("two-experts", {{2, 0}}, after, {{0, 1}}, {{.8807971, .1192029}});
  Router scout = topK(1);
  scout.afterTopK = true;
  scout.score = Score::Sigmoid;
  add("sigmoid-of-top-1", row, scout, {{0}}, {{.8807971}})
      .layer.weightsOnInput = true;
  add("three-tokens-normalised", Reals(3, 4), topK(1, bySum), {{0}, {0}, {0}},
      {{1}, {1}, {1}}, 0);
  Router relu = topK(2, bySum);
  relu.score = Score::Identity;
  add("weights-sum-to-0", {{0, 0, 0}}, relu, {{0, 1}}, {{0, 0}}, 0);
  add("near-tie-in-f32", {{1.0, 1.0009765625}}, topK(1, bySum), {{1}}, {{1}},
      0);
  add("one-expert", Reals(3, 1, 7), topK(1), {{0}, {0}, {0}}, {{1}, {1}, {1}},
      0)
      .expected.y = {{1}, {1}, {1}};
  Router root = topK(2, bySum);
  root.score = Score::SqrtSoftplus;
  add("sqrt-softplus", {{0, 1, 2}}, root, {{2, 1}}, {{.5599804, .4400196}});

  add("run-time-k", row, topK(3, bySum), {{0, -1, -1}}, {{1, 0, 0}}, 0)
      .inputs.gate.k = 1;
  add("run-time-k-clips", row, topK(2, bySum), {{0, 1}}, {{w0, w1}})
      .inputs.gate.k = 9;
  add("threshold", {{2, 1, 0, -1}, {0, 0, 0, 0}}, topK(2), {{0, -1}, {-1, -1}},
      {{.6439143, 0}, {0, 0}})
      .inputs.gate.threshold = .3;
  add("mask", {{2, 1, 0, -1}, {2, 1, 0, -1}}, topK(2, bySum),
      {{0, 1}, {-1, -1}}, {{w0, w1}, {0, 0}})
      .inputs.gate.mask = {1, 0};
  add("sampled-second", {{1, 0}, {1, 0}, {1, 0}}, topK(2, bySum),
      {{0, 1}, {0, 1}, {0, -1}}, {{w0, w1}, {w0, w1}, {w0, 0}})
      .inputs.gate.secondUniform = {.1, .53, .54};
  Router choice;
  choice.expertChoice = true;
  add("expert-choice", {{2, 0}, {2, 2}, {0, 2}}, choice,
      {{0, -1}, {0, 1}, {-1, 1}}, {{.8807971, 0}, {.5, .5}, {0, .8807971}})
      .inputs.gate.expertRows = 2;

  Reals many(600, 4);
  Ids manyIds(600, 2);
  for (int64_t t = 0; t < 600; ++t)
    for (int64_t j = 0; j < 2; ++j) {
      many(t, 3 - j) = 2 - j;
      manyIds(t, j) = 3 - j;
    }
  for (int64_t t : {0, 599}) {
    std::fill_n(&many.data[t * 4], 4, nan);
    manyIds(t, 0) = 0, manyIds(t, 1) = 1;
  }
  add("nan-in-rows-0-and-599", many, topK(2), manyIds, {});
  for (int64_t experts : {300, 513}) {
    Reals last(1, experts);
    last(0, experts - 1) = 5;
    add("last-of-" + std::to_string(experts), last, topK(2, bySum),
        {{int32_t(experts - 1), 0}}, {});
  }
}

/// Sizes at which scans, grids and empty launches went wrong.
static void addSizeCases(std::vector<Case> &cases) {
  for (int64_t tokens : {0, 1, 1025, 4097}) {
    Case c = replayCase("all-to-one-" + std::to_string(tokens),
                        Ids(tokens, 1, 0), 2);
    c.expected.counts = {int32_t(tokens), 0};
    c.expected.sizes = c.expected.counts;
    c.expected.slots = Ids(tokens, 1);
    for (int64_t t = 0; t < tokens; ++t)
      c.expected.slots(t, 0) = t;
    c.expected.y = c.inputs.x;
    cases.push_back(c);
    c.name += "-dropless-padded";
    c.layer.padded = true;
    c.layer.capacity = Capacity{CapacityRule::Tutel, 0};
    c.expected.capacity = tokens;
    cases.push_back(c);
  }
  // T = 3, E = 4, f = 0.5: no expert takes a row.
  Case none = replayCase("b3-capacity-0", {{0}, {1}, {2}}, 4);
  none.layer.padded = true;
  none.layer.capacity = Capacity{CapacityRule::Tutel, .5};
  none.expected.capacity = 0;
  none.expected.y = Reals(3, 1);
  cases.push_back(none);
  // A double that f32 cannot hold survives.
  Case wide = replayCase("b4-f64", {{0}, {1}}, 2);
  wide.layer.rowType = DType::F64;
  wide.layer.router.wide = true;
  wide.inputs.x = {{1 + 0x1p-40}, {-1 - 0x1p-40}};
  wide.expected.y = wide.inputs.x;
  wide.tolerance = 0;
  cases.push_back(wide);
  // Eight features through identity matrices, two experts with four tokens.
  Case ones =
      replayCase("bf16-ones", {{0}, {0}, {0}, {0}, {1}, {1}, {1}, {1}}, 2);
  ones.layer.features = ones.layer.hidden = ones.layer.outFeatures = 8;
  ones.layer.rowType = DType::BF16;
  ones.inputs.x = Reals(8, 8, 1.0);
  ones.inputs.w1.assign(2, scaledIdentity(8, 1));
  ones.inputs.w2 = ones.inputs.w1;
  ones.expected.y = ones.inputs.x;
  ones.tolerance = 0;
  cases.push_back(ones);
}

std::vector<Case> conformanceCases() {
  std::vector<Case> cases;
  addSixTokenCases(cases);
  addScatterCases(cases);
  addCapacityCases(cases);
  addRouterCases(cases);
  addSizeCases(cases);
  return cases;
}

} // namespace moira::reference
