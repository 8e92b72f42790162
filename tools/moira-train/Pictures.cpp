// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Pictures.h"

#include "llvm/Support/Format.h"
#include "llvm/Support/raw_ostream.h"

#include <algorithm>
#include <cmath>

using namespace moira::tools;

static constexpr double width = 720, left = 64, right = 16, top = 24,
                        bottom = 44;

static void begin(llvm::raw_ostream &out, double height) {
  out << "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" << width
      << "\" height=\"" << height << "\" viewBox=\"0 0 " << width << " "
      << height
      << "\" font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\""
      << width << "\" height=\"" << height << "\" fill=\"white\"/>\n";
}

static void text(llvm::raw_ostream &out, double x, double y, const char *anchor,
                 const std::string &words) {
  out << llvm::format("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", x, y,
                      anchor)
      << words << "</text>\n";
}

static std::string number(double value) {
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

namespace {
/// Values to places in the picture.
struct Axis {
  double low, high, from, to;

  double at(double value) const {
    return from + (value - low) / (high - low) * (to - from);
  }
  /// Multiples of a round number.
  std::vector<double> ticks(int wanted) const {
    double distance = tickDistance(high - low, wanted);
    std::vector<double> places;
    for (double i = std::ceil(low / distance); i * distance <= high + 1e-9; ++i)
      places.push_back(i * distance);
    return places;
  }
};
} // namespace

static void drawLine(llvm::raw_ostream &out, const Curve &curve, const Axis &x,
                     const Axis &y, const char *colour, const char *style) {
  bool open = false;
  for (auto [step, loss] : curve) {
    if (!std::isfinite(loss)) {
      out << (open ? "\"/>\n" : "");
      open = false;
      continue;
    }
    if (!open)
      out << "<polyline fill=\"none\" stroke=\"" << colour << "\" " << style
          << " points=\"";
    open = true;
    out << llvm::format("%.1f,%.1f ", x.at(step), y.at(loss));
  }
  out << (open ? "\"/>\n" : "");
}

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
  for (double tick : y.ticks(6)) {
    out << llvm::format("<path d=\"M%.1f %.1fH%.1f\" stroke=\"#ddd\"/>\n", left,
                        y.at(tick), width - right);
    text(out, left - 6, y.at(tick) + 4, "end", number(tick));
  }
  for (double tick : x.ticks(8))
    text(out, x.at(tick), height - bottom + 18, "middle", number(tick));
  text(out, (left + width - right) / 2, height - 8, "middle", "step");
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

static constexpr int kShades = 16;

/// White for nothing, a middle blue for an even share, dark for twice as much
/// and more.
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

std::string moira::tools::drawLoads(
    const std::vector<std::vector<std::vector<int64_t>>> &loads,
    int64_t firstStep) {
  constexpr size_t mostColumns = 240;
  size_t layers = loads.empty() ? 0 : loads[0].size();
  size_t columns = std::min(loads.size(), mostColumns);
  double line = 10, gap = 22;
  double height = top + bottom;
  for (size_t layer = 0; layer < layers; ++layer)
    height += gap + line * static_cast<double>(loads[0][layer].size());
  std::string picture;
  llvm::raw_string_ostream out(picture);
  begin(out, height);
  double columnWidth = (width - left - right) /
                       static_cast<double>(std::max<size_t>(1, columns));
  double y = top;
  for (size_t layer = 0; layer < layers; ++layer) {
    size_t experts = loads[0][layer].size();
    text(out, left, y + 12, "start",
         "layer " + std::to_string(layer) +
             ": share of its rows, by expert (blue: even)");
    y += gap;
    // A path per shade, with a line where it goes on: an element per cell would
    // be half a megabyte.
    std::vector<std::string> paths(kShades);
    auto place = [&](size_t column) {
      return left + static_cast<double>(column) * columnWidth;
    };
    auto draw = [&](size_t e, size_t begin, size_t end, int shade) {
      llvm::raw_string_ostream(paths[shade]) << llvm::format(
          "M%.1f %.0fH%.1f", place(begin),
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
          auto rows = static_cast<double>(loads[step][layer][e]);
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
    for (int shade = 0; shade < kShades; ++shade)
      if (!paths[shade].empty())
        out << llvm::format("<path stroke-width=\"%.0f\" stroke=\"", line - 1)
            << colourOf(shade) << "\" d=\"" << paths[shade] << "\"/>\n";
    for (size_t e = 0; e < experts; ++e)
      text(out, left - 6, y + line * static_cast<double>(e) + 9, "end",
           std::to_string(e));
    y += line * static_cast<double>(experts);
  }
  auto first = static_cast<double>(firstStep);
  auto last = first + static_cast<double>(loads.size());
  Axis x{first, std::max(last, first + 1), left, width - right};
  for (double tick : x.ticks(8))
    text(out, x.at(tick), y + 18, "middle", number(tick));
  text(out, (left + width - right) / 2, y + 36, "middle", "step");
  out << "</svg>\n";
  return picture;
}
