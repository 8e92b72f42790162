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

/// Which part of which slices of the checkpoint each slot of a rank holds.
static json::Object describe(ShardAttr shard) {
  return json::Object{{"experts", shard.getExperts()},
                      {"shards", shard.getShards()},
                      {"dim", shard.getDim().value_or(-1)},
                      {"parts", shard.getParts()},
                      {"interleaved", shard.getInterleaved()}};
}

/// Where the elements of a matrix stand, as numbers; see docs/bundle.md.
static json::Object describeForm(DictionaryAttr form) {
  json::Object object;
  for (NamedAttribute field : form) {
    if (auto list = dyn_cast<DenseI64ArrayAttr>(field.getValue()))
      object[field.getName().getValue()] = shapeOf(list.asArrayRef());
    else if (auto flag = dyn_cast<BoolAttr>(field.getValue()))
      object[field.getName().getValue()] = flag.getValue();
    else
      object[field.getName().getValue()] =
          cast<IntegerAttr>(field.getValue()).getInt();
  }
  return object;
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
  return {"moira_step_" + suffix, "moira_workspace_" + suffix,
          "moira_shapes_" + suffix};
}

/// What rows of one parameter, or of one part, have in common.
static std::string identify(func::FuncOp step, unsigned argument) {
  std::string text;
  llvm::raw_string_ostream(text)
      << step.getArgAttr(argument, kParamAttrName) << " "
      << step.getArgAttr(argument, kShardAttrName);
  return text;
}

FailureOr<int64_t> ManifestWriter::addParameter(func::FuncOp step,
                                                unsigned argument) {
  auto param = step.getArgAttrOfType<ParamAttr>(argument, kParamAttrName);
  auto packing = step.getArgAttrOfType<DictionaryAttr>(argument, "moe.packing");
  auto packed = cast<MemRefType>(step.getArgumentTypes()[argument]);
  auto shard = step.getArgAttrOfType<ShardAttr>(argument, kShardAttrName);

  SmallVector<int64_t> &rows = parameterRows[identify(step, argument)];
  // What nobody reads needs no row of its own: the way back names parameters
  // that it gives gradients of, and may read none of them.
  if (!rows.empty() && step.getArgument(argument).use_empty())
    return rows.front();

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
  rows.push_back(index);
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
  if (packing)
    if (auto form = packing.getAs<DictionaryAttr>("form"))
      parameter["packing"] = describeForm(form);
  if (shard)
    parameter["placement"] = describe(shard.getInFile(param, slice.size()));
  parameters.push_back(std::move(parameter));
  packs.push_back(std::move(pack));
  return index;
}

/// The parameters of a way back, each once and in order, parts of one tensor
/// apart: what its gradients belong to.
static SmallVector<ParamAttr> listParameters(func::FuncOp step) {
  SmallVector<ParamAttr> found;
  for (unsigned i = 1; i < step.getNumArguments(); ++i)
    if (auto param = step.getArgAttrOfType<ParamAttr>(i, kParamAttrName);
        param && !llvm::is_contained(found, param))
      found.push_back(param);
  return found;
}

/// The `nth` parameter of this name, or null.
static ParamAttr findParameter(ArrayRef<ParamAttr> parameters, StringRef name,
                               int64_t nth) {
  for (ParamAttr param : parameters)
    if (param.getName() == name && nth-- == 0)
      return param;
  return {};
}

FailureOr<json::Array>
ManifestWriter::describeResults(func::FuncOp step,
                                ArrayRef<int64_t> parameterIndex) {
  json::Array results;
  SmallVector<ParamAttr> parameters = listParameters(step);
  llvm::StringMap<int64_t> seen;
  for (auto [i, type] : llvm::enumerate(step.getResultTypes())) {
    json::Object result = describe(type);
    if (auto input =
            step.getResultAttrOfType<IntegerAttr>(i, kGradientOfAttrName))
      result["gradient"] = json::Object{{"input", input.getInt()}};
    if (auto name =
            step.getResultAttrOfType<StringAttr>(i, kGradientAttrName)) {
      // Parts of one tensor have one name: they follow each other in order.
      ParamAttr param =
          findParameter(parameters, name.getValue(), seen[name.getValue()]++);
      if (!param)
        return step.emitOpError("expected a parameter '")
               << name.getValue() << "' for the gradient that is result " << i
               << ", got none";
      json::Object gradient{{"parameter", name.getValue()}};
      int64_t next = 0;
      for (unsigned a = 1; a < step.getNumArguments(); ++a) {
        auto of = step.getArgAttrOfType<ParamAttr>(a, kParamAttrName);
        if (!of)
          continue;
        int64_t row = parameterIndex[next++];
        if (of != param)
          continue;
        gradients.push_back({entryName(step).str(), i, identify(step, a)});
        if (step.getResultAttr(i, "moe.packed_gradient") &&
            step.getArgumentTypes()[a] == type)
          gradient["packed_as"] = row;
      }
      result["gradient"] = std::move(gradient);
    }
    results.push_back(std::move(result));
  }
  return results;
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
    FailureOr<json::Array> results = describeResults(step, indices);
    if (failed(results))
      return failure();
    auto dense = step->getAttrOfType<IntegerAttr>("moe.flops_per_token");
    entry = json::Object{{"name", name},
                         {"inputs", std::move(inputs)},
                         {"results", std::move(*results)},
                         {"layers", describeLayers(step, indices)},
                         {"flops_per_token", dense ? dense.getInt() : 0},
                         {"variants", json::Array()}};
    if (auto ranks = step->getAttrOfType<IntegerAttr>("moe.ranks"))
      entry["ranks"] = ranks.getInt();
    if (auto rule = step->getAttrOfType<StringAttr>("moe.update"))
      entry["update"] = rule.getValue();
    if (auto back = step->getAttrOfType<FlatSymbolRefAttr>(kBackwardAttrName)) {
      entry["backward"] = back.getValue();
      auto count = step->getAttrOfType<IntegerAttr>(kResidualsAttrName);
      entry["residuals"] = count ? count.getInt() : 0;
      if (auto routing = step->getAttrOfType<IntegerAttr>(kRoutingAttrName))
        entry["routing"] = routing.getInt();
    }
  }
  Symbols names = getSymbols(step);
  symbols.insert(names.step);
  symbols.insert(names.workspace);
  symbols.insert(names.shapes);
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
      {"shapes", names.shapes},
      {"numerics", numerics ? numerics.getValue() : "cpu-fma"},
      {"qualified", "none"}};
  if (std::optional<int64_t> copies = getCopies(step))
    description["copies"] = *copies;
  if (auto schedule = step->getAttrOfType<ScheduleAttr>("moe.schedule"))
    description["schedule"] = stringifySchedule(schedule.getValue());
  variants.push_back(std::move(description));
  return success();
}

std::string ManifestWriter::serialize() const {
  json::Object manifest = header;
  json::Array list;
  for (const auto &entry : entries) {
    json::Object object(entry.second);
    // All rows are known now, also those that only other steps read.
    for (const Gradient &gradient : gradients)
      if (gradient.entry == entry.first)
        object.getArray("results")
            ->data()[gradient.result]
            .getAsObject()
            ->getObject("gradient")
            ->insert(
                {"rows", json::Array(parameterRows.lookup(gradient.identity))});
    list.push_back(json::Value(std::move(object)));
  }
  manifest["entries"] = std::move(list);
  manifest["parameters"] = json::Array(parameters);
  std::string text;
  llvm::raw_string_ostream(text) << json::Value(std::move(manifest));
  return text;
}
