// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Options.h"

#include "support/Devices.h"

#include "llvm/Support/Path.h"

using namespace moira;
using namespace moira::tools;
namespace cl = llvm::cl;

/// More ranks than this is a mistake in an option.
static constexpr int64_t most = 65536;

llvm::Expected<std::optional<VariantOptions>>
tools::readVariants(const CommandLine &line, PipelineOptions &pipeline) {
  VariantOptions variants;
  if (!line.grid.empty())
    variants.grids.clear();
  for (const std::string &text : line.grid) {
    llvm::Expected<int64_t> ranks = readNumber("grid", text, 1, most);
    if (!ranks)
      return ranks.takeError();
    if (llvm::is_contained(variants.grids, *ranks))
      return llvm::createStringError(
          "--grid: expected each number of ranks once, got '" + text +
          "' twice");
    variants.grids.push_back(*ranks);
  }
  pipeline.ranks = variants.grids.front();
  if (line.variants.getNumOccurrences() > 0) {
    if (llvm::Error error =
            expectNone("variants", {line.copies, line.schedule, line.rows}))
      return std::move(error);
    if (llvm::Error error =
            parseVariants(line.variants.getValue(), variants, pipeline))
      return std::move(error);
    return variants;
  }
  if (variants.grids.size() == 1)
    return std::nullopt;
  variants.copies = {pipeline.copies};
  variants.schedules = {pipeline.schedule};
  return variants;
}

/// How the program is spread over ranks.
static llvm::Error readGrid(const CommandLine &line,
                            PipelineOptions &pipeline) {
  if (llvm::Error error = readInto(pipeline.copies, line.copies, 0, most))
    return error;
  if (llvm::Error error =
          readInto(pipeline.spareSlots, line.spareSlots, 0, most))
    return error;
  if (llvm::Error error =
          readInto(pipeline.hiddenBlocks, line.hiddenBlocks, 1, most))
    return error;
  std::optional<mlir::moe::Schedule> schedule =
      mlir::moe::symbolizeSchedule(line.schedule);
  if (!schedule)
    return llvm::createStringError(
        "--schedule: expected 'equal' or 'groups', got '" + line.schedule +
        "'");
  pipeline.schedule = *schedule;
  return llvm::Error::success();
}

/// What the program brings for training.
static llvm::Error readGradients(const CommandLine &line,
                                 PipelineOptions &pipeline) {
  pipeline.gradients = line.gradients;
  pipeline.recompute = line.recompute;
  pipeline.packGradients = line.packGradients;
  for (const std::string &rule : line.updates) {
    if (!llvm::is_contained({"sgd", "adam", "adamw"}, rule))
      return llvm::createStringError(
          "--optimizer: expected 'sgd', 'adam' or 'adamw', got '" + rule + "'");
    if (llvm::is_contained(pipeline.updates, rule))
      return llvm::createStringError(
          "--optimizer: expected each rule once, got '" + rule + "' twice");
    pipeline.updates.push_back(rule);
  }
  llvm::StringRef option = line.recompute          ? "--moe-recompute"
                           : line.packGradients    ? "--pack-gradients"
                           : !line.updates.empty() ? "--optimizer"
                                                   : "";
  if (!line.gradients && !option.empty())
    return llvm::createStringError(
        option + ": expected --gradients beside it, got none");
  return llvm::Error::success();
}

/// The GPU that steps run on, if they do.
static llvm::Error readTarget(const CommandLine &line, DeviceOptions &device) {
  for (const std::string &name : line.target) {
    if (name != "cpu" && name != "cuda" && name != "emulated")
      return llvm::createStringError(
          "--target: expected cpu, cuda or emulated, got '" + name + "'");
    if (name == "cpu" && line.target.size() > 1)
      return llvm::createStringError(
          "--target: expected cpu alone, or cuda and emulated, got both");
    device.ptx |= name == "cuda";
    device.emulated |= name == "emulated";
  }
  // Which checks a run will want is not known.
  device.instrument = device.emulated;
  if (device.ptx || device.emulated) {
    llvm::Expected<std::string> arch = readArchs(line.arch);
    if (!arch)
      return arch.takeError();
    device.arch = *arch;
  } else if (line.arch.getNumOccurrences() > 0) {
    return llvm::createStringError(
        "--arch: expected --target=cuda or emulated beside it, got neither");
  }
  return llvm::Error::success();
}

llvm::Expected<JitOptions> tools::makeOptions(const CommandLine &line) {
  JitOptions options;
  options.cpu = line.cpu;
  llvm::Expected<int64_t> level =
      readNumber("O", line.optLevel.getValue(), 0, 3);
  if (!level)
    return level.takeError();
  options.optLevel = *level;
  options.dumpDirectory = line.dumpPhases;
  options.pipeline.entry = line.entry;
  options.pipeline.oracle = line.oracle;
  llvm::Expected<mlir::moe::Fusions> disabled = readFusions(line.disableFusion);
  if (!disabled)
    return disabled.takeError();
  options.pipeline.disabledFusions = *disabled;
  options.pipeline.moduleName =
      line.input == "-" ? "stdin" : llvm::sys::path::filename(line.input).str();
  if (llvm::Error error = readGrid(line, options.pipeline))
    return std::move(error);
  if (llvm::Error error = readTarget(line, options.pipeline.device))
    return std::move(error);
  if (llvm::Error error = readGradients(line, options.pipeline))
    return std::move(error);
  if (!line.rows.empty())
    options.pipeline.rowClasses.clear();
  for (const std::string &name : line.rows) {
    std::optional<mlir::moe::RowClass> rows =
        mlir::moe::symbolizeRowClass(name);
    if (!rows)
      return llvm::createStringError(
          "--rows: expected 'decode' or 'prefill', got '" + name + "'");
    if (llvm::is_contained(options.pipeline.rowClasses, *rows))
      return llvm::createStringError("--rows: expected each class once, got '" +
                                     name + "' twice");
    options.pipeline.rowClasses.push_back(*rows);
  }
  return options;
}

llvm::Expected<Phase> tools::readPhase(const CommandLine &line,
                                       bool hasVariants) {
  if (line.compileTo.empty())
    return Phase::Target;
  std::optional<Phase> phase = symbolizePhase(line.compileTo);
  if (!phase)
    return llvm::createStringError(
        "--compile-to: expected input, sharded, "
        "differentiated, scheduled, kernels, bufferized or target, "
        "got '" +
        line.compileTo + "'");
  if (hasVariants && *phase != Phase::Target)
    return llvm::createStringError(
        "--compile-to: expected target where there are several variants or "
        "grids, got '" +
        line.compileTo + "' (--dump-phases writes all phases of each)");
  return *phase;
}
