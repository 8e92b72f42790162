// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "session/ManifestGradients.h"

#include "session/PackedLayout.h"

using namespace moira;
using namespace moira::runtime;

GradientSpec runtime::readGradient(const Reader &json) {
  GradientSpec gradient;
  if (json.has("input")) {
    gradient.input = json.at("input").integer(0);
    return gradient;
  }
  gradient.parameter = json.at("parameter").word();
  for (const Reader &row : json.at("rows").items())
    gradient.rows.push_back(row.integer(0));
  gradient.packedAs = json.integerOr("packed_as", 0, -1);
  return gradient;
}

Json runtime::gradientToJson(const GradientSpec &gradient) {
  if (gradient.input >= 0)
    return {{"input", gradient.input}};
  Json json = {{"parameter", gradient.parameter}, {"rows", gradient.rows}};
  if (gradient.packedAs >= 0)
    json["packed_as"] = gradient.packedAs;
  return json;
}

//===----------------------------------------------------------------------===//
// Packing
//===----------------------------------------------------------------------===//

/// Reads [offset, stride, size], places of a dim of `dim` elements.
static KeptPlaces readPlaces(const Reader &json, int64_t dim) {
  std::vector<Reader> items = json.items();
  KeptPlaces kept;
  json.require(items.size() == 3,
               concat("expected offset, stride and size, got ", items.size(),
                      " numbers"));
  if (items.size() != 3)
    return kept;
  kept = {items[0].integer(0), items[1].integer(1), items[2].integer(0)};
  // Divided, so that nothing overflows.
  bool fits = kept.size == 0 ||
              (kept.offset < dim &&
               (kept.size - 1) <= (dim - 1 - kept.offset) / kept.stride);
  json.require(fits,
               concat("expected places below ", dim, ", got ",
                      toString(Shape{kept.offset, kept.stride, kept.size})));
  if (!fits)
    kept.size = 0;
  return kept;
}

/// Blocks of a dim of `size` elements.
static int64_t readBlocks(const Reader &json, const char *key, int64_t size) {
  int64_t blocks = json.integerOr(key, 1, 1);
  bool fits = size % blocks == 0;
  json.require(fits,
               concat("expected ", key, " to divide ", size, ", got ", blocks));
  return fits ? blocks : 1;
}

PackingSpec runtime::readPacking(const Reader &json,
                                 const ParameterSpec &parameter) {
  PackingSpec packing;
  const Shape &source = parameter.sourceShape;
  bool isMatrix = source.size() == 2;
  json.require(
      isMatrix || source.size() == 1,
      concat("expected a source of rank 1 or 2, got ", toString(source)));
  if (!isMatrix && source.size() != 1)
    return packing;
  packing.transpose = isMatrix && json.at("transpose").flag();
  int64_t fileFirst = source[packing.transpose ? 1 : 0];
  packing.part = readPlaces(json.at("part"), fileFirst);
  int64_t second = isMatrix ? source[packing.transpose ? 0 : 1] : source[0];
  packing.second = readPlaces(json.at("second"), second);
  if (isMatrix)
    packing.first = readPlaces(json.at("first"), packing.part.size);
  packing.width = json.at("width").integer(0);
  packing.pairs = json.has("pairs") && json.at("pairs").flag();
  packing.firstIsN = !json.has("first_is_n") || json.at("first_is_n").flag();
  int64_t rows = isMatrix ? packing.first->size : 1;
  int64_t columns = packing.second.size;
  packing.blocksOfN =
      readBlocks(json, "blocks_n", packing.firstIsN ? rows : columns);
  packing.blocksOfK =
      readBlocks(json, "blocks_k", packing.firstIsN ? columns : rows);
  // The product is that of a slice in memory, so it fits unless it is wrong.
  constexpr int64_t most = int64_t(1) << 20;
  json.at("width").require(
      packing.width <= most,
      concat("expected a width of at most ", most, ", got ", packing.width));
  if (packing.width > most)
    packing.width = 0;
  ParameterSpec one = parameter;
  one.packing = packing;
  int64_t needed =
      rows == 0 || columns == 0 || rows > parameter.packedSliceBytes ||
              columns > parameter.packedSliceBytes
          ? 0
          : PackedLayout(one).packed.count * byteSize(parameter.sourceType);
  json.require(needed == parameter.packedSliceBytes,
               concat("expected a packing of ", parameter.packedSliceBytes,
                      " bytes, got one of ", needed));
  return packing;
}

static Json placesToJson(const KeptPlaces &kept) {
  return {kept.offset, kept.stride, kept.size};
}

