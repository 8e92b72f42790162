// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the router cases of Cases.cpp do not show: relations between results,
// losses, noise and the cosine router.

#include "Cases.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <stdexcept>

using namespace moira::reference;

static GateResult run(const Router &router, const Reals &logits) {
  GateInputs inputs;
  inputs.logits = logits;
  return gate(router, inputs);
}

static Router topK(int64_t k, Normalize normalize = Normalize::None) {
  Router router;
  router.topK = k;
  router.normalize = normalize;
  return router;
}

TEST(Gate, MoreChoicesThanExpertsMeansAll) {
  Reals logits = sixTokens("", 1, 1).inputs.gate.logits;
  GateResult nine = run(topK(9, Normalize::MaxSumEps), logits);
  GateResult four = run(topK(4, Normalize::MaxSumEps), logits);
  EXPECT_EQ(nine.ids.cols, 4);
  EXPECT_EQ(nine.ids, four.ids);
  EXPECT_EQ(nine.weights, four.weights);
}

TEST(Gate, IdsAreDistinctAndInRangeWhateverTheLogits) {
  const double nan = std::nan(""), inf = HUGE_VAL;
  Router router = topK(3, Normalize::SumPlusEps);
  router.groups = 3;
  router.keep = 2;
  const double values[] = {nan, -inf, inf, 0, 1, -1};
  for (int round = 0; round < 2000; ++round) {
    Reals logits(1, 6);
    for (double &value : logits.data)
      value = values[draw({1, 0, 0}, round, &value - &logits.data[0])[0] % 6];
    GateResult result = run(router, logits);
    std::set<int32_t> ids(result.ids.data.begin(), result.ids.data.end());
    EXPECT_EQ(ids.size(), 3u);
    EXPECT_GE(*ids.begin(), 0);
    EXPECT_LT(*ids.rbegin(), 6);
    for (double w : result.weights.data)
      EXPECT_TRUE(std::isfinite(w));
  }
}

TEST(Gate, ScoresOfExtremeLogitsSumToOne) {
  GateResult result = run(topK(1), {{88, -88, 0}, {-1e30, 0, 1e30}});
  for (int64_t t = 0; t < 2; ++t)
    EXPECT_NEAR(result.scores(t, 0) + result.scores(t, 1) + result.scores(t, 2),
                1, 1e-6);
}

TEST(Gate, ReplayRecomputesWeightsOnly) {
  Reals logits = sixTokens("", 2, 1).inputs.gate.logits;
  for (bool after : {false, true}) {
    Router router = topK(2, Normalize::SumPlusEps);
    router.afterTopK = after;
    GateResult first = run(router, logits);
    GateInputs inputs;
    inputs.logits = logits;
    inputs.bias = {9, 9, -9, -9};
    inputs.replay = first.ids;
    GateResult again = gate(router, inputs);
    EXPECT_EQ(first.ids, again.ids);
    EXPECT_EQ(first.weights, again.weights);
  }
}

TEST(Gate, ReplayedIdsOutOfRangeAreUnused) {
  GateInputs inputs;
  inputs.logits = {{1, 0}};
  inputs.replay = Ids{{2, -7}};
  GateResult result = gate(topK(2, Normalize::SumPlusEps), inputs);
  EXPECT_EQ(result.ids, (Ids{{-1, -1}}));
  EXPECT_EQ(result.weights, (Reals{{0, 0}}));
}

TEST(Gate, SoftmaxThenNormaliseIsSoftmaxOfTheSelected) {
  Reals logits = sixTokens("", 2, 1).inputs.gate.logits;
  Router after = topK(2);
  after.afterTopK = true;
  GateResult a = run(topK(2, Normalize::SumPlusEps), logits);
  GateResult b = run(after, logits);
  EXPECT_EQ(a.ids, b.ids);
  for (size_t i = 0; i < a.weights.data.size(); ++i)
    EXPECT_NEAR(a.weights.data[i], b.weights.data[i], 1.2e-7);
}

