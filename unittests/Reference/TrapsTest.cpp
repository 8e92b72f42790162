// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Faults of public implementations that a single case does not show: padding,
// batch invariance, precision of the router, activations.

#include "Cases.h"
#include "RandomProgram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

using namespace moira::reference;

static const double nan64 = std::numeric_limits<double>::quiet_NaN();

/// A dropless program with real numbers; `seed` picks sizes and rules.
static RandomProgram droplessProgram(uint64_t seed) {
  for (;; seed += 1000) {
    RandomProgram p = randomProgram(seed);
    bool perToken = !p.layer.router.expertChoice && p.inputs.x.rows > 1;
    if (!perToken || p.integers)
      continue;
    p.layer.capacity.reset();
    p.layer.blocks.clear();
    return p;
  }
}

/// The program with its tokens in the order (or subset) `tokens`.
static RandomProgram withTokens(const RandomProgram &p,
                                const std::vector<int64_t> &tokens) {
  RandomProgram q = p;
  auto rows = [&](auto &matrix) {
    auto old = matrix;
    matrix.rows = tokens.size();
    matrix.data.resize(tokens.size() * matrix.cols);
    for (size_t i = 0; i < tokens.size(); ++i)
      std::copy_n(old.data.begin() + tokens[i] * old.cols, old.cols,
                  matrix.data.begin() + i * old.cols);
  };
  auto vector = [&](auto &values) {
    if (values.empty())
      return;
    auto old = values;
    values.resize(tokens.size());
    for (size_t i = 0; i < tokens.size(); ++i)
      values[i] = old[tokens[i]];
  };
  rows(q.inputs.x);
  rows(q.inputs.gate.logits);
  vector(q.inputs.gate.mask);
  vector(q.inputs.gate.secondUniform);
  vector(q.inputs.tokenPriority);
  if (q.inputs.gate.replay)
    rows(*q.inputs.gate.replay);
  return q;
}

static std::vector<double> rowOf(const Reals &y, int64_t t) {
  return {y.data.begin() + t * y.cols, y.data.begin() + (t + 1) * y.cols};
}

TEST(Traps, RowsDoNotDependOnTheBatch) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    RandomProgram p = droplessProgram(seed);
    SCOPED_TRACE(p.describe());
    Reals y = p.evaluate().y;
    EXPECT_EQ(p.evaluate().y, y);
    std::vector<int64_t> order(y.rows);
    std::iota(order.rbegin(), order.rend(), 0);
    Reals reversed = withTokens(p, order).evaluate().y;
    for (int64_t t = 0; t < y.rows; ++t) {
      EXPECT_EQ(rowOf(reversed, t), rowOf(y, order[t]));
      EXPECT_EQ(withTokens(p, {t}).evaluate().y.data, rowOf(y, t));
    }
  }
}

TEST(Traps, NothingLeaksFromPadding) {
  // d = 20, n = 12, E = 5, T = 7, k = 3, and NaN behind every matrix.
  Router router;
  router.topK = 3;
  Reals logits = noise(Distribution::Normal, 7, 5, {1, 0, 0});
  Case c = routerCase("padding", logits, router);
  c.layer.features = c.layer.outFeatures = 20;
  c.layer.hidden = 12;
  c.layer.padded = true;
  c.layer.capacity = Capacity{CapacityRule::Tutel, 0, 0, 16};
  c.inputs.x = noise(Distribution::Normal, 7, 20, {2, 0, 0});
  for (int64_t e = 0; e < 5; ++e) {
    c.inputs.w1[e] = noise(Distribution::Normal, 12, 20, {3, uint32_t(e), 0});
    c.inputs.w2[e] = noise(Distribution::Normal, 20, 12, {4, uint32_t(e), 0});
  }
  LayerResult r = evaluate(c.layer, c.inputs);
  EXPECT_EQ(r.assignment.bound % 16, 0);
  for (double value : r.y.data)
    EXPECT_FALSE(std::isnan(value));
  // The tail really is poisoned.
  Reals rows = dispatch(c.inputs.x, r.assignment, DType::F32);
  EXPECT_TRUE(std::any_of(rows.data.begin(), rows.data.end(),
                          [](double value) { return std::isnan(value); }));
}

TEST(Traps, ANaNRowLeavesOtherRowsAlone) {
  Case c = sixTokens("", 2, std::nullopt);
  Reals y = evaluate(c.layer, c.inputs).y;
  std::fill_n(c.inputs.x.data.begin() + 2 * 2, 2, nan64);
  Reals poisoned = evaluate(c.layer, c.inputs).y;
  for (int64_t t : {0, 1, 3, 4, 5})
    EXPECT_EQ(rowOf(poisoned, t), rowOf(y, t));
  EXPECT_TRUE(std::isnan(poisoned(2, 0)));
}

TEST(Traps, ZeroWeightOfARouterStillMultiplies) {
  // A token without finite logits is routed with weight 0: 0 * row = 0.
  Case c = routerCase("", {{nan64, nan64}}, Router());
  EXPECT_EQ(evaluate(c.layer, c.inputs).y(0, 0), 0);
}

