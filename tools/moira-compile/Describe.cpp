// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Describe.h"

#include "session/Manifest.h"
#include "support/CommandLine.h"

#include "llvm/Support/Format.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"

using namespace moira;
using namespace moira::tools;
using namespace moira::runtime;

static std::string describeTensor(const TensorSpec &spec) {
  std::string type = toString(spec.dtype, spec.shape);
  return spec.name.empty() ? type : spec.name + ": " + type;
}

static void describeEntry(const EntrySpec &entry, llvm::raw_ostream &stream) {
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
             << ", r = " << placement->copies << '\n';
  }
  if (!entry.backward.empty())
    stream << "  gradients  by " << entry.backward << ", from the last "
           << entry.residuals << " results\n";
  if (!entry.update.empty())
    stream << "  updates    by " << entry.update << '\n';
  stream << "  dense      " << entry.flopsPerToken << " flops per token\n";
  for (const VariantSpec &variant : entry.variants)
    stream << "  variant    " << variant.name << ", from " << variant.minRows
           << " rows, numerics " << variant.numerics
           << ", qualified: " << variant.qualified
           << (variant.schedule.empty() ? "" : ", chunks ") << variant.schedule
           << '\n';
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

llvm::Error tools::describe(const BundleContents &contents,
                            llvm::StringRef name, llvm::raw_ostream &stream) {
  Result<Manifest> manifest = Manifest::parse(contents.manifest);
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
  for (const EntrySpec &entry : manifest->entries)
    describeEntry(entry, stream);
  describeParameters(*manifest, stream);
  return llvm::Error::success();
}

llvm::Error tools::describeJson(const BundleContents &contents,
                                llvm::raw_ostream &stream) {
  llvm::Expected<llvm::json::Value> manifest = llvm::json::parse(
      llvm::StringRef(contents.manifest.data(), contents.manifest.size()));
  if (!manifest)
    return manifest.takeError();
  if (llvm::json::Object *object = manifest->getAsObject())
    (*object)["sections"] = llvm::json::Object{
        {"manifest", int64_t(contents.manifest.size())},
        {"host_code", int64_t(contents.hostCode.size())},
        {"packed_parameters", int64_t(contents.packedParameters.size())}};
  stream << llvm::formatv("{0:2}\n", *manifest);
  return llvm::Error::success();
}