TEST(Gate, DoubleLogitsDecideWhatFloatsCannot) {
  Reals logits = {{1, 1 + 0x1p-40}};
  Router router = topK(1);
  EXPECT_EQ(run(router, logits).ids(0, 0), 0);
  router.wide = true;
  EXPECT_EQ(run(router, logits).ids(0, 0), 1);
}

TEST(Gate, SamplingIsOffWithoutDraws) {
  Router router = topK(2, Normalize::SumPlusEps);
  GateResult result = run(router, {{30, 0}});
  EXPECT_EQ(result.ids, (Ids{{0, 1}}));
}

TEST(Gate, SamplingKeepsInProportionToTheWeight) {
  GateInputs inputs;
  const int64_t tokens = 20000;
  inputs.logits = Reals(tokens, 2);
  for (int64_t t = 0; t < tokens; ++t)
    inputs.logits(t, 0) = std::log(4.0); // weights 0.8 and 0.2
  inputs.secondUniform =
      noise(Distribution::Uniform, tokens, 1, {1, 0, 0}).data;
  GateResult result = gate(topK(2, Normalize::SumPlusEps), inputs);
  double kept = count(result.ids, 2)[1];
  EXPECT_NEAR(kept / tokens, 0.4, 0.01);
  EXPECT_EQ(count(result.ids, 2)[0], tokens);
}

TEST(Gate, ExpertChoiceBalancesAndSkipsMaskedTokens) {
  Router router;
  router.expertChoice = true;
  GateInputs inputs;
  inputs.logits = {{1, 1}, {1, 1}, {9, 9}, {1, 1}};
  inputs.mask = {1, 1, 0, 1};
  inputs.expertRows = 2;
  EXPECT_EQ(gate(router, inputs).ids,
            (Ids{{0, 1}, {0, 1}, {-1, -1}, {-1, -1}}));
  inputs.expertRows = 9;
  EXPECT_EQ(count(gate(router, inputs).ids, 2), (Counts{3, 3}));
  inputs.expertRows = 0;
  EXPECT_EQ(count(gate(router, inputs).ids, 2), (Counts{0, 0}));
}

TEST(Gate, NoTokens) {
  GateResult result = run(topK(2), Reals(0, 4));
  EXPECT_EQ(result.ids.rows, 0);
  EXPECT_EQ(result.ids.cols, 2);
  EXPECT_EQ(count(result.ids, 4), (Counts{0, 0, 0, 0}));
  EXPECT_EQ(gshardLoss(result.scores, result.ids), 0);
}

TEST(Gate, NormalisedSingleChoiceHasNoGradient) {
  // dw/dl by a finite difference: 0 after normalisation, not 0 before.
  auto slope = [](Normalize n) {
    Router router = topK(1, n);
    router.wide = true;
    return run(router, {{2 + 1e-4, 1, 0, -1}}).weights(0, 0) -
           run(router, {{2 - 1e-4, 1, 0, -1}}).weights(0, 0);
  };
  EXPECT_EQ(slope(Normalize::SumPlusEps), 0);
  EXPECT_NEAR(slope(Normalize::None) / 2e-4, .6439143 * (1 - .6439143), 1e-6);
}

//===----------------------------------------------------------------------===//
// Noise
//===----------------------------------------------------------------------===//

TEST(Noise, DoesNotDependOnHowTokensAreCut) {
  DrawKey key{42, 3, 7};
  Reals all = noise(Distribution::Normal, 10, 4, key);
  Reals tail = noise(Distribution::Normal, 6, 4, key, 4);
  for (int64_t t = 0; t < 6; ++t)
    for (int64_t e = 0; e < 4; ++e)
      EXPECT_EQ(tail(t, e), all(t + 4, e));
  EXPECT_EQ(all, noise(Distribution::Normal, 10, 4, key));
  EXPECT_FALSE(all == noise(Distribution::Normal, 10, 4, {42, 3, 8}));
}

