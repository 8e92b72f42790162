// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "cost/Calibration.h"
#include "cost/JsonReader.h"

using namespace moira;
using namespace moira::runtime;

static OrderedJson toJson(const KernelCurve &curve) {
  return {
      {"call", curve.call}, {"rows", curve.rows}, {"seconds", curve.seconds}};
}
static OrderedJson toJson(const LinearCost &cost) {
  return {{"fixed", cost.fixed}, {"per_row", cost.perRow}};
}
static OrderedJson toJson(const LinkCost &link) {
  return {{"latency", link.latency},
          {"overhead", link.overhead},
          {"seconds_per_byte", link.secondsPerByte}};
}

std::string Calibration::toJson() const {
  OrderedJson errors = OrderedJson::object();
  for (int kind = 0; kind < measuredKinds; ++kind)
    errors[measuredName(static_cast<Measured>(kind))] = {
        {"mean", meanError[kind]}, {"max", maxError[kind]}};
  OrderedJson json = {{"format", "moira-calibration"},
                      {"version", version},
                      {"machine", machine},
                      {"forward", ::toJson(forward)},
                      {"backward", ::toJson(backward)},
                      {"gate", ::toJson(gate)},
                      {"dispatch", ::toJson(dispatch)},
                      {"combine", ::toJson(combine)},
                      {"intra", ::toJson(intra)},
                      {"inter", ::toJson(inter)},
                      {"errors", errors}};
  return json.dump(2) + "\n";
}

Result<std::string> Calibration::describe(int nodes, int ranksPerNode) const {
  OrderedJson json = {
      {"name", machine}, {"nodes", nodes}, {"ranks_per_node", ranksPerNode}};
  auto add = [&](const char *key, const LinkCost &link) {
    json[key] = {{"bandwidth", 1 / link.secondsPerByte},
                 {"latency", link.latency},
                 {"overhead", link.overhead}};
    return link.secondsPerByte > 0
               ? Status()
               : Status(MOIRA_INVALID_ARGUMENT,
                        concat("calibration: expected points of ", key,
                               " links that tell their bandwidth, got none"));
  };
  if (ranksPerNode > 1)
    MOIRA_RETURN_IF_ERROR(add("intra", intra));
  if (nodes > 1)
    MOIRA_RETURN_IF_ERROR(add("inter", inter));
  return json.dump(2) + "\n";
}

static KernelCurve readCurve(const JsonReader &json) {
  KernelCurve curve;
  curve.call = json.at("call").number(0);
  for (const JsonReader &item : json.at("rows").items())
    curve.rows.push_back(item.number(0));
  for (const JsonReader &item : json.at("seconds").items())
    curve.seconds.push_back(item.number(0));
  json.require(curve.rows.size() == curve.seconds.size(),
               concat("expected as many seconds as rows, got ",
                      curve.seconds.size(), " and ", curve.rows.size()));
  for (size_t i = 0; i < curve.rows.size() && json.ok(); ++i) {
    json.require(curve.rows[i] > (i ? curve.rows[i - 1] : 0),
                 "expected rows above 0 that ascend");
    json.require(!i || curve.seconds[i] >= curve.seconds[i - 1],
                 "expected seconds that do not descend");
  }
  return curve;
}
static LinearCost readLinear(const JsonReader &json) {
  return {json.at("fixed").number(0), json.at("per_row").number(0)};
}
static LinkCost readLink(const JsonReader &json) {
  return {json.at("latency").number(0), json.at("overhead").number(0),
          json.at("seconds_per_byte").number(0)};
}

Result<Calibration> Calibration::parse(const std::string &text,
                                       const std::string &name) {
  JsonDocument document(text, name, "moira-calibration", version);
  JsonReader json = document.root();
  Calibration read;
  read.machine = json.at("machine").text();
  read.forward = readCurve(json.at("forward"));
  read.backward = readCurve(json.at("backward"));
  read.gate = readLinear(json.at("gate"));
  read.dispatch = readLinear(json.at("dispatch"));
  read.combine = readLinear(json.at("combine"));
  read.intra = readLink(json.at("intra"));
  read.inter = readLink(json.at("inter"));
  for (int kind = 0; kind < measuredKinds; ++kind) {
    JsonReader entry =
        json.at("errors").at(measuredName(static_cast<Measured>(kind)));
    read.meanError[kind] = entry.at("mean").number(0);
    read.maxError[kind] = entry.at("max").number(0);
  }
  if (!document.status().ok())
    return document.status();
  return read;
}
