// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The interpreter's gradient of a gate against differences of its weights.

#include "Interpreter.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

using namespace moira::reference;

/// Well apart, so that a small step changes no choice.
static Reals separated(int64_t rows, int64_t cols, uint64_t seed) {
  Reals m = noise(Distribution::Uniform, rows, cols, {seed, 0, 0});
  for (int64_t t = 0; t < rows; ++t)
    for (int64_t e = 0; e < cols; ++e)
      m(t, e) = 0.4 * ((7 * t + 5 * e) % cols) - 1 + 0.1 * m(t, e);
  return m;
}

static void check(const Router &router, GateInputs inputs,
                  const Ids *selected = nullptr) {
  Router wide = router;
  wide.wide = true;
  GateResult chosen = gate(wide, inputs);
  Reals dweights =
      noise(Distribution::Normal, chosen.ids.rows, chosen.ids.cols, {11, 0, 0});
  Reals gradient = gateGradient(wide, inputs, chosen, dweights, selected);
  const double step = 1e-6;
  int64_t moved = 0;
  for (int64_t t = 0; t < inputs.logits.rows; ++t)
    for (int64_t e = 0; e < inputs.logits.cols; ++e) {
      double at = inputs.logits(t, e), loss[2];
      for (int side : {0, 1}) {
        inputs.logits(t, e) = at + (side ? step : -step);
        GateResult other = gate(wide, inputs);
        ASSERT_EQ(other.ids, chosen.ids);
        loss[side] = 0;
        for (size_t i = 0; i < dweights.data.size(); ++i)
          loss[side] += dweights.data[i] * other.weights.data[i];
      }
      inputs.logits(t, e) = at;
      double expected = (loss[1] - loss[0]) / (2 * step);
      EXPECT_NEAR(gradient(t, e), expected, 1e-7 * (1 + std::fabs(expected)))
          << t << ", " << e;
      moved += std::fabs(expected) > 1e-3;
    }
  EXPECT_GT(moved, 0);
}

TEST(GateGradient, EveryScoreAndNormalisation) {
  for (Score score :
       {Score::Softmax, Score::Sigmoid, Score::SqrtSoftplus, Score::Identity})
    for (Normalize normalize :
         {Normalize::None, Normalize::SumPlusEps, Normalize::MaxSumEps})
      for (double eps : {0.125, 64.0})
        for (bool after : {false, true}) {
          if (after && score != Score::Softmax && score != Score::Sigmoid)
            continue;
          Router router;
          router.score = score;
          router.afterTopK = after;
          router.normalize = normalize;
          router.eps = eps;
          router.scale = 2.5;
          router.topK = 3;
          GateInputs inputs;
          inputs.logits = separated(5, 7, 3);
          check(router, inputs);
        }
}

TEST(GateGradient, GroupsBiasAndRunTimeK) {
  Router router;
  router.groups = 3;
  router.keep = 2;
  router.topK = 3;
  router.normalize = Normalize::SumPlusEps;
  router.eps = 0.25;
  GateInputs inputs;
  inputs.logits = separated(6, 6, 4);
  inputs.bias = {0.2, -0.1, 0, 0.3, 0.1, -0.2};
  inputs.mask = {1, 0, 1, 1, 0, 1};
  inputs.k = 2;
  check(router, inputs);
}

TEST(GateGradient, ExpertChoice) {
  Router router;
  router.expertChoice = true;
  GateInputs inputs;
  inputs.logits = separated(6, 5, 5);
  inputs.expertRows = 3;
  check(router, inputs);
}

/// The choices that a threshold removes still share the softmax.
TEST(GateGradient, ThresholdAfterTheSoftmax) {
  Router router;
  router.afterTopK = true;
  router.topK = 3;
  GateInputs inputs;
  inputs.logits = separated(6, 6, 6);
  Router wide = router;
  wide.wide = true;
  Ids selected = gate(wide, inputs).ids;
  inputs.threshold = 0.3;
  EXPECT_FALSE(gate(wide, inputs).ids == selected);
  check(router, inputs, &selected);
}

/// What cannot change has no gradient, and poisons nothing.
TEST(GateGradient, ConstantsHaveNone) {
  Router router;
  router.topK = 2;
  router.normalize = Normalize::MaxSumEps;
  router.wide = true;
  const double nan = std::nan(""), inf = HUGE_VAL;
  GateInputs inputs;
  inputs.logits = {{nan, 1, 2, 3}, {nan, nan, nan, nan}, {-inf, -inf, 0, -inf}};
  GateResult chosen = gate(router, inputs);
  Reals dweights(3, 2, 1.0);
  dweights(0, 1) = -2;
  Reals gradient = gateGradient(router, inputs, chosen, dweights);
  for (double value : gradient.data)
    EXPECT_TRUE(std::isfinite(value));
  EXPECT_EQ(gradient(0, 0), 0);
  EXPECT_NE(gradient(0, 3), 0);
  for (int64_t e = 0; e < 4; ++e) {
    EXPECT_EQ(gradient(1, e), 0);
    EXPECT_NEAR(gradient(2, e), 0, 1e-15); // a single choice, normalised
  }
}