TEST(Noise, IsRoundedOnce) {
  for (double u : noise(Distribution::Uniform, 50, 3, {1, 0, 0}).data) {
    EXPECT_EQ(u, float(u));
    EXPECT_GT(u, 0);
    EXPECT_LE(u, 1);
  }
}

//===----------------------------------------------------------------------===//
// Losses
//===----------------------------------------------------------------------===//

TEST(Losses, SixTokens) {
  Case c = sixTokens("", 2, 1);
  c.layer.router.wide = true;
  GateResult g = gate(c.layer.router, c.inputs.gate);
  EXPECT_NEAR(gshardLoss(g.scores, g.ids), 1.5047018543, 1e-10);
  LoadImportance li = loadImportanceLoss(g.scores, c.inputs.gate.logits, 2, 1);
  EXPECT_NEAR(li.loss, .4031753721, 1e-10);
  EXPECT_NEAR(li.importance, .3536388780, 1e-10);
  EXPECT_NEAR(li.load, .4527118661, 1e-10);
}

TEST(Losses, UniformScoresGiveOne) {
  Ids ids = {{0}, {1}, {2}, {3}};
  EXPECT_EQ(gshardLoss(Reals(4, 4, .25), ids), 1);
}

TEST(Losses, CountBeforeDrops) {
  // All of four tokens to expert 0 with capacity 1: f = [1, 0].
  Reals scores(4, 2, .4);
  for (int64_t t = 0; t < 4; ++t)
    scores(t, 0) = .6;
  Ids ids(4, 1, 0);
  EXPECT_NEAR(gshardLoss(scores, ids), 1.2, 1e-12);
}

TEST(Losses, IgnoreMaskedTokens) {
  Reals scores = {{.6, .4}, {.6, .4}, {.1, .9}};
  EXPECT_NEAR(gshardLoss(scores, Ids{{0}, {0}, {-1}}, {1, 1, 0}), 1.2, 1e-12);
  EXPECT_EQ(gshardLoss(scores, Ids(3, 1, -1), {0, 0, 0}), 0);
}

TEST(Losses, LoadNeedsNoise) {
  EXPECT_THROW(loadImportanceLoss(Reals(2, 2, .5), Reals(2, 2), 1, 0),
               std::invalid_argument);
}

TEST(Losses, OneExpertHasNoVariance) {
  LoadImportance li = loadImportanceLoss(Reals(3, 1, 1.0), Reals(3, 1), 1, 1);
  EXPECT_EQ(li.loss, 0);
}

TEST(Losses, LoadComparesScoresWithLogits) {
  // Logits above all scores: nobody reaches the threshold, the load is 0.
  GateResult g = run(topK(1), {{10, 9}});
  LoadImportance li = loadImportanceLoss(g.scores, {{10, 9}}, 1, .1);
  EXPECT_EQ(li.load, 0);
}

//===----------------------------------------------------------------------===//
// Cosine router
//===----------------------------------------------------------------------===//

TEST(Cosine, PublishedValues) {
  Reals eye = {{1, 0}, {0, 1}}, matrix = {{1, 0, 1}, {0, 2, 1}};
  Reals x = {{3, 4}, {0, 0}, {-1, 1}};
  Reals logits = cosineLogits(x, eye, {0, 0}, matrix, std::log(2.0));
  Reals expected = {{1.2, 1.6, 1.979899}, {0, 0, 0}, {-1.414214, 1.414214, 0}};
  for (size_t i = 0; i < expected.data.size(); ++i)
    EXPECT_NEAR(logits.data[i], expected.data[i], 1e-6) << i;
  Reals clamped = cosineLogits({{3, 4}}, eye, {0, 0}, matrix, 10);
  EXPECT_NEAR(clamped(0, 0), 60, 1e-9);
  EXPECT_NEAR(clamped(0, 1), 80, 1e-9);
  EXPECT_NEAR(clamped(0, 2), 98.994949, 1e-6);
}
