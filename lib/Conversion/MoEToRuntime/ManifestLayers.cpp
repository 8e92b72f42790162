// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "ManifestWriter.h"
#include "WorkspaceBound.h"

#include "moira/Dialect/MoE/IR/MoEDialect.h"

using namespace mlir;
using namespace mlir::moe;
namespace json = llvm::json;

static json::Object describe(PlacementAttr placement) {
  return json::Object{{"experts", placement.getExperts()},
                      {"shards", placement.getShards()},
                      {"copies", placement.getCopies()},
                      {"slots", placement.getSlots()}};
}

/// What MarkPartsPass has found out about the layers of a step.
static SmallVector<DictionaryAttr> getLayers(func::FuncOp step) {
  SmallVector<DictionaryAttr> layers;
  if (auto list = step->getAttrOfType<ArrayAttr>("moe.layers"))
    llvm::append_range(layers, list.getAsRange<DictionaryAttr>());
  return layers;
}

std::optional<int64_t> ManifestWriter::getCopies(func::FuncOp step) {
  for (DictionaryAttr layer : getLayers(step))
    if (auto placement = layer.getAs<PlacementAttr>("placement"))
      return placement.getCopies();
  return std::nullopt;
}

/// A way back knows of a layer what it computes with; the rest is the entry's.
void ManifestWriter::completeLayers(json::Array &layers) const {
  for (json::Value &layer : layers) {
    json::Object &object = *layer.getAsObject();
    for (const auto &entry : entries) {
      const json::Array *others = entry.second.getArray("layers");
      if (!others) // this entry itself
        continue;
      for (const json::Value &known : *others) {
        const json::Object &other = *known.getAsObject();
        if (other.getInteger("index") != object.getInteger("index"))
          continue;
        for (StringRef key : {"experts", "top_k"})
          if (object.getInteger(key).value_or(0) == 0)
            object[key] = *other.getInteger(key);
      }
    }
  }
}

/// Bytes of the program's part of a slot of a parameter, which its gradient is
/// like.
static int64_t getSliceBytes(func::FuncOp step, unsigned argument) {
  auto type = cast<ShapedType>(step.getArgumentTypes()[argument]);
  if (auto packing =
          step.getArgAttrOfType<DictionaryAttr>(argument, kPackingAttrName))
    type = cast<ShapedType>(packing.getAs<TypeAttr>("logical").getValue());
  return ShapedType::getNumElements(type.getShape().drop_front()) *
         getElementBytes(type.getElementType());
}

/// The parameters of a layer's experts: what a slot has of each.
json::Array ManifestWriter::describeWeights(func::FuncOp step,
                                            ArrayRef<int64_t> parameterIndex,
                                            ArrayAttr weights) const {
  json::Array list;
  for (Attribute weight : weights) {
    int64_t next = 0;
    bool isFirst = true;
    for (unsigned i = 1; i < step.getNumArguments(); ++i) {
      Attribute param = step.getArgAttr(i, kParamAttrName);
      if (!param)
        continue;
      int64_t row = parameterIndex[next++];
      if (param != weight)
        continue;
      const json::Object &known = *parameters[row].getAsObject();
      // Rows of one parameter have one gradient.
      int64_t gradient = isFirst ? getSliceBytes(step, i) : 0;
      isFirst = false;
      auto shard = step.getArgAttrOfType<ShardAttr>(i, kShardAttrName);
      list.push_back(json::Object{
          {"parameter", row},
          {"bytes", *known.getInteger("packed_slice_bytes")},
          {"gradient_bytes", gradient},
          {"replicated", shard && shard.getShards() > 1 && !shard.getDim()}});
    }
  }
  return list;
}

/// Adds what `moe.costs` says to the layer with this index.
void ManifestWriter::addCosts(func::FuncOp step,
                              ArrayRef<int64_t> parameterIndex, int64_t index,
                              json::Object &layer) const {
  auto costs = step->getAttrOfType<ArrayAttr>(kCostsAttrName);
  if (!costs)
    return;
  json::Object sum;
  json::Array weights;
  for (auto cost : costs.getAsRange<DictionaryAttr>()) {
    if (cost.getAs<IntegerAttr>("layer").getInt() != index)
      continue;
    for (NamedAttribute field : cost)
      if (auto bytes = dyn_cast<IntegerAttr>(field.getValue());
          bytes && field.getName() != "layer")
        sum[field.getName().getValue()] =
            sum.getInteger(field.getName().getValue()).value_or(0) +
            bytes.getInt();
    for (json::Value &weight : describeWeights(
             step, parameterIndex, cost.getAs<ArrayAttr>("weights")))
      weights.push_back(std::move(weight));
  }
  if (sum.empty())
    return;
  sum["weights"] = std::move(weights);
  layer["cost"] = std::move(sum);
}

json::Array
ManifestWriter::describeLayers(func::FuncOp step,
                               ArrayRef<int64_t> parameterIndex) const {
  json::Array layers;
  for (DictionaryAttr layer : getLayers(step)) {
    json::Object object;
    for (NamedAttribute field : layer) {
      json::Value &value = object[field.getName().getValue()];
      if (auto placement = dyn_cast<PlacementAttr>(field.getValue()))
        value = describe(placement);
      else
        value = cast<IntegerAttr>(field.getValue()).getInt();
    }
    addCosts(step, parameterIndex, layer.getAs<IntegerAttr>("index").getInt(),
             object);
    layers.push_back(std::move(object));
  }
  completeLayers(layers);
  return layers;
}
