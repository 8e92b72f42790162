// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The derivative of a gate's weights, on ids that are given. Written as a
// Jacobian in double: every weight by every logit, so that it shares no
// shortcut with the compiler.

#include "Interpreter.h"

#include <cmath>

namespace moira::reference {

namespace {

/// A token's scores in double and their slopes, d score a / d logit b.
struct Scores {
  std::vector<double> values;
  Reals slopes;
};

} // namespace

/// A logit as gates read it.
static double clean(double logit) {
  if (std::isnan(logit))
    return -HUGE_VAL;
  return logit;
}

static Scores scoresOf(Score score, const std::vector<double> &logits) {
  int64_t n = logits.size();
  Scores s{std::vector<double>(n), Reals(n, n)};
  if (score == Score::Softmax) {
    double top = -HUGE_VAL, sum = 0;
    for (double logit : logits)
      top = std::max(top, logit);
    if (top == -HUGE_VAL)
      return s;
    for (int64_t a = 0; a < n; ++a)
      sum += s.values[a] = std::exp(logits[a] - top);
    for (double &value : s.values)
      value /= sum;
    for (int64_t a = 0; a < n; ++a)
      for (int64_t b = 0; b < n; ++b)
        s.slopes(a, b) = s.values[a] * ((a == b) - s.values[b]);
    return s;
  }
  for (int64_t a = 0; a < n; ++a) {
    double l = logits[a], sigmoid = 1 / (1 + std::exp(-l));
    if (score == Score::Identity) {
      s.values[a] = l;
      s.slopes(a, a) = 1;
    } else if (score == Score::Sigmoid) {
      s.values[a] = sigmoid;
      s.slopes(a, a) = sigmoid * (1 - sigmoid);
    } else {
      s.values[a] =
          std::sqrt(std::fmax(l, 0) + std::log1p(std::exp(-std::fabs(l))));
      s.slopes(a, a) = s.values[a] == 0 ? 0 : sigmoid / (2 * s.values[a]);
    }
  }
  return s;
}

/// d weight / d score, of normalised scores: [K, K].
static Reals normalizationOf(const Router &router,
                             const std::vector<double> &scores) {
  int64_t K = scores.size();
  Reals slopes(K, K);
  double sum = 0;
  for (double score : scores)
    sum += score;
  double divisor = router.normalize == Normalize::SumPlusEps
                       ? sum + router.eps
                       : std::max(sum, router.eps);
  bool constant = router.normalize == Normalize::MaxSumEps && sum < router.eps;
  for (int64_t j = 0; j < K; ++j)
    for (int64_t i = 0; i < K; ++i) {
      if (router.normalize == Normalize::None)
        slopes(j, i) = j == i;
      else if (divisor != 0)
        slopes(j, i) = (j == i) / divisor -
                       (constant ? 0 : scores[j] / (divisor * divisor));
    }
  return slopes;
}

Reals gateGradient(const Router &router, const GateInputs &inputs,
                   const GateResult &chosen, const Reals &dweights,
                   const Ids *selected) {
  int64_t T = inputs.logits.rows, E = inputs.logits.cols, K = chosen.ids.cols;
  Reals result(T, E);
  for (int64_t t = 0; t < T; ++t) {
    std::vector<double> logits(E);
    for (int64_t e = 0; e < E; ++e)
      logits[e] = clean(inputs.logits(t, e));
    // The logits that the scores of the choices depend on, by choice or expert.
    std::vector<int64_t> sources;
    std::vector<double> read;
    std::vector<int64_t> placeOf(K, -1);
    auto isDead = [&](int64_t j) {
      int32_t id = chosen.ids(t, j);
      return id < 0 || logits[id] == -HUGE_VAL;
    };
    if (!router.afterTopK) {
      for (int64_t e = 0; e < E; ++e)
        sources.push_back(e);
      read = logits;
      for (int64_t j = 0; j < K; ++j)
        if (!isDead(j))
          placeOf[j] = chosen.ids(t, j);
    } else {
      for (int64_t j = 0; j < K; ++j) {
        int32_t id = selected ? (*selected)(t, j) : chosen.ids(t, j);
        // A choice without a finite key has a weight of 0 and no place.
        bool dead = id < 0 || logits[id] == -HUGE_VAL ||
                    (chosen.ids(t, j) >= 0 && chosen.weights(t, j) == 0);
        if (dead)
          continue;
        if (chosen.ids(t, j) >= 0)
          placeOf[j] = sources.size();
        sources.push_back(id);
        read.push_back(logits[id]);
      }
    }
    Scores scores = scoresOf(router.score, read);
    std::vector<double> used(K);
    for (int64_t j = 0; j < K; ++j) {
      // The weight of an expert that was switched off is constant.
      if (placeOf[j] >= 0 && chosen.weights(t, j) == 0 &&
          scores.values[placeOf[j]] != 0)
        placeOf[j] = -1;
      if (placeOf[j] >= 0)
        used[j] = scores.values[placeOf[j]];
    }
    Reals normalization = normalizationOf(router, used);
    for (size_t s = 0; s < sources.size(); ++s) {
      if (!std::isfinite(inputs.logits(t, sources[s])))
        continue;
      double sum = 0;
      for (int64_t j = 0; j < K; ++j)
        for (int64_t i = 0; i < K; ++i)
          if (placeOf[j] >= 0 && placeOf[i] >= 0)
            sum += dweights(t, j) * router.scale * normalization(j, i) *
                   scores.slopes(placeOf[i], s);
      result(t, sources[s]) += sum;
    }
  }
  return result;
}

} // namespace moira::reference
