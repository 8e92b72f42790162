// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Ranks that must decide alike whatever their clocks say, over any transport.

#ifndef MOIRA_UNITTESTS_RUNTIME_AGREEINGRANKS_H
#define MOIRA_UNITTESTS_RUNTIME_AGREEINGRANKS_H

#include "Runtime/AdaptiveProgram.h"
#include "session/Adaptation.h"

#include <set>

namespace moira::test {

/// Who decides for the entry of AdaptiveProgram, experts as they are dealt out.
std::unique_ptr<runtime::Adaptation>
makeAdaptation(const runtime::Manifest &manifest,
               const runtime::RankGroups &groups,
               const runtime::AdaptOptions &options);

/// What a rank saw in many steps.
struct SeenPlans {
  std::vector<int> candidates;
  std::set<int> variants;
};

/// Steps of two layers over a real communicator, which itself refuses plans
/// that differ. With `failing` a rank sometimes fails before it decides, and
/// all drop that step: communicators of threads go on then.
Status runAgreeing(runtime::Communicator &group, int steps,
                   const runtime::AdaptOptions &options, bool failing,
                   SeenPlans &seen);

} // namespace moira::test

#endif // MOIRA_UNITTESTS_RUNTIME_AGREEINGRANKS_H
