// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The routers' losses against the reference, and their gradients against finite
// differences, in f64.

#include "Conformance/Training.h"

#include "Reference/Loss.h"
#include "session/Residuals.h"

#include <cmath>
#include <random>

using namespace moira;
using namespace moira::conformance;
using namespace moira::runtime;

namespace {

constexpr int64_t kTokens = 9, kExperts = 4;

// Logits are followed by ids (two choices, some unused), a mask, blocks and
// other logits for thresholds.
constexpr const char *kHead = R"(
func.func @main(%l: tensor<?x4xf64>, %n: tensor<?x4xf64>, %i: tensor<?x2xi32>,
                %m: tensor<?xi1>, %b: tensor<?xi32>) -> (RESULTS) {
)";
const std::string kIds = " ids(%i : tensor<?x2xi32>)";
const std::string kMask = " mask(%m : tensor<?xi1>)";
const std::string kBlocks = " blocks(%b : tensor<?xi32>)";
const std::string kNoisy = " noisy(%n : tensor<?x4xf64>)";

/// What stands between the logits and the types.
const std::vector<std::string> kLosses = {
    /*0*/ "gshard %l" + kIds,
    /*1*/ "gshard %l" + kIds + kMask + " scope block {length = 3 : i64}",
    /*2*/ "switch %l" + kIds + kBlocks + " scope global",
    /*3*/ "switch %l" + kIds + kMask + kBlocks + " score sigmoid scope block",
    /*4*/ "sequence %l" + kIds + " scope block {length = 3 : i64}",
    /*5*/ "z %l",
    /*6*/ "z %l" + kMask + kBlocks + " scope block",
    /*7*/ "load_importance %l" + kIds + " {noise = 1.5 : f64}",
    /*8*/ "load_importance %l" + kIds + kMask + kNoisy + kBlocks +
        " scope block {compare_logits, noise = 2.0 : f64}",
};

/// The same, for the reference.
std::vector<reference::Loss> describeLosses() {
  using reference::Loss;
  std::vector<Loss> losses(9);
  losses[0] = {Loss::GShard, Loss::Rank};
  losses[1] = {Loss::GShard, Loss::Block};
  losses[2] = {Loss::Switch, Loss::Global};
  losses[3] = {Loss::Switch, Loss::Block, /*sigmoid=*/true};
  losses[4] = {Loss::Sequence, Loss::Block};
  losses[5] = {Loss::Z, Loss::Rank};
  losses[6] = {Loss::Z, Loss::Block};
  losses[7] = {Loss::LoadImportance, Loss::Rank, false, false, 1.5};
  losses[8] = {Loss::LoadImportance, Loss::Block, false, true, 2.0};
  return losses;
}
constexpr bool kMasked[] = {false, true, false, true, false,
                            false, true, false, true};
constexpr bool kBlocked[] = {false, false, true,  true, false,
                             false, true,  false, true};
constexpr bool kThirds[] = {false, true,  false, false, true,
                            false, false, false, false};

class Losses : public testing::Test {
protected:
  void SetUp() override {
    std::string text = kHead, names, types;
    for (size_t i = 0; i < kLosses.size(); ++i) {
      std::string name = "%r" + std::to_string(i);
      text += "  " + name + " = moe.loss " + kLosses[i] +
              " : tensor<?x4xf64> -> tensor<f64>\n";
      names += (i ? ", " : "") + name;
      types += std::string(i ? ", " : "") + "tensor<f64>";
    }
    text += "  return " + names + " : " + types + "\n}\n";
    text.replace(text.find("RESULTS"), 7, types);
    auto program = compileTraining(text);
    ASSERT_TRUE(program);
    auto created = Session::create(program);
    ASSERT_TRUE(created.ok()) << created.status().message;
    session = std::move(*created);
    for (int64_t i = 0; i < kTokens * kExperts; ++i) {
      logits.push_back(std::sin(1.7 * i) * 2);
      noisy.push_back(logits.back() + std::cos(2.3 * i) / 2);
    }
  }

  std::vector<TensorView> inputs() const {
    static const int32_t ids[kTokens * 2] = {0, 1,  2,  0, 3, 1, 0, -1, 1,
                                             2, -1, -1, 0, 3, 2, 3, 1,  0};
    static const bool mask[kTokens] = {true, true,  false, true, true,
                                       true, false, true,  true};
    static const int32_t blocks[] = {4, 0, 5};
    return {{DataType::F64, {kTokens, kExperts}, logits.data()},
            {DataType::F64, {kTokens, kExperts}, noisy.data()},
            {DataType::I32, {kTokens, 2}, ids},
            {DataType::I1, {kTokens}, mask},
            {DataType::I32, {3}, blocks}};
  }

  void forward() {
    std::vector<ResultTensor> results;
    MOIRA_ASSERT_OK(session->forward("main", inputs(), results, handle));
    losses.clear();
    for (const ResultTensor &result : results)
      losses.push_back(*static_cast<const double *>(result.data));
  }

