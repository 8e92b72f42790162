// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Runtime/AgreeingRanks.h"

#include "base/Draws.h"
#include "session/StepContext.h"

#include <cmath>
#include <limits>

using namespace moira;
using namespace moira::runtime;
using namespace moira::test;

using P = AdaptiveProgram;

std::unique_ptr<Adaptation> test::makeAdaptation(const Manifest &manifest,
                                                 const RankGroups &groups,
                                                 const AdaptOptions &options) {
  auto made =
      Adaptation::create(manifest, 0, groups,
                         std::vector<std::vector<int32_t>>(P::layers), options);
  EXPECT_OK(made.status());
  return made.ok() ? std::move(*made) : nullptr;
}

/// Times of a clock that nobody should trust.
static double distrusted(Draws &draws, double truth, int rank) {
  switch (draws.below(12)) {
  case 0:
    return std::nan("");
  case 1:
    return std::numeric_limits<double>::infinity();
  case 2:
    return -truth;
  case 3:
    return 0;
  case 4:
    return truth * 1000;
  default:
    return truth * (1 + 0.2 * rank) * (0.5 + draws.uniform());
  }
}

Status test::runAgreeing(Communicator &group, int steps,
                         const AdaptOptions &options, bool failing,
                         SeenPlans &seen) {
  const int rank = group.rank();
  const Manifest manifest = P::manifest();
  auto adaptation = makeAdaptation(manifest, group.groups(), options);
  if (!adaptation)
    return Status(MOIRA_FAILED, "expected an adaptation");
  const EntrySpec &entry = manifest.entries[0];
  Draws own({uint32_t(rank), 99}, 0);
  std::vector<int32_t> matrix(P::ranks * P::experts), counts(P::experts);
  for (int step = 0; step < steps; ++step) {
    bool fails = failing && step % 997 == 500;
    Status status = group.beginStep();
    if (status.ok() && !(fails && rank == 2))
      status = adaptation->next();
    else if (status.ok())
      status = Status(MOIRA_FAILED, "wrong input");
    // Loads that stay for some steps, and jump.
    Draws shared({uint32_t(step / 40), 5}, uint32_t(rank));
    for (int layer = 0; status.ok() && layer < P::layers; ++layer) {
      for (int32_t &count : counts)
        count = int32_t(shared.below(layer ? 20 : 400));
      counts[shared.below(P::experts)] += 500;
      int variant = adaptation->variant(rank == 1 ? 2 : 100);
      const AdaptedPlan &plan = adaptation->plan(layer);
      RankRecord mine;
      mine.program = 42;
      mine.plan = hashPlanOf(
          &entry, {uint32_t(variant), plan.degree, plan.exchange, 0, nullptr},
          P::ranks);
      mine.seconds = adaptation->seconds()[layer];
      mine.variants = adaptation->mask();
      status = group.gatherCounts(layer, P::experts, counts.data(), mine,
                                  matrix.data());
      if (!status.ok())
        break;
      status =
          adaptation->gathered(layer, group.records(), matrix.data()).status();
      seen.candidates.push_back(adaptation->decision(layer).candidate);
      seen.variants.insert(variant / 2);
    }
    status = group.endStep(status);
    if (fails == status.ok())
      return fails ? Status(MOIRA_FAILED, "expected a failure") : status;
    std::vector<double> seconds;
    for (int layer = 0; layer < P::layers; ++layer)
      seconds.push_back(distrusted(
          own, 1e-5 * (1 + adaptation->decision(layer).candidate % 3), rank));
    adaptation->finish(status.ok(), step, seconds, false);
    // A rank now and then may not run a variant.
    if (step % 500 == 250 + rank)
      EXPECT_OK(adaptation->forbid("r1-decode", true));
    if (step % 500 == 350 + rank)
      EXPECT_OK(adaptation->forbid("r1-decode", false));
  }
  return Status();
}
