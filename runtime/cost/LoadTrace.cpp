// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "cost/LoadTrace.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>

using namespace moira;
using namespace moira::runtime;

// What draws are for, so that no two use the same counters.
enum : uint32_t { drawOrder = 0, drawSteps = 1, drawCounts = 1u << 31 };

Status LoadOptions::parse(const std::string &name) {
  static const std::pair<const char *, LoadPreset> names[] = {
      {"uniform", LoadPreset::Uniform},
      {"4-of-16", LoadPreset::FourOf16},
      {"10-of-64", LoadPreset::TenOf64},
      {"one-hot", LoadPreset::OneHot},
      {"one-device", LoadPreset::OneDevice},
      {"rotating-hot", LoadPreset::RotatingHot},
      {"training", LoadPreset::Training},
      {"spiky-training", LoadPreset::SpikyTraining}};
  for (const auto &[known, value] : names)
    if (name == known) {
      preset = value;
      return Status();
    }
  if (name.rfind("zipf:", 0) == 0) {
    const char *begin = name.c_str() + 5;
    char *end = nullptr;
    double s = std::strtod(begin, &end);
    if (*begin && !*end && std::isfinite(s) && s >= 0) {
      preset = LoadPreset::Zipf;
      exponent = s;
      return Status();
    }
  }
  return Status(MOIRA_INVALID_ARGUMENT,
                "loads: expected uniform, zipf:S, 4-of-16, 10-of-64, one-hot, "
                "one-device, rotating-hot, training or spiky-training, got '" +
                    name + "'");
}

Result<LoadTrace> LoadTrace::create(const LoadOptions &options) {
  auto invalid = [](const char *what, auto got) {
    return Status(MOIRA_INVALID_ARGUMENT,
                  concat("loads: expected ", what, ", got ", got));
  };
  if (options.ranks < 1)
    return invalid("at least 1 rank", options.ranks);
  if (options.experts < 1)
    return invalid("at least 1 expert", options.experts);
  if (options.topK < 1 || options.topK > options.experts)
    return invalid("from 1 to as many choices as experts", options.topK);
  if (options.tokens < 0 || options.tokens > INT32_MAX / options.topK)
    return invalid("tokens whose rows fit 31 bits", options.tokens);
  if (options.first < 0 || options.repeat < 1)
    return invalid("a first step of at least 0 and a repetition of at least 1",
                   std::min(options.first, options.repeat));
  if (!std::isfinite(options.exponent) || options.exponent < 0)
    return invalid("an exponent of at least 0", options.exponent);
  return LoadTrace(options);
}

LoadTrace::LoadTrace(const LoadOptions &options)
    : wanted(options),
      key(streamKey(options.seed, concat("loads ", options.layer))),
      now(options.first - 1), shares(options.experts), order(options.experts) {
  Draws draws(key, drawOrder);
  std::iota(order.begin(), order.end(), 0);
  for (int i = options.experts - 1; i > 0; --i)
    std::swap(order[i], order[draws.below(i + 1)]);
  if (options.preset == LoadPreset::Training ||
      options.preset == LoadPreset::SpikyTraining) {
    target.resize(options.experts);
    logits.resize(options.experts);
    for (double &logit : logits)
      logit = 0.2 * draws.normal();
    // Phases build on one another: what was before the first step is walked.
    for (int64_t step = 0; step < options.first; ++step) {
      now = step;
      train();
    }
    now = options.first - 1;
  }
}

//===----------------------------------------------------------------------===//
// Training
//===----------------------------------------------------------------------===//

// Steps at which phases begin.
static constexpr int64_t winners = 5, settling = 100, settled = 500;

/// Log shares of experts by popularity, for the phase of this step.
void LoadTrace::aim() {
  int experts = wanted.experts;
  // What stands below the live ones: far under 0.1 % together.
  constexpr double dead = 1e-5;
  if (now < settling) {
    // Two to four experts take nearly all.
    static constexpr double top[] = {0.49, 0.27, 0.13, 0.06};
    for (int i = 0; i < experts; ++i)
      target[order[i]] =
          std::log(i < 4 ? top[i] : 0.04 * std::pow(i - 3, -2.5) + dead);
    return;
  }
  // A Zipf of 1.5 whose head flattens and then steepens: the largest share goes
  // from two fifths to a quarter and on to nearly a half.
  double flat = now < settled
                    ? 0.4 + 1.6 * double(now - settling) / (settled - settling)
                    : 2 * std::exp(-double(now - settled) / 450);
  for (int i = 0; i < experts; ++i)
    target[order[i]] = std::log(i < 16 ? std::pow(1 + i + flat, -1.5) : dead);
}

