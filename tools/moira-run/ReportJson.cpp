// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Report.h"

#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"

#include <cmath>

using namespace moira;
using namespace moira::tools;
using namespace moira::runtime;
namespace json = llvm::json;

static json::Object partsToJson(const PartSeconds &seconds) {
  json::Object parts;
  for (int part = 0; part < MOIRA_PART_COUNT; ++part)
    parts[partName(part)] = seconds[part];
  return parts;
}

static json::Object layerToJson(const LayerRow &layer) {
  return json::Object{
      {"layer", layer.layer},
      {"routed", layer.routed},
      {"dropped", layer.dropped},
      {"counts", json::Array(layer.counts)},
      {"sizes", json::Array(layer.sizes)},
      {"seconds", partsToJson(layer.seconds)},
      {"plan", json::Object{{"degree", layer.plan.degree},
                            {"exchange", layer.plan.exchange},
                            {"shadows", json::Array(layer.shadows)},
                            {"reason", layer.reason},
                            {"predicted", layer.predicted}}}};
}

static json::Object verificationToJson(const Verification &check) {
  return json::Object{
      {"passed", check.passed()},
      {"rows", check.rows},
      {"all_rows", check.allRows},
      {"note", check.note},
      {"seconds", check.seconds},
      {"ids", json::Object{{"tokens", check.choices.tokens},
                           {"equal", check.choices.exact},
                           {"not_admissible", check.choices.wrong},
                           {"epsilon", check.choices.epsilon},
                           {"first", check.choices.firstWrong}}},
      {"values", json::Object{{"elements", check.values.elements},
                              {"identical", check.values.identical},
                              {"max_absolute", check.values.maxAbsolute},
                              {"max_relative", check.values.maxRelative},
                              {"bound", check.bound},
                              {"beyond", check.values.beyond},
                              {"first", check.values.firstBeyond}}}};
}

void Report::printJson(llvm::raw_ostream &stream) const {
  json::Array layers;
  for (const LayerRow &layer : step.layers)
    layers.push_back(layerToJson(layer));
  json::Object object{
      {"program", program},
      {"entry", entry},
      {"variant", variant},
      {"cpu", cpu},
      {"threads", threads},
      {"inputs", json::Array(inputs)},
      {"weights", weights},
      {"seed", json::Value(seed)},
      {"rows", rows},
      {"seconds", json::Object{{"start", startSeconds},
                               {"compile", compileSeconds},
                               {"weights", weightSeconds},
                               {"first", firstSeconds},
                               {"repeats", json::Array(repeats)},
                               {"time", time()}}},
      {"tokens_per_second", static_cast<double>(rows) / time()},
      {"flops", flops},
      {"flops_per_second", flops / time()},
      {"parts", partsToJson(seconds)},
      {"layers", std::move(layers)},
      {"memory", json::Object{{"peak", memory.peak},
                              {"parameters", memory.parameters},
                              {"workspace", memory.workspace},
                              {"results", memory.results},
                              {"limit", memory.limit},
                              {"weights", weightBytes}}}};
  if (!backward.empty()) {
    object["gradients"] =
        json::Object{{"forward", forwardTime()},
                     {"backward", backwardTime()},
                     {"ratio", backwardTime() / forwardTime()}};
    object.getObject("memory")->insert({"residuals", memory.residuals});
  }
  if (!device.empty())
    object["device"] = json::Object{
        {"name", device}, {"launches", step.launches}, {"waits", step.waits}};
  if (ranks.size() > 1)
    object["ranks"] = ranksToJson(*this);
  if (!steps.empty())
    object["steps"] = json::Array(steps);
  if (!plans.empty())
    object["plans"] = json::Array(plans);
  if (!explanationJson.empty())
    object["explain"] = llvm::cantFail(json::parse(explanationJson));
  if (verification)
    object["verify"] = verificationToJson(*verification);
  if (!qualified.empty())
    object["variants"] = qualifiedToJson(qualified);
  stream << llvm::formatv("{0:2}\n", json::Value(std::move(object)));
}
