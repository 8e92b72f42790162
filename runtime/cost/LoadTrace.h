// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Loads of experts as training shows them, made up (docs/cost-model.md,
// "Loads") or read from a file.

#ifndef MOIRA_RUNTIME_COST_LOADTRACE_H
#define MOIRA_RUNTIME_COST_LOADTRACE_H

#include "base/Draws.h"
#include "base/Status.h"

#include <cstdint>
#include <string>
#include <vector>

namespace moira::runtime {

enum class LoadPreset {
  Uniform,
  Zipf,         ///< share of the i-th expert ~ i^-s
  FourOf16,     ///< a quarter of the experts has 80 %
  TenOf64,      ///< 10 / 64 of the experts have 75 %
  OneHot,       ///< one expert has all that a token can give it
  OneDevice,    ///< the experts of one rank have all
  RotatingHot,  ///< as OneHot, another expert in each step
  Training,     ///< the four phases of a run without a balance loss
  SpikyTraining ///< the same; now and then a load grows 16 times in 3 steps
};

struct LoadOptions {
  LoadPreset preset = LoadPreset::Training;
  double exponent = 1; ///< of Zipf
  int ranks = 1;
  int experts = 1;
  int topK = 1;       ///< an expert has at most one row of each token
  int64_t tokens = 0; ///< of each rank and step; each gives topK rows
  uint64_t seed = 0;
  int64_t layer = 0;  ///< layers of one seed differ
  int64_t first = 0;  ///< the step to begin with; phases count from 0
  int64_t repeat = 1; ///< steps of RotatingHot before the expert changes

  /// Sets preset and exponent from "uniform", "zipf:1.5", "4-of-16",
  /// "10-of-64", "one-hot", "one-device", "rotating-hot", "training" or
  /// "spiky-training".
  Status parse(const std::string &name);
};

/// Shares of experts step by step, and rows of ranks drawn from them. A value:
/// the same options give the same trace. After the first step nothing is
/// allocated.
class LoadTrace {
public:
  static Result<LoadTrace> create(const LoadOptions &options);

  /// The next step: what share of all rows each expert has, at most 1 / topK.
  const std::vector<double> &next();
  /// Of that step, rows[ranks, experts]: each rank draws its own.
  void rows(std::vector<int32_t> &matrix) const;
  /// The last step that `next` has made; before the first call, one less.
  int64_t step() const { return now; }
  const LoadOptions &options() const { return wanted; }

private:
  explicit LoadTrace(const LoadOptions &options);
  void train();
  void aim();
  void bound();

  LoadOptions wanted;
  PhiloxKey key;
  int64_t now;
  std::vector<double> shares;
  std::vector<double> logits, target; ///< of Training
  std::vector<int32_t> order;         ///< experts by popularity
  int spiking = -1;
  int64_t spikeSteps = 0;
};

/// Draws matrix[ranks, experts] from shares: of each rank's `tokens` tokens
/// `topK` rows each, at most one of a token for an expert.
void drawRows(const std::vector<double> &shares, int ranks, int64_t tokens,
              int topK, PhiloxKey key, int64_t step,
              std::vector<int32_t> &matrix);

/// Counts that somebody has measured: a .npy file of integers, either
/// [steps, layers, experts] or [steps, ranks, layers, experts].
class RecordedLoads {
public:
  static Result<RecordedLoads> read(const std::string &path);

  int64_t steps() const { return stepCount; }
  int64_t layers() const { return layerCount; }
  int experts() const { return expertCount; }
  /// 0 where the file has sums over ranks only.
  int ranks() const { return rankCount; }

  /// The share of each expert, over all ranks; zero where nothing was counted.
  void shares(int64_t step, int64_t layer, std::vector<double> &out) const;
  /// matrix[ranks, experts] of the file's own ranks.
  void rows(int64_t step, int64_t layer, std::vector<int32_t> &matrix) const;

private:
  int64_t at(int64_t step, int64_t rank, int64_t layer, int64_t expert) const;

  int64_t stepCount = 0, layerCount = 0;
  int rankCount = 0, expertCount = 0;
  std::vector<int32_t> counts;
};

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_COST_LOADTRACE_H
