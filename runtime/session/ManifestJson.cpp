// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The manifest as JSON. The reader sees foreign bytes: every value is checked
// where it is read, and the first error ends the reading.

#include "session/Manifest.h"

#include <nlohmann/json.hpp>
#include <unordered_set>

using namespace moira;
using namespace moira::runtime;
// Keys stay in the order in which they are written.
using Json = nlohmann::ordered_json;

/// Limits that no program comes near; they keep sums in range.
static constexpr size_t maxRank = 16;

namespace {
/// A place in the document, and the first error. After an error every read
/// gives a default.
class Reader {
public:
  Reader(const Json *value, std::string path, Status &error)
      : value(value), path(std::move(path)), error(error) {}

  void fail(const std::string &what) const {
    if (error.ok())
      error = Status(MOIRA_DATA_LOSS, "manifest: " + place() + what);
  }

  Reader at(const char *key) const {
    const Json *member = find(key);
    Reader child(member, path.empty() ? key : path + "." + key, error);
    if (!member)
      child.fail("expected a value, got none");
    return child;
  }
  bool has(const char *key) const { return find(key) != nullptr; }

  std::string text() const {
    if (value && value->is_string())
      return value->get<std::string>();
    mismatch("a string");
    return {};
  }
  /// A string of at least one character.
  std::string word() const {
    std::string result = text();
    if (result.empty())
      fail("expected a string that is not empty");
    return result;
  }
  std::string textOr(const char *key) const {
    return has(key) ? at(key).text() : std::string();
  }
  bool flag() const {
    if (value && value->is_boolean())
      return value->get<bool>();
    mismatch("true or false");
    return false;
  }
  /// An integer of at least `minimum`.
  int64_t integer(int64_t minimum) const {
    if (!value || !value->is_number_integer() ||
        (value->is_number_unsigned() &&
         value->get<uint64_t>() > uint64_t(INT64_MAX))) {
      mismatch("an integer of 64 bits");
      return minimum;
    }
    int64_t number = value->get<int64_t>();
    if (number >= minimum)
      return number;
    fail(concat("expected at least ", minimum, ", got ", number));
    return minimum;
  }
  int64_t integerOr(const char *key, int64_t minimum, int64_t other) const {
    return has(key) ? at(key).integer(minimum) : other;
  }
  DataType dtype() const {
    std::string spelled = text();
    std::optional<DataType> found = parseDataType(spelled);
    if (!found)
      fail("expected an element type (f32, f64, f16, bf16, i1, i8, i32, i64), "
           "got '" +
           printable(spelled) + "'");
    return found.value_or(DataType::F32);
  }
  /// Dims of at least `minimum`, whose product fits.
  Shape shape(DataType dtype, int64_t minimum) const {
    Shape dims;
    for (const Reader &item : items())
      dims.push_back(item.integer(minimum));
    if (dims.size() > maxRank)
      fail(concat("expected at most ", maxRank, " dims, got ", dims.size()));
    Shape known = dims;
    for (int64_t &dim : known)
      dim = dim < 0 ? 1 : dim;
    if (!compactBytes(dtype, known))
      fail("expected a size in bytes that fits 64 bits, got " + toString(dims));
    return dims;
  }
  /// The elements of an array.
  std::vector<Reader> items() const {
    std::vector<Reader> result;
    if (!value || !value->is_array()) {
      mismatch("an array");
      return result;
    }
    for (size_t i = 0; i < value->size(); ++i)
      result.emplace_back(&(*value)[i], concat(path, "[", i, "]"), error);
    return result;
  }

  /// A foreign string on one line of bounded length.
  static std::string printable(const std::string &text) {
    std::string result;
    for (char c : text.substr(0, 64))
      result += c >= 0x20 && c < 0x7f ? c : '?';
    return text.size() > 64 ? result + "..." : result;
  }

private:
  std::string place() const { return path.empty() ? "" : path + ": "; }

  const Json *find(const char *key) const {
    if (!value)
      return nullptr;
    if (!value->is_object()) {
      mismatch("an object");
      return nullptr;
    }
    auto found = value->find(key);
    return found == value->end() ? nullptr : &*found;
  }
  void mismatch(const char *wanted) const {
    fail(concat("expected ", wanted, ", got ",
                value ? value->type_name() : "none"));
  }

  const Json *value; ///< null where there is none
  std::string path;
  Status &error;
};

/// Finds a name that stands twice in a list.
class Names {
public:
  void add(const Reader &place, const std::string &name) {
    if (!name.empty() && !seen.insert(name).second)
      place.fail("expected a name used once, got '" + Reader::printable(name) +
                 "' again");
  }

private:
  std::unordered_set<std::string> seen;
};
} // namespace

static TensorSpec readTensor(const Reader &json, bool named) {
  TensorSpec tensor;
  tensor.name = named ? json.at("name").text() : json.textOr("name");
  tensor.dtype = json.at("dtype").dtype();
  tensor.shape = json.at("shape").shape(tensor.dtype, -1);
  return tensor;
}

static LayerSpec readLayer(const Reader &json) {
  LayerSpec layer;
  layer.index = json.at("index").integer(0);
  layer.experts = json.at("experts").integer(1);
  layer.topK = json.at("top_k").integer(0);
  layer.flopsPerRow = json.integerOr("flops_per_row", 0, 0);
  return layer;
}

static VariantSpec readVariant(const Reader &json) {
  VariantSpec variant;
  variant.name = json.at("name").word();
  variant.rowClass = json.textOr("row_class");
  variant.minRows = json.integerOr("min_rows", 0, 0);
  variant.step = json.at("step").word();
  variant.workspace = json.at("workspace").word();
  variant.numerics = json.textOr("numerics");
  variant.qualified = json.textOr("qualified");
  return variant;
}