  std::unique_ptr<Session> session;
  std::vector<double> logits, noisy, losses;
  std::shared_ptr<const Residuals> handle;
};

TEST_F(Losses, AreThoseOfTheReference) {
  std::mt19937 random(1);
  auto below = [&](int bound) { return int(random() % bound); };
  for (int64_t tokens : {0, 1, 2, 6, 9, 31, 64}) {
    SCOPED_TRACE(tokens);
    int64_t count = tokens * kExperts;
    std::vector<double> l, n;
    for (int64_t i = 0; i < count; ++i) {
      l.push_back((below(2001) - 1000) / 250.0);
      n.push_back(l.back() + (below(201) - 100) / 100.0);
    }
    if (count > 0) {
      l[below(count)] = NAN;
      l[below(count)] = -INFINITY;
    }
    std::vector<int32_t> ids;
    std::vector<uint8_t> mask;
    for (int64_t t = 0; t < tokens; ++t) {
      int first = below(kExperts);
      ids.push_back(below(9) == 0 ? -1 : first);
      ids.push_back(below(5) == 0 ? -1 : (first + 1 + below(3)) % 4);
      mask.push_back(below(4) != 0);
    }
    int64_t third = tokens / 3;
    std::vector<int64_t> blocks{third, 0, tokens - third};
    std::vector<int32_t> given(blocks.begin(), blocks.end());
    std::vector<ResultTensor> results;
    MOIRA_ASSERT_OK(
        session->forward("main",
                         {{DataType::F64, {tokens, kExperts}, l.data()},
                          {DataType::F64, {tokens, kExperts}, n.data()},
                          {DataType::I32, {tokens, 2}, ids.data()},
                          {DataType::I1, {tokens}, mask.data()},
                          {DataType::I32, {3}, given.data()}},
                         results, handle));
    std::vector<reference::Loss> losses = describeLosses();
    for (size_t i = 0; i < losses.size(); ++i) {
      reference::Loss &loss = losses[i];
      loss.experts = kExperts;
      loss.choices = 2;
      loss.logits = l;
      loss.ids = ids;
      if (i == 8)
        loss.noisy = n;
      if (kMasked[i])
        loss.mask.assign(mask.begin(), mask.end());
      if (kBlocked[i])
        loss.blocks = blocks;
      if (kThirds[i]) // rows behind the last three are in no block
        loss.blocks.assign(third, 3);
      if (kThirds[i] && third == 0)
        loss.blocks = {0};
      double want = evaluate(loss);
      EXPECT_NEAR(*static_cast<const double *>(results[i].data), want,
                  1e-12 * (1 + want))
          << kLosses[i];
    }
  }
}

TEST_F(Losses, GradientsAreTheDifferences) {
  forward();
  ASSERT_EQ(losses.size(), kLosses.size());
  auto analytic = handle;
  std::vector<std::vector<double>> gradients[2]; // of logits, of noisy
  for (size_t loss = 0; loss < kLosses.size(); ++loss) {
    std::vector<double> given(kLosses.size(), 0);
    given[loss] = 1;
    std::vector<TensorView> views;
    for (const double &value : given)
      views.push_back({DataType::F64, {}, &value});
    std::vector<ResultTensor> results;
    MOIRA_ASSERT_OK(session->backward(*analytic, views, results));
    ASSERT_EQ(results.size(), 2u);
    for (int of : {0, 1}) {
      auto *values = static_cast<const double *>(results[of].data);
      gradients[of].emplace_back(values, values + logits.size());
    }
  }
  constexpr double step = 1e-5;
  for (int of : {0, 1}) {
    std::vector<double> &values = of == 0 ? logits : noisy;
    for (size_t i = 0; i < values.size(); ++i) {
      double kept = values[i];
      values[i] = kept + step;
      forward();
      std::vector<double> above = losses;
      values[i] = kept - step;
      forward();
      values[i] = kept;
      for (size_t loss = 0; loss < kLosses.size(); ++loss)
        EXPECT_NEAR(gradients[of][loss][i],
                    (above[loss] - losses[loss]) / (2 * step), 1e-8)
            << kLosses[loss] << ", input " << of << ", element " << i;
    }
  }
  // No loss is without a gradient, also where only first choices count; the
  // other logits have one where they are thresholds.
  for (size_t loss = 0; loss < kLosses.size(); ++loss)
    for (int of : {0, 1}) {
      double largest = 0;
      for (double value : gradients[of][loss])
        largest = std::max(largest, std::fabs(value));
      if (of == 0 || loss == 8)
        EXPECT_GT(largest, 1e-3) << kLosses[loss];
      else
        EXPECT_EQ(largest, 0) << kLosses[loss];
    }
  // Masked tokens 2 and 6 have none.
  for (size_t loss : {1, 3, 6, 8})
    for (int64_t token : {2, 6})
      for (int64_t expert = 0; expert < kExperts; ++expert)
        EXPECT_EQ(gradients[0][loss][token * kExperts + expert], 0)
            << kLosses[loss];
}

// What has no exponential: no expert at all, some experts.
TEST_F(Losses, LogitsOfMinusInfinityHaveFiniteGradients) {
  logits[0] = NAN;
  logits[5] = -INFINITY;
  for (int64_t i = 16; i < 20; ++i)
    logits[i] = -INFINITY;
  forward();
  std::vector<double> ones(kLosses.size(), 1);
  std::vector<TensorView> views;
  for (const double &value : ones)
    views.push_back({DataType::F64, {}, &value});
  std::vector<ResultTensor> results;
  MOIRA_ASSERT_OK(session->backward(*handle, views, results));
  for (size_t loss = 0; loss < kLosses.size(); ++loss)
    EXPECT_TRUE(std::isfinite(losses[loss])) << kLosses[loss];
  auto *values = static_cast<const double *>(results[0].data);
  for (size_t i = 0; i < logits.size(); ++i)
    EXPECT_TRUE(std::isfinite(values[i])) << "element " << i;
  EXPECT_NE(values[1], 0);
}

} // namespace
