// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Interpreter.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace moira::reference {

template <typename Real>
static constexpr Real minusInf = -std::numeric_limits<Real>::infinity();

/// Scores of sanitised logits. The sum of a softmax is taken in f64, in order.
template <typename Real>
static std::vector<Real> scoresOf(Score score, const std::vector<Real> &l) {
  std::vector<Real> s(l.size());
  if (score != Score::Softmax) {
    for (size_t e = 0; e < l.size(); ++e)
      s[e] = score == Score::Sigmoid        ? sigmoid(l[e])
             : score == Score::SqrtSoftplus ? sqrtSoftplus(l[e])
                                            : l[e];
    return s;
  }
  Real top = minusInf<Real>;
  for (Real value : l)
    top = std::max(top, value);
  if (top == minusInf<Real>)
    return s;
  double sum = 0;
  for (size_t e = 0; e < l.size(); ++e)
    sum += s[e] = expOf(l[e] - top);
  for (Real &value : s)
    value /= static_cast<Real>(sum);
  return s;
}

/// Sets the keys of every expert outside the `keep` best groups to -inf.
template <typename Real>
static void maskGroups(const Router &router, std::vector<Real> &keys) {
  int64_t size = keys.size() / router.groups;
  std::vector<Real> best(router.groups);
  for (int64_t g = 0; g < router.groups; ++g) {
    std::vector<Real> members(keys.begin() + g * size,
                              keys.begin() + (g + 1) * size);
    std::sort(members.rbegin(), members.rend());
    best[g] = members[0];
    if (router.groupScore == GroupScore::SumTop2 && size > 1)
      best[g] += members[1];
  }
  for (int64_t g = 0; g < router.groups; ++g) {
    int64_t better = 0;
    for (int64_t o = 0; o < router.groups; ++o)
      better += best[o] > best[g] || (best[o] == best[g] && o < g);
    if (better >= router.keep)
      std::fill_n(keys.begin() + g * size, size, minusInf<Real>);
  }
}

/// Indices of the k largest keys, largest first, ties to the lower index.
template <typename Real>
static std::vector<int32_t> topK(const std::vector<Real> &keys, int64_t k) {
  std::vector<int32_t> order(keys.size());
  for (size_t i = 0; i < order.size(); ++i)
    order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return keys[a] > keys[b]; });
  order.resize(std::min<int64_t>(k, order.size()));
  return order;
}

/// Divides by the sum of the weights (f64, choice order), as the router says.
template <typename Real>
static void normalize(const Router &router, std::vector<Real> &w) {
  if (router.normalize == Normalize::None)
    return;
  double sum = 0;
  for (Real value : w)
    sum += value;
  sum = router.normalize == Normalize::SumPlusEps ? sum + router.eps
                                                  : std::max(sum, router.eps);
  Real denominator = static_cast<Real>(sum);
  for (Real &value : w)
    value = denominator == 0 ? Real(0) : value / denominator;
}

/// What a token is selected by: the score plus the bias, and -inf for a logit
/// of -inf whatever the bias.
template <typename Real>
static Real keyOf(const GateInputs &in, int64_t e, Real logit, Real score) {
  if (logit == minusInf<Real>)
    return logit;
  if (in.bias.empty())
    return score;
  return sanitize(score + static_cast<Real>(in.bias[e]));
}