static EntrySpec readEntry(const Reader &json) {
  EntrySpec entry;
  entry.name = json.at("name").word();
  for (const Reader &item : json.at("inputs").items())
    entry.inputs.push_back(readTensor(item, /*named=*/true));
  for (const Reader &item : json.at("results").items())
    entry.results.push_back(readTensor(item, /*named=*/false));
  if (json.has("layers")) {
    std::unordered_set<int64_t> seen;
    for (const Reader &item : json.at("layers").items()) {
      entry.layers.push_back(readLayer(item));
      int64_t index = entry.layers.back().index;
      if (!seen.insert(index).second)
        item.fail(concat("expected an index used once, got ", index, " again"));
    }
  }
  entry.flopsPerToken = json.integerOr("flops_per_token", 0, 0);
  Names names;
  for (const Reader &item : json.at("variants").items()) {
    entry.variants.push_back(readVariant(item));
    names.add(item, entry.variants.back().name);
  }
  if (entry.variants.empty())
    json.at("variants").fail("expected at least one variant, got none");
  return entry;
}

static ParameterSpec readParameter(const Reader &json) {
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

  int64_t bytes;
  if (__builtin_mul_overflow(parameter.slices, parameter.packedSliceBytes,
                             &bytes))
    json.at("packed_slice_bytes")
        .fail(concat("expected all slices to fit 64 bits, got ",
                     parameter.slices, " slices of ",
                     parameter.packedSliceBytes, " bytes"));
  Shape whole = parameter.sourceShape;
  whole.insert(whole.begin(), parameter.slices);
  if (!compactBytes(parameter.sourceType, whole))
    source.fail(concat("expected all slices to fit 64 bits, got ",
                       parameter.slices, " slices of ",
                       toString(parameter.sourceShape)));
  if (parameter.stacked && parameter.name.find("{}") == std::string::npos)
    json.at("name").fail("expected '{}' in the name of a parameter with one "
                         "tensor per slice, got '" +
                         Reader::printable(parameter.name) + "'");
  return parameter;
}

Result<Manifest> Manifest::parse(std::string_view json) {
  Json document = Json::parse(json.begin(), json.end(), nullptr,
                              /*allow_exceptions=*/false);
  if (document.is_discarded())
    return Status(MOIRA_DATA_LOSS, "manifest: expected JSON, got other text");
  Status error;
  Reader root(&document, "", error);
  Manifest manifest;
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
  Names names;
  for (const Reader &item : root.at("entries").items()) {
    if (!error.ok())
      break;
    manifest.entries.push_back(readEntry(item));
    names.add(item, manifest.entries.back().name);
  }
  for (const Reader &item : root.at("parameters").items()) {
    if (!error.ok())
      break;
    manifest.parameters.push_back(readParameter(item));
  }
  if (!error.ok())
    return error;
  return manifest;
}

static Json toJson(const TensorSpec &tensor) {
  Json json = Json::object();
  if (!tensor.name.empty())
    json["name"] = tensor.name;
  json["dtype"] = name(tensor.dtype);
  json["shape"] = tensor.shape;
  return json;
}

static Json toJson(const EntrySpec &entry) {
  Json json = {{"name", entry.name},
               {"inputs", Json::array()},
               {"results", Json::array()},
               {"layers", Json::array()},
               {"flops_per_token", entry.flopsPerToken},
               {"variants", Json::array()}};
  for (const TensorSpec &input : entry.inputs) {
    json["inputs"].push_back(toJson(input));
    json["inputs"].back()["name"] = input.name;
  }
  for (const TensorSpec &result : entry.results)
    json["results"].push_back(toJson(result));
  for (const LayerSpec &layer : entry.layers)
    json["layers"].push_back({{"index", layer.index},
                              {"experts", layer.experts},
                              {"top_k", layer.topK},
                              {"flops_per_row", layer.flopsPerRow}});
  for (const VariantSpec &variant : entry.variants)
    json["variants"].push_back({{"name", variant.name},
                                {"row_class", variant.rowClass},
                                {"min_rows", variant.minRows},
                                {"step", variant.step},
                                {"workspace", variant.workspace},
                                {"numerics", variant.numerics},
                                {"qualified", variant.qualified}});
  return json;
}

static Json toJson(const ParameterSpec &parameter) {
  return {{"name", parameter.name},
          {"slices", parameter.slices},
          {"source",
           {{"dtype", name(parameter.sourceType)},
            {"shape", parameter.sourceShape}}},
          {"stacked", parameter.stacked},
          {"logical_shape", parameter.logicalShape},
          {"packed_slice_bytes", parameter.packedSliceBytes},
          {"pack", parameter.pack},
          {"layout", parameter.layout}};
}

std::string Manifest::serialize() const {
  Json json = {{"moira", {{"version", version}, {"abi", abi}}},
               {"module", module},
               {"target",
                {{"triple", target.triple},
                 {"cpu", target.cpu},
                 {"features", target.features}}},
               {"entries", Json::array()},
               {"parameters", Json::array()}};
  for (const EntrySpec &entry : entries)
    json["entries"].push_back(toJson(entry));
  for (const ParameterSpec &parameter : parameters)
    json["parameters"].push_back(toJson(parameter));
  // Text that is no UTF-8 would throw; it becomes readable instead.
  return json.dump(1, ' ', false, Json::error_handler_t::replace);
}
