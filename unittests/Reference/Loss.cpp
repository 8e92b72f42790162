// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Loss.h"

#include <cmath>
#include <limits>

namespace moira::reference {

namespace {
/// What one block, or all tokens, add up to.
struct Sums {
  int64_t tokens = 0;
  std::vector<double> scores, loads, pairs;
  double squares = 0;
};
} // namespace

static double clean(double logit) {
  if (std::isnan(logit))
    return -INFINITY;
  return std::min(logit, std::numeric_limits<double>::max());
}

/// Scores of one token, and log(sum of exp).
static std::vector<double> scoresOf(const Loss &loss, int64_t token,
                                    double &logSum) {
  std::vector<double> scores(loss.experts);
  double top = -INFINITY, sum = 0;
  for (int64_t e = 0; e < loss.experts; ++e)
    top =
        std::max(top, scores[e] = clean(loss.logits[token * loss.experts + e]));
  for (double &score : scores) {
    if (score == -INFINITY)
      score = 0;
    else
      score = loss.sigmoid ? 1 / (1 + std::exp(-score)) : std::exp(score - top);
    sum += score;
  }
  logSum = sum == 0 ? 0 : top + std::log(sum);
  for (double &score : scores)
    score = sum == 0 ? 0 : score / sum;
  return scores;
}

/// The chance of each expert to be chosen under other noise.
static void addLoads(const Loss &loss, int64_t token,
                     const std::vector<double> &scores, Sums &sums) {
  int64_t last = -1;
  for (int64_t j = 0; j < loss.choices; ++j) {
    int32_t id = loss.ids[token * loss.choices + j];
    if (id >= 0 && id < loss.experts)
      last = id;
  }
  if (last < 0)
    return;
  const auto &by = loss.noisy.empty() ? loss.logits : loss.noisy;
  auto finite = [](double logit) {
    return std::max(clean(logit), std::numeric_limits<double>::lowest());
  };
  double threshold = finite(by[token * loss.experts + last]);
  for (int64_t e = 0; e < loss.experts; ++e) {
    double value = loss.compareLogits
                       ? finite(loss.logits[token * loss.experts + e])
                       : scores[e];
    double deviation = loss.noise / double(loss.experts);
    sums.loads[e] +=
        std::erfc((threshold - value) / deviation / std::sqrt(2)) / 2;
  }
}

static Sums addUp(const Loss &loss, int64_t begin, int64_t end) {
  std::vector<double> zeros(loss.experts, 0);
  Sums sums{0, zeros, zeros, zeros};
  for (int64_t token = begin; token < end; ++token) {
    if (!loss.mask.empty() && !loss.mask[token])
      continue;
    ++sums.tokens;
    double logSum;
    std::vector<double> scores = scoresOf(loss, token, logSum);
    sums.squares += logSum * logSum;
    for (int64_t e = 0; e < loss.experts; ++e)
      sums.scores[e] += scores[e];
    if (loss.kind == Loss::Z)
      continue;
    for (int64_t j = 0; j < loss.choices; ++j) {
      int32_t id = loss.ids[token * loss.choices + j];
      if (id >= 0 && id < loss.experts && (j == 0 || loss.kind != Loss::GShard))
        sums.pairs[id] += 1;
    }
    if (loss.kind == Loss::LoadImportance)
      addLoads(loss, token, scores, sums);
  }
  return sums;
}

static double variation(const std::vector<double> &values) {
  double mean = 0, variance = 0;
  for (double value : values)
    mean += value / double(values.size());
  if (values.size() == 1)
    return 0;
  for (double value : values)
    variance += (value - mean) * (value - mean) / double(values.size() - 1);
  return variance / (mean * mean + 1e-10);
}

static double lossOf(const Loss &loss, const Sums &sums) {
  if (loss.kind == Loss::Z)
    return sums.squares / double(sums.tokens);
  if (loss.kind == Loss::LoadImportance)
    return (variation(sums.scores) + variation(sums.loads)) / 2;
  double product = 0, pairs = 0;
  for (int64_t e = 0; e < loss.experts; ++e) {
    product += sums.scores[e] * sums.pairs[e];
    pairs += sums.pairs[e];
  }
  double by = loss.kind == Loss::GShard ? double(sums.tokens) : pairs;
  return by == 0 ? 0
                 : double(loss.experts) * product / by / double(sums.tokens);
}

double evaluate(const Loss &loss) {
  std::vector<int64_t> blocks = loss.blocks;
  if (blocks.empty() || loss.scope == Loss::Global)
    blocks = {loss.tokens()};
  double sum = 0, count = 0;
  int64_t begin = 0;
  for (int64_t rows : blocks) {
    Sums sums = addUp(loss, begin, begin + rows);
    begin += rows;
    if (sums.tokens == 0)
      continue;
    sum += lossOf(loss, sums);
    count += 1;
  }
  return count == 0 ? 0 : sum / count;
}

} // namespace moira::reference