Json runtime::packingToJson(const PackingSpec &packing) {
  Json json = {{"part", placesToJson(packing.part)},
               {"second", placesToJson(packing.second)},
               {"transpose", packing.transpose},
               {"width", packing.width},
               {"pairs", packing.pairs},
               {"first_is_n", packing.firstIsN},
               {"blocks_n", packing.blocksOfN},
               {"blocks_k", packing.blocksOfK}};
  if (packing.first)
    json["first"] = placesToJson(*packing.first);
  return json;
}

//===----------------------------------------------------------------------===//
// Entries
//===----------------------------------------------------------------------===//

static std::string describe(const TensorSpec &tensor) {
  return toString(tensor.dtype, tensor.shape);
}

static bool isSame(const TensorSpec &a, const TensorSpec &b) {
  return a.dtype == b.dtype && a.shape == b.shape;
}

/// What a way back of `entry` takes, in order.
static std::vector<TensorSpec> listInputs(const EntrySpec &entry) {
  std::vector<TensorSpec> inputs(entry.results.end() - entry.residuals,
                                 entry.results.end());
  for (int64_t i = 0; i < entry.programResults(); ++i)
    if (isFloat(entry.results[i].dtype))
      inputs.push_back(entry.results[i]);
  return inputs;
}

static void checkResults(const Reader &json, const EntrySpec &entry,
                         const EntrySpec &forward, const Manifest &manifest) {
  std::vector<Reader> items = json.at("results").items();
  for (size_t i = 0; i < entry.results.size(); ++i) {
    const auto &gradient = entry.results[i].gradient;
    if (!gradient)
      continue;
    Reader place = items[i].at("gradient");
    int64_t inputs = forward.inputs.size();
    if (gradient->input >= 0) {
      place.require(gradient->input < inputs,
                    concat("expected an input below ", inputs, ", got ",
                           gradient->input));
      continue;
    }
    int64_t rows = manifest.parameters.size();
    place.require(!gradient->rows.empty(), "expected rows, got none");
    place.require(gradient->packedAs < 0 || gradient->rows.size() <= 1,
                  concat("expected one row for a packed gradient, got ",
                         gradient->rows.size()));
    std::vector<int64_t> named = gradient->rows;
    if (gradient->packedAs >= 0)
      named.push_back(gradient->packedAs);
    for (int64_t row : named) {
      bool fits =
          row < rows && manifest.parameters[row].name == gradient->parameter;
      place.require(fits, concat("expected rows of parameter '",
                                 Reader::printable(gradient->parameter),
                                 "', got ", row));
    }
  }
}

static void checkBackward(const Reader &json, const EntrySpec &entry,
                          const Reader &backJson, const EntrySpec &back,
                          const Manifest &manifest) {
  std::vector<TensorSpec> wanted = listInputs(entry);
  json.require(back.inputs.size() == wanted.size(),
               concat("expected ", wanted.size(), " inputs of entry '",
                      Reader::printable(back.name), "', got ",
                      back.inputs.size()));
  for (size_t i = 0; i < std::min(wanted.size(), back.inputs.size()); ++i)
    json.require(isSame(wanted[i], back.inputs[i]),
                 concat("expected ", describe(wanted[i]), " as input ", i,
                        " of entry '", Reader::printable(back.name), "', got ",
                        describe(back.inputs[i])));
  bool same = back.variants.size() == entry.variants.size();
  for (size_t i = 0; same && i < back.variants.size(); ++i)
    same = back.variants[i].name == entry.variants[i].name;
  json.require(same, "expected the variants of the entry itself");
  for (const VariantSpec &variant : entry.variants)
    json.require(variant.residuals.empty() || entry.residuals > 0,
                 concat("expected no residuals of variant '",
                        Reader::printable(variant.name),
                        "', as the entry has none, got ",
                        variant.residuals.size()));
  json.require(back.ranks == entry.ranks || back.ranks == 1,
               concat("expected ", entry.ranks, " ranks, got ", back.ranks));
  checkResults(backJson, back, entry, manifest);
}

void runtime::checkGradients(const Reader &entries, const Manifest &manifest) {
  std::vector<Reader> items = entries.items();
  for (size_t i = 0; i < manifest.entries.size(); ++i) {
    const EntrySpec &entry = manifest.entries[i];
    if (entry.backward.empty())
      continue;
    int back = manifest.findEntry(entry.backward);
    Reader place = items[i].at("backward");
    place.require(back >= 0 && back != static_cast<int>(i),
                  concat("expected another entry, got '",
                         Reader::printable(entry.backward), "'"));
    if (back >= 0 && back != static_cast<int>(i))
      checkBackward(place, entry, items[back], manifest.entries[back],
                    manifest);
  }
}
