// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Describe.h"

#include "session/Manifest.h"
#include "session/Predictions.h"
#include "support/CommandLine.h"

#include "llvm/Support/Format.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"

using namespace moira;
using namespace moira::tools;
using namespace moira::runtime;

/// The r of all variants, each once.
static std::string describeCopies(const EntrySpec &entry) {
  std::vector<int32_t> seen;
  std::string text;
  for (const VariantSpec &variant : entry.variants)
    if (!llvm::is_contained(seen, variant.copies)) {
      text += concat(seen.empty() ? ", r = " : " or ", variant.copies);
      seen.push_back(variant.copies);
    }
  return text;
}

static std::string describeTensor(const TensorSpec &spec) {
  std::string type = toString(spec.dtype, spec.shape);
  return spec.name.empty() ? type : spec.name + ": " + type;
}

/// Whose times are predicted.
static std::string machineOf(const std::optional<Calibration> &calibration) {
  if (!calibration)
    return "an assumed machine (no --calibration)";
  return calibration->machine.empty() ? "a measured machine"
                                      : calibration->machine;
}

static llvm::Error
describeVariants(const EntrySpec &entry,
                 const std::optional<Calibration> &calibration,
                 llvm::raw_ostream &stream) {
  Result<std::vector<VariantPrediction>> predictions =
      predictVariants(entry, predictedRows, calibration);
  if (!predictions.ok())
    return toError(predictions.status());
  if (!predictions->empty())
    stream << "  predicted  on " << machineOf(calibration)
           << ", for experts and exchanges of " << predictedRows
           << " tokens a rank, spread evenly"
           << (entry.backward.empty() ? "" : ", way back included") << '\n';
  for (auto [i, variant] : llvm::enumerate(entry.variants)) {
    stream << "  variant    " << variant.name << ", from " << variant.minRows
           << " rows, numerics " << variant.numerics
           << ", qualified: " << variant.qualified
           << (variant.schedule.empty() ? "" : ", chunks ") << variant.schedule;
    if (i < predictions->size())
      stream << ", predicted " << formatSeconds((*predictions)[i].seconds)
             << " and " << formatBytes((*predictions)[i].peakBytes);
    stream << '\n';
  }
  return llvm::Error::success();
}

static llvm::Error describeEntry(const EntrySpec &entry,
                                 const std::optional<Calibration> &calibration,
                                 llvm::raw_ostream &stream) {
  stream << "entry " << entry.name;
  if (entry.ranks > 1)
    stream << ", on " << entry.ranks << " ranks";
  stream << '\n';
  for (const TensorSpec &input : entry.inputs)
    stream << "  input      " << describeTensor(input) << '\n';
  for (const TensorSpec &result : entry.results)
    stream << "  result     " << describeTensor(result) << '\n';
  for (const LayerSpec &layer : entry.layers) {
    stream << llvm::formatv("  layer {0,-4} {1} experts, top {2}, {3} flops "
                            "per row and choice\n",
                            layer.index, layer.experts, layer.topK,
                            layer.flopsPerRow);
    if (const auto &placement = layer.placement)
      stream << "             on each rank " << placement->slots
             << (placement->slots == 1 ? " slot" : " slots") << ", experts in "
             << placement->shards
             << (placement->shards == 1 ? " shard" : " shards")
             << describeCopies(entry) << '\n';
  }
  if (!entry.backward.empty())
    stream << "  gradients  by " << entry.backward << ", from the last "
           << entry.residuals << " results\n";
  if (!entry.update.empty())
    stream << "  updates    by " << entry.update << '\n';
  stream << "  dense      " << entry.flopsPerToken << " flops per token\n";
  return describeVariants(entry, calibration, stream);
}

/// What of it a rank has.
static std::string describeShards(const ParameterSpec &parameter) {
  const std::optional<ParameterPlacement> &placement = parameter.placement;
  if (!placement)
    return {};
  if (placement->dim < 0)
    return concat(" on each rank, whole experts of ", placement->experts);
  std::string text =
      concat(" on each rank, shards of 1/", placement->shards, " of dim ",
             placement->dim, " of ", placement->experts, " experts");
  if (placement->parts > 1)
    text += concat(" (", placement->parts,
                   placement->interleaved ? " parts, interleaved)" : " parts)");
  return text;
}

static void describeParameters(const Manifest &manifest,
                               llvm::raw_ostream &stream) {
  int64_t all = 0;
  for (const ParameterSpec &parameter : manifest.parameters)
    all += parameter.packedBytes();
  stream << "parameters   " << manifest.parameters.size() << ", "
         << formatBytes(all) << " packed\n";
  for (const ParameterSpec &parameter : manifest.parameters)
    stream << "  " << parameter.name << ": "
           << toString(parameter.sourceType, parameter.logicalShape) << ", "
           << parameter.slices << (parameter.slices == 1 ? " slice" : " slices")
           << " of " << toString(parameter.sourceShape) << ", layout "
           << parameter.layout << ", " << formatBytes(parameter.packedBytes())
           << describeShards(parameter) << '\n';
}

