// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Entries and parameters of the manifest as JSON.

#include "session/ManifestGradients.h"
#include "session/ManifestLayers.h"
#include "session/ManifestParts.h"

using namespace moira;
using namespace moira::runtime;

/// A tensor that is an input where `named`, else a result.
static TensorSpec readTensor(const Reader &json, bool named) {
  TensorSpec tensor;
  tensor.name = named ? json.at("name").text() : json.textOr("name");
  tensor.dtype = json.at("dtype").dtype();
  tensor.shape = json.at("shape").shape(tensor.dtype, -1);
  if (!named && json.has("gradient"))
    tensor.gradient = readGradient(json.at("gradient"));
  return tensor;
}

static VariantSpec readVariant(const Reader &json) {
  VariantSpec variant;
  variant.name = json.at("name").word();
  variant.rowClass = json.textOr("row_class");
  variant.minRows = json.integerOr("min_rows", 0, 0);
  variant.step = json.at("step").word();
  variant.workspace = json.at("workspace").word();
  variant.shapes = json.textOr("shapes");
  variant.numerics = json.textOr("numerics");
  variant.qualified = json.textOr("qualified");
  variant.copies = json.has("copies") ? json.at("copies").small(-1) : -1;
  variant.peakBytes = json.integerOr("peak_bytes", 0, 0);
  if (json.has("residuals"))
    for (const Reader &item : json.at("residuals").items())
      variant.residuals.push_back(readTensor(item, /*named=*/false));
  variant.schedule = json.textOr("schedule");
  if (!variant.schedule.empty() && variant.schedule != "equal" &&
      variant.schedule != "groups")
    json.at("schedule")
        .fail("expected 'equal' or 'groups', got '" +
              Reader::printable(variant.schedule) + "'");
  return variant;
}

EntrySpec runtime::readEntry(const Reader &json) {
  EntrySpec entry;
  entry.name = json.at("name").word();
  entry.ranks = json.has("ranks") ? json.at("ranks").small(1) : 1;
  for (const Reader &item : json.at("inputs").items())
    entry.inputs.push_back(readTensor(item, /*named=*/true));
  for (const Reader &item : json.at("results").items())
    entry.results.push_back(readTensor(item, /*named=*/false));
  if (json.has("layers")) {
    std::unordered_set<int64_t> seen;
    for (const Reader &item : json.at("layers").items()) {
      entry.layers.push_back(readLayer(item, entry.ranks));
      int64_t index = entry.layers.back().index;
      if (!seen.insert(index).second)
        item.fail(concat("expected an index used once, got ", index, " again"));
    }
  }
  entry.flopsPerToken = json.integerOr("flops_per_token", 0, 0);
  entry.backward = json.textOr("backward");
  entry.update = json.textOr("update");
  entry.residuals = json.integerOr("residuals", 0, 0);
  int64_t results = entry.results.size();
  entry.routing = json.integerOr("routing", 0, 0);
  if (entry.residuals > results || entry.routing > results - entry.residuals) {
    json.fail(concat("expected at most the ", results, " results, got ",
                     entry.residuals, " residuals and ", entry.routing,
                     " of routing"));
    entry.residuals = entry.routing = 0;
  }
  Names names;
  for (const Reader &item : json.at("variants").items()) {
    entry.variants.push_back(readVariant(item));
    names.add(item, entry.variants.back().name);
  }
  if (entry.variants.empty())
    json.at("variants").fail("expected at least one variant, got none");
  return entry;
}

static ParameterPlacement readShards(const Reader &json,
                                     const ParameterSpec &parameter) {
  ParameterPlacement placement;
  placement.experts = json.at("experts").small(1);
  placement.shards = json.at("shards").small(1);
  placement.dim = json.has("dim") ? json.at("dim").small(-1) : -1;
  placement.parts = json.integerOr("parts", 1, 1);
  placement.interleaved =
      json.has("interleaved") && json.at("interleaved").flag();
  int32_t rank = parameter.sourceShape.size();
  if (placement.dim >= rank) {
    json.at("dim").fail(concat("expected -1 or a dim of the source of rank ",
                               rank, ", got ", placement.dim));
    placement.dim = -1;
  }
  if (placement.dim >= 0) {
    int64_t size = parameter.sourceShape[placement.dim];
    json.require(size <= INT64_MAX / placement.shards,
                 concat("expected dim ", placement.dim,
                        " of the file to fit 64 bits, got ", size, " * ",
                        placement.shards));
    json.require(size % placement.parts == 0,
                 concat("expected a multiple of ", placement.parts,
                        " parts in dim ", placement.dim, ", got ", size));
  } else {
    json.require(placement.parts == 1,
                 concat("expected a dim to find ", placement.parts,
                        " parts in, got none"));
  }
  return placement;
}

