// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "cost/JsonReader.h"
#include "selection/Decider.h"

#include <cstdio>

using namespace moira;
using namespace moira::runtime;

const char *moira::runtime::reasonName(DecisionReason reason) {
  switch (reason) {
  case DecisionReason::First:
    return "no step before";
  case DecisionReason::Fixed:
    return "fixed";
  case DecisionReason::Only:
    return "nothing else is allowed";
  case DecisionReason::Model:
    return "least predicted time";
  case DecisionReason::Measured:
    return "least expected time";
  case DecisionReason::Trial:
    return "trial: may be faster than it seems";
  case DecisionReason::ExtremeTrial:
    return "trial of an extreme";
  case DecisionReason::Settled:
    return "as before under such loads";
  case DecisionReason::Oracle:
    return "least true time";
  }
  return "";
}

Explanation Decider::explain() const {
  Explanation explanation;
  if (lastStep < 0)
    return explanation;
  explanation.step = lastStep;
  explanation.bucket = bucket ? bucket->key : BucketKey();
  explanation.decision = last;
  explanation.shadows = history.past(lastStep).shadows;
  for (size_t c = 0; c < list.size(); ++c) {
    Explanation::Row row{};
    row.candidate = int(c);
    row.predicted = !asked ? 0 : careful[c] > 0 ? careful[c] : quick[c];
    row.expected = asked ? expected[c] : 0;
    if (bucket && bucket->ratios[c].count > 0) {
      row.measured = bucket->ratios[c].mean;
      row.trials = bucket->ratios[c].count;
    }
    row.verdict = int(c) == last.candidate         ? Explanation::Chosen
                  : !(mask >> list[c].variant & 1) ? Explanation::Unqualified
                  : !allowed[c]                    ? Explanation::OtherClass
                  : !asked                         ? Explanation::NotAsked
                  : careful[c] == 0                ? Explanation::NotFollowed
                                                   : Explanation::Slower;
    explanation.rows.push_back(row);
  }
  return explanation;
}

static const char *const verdicts[] = {
    "chosen",      "slower",      "far slower by the model",
    "unqualified", "other class", "not asked"};

std::string
Explanation::toJson(const std::vector<Candidate> &candidates) const {
  OrderedJson json = {{"step", step},
                      {"chosen", candidates[decision.candidate].describe()},
                      {"reason", reasonName(decision.reason)},
                      {"bucket",
                       {{"load", bucket.load},
                        {"skew", bucket.skew},
                        {"expert", bucket.expert}}},
                      {"candidates", OrderedJson::array()}};
  for (const Row &row : rows) {
    OrderedJson entry = {{"plan", candidates[row.candidate].describe()},
                         {"variant", candidates[row.candidate].variant},
                         {"verdict", verdicts[row.verdict]}};
    if (row.predicted > 0)
      entry["predicted"] = row.predicted;
    if (row.expected > 0)
      entry["expected"] = row.expected;
    if (row.trials > 0) {
      entry["measured_over_predicted"] = row.measured;
      entry["trials"] = row.trials;
    }
    json["candidates"].push_back(entry);
  }
  return json.dump();
}

std::string
Explanation::toText(const std::vector<Candidate> &candidates) const {
  std::string text =
      concat("step ", step, ": ", candidates[decision.candidate].describe(),
             " (", reasonName(decision.reason), ")\n");
  char line[160];
  std::snprintf(line, sizeof(line), "  %-40s %12s %12s %9s %7s\n", "candidate",
                "predicted us", "expected us", "measured", "trials");
  text += line;
  for (const Row &row : rows) {
    std::string name = candidates[row.candidate].describe();
    auto number = [](double value, double scale, const char *format) {
      char out[32] = "-";
      if (value > 0)
        std::snprintf(out, sizeof(out), format, value * scale);
      return std::string(out);
    };
    std::snprintf(line, sizeof(line), "  %-40s %12s %12s %9s %7s %s\n",
                  name.c_str(), number(row.predicted, 1e6, "%.1f").c_str(),
                  number(row.expected, 1e6, "%.1f").c_str(),
                  number(row.measured, 1, "x%.3f").c_str(),
                  number(row.trials, 1, "%.0f").c_str(), verdicts[row.verdict]);
    text += line;
  }
  return text;
}
