// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The manifest as JSON: what all grids share, and the grids.

#include "session/ManifestDevice.h"
#include "session/ManifestGradients.h"
#include "session/ManifestLayers.h"
#include "session/ManifestParts.h"

#include <algorithm>

using namespace moira;
using namespace moira::runtime;

//===----------------------------------------------------------------------===//
// Reading
//===----------------------------------------------------------------------===//

/// Reads JSON text. Null where it is none: nlohmann's own value for that.
static Json readText(std::string_view json) {
  return Json::parse(json.begin(), json.end(), nullptr,
                     /*allow_exceptions=*/false);
}

static Status otherText() {
  return Status(MOIRA_DATA_LOSS, "manifest: expected JSON, got other text");
}

/// What all grids share.
static Status readHeader(const Reader &root, Status &error,
                         Manifest &manifest) {
  Reader moira = root.at("moira");
  manifest.version = moira.at("version").text();
  int64_t abi = moira.at("abi").integer(0);
  if (error.ok() && abi != int64_t(MOIRA_ABI_VERSION))
    return Status(MOIRA_VERSION,
                  concat("manifest: moira.abi: expected version ",
                         MOIRA_ABI_VERSION, ", got ", abi));
  manifest.module = root.textOr("module");
  if (root.has("target")) {
    Reader target = root.at("target");
    manifest.target.triple = target.textOr("triple");
    manifest.target.cpu = target.textOr("cpu");
    manifest.target.features = target.textOr("features");
  }
  manifest.hiddenBlocks = root.integerOr("hidden_blocks", 0, 0);
  if (root.has("notes"))
    for (const Reader &note : root.at("notes").items())
      manifest.notes.push_back(note.text());
  if (root.has("device"))
    manifest.device = readDevice(root.at("device"));
  return error;
}

/// Entries and parameters of one grid.
static Status readGrid(const Reader &json, Status &error, Manifest &manifest) {
  Names names;
  for (const Reader &item : json.at("entries").items()) {
    if (!error.ok())
      break;
    manifest.entries.push_back(readEntry(item));
    names.add(item, manifest.entries.back().name);
  }
  for (const Reader &item : json.at("parameters").items()) {
    if (!error.ok())
      break;
    manifest.parameters.push_back(readParameter(item));
  }
  if (error.ok())
    checkGradients(json.at("entries"), manifest);
  if (error.ok())
    checkLayers(json.at("entries"), manifest);
  return error;
}

/// The numbers of ranks of the list of grids, each once.
static std::vector<int32_t> readRanks(const Reader &grids) {
  std::vector<int32_t> ranks;
  for (const Reader &grid : grids.items()) {
    int32_t count = grid.at("ranks").small(1);
    grid.at("ranks").require(
        std::find(ranks.begin(), ranks.end(), count) == ranks.end(),
        concat("expected a number of ranks used once, got ", count, " again"));
    ranks.push_back(count);
  }
  grids.require(!ranks.empty(), "expected at least one grid, got none");
  return ranks;
}

/// The grid for `wanted` ranks; 0: the only one.
static Result<size_t> findGrid(const std::vector<int32_t> &grids,
                               int32_t wanted) {
  if (wanted == 0 && grids.size() == 1)
    return size_t(0);
  auto found = std::find(grids.begin(), grids.end(), wanted);
  if (found != grids.end())
    return size_t(found - grids.begin());
  std::string known;
  for (int32_t ranks : grids)
    known += concat(known.empty() ? "" : ", ", ranks);
  return Status(MOIRA_INVALID_ARGUMENT,
                concat("expected a grid of the bundle (", known,
                       " ranks), got ",
                       wanted == 0 ? "none" : std::to_string(wanted)));
}

Result<Manifest> Manifest::parse(std::string_view json, int32_t ranks) {
  Json document = readText(json);
  if (document.is_discarded())
    return otherText();
  Status error;
  Reader root(&document, "", error);
  Manifest manifest;
  MOIRA_RETURN_IF_ERROR(readHeader(root, error, manifest));
  if (!root.has("grids")) {
    MOIRA_RETURN_IF_ERROR(readGrid(root, error, manifest));
    return manifest;
  }
  Reader grids = root.at("grids");
  std::vector<int32_t> known = readRanks(grids);
  MOIRA_RETURN_IF_ERROR(error);
  Result<size_t> chosen = findGrid(known, ranks);
  if (!chosen.ok())
    return chosen.status();
  MOIRA_RETURN_IF_ERROR(readGrid(grids.items()[*chosen], error, manifest));
  return manifest;
}

Result<std::vector<int32_t>> runtime::listGrids(std::string_view json) {
  Json document = readText(json);
  if (document.is_discarded())
    return otherText();
  Status error;
  Reader root(&document, "", error);
  std::vector<int32_t> ranks;
  if (root.has("grids")) {
    ranks = readRanks(root.at("grids"));
  } else {
    ranks.push_back(1);
    for (const Reader &entry : root.at("entries").items())
      if (entry.has("ranks"))
        ranks[0] = std::max(ranks[0], entry.at("ranks").small(1));
  }
  if (!error.ok())
    return error;
  return ranks;
}

//===----------------------------------------------------------------------===//
// Writing
//===----------------------------------------------------------------------===//

static Json headerToJson(const Manifest &manifest) {
  Json json = {
      {"moira", {{"version", manifest.version}, {"abi", manifest.abi}}},
      {"module", manifest.module},
      {"target",
       {{"triple", manifest.target.triple},
        {"cpu", manifest.target.cpu},
        {"features", manifest.target.features}}}};
  if (manifest.hiddenBlocks > 0)
    json["hidden_blocks"] = manifest.hiddenBlocks;
  if (!manifest.notes.empty())
    json["notes"] = manifest.notes;
  if (manifest.device)
    json["device"] = deviceToJson(*manifest.device);
  return json;
}

static void addGrid(const Manifest &manifest, Json &json) {
  json["entries"] = Json::array();
  json["parameters"] = Json::array();
  for (const EntrySpec &entry : manifest.entries)
    json["entries"].push_back(entryToJson(entry));
  for (const ParameterSpec &parameter : manifest.parameters)
    json["parameters"].push_back(parameterToJson(parameter));
}

static std::string write(const Json &json) {
  // Text that is no UTF-8 would throw; it becomes readable instead.
  return json.dump(1, ' ', false, Json::error_handler_t::replace);
}

std::string Manifest::serialize() const {
  Json json = headerToJson(*this);
  addGrid(*this, json);
  return write(json);
}

std::string runtime::serializeGrids(const std::vector<GridManifest> &grids) {
  if (grids.size() == 1)
    return grids.front().manifest.serialize();
  Json json = headerToJson(grids.front().manifest);
  json["grids"] = Json::array();
  for (const GridManifest &grid : grids) {
    Json &item = json["grids"].emplace_back();
    item = {{"ranks", grid.ranks}};
    addGrid(grid.manifest, item);
  }
  return write(json);
}
