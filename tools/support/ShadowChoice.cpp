// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "support/ShadowChoice.h"

#include "placement/Shadowing.h"

#include "llvm/ADT/StringExtras.h"

using namespace moira;
using namespace moira::tools;
using namespace moira::runtime;

llvm::Expected<ShadowChoice> tools::parseShadows(llvm::StringRef text) {
  ShadowChoice choice;
  auto invalid = [&] {
    return llvm::createStringError(
        "--shadows: expected experts such as 0,3, or hottest:N, got '" + text +
        "'");
  };
  llvm::StringRef rest = text;
  if (rest.consume_front("hottest:")) {
    if (rest.getAsInteger(10, choice.hottest) || choice.hottest < 0)
      return invalid();
    return choice;
  }
  if (text.empty())
    return choice;
  for (llvm::StringRef item : llvm::split(text, ',')) {
    int32_t &expert = choice.experts.emplace_back();
    if (item.getAsInteger(10, expert) || expert < 0)
      return invalid();
  }
  return choice;
}

Status tools::setShadows(Session &session, PlanOptions plan,
                         const ShadowChoice &choice, const StepRow *last) {
  plan.shadows = choice.experts;
  if (!last)
    return session.setPlan(plan).within("--shadows");
  std::vector<int64_t> loads;
  for (const LayerRow &row : last->layers) {
    int experts = static_cast<int>(row.counts.size());
    if (choice.hottest > 0 && experts > 0)
      orderByLoad(row.matrix.data(), int(row.matrix.size()) / experts, experts,
                  choice.hottest, loads, plan.shadows);
    // Weights may have moved from where they were bound.
    plan.slotTable = session.slotTable(row.layer);
    MOIRA_RETURN_IF_ERROR(session.setPlan(row.layer, plan).within("--shadows"));
  }
  return Status();
}
