// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Pictures.h"

#include "llvm/Support/Format.h"
#include "llvm/Support/raw_ostream.h"

#include <algorithm>
#include <cmath>

using namespace moira::tools;
using namespace moira::tools::svg;

std::string moira::tools::drawLosses(const Curve &training,
                                     const Curve &evaluation) {
  constexpr double height = 400;
  double last = 1, least = INFINITY, most = -INFINITY;
  for (const Curve *curve : {&training, &evaluation})
    for (auto [step, loss] : *curve) {
      last = std::max(last, step);
      if (!std::isfinite(loss))
        continue;
      least = std::min(least, loss);
      most = std::max(most, loss);
    }
  if (!(least <= most))
    least = 0, most = 1;
  double margin = std::max((most - least) * 0.05, 1e-6);
  double first = training.empty() ? 0 : training.front().first;
  if (first >= last)
    first = last - 1;
  Axis x{first, last, left, width - right};
  Axis y{least - margin, most + margin, height - bottom, top};
  std::string picture;
  llvm::raw_string_ostream out(picture);
  begin(out, height);
  drawTicks(out, y, 6);
  drawSteps(out, x, height - bottom);
  text(out, left, top - 8, "start",
       evaluation.empty() ? "loss"
                          : "loss (line), of text not trained on (dots)");
  drawLine(out, training, x, y, "#1f5fa8", "stroke-width=\"1.2\"");
  for (auto [step, loss] : evaluation)
    if (std::isfinite(loss))
      out << llvm::format(
          "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"#c2511d\"/>\n",
          x.at(step), y.at(loss));
  out << "</svg>\n";
  return picture;
}

std::string moira::tools::drawLoads(
    const std::vector<std::vector<std::vector<int64_t>>> &loads,
    int64_t firstStep) {
  size_t layers = loads.empty() ? 0 : loads[0].size();
  double line = 10, gap = 22;
  double height = top + bottom;
  for (size_t layer = 0; layer < layers; ++layer)
    height += gap + line * static_cast<double>(loads[0][layer].size());
  std::string picture;
  llvm::raw_string_ostream out(picture);
  begin(out, height);
  double y = top;
  for (size_t layer = 0; layer < layers; ++layer) {
    size_t experts = loads[0][layer].size();
    text(out, left, y + 12, "start",
         "layer " + std::to_string(layer) +
             ": share of its rows, by expert (blue: even)");
    y += gap;
    std::vector<std::vector<int64_t>> own;
    for (const auto &step : loads)
      own.push_back(step[layer]);
    drawShares(out, own, y, line);
    for (size_t e = 0; e < experts; ++e)
      text(out, left - 6, y + line * static_cast<double>(e) + 9, "end",
           std::to_string(e));
    y += line * static_cast<double>(experts);
  }
  auto first = static_cast<double>(firstStep);
  auto last = first + static_cast<double>(loads.size());
  drawSteps(out, Axis{first, std::max(last, first + 1), left, width - right},
            y);
  out << "</svg>\n";
  return picture;
}