/// Entries and parameters of one grid.
static llvm::Error describeGrid(const Manifest &manifest,
                                const std::optional<Calibration> &calibration,
                                llvm::raw_ostream &stream) {
  for (const EntrySpec &entry : manifest.entries)
    if (llvm::Error error = describeEntry(entry, calibration, stream))
      return error;
  describeParameters(manifest, stream);
  return llvm::Error::success();
}

llvm::Error tools::describe(const BundleContents &contents,
                            llvm::StringRef name,
                            const std::optional<Calibration> &calibration,
                            llvm::raw_ostream &stream) {
  Result<std::vector<int32_t>> grids = listGrids(contents.manifest);
  if (!grids.ok())
    return toError(grids.status().within(name.str()));
  Result<Manifest> manifest =
      Manifest::parse(contents.manifest, grids->front());
  if (!manifest.ok())
    return toError(manifest.status().within(name.str()));
  stream << "bundle       " << name << ", code "
         << formatBytes(contents.hostCode.size()) << ", manifest "
         << formatBytes(contents.manifest.size()) << ", packed parameters "
         << formatBytes(contents.packedParameters.size()) << '\n'
         << "compiled by  moira " << manifest->version << ", abi "
         << manifest->abi << ", from " << manifest->module << '\n'
         << "target       " << manifest->target.triple << ", "
         << manifest->target.cpu << '\n'
         << "features     "
         << (manifest->target.features.empty() ? "any"
                                               : manifest->target.features)
         << '\n';
  for (const std::string &note : manifest->notes)
    stream << "note         " << note << '\n';
  if (grids->size() == 1)
    return describeGrid(*manifest, calibration, stream);
  for (int32_t ranks : *grids) {
    Result<Manifest> grid = Manifest::parse(contents.manifest, ranks);
    if (!grid.ok())
      return toError(grid.status().within(name.str()));
    stream << "grid         of " << ranks << (ranks == 1 ? " rank" : " ranks")
           << '\n';
    if (llvm::Error error = describeGrid(*grid, calibration, stream))
      return error;
  }
  return llvm::Error::success();
}

/// Adds predictions to the variants of a grid's JSON.
static llvm::Error addPredictions(const Manifest &manifest,
                                  const std::optional<Calibration> &calibration,
                                  llvm::json::Object &grid) {
  for (auto [i, entry] : llvm::enumerate(manifest.entries)) {
    Result<std::vector<VariantPrediction>> predictions =
        predictVariants(entry, predictedRows, calibration);
    if (!predictions.ok())
      return toError(predictions.status());
    llvm::json::Object &item = *(*grid.getArray("entries"))[i].getAsObject();
    llvm::json::Array &variants = *item.getArray("variants");
    for (auto [v, one] : llvm::enumerate(*predictions))
      (*variants[v].getAsObject())["predicted"] = llvm::json::Object{
          {"machine", calibration ? calibration->machine : "assumed"},
          {"rows", predictedRows},
          {"seconds", one.seconds},
          {"peak_bytes", one.peakBytes}};
  }
  return llvm::Error::success();
}

llvm::Error tools::describeJson(const BundleContents &contents,
                                const std::optional<Calibration> &calibration,
                                llvm::raw_ostream &stream) {
  Result<std::vector<int32_t>> grids = listGrids(contents.manifest);
  if (!grids.ok())
    return toError(grids.status());
  llvm::Expected<llvm::json::Value> manifest = llvm::json::parse(
      llvm::StringRef(contents.manifest.data(), contents.manifest.size()));
  if (!manifest)
    return manifest.takeError();
  llvm::json::Object &object = *manifest->getAsObject();
  llvm::json::Array *list = object.getArray("grids");
  for (auto [i, ranks] : llvm::enumerate(*grids)) {
    Result<Manifest> grid = Manifest::parse(contents.manifest, ranks);
    if (!grid.ok())
      return toError(grid.status());
    if (llvm::Error error = addPredictions(
            *grid, calibration, list ? *(*list)[i].getAsObject() : object))
      return error;
  }
  object["sections"] = llvm::json::Object{
      {"manifest", int64_t(contents.manifest.size())},
      {"host_code", int64_t(contents.hostCode.size())},
      {"packed_parameters", int64_t(contents.packedParameters.size())}};
  stream << llvm::formatv("{0:2}\n", *manifest);
  return llvm::Error::success();
}