/// One token of a token-choice gate: from sanitised logits to ids and weights.
template <typename Real>
static void gateRow(const Router &router, const GateInputs &in, int64_t t,
                    const std::vector<Real> &l, const std::vector<Real> &s,
                    GateResult &out) {
  int64_t experts = l.size(), K = out.ids.cols;
  int64_t k = std::clamp<int64_t>(in.k.value_or(K), 0, K);
  std::vector<Real> keys(experts);
  for (int64_t e = 0; e < experts; ++e)
    keys[e] = keyOf(in, e, l[e], router.afterTopK ? l[e] : s[e]);
  std::vector<int32_t> ids;
  if (in.replay) {
    for (int64_t j = 0; j < K; ++j) {
      int32_t id = (*in.replay)(t, j);
      ids.push_back(id >= 0 && id < experts ? id : -1);
    }
  } else {
    if (router.groups > 1)
      maskGroups(router, keys);
    ids = topK(keys, K);
  }
  for (int64_t j = k; j < K; ++j)
    ids[j] = -1;

  // A choice without a finite key is only there to keep ids distinct.
  std::vector<Real> w(K);
  for (int64_t j = 0; j < K; ++j) {
    bool dead = ids[j] < 0 || l[ids[j]] == minusInf<Real> ||
                (!in.replay && keys[ids[j]] == minusInf<Real>);
    if (router.afterTopK)
      w[j] = dead ? minusInf<Real> : l[ids[j]];
    else
      w[j] = dead ? Real(0) : s[ids[j]];
  }
  if (router.afterTopK)
    w = scoresOf(router.score, w);
  for (int64_t j = 0; j < K; ++j)
    if (in.threshold && !(w[j] >= static_cast<Real>(*in.threshold))) {
      ids[j] = -1;
      w[j] = 0;
    }
  normalize(router, w);
  if (!in.secondUniform.empty() && K > 1 &&
      !(2 * w[1] >= static_cast<Real>(in.secondUniform[t]))) {
    ids[1] = -1;
    w[1] = 0;
  }
  for (int64_t j = 0; j < K; ++j) {
    out.ids(t, j) = ids[j];
    out.weights(t, j) =
        static_cast<Real>(w[j] * static_cast<Real>(router.scale));
  }
}

/// Each expert takes its best tokens; column e of the result is expert e.
template <typename Real>
static void expertChoice(const Router &router, const GateInputs &in,
                         const std::vector<std::vector<Real>> &scores,
                         const std::vector<std::vector<Real>> &logits,
                         GateResult &out) {
  std::vector<std::vector<Real>> w(out.ids.rows,
                                   std::vector<Real>(out.ids.cols));
  for (int64_t e = 0; e < out.ids.cols; ++e) {
    std::vector<int32_t> tokens;
    std::vector<Real> keys;
    for (int64_t t = 0; t < out.ids.rows; ++t) {
      if (!in.mask.empty() && !in.mask[t])
        continue;
      tokens.push_back(t);
      keys.push_back(keyOf(in, e, logits[t][e], scores[t][e]));
    }
    for (int32_t i : topK(keys, in.expertRows)) {
      out.ids(tokens[i], e) = e;
      w[tokens[i]][e] =
          keys[i] == minusInf<Real> ? Real(0) : scores[tokens[i]][e];
    }
  }
  for (int64_t t = 0; t < out.ids.rows; ++t) {
    normalize(router, w[t]);
    for (int64_t e = 0; e < out.ids.cols; ++e)
      out.weights(t, e) =
          static_cast<Real>(w[t][e] * static_cast<Real>(router.scale));
  }
}

template <typename Real>
static GateResult gateImpl(const Router &router, const GateInputs &in) {
  int64_t T = in.logits.rows, E = in.logits.cols;
  int64_t K = router.expertChoice ? E : std::min(router.topK, E);
  GateResult out{Ids(T, K, -1), Reals(T, K), Reals(T, E)};
  std::vector<std::vector<Real>> logits(T), scores(T);
  for (int64_t t = 0; t < T; ++t) {
    for (int64_t e = 0; e < E; ++e)
      logits[t].push_back(sanitize(static_cast<Real>(in.logits(t, e))));
    scores[t] = scoresOf(router.score, logits[t]);
    std::copy(scores[t].begin(), scores[t].end(), &out.scores.data[t * E]);
    bool real = in.mask.empty() || in.mask[t];
    if (!router.expertChoice && real)
      gateRow(router, in, t, logits[t], scores[t], out);
  }
  if (router.expertChoice)
    expertChoice(router, in, scores, logits, out);
  return out;
}

GateResult gate(const Router &router, const GateInputs &inputs) {
  return router.wide ? gateImpl<double>(router, inputs)
                     : gateImpl<float>(router, inputs);
}

Reals noise(Distribution distribution, int64_t rows, int64_t cols,
            const DrawKey &key, uint64_t firstToken) {
  Reals out(rows, cols);
  for (int64_t t = 0; t < rows; ++t)
    for (int64_t n = 0; n < cols; ++n) {
      std::array<uint32_t, 4> words = draw(key, firstToken + t, n);
      out(t, n) = static_cast<float>(distribution == Distribution::Normal
                                         ? normalOf(words)
                                         : uniformOf(words[0]));
    }
  return out;
}

} // namespace moira::reference
