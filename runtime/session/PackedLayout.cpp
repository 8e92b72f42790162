// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "session/PackedLayout.h"

#include "session/ParameterShard.h"

using namespace moira;
using namespace moira::runtime;

static int64_t ceilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// Row-major places: the i-th row at `kept.at(i)` of a matrix of rows of
/// `distance` elements.
static std::vector<int64_t> placesOf(const KeptPlaces &kept, int64_t distance) {
  std::vector<int64_t> places(kept.size);
  for (int64_t i = 0; i < kept.size; ++i)
    places[i] = kept.at(i) * distance;
  return places;
}

/// Panels of `width` columns N, each with one step per k; blocks follow each
/// other, whichever dim they cut.
static Places packedPlaces(const PackingSpec &packing, int64_t rows,
                           int64_t columns) {
  Places places;
  if (packing.width == 0) {
    places.rows = placesOf({0, 1, rows}, columns);
    places.columns = placesOf({0, 1, columns}, 1);
    places.count = rows * columns;
    return places;
  }
  int64_t n = packing.firstIsN ? rows : columns;
  int64_t k = packing.firstIsN ? columns : rows;
  int64_t nBlock = n / packing.blocksOfN, kBlock = k / packing.blocksOfK;
  int64_t inStep = packing.pairs ? 2 : 1;
  int64_t panels = ceilDiv(nBlock, packing.width); // of a block
  int64_t steps = ceilDiv(kBlock, inStep);
  int64_t step = packing.width * inStep, panel = steps * step;
  std::vector<int64_t> ofN(n), ofK(k);
  for (int64_t i = 0; i < n; ++i) {
    int64_t inBlock = i % nBlock;
    ofN[i] = (i / nBlock * panels + inBlock / packing.width) * panel +
             inBlock % packing.width * inStep;
  }
  for (int64_t i = 0; i < k; ++i) {
    int64_t inBlock = i % kBlock;
    // Of a pair the later element stands first.
    ofK[i] = i / kBlock * panels * panel + inBlock / inStep * step +
             (packing.pairs ? 1 - inBlock % 2 : 0);
  }
  places.count = packing.blocksOfN * packing.blocksOfK * panels * panel;
  places.rows = packing.firstIsN ? ofN : ofK;
  places.columns = packing.firstIsN ? ofK : ofN;
  return places;
}

static int64_t product(const Shape &shape) {
  int64_t count = 1;
  for (int64_t size : shape)
    count *= size;
  return count;
}

PackedLayout::PackedLayout(const ParameterSpec &spec) {
  const Shape &source = spec.sourceShape;
  int64_t count = product(source);
  if (!spec.packing) {
    int64_t columns = source.empty() ? 1 : source.back();
    int64_t rows = columns == 0 ? 0 : count / columns;
    Places plain{placesOf({0, 1, rows}, columns), placesOf({0, 1, columns}, 1),
                 count};
    packed = program = file = plain;
    return;
  }
  const PackingSpec &packing = *spec.packing;
  bool isMatrix = source.size() == 2;
  KeptPlaces first =
      isMatrix && packing.first ? *packing.first : KeptPlaces{0, 1, 1};
  packed = packedPlaces(packing, first.size, packing.second.size);
  if (!isMatrix) {
    program = file = {{0}, placesOf(packing.second, 1), count};
    return;
  }
  // [d0, d1] in the program; the file may hold more in d0, and swap the two.
  int64_t d1 = packing.transpose ? source[0] : source[1];
  program = {placesOf(first, d1), placesOf(packing.second, 1),
             packing.part.size * d1};
  KeptPlaces inFile{packing.part.at(first.offset),
                    packing.part.stride * first.stride, first.size};
  if (packing.transpose)
    file = {placesOf(inFile, 1), placesOf(packing.second, source[1]), count};
  else
    file = {placesOf(inFile, source[1]), placesOf(packing.second, 1), count};
}

/// Calls `action` with a zero of an unsigned type of so many bytes.
template <typename Action>
static void withElement(int64_t bytes, const Action &action) {
  switch (bytes) {
  case 1:
    return action(uint8_t());
  case 2:
    return action(uint16_t());
  case 4:
    return action(uint32_t());
  default:
    return action(uint64_t());
  }
}

/// Calls action(place of the layout, place in the whole file) for each element.
template <typename Action>
static void forEachInFile(const PackedLayout &layout, const Places &places,
                          const ParameterShard &shard, const Action &action) {
  for (int64_t r = 0; r < layout.rows(); ++r)
    for (int64_t c = 0; c < layout.columns(); ++c) {
      int64_t inShard = layout.file.at(r, c);
      int64_t run = inShard / shard.length;
      action(places.at(r, c), shard.first + run * shard.distance +
                                  (inShard - run * shard.length));
    }
}

void runtime::moveToFile(int64_t bytes, const PackedLayout &layout,
                         const Places &from, const void *source,
                         const ParameterShard &shard, void *file) {
  withElement(bytes, [&](auto zero) {
    using T = decltype(zero);
    auto *in = static_cast<const T *>(source);
    auto *out = static_cast<T *>(file);
    forEachInFile(layout, from, shard,
                  [&](int64_t here, int64_t there) { out[there] = in[here]; });
  });
}

void runtime::moveFromFile(int64_t bytes, const PackedLayout &layout,
                           const Places &to, const ParameterShard &shard,
                           const void *file, void *target) {
  withElement(bytes, [&](auto zero) {
    using T = decltype(zero);
    auto *in = static_cast<const T *>(file);
    auto *out = static_cast<T *>(target);
    forEachInFile(layout, to, shard,
                  [&](int64_t here, int64_t there) { out[here] = in[there]; });
  });
}

void runtime::moveElements(int64_t bytes, const Places &from,
                           const void *source, const Places &to, void *target) {
  withElement(bytes, [&](auto zero) {
    using T = decltype(zero);
    for (size_t r = 0; r < from.rows.size(); ++r) {
      const T *in = static_cast<const T *>(source) + from.rows[r];
      T *out = static_cast<T *>(target) + to.rows[r];
      for (size_t c = 0; c < from.columns.size(); ++c)
        out[to.columns[c]] = in[from.columns[c]];
    }
  });
}
