// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

//
// What pictures of runs are made of, as SVG.

#ifndef MOIRA_TOOLS_SUPPORT_SVG_H
#define MOIRA_TOOLS_SUPPORT_SVG_H

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/raw_ostream.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace moira::tools::svg {

/// Sizes of all pictures, in pixels.
inline constexpr double width = 720, left = 64, right = 16, top = 24,
                        bottom = 44;

/// Opens a picture on white; "</svg>" ends it.
void begin(llvm::raw_ostream &out, double height);
/// `anchor` is "start", "middle" or "end".
void text(llvm::raw_ostream &out, double x, double y, const char *anchor,
          const std::string &words);
/// As few digits as six tell apart.
std::string number(double value);

/// Values to places in the picture.
struct Axis {
  double low, high, from, to;

  double at(double value) const {
    return from + (value - low) / (high - low) * (to - from);
  }
  /// Multiples of a round number, about so many.
  std::vector<double> ticks(int wanted) const;
};

/// Lines of the values and their names, at the left.
void drawTicks(llvm::raw_ostream &out, const Axis &y, int wanted);
/// Names of steps below `bottom`, and what they are.
void drawSteps(llvm::raw_ostream &out, const Axis &x, double bottom);

/// (step, value); what is not finite breaks the line.
using Curve = std::vector<std::pair<double, double>>;
void drawLine(llvm::raw_ostream &out, const Curve &curve, const Axis &x,
              const Axis &y, llvm::StringRef colour, llvm::StringRef style);

/// Shares of rows by step, an expert to a line of `line` pixels from `y` on:
/// white for nothing, a middle blue for an even share, dark for twice as much
/// and more. loads[step] has the rows of each expert; steps that have no room
/// of their own are added up.
void drawShares(llvm::raw_ostream &out,
                const std::vector<std::vector<int64_t>> &loads, double y,
                double line);

} // namespace moira::tools::svg

#endif // MOIRA_TOOLS_SUPPORT_SVG_H
