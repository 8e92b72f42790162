// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "cost/Formulas.h"

#include <algorithm>
#include <numeric>

using namespace moira;
using namespace moira::runtime;

static double largest(const std::vector<double> &rows) {
  return rows.empty() ? 0 : *std::max_element(rows.begin(), rows.end());
}

double FasterMoeModel::compute(const std::vector<double> &rows) const {
  return 4 * largest(rows) * ratio * model * model / flops;
}

double FasterMoeModel::exchange(const std::vector<double> &rows) const {
  return largest(rows) * model * elementBytes / bandwidth;
}

double FasterMoeModel::throughput(const std::vector<double> &rows,
                                  double seconds) const {
  double all = std::accumulate(rows.begin(), rows.end(), 0.0);
  return 12 * ratio * model * model * all / (double(rows.size()) * seconds);
}

double FasterMoeModel::ceiling(double r) const {
  return flops * std::min(1.0, r);
}

double FasterMoeModel::synchronousCeiling(double r) const {
  return flops * r / (r + 1);
}

double FasterMoeModel::imbalanced(const std::vector<double> &rows) const {
  return synchronous(rows);
}

double FasterMoeModel::shadowed(int shadows,
                                const std::vector<double> &rows) const {
  double weights = 2 * ratio * model * model * elementBytes;
  return 3 * compute(rows) + 2 * shadows * weights / bandwidth;
}

bool FasterMoeModel::pays(int shadows, double before, double after) const {
  // Both sides of (7) > (8), sorted by what they multiply.
  double moved = shadows * ratio * model;
  if (before > moved)
    return true;
  double perByte = flops / (bandwidth / elementBytes);
  return moved > before &&
         3 * (before - after) * ratio * model / (moved - before) > perByte;
}

double moira::runtime::exchangeBound(const Topology &topology,
                                     const std::vector<int64_t> &matrix,
                                     int64_t rowBytes) {
  std::vector<Transfer> transfers;
  int ranks = topology.ranks();
  for (int p = 0; p < ranks; ++p)
    for (int q = 0; q < ranks; ++q)
      if (p != q)
        transfers.push_back({p, q, matrix[size_t(p) * ranks + q] * rowBytes});
  return topology.boundSeconds(transfers);
}

double moira::runtime::scheduleTimeline(const std::vector<double> &there,
                                        const std::vector<double> &compute,
                                        const std::vector<double> &back,
                                        std::vector<double> *computeEnds,
                                        std::vector<double> *backEnds) {
  size_t n = compute.size();
  std::vector<double> sent(n), computed(n), returned(n);
  double queue = 0, busy = 0;
  for (size_t i = 0; i < n; ++i)
    sent[i] = queue += there[i];
  for (size_t i = 0; i < n; ++i)
    computed[i] = busy = std::max(busy, sent[i]) + compute[i];
  for (size_t i = 0; i < n; ++i)
    returned[i] = queue = std::max(queue, computed[i]) + back[i];
  if (computeEnds)
    *computeEnds = computed;
  if (backEnds)
    *backEnds = returned;
  return queue;
}

FlexVolumes moira::runtime::flexVolumes(int ranks, int experts, int copies,
                                        double capacity, double modelIn,
                                        double modelOut, double weights) {
  double others = double(ranks - 1) / ranks;
  double shards = std::max(1.0, double(ranks) / experts);
  if (copies == 0)
    return {0, weights * others};
  return {copies * experts * capacity * (modelIn + modelOut) * others,
          (shards / copies - 1) * weights / ranks};
}