/// Sums that binding makes: packed bytes, and places in the file.
static void checkSizes(const Reader &json, const ParameterSpec &parameter) {
  int64_t bytes;
  if (__builtin_mul_overflow(parameter.slices, parameter.packedSliceBytes,
                             &bytes))
    json.at("packed_slice_bytes")
        .fail(concat("expected all slices to fit 64 bits, got ",
                     parameter.slices, " slices of ",
                     parameter.packedSliceBytes, " bytes"));
  // Slots with copies of a shard may be more than the file's slices.
  Shape slots = parameter.sourceShape, shards = slots;
  slots.insert(slots.begin(), parameter.slices);
  if (parameter.placement)
    shards.insert(shards.begin(), parameter.placement->units());
  for (const Shape &whole : {slots, shards})
    if (!compactBytes(parameter.sourceType, whole)) {
      json.at("source").fail(concat("expected all slices to fit 64 bits, got ",
                                    whole[0], " slices of ",
                                    toString(parameter.sourceShape)));
      return;
    }
}

ParameterSpec runtime::readParameter(const Reader &json) {
  ParameterSpec parameter;
  parameter.name = json.at("name").word();
  parameter.slices = json.at("slices").integer(1);
  Reader source = json.at("source");
  parameter.sourceType = source.at("dtype").dtype();
  parameter.sourceShape = source.at("shape").shape(parameter.sourceType, 0);
  parameter.stacked = json.at("stacked").flag();
  parameter.logicalShape =
      json.at("logical_shape").shape(parameter.sourceType, 0);
  parameter.packedSliceBytes = json.at("packed_slice_bytes").integer(0);
  parameter.pack = json.at("pack").word();
  parameter.layout = json.textOr("layout");
  if (json.has("placement")) {
    parameter.placement = readShards(json.at("placement"), parameter);
    json.at("slices").small(1); // slots are numbers of 32 bits
    bool whole = !parameter.logicalShape.empty() &&
                 parameter.logicalShape[0] == parameter.placement->experts;
    json.at("logical_shape")
        .require(whole, concat("expected all ", parameter.placement->experts,
                               " experts in dim 0, got ",
                               toString(parameter.logicalShape)));
  }
  checkSizes(json, parameter);
  if (json.has("packing"))
    parameter.packing = readPacking(json.at("packing"), parameter);
  if (parameter.stacked && parameter.name.find("{}") == std::string::npos)
    json.at("name").fail("expected '{}' in the name of a parameter with one "
                         "tensor per slice, got '" +
                         Reader::printable(parameter.name) + "'");
  return parameter;
}

static Json toJson(const TensorSpec &tensor) {
  Json json = Json::object();
  if (!tensor.name.empty())
    json["name"] = tensor.name;
  json["dtype"] = name(tensor.dtype);
  json["shape"] = tensor.shape;
  if (tensor.gradient)
    json["gradient"] = gradientToJson(*tensor.gradient);
  return json;
}

static Json toJson(const VariantSpec &variant) {
  Json json = {
      {"name", variant.name},           {"row_class", variant.rowClass},
      {"min_rows", variant.minRows},    {"step", variant.step},
      {"workspace", variant.workspace}, {"shapes", variant.shapes},
      {"numerics", variant.numerics},   {"qualified", variant.qualified},
      {"schedule", variant.schedule}};
  if (variant.copies >= 0)
    json["copies"] = variant.copies;
  if (variant.peakBytes > 0)
    json["peak_bytes"] = variant.peakBytes;
  for (const TensorSpec &residual : variant.residuals)
    json["residuals"].push_back(toJson(residual));
  return json;
}

Json runtime::entryToJson(const EntrySpec &entry) {
  Json json = {
      {"name", entry.name},       {"ranks", entry.ranks},
      {"inputs", Json::array()},  {"results", Json::array()},
      {"layers", Json::array()},  {"flops_per_token", entry.flopsPerToken},
      {"variants", Json::array()}};
  if (!entry.backward.empty()) {
    json["backward"] = entry.backward;
    json["residuals"] = entry.residuals;
    if (entry.routing > 0)
      json["routing"] = entry.routing;
  }
  if (!entry.update.empty())
    json["update"] = entry.update;
  for (const TensorSpec &input : entry.inputs) {
    json["inputs"].push_back(toJson(input));
    json["inputs"].back()["name"] = input.name;
  }
  for (const TensorSpec &result : entry.results)
    json["results"].push_back(toJson(result));
  for (const LayerSpec &layer : entry.layers)
    json["layers"].push_back(layerToJson(layer));
  for (const VariantSpec &variant : entry.variants)
    json["variants"].push_back(toJson(variant));
  return json;
}

Json runtime::parameterToJson(const ParameterSpec &parameter) {
  Json json = {{"name", parameter.name},
               {"slices", parameter.slices},
               {"source",
                {{"dtype", name(parameter.sourceType)},
                 {"shape", parameter.sourceShape}}},
               {"stacked", parameter.stacked},
               {"logical_shape", parameter.logicalShape},
               {"packed_slice_bytes", parameter.packedSliceBytes},
               {"pack", parameter.pack},
               {"layout", parameter.layout}};
  if (parameter.packing)
    json["packing"] = packingToJson(*parameter.packing);
  if (const auto &placement = parameter.placement)
    json["placement"] = {{"experts", placement->experts},
                         {"shards", placement->shards},
                         {"dim", placement->dim},
                         {"parts", placement->parts},
                         {"interleaved", placement->interleaved}};
  return json;
}
