// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The reference interpreter: routing and expert semantics in plain C++,
// written from docs/routing.md and sharing no code with the compiler. Slow and
// short on purpose. Callers pass consistent shapes; nothing is diagnosed here.

#ifndef MOIRA_UNITTESTS_REFERENCE_INTERPRETER_H
#define MOIRA_UNITTESTS_REFERENCE_INTERPRETER_H

#include "Numerics.h"

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <vector>

namespace moira::reference {

/// A row-major matrix. A vector stands where a tensor has rank 1.
template <typename T> struct Matrix {
  int64_t rows = 0, cols = 0;
  std::vector<T> data;

  Matrix() = default;
  Matrix(int64_t rows, int64_t cols, T fill = T())
      : rows(rows), cols(cols), data(rows * cols, fill) {}
  Matrix(std::initializer_list<std::initializer_list<T>> values)
      : rows(values.size()), cols(rows ? values.begin()->size() : 0) {
    for (const auto &row : values)
      data.insert(data.end(), row.begin(), row.end());
  }
  T &operator()(int64_t i, int64_t j) { return data[i * cols + j]; }
  const T &operator()(int64_t i, int64_t j) const { return data[i * cols + j]; }
  bool operator==(const Matrix &other) const {
    return rows == other.rows && cols == other.cols && data == other.data;
  }
};
using Reals = Matrix<double>;
using Ids = Matrix<int32_t>;
using Counts = std::vector<int32_t>;

//===----------------------------------------------------------------------===//
// Gate
//===----------------------------------------------------------------------===//

enum class Score { Softmax, Sigmoid, SqrtSoftplus, Identity };
enum class GroupScore { Max, SumTop2 };
enum class Normalize { None, SumPlusEps, MaxSumEps };

struct Router {
  Score score = Score::Softmax;
  /// Select by logits, then score the selected ones only.
  bool afterTopK = false;
  int64_t groups = 1, keep = 1;
  GroupScore groupScore = GroupScore::Max;
  Normalize normalize = Normalize::None;
  double eps = 0, scale = 1;
  /// Static number of choices; more than E means E.
  int64_t topK = 1;
  /// Each expert picks its best tokens; K = E, topK is ignored.
  bool expertChoice = false;
  /// Logits are f64, and so is everything computed from them. In IR the rows
  /// are f64 then, too.
  bool wide = false;
};

struct GateInputs {
  Reals logits;                  ///< [T, E]
  std::vector<double> bias = {}; ///< [E] or empty; for selection only
  std::vector<char> mask = {};   ///< [T] or empty; 0 removes the token
  std::optional<int64_t> k = {}; ///< run-time k, clipped to [0, K]
  int64_t expertRows = 0;        ///< tokens an expert picks (expert choice)
  std::optional<double> threshold =
      {};                         ///< keep choices with score >= threshold
  std::optional<Ids> replay = {}; ///< use these ids, recompute the weights
  std::vector<double> secondUniform = {}; ///< [T] or empty; samples choice 1
};

struct GateResult {
  Ids ids;       ///< [T, K], -1 for an unused choice
  Reals weights; ///< [T, K], 0 for an unused choice
  Reals scores;  ///< [T, E] before selection, of the sanitised logits
};

GateResult gate(const Router &router, const GateInputs &inputs);

enum class Distribution { Normal, Uniform };

/// The gradient of the logits, [T, E], from that of a gate's weights. `chosen`
/// is what `gate` gave for the inputs; `selected`: its ids without threshold
/// and draws, where they differ. Of one logit after the other, by the product
/// rule.
Reals gateGradient(const Router &router, const GateInputs &inputs,
                   const GateResult &chosen, const Reals &dweights,
                   const Ids *selected = nullptr);

/// [rows, cols] numbers, rounded to f32. Row t draws for the global token
/// `firstToken + t`.
Reals noise(Distribution distribution, int64_t rows, int64_t cols,
            const DrawKey &key, uint64_t firstToken = 0);

//===----------------------------------------------------------------------===//
// Count, capacity, assign
//===----------------------------------------------------------------------===//

/// Pairs per expert; ids outside 0..experts-1 do not count.
Counts count(const Ids &ids, int64_t experts);

/// Tokens in [begin, end) only.
Counts count(const Ids &ids, int64_t experts, int64_t begin, int64_t end);

enum class CapacityRule { Tutel, GShard, Switch, Fixed };

struct Capacity {
  CapacityRule rule = CapacityRule::Tutel;
  double factor = 1;
  int64_t minimum = 0, alignment = 1;
};

/// Rows an expert takes per token block of `tokens` tokens. `maxCount` is the
/// largest count of any expert in any block.
int64_t capacity(const Capacity &options, int64_t tokens, int64_t experts,
                 int64_t k, int64_t maxCount);

/// Tutel's alignment: shards * degree, rounded up to `blockRows` when that is
/// not 0, and to a multiple of 128 beyond 256.
int64_t tutelAlignment(int64_t shards, int64_t degree, int64_t blockRows);

enum class Order {
  ChoiceMajor,
  TokenMajor,
  BatchPrioritized,
  ExpertProbability
};

struct AssignInputs {
  Order order = Order::ChoiceMajor;
  int64_t experts = 1;
  std::optional<int64_t> capacity;   ///< per block; none keeps every pair
  std::vector<double> tokenPriority; ///< [T], batch_prioritized
  Reals pairPriority;                ///< [T, K], expert_probability
  std::vector<int32_t> blocks;       ///< sizes summing to T; empty: one block
  std::optional<int64_t> paddedRows; ///< P of a padded buffer; none: ragged
};

struct Assignment {
  Ids slots;         ///< [T, K], flat rows, -1 when dropped or unused
  Counts sizes;      ///< [E], kept rows
  int64_t bound = 0; ///< rows of the buffer: T * K, or E * P
  Ids places;        ///< [T, K], place in the block before dropping, or -1
  std::optional<int64_t> padded = {}; ///< rows per expert of a padded buffer
};

Assignment assign(const Ids &ids, const AssignInputs &inputs);

/// For each slot of a padded assignment: the token (or its choice number) that
/// stands there, -1 when nobody does. [E, P].
Ids reversedIds(const Assignment &assignment, int64_t experts,
                bool choiceNumbers);

//===----------------------------------------------------------------------===//
// Rows
//===----------------------------------------------------------------------===//

/// Row x[t], times its weight if weights are given, at every slot of t. Rows
/// that nobody fills are NaN, so that a reader of the tail is found out.
Reals dispatch(const Reals &x, const Assignment &assignment, DType type,
               const Reals *weights = nullptr);

/// The token that stands in every row, -1 where nobody does.
Counts sources(const Assignment &assignment);

/// Sum over a token's choices, in choice order, accumulated in f32 (f64).
Reals combine(const Reals &rows, const Assignment &assignment, DType type,
              const Reals *weights = nullptr);

/// d(combine)/d(weights): the product of row `slot` with dy[t], 0 for pairs
/// without a slot.
Reals weightGradient(const Reals &rows, const Assignment &assignment,
                     const Reals &dy, DType type);

/// Calls `body(expert, rows)` for the valid rows of each expert, empty groups
/// included, and returns a buffer of the same layout with `outCols` columns
/// and a NaN tail.
using ExpertBody = std::function<Reals(int64_t expert, const Reals &rows)>;
Reals mapExperts(const Reals &rows, const Assignment &assignment,
                 int64_t outCols, const ExpertBody &body);

/// First row of an expert's group.
int64_t groupBegin(const Assignment &assignment, int64_t expert);

/// x [M, K] times transposed w [N, K], plus bias [N] if not empty: one chain of
/// fused multiply-adds in increasing k per element, in f32 (f64 if `wide`).
Reals matmul(const Reals &x, const Reals &w, const std::vector<double> &bias,
             bool wide = false);

/// dw[n, k] = sum over rows of dy[r, n] * x[r, k]; all zeros without rows.
Reals matmulWeightGradient(const Reals &x, const Reals &dy);

//===----------------------------------------------------------------------===//
// Losses. Scores are those of the gate, ids those before any drop.
//===----------------------------------------------------------------------===//

/// E / T^2 * sum over e of (sum of scores) * (number of first choices). With
/// one choice per token it is the Switch loss. 0 without tokens.
double gshardLoss(const Reals &scores, const Ids &ids,
                  const std::vector<char> &mask = {});

struct LoadImportance {
  double importance = 0, load = 0, loss = 0;
};
/// Throws std::invalid_argument unless noise > 0. `noisyLogits` give the k-th
/// threshold; `noise` is the standard deviation times E.
LoadImportance loadImportanceLoss(const Reals &scores, const Reals &noisyLogits,
                                  int64_t k, double noise,
                                  const std::vector<char> &mask = {});

/// Cosine router: scale * (x W^T + b) / |.| times unit columns of `matrix`
/// [projection, E], scale = exp(min(temperature, ln 100)). Zero rows give 0.
Reals cosineLogits(const Reals &x, const Reals &projection,
                   const std::vector<double> &bias, const Reals &matrix,
                   double temperature);

} // namespace moira::reference

#endif // MOIRA_UNITTESTS_REFERENCE_INTERPRETER_H
