// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Report.h"

#include "support/CommandLine.h"

#include "llvm/Support/Format.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"

#include <algorithm>
#include <numeric>

using namespace moira;
using namespace moira::tools;
using namespace moira::runtime;

//===----------------------------------------------------------------------===//
// Figures
//===----------------------------------------------------------------------===//

double tools::countFlops(const EntrySpec &entry, const StepRow &step) {
  double flops =
      static_cast<double>(entry.flopsPerToken) * static_cast<double>(step.rows);
  for (const LayerRow &row : step.layers)
    for (const LayerSpec &layer : entry.layers)
      if (layer.index == row.layer)
        flops += static_cast<double>(layer.flopsPerRow) *
                 static_cast<double>(row.routed - row.dropped);
  return flops;
}

void tools::addParts(const StepRow &step, PartSeconds &seconds) {
  for (int part = 0; part < MOIRA_PART_COUNT; ++part) {
    seconds[part] += step.seconds[part];
    for (const LayerRow &layer : step.layers)
      seconds[part] += layer.seconds[part];
  }
}

static double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  size_t half = values.size() / 2;
  return values.size() % 2 ? values[half]
                           : (values[half - 1] + values[half]) / 2;
}

static double minimum(const std::vector<double> &values) {
  return *std::min_element(values.begin(), values.end());
}

double Report::time() const {
  return repeats.empty() ? firstSeconds : median(repeats);
}

double Report::backwardTime() const {
  if (backward.size() == 1)
    return backward.front();
  return median(std::vector<double>(backward.begin() + 1, backward.end()));
}

/// Parts by their share of the time, largest first.
static std::vector<std::pair<const char *, double>>
shares(const PartSeconds &seconds) {
  double all = std::accumulate(seconds.begin(), seconds.end(), 0.0);
  std::vector<std::pair<const char *, double>> parts;
  for (int part = 0; part < MOIRA_PART_COUNT; ++part)
    if (seconds[part] > 0)
      parts.emplace_back(partName(part), seconds[part] / all);
  llvm::sort(parts,
             [](const auto &a, const auto &b) { return a.second > b.second; });
  return parts;
}

//===----------------------------------------------------------------------===//
// The table
//===----------------------------------------------------------------------===//

/// One column of blocks per expert, 64 to a line: rows relative to the most.
static void printHistogram(const std::vector<int32_t> &counts,
                           llvm::raw_ostream &stream) {
  static constexpr const char *blocks[] = {"·", "▁", "▂", "▃", "▄",
                                           "▅", "▆", "▇", "█"};
  static constexpr size_t perLine = 64;
  int64_t most = *std::max_element(counts.begin(), counts.end());
  for (size_t i = 0; i < counts.size(); ++i) {
    if (i % perLine == 0)
      stream << (i == 0 ? "  " : "\n  ");
    int64_t level = most == 0 ? 0 : (8 * int64_t(counts[i]) + most - 1) / most;
    stream << blocks[level];
  }
  stream << '\n';
}

static void printLayer(const LayerRow &layer, llvm::raw_ostream &stream) {
  stream << "layer " << layer.layer << ": " << layer.counts.size()
         << " experts, " << layer.routed << " rows, " << layer.dropped
         << " dropped";
  if (*layer.reason != 0)
    stream << "; degree " << layer.plan.degree
           << (layer.plan.exchange == 1 ? ", hierarchical" : ", linear") << ", "
           << layer.shadows.size() << " shadows: " << layer.reason;
  if (layer.counts.empty()) {
    stream << '\n';
    return;
  }
  auto [least, most] =
      std::minmax_element(layer.counts.begin(), layer.counts.end());
  stream << "; rows per expert: min " << *least << ", mean "
         << llvm::format("%.1f", static_cast<double>(layer.routed) /
                                     static_cast<double>(layer.counts.size()))
         << ", max " << *most << '\n';
  printHistogram(layer.counts, stream);
}

