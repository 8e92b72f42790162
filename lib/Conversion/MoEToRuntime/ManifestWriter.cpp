// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "ManifestWriter.h"

#include "WorkspaceBound.h"

#include "moira/Dialect/MoE/IR/MoEDialect.h"
#include "moira/abi.h"

using namespace mlir;
using namespace mlir::moe;
namespace json = llvm::json;

/// Rows from which a prefill variant is chosen when there is a decode variant.
static constexpr int64_t kPrefillRows = 64;

static std::string dtypeName(Type type) {
  if (type.isIndex())
    return "i64";
  std::string name;
  llvm::raw_string_ostream(name) << type;
  return name;
}

static json::Array shapeOf(ArrayRef<int64_t> shape) {
  json::Array result;
  for (int64_t size : shape)
    result.push_back(ShapedType::isDynamic(size) ? -1 : size);
  return result;
}

/// {"dtype", "shape"} of a tensor, a memref or a scalar.
static json::Object describe(Type type) {
  auto shaped = dyn_cast<ShapedType>(type);
  return json::Object{
      {"dtype", dtypeName(getElementTypeOrSelf(type))},
      {"shape", shaped ? shapeOf(shaped.getShape()) : json::Array()}};
}

static json::Object describe(PlacementAttr placement) {
  return json::Object{{"experts", placement.getExperts()},
                      {"shards", placement.getShards()},
                      {"copies", placement.getCopies()},
                      {"slots", placement.getSlots()}};
}

/// Which part of which slices of the checkpoint each slot of a rank holds.
static json::Object describe(ShardAttr shard) {
  return json::Object{{"experts", shard.getExperts()},
                      {"shards", shard.getShards()},
                      {"dim", shard.getDim().value_or(-1)},
                      {"parts", shard.getParts()},
                      {"interleaved", shard.getInterleaved()}};
}

ManifestWriter::ManifestWriter(StringRef moduleName, StringRef triple,
                               StringRef cpu, StringRef features)
    : header{{"moira",
              json::Object{{"version", "0.1.0"}, {"abi", MOIRA_ABI_VERSION}}},
             {"module", moduleName},
             {"target", json::Object{{"triple", triple},
                                     {"cpu", cpu},
                                     {"features", features}}}} {}

static DictionaryAttr variantOf(func::FuncOp step) {
  return step->getAttrOfType<DictionaryAttr>("moe.variant");
}

static StringRef entryName(func::FuncOp step) {
  return variantOf(step).getAs<StringAttr>("entry").getValue();
}

static StringRef variantName(func::FuncOp step) {
  return variantOf(step).getAs<StringAttr>("name").getValue();
}

ManifestWriter::Symbols ManifestWriter::getSymbols(func::FuncOp step) {
  std::string suffix = (entryName(step) + "_" + variantName(step)).str();
  return {"moira_step_" + suffix, "moira_workspace_" + suffix};
}

FailureOr<int64_t> ManifestWriter::addParameter(func::FuncOp step,
                                                unsigned argument) {
  auto param = step.getArgAttrOfType<ParamAttr>(argument, kParamAttrName);
  auto packing = step.getArgAttrOfType<DictionaryAttr>(argument, "moe.packing");
  auto packed = cast<MemRefType>(step.getArgumentTypes()[argument]);
  auto shard = step.getArgAttrOfType<ShardAttr>(argument, kShardAttrName);

  // Variants share parameters: one row per (name, part, layout).
  std::string key;
  llvm::raw_string_ostream(key)
      << param << " " << packing << " " << packed << " " << shard;
  auto [it, inserted] = parameterIndex.try_emplace(key, parameters.size());
  if (!inserted)
    return it->second;

  ShapedType logical = packed;
  StringRef function;
  if (packing) {
    logical = cast<ShapedType>(packing.getAs<TypeAttr>("logical").getValue());
    if (auto name = packing.getAs<FlatSymbolRefAttr>("function"))
      function = name.getValue();
  }
  bool stacked = param.getName().contains("{}");
  bool sliced = stacked || logical.getRank() == 3 || shard;
  int64_t slices = sliced ? logical.getDimSize(0) : 1;
  ArrayRef<int64_t> slice = logical.getShape();
  if (sliced)
    slice = slice.drop_front();
  SmallVector<int64_t> source(slice);
  if (source.size() == 2) {
    source[0] *= param.getParts();
    if (param.getTranspose())
      std::swap(source[0], source[1]);
  }
  if (slices > 0 && packed.getNumElements() % slices != 0)
    return step.emitOpError("expected whole packed slices of parameter '")
           << param.getName() << "', got " << packed;
  int64_t bytes = slices == 0 ? 0
                              : packed.getNumElements() / slices *
                                    getElementBytes(packed.getElementType());
  int64_t index = parameters.size();
  Pack pack{"moira_pack_" + std::to_string(index), function.str(), bytes};
  symbols.insert(pack.symbol);
  std::string layout = "plain";
  if (packed.getRank() >= 4)
    layout = "panel" + std::to_string(packed.getDimSize(3));
  if (packed.getRank() == 5)
    layout += "-pairs";
  // The program's own shape: all experts, and nothing cut.
  SmallVector<int64_t> program(logical.getShape());
  if (shard) {
    program[0] = shard.getExperts();
    if (std::optional<int64_t> dim = shard.getDim())
      program[*dim + 1] *= shard.getShards();
  }
  json::Object parameter{
      {"name", param.getName()},
      {"slices", slices},
      {"source", json::Object{{"dtype", dtypeName(logical.getElementType())},
                              {"shape", shapeOf(source)}}},
      {"stacked", stacked},
      {"logical_shape", shapeOf(program)},
      {"packed_slice_bytes", bytes},
      {"pack", pack.symbol},
      {"layout", layout}};
  if (shard)
    parameter["placement"] = describe(shard.getInFile(param, slice.size()));
  parameters.push_back(std::move(parameter));
  packs.push_back(std::move(pack));
  return index;
}

