// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "support/Svg.h"

#include "llvm/Support/Format.h"

#include <algorithm>
#include <cmath>

using namespace moira::tools;

void svg::begin(llvm::raw_ostream &out, double height) {
  out << "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" << width
      << "\" height=\"" << height << "\" viewBox=\"0 0 " << width << " "
      << height
      << "\" font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\""
      << width << "\" height=\"" << height << "\" fill=\"white\"/>\n";
}

void svg::text(llvm::raw_ostream &out, double x, double y, const char *anchor,
               const std::string &words) {
  out << llvm::format("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", x, y,
                      anchor)
      << words << "</text>\n";
}

std::string svg::number(double value) {
  std::string text;
  llvm::raw_string_ostream(text) << llvm::format("%.6g", value);
  return text;
}

/// 1, 2 or 5 times a power of ten, of which about `wanted` fit in `span`.
static double tickDistance(double span, int wanted) {
  double raw = span / wanted;
  double power = std::pow(10, std::floor(std::log10(raw)));
  for (double factor : {1, 2, 5})
    if (factor * power >= raw)
      return factor * power;
  return 10 * power;
}

std::vector<double> svg::Axis::ticks(int wanted) const {
  double distance = tickDistance(high - low, wanted);
  std::vector<double> places;
  for (double i = std::ceil(low / distance); i * distance <= high + 1e-9; ++i)
    places.push_back(i * distance + 0.0); // no -0
  return places;
}

void svg::drawTicks(llvm::raw_ostream &out, const Axis &y, int wanted) {
  for (double tick : y.ticks(wanted)) {
    out << llvm::format("<path d=\"M%.1f %.1fH%.1f\" stroke=\"#ddd\"/>\n", left,
                        y.at(tick), width - right);
    text(out, left - 6, y.at(tick) + 4, "end", number(tick));
  }
}

void svg::drawSteps(llvm::raw_ostream &out, const Axis &x, double bottom) {
  for (double tick : x.ticks(8))
    text(out, x.at(tick), bottom + 18, "middle", number(tick));
  text(out, (left + width - right) / 2, bottom + 36, "middle", "step");
}

void svg::drawLine(llvm::raw_ostream &out, const Curve &curve, const Axis &x,
                   const Axis &y, llvm::StringRef colour,
                   llvm::StringRef style) {
  bool open = false;
  for (auto [step, value] : curve) {
    if (!std::isfinite(value)) {
      out << (open ? "\"/>\n" : "");
      open = false;
      continue;
    }
    if (!open)
      out << "<polyline fill=\"none\" stroke=\"" << colour << "\" " << style
          << " points=\"";
    open = true;
    out << llvm::format("%.1f,%.1f ", x.at(step), y.at(value));
  }
  out << (open ? "\"/>\n" : "");
}

static constexpr int kShades = 16;

static int shadeOf(double relative) {
  return static_cast<int>(
      std::lround(std::min(relative, 2.0) / 2 * (kShades - 1)));
}

static std::string colourOf(int number) {
  double shade = static_cast<double>(number) / (kShades - 1);
  auto mix = [&](int bright, int dark) {
    return static_cast<int>(bright + (dark - bright) * shade);
  };
  std::string text;
  llvm::raw_string_ostream(text) << llvm::format("#%02x%02x%02x", mix(255, 8),
                                                 mix(255, 48), mix(255, 107));
  return text;
}

void svg::drawShares(llvm::raw_ostream &out,
                     const std::vector<std::vector<int64_t>> &loads, double y,
                     double line) {
  constexpr size_t mostColumns = 240;
  size_t columns = std::min(loads.size(), mostColumns);
  size_t experts = loads.empty() ? 0 : loads[0].size();
  double columnWidth = (width - left - right) /
                       static_cast<double>(std::max<size_t>(1, columns));
  // A path per shade, with a line where it goes on: an element per cell would
  // be half a megabyte.
  std::vector<std::string> paths(kShades);
  auto place = [&](size_t column) {
    return left + static_cast<double>(column) * columnWidth;
  };
  auto draw = [&](size_t e, size_t begin, size_t end, int shade) {
    llvm::raw_string_ostream(paths[shade])
        << llvm::format("M%.1f %.1fH%.1f", place(begin),
                        y + line * (static_cast<double>(e) + 0.5), place(end));
  };
  std::vector<std::pair<size_t, int>> open(experts, {0, -1});
  for (size_t column = 0; column < columns; ++column) {
    // Steps of one column, added up.
    size_t from = column * loads.size() / columns;
    size_t to = (column + 1) * loads.size() / columns;
    std::vector<double> sums(experts, 0);
    double all = 0;
    for (size_t step = from; step < to; ++step)
      for (size_t e = 0; e < experts; ++e) {
        auto rows = static_cast<double>(loads[step][e]);
        sums[e] += rows;
        all += rows;
      }
    for (size_t e = 0; e < experts; ++e) {
      int shade =
          shadeOf(all > 0 ? sums[e] / all * static_cast<double>(experts) : 0);
      auto &[begin, current] = open[e];
      if (shade == current)
        continue;
      if (current >= 0)
        draw(e, begin, column, current);
      open[e] = {column, shade};
    }
  }
  for (size_t e = 0; e < experts; ++e)
    if (open[e].second >= 0)
      draw(e, open[e].first, columns, open[e].second);
  double thickness = line > 5 ? line - 1 : line;
  for (int shade = 0; shade < kShades; ++shade)
    if (!paths[shade].empty())
      out << llvm::format("<path stroke-width=\"%.4g\" stroke=\"", thickness)
          << colourOf(shade) << "\" d=\"" << paths[shade] << "\"/>\n";
}
