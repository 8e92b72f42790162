// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "RandomCheckpoint.h"

#include "LayerWeights.h"

#include "base/Convert.h"
#include "io/AtomicFile.h"
#include "io/Safetensors.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"

#include <cmath>
#include <cstring>

using namespace moira;
using namespace moira::import;
using io::DataType;

namespace {
/// A tensor to be drawn.
struct Tensor {
  io::SafetensorsSpec spec;
  float bound; ///< values are uniform in (-bound, bound)
};

/// Tensors of one file.
struct Shard {
  std::vector<Tensor> tensors;
  int64_t bytes = 0;
};
} // namespace

//===----------------------------------------------------------------------===//
// Configurations
//===----------------------------------------------------------------------===//

static llvm::json::Object makeConfig(const RandomCheckpoint &options,
                                     DataType dtype) {
  bool tiny = options.tiny;
  llvm::json::Object config{{"hidden_act", "silu"},
                            {"num_hidden_layers", 1},
                            {"dtype", dtype == DataType::BF16  ? "bfloat16"
                                      : dtype == DataType::F16 ? "float16"
                                                               : "float32"}};
  auto set = [&](const char *key, llvm::json::Value value) {
    config[key] = std::move(value);
  };
  switch (options.family) {
  case Family::Olmoe: // OLMoE-1B-7B
    set("architectures", llvm::json::Array{"OlmoeForCausalLM"});
    set("model_type", "olmoe");
    set("hidden_size", tiny ? 40 : 2048);
    set("intermediate_size", tiny ? 24 : 1024);
    set("num_experts", tiny ? 16 : 64);
    set("num_experts_per_tok", tiny ? 4 : 8);
    set("norm_topk_prob", false);
    break;
  case Family::Mixtral: // Mixtral-8x7B
    set("architectures", llvm::json::Array{"MixtralForCausalLM"});
    set("model_type", "mixtral");
    set("hidden_size", tiny ? 64 : 4096);
    set("intermediate_size", tiny ? 224 : 14336);
    set("num_local_experts", 8);
    set("num_experts_per_tok", 2);
    break;
  case Family::Qwen3: // Qwen3-30B-A3B
    set("architectures", llvm::json::Array{"Qwen3MoeForCausalLM"});
    set("model_type", "qwen3_moe");
    set("hidden_size", tiny ? 32 : 2048);
    set("moe_intermediate_size", tiny ? 12 : 768);
    set("num_experts", tiny ? 32 : 128);
    set("num_experts_per_tok", 8);
    set("norm_topk_prob", true);
    break;
  }
  return config;
}

//===----------------------------------------------------------------------===//
// Values
//===----------------------------------------------------------------------===//

/// The finalizer of SplitMix64: all bits of the result depend on all of `x`.
static uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

/// Element `index` of the tensor with this key, in (-1, 1); four elements share
/// one mixed word.
static float draw(uint64_t word, int lane) {
  int16_t value = static_cast<int16_t>(word >> 16 * lane);
  return (static_cast<float>(value) + 0.5f) / 32768.0f;
}

/// Rounds to nearest even; no value here is infinite or NaN.
static uint16_t roundToBf16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/// Fills `out` with `words` * 4 elements, the first of which has index
/// 4 * `firstWord`.
template <typename T, typename Convert>
static void fill(T *out, uint64_t key, int64_t firstWord, int64_t words,
                 float bound, Convert convert) {
  for (int64_t i = 0; i < words; ++i) {
    uint64_t word = mix(key + static_cast<uint64_t>(firstWord + i));
    for (int lane = 0; lane < 4; ++lane)
      out[4 * i + lane] = convert(bound * draw(word, lane));
  }
}

static Status writeValues(io::AtomicFile &file, const Tensor &tensor,
                          uint64_t key) {
  constexpr int64_t pieceWords = 1 << 16;
  int64_t size = runtime::byteSize(tensor.spec.dtype);
  int64_t elements =
      *io::shapeBytes(tensor.spec.shape, tensor.spec.dtype) / size;
  std::vector<char> buffer(4 * pieceWords * size);
  for (int64_t first = 0; first < elements; first += 4 * pieceWords) {
    int64_t count = std::min(elements - first, 4 * pieceWords);
    int64_t words = (count + 3) / 4;
    switch (tensor.spec.dtype) {
    case DataType::BF16:
      fill(reinterpret_cast<uint16_t *>(buffer.data()), key, first / 4, words,
           tensor.bound, roundToBf16);
      break;
    case DataType::F16:
      fill(reinterpret_cast<uint16_t *>(buffer.data()), key, first / 4, words,
           tensor.bound, [](float value) { return runtime::toHalf(value); });
      break;
    default:
      fill(reinterpret_cast<float *>(buffer.data()), key, first / 4, words,
           tensor.bound, [](float value) { return value; });
      break;
    }
    MOIRA_RETURN_IF_ERROR(file.write(buffer.data(), count * size));
  }
  return Status();
}

