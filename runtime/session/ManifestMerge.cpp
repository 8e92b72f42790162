// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "session/ManifestMerge.h"

#include "session/ManifestParts.h"

#include <algorithm>

using namespace moira;
using namespace moira::runtime;

template <typename... Parts> static Status differs(const Parts &...parts) {
  return Status(MOIRA_INVALID_ARGUMENT, concat(parts...));
}

/// The first key whose values differ, with both.
static std::string compareJson(const Json &wanted, const Json &got) {
  for (const auto &[key, value] : wanted.items()) {
    auto other = got.find(key);
    std::string there = other == got.end() ? "none" : other->dump();
    if (value.dump() != there)
      return concat(key, ": expected ", value.dump(), ", got ", there);
  }
  for (const auto &[key, value] : got.items())
    if (!wanted.contains(key))
      return concat(key, ": expected none, got ", value.dump());
  return {};
}

static Status compareParameters(const Manifest &grid, const Manifest &other) {
  if (grid.parameters.size() != other.parameters.size())
    return differs("expected ", grid.parameters.size(), " parameters, got ",
                   other.parameters.size());
  for (size_t i = 0; i < grid.parameters.size(); ++i) {
    Json wanted = parameterToJson(grid.parameters[i]);
    Json got = parameterToJson(other.parameters[i]);
    wanted.erase("pack");
    got.erase("pack");
    std::string difference = compareJson(wanted, got);
    if (!difference.empty())
      return differs("parameter '", grid.parameters[i].name, "': ", difference);
  }
  return Status();
}

static bool isSame(const TensorSpec &a, const TensorSpec &b) {
  return a.dtype == b.dtype && a.shape == b.shape && a.name == b.name;
}

/// Compares the first `count` tensors.
static Status compareTensors(const char *what,
                             const std::vector<TensorSpec> &wanted,
                             size_t first, const std::vector<TensorSpec> &got,
                             size_t otherFirst) {
  if (wanted.size() - first != got.size() - otherFirst)
    return differs("expected ", wanted.size() - first, " ", what, "s, got ",
                   got.size() - otherFirst);
  for (size_t i = 0; i + first < wanted.size(); ++i) {
    const TensorSpec &a = wanted[first + i], &b = got[otherFirst + i];
    if (!isSame(a, b))
      return differs(what, " ", i, ": expected ", toString(a.dtype, a.shape),
                     ", got ", toString(b.dtype, b.shape));
  }
  return Status();
}

/// How many of an entry's first inputs are residuals of another entry.
static int64_t residualInputs(const Manifest &manifest,
                              const EntrySpec &entry) {
  for (const EntrySpec &forward : manifest.entries)
    if (forward.backward == entry.name)
      return forward.residuals;
  return 0;
}

static Status compareLayers(const EntrySpec &wanted, const EntrySpec &got) {
  if (wanted.layers.size() != got.layers.size())
    return differs("expected ", wanted.layers.size(), " layers, got ",
                   got.layers.size());
  for (size_t i = 0; i < wanted.layers.size(); ++i) {
    const LayerSpec &a = wanted.layers[i], &b = got.layers[i];
    bool same = a.index == b.index && a.experts == b.experts &&
                a.topK == b.topK &&
                a.placement.has_value() == b.placement.has_value();
    if (same && a.placement)
      same = a.placement->experts == b.placement->experts &&
             a.placement->shards == b.placement->shards &&
             a.placement->slots == b.placement->slots;
    if (!same)
      return differs("layer ", a.index, ": expected the same experts and ",
                     "placement in all variants, got others");
  }
  return Status();
}

