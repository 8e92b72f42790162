// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Rows, experts and their gradients against brute force.

#include "Cases.h"
#include "RandomProgram.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

using namespace moira::reference;

/// Values in (-1, 1) that depend on the seed only.
static Reals randomMatrix(int64_t rows, int64_t cols, uint64_t seed) {
  Reals m = noise(Distribution::Uniform, rows, cols, {seed, 0, 0});
  for (double &value : m.data)
    value = float(2 * value - 1);
  return m;
}

/// A layer with real numbers, silu experts and normalised top-k.
static Case realLayer(int64_t tokens, int64_t experts, int64_t k, int64_t d,
                      int64_t h, uint64_t seed) {
  Router router;
  router.topK = k;
  router.normalize = Normalize::SumPlusEps;
  Case c = routerCase("real", randomMatrix(tokens, experts, seed), router);
  c.layer.features = c.layer.outFeatures = d;
  c.layer.hidden = h;
  c.layer.activation = Activation::Silu;
  c.inputs.x = randomMatrix(tokens, d, seed + 1);
  c.inputs.w1.clear();
  c.inputs.w2.clear();
  for (int64_t e = 0; e < experts; ++e) {
    c.inputs.w1.push_back(randomMatrix(h, d, seed + 10 + e));
    c.inputs.w2.push_back(randomMatrix(d, h, seed + 50 + e));
    c.inputs.b1.push_back(randomMatrix(1, h, seed + 90 + e).data);
    c.inputs.b2.push_back(randomMatrix(1, d, seed + 130 + e).data);
  }
  return c;
}

/// y = sum over choices of weight * expert(x), with nothing of the layer's
/// machinery, in double.
static Reals bruteForce(const Case &c, const GateResult &g) {
  Reals y(c.inputs.x.rows, c.layer.outFeatures);
  for (int64_t t = 0; t < y.rows; ++t)
    for (int64_t j = 0; j < g.ids.cols; ++j) {
      int64_t e = g.ids(t, j);
      for (int64_t n = 0; n < y.cols; ++n) {
        double sum = c.inputs.b2[e][n];
        for (int64_t m = 0; m < c.layer.hidden; ++m) {
          double u = c.inputs.b1[e][m];
          for (int64_t d = 0; d < c.layer.features; ++d)
            u += c.inputs.x(t, d) * c.inputs.w1[e](m, d);
          sum += u / (1 + std::exp(-u)) * c.inputs.w2[e](n, m);
        }
        y(t, n) += g.weights(t, j) * sum;
      }
    }
  return y;
}

TEST(Layer, AgreesWithALoopOverExperts) {
  for (int64_t experts : {4, 8})
    for (int64_t k : {2, 3}) {
      Case c = realLayer(4, experts, k, 16, 32, 100 * experts + k);
      LayerResult r = evaluate(c.layer, c.inputs);
      Reals expected = bruteForce(c, r.gate);
      for (size_t i = 0; i < expected.data.size(); ++i)
        EXPECT_NEAR(r.y.data[i], expected.data[i],
                    1e-5 * std::max(1.0, std::fabs(expected.data[i])));
    }
}

TEST(Layer, DoubleRowsAreComputedInDouble) {
  Case c = realLayer(5, 4, 2, 7, 9, 3);
  c.layer.rowType = DType::F64;
  c.layer.router.wide = true;
  LayerResult r = evaluate(c.layer, c.inputs);
  Reals expected = bruteForce(c, r.gate);
  for (size_t i = 0; i < expected.data.size(); ++i)
    EXPECT_NEAR(r.y.data[i], expected.data[i], 1e-13);
}

TEST(Layer, RaggedPaddedAndOrdersGiveTheSameBits) {
  Case c = realLayer(13, 5, 3, 7, 11, 4);
  for (DType type : {DType::F32, DType::BF16, DType::F16}) {
    c.layer.rowType = type;
    for (Reals *m : {&c.inputs.x, &c.inputs.w1[0], &c.inputs.w2[0]})
      for (double &value : m->data)
        value = roundTo(type, value);
    c.layer.padded = false;
    c.layer.order = Order::ChoiceMajor;
    Reals y = evaluate(c.layer, c.inputs).y;
    for (Order order :
         {Order::TokenMajor, Order::BatchPrioritized, Order::ExpertProbability})
      for (bool padded : {false, true}) {
        c.layer.order = order;
        c.layer.padded = padded;
        EXPECT_EQ(evaluate(c.layer, c.inputs).y, y);
      }
  }
}