//===----------------------------------------------------------------------===//
// Files
//===----------------------------------------------------------------------===//

/// The layer's tensors, spread over files of about `shardBytes`.
static std::vector<Shard> planShards(const ModelConfig &config,
                                     int64_t shardBytes) {
  std::vector<Shard> shards(1);
  auto add = [&](const std::string &name, int64_t rows, int64_t columns,
                 float gain) {
    Tensor tensor{{name, *config.dtype, {rows, columns}},
                  // A uniform value of variance 1 / columns, times the gain.
                  gain * std::sqrt(3.0f / static_cast<float>(columns))};
    int64_t bytes = *io::shapeBytes(tensor.spec.shape, tensor.spec.dtype);
    if (shards.back().bytes != 0 && shards.back().bytes + bytes > shardBytes)
      shards.emplace_back();
    shards.back().tensors.push_back(std::move(tensor));
    shards.back().bytes += bytes;
  };
  LayerWeights names = publishedNames(config, /*layer=*/0);
  // Logits of deviation 2 for rows of deviation 1: some experts stand out.
  add(names.router, config.experts, config.hidden, 2.0f);
  for (int64_t e = 0; e < config.experts; ++e) {
    auto of = [&](std::string name) {
      return name.replace(name.find("{}"), 2, std::to_string(e));
    };
    add(of(names.gate), config.width, config.hidden, 1.0f);
    add(of(names.up), config.width, config.hidden, 1.0f);
    add(of(names.down), config.hidden, config.width, 1.0f);
  }
  return shards;
}

static Status writeShard(const std::string &path, const Shard &shard,
                         uint64_t seed, uint64_t &counter) {
  auto file = io::AtomicFile::create(path);
  if (!file.ok())
    return file.status();
  std::vector<io::SafetensorsSpec> specs;
  for (const Tensor &tensor : shard.tensors)
    specs.push_back(tensor.spec);
  std::string header = io::safetensorsHeader(specs, {{"format", "pt"}});
  MOIRA_RETURN_IF_ERROR(
      file->write(header.data(), static_cast<int64_t>(header.size())));
  for (const Tensor &tensor : shard.tensors)
    MOIRA_RETURN_IF_ERROR(
        writeValues(*file, tensor, mix(mix(seed) + counter++)));
  return file->commit();
}

/// "model-00001-of-00004.safetensors", as published checkpoints count.
static std::string shardName(size_t number, size_t shards) {
  std::string name;
  llvm::raw_string_ostream(name)
      << llvm::format("model-%05zu-of-%05zu.safetensors", number, shards);
  return name;
}

static Status writeJson(const std::string &path, llvm::json::Value value) {
  std::string text = llvm::formatv("{0:2}\n", value);
  return io::writeFile(path, text.data(), static_cast<int64_t>(text.size()));
}

llvm::Expected<int64_t>
import::writeRandomCheckpoint(const std::string &folder,
                              const RandomCheckpoint &options) {
  DataType dtype =
      options.dtype.value_or(options.tiny ? DataType::F32 : DataType::BF16);
  llvm::json::Value json = makeConfig(options, dtype);
  std::string configPath = folder + "/config.json";
  // Read back, so that the two descriptions of a configuration agree.
  llvm::Expected<ModelConfig> config =
      parseModelConfig(llvm::formatv("{0}", json).str(), configPath);
  if (!config)
    return config.takeError();
  if (std::error_code error = llvm::sys::fs::create_directories(folder))
    return makeError(folder + ": cannot create: " + error.message());

  std::vector<Shard> shards = planShards(*config, options.shardBytes);
  llvm::json::Object map;
  int64_t total = 0;
  uint64_t counter = 0;
  for (size_t i = 0; i < shards.size(); ++i) {
    std::string name = shardName(i + 1, shards.size());
    Status status =
        writeShard(folder + "/" + name, shards[i], options.seed, counter);
    if (!status.ok())
      return makeError(status.message);
    for (const Tensor &tensor : shards[i].tensors)
      map[tensor.spec.name] = name;
    total += shards[i].bytes;
  }
  Status status =
      writeJson(folder + "/model.safetensors.index.json",
                llvm::json::Object{
                    {"metadata", llvm::json::Object{{"total_size", total}}},
                    {"weight_map", std::move(map)}});
  if (status.ok())
    status = writeJson(configPath, std::move(json));
  if (!status.ok())
    return makeError(status.message);
  return total;
}