static void printVerification(const Verification &check,
                              llvm::raw_ostream &stream) {
  stream << "verify      " << (check.passed() ? "passed" : "FAILED") << ": "
         << check.rows << " of " << check.allRows << " rows, in "
         << formatSeconds(check.seconds) << '\n';
  if (!check.note.empty())
    stream << "  note      " << llvm::StringRef(check.note).rtrim("; ") << '\n';
  if (check.choices.tokens > 0)
    stream << "  ids       " << check.choices.exact << " of "
           << check.choices.tokens << " equal, " << check.choices.wrong
           << " not admissible (eps "
           << llvm::format("%.2g", check.choices.epsilon) << ")\n";
  const Comparison &values = check.values;
  double identical = values.elements == 0
                         ? 100.0
                         : 100.0 * static_cast<double>(values.identical) /
                               static_cast<double>(values.elements);
  stream << "  values    "
         << llvm::format("%.2f %% bit-identical, max error %.3g absolute, "
                         "%.3g of the row's largest (bound %.2g)\n",
                         identical, values.maxAbsolute, values.maxRelative,
                         check.bound);
  for (const std::string &line : {check.choices.firstWrong, values.firstBeyond})
    if (!line.empty())
      stream << "  first     " << line << '\n';
}

void Report::print(llvm::raw_ostream &stream) const {
  stream << "program     " << program << ", entry " << entry << ", variant "
         << variant << " (" << cpu << ", " << threads
         << (threads == 1 ? " thread" : " threads")
         << (ranks.size() > 1 ? " per rank)\n" : ")\n");
  if (!device.empty())
    stream << "device      " << device << ", " << step.launches << " launches, "
           << step.waits << (step.waits == 1 ? " wait" : " waits")
           << " before the step's end\n";
  for (const std::string &input : inputs)
    stream << "input       " << input << '\n';
  stream << "weights     " << formatBytes(static_cast<double>(weightBytes))
         << ", " << weights << '\n';
  stream << "start       " << formatSeconds(startSeconds);
  if (compileSeconds > 0)
    stream << " (compile " << formatSeconds(compileSeconds) << ", weights "
           << formatSeconds(weightSeconds) << ")\n";
  else
    stream << " (weights " << formatSeconds(weightSeconds) << ")\n";
  stream << "time        " << (grid.virtualClock ? "virtual, " : "")
         << formatSeconds(firstSeconds) << " first";
  if (!repeats.empty())
    stream << ", " << formatSeconds(median(repeats)) << " median, "
           << formatSeconds(minimum(repeats)) << " min of " << repeats.size();
  stream << '\n';
  if (!backward.empty())
    stream << "gradients   forward " << formatSeconds(forwardTime())
           << ", backward " << formatSeconds(backwardTime())
           << llvm::format(", ratio %.2f\n", backwardTime() / forwardTime());
  stream << "rate        "
         << llvm::format("%.1f tokens/s, %.2f GFLOP/s\n",
                         static_cast<double>(rows) / time(),
                         flops / time() / 1e9);
  stream << "parts       ";
  bool first = true;
  for (const auto &[name, share] : shares(seconds)) {
    stream << (first ? "" : ", ") << name
           << llvm::format(" %.1f %%", 100 * share);
    first = false;
  }
  stream << '\n';
  printRanks(*this, stream);
  for (const LayerRow &layer : step.layers)
    printLayer(layer, stream);
  stream << "memory      peak "
         << formatBytes(static_cast<double>(memory.peak));
  if (weightBytes > 0)
    stream << llvm::format(", %.2f x weights",
                           static_cast<double>(memory.peak) /
                               static_cast<double>(weightBytes));
  stream << " (workspace " << formatBytes(static_cast<double>(memory.workspace))
         << ", results " << formatBytes(static_cast<double>(memory.results));
  if (!backward.empty())
    stream << ", residuals "
           << formatBytes(static_cast<double>(memory.residuals));
  stream << ")\n";
  stream << explanation;
  if (verification)
    printVerification(*verification, stream);
  printQualified(qualified, stream);
}