TEST(Layer, RoundsExactlyOncePerStep) {
  // 1 + 2^-8 is lost when a bf16 sum is rounded at every term, kept in f32.
  EXPECT_EQ(matmul({{1, 1, 1}}, {{1, 0x1p-8, 0x1p-8}}, {})(0, 0), 1 + 0x1p-7);
  // A fused multiply-add keeps what two roundings would lose.
  double a = 1 + 0x1p-12;
  EXPECT_EQ(matmul({{a, 1}}, {{a, -(1 + 0x1p-11)}}, {})(0, 0), 0);
  EXPECT_EQ(matmul({{1, a}}, {{-(1 + 0x1p-11), a}}, {})(0, 0), 0x1p-24);
}

TEST(Layer, DifferentExpertsForDifferentGroups) {
  Assignment a = assign({{0}, {1}, {0}}, [] {
    AssignInputs inputs;
    inputs.experts = 2;
    return inputs;
  }());
  Reals rows = dispatch({{1}, {2}, {3}}, a, DType::F32);
  Reals out = mapExperts(rows, a, 1, [](int64_t e, const Reals &r) {
    Reals y = r;
    for (double &value : y.data)
      value = e == 0 ? -value : value * value;
    return y;
  });
  EXPECT_EQ(combine(out, a, DType::F32), (Reals{{-1}, {4}, {-3}}));
}

TEST(Layer, SourcesNameTheRowsThatDispatchCopies) {
  AssignInputs inputs;
  inputs.experts = 2;
  inputs.capacity = 2;
  Assignment a = assign({{0, 1}, {0, -1}, {0, 1}}, inputs);
  EXPECT_EQ(sources(a), (Counts{0, 1, 0, 2, -1, -1}));
  Reals rows = dispatch({{10}, {11}, {12}}, a, DType::F32);
  for (int64_t r = 0; r < 4; ++r)
    EXPECT_EQ(rows(r, 0), 10 + sources(a)[r]);
}

TEST(Layer, TwoOperandsRoutedAlikeGiveEqualResults) {
  Case c = realLayer(6, 3, 2, 4, 5, 9);
  LayerResult r = evaluate(c.layer, c.inputs);
  Reals one = dispatch(c.inputs.x, r.assignment, DType::F32);
  Reals two = dispatch(c.inputs.x, r.assignment, DType::F32);
  EXPECT_EQ(combine(one, r.assignment, DType::F32, &r.gate.weights),
            combine(two, r.assignment, DType::F32, &r.gate.weights));
}

TEST(Layer, OneDescriptionManySizes) {
  for (int64_t tokens : {3, 0, 7, 1, 4}) {
    Case c = realLayer(tokens, 4, 2, 5, 6, 11);
    LayerResult r = evaluate(c.layer, c.inputs);
    EXPECT_EQ(r.y.rows, tokens);
    Reals expected = bruteForce(c, r.gate);
    for (size_t i = 0; i < expected.data.size(); ++i)
      EXPECT_NEAR(r.y.data[i], expected.data[i], 1e-5);
  }
}

//===----------------------------------------------------------------------===//
// The worked example of docs/routing.md
//===----------------------------------------------------------------------===//

TEST(Layer, DocumentedExample) {
  Case c = sixTokens("", 2, 1);
  LayerResult padded = evaluate(c.layer, c.inputs);
  c.layer.padded = false;
  LayerResult ragged = evaluate(c.layer, c.inputs);
  EXPECT_EQ(ragged.assignment.slots,
            (Ids{{0, 5}, {1, 7}, {2, 6}, {4, 8}, {3, 10}, {9, -1}}));
  EXPECT_EQ(padded.assignment.slots,
            (Ids{{0, 5}, {1, 8}, {2, 6}, {4, 9}, {3, 13}, {12, -1}}));
  EXPECT_EQ(ragged.assignment.bound, 12);
  EXPECT_EQ(padded.assignment.bound, 16);
  EXPECT_EQ(ragged.assignment.sizes, (Counts{4, 3, 2, 2}));
  Reals weights = {{.731059, .268941}, {.731059, .268941}, {.731059, .268941},
                   {.880797, .119203}, {.817574, .182426}, {.817574, .182426}};
  Reals y = {{1.268941, 12.689414}, {3.075766, 30.757656},
             {3.806824, 38.068241}, {8.476812, 84.768118},
             {7.736383, 77.363831}, {19.621787, 196.217866}};
  for (size_t i = 0; i < y.data.size(); ++i) {
    EXPECT_NEAR(ragged.gate.weights.data[i], weights.data[i], 6e-7);
    EXPECT_NEAR(ragged.y.data[i], y.data[i], 2e-7 * y.data[i] + 6e-7);
  }
}