void LoadTrace::train() {
  if (now < winners)
    return; // as they were drawn
  Draws draws(key, drawSteps, uint32_t(now), uint32_t(now >> 32));
  int experts = wanted.experts;
  double keep, noise;
  if (now < settling) {
    // New winners once in 15 steps: half of the spans of ten keep theirs.
    if (now > winners && draws.uniform() < 0.067)
      for (int i = 0; i < std::min(3, experts); ++i)
        std::swap(order[i], order[i + draws.below(experts - i)]);
    keep = 0.55;
    noise = 0.1;
  } else if (now < settled) {
    keep = 0.95;
    noise = 0.025 + 0.2 * std::exp(-double(now - settling) / 50);
  } else {
    keep = 0.99;
    noise = 0.012 + 0.012 * std::exp(-double(now - settled) / 800);
  }
  aim();
  for (int e = 0; e < experts; ++e)
    logits[e] =
        target[e] + keep * (logits[e] - target[e]) + noise * draws.normal();
  if (wanted.preset != LoadPreset::SpikyTraining)
    return;
  // Three steps up by 16^(1/3) each; what follows decays by itself.
  if (spikeSteps == 0 && draws.uniform() < 0.01) {
    spiking = int(draws.below(experts));
    spikeSteps = 3;
  }
  if (spikeSteps > 0) {
    logits[spiking] += std::log(16.0) / 3 + (1 - keep) * 4;
    --spikeSteps;
  }
}

//===----------------------------------------------------------------------===//
// Shares and rows
//===----------------------------------------------------------------------===//

/// No expert has more than one row of each token: what is above goes to the
/// others in proportion.
void LoadTrace::bound() {
  double limit = 1.0 / wanted.topK;
  for (int round = 0; round < wanted.topK; ++round) {
    double over = 0, under = 0;
    for (double share : shares)
      share > limit ? over += share - limit
                    : under += share < limit ? share : 0;
    if (over <= 0)
      return;
    int below = int(std::count_if(shares.begin(), shares.end(),
                                  [&](double s) { return s < limit; }));
    for (double &share : shares)
      if (share >= limit)
        share = limit;
      else
        share += under > 0 ? over * share / under : over / below;
  }
}

const std::vector<double> &LoadTrace::next() {
  ++now;
  int experts = wanted.experts;
  auto part = [&](int count, double all) {
    for (int i = 0; i < experts; ++i)
      shares[order[i]] = i < count          ? all / count
                         : count == experts ? 0
                                            : (1 - all) / (experts - count);
  };
  auto hot = [&](int64_t first) {
    std::fill(shares.begin(), shares.end(), 0);
    for (int j = 0; j < wanted.topK; ++j)
      shares[order[(first + j) % experts]] = 1.0 / wanted.topK;
  };
  switch (wanted.preset) {
  case LoadPreset::Uniform:
    std::fill(shares.begin(), shares.end(), 1.0 / experts);
    break;
  case LoadPreset::Zipf: {
    double sum = 0;
    for (int i = 0; i < experts; ++i)
      sum += shares[order[i]] = std::pow(i + 1, -wanted.exponent);
    for (double &share : shares)
      share /= sum;
    break;
  }
  case LoadPreset::FourOf16:
    part(std::max(1, experts / 4), experts < 2 ? 1 : 0.8);
    break;
  case LoadPreset::TenOf64:
    part(std::max(1, experts * 10 / 64), experts < 2 ? 1 : 0.75);
    break;
  case LoadPreset::OneHot:
    hot(0);
    break;
  case LoadPreset::RotatingHot:
    hot(now / wanted.repeat);
    break;
  case LoadPreset::OneDevice: {
    int own = std::max({1, experts / wanted.ranks, wanted.topK});
    int64_t first = order[0] / own * own;
    for (int e = 0; e < experts; ++e)
      shares[e] = (e - first + experts) % experts < own ? 1.0 / own : 0;
    break;
  }
  default: {
    train();
    double largest = *std::max_element(logits.begin(), logits.end()), sum = 0;
    for (int e = 0; e < experts; ++e)
      sum += shares[e] = std::exp(logits[e] - largest);
    for (double &share : shares)
      share /= sum;
  }
  }
  bound();
  return shares;
}

void LoadTrace::rows(std::vector<int32_t> &matrix) const {
  drawRows(shares, wanted.ranks, wanted.tokens, wanted.topK, key, now, matrix);
}

void moira::runtime::drawRows(const std::vector<double> &shares, int ranks,
                              int64_t tokens, int topK, PhiloxKey key,
                              int64_t step, std::vector<int32_t> &matrix) {
  int experts = int(shares.size());
  matrix.resize(size_t(ranks) * experts);
  for (int rank = 0; rank < ranks; ++rank) {
    Draws draws(key, drawCounts | uint32_t(rank), uint32_t(step),
                uint32_t(step >> 32));
    int64_t left = tokens * topK;
    double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
    for (int e = 0; e < experts; ++e) {
      int64_t others = tokens * (experts - 1 - e); // that can go elsewhere
      int64_t n = sum > 0 ? draws.binomial(left, shares[e] / sum) : 0;
      n = std::clamp(n, std::max<int64_t>(left - others, 0),
                     std::min(left, tokens));
      matrix[size_t(rank) * experts + e] = int32_t(n);
      left -= n;
      sum -= shares[e];
    }
  }
}
