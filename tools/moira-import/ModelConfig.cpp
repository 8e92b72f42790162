// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "ModelConfig.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/JSON.h"

using namespace moira;
using namespace moira::import;
using llvm::StringRef;
using llvm::Twine;

/// Far above any model, and low enough for products of three of them.
static constexpr int64_t largestDimension = 1 << 20;

StringRef import::familyName(Family family) {
  switch (family) {
  case Family::Olmoe:
    return "olmoe";
  case Family::Mixtral:
    return "mixtral";
  case Family::Qwen3:
    return "qwen3";
  }
  llvm_unreachable("unknown family");
}

llvm::Error import::makeError(const Twine &message) {
  return llvm::createStringError(llvm::inconvertibleErrorCode(), message);
}

bool ModelConfig::hasExperts(int64_t layer) const {
  return !llvm::is_contained(denseLayers, layer) &&
         (layer + 1) % sparseStep == 0;
}

namespace {
/// Typed access to the keys of the configuration; the first failure is kept.
class Reader {
public:
  Reader(const llvm::json::Object &object, StringRef path)
      : object(object), path(path) {}

  bool has(StringRef key) const {
    const llvm::json::Value *value = object.get(key);
    return value && value->kind() != llvm::json::Value::Null;
  }

  /// A required number from `lowest` to `highest`.
  int64_t integer(StringRef key, int64_t lowest = 1,
                  int64_t highest = largestDimension) {
    if (!has(key)) {
      fail(key, "an integer", "nothing");
      return lowest;
    }
    std::optional<int64_t> value = object.getInteger(key);
    if (!value || *value < lowest || *value > highest) {
      fail(key,
           "an integer from " + std::to_string(lowest) + " to " +
               std::to_string(highest),
           text(key));
      return lowest;
    }
    return *value;
  }

  bool boolean(StringRef key, bool otherwise) {
    if (!has(key))
      return otherwise;
    std::optional<bool> value = object.getBoolean(key);
    if (!value)
      fail(key, "true or false", text(key));
    return value.value_or(otherwise);
  }

  /// Empty when absent.
  StringRef string(StringRef key) {
    if (!has(key))
      return "";
    std::optional<StringRef> value = object.getString(key);
    if (!value)
      fail(key, "a string", text(key));
    return value.value_or("");
  }

  std::vector<int64_t> integers(StringRef key) {
    std::vector<int64_t> values;
    if (!has(key))
      return values;
    const llvm::json::Array *array = object.getArray(key);
    if (!array) {
      fail(key, "a list of integers", text(key));
      return values;
    }
    for (const llvm::json::Value &element : *array) {
      std::optional<int64_t> value = element.getAsInteger();
      if (!value)
        fail(key, "a list of integers", text(key));
      values.push_back(value.value_or(-1));
    }
    return values;
  }

  void fail(StringRef key, StringRef expected, StringRef got) {
    if (problem.empty())
      problem =
          (path + ": key '" + key + "': expected " + expected + ", got " + got)
              .str();
  }

  /// The value of a key that is there, on one short line.
  std::string text(StringRef key) const {
    std::string out;
    llvm::raw_string_ostream os(out);
    os << *object.get(key);
    return out.size() > 80 ? out.substr(0, 80) + "..." : out;
  }

  std::string problem;

private:
  const llvm::json::Object &object;
  StringRef path;
};
} // namespace

/// Whether brackets nest deeper than any configuration does. LLVM's parser
/// recurses, so that it must not see such a text.
static bool isTooDeep(StringRef text) {
  int depth = 0;
  bool inString = false;
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (inString) {
      i += c == '\\';
      inString = c != '"';
      continue;
    }
    inString = c == '"';
    depth += (c == '{' || c == '[') - (c == '}' || c == ']');
    if (depth > 64)
      return true;
  }
  return false;
}