//===----------------------------------------------------------------------===//
// Gradients
//===----------------------------------------------------------------------===//

/// sum of y * dy for the combine of given rows and weights.
static double objective(const Reals &rows, const Assignment &a,
                        const Reals &weights, const Reals &dy) {
  Reals y = combine(rows, a, DType::F64, &weights);
  double sum = 0;
  for (size_t i = 0; i < y.data.size(); ++i)
    sum += y.data[i] * dy.data[i];
  return sum;
}

TEST(Gradients, CombineAgainstDifferencesWithDroppedPairs) {
  AssignInputs inputs;
  inputs.experts = 2;
  inputs.capacity = 2;
  // Token 2's first choice is dropped, and so is token 0's second.
  Ids ids = {{0, 1}, {0, 1}, {0, 1}, {1, 0}, {1, -1}};
  Assignment a = assign(ids, inputs);
  Reals rows = dispatch(randomMatrix(5, 3, 1), a, DType::F64);
  for (double &value : rows.data)
    value = std::isnan(value) ? 0 : value;
  Reals weights = randomMatrix(5, 2, 2), dy = randomMatrix(5, 3, 3);
  Reals dw = weightGradient(rows, a, dy, DType::F64);
  Reals drows = dispatch(dy, a, DType::F64, &weights);
  const double step = 0x1p-20;
  auto difference = [&](double &value) {
    double old = value;
    value = old + step;
    double up = objective(rows, a, weights, dy);
    value = old - step;
    double down = objective(rows, a, weights, dy);
    value = old;
    return (up - down) / (2 * step);
  };
  for (int64_t t = 0; t < 5; ++t)
    for (int64_t j = 0; j < 2; ++j) {
      EXPECT_NEAR(dw(t, j), difference(weights(t, j)), 1e-9);
      if (a.slots(t, j) < 0) {
        EXPECT_EQ(dw(t, j), 0);
      }
    }
  for (int64_t r = 0; r < rows.rows; ++r)
    for (int64_t d = 0; d < 3; ++d)
      EXPECT_NEAR(std::isnan(drows(r, d)) ? 0 : drows(r, d),
                  difference(rows(r, d)), 1e-9);
}

TEST(Gradients, LaterTokensKeepTheirsAfterADroppedOne) {
  // The first token of 600 is dropped, token 512 is not.
  Ids ids(600, 1, -1);
  for (int64_t t = 1; t < 600; ++t)
    ids(t, 0) = 0;
  AssignInputs inputs;
  Assignment a = assign(ids, inputs);
  Reals dw = weightGradient(dispatch(Reals(600, 2, 1.0), a, DType::F32), a,
                            Reals(600, 2, 1.0), DType::F32);
  EXPECT_EQ(dw(0, 0), 0);
  EXPECT_EQ(dw(512, 0), 2);
}

TEST(Gradients, EmptyGroupsGiveExactZeros) {
  AssignInputs inputs;
  inputs.experts = 3;
  Assignment a = assign({{0}, {0}, {2}, {0}, {2}}, inputs);
  EXPECT_EQ(a.sizes, (Counts{3, 0, 2}));
  Reals x = dispatch(Reals(5, 2, 1.0), a, DType::F32);
  std::vector<Reals> dw;
  mapExperts(x, a, 2, [&](int64_t, const Reals &rows) {
    dw.push_back(matmulWeightGradient(rows, Reals(rows.rows, 2, 1.0)));
    return rows;
  });
  EXPECT_EQ(dw[0], Reals(2, 2, 3.0));
  EXPECT_EQ(dw[1], Reals(2, 2));
  EXPECT_EQ(dw[2], Reals(2, 2, 2.0));
}

TEST(Gradients, BiasGradientIsTheGroupSize) {
  // With gradients of one, the bias gradient counts the rows.
  AssignInputs inputs;
  inputs.experts = 3;
  Assignment a = assign({{1}, {2}, {2}, {2}, {2}, {2}}, inputs);
  Reals ones = dispatch(Reals(6, 1, 1.0), a, DType::F32);
  std::vector<double> db;
  mapExperts(ones, a, 1, [&](int64_t, const Reals &rows) {
    db.push_back(matmulWeightGradient(Reals(rows.rows, 1, 1.0), rows)(0, 0));
    return rows;
  });
  EXPECT_EQ(db, (std::vector<double>{0, 1, 5}));
}
