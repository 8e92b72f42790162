// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a machine takes for the parts of a layer, from a few measured points
// (docs/cost-model.md, "Calibration").

#ifndef MOIRA_RUNTIME_COST_CALIBRATION_H
#define MOIRA_RUNTIME_COST_CALIBRATION_H

#include "base/Status.h"

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace moira::runtime {

/// Seconds of one grouped product over groups of rows: `call`, and for each
/// group with rows a monotone piecewise linear function of them. Below the
/// first point a group costs as much as there, since it reads its weights
/// whatever its rows; beyond the last one it goes on as between the last two.
/// Empty groups are free.
struct KernelCurve {
  double call = 0;
  std::vector<double> rows;    ///< ascending, above 0
  std::vector<double> seconds; ///< by group; ascending

  double group(double count) const;
};

/// fixed + perRow * rows.
struct LinearCost {
  double fixed = 0, perRow = 0;

  double at(double rows) const { return fixed + perRow * rows; }
};

/// What one message takes alone: as in Topology.h.
struct LinkCost {
  double latency = 0, overhead = 0, secondsPerByte = 0;
};

enum class Measured {
  Forward,  ///< the expert of a forward step: groups, rows of each
  Backward, ///< and of a backward step
  Gate,     ///< rows routed
  Dispatch, ///< rows written
  Combine,  ///< rows read
  Intra,    ///< messages within a node: how many, bytes of all
  Inter     ///< messages between nodes
};
constexpr int measuredKinds = 7;
const char *measuredName(Measured kind);

/// One measurement.
struct CalibrationPoint {
  Measured kind = Measured::Forward;
  double count = 1;  ///< groups, or messages; else not read
  double amount = 0; ///< rows of each group, rows, or bytes of all messages
  double seconds = 0;
};

struct Calibration {
  static constexpr size_t maxPoints = 20;
  static constexpr int version = 1;

  std::string machine; ///< for people
  KernelCurve forward, backward;
  LinearCost gate, dispatch, combine;
  LinkCost intra, inter;
  /// Mean and largest |fitted / measured - 1| of the points of a kind; 0
  /// without points.
  std::array<double, measuredKinds> meanError{}, maxError{};

  /// Fits all parts that have points; what has none stays zero, but backward,
  /// which is then twice forward. Non-negative least squares of relative
  /// errors. Fails on more than maxPoints, and on values that are no numbers.
  static Result<Calibration> fit(const std::vector<CalibrationPoint> &points,
                                 const std::string &machine = "");
  /// What the model says for a point of this kind.
  double predict(const CalibrationPoint &point) const;

  /// A description (docs/topology.md) of nodes with these links, a switch in
  /// each and a card for each. Fails where links that it needs were not
  /// measured.
  Result<std::string> describe(int nodes, int ranksPerNode) const;

  /// JSON; numbers keep all their bits. `name` stands before error messages.
  std::string toJson() const;
  static Result<Calibration> parse(const std::string &json,
                                   const std::string &name = "calibration");
};

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_COST_CALIBRATION_H
