// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "session/Manifest.h"

using namespace moira;
using namespace moira::runtime;

int EntrySpec::findVariant(std::string_view variant) const {
  for (size_t i = 0; i < variants.size(); ++i)
    if (variants[i].name == variant)
      return static_cast<int>(i);
  return -1;
}

int EntrySpec::variantForRows(int64_t rows) const {
  int smallest = 0;
  int best = -1;
  for (int i = 0; i < static_cast<int>(variants.size()); ++i) {
    int64_t minimum = variants[i].minRows;
    if (minimum < variants[smallest].minRows)
      smallest = i;
    if (minimum <= rows && (best < 0 || minimum > variants[best].minRows))
      best = i;
  }
  return best < 0 ? smallest : best;
}

Shape ParameterSpec::fileShape() const {
  Shape shape = sourceShape;
  if (placement && placement->dim >= 0)
    shape[placement->dim] *= placement->shards;
  return shape;
}

std::string ParameterSpec::sliceName(int64_t slice) const {
  std::string text = name;
  size_t place = text.find("{}");
  if (stacked && place != std::string::npos)
    text.replace(place, 2, std::to_string(slice));
  return text;
}

int Manifest::mainEntry() const {
  int found = -1;
  for (size_t i = 0; i < entries.size(); ++i) {
    bool isBackward = false;
    for (const EntrySpec &other : entries)
      isBackward |= other.backward == entries[i].name;
    if (isBackward || !entries[i].update.empty())
      continue;
    if (found >= 0)
      return -1;
    found = static_cast<int>(i);
  }
  return found;
}

EntrySpec Manifest::signature(int entry, int variant) const {
  EntrySpec spec = entries[entry];
  const std::vector<TensorSpec> &own = spec.variants[variant].residuals;
  if (!own.empty()) {
    spec.results.resize(spec.ownResults());
    spec.results.insert(spec.results.end(), own.begin(), own.end());
    spec.residuals = own.size();
  }
  for (const EntrySpec &forward : entries) {
    if (forward.backward != spec.name)
      continue;
    const std::vector<TensorSpec> &given = forward.variants[variant].residuals;
    if (given.empty())
      continue;
    std::vector<TensorSpec> inputs = given;
    inputs.insert(inputs.end(), spec.inputs.begin() + forward.residuals,
                  spec.inputs.end());
    spec.inputs = std::move(inputs);
  }
  return spec;
}

int Manifest::findEntry(std::string_view entry) const {
  for (size_t i = 0; i < entries.size(); ++i)
    if (entries[i].name == entry)
      return static_cast<int>(i);
  return -1;
}
