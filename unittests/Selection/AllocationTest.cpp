// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Decisions allocate nothing once their loads have been seen. A program of its
// own: it replaces operator new.

#include "Runtime/AdaptiveProgram.h"
#include "Selection/Games.h"
#include "session/Adaptation.h"

#include <atomic>
#include <cstdlib>
#include <new>

using namespace moira;
using namespace moira::runtime;
using namespace moira::test;

static std::atomic<int64_t> allocations{0};

void *operator new(size_t bytes) {
  allocations.fetch_add(1);
  if (void *memory = std::malloc(bytes))
    return memory;
  throw std::bad_alloc();
}
void operator delete(void *memory) noexcept { std::free(memory); }
void operator delete(void *memory, size_t) noexcept { std::free(memory); }

namespace {
/// Allocations of the second run over the same loads.
int64_t again(const Machine &machine, int topK, int64_t lag) {
  SelectionOptions options;
  options.lag = int(lag);
  auto decider = machine.decider(options);
  const LayerShape &shape = machine.shape;
  std::vector<std::vector<int32_t>> loadsOf;
  for (const char *name : {"uniform", "zipf:1", "training", "one-hot"})
    for (int64_t tokens : {0, 5, 200, 3000})
      loadsOf.push_back(loads(name, shape.ranks, shape.experts, tokens, topK));
  std::vector<double> seconds(shape.ranks, 1e-3);
  std::vector<uint64_t> variants(shape.ranks, ~uint64_t(0));
  SharedStep record;
  record.seconds = seconds.data();
  record.variants = variants.data();
  int64_t before = 0;
  for (int64_t step = 0; step < 640; ++step) {
    if (step == 320)
      before = allocations;
    record.step = step;
    record.timedStep = step - 2;
    record.counts = loadsOf[step % loadsOf.size()].data();
    record.nextRows = step % 3 ? -1 : 5000;
    Result<Decision> decision = decider->decide(record);
    if (!decision.ok())
      return -1;
    std::fill(seconds.begin(), seconds.end(),
              decision->seconds > 0 ? decision->seconds : 1e-3);
  }
  return allocations - before;
}
} // namespace

TEST(Allocations, NoneInDecisions) {
  EXPECT_EQ(again(machineA(), 2, 1), 0);
  EXPECT_EQ(again(machineA(), 2, 0), 0);
  EXPECT_EQ(again(machineB(), 1, 1), 0);
}

TEST(Allocations, NoneOnLargeGrids) {
  Machine machine{cluster(4, 8), layerShape(32, 64, 256, 512, 2), {}, {}};
  setKernels(machine, 1e6, 1e12, 3e-6);
  EXPECT_EQ(again(machine, 2, 1), 0);
}

TEST(Allocations, NoneInEntriesThatAdapt) {
  for (int lag : {0, 1}) {
    AdaptOptions options;
    options.selection.lag = lag;
    options.selection.fixed = 1;
    const Manifest manifest = AdaptiveProgram::manifest();
    constexpr int ranks = AdaptiveProgram::ranks,
                  experts = AdaptiveProgram::experts;
    auto made = Adaptation::create(
        manifest, 0, {0, ranks, 1},
        std::vector<std::vector<int32_t>>(AdaptiveProgram::layers), options);
    ASSERT_TRUE(made.ok()) << made.status().message;
    std::vector<RankRecord> records(ranks);
    std::vector<std::vector<int32_t>> loadsOf;
    for (const char *name : {"uniform", "zipf:1", "one-hot"})
      for (int64_t tokens : {0, 5, 200, 3000})
        loadsOf.push_back(loads(name, ranks, experts, tokens, 1));
    std::vector<double> seconds(AdaptiveProgram::layers, 1e-4);
    int64_t before = 0;
    for (int64_t step = 0; step < 720; ++step) {
      if (step == 360)
        before = allocations;
      bool ok = (*made)->next().ok();
      for (size_t layer = 0; layer < seconds.size(); ++layer) {
        for (RankRecord &record : records) {
          record.seconds = (*made)->seconds()[layer];
          record.variants = (*made)->mask();
        }
        ok &= (*made)
                  ->gathered(layer, records,
                             loadsOf[(step + layer) % loadsOf.size()].data())
                  .ok();
      }
      (*made)->finish(ok, step, seconds, false);
      if (!ok)
        FAIL() << "step " << step;
    }
    EXPECT_EQ(allocations - before, 0) << "lag " << lag;
  }
}
