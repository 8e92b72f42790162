// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "cost/Calibration.h"

#include "cost/LeastSquares.h"

#include <algorithm>
#include <cmath>

using namespace moira;
using namespace moira::runtime;

const char *moira::runtime::measuredName(Measured kind) {
  static const char *const names[measuredKinds] = {
      "forward", "backward", "gate", "dispatch", "combine", "intra", "inter"};
  return names[static_cast<int>(kind)];
}

double KernelCurve::group(double count) const {
  if (count <= 0 || rows.empty())
    return 0;
  if (count <= rows[0])
    return seconds[0];
  // Few points: a walk is faster than a search.
  size_t last = rows.size() - 1, i = 1;
  if (last == 0)
    return seconds[0] * count / rows[0];
  while (i < last && rows[i] < count)
    ++i;
  double slope = (seconds[i] - seconds[i - 1]) / (rows[i] - rows[i - 1]);
  return seconds[i - 1] + slope * (count - rows[i - 1]);
}

static bool isLink(Measured kind) {
  return kind == Measured::Intra || kind == Measured::Inter;
}
static bool isKernel(Measured kind) {
  return kind == Measured::Forward || kind == Measured::Backward;
}

double Calibration::predict(const CalibrationPoint &p) const {
  switch (p.kind) {
  case Measured::Forward:
    return forward.call + p.count * forward.group(p.amount);
  case Measured::Backward:
    return backward.call + p.count * backward.group(p.amount);
  case Measured::Gate:
    return gate.at(p.amount);
  case Measured::Dispatch:
    return dispatch.at(p.amount);
  case Measured::Combine:
    return combine.at(p.amount);
  default: {
    const LinkCost &link = p.kind == Measured::Intra ? intra : inter;
    return link.latency + p.count * link.overhead +
           p.amount * link.secondsPerByte;
  }
  }
}

namespace {
/// Equations of relative errors: each divided by what was measured.
struct System {
  explicit System(int columns) : columns(columns) {}

  void add(std::vector<double> row, double seconds) {
    for (double value : row)
      matrix.push_back(value / seconds);
    wanted.push_back(1);
  }
  std::vector<double> solve() const {
    return solveNonNegative(matrix, wanted, columns);
  }

  int columns;
  std::vector<double> matrix, wanted;
};

using Points = std::vector<CalibrationPoint>;
} // namespace

/// Unknown: the call, the first value and each increase after it.
static KernelCurve fitKernel(const Points &points) {
  KernelCurve curve;
  for (const CalibrationPoint &p : points)
    curve.rows.push_back(p.amount);
  std::sort(curve.rows.begin(), curve.rows.end());
  curve.rows.erase(std::unique(curve.rows.begin(), curve.rows.end()),
                   curve.rows.end());
  System system(int(curve.rows.size()) + 1);
  for (const CalibrationPoint &p : points) {
    std::vector<double> row(curve.rows.size() + 1);
    row[0] = 1;
    for (size_t i = 0; i < curve.rows.size(); ++i)
      row[i + 1] = curve.rows[i] <= p.amount ? p.count : 0;
    system.add(row, p.seconds);
  }
  std::vector<double> x = system.solve();
  curve.call = x[0];
  double sum = 0;
  for (size_t i = 0; i < curve.rows.size(); ++i)
    curve.seconds.push_back(sum += x[i + 1]);
  return curve;
}

static LinearCost fitLinear(const Points &points) {
  System system(2);
  for (const CalibrationPoint &p : points)
    system.add({1, p.amount}, p.seconds);
  std::vector<double> x = system.solve();
  return {x[0], x[1]};
}

static LinkCost fitLink(const Points &points) {
  System system(3);
  for (const CalibrationPoint &p : points)
    system.add({1, p.count, p.amount}, p.seconds);
  std::vector<double> x = system.solve();
  return {x[0], x[1], x[2]};
}

Result<Calibration>
Calibration::fit(const std::vector<CalibrationPoint> &points,
                 const std::string &machine) {
  if (points.size() > maxPoints)
    return Status(MOIRA_INVALID_ARGUMENT,
                  concat("calibration: expected at most ", maxPoints,
                         " points, got ", points.size()));
  std::array<Points, measuredKinds> kinds;
  for (const CalibrationPoint &p : points) {
    auto invalid = [&](const char *what, double got) {
      return Status(MOIRA_INVALID_ARGUMENT,
                    concat("calibration: ", measuredName(p.kind), ": expected ",
                           what, ", got ", got));
    };
    if (!std::isfinite(p.seconds) || p.seconds <= 0)
      return invalid("seconds above 0", p.seconds);
    if (!std::isfinite(p.amount) || p.amount < 0 ||
        (isKernel(p.kind) && p.amount == 0))
      return invalid(isLink(p.kind) ? "0 or more bytes" : "rows above 0",
                     p.amount);
    if (!std::isfinite(p.count) || p.count <= 0)
      return invalid(isLink(p.kind) ? "at least 1 message" : "at least 1 group",
                     p.count);
    kinds[static_cast<int>(p.kind)].push_back(p);
  }
  auto of = [&](Measured kind) -> const Points & {
    return kinds[static_cast<int>(kind)];
  };
  Calibration fitted;
  fitted.machine = machine;
  if (!of(Measured::Forward).empty())
    fitted.forward = fitKernel(of(Measured::Forward));
  if (!of(Measured::Backward).empty()) {
    fitted.backward = fitKernel(of(Measured::Backward));
  } else {
    // Two products for each of the forward step.
    fitted.backward = fitted.forward;
    for (double &value : fitted.backward.seconds)
      value *= 2;
  }
  if (!of(Measured::Gate).empty())
    fitted.gate = fitLinear(of(Measured::Gate));
  if (!of(Measured::Dispatch).empty())
    fitted.dispatch = fitLinear(of(Measured::Dispatch));
  if (!of(Measured::Combine).empty())
    fitted.combine = fitLinear(of(Measured::Combine));
  if (!of(Measured::Intra).empty())
    fitted.intra = fitLink(of(Measured::Intra));
  if (!of(Measured::Inter).empty())
    fitted.inter = fitLink(of(Measured::Inter));
  for (int kind = 0; kind < measuredKinds; ++kind) {
    for (const CalibrationPoint &p : kinds[kind]) {
      double error = std::abs(fitted.predict(p) / p.seconds - 1);
      fitted.meanError[kind] += error / double(kinds[kind].size());
      fitted.maxError[kind] = std::max(fitted.maxError[kind], error);
    }
  }
  return fitted;
}