static Status compareEntries(const Manifest &grid, const EntrySpec &wanted,
                             const Manifest &other, const EntrySpec &got) {
  if (wanted.name != got.name || wanted.backward != got.backward ||
      wanted.update != got.update)
    return differs("expected entry '", wanted.name, "', got '", got.name, "'");
  if (wanted.ranks != got.ranks)
    return differs("expected ", wanted.ranks, " ranks, got ", got.ranks);
  if (wanted.routing != got.routing)
    return differs("expected ", wanted.routing, " results of routing, got ",
                   got.routing);
  if (wanted.residuals > 0 && got.residuals == 0)
    return differs("expected residuals, got none");
  MOIRA_RETURN_IF_ERROR(compareLayers(wanted, got));
  MOIRA_RETURN_IF_ERROR(compareTensors("input", wanted.inputs,
                                       residualInputs(grid, wanted), got.inputs,
                                       residualInputs(other, got)));
  auto ownResults = [](const EntrySpec &entry) {
    return std::vector<TensorSpec>(entry.results.begin(),
                                   entry.results.begin() + entry.ownResults());
  };
  return compareTensors("result", ownResults(wanted), 0, ownResults(got), 0);
}

/// Adds the variants of an entry that is the same but for residuals.
static void addVariants(EntrySpec &entry, const EntrySpec &other) {
  std::vector<TensorSpec> residuals(other.results.begin() + other.ownResults(),
                                    other.results.end());
  bool sameResiduals = std::equal(residuals.begin(), residuals.end(),
                                  entry.results.begin() + entry.ownResults(),
                                  entry.results.end(), isSame);
  for (VariantSpec variant : other.variants) {
    if (!sameResiduals)
      variant.residuals = residuals;
    entry.variants.push_back(std::move(variant));
  }
  // With several copies of a row each has a part of the work only.
  for (size_t i = 0; i < entry.layers.size(); ++i)
    entry.layers[i].flopsPerRow =
        std::max(entry.layers[i].flopsPerRow, other.layers[i].flopsPerRow);
}

Status runtime::mergeVariants(Manifest &grid, const Manifest &other) {
  if (grid.entries.size() != other.entries.size())
    return differs("expected ", grid.entries.size(), " entries, got ",
                   other.entries.size());
  MOIRA_RETURN_IF_ERROR(compareParameters(grid, other));
  for (size_t i = 0; i < grid.entries.size(); ++i)
    MOIRA_RETURN_IF_ERROR(
        compareEntries(grid, grid.entries[i], other, other.entries[i])
            .within(concat("entry '", grid.entries[i].name, "'")));
  for (size_t i = 0; i < grid.entries.size(); ++i)
    if (grid.entries[i].update.empty())
      addVariants(grid.entries[i], other.entries[i]);
  return Status();
}

/// A bundle's manifest with all grids changed.
template <typename Change>
static Result<std::string> rewrite(std::string_view json,
                                   const Change &change) {
  Result<std::vector<int32_t>> known = listGrids(json);
  if (!known.ok())
    return known.status();
  std::vector<GridManifest> grids;
  for (int32_t ranks : *known) {
    Result<Manifest> manifest = Manifest::parse(json, ranks);
    if (!manifest.ok())
      return manifest.status();
    change(ranks, *manifest);
    grids.push_back({ranks, std::move(*manifest)});
  }
  return serializeGrids(grids);
}

Result<std::string> runtime::qualifyVariants(
    std::string_view json, int32_t ranks, const std::string &entry,
    bool backward,
    const std::vector<std::pair<std::string, std::string>> &levels) {
  auto mark = [&](Manifest &manifest, const std::string &name) {
    int index = manifest.findEntry(name);
    if (index < 0)
      return;
    for (VariantSpec &variant : manifest.entries[index].variants)
      for (const auto &[of, level] : levels)
        if (variant.name == of)
          variant.qualified = level;
  };
  return rewrite(json, [&](int32_t grid, Manifest &manifest) {
    if (grid != ranks)
      return;
    mark(manifest, entry);
    int index = manifest.findEntry(entry);
    if (backward && index >= 0)
      mark(manifest, manifest.entries[index].backward);
  });
}

Result<std::string> runtime::addNotes(std::string_view json,
                                      const std::vector<std::string> &notes) {
  return rewrite(json, [&](int32_t, Manifest &manifest) {
    manifest.notes.insert(manifest.notes.end(), notes.begin(), notes.end());
  });
}
