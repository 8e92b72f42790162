// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "session/ManifestLayers.h"

using namespace moira;
using namespace moira::runtime;

static LayerPlacement readPlacement(const Reader &json, const LayerSpec &layer,
                                    int32_t ranks) {
  LayerPlacement placement;
  placement.experts = json.at("experts").small(1);
  placement.shards = json.at("shards").small(1);
  placement.copies = json.at("copies").small(0);
  placement.slots = json.at("slots").small(1);
  json.at("experts").require(placement.experts == layer.experts,
                             concat("expected the layer's ", layer.experts,
                                    " experts, got ", placement.experts));
  json.at("copies").require(
      placement.copies == 0 || placement.shards % placement.copies == 0,
      concat("expected 0 or a divisor of the ", placement.shards,
             " shards, got ", placement.copies));
  json.at("slots").require(
      int64_t(ranks) * placement.slots >= placement.units(),
      concat("expected slots for ", placement.units(), " shards, got ",
             placement.slots, " on each of ", ranks, " ranks"));
  return placement;
}

static LayerCostSpec readCost(const Reader &json) {
  LayerCostSpec cost;
  cost.rowBytes = json.at("row_bytes").integer(0);
  cost.resultBytes = json.at("result_bytes").integer(0);
  cost.partialBytes = json.at("partial_bytes").integer(0);
  cost.resultGradientBytes = json.at("result_gradient_bytes").integer(0);
  cost.rowGradientBytes = json.at("row_gradient_bytes").integer(0);
  cost.hiddenBytes = json.at("hidden_bytes").integer(0);
  for (const Reader &item : json.at("weights").items()) {
    LayerWeightSpec weight;
    weight.parameter = item.at("parameter").integer(0);
    weight.bytes = item.at("bytes").integer(0);
    weight.gradientBytes = item.integerOr("gradient_bytes", 0, 0);
    weight.replicated = item.has("replicated") && item.at("replicated").flag();
    cost.weights.push_back(weight);
  }
  return cost;
}

LayerSpec runtime::readLayer(const Reader &json, int32_t ranks) {
  LayerSpec layer;
  layer.index = json.at("index").integer(0);
  layer.experts = json.at("experts").integer(1);
  layer.topK = json.at("top_k").integer(0);
  layer.flopsPerRow = json.integerOr("flops_per_row", 0, 0);
  if (json.has("placement"))
    layer.placement = readPlacement(json.at("placement"), layer, ranks);
  if (json.has("cost"))
    layer.cost = readCost(json.at("cost"));
  return layer;
}

static Json toJson(const LayerCostSpec &cost) {
  Json json = {{"row_bytes", cost.rowBytes},
               {"result_bytes", cost.resultBytes},
               {"partial_bytes", cost.partialBytes},
               {"result_gradient_bytes", cost.resultGradientBytes},
               {"row_gradient_bytes", cost.rowGradientBytes},
               {"hidden_bytes", cost.hiddenBytes},
               {"weights", Json::array()}};
  for (const LayerWeightSpec &weight : cost.weights)
    json["weights"].push_back({{"parameter", weight.parameter},
                               {"bytes", weight.bytes},
                               {"gradient_bytes", weight.gradientBytes},
                               {"replicated", weight.replicated}});
  return json;
}

Json runtime::layerToJson(const LayerSpec &layer) {
  Json json = {{"index", layer.index},
               {"experts", layer.experts},
               {"top_k", layer.topK},
               {"flops_per_row", layer.flopsPerRow}};
  if (const auto &placement = layer.placement)
    json["placement"] = {{"experts", placement->experts},
                         {"shards", placement->shards},
                         {"copies", placement->copies},
                         {"slots", placement->slots}};
  if (layer.cost)
    json["cost"] = toJson(*layer.cost);
  return json;
}

/// Checks that the weights of a layer are rows of the table.
static void checkCost(const Reader &json, const LayerSpec &layer,
                      const Manifest &manifest) {
  std::vector<Reader> items = json.at("weights").items();
  for (size_t i = 0; i < items.size(); ++i) {
    const LayerWeightSpec &weight = layer.cost->weights[i];
    int64_t rows = manifest.parameters.size();
    if (weight.parameter >= rows) {
      items[i]
          .at("parameter")
          .fail(concat("expected a row below ", rows, ", got ",
                       weight.parameter));
      continue;
    }
    int64_t bytes = manifest.parameters[weight.parameter].packedSliceBytes;
    items[i].at("bytes").require(
        weight.bytes == bytes,
        concat("expected the ", bytes, " bytes of a slice of row ",
               weight.parameter, ", got ", weight.bytes));
  }
}

/// Checks that r of a variant is one that its layers can have.
static void checkCopies(const Reader &json, const VariantSpec &variant,
                        const EntrySpec &entry) {
  if (variant.copies < 0)
    return;
  for (const LayerSpec &layer : entry.layers)
    if (layer.placement && variant.copies > 0)
      json.at("copies").require(layer.placement->shards % variant.copies == 0,
                                concat("expected 0 or a divisor of the ",
                                       layer.placement->shards, " shards, got ",
                                       variant.copies));
}

void runtime::checkLayers(const Reader &entries, const Manifest &manifest) {
  std::vector<Reader> items = entries.items();
  for (size_t i = 0; i < manifest.entries.size(); ++i) {
    const EntrySpec &entry = manifest.entries[i];
    std::vector<Reader> variants = items[i].at("variants").items();
    for (size_t v = 0; v < variants.size(); ++v)
      checkCopies(variants[v], entry.variants[v], entry);
    for (size_t l = 0; l < entry.layers.size(); ++l)
      if (entry.layers[l].cost)
        checkCost(items[i].at("layers").items()[l].at("cost"), entry.layers[l],
                  manifest);
  }
}
