// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Interpreter.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

namespace moira::reference {

//===----------------------------------------------------------------------===//
// Count, capacity, assign
//===----------------------------------------------------------------------===//

Counts count(const Ids &ids, int64_t experts, int64_t begin, int64_t end) {
  Counts counts(experts, 0);
  for (int64_t t = begin; t < end; ++t)
    for (int64_t j = 0; j < ids.cols; ++j)
      if (int32_t e = ids(t, j); e >= 0 && e < experts)
        ++counts[e];
  return counts;
}

Counts count(const Ids &ids, int64_t experts) {
  return count(ids, experts, 0, ids.rows);
}

static int64_t ceilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// Truncates; NaN and values below 0 give 0, values beyond i32 the largest i32.
static int64_t truncate(double value) {
  if (!(value > 0))
    return 0;
  return static_cast<int64_t>(std::min(value, 2147483647.0));
}

int64_t capacity(const Capacity &options, int64_t tokens, int64_t experts,
                 int64_t k, int64_t maxCount) {
  double f = options.factor;
  int64_t share = ceilDiv(tokens, experts), result = 0;
  switch (options.rule) {
  case CapacityRule::Tutel:
    if (f == 0)
      result = maxCount;
    else
      result = k * truncate(std::fabs(f) * share);
    if (f < 0)
      result = std::min(maxCount, result);
    break;
  case CapacityRule::GShard:
    result = truncate(std::ceil(f * tokens)) * k / experts;
    break;
  case CapacityRule::Switch:
    result = truncate(std::ceil(f * k * tokens / experts));
    break;
  case CapacityRule::Fixed:
    result = truncate(f);
    break;
  }
  result = std::max({result, options.minimum, int64_t(0)});
  return ceilDiv(result, options.alignment) * options.alignment;
}

int64_t tutelAlignment(int64_t shards, int64_t degree, int64_t blockRows) {
  int64_t alignment = shards * degree;
  if (blockRows > 0)
    alignment = ceilDiv(alignment, blockRows) * blockRows;
  if (alignment > 256)
    alignment = ceilDiv(alignment, 128) * 128;
  return alignment;
}

namespace {
struct Pair {
  int64_t token, choice;
};
} // namespace

/// NaN priorities stand behind all others.
static double rank(double priority) {
  return std::isnan(priority) ? -std::numeric_limits<double>::infinity()
                              : priority;
}

/// The pairs of tokens [begin, end) in the order in which they get places.
static std::vector<Pair> placementOrder(const Ids &ids,
                                        const AssignInputs &inputs,
                                        int64_t begin, int64_t end) {
  std::vector<Pair> pairs;
  bool tokenMajor = inputs.order == Order::TokenMajor ||
                    inputs.order == Order::ExpertProbability;
  if (tokenMajor) {
    for (int64_t t = begin; t < end; ++t)
      for (int64_t j = 0; j < ids.cols; ++j)
        pairs.push_back({t, j});
  } else {
    std::vector<int64_t> tokens;
    for (int64_t t = begin; t < end; ++t)
      tokens.push_back(t);
    if (inputs.order == Order::BatchPrioritized)
      std::stable_sort(tokens.begin(), tokens.end(), [&](int64_t a, int64_t b) {
        return rank(inputs.tokenPriority[a]) > rank(inputs.tokenPriority[b]);
      });
    for (int64_t j = 0; j < ids.cols; ++j)
      for (int64_t t : tokens)
        pairs.push_back({t, j});
  }
  // Places are counted per expert, so one sort over all experts is enough.
  if (inputs.order == Order::ExpertProbability)
    std::stable_sort(pairs.begin(), pairs.end(), [&](Pair a, Pair b) {
      return rank(inputs.pairPriority(a.token, a.choice)) >
             rank(inputs.pairPriority(b.token, b.choice));
    });
  return pairs;
}

Assignment assign(const Ids &ids, const AssignInputs &inputs) {
  int64_t T = ids.rows, K = ids.cols, E = inputs.experts;
  Assignment out{Ids(T, K, -1), Counts(E, 0), T * K, Ids(T, K, -1)};
  std::vector<int32_t> blocks = inputs.blocks;
  if (blocks.empty())
    blocks = {static_cast<int32_t>(T)};
  int64_t begin = 0;
  for (int32_t block : blocks) {
    Counts seen(E, 0), before = out.sizes;
    for (Pair p : placementOrder(ids, inputs, begin, begin + block)) {
      int32_t e = ids(p.token, p.choice);
      if (e < 0 || e >= E)
        continue;
      int32_t place = seen[e]++;
      out.places(p.token, p.choice) = place;
      if (inputs.capacity && place >= *inputs.capacity)
        continue;
      // The beginning of the group is known only after the last block.
      out.slots(p.token, p.choice) = before[e] + place;
      ++out.sizes[e];
    }
    begin += block;
  }
  if (inputs.paddedRows)
    out.bound = E * *inputs.paddedRows;
  std::vector<int64_t> offsets(E, 0);
  for (int64_t e = 1; e < E; ++e)
    offsets[e] = offsets[e - 1] +
                 (inputs.paddedRows ? *inputs.paddedRows : out.sizes[e - 1]);
  for (size_t i = 0; i < out.slots.data.size(); ++i)
    if (out.slots.data[i] >= 0)
      out.slots.data[i] += offsets[ids.data[i]];
  out.padded = inputs.paddedRows;
  return out;
}

Ids reversedIds(const Assignment &assignment, int64_t experts,
                bool choiceNumbers) {
  Ids reversed(experts, assignment.bound / experts, -1);
  for (int64_t t = 0; t < assignment.slots.rows; ++t)
    for (int64_t j = 0; j < assignment.slots.cols; ++j)
      if (int32_t slot = assignment.slots(t, j); slot >= 0)
        reversed.data[slot] = choiceNumbers ? j : t;
  return reversed;
}

//===----------------------------------------------------------------------===//
// Rows
//===----------------------------------------------------------------------===//

static const double poison = std::numeric_limits<double>::quiet_NaN();

/// a * b + c with one rounding, in the accumulator type of `wide`.
static double fusedMultiplyAdd(double a, double b, double c, bool wide) {
  if (wide)
    return std::fma(a, b, c);
  return std::fma(static_cast<float>(a), static_cast<float>(b),
                  static_cast<float>(c));
}

static double multiply(double a, double b, bool wide) {
  return wide ? a * b : static_cast<float>(a) * static_cast<float>(b);
}

Reals dispatch(const Reals &x, const Assignment &assignment, DType type,
               const Reals *weights) {
  Reals rows(assignment.bound, x.cols, poison);
  for (int64_t t = 0; t < x.rows; ++t)
    for (int64_t j = 0; j < assignment.slots.cols; ++j)
      if (int32_t slot = assignment.slots(t, j); slot >= 0)
        for (int64_t d = 0; d < x.cols; ++d) {
          double value = x(t, d);
          if (weights)
            value = multiply((*weights)(t, j), value, type == DType::F64);
          rows(slot, d) = roundTo(type, value);
        }
  return rows;
}

Counts sources(const Assignment &assignment) {
  Counts tokens(assignment.bound, -1);
  for (int64_t t = 0; t < assignment.slots.rows; ++t)
    for (int64_t j = 0; j < assignment.slots.cols; ++j)
      if (int32_t slot = assignment.slots(t, j); slot >= 0)
        tokens[slot] = t;
  return tokens;
}

Reals combine(const Reals &rows, const Assignment &assignment, DType type,
              const Reals *weights) {
  Reals y(assignment.slots.rows, rows.cols);
  for (int64_t t = 0; t < y.rows; ++t)
    for (int64_t d = 0; d < y.cols; ++d) {
      double sum = 0;
      for (int64_t j = 0; j < assignment.slots.cols; ++j)
        if (int32_t slot = assignment.slots(t, j); slot >= 0)
          sum = fusedMultiplyAdd(weights ? (*weights)(t, j) : 1, rows(slot, d),
                                 sum, type == DType::F64);
      y(t, d) = roundTo(type, sum);
    }
  return y;
}

Reals weightGradient(const Reals &rows, const Assignment &assignment,
                     const Reals &dy, DType type) {
  Reals dw(assignment.slots.rows, assignment.slots.cols);
  for (int64_t t = 0; t < dw.rows; ++t)
    for (int64_t j = 0; j < dw.cols; ++j)
      if (int32_t slot = assignment.slots(t, j); slot >= 0)
        for (int64_t d = 0; d < dy.cols; ++d)
          dw(t, j) = fusedMultiplyAdd(rows(slot, d), dy(t, d), dw(t, j),
                                      type == DType::F64);
  return dw;
}

int64_t groupBegin(const Assignment &assignment, int64_t expert) {
  if (assignment.padded)
    return expert * *assignment.padded;
  int64_t begin = 0;
  for (int64_t e = 0; e < expert; ++e)
    begin += assignment.sizes[e];
  return begin;
}

Reals mapExperts(const Reals &rows, const Assignment &assignment,
                 int64_t outCols, const ExpertBody &body) {
  Reals out(rows.rows, outCols, poison);
  for (size_t e = 0; e < assignment.sizes.size(); ++e) {
    Reals group(assignment.sizes[e], rows.cols);
    int64_t begin = groupBegin(assignment, e);
    std::copy_n(rows.data.begin() + begin * rows.cols, group.data.size(),
                group.data.begin());
    Reals result = body(e, group);
    std::copy(result.data.begin(), result.data.end(),
              out.data.begin() + begin * outCols);
  }
  return out;
}

Reals matmul(const Reals &x, const Reals &w, const std::vector<double> &bias,
             bool wide) {
  Reals y(x.rows, w.rows);
  for (int64_t m = 0; m < x.rows; ++m)
    for (int64_t n = 0; n < w.rows; ++n) {
      double sum = bias.empty() ? 0 : bias[n];
      for (int64_t k = 0; k < x.cols; ++k)
        sum = fusedMultiplyAdd(x(m, k), w(n, k), sum, wide);
      y(m, n) = sum;
    }
  return y;
}

Reals matmulWeightGradient(const Reals &x, const Reals &dy) {
  Reals dw(dy.cols, x.cols);
  for (int64_t r = 0; r < x.rows; ++r)
    for (int64_t n = 0; n < dy.cols; ++n)
      for (int64_t k = 0; k < x.cols; ++k)
        dw(n, k) = fusedMultiplyAdd(dy(r, n), x(r, k), dw(n, k), false);
  return dw;
}

//===----------------------------------------------------------------------===//
// Losses and the cosine router
//===----------------------------------------------------------------------===//

double gshardLoss(const Reals &scores, const Ids &ids,
                  const std::vector<char> &mask) {
  std::vector<double> score(scores.cols), first(scores.cols);
  double tokens = 0, sum = 0;
  for (int64_t t = 0; t < scores.rows; ++t) {
    if (!mask.empty() && !mask[t])
      continue;
    ++tokens;
    if (ids(t, 0) >= 0)
      ++first[ids(t, 0)];
    for (int64_t e = 0; e < scores.cols; ++e)
      score[e] += scores(t, e);
  }
  for (int64_t e = 0; e < scores.cols; ++e)
    sum += score[e] * first[e];
  return tokens == 0 ? 0 : scores.cols * sum / (tokens * tokens);
}

/// Squared coefficient of variation, unbiased variance; 0 for one value. The
/// published definition adds 1e-10 to the squared mean.
static double squaredVariation(const std::vector<double> &values) {
  double n = values.size(), mean = 0, squares = 0;
  for (double value : values)
    mean += value / n;
  for (double value : values)
    squares += (value - mean) * (value - mean);
  if (n < 2)
    return 0;
  return squares / (n - 1) / (mean * mean + 1e-10);
}

LoadImportance loadImportanceLoss(const Reals &scores, const Reals &noisyLogits,
                                  int64_t k, double noise,
                                  const std::vector<char> &mask) {
  if (!(noise > 0))
    throw std::invalid_argument("expected noise > 0 for the load loss");
  int64_t E = scores.cols;
  std::vector<double> importance(E), load(E);
  for (int64_t t = 0; t < scores.rows; ++t) {
    if (!mask.empty() && !mask[t])
      continue;
    std::vector<double> sorted(&noisyLogits.data[t * E],
                               &noisyLogits.data[t * E] + E);
    std::sort(sorted.rbegin(), sorted.rend());
    double threshold = sorted[std::min(k, E) - 1];
    for (int64_t e = 0; e < E; ++e) {
      double z = (scores(t, e) - threshold) / (noise / E);
      importance[e] += scores(t, e);
      load[e] += 0.5 * std::erfc(-z / std::sqrt(2.0));
    }
  }
  LoadImportance result;
  result.importance = squaredVariation(importance);
  result.load = squaredVariation(load);
  result.loss = (result.importance + result.load) / 2;
  return result;
}

Reals cosineLogits(const Reals &x, const Reals &projection,
                   const std::vector<double> &bias, const Reals &matrix,
                   double temperature) {
  Reals z = matmul(x, projection, bias);
  Reals logits(x.rows, matrix.cols);
  double scale = std::exp(std::min(temperature, std::log(100.0)));
  for (int64_t t = 0; t < x.rows; ++t)
    for (int64_t e = 0; e < matrix.cols; ++e) {
      double dot = 0, rowNorm = 0, colNorm = 0;
      for (int64_t p = 0; p < z.cols; ++p) {
        dot += z(t, p) * matrix(p, e);
        rowNorm += z(t, p) * z(t, p);
        colNorm += matrix(p, e) * matrix(p, e);
      }
      double norm = std::sqrt(rowNorm) * std::sqrt(colNorm);
      logits(t, e) = norm == 0 ? 0 : scale * dot / norm;
    }
  return logits;
}

} // namespace moira::reference
