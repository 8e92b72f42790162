// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// moira-import: from a checkpoint folder to a program in the `moe` dialect.

#include "ProgramWriter.h"
#include "RandomCheckpoint.h"

#include "io/AtomicFile.h"
#include "io/MappedFile.h"
#include "io/Safetensors.h"

#include "llvm/Support/CommandLine.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"

using namespace moira;
using namespace moira::import;
namespace cl = llvm::cl;

static cl::OptionCategory category("moira-import options");

static cl::opt<std::string> checkpointPath(cl::Positional,
                                           cl::desc("CHECKPOINT_FOLDER"),
                                           cl::cat(category));
static cl::opt<std::string>
    outputPath("o",
               cl::desc("Where to write the program (default: standard "
                        "output)"),
               cl::value_desc("file"), cl::init("-"), cl::cat(category));
static cl::opt<int64_t> layerNumber("layer",
                                    cl::desc("Layer to import (default: the "
                                             "first that has experts)"),
                                    cl::init(-1), cl::cat(category));
static cl::opt<io::DataType>
    rowType("dtype",
            cl::desc("Type of rows and weights instead of the checkpoint's"),
            cl::values(clEnumValN(io::DataType::F32, "f32", "32 bits"),
                       clEnumValN(io::DataType::BF16, "bf16", "bfloat16"),
                       clEnumValN(io::DataType::F16, "f16", "IEEE half")),
            cl::cat(category));
static cl::opt<bool>
    configOnly("config-only",
               cl::desc("Read config.json alone and name the tensors as "
                        "published checkpoints do"),
               cl::cat(category));

static cl::opt<bool>
    stacked("stacked",
            cl::desc("With --config-only: name the tensors as the framework "
                     "keeps them in memory, all experts in one"),
            cl::cat(category));
static cl::opt<bool>
    routerLogits("router-logits",
                 cl::desc("The program also returns the router's logits"),
                 cl::cat(category));

static cl::opt<std::string>
    randomPath("make-random",
               cl::desc("Write a checkpoint with random weights instead"),
               cl::value_desc("folder"), cl::cat(category));
static cl::opt<Family> randomFamily(
    "model", cl::desc("Model of --make-random"),
    cl::values(clEnumValN(Family::Olmoe, "olmoe", "OLMoE-1B-7B"),
               clEnumValN(Family::Mixtral, "mixtral", "Mixtral-8x7B"),
               clEnumValN(Family::Qwen3, "qwen3", "Qwen3-30B-A3B")),
    cl::init(Family::Olmoe), cl::cat(category));
static cl::opt<bool> randomTiny("tiny",
                                cl::desc("Small dimensions for --make-random"),
                                cl::cat(category));
static cl::opt<uint64_t> randomSeed("seed", cl::desc("Seed of --make-random"),
                                    cl::init(0), cl::cat(category));

static std::optional<io::DataType> requestedType() {
  if (rowType.getNumOccurrences() == 0)
    return std::nullopt;
  return rowType.getValue();
}

static llvm::Error makeRandom() {
  RandomCheckpoint options;
  options.family = randomFamily;
  options.tiny = randomTiny;
  options.dtype = requestedType();
  options.seed = randomSeed;
  llvm::Expected<int64_t> bytes = writeRandomCheckpoint(randomPath, options);
  if (!bytes)
    return bytes.takeError();
  llvm::errs() << randomPath << ": " << *bytes << " bytes of random weights\n";
  return llvm::Error::success();
}

/// The layer asked for, or the first with experts.
static llvm::Expected<int64_t> chooseLayer(const ModelConfig &config,
                                           const std::string &configPath) {
  if (layerNumber.getNumOccurrences() == 0) {
    for (int64_t layer = 0; layer < config.layers; ++layer)
      if (config.hasExperts(layer))
        return layer;
    return makeError(configPath + ": expected a layer with experts, got none");
  }
  if (layerNumber < 0 || layerNumber >= config.layers)
    return makeError(configPath + ": expected a layer from 0 to " +
                     llvm::Twine(config.layers - 1) + ", got " +
                     llvm::Twine(layerNumber));
  if (!config.hasExperts(layerNumber))
    return makeError(configPath + ": layer " + llvm::Twine(layerNumber) +
                     ": expected a layer with experts, got a dense one");
  return layerNumber.getValue();
}

static llvm::Expected<std::string> importLayer() {
  std::string configPath = checkpointPath + "/config.json";
  auto file = io::MappedFile::open(configPath);
  if (!file.ok())
    return makeError(file.status().message);
  llvm::StringRef text(reinterpret_cast<const char *>((*file)->data()),
                       (*file)->size());
  llvm::Expected<ModelConfig> config = parseModelConfig(text, configPath);
  if (!config)
    return config.takeError();
  llvm::Expected<int64_t> layer = chooseLayer(*config, configPath);
  if (!layer)
    return layer.takeError();
  if (config->topK > config->experts)
    llvm::errs() << "moira-import: warning: " << configPath
                 << ": key 'num_experts_per_tok': expected at most "
                 << config->experts << ", got " << config->topK
                 << "; every expert is chosen\n";

  LayerWeights weights = stacked ? frameworkNames(*config, *layer)
                                 : publishedNames(*config, *layer);
  if (!configOnly) {
    auto checkpoint = io::Safetensors::open(checkpointPath);
    if (!checkpoint.ok())
      return makeError(checkpoint.status().message);
    llvm::Expected<LayerWeights> found =
        findWeights(*config, *layer, **checkpoint);
    if (!found)
      return found.takeError();
    weights = *found;
  }
  if (std::optional<io::DataType> dtype = requestedType())
    config->dtype = dtype;
  if (!config->dtype)
    return makeError(configPath + ": key 'dtype': expected float32, bfloat16 "
                                  "or float16, got nothing; --dtype sets it");
  return writeProgram(*config, *layer, weights, routerLogits);
}

static llvm::Error run() {
  bool isRandom = !randomPath.empty();
  if (isRandom == !checkpointPath.empty())
    return makeError("expected either a checkpoint folder or --make-random");
  if (isRandom)
    return makeRandom();
  if (stacked && !configOnly)
    return makeError("--stacked: expected --config-only, since a checkpoint's "
                     "tensors have their names");
  llvm::Expected<std::string> program = importLayer();
  if (!program)
    return program.takeError();
  if (outputPath == "-") {
    llvm::outs() << *program;
    return llvm::Error::success();
  }
  Status status = io::writeFile(outputPath, program->data(),
                                static_cast<int64_t>(program->size()));
  return status.ok() ? llvm::Error::success() : makeError(status.message);
}

int main(int argc, char **argv) {
  cl::HideUnrelatedOptions(category);
  cl::ParseCommandLineOptions(
      argc, argv,
      "Moira's importer: from a folder with config.json and safetensors to a "
      "program\n");
  if (llvm::Error error = run()) {
    llvm::errs() << "moira-import: error: " << llvm::toString(std::move(error))
                 << "\n";
    return 1;
  }
  return 0;
}