LogicalResult ManifestWriter::addStep(func::FuncOp step,
                                      SmallVectorImpl<int64_t> &indices) {
  StringRef name = entryName(step);
  auto [it, inserted] = entries.try_emplace(name);
  json::Object &entry = it->second;
  json::Array inputs;
  for (unsigned i = 1; i < step.getNumArguments(); ++i) {
    if (step.getArgAttr(i, kParamAttrName)) {
      FailureOr<int64_t> index = addParameter(step, i);
      if (failed(index))
        return failure();
      indices.push_back(*index);
      continue;
    }
    json::Object input = describe(step.getArgumentTypes()[i]);
    auto given = step.getArgAttrOfType<StringAttr>(i, "moe.name");
    input["name"] =
        given ? given.getValue().str() : "arg" + std::to_string(inputs.size());
    inputs.push_back(std::move(input));
  }
  if (inserted) {
    json::Array results, layers;
    for (Type type : step.getResultTypes())
      results.push_back(describe(type));
    if (auto list = step->getAttrOfType<ArrayAttr>("moe.layers"))
      for (auto layer : list.getAsRange<DictionaryAttr>()) {
        json::Object object;
        for (NamedAttribute field : layer) {
          json::Value &value = object[field.getName().getValue()];
          if (auto placement = dyn_cast<PlacementAttr>(field.getValue()))
            value = describe(placement);
          else
            value = cast<IntegerAttr>(field.getValue()).getInt();
        }
        layers.push_back(std::move(object));
      }
    auto dense = step->getAttrOfType<IntegerAttr>("moe.flops_per_token");
    entry = json::Object{{"name", name},
                         {"inputs", std::move(inputs)},
                         {"results", std::move(results)},
                         {"layers", std::move(layers)},
                         {"flops_per_token", dense ? dense.getInt() : 0},
                         {"variants", json::Array()}};
    if (auto ranks = step->getAttrOfType<IntegerAttr>("moe.ranks"))
      entry["ranks"] = ranks.getInt();
  }
  Symbols names = getSymbols(step);
  symbols.insert(names.step);
  symbols.insert(names.workspace);
  StringRef variant = variantName(step);
  auto numerics = step->getAttrOfType<StringAttr>(kNumericsAttrName);
  json::Array &variants = *entry.getArray("variants");
  int64_t minRows =
      variant == "prefill" && !variants.empty() ? kPrefillRows : 0;
  json::Object description{
      {"name", variant},
      {"row_class", variant},
      {"min_rows", minRows},
      {"step", names.step},
      {"workspace", names.workspace},
      {"numerics", numerics ? numerics.getValue() : "cpu-fma"},
      {"qualified", "none"}};
  if (auto schedule = step->getAttrOfType<ScheduleAttr>("moe.schedule"))
    description["schedule"] = stringifySchedule(schedule.getValue());
  variants.push_back(std::move(description));
  return success();
}

std::string ManifestWriter::serialize() const {
  json::Object manifest = header;
  json::Array list;
  for (const auto &entry : entries)
    list.push_back(json::Value(json::Object(entry.second)));
  manifest["entries"] = std::move(list);
  manifest["parameters"] = json::Array(parameters);
  std::string text;
  llvm::raw_string_ostream(text) << json::Value(std::move(manifest));
  return text;
}
