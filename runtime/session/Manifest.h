// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a program says about itself: entries, variants, parameters. JSON in a
// bundle (docs/bundle.md has the schema), typed here.

#ifndef MOIRA_RUNTIME_SESSION_MANIFEST_H
#define MOIRA_RUNTIME_SESSION_MANIFEST_H

#include "base/Types.h"
#include "session/DeviceSpec.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace moira::runtime {

/// The machine that the host code was made for.
struct Target {
  std::string triple;
  std::string cpu;
  std::string features; ///< "+avx2,+fma,..."
};

/// Whose gradient a result is: of an input, or of a parameter.
struct GradientSpec {
  int64_t input = -1;    ///< index in the entry's inputs; -1: of a parameter
  std::string parameter; ///< its name in the parameter table
  /// The rows of the table that are made of the parameter; each has some of its
  /// elements, in a layout of its own.
  std::vector<int64_t> rows;
  int64_t packedAs = -1; ///< in the layout of this row; -1: the program's
};

/// An input or a result. -1 in the shape: any size, known at run time.
struct TensorSpec {
  std::string name; ///< empty for results without a name
  DataType dtype = DataType::F32;
  Shape shape;
  std::optional<GradientSpec> gradient{}; ///< of results of a way back
};

/// How the experts of a layer are spread over the entry's ranks, as
/// moira_placement has it.
struct LayerPlacement {
  int32_t experts = 0;
  int32_t shards = 1;
  int32_t copies = 1;
  int32_t slots = 0;

  /// Shards of all experts, which the slots of all ranks hold.
  int64_t units() const { return int64_t(experts) * shards; }
};

/// One row of the parameter table that a layer's experts read, as far as costs
/// depend on it.
struct LayerWeightSpec {
  int64_t parameter = 0; ///< index in the parameter table
  int64_t bytes = 0;     ///< of a slot, packed
  /// Of a slot of the parameter's gradient; 0 for further rows of a parameter.
  int64_t gradientBytes = 0;
  bool replicated = false; ///< each shard's holder has all of it
};

/// What `LayerShape` of cost/ needs beside the placement: bytes of rows, whole.
struct LayerCostSpec {
  int64_t rowBytes = 0;     ///< to experts
  int64_t resultBytes = 0;  ///< back, r = 1
  int64_t partialBytes = 0; ///< back, r > 1: sums to add
  int64_t resultGradientBytes =
      0;                        ///< way back, to experts; r > 1: partialBytes
  int64_t rowGradientBytes = 0; ///< way back, to tokens
  int64_t hiddenBytes = 0;      ///< inside of an expert, all shards together
  std::vector<LayerWeightSpec> weights;
};

/// One MoE layer of an entry.
struct LayerSpec {
  int64_t index = 0; ///< what generated code passes as `layer`; unique
  int64_t experts = 0;
  int64_t topK = 0;
  int64_t flopsPerRow = 0; ///< of the expert part, per (token, choice) row
  /// Of a program for many ranks; `copies` is that of the first variant.
  std::optional<LayerPlacement> placement;
  std::optional<LayerCostSpec> cost{}; ///< the same programs have it
};

/// One compiled form of an entry.
struct VariantSpec {
  std::string name;      ///< unique in its entry
  std::string rowClass;  ///< "decode", "prefill", ...
  int64_t minRows = 0;   ///< chosen from this many rows on
  std::string step;      ///< symbol of a moira_step_entry
  std::string workspace; ///< symbol of a moira_workspace_entry
  std::string numerics;  ///< numerics class
  std::string qualified; ///< how it was checked: "none", "twin" or "target"
  std::string schedule;  ///< "equal", "groups"; empty: exchanges are not cut
  std::string shapes{};  ///< symbol of a moira_shapes_entry; empty: none
  int32_t copies = -1;   ///< how often rows travel, r; -1: made for one rank
  /// Types of the entry's last results, those for the way back, where they are
  /// not those that the entry lists; empty: as there.
  std::vector<TensorSpec> residuals{};
  /// Predicted memory of a rank beside weights and tokens, with the rows that
  /// docs/variants.md says; 0: not known.
  int64_t peakBytes = 0;

  /// The schedule as plans have it: MOIRA_SCHEDULE_EQUAL where nothing is cut.
  int scheduleOfPlans() const {
    return schedule == "groups" ? MOIRA_SCHEDULE_GROUPS : MOIRA_SCHEDULE_EQUAL;
  }
};

struct EntrySpec {
  std::string name; ///< unique
  std::vector<TensorSpec> inputs;
  std::vector<TensorSpec> results;
  std::vector<LayerSpec> layers;
  int64_t flopsPerToken = 0;         ///< dense parts
  std::vector<VariantSpec> variants; ///< at least one
  int32_t ranks = 1;                 ///< that run it together
  /// The entry that computes the gradients of this one; empty: none.
  std::string backward;
  /// How many results, the last ones, are for that entry alone.
  int64_t residuals = 0;
  /// How many results before those are routing, of which nobody has gradients.
  int64_t routing = 0;
  /// The rule of an entry that updates parameters ("adamw"); empty: a
  /// program's.
  std::string update;

