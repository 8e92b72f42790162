// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// usage: build/bin/moira-selection-times [--json]
//
// Times decisions of settled buckets ("hit") and full ones, by grid: median and
// 90th percentile of each. The machines and layers are those of the tests.

#include "Selection/Games.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>

using namespace moira;
using namespace moira::runtime;
using namespace moira::test;

namespace {
struct Times {
  std::vector<double> us;

  double at(double part) {
    if (us.empty())
      return 0;
    std::sort(us.begin(), us.end());
    return us[size_t(part * double(us.size() - 1))];
  }
};

struct Grid {
  const char *name;
  Machine machine;
  int topK;
};
} // namespace

static void run(const Grid &grid, bool json, bool last) {
  auto decider = grid.machine.decider();
  const LayerShape &shape = grid.machine.shape;
  LoadOptions options;
  if (!options.parse("zipf:1").ok())
    return;
  options.ranks = shape.ranks;
  options.experts = shape.experts;
  options.tokens = 2048;
  options.topK = grid.topK;
  LoadTrace trace = *LoadTrace::create(options);
  std::vector<int32_t> counts;
  std::vector<uint64_t> programs(shape.ranks, 7), variants(shape.ranks, ~0ull);
  std::vector<double> seconds(shape.ranks, 0);
  Times hit, full;
  SharedStep record;
  record.programs = programs.data();
  record.variants = variants.data();
  for (int64_t step = 0; step < 3000; ++step) {
    trace.next();
    trace.rows(counts);
    record.step = step;
    record.counts = counts.data();
    record.timedStep = step - 1;
    record.seconds = seconds.data();
    auto begin = std::chrono::steady_clock::now();
    Result<Decision> decision = decider->decide(record);
    double us = std::chrono::duration<double, std::micro>(
                    std::chrono::steady_clock::now() - begin)
                    .count();
    if (!decision.ok())
      return;
    // What was expected comes true: nothing is learned anew.
    std::fill(seconds.begin(), seconds.end(), decision->seconds);
    if (step >= 50)
      (decision->reason == DecisionReason::Settled ? hit : full)
          .us.push_back(us);
  }
  size_t candidates = decider->candidates().size();
  if (json)
    printf(
        "    {\"grid\": \"%s\", \"candidates\": %zu, \"hit_us\": %.2f, "
        "\"hit_p90_us\": %.2f, \"full_us\": %.1f, \"full_p90_us\": %.1f}%s\n",
        grid.name, candidates, hit.at(0.5), hit.at(0.9), full.at(0.5),
        full.at(0.9), last ? "" : ",");
  else
    printf(
        "%-10s %3zu candidates: hit %6.2f us (p90 %6.2f, %zu), full %7.1f us "
        "(p90 %7.1f, %zu)\n",
        grid.name, candidates, hit.at(0.5), hit.at(0.9), hit.us.size(),
        full.at(0.5), full.at(0.9), full.us.size());
}

int main(int argc, char **argv) {
  bool json = argc > 1 && !std::strcmp(argv[1], "--json");
  Machine large{
      cluster(8, 8, 50e9, 25e9), layerShape(64, 256, 512, 1024, 2), {}, {}};
  setKernels(large, 4.0 * 512 * 1024, 20e12, 4e-6);
  const Grid grids[] = {
      {"8x32", machineA(), 2}, {"8x2", machineB(), 1}, {"64x256", large, 8}};
  if (json)
    printf("{\"selection\": [\n");
  for (const Grid &grid : grids)
    run(grid, json, &grid == &grids[2]);
  if (json)
    printf("]}\n");
  return 0;
}
