// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "StepPicture.h"

#include "support/Svg.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/Format.h"

#include <algorithm>
#include <map>
#include <numeric>

using namespace moira::tools;
using namespace moira::tools::svg;

/// Steps that have no room of their own are one point, their mean.
static constexpr size_t mostPoints = 160;
static constexpr double plotHeight = 260, gap = 30, stripHeight = 16;

/// Told apart in print and by most eyes (Okabe and Ito); the last for the rest.
static constexpr const char *planColours[] = {"#0072b2", "#e69f00", "#009e73",
                                              "#cc79a7", "#56b4e9", "#d55e00",
                                              "#f0e442", "#999999"};

/// Milliseconds of `count` steps.
template <typename Value>
static Curve curveOf(size_t count, const Value &secondsOf) {
  Curve curve;
  size_t points = std::min(count, mostPoints);
  for (size_t i = 0; i < points; ++i) {
    size_t begin = i * count / points, end = (i + 1) * count / points;
    double sum = 0;
    for (size_t step = begin; step < end; ++step)
      sum += secondsOf(step);
    curve.emplace_back(double(begin + end - 1) / 2,
                       1e3 * sum / double(end - begin));
  }
  return curve;
}

/// The plan that is best over all steps, of those that shadow nothing: which
/// experts are to be shadowed is nothing that stays.
static size_t bestPlan(const StepTable &table) {
  size_t best = 0;
  double least = INFINITY;
  for (size_t i = 0; i < table.planNames().size(); ++i) {
    double sum = 0;
    for (const StepRecord &step : table.records())
      sum += step.fixed[i];
    if (sum < least &&
        !llvm::StringRef(table.planNames()[i]).contains("shadow"))
      best = i, least = sum;
  }
  return best;
}

static double largest(const Curve &curve) {
  double most = 0;
  for (auto [step, value] : curve)
    most = std::max(most, value);
  return most;
}

static void drawKey(llvm::raw_ostream &out, double x, double y,
                    const char *colour, double thickness,
                    const std::string &words) {
  out << llvm::format("<path d=\"M%.1f %.1fh14\" stroke-width=\"%.1f\" ", x,
                      y - 4, thickness)
      << "stroke=\"" << colour << "\"/>\n";
  text(out, x + 18, y, "start", words);
}

static void drawTimes(llvm::raw_ostream &out, const StepTable &table,
                      const Axis &x) {
  const std::vector<StepRecord> &steps = table.records();
  Curve run =
      curveOf(steps.size(), [&](size_t step) { return steps[step].seconds; });
  auto fixedCurve = [&](size_t plan) {
    return curveOf(steps.size(),
                   [&](size_t step) { return steps[step].fixed[plan]; });
  };
  size_t best = bestPlan(table);
  Curve bestCurve = fixedCurve(best);
  // Plans that are far off leave the picture at the top.
  double most = 1.15 * std::max(largest(run), largest(bestCurve));
  Axis y{0, most, top + plotHeight, top};
  text(out, left, top - 8, "start", "ms of a step");
  drawTicks(out, y, 6);
  out << llvm::format("<clipPath id=\"plot\"><rect x=\"%.0f\" y=\"%.0f\" "
                      "width=\"%.0f\" height=\"%.0f\"/></clipPath>\n",
                      left, top, width - left - right, plotHeight)
      << "<g clip-path=\"url(#plot)\">\n";
  for (size_t plan = 0; plan < table.planNames().size(); ++plan)
    drawLine(out, fixedCurve(plan), x, y, "#c4c4c4", "stroke-width=\"0.6\"");
  drawLine(out, bestCurve, x, y, "#d55e00", "stroke-width=\"1.4\"");
  drawLine(out, run, x, y, "#00407a", "stroke-width=\"1.8\"");
  out << "</g>\n";
  drawKey(out, left + 100, top - 8, "#00407a", 1.8, "this run");
  drawKey(out, left + 190, top - 8, "#d55e00", 1.4,
          "best plan that stays (" + table.planNames()[best] + ")");
  drawKey(out, left + 490, top - 8, "#c4c4c4", 1.4, "every plan");
}

/// Plans that ran, most used first.
static std::vector<std::string> rankPlans(const StepTable &table) {
  std::map<std::string, int> uses;
  for (const StepRecord &step : table.records())
    ++uses[step.plan];
  std::vector<std::string> names;
  for (const auto &[name, count] : uses)
    names.push_back(name);
  llvm::sort(names, [&](const std::string &a, const std::string &b) {
    return std::pair(-uses[a], a) < std::pair(-uses[b], b);
  });
  return names;
}

/// Returns the height of the strip with its key.
static double drawPlans(llvm::raw_ostream &out, const StepTable &table,
                        const Axis &x, double y) {
  const std::vector<StepRecord> &steps = table.records();
  std::vector<std::string> names = rankPlans(table);
  constexpr size_t rest = std::size(planColours) - 1;
  auto colourOf = [&](const std::string &plan) {
    size_t place = llvm::find(names, plan) - names.begin();
    return planColours[std::min(place, rest)];
  };
  text(out, left, y - 6, "start", "plan that ran");
  size_t begin = 0;
  for (size_t i = 1; i <= steps.size(); ++i) {
    if (i < steps.size() && steps[i].plan == steps[begin].plan)
      continue;
    double from = x.at(double(begin) - 0.5), to = x.at(double(i) - 0.5);
    out << llvm::format("<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" "
                        "height=\"%.0f\" fill=\"",
                        from, y, to - from, stripHeight)
        << colourOf(steps[begin].plan) << "\"/>\n";
    begin = i;
  }
  double line = y + stripHeight + 16;
  for (size_t i = 0; i < std::min(names.size(), rest + 1); ++i) {
    bool others = i == rest && names.size() > rest + 1;
    drawKey(out, left + double(i % 2) * 330, line, planColours[i], 8,
            others ? "others" : names[i]);
    if (i % 2 == 1)
      line += 16;
  }
  return line + 10 - y;
}

std::string moira::tools::drawSteps(const StepTable &table) {
  const std::vector<StepRecord> &steps = table.records();
  size_t experts =
      steps.empty() || steps[0].counts.empty() ? 0 : steps[0].counts[0].size();
  double line = experts > 16 ? 5 : 10;
  size_t keys = std::min(rankPlans(table).size(), std::size(planColours));
  double height = top + plotHeight + gap + stripHeight + 26 +
                  16 * double(keys / 2) + gap + line * double(experts) + bottom;
  std::string picture;
  llvm::raw_string_ostream out(picture);
  begin(out, height);
  Axis x{-0.5, double(steps.size()) - 0.5, left, width - right};
  drawTimes(out, table, x);
  double y = top + plotHeight + gap;
  y += drawPlans(out, table, x, y) + gap;
  text(out, left, y - 6, "start",
       "share of the first layer's rows, by expert (light blue: even)");
  std::vector<std::vector<int64_t>> loads;
  for (const StepRecord &step : steps)
    if (experts > 0)
      loads.emplace_back(step.counts[0].begin(), step.counts[0].end());
  drawShares(out, loads, y, line);
  svg::drawSteps(out, x, y + line * double(experts));
  out << "</svg>\n";
  return picture;
}