TEST(Traps, RouterLogitsRoundedToBF16Tie) {
  Reals logits = {{1.0, 1.0009765625}};
  GateInputs inputs;
  inputs.logits = logits;
  EXPECT_EQ(gate({}, inputs).ids(0, 0), 1);
  for (double &value : inputs.logits.data)
    value = roundTo(DType::BF16, value);
  EXPECT_EQ(gate({}, inputs).ids(0, 0), 0);
}

TEST(Traps, GatedActivationIsOfTheGateOnly) {
  // silu(-1) * -1 = 0.2689; silu(-1 * -1) would be 0.7311.
  Case c = routerCase("", {{0}}, Router());
  c.layer.gated = true;
  c.layer.activation = Activation::Silu;
  c.inputs.w1 = {Reals{{-1}}};
  c.inputs.wg = {Reals{{-1}}};
  EXPECT_NEAR(evaluate(c.layer, c.inputs).y(0, 0), .2689414, 1e-6);
}

TEST(Traps, WeightsOnInputAreInsideTheActivation) {
  // relu(w x) = w relu(x), but square(w x) = w^2 square(x).
  Router router;
  router.topK = 2;
  Case c = routerCase("", {{0, 0}}, router);
  c.layer.activation = Activation::Square;
  c.inputs.x = {{4}};
  EXPECT_EQ(evaluate(c.layer, c.inputs).y(0, 0), 16);
  c.layer.weightsOnInput = true;
  EXPECT_EQ(evaluate(c.layer, c.inputs).y(0, 0), 8);
}

TEST(Traps, FactorZeroIsAFactor) {
  // A call with f = 0 must not fall back to the layer's f = 1.
  Case c = routerCase("", Reals(4, 2), Router());
  c.layer.capacity = Capacity{CapacityRule::Tutel, 1};
  EXPECT_EQ(evaluate(c.layer, c.inputs).assignment.sizes, (Counts{2, 0}));
  c.layer.capacity->factor = 0;
  EXPECT_EQ(evaluate(c.layer, c.inputs).assignment.sizes, (Counts{4, 0}));
}

TEST(Traps, AnEmptyBlockTakesNoRows) {
  Case c = routerCase("", Reals(4, 2), Router());
  c.layer.blocks = {0, 4, 0};
  c.layer.padded = true;
  c.layer.capacity = Capacity{CapacityRule::Tutel, 1};
  LayerResult r = evaluate(c.layer, c.inputs);
  EXPECT_EQ(r.assignment.sizes, (Counts{2, 0}));
  EXPECT_EQ(r.assignment.slots, (Ids{{0}, {1}, {-1}, {-1}}));
}

TEST(Traps, AMaskedTokenIsNotThere) {
  // With the first token masked, the others are placed as if it did not exist.
  Case c = sixTokens("", 2, 1);
  c.inputs.gate.mask = {0, 1, 1, 1, 1, 1};
  LayerResult r = evaluate(c.layer, c.inputs);
  EXPECT_EQ(r.counts, (Counts{4, 2, 2, 2}));
  EXPECT_EQ(rowOf(r.y, 0), (std::vector<double>{0, 0}));
  EXPECT_EQ(r.assignment.places(1, 0), 0);
  EXPECT_EQ(r.assignment.places(5, 1), 3);
}

TEST(Traps, ASharedExpertAsOneMoreChoice) {
  // Ids 0..2 are routed, expert 3 is shared: weight 1 in the last choice.
  Ids ids = {{0, 3}, {2, 3}};
  AssignInputs inputs;
  inputs.experts = 4;
  Assignment a = assign(ids, inputs);
  Reals rows = dispatch({{1}, {2}}, a, DType::F32);
  Reals weights = {{.5, 1}, {.25, 1}};
  EXPECT_EQ(combine(rows, a, DType::F32, &weights), (Reals{{1.5}, {2.5}}));
}

TEST(Traps, AFlatIdPerTokenMeansTheSameForAnyK) {
  Ids two = {{0, 1}, {2, 3}};
  EXPECT_EQ(count(two, 4), (Counts{1, 1, 1, 1}));
  Ids first = {{0}, {2}};
  EXPECT_EQ(count(first, 4), (Counts{1, 0, 1, 0}));
}

TEST(Traps, GroupSizesThatDivideNothing) {
  for (Counts sizes : {Counts{1, 2, 3}, Counts{0, 0, 5}, Counts{7}}) {
    Ids ids(std::accumulate(sizes.begin(), sizes.end(), 0), 1);
    int64_t t = 0;
    for (size_t e = 0; e < sizes.size(); ++e)
      for (int32_t n = 0; n < sizes[e]; ++n)
        ids(t++, 0) = e;
    AssignInputs inputs;
    inputs.experts = sizes.size();
    Assignment a = assign(ids, inputs);
    EXPECT_EQ(a.sizes, sizes);
    Reals x(ids.rows, 1, 2.0);
    EXPECT_EQ(combine(dispatch(x, a, DType::F32), a, DType::F32), x);
  }
}