static std::optional<Family> findFamily(StringRef modelType,
                                        StringRef architecture) {
  struct Known {
    StringRef modelType, architecture;
    Family family;
  };
  static const Known known[] = {
      {"olmoe", "OlmoeForCausalLM", Family::Olmoe},
      {"mixtral", "MixtralForCausalLM", Family::Mixtral},
      {"qwen3_moe", "Qwen3MoeForCausalLM", Family::Qwen3}};
  for (const Known &entry : known)
    if (modelType.empty() ? architecture == entry.architecture
                          : modelType == entry.modelType)
      return entry.family;
  return std::nullopt;
}

static Activation readActivation(Reader &reader) {
  StringRef name = reader.string("hidden_act");
  if (name.empty() || name == "silu")
    return Activation::Silu;
  if (name == "gelu")
    return Activation::Gelu;
  if (name == "relu")
    return Activation::Relu;
  reader.fail("hidden_act", "silu, gelu or relu", reader.text("hidden_act"));
  return Activation::Silu;
}

static std::optional<io::DataType> readType(Reader &reader) {
  // The key was renamed.
  StringRef key = reader.has("dtype") ? "dtype" : "torch_dtype";
  StringRef name = reader.string(key);
  name.consume_front("torch.");
  if (name.empty())
    return std::nullopt;
  if (name == "float32")
    return io::DataType::F32;
  if (name == "bfloat16")
    return io::DataType::BF16;
  if (name == "float16")
    return io::DataType::F16;
  reader.fail(key, "float32, bfloat16 or float16", reader.text(key));
  return std::nullopt;
}

/// The first of `architectures`, or an empty string.
static std::string readArchitecture(const llvm::json::Object &object) {
  const llvm::json::Array *array = object.getArray("architectures");
  if (!array || array->empty())
    return "";
  return array->front().getAsString().value_or("").str();
}

llvm::Expected<ModelConfig> import::parseModelConfig(StringRef text,
                                                     StringRef path) {
  if (isTooDeep(text))
    return makeError(path + ": nested too deeply");
  llvm::Expected<llvm::json::Value> value = llvm::json::parse(text);
  if (!value)
    return makeError(path +
                     ": malformed JSON: " + llvm::toString(value.takeError()));
  const llvm::json::Object *object = value->getAsObject();
  if (!object)
    return makeError(path + ": expected a JSON object");

  Reader reader(*object, path);
  ModelConfig config;
  StringRef modelType = reader.string("model_type");
  config.architecture = readArchitecture(*object);
  std::optional<Family> family = findFamily(modelType, config.architecture);
  if (!family) {
    bool typed = !modelType.empty();
    return makeError(
        path + ": key '" + (typed ? "model_type" : "architectures") +
        "': expected olmoe, mixtral or qwen3_moe, got " +
        io::quoteName(
            (typed ? modelType : StringRef(config.architecture)).str()));
  }
  config.family = *family;
  if (config.architecture.empty())
    config.architecture = modelType.str();
  if (reader.has("quantization_config"))
    reader.fail("quantization_config",
                "nothing (weights that are not "
                "quantized)",
                reader.text("quantization_config"));

  bool qwen3 = config.family == Family::Qwen3;
  bool mixtral = config.family == Family::Mixtral;
  config.layers = reader.integer("num_hidden_layers");
  config.hidden = reader.integer("hidden_size");
  config.width =
      reader.integer(qwen3 ? "moe_intermediate_size" : "intermediate_size");
  // Configurations written by newer versions use one key for all families.
  config.experts =
      reader.integer(mixtral || !reader.has("num_experts") ? "num_local_experts"
                                                           : "num_experts");
  config.topK = reader.integer("num_experts_per_tok");
  // Mixtral has no such key: it always normalizes.
  config.normalize = mixtral || reader.boolean("norm_topk_prob", false);
  config.activation = readActivation(reader);
  config.dtype = readType(reader);
  if (qwen3) {
    config.denseLayers = reader.integers("mlp_only_layers");
    if (reader.has("decoder_sparse_step"))
      config.sparseStep = reader.integer("decoder_sparse_step");
  }
  if (!reader.problem.empty())
    return makeError(reader.problem);
  return config;
}