  /// Results that a step gives: all but residuals.
  int64_t ownResults() const { return results.size() - residuals; }
  /// Of these, the program's: those that have gradients where they are floats.
  int64_t programResults() const { return ownResults() - routing; }
  /// Index of the variant of this name, or -1.
  int findVariant(std::string_view variant) const;
  /// The variant with the largest minRows <= rows; among equals the first;
  /// the one with the smallest minRows where all are larger.
  int variantForRows(int64_t rows) const;
};

/// What a rank holds of a parameter of experts: each of its slots one shard of
/// one expert. The parameter's slices are the slots and its source is a shard;
/// an expert's slice in the file is `shards` times as long in dim `dim`.
struct ParameterPlacement {
  int32_t experts = 1;
  int32_t shards = 1;
  int32_t dim = -1;  ///< of the file's slice; -1: each shard is all of it
  int64_t parts = 1; ///< things in `dim` that are cut alike
  bool interleaved = false; ///< element by element, not one after the other

  int64_t units() const { return int64_t(experts) * shards; }
};

/// The places of a dim that are kept: offset, offset + stride, ...
struct KeptPlaces {
  int64_t offset = 0, stride = 1, size = 0;

  int64_t at(int64_t i) const { return offset + i * stride; }
  bool operator==(const KeptPlaces &other) const {
    return offset == other.offset && stride == other.stride &&
           size == other.size;
  }
};

/// How a slice of a parameter is kept in memory: which elements of a matrix
/// [d0, d1] (or a vector [d1]) of the program, and in which panels.
struct PackingSpec {
  std::optional<KeptPlaces> first; ///< of d0; nothing for a vector
  KeptPlaces second;               ///< of d1
  int64_t width = 0;               ///< columns of a panel; 0: row-major
  bool pairs = false;              ///< two steps of K stand together
  bool firstIsN = true;            ///< columns are d0, steps d1; else swapped
  int64_t blocksOfN = 1, blocksOfK = 1; ///< each packed on its own
  bool transpose = false;               ///< the file's slice has [d1, d0]
  KeptPlaces part; ///< of d0 in the file's slice, which may hold more
};

/// One row of the parameter table; the index is that of moira_ctx.params.
/// Names repeat where several arguments are parts of one tensor of the file.
struct ParameterSpec {
  std::string name; ///< `{}` stands for the slice number when stacked
  int64_t slices = 1;
  DataType sourceType = DataType::F32;
  Shape sourceShape;    ///< of one slice, as the pack entry reads it
  bool stacked = false; ///< one tensor per slice
  Shape logicalShape;
  int64_t packedSliceBytes = 0;
  std::string pack;   ///< symbol of a moira_pack_entry
  std::string layout; ///< for people
  std::optional<ParameterPlacement> placement;
  std::optional<PackingSpec> packing; ///< nothing: as in the file

  /// Slices that the file has: experts where there is a placement.
  int64_t fileSlices() const { return placement ? placement->experts : slices; }
  /// The shape of one of them.
  Shape fileShape() const;
  /// Bytes of all packed slices; parsing has checked that they fit.
  int64_t packedBytes() const { return slices * packedSliceBytes; }
  /// The name of a file slice's own tensor: `{}` replaced by the number.
  std::string sliceName(int64_t slice) const;
};

struct Manifest {
  std::string version; ///< of the compiler
  uint32_t abi = MOIRA_ABI_VERSION;
  std::string module;
  Target target;
  /// Blocks that hidden dimensions are summed in; 0: as many as ranks share an
  /// expert.
  int64_t hiddenBlocks = 0;
  /// What the compiler tells people: what it folded, what it left out and why.
  std::vector<std::string> notes{};
  std::vector<EntrySpec> entries;
  std::vector<ParameterSpec> parameters;
  /// Of a program for a GPU: its kernels. Steps then need a device.
  std::optional<DeviceSpec> device{};

  /// Index of the only entry that a program would be asked for: no way back of
  /// another, no update. -1 where there is none, or several.
  int mainEntry() const;
  /// Index of the entry of this name, or -1.
  int findEntry(std::string_view entry) const;

  /// The entry for steps with a variant: the same but for its residuals, or
  /// those that a way back takes, where the variant has its own.
  EntrySpec signature(int entry, int variant) const;

  /// Parses and checks everything that can be checked without the code. The
  /// message names the place: `manifest: entries[0].name: expected ...`.
  /// Unknown keys are skipped. Of several grids the one for `ranks` is read;
  /// 0: the only one. Fails with MOIRA_DATA_LOSS, MOIRA_VERSION where the ABI
  /// differs, MOIRA_INVALID_ARGUMENT where there is no such grid.
  static Result<Manifest> parse(std::string_view json, int32_t ranks = 0);
  /// JSON that `parse` accepts and that gives an equal manifest.
  std::string serialize() const;
};

/// One grid of a bundle: the manifest of what runs on so many ranks.
struct GridManifest {
  int32_t ranks = 1;
  Manifest manifest;
};

/// JSON of a bundle for several grids, which `parse` accepts: what the first
/// says of compiler and target, and everything of each.
std::string serializeGrids(const std::vector<GridManifest> &grids);

/// The numbers of ranks that a bundle was compiled for, in order.
Result<std::vector<int32_t>> listGrids(std::string_view json);

/// The memory of the packed parameters in a bundle: parameters in table order,
/// each on the next multiple of this many bytes.
inline constexpr int64_t packedAlignment = 64;

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_SESSION_MANIFEST_H
