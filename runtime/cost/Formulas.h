// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The closed forms of the literature. The model proper (LayerModel.h) has them
// as special cases; these are for people, pictures and tests.

#ifndef MOIRA_RUNTIME_COST_FORMULAS_H
#define MOIRA_RUNTIME_COST_FORMULAS_H

#include "cost/Topology.h"

#include <cstdint>
#include <vector>

namespace moira::runtime {

/// FasterMoE (PPoPP 2022), section 3: a feed-forward of two matrices
/// [hidden, model] and back, trained on workers that are all alike. Equation
/// numbers are the paper's.
struct FasterMoeModel {
  double model = 1024;       ///< H
  double ratio = 2;          ///< alpha: hidden is ratio * model
  double flops = 11.5e12;    ///< P of a worker, per second
  double bandwidth = 6.25e9; ///< W of a worker's link, bytes per second
  double elementBytes = 4;

  /// (1) One of the three products: the worker with most rows.
  double compute(const std::vector<double> &rows) const;
  /// (2) where a worker's own link is the narrowest, local rows included.
  double exchange(const std::vector<double> &rows) const;
  /// Three rounds of products, four exchanges, nothing overlapped.
  double synchronous(const std::vector<double> &rows) const {
    return 3 * compute(rows) + 4 * exchange(rows);
  }
  /// (3) compute over communication, per iteration.
  double computeToCommunication(const std::vector<double> &rows) const {
    return 3 * compute(rows) / (4 * exchange(rows));
  }
  /// (4) mean flops per second of a worker when an iteration takes `seconds`.
  double throughput(const std::vector<double> &rows, double seconds) const;
  /// (5), (6) The most that is possible with and without overlap, flops per
  /// second.
  double ceiling(double computeToCommunication) const;
  double synchronousCeiling(double computeToCommunication) const;

  /// (7) An imbalanced iteration.
  double imbalanced(const std::vector<double> &rows) const;
  /// (8) The same with `shadows` experts everywhere; rows as they are then.
  double shadowed(int shadows, const std::vector<double> &rows) const;
  /// (9), (10) Whether shadowing pays, in closed form.
  bool pays(int shadows, double largestBefore, double largestAfter) const;
};

/// (2) on a described cluster: the directed link that takes longest when
/// matrix[p, q] rows of rowBytes go from p to q.
double exchangeBound(const Topology &topology,
                     const std::vector<int64_t> &matrix, int64_t rowBytes);

/// Timeline of FasterMoE's schedule, section 4.2: n transfers there, n
/// products, n transfers back, on two queues. Returns when the last ends, and
/// when each product and each transfer back does where pointers are given.
double scheduleTimeline(const std::vector<double> &there,
                        const std::vector<double> &compute,
                        const std::vector<double> &back,
                        std::vector<double> *computeEnds = nullptr,
                        std::vector<double> *backEnds = nullptr);

/// Elements that a rank receives in a forward step of a padded layer, all
/// experts, linear exchange (Flex/Tutel, table 4). A is the aligned capacity.
struct FlexVolumes {
  double rows = 0, weights = 0;
};
FlexVolumes flexVolumes(int ranks, int experts, int copies, double capacity,
                        double modelIn, double modelOut, double weights);

/// Where compute meets memory: the least seconds of `flops` and `bytes`.
inline double roofline(double flops, double bytes, double flopsPerSecond,
                       double bytesPerSecond) {
  double a = flops / flopsPerSecond, b = bytes / bytesPerSecond;
  return a > b ? a : b;
}

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_COST_FORMULAS_H
