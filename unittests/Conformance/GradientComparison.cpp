// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Conformance/GradientComparison.h"

#include <cmath>
#include <numeric>

using namespace moira;
using namespace moira::conformance;
using runtime::Shape;

GradientLayer conformance::layerFor(const GradientGrid &grid, bool integers) {
  GradientLayer layer;
  layer.experts = grid.experts;
  layer.hidden = 16 % grid.shards() == 0 ? 16 : 4 * grid.shards();
  layer.padded = grid.padded;
  layer.integers = integers;
  return layer;
}

int conformance::unitAt(const GradientGrid &grid,
                        const std::vector<int32_t> &table, int place) {
  if (!table.empty())
    return table[place];
  // Dealt out in order, spare slots last.
  int slots = grid.slots(), own = slots - grid.spare;
  return place % slots < own ? place / slots * own + place % slots : -1;
}

std::vector<std::vector<int32_t>> conformance::tokenCases(int ranks) {
  std::vector<int32_t> even(ranks, 6), uneven, one(ranks, 0);
  for (int rank = 0; rank < ranks; ++rank)
    uneven.push_back(rank * 5 % 8);
  one[ranks / 2] = 20;
  return {even, uneven, one, std::vector<int32_t>(ranks, 0)};
}

namespace {

/// Compares values, relative to the larger of 1 and the expected one.
class Comparison {
public:
  explicit Comparison(double tolerance) : tolerance(tolerance) {}

  void add(double expected, double got, const std::string &what) {
    double difference = std::abs(expected - got);
    if (difference <= tolerance * std::max(1.0, std::abs(expected)))
      return;
    if (!(difference > tolerance)) // NaN
      difference = INFINITY;
    if (message.empty())
      message = concat(what, ": expected ", expected, ", got ", got);
  }
  const std::string &difference() const { return message; }

private:
  double tolerance;
  std::string message;
};

} // namespace

/// What one slot has of a parameter of experts, against its part of the whole.
static void compareSlot(const std::vector<double> &whole, const Shape &full,
                        const std::vector<double> &slots, const Shape &held,
                        int slot, int unit, int shards, const std::string &what,
                        Comparison &compare) {
  int64_t size = 1;
  for (size_t d = 1; d < held.size(); ++d)
    size *= held[d];
  for (int64_t i = 0; i < size; ++i) {
    double got = slots[slot * size + i];
    if (unit < 0) {
      compare.add(0, got, concat(what, " without a shard"));
      continue;
    }
    int64_t at = 0, rest = i, stride = 1;
    for (size_t d = held.size(); d-- > 1;) {
      int64_t place = rest % held[d];
      rest /= held[d];
      if (held[d] != full[d])
        place += unit % shards * held[d];
      at += place * stride;
      stride *= full[d];
    }
    at += unit / shards * stride;
    compare.add(whole[at], got, concat(what, "[", i, "] of unit ", unit));
  }
}

/// All gradients of all ranks against those of one rank.
std::string conformance::compareAll(const GradientGrid &grid,
                                    const std::vector<int32_t> &table,
                                    const GradientLayer &layer,
                                    const GradientStep &expected,
                                    const std::vector<GradientStep> &got,
                                    double tolerance) {
  Comparison compare(tolerance);
  std::vector<GradientArgument> arguments = argumentsOf(layer);
  int64_t firstRow = 0;
  for (int rank = 0; rank < grid.ranks; ++rank) {
    const GradientStep &own = got[rank];
    if (own.gradients.size() != arguments.size() || own.results.size() != 2 ||
        expected.gradients.size() != arguments.size())
      return "gradients are missing";
    compare.add(expected.results[0].values()[0], own.results[0].values()[0],
                concat("loss on rank ", rank));
    auto compareRows = [&](const Output &all, const Output &rows,
                           const char *what) {
      std::vector<double> whole = all.values(), part = rows.values();
      for (size_t i = 0; i < part.size(); ++i)
        compare.add(whole[firstRow * rows.shape[1] + i], part[i],
                    concat(what, " on rank ", rank));
    };
    compareRows(expected.results[1], own.results[1], "y");
    compareRows(expected.gradients[0], own.gradients[0], "dx");
    firstRow += own.results[1].shape[0];
    for (size_t a = 1; a < arguments.size(); ++a) {
      std::vector<double> whole = expected.gradients[a].values(),
                          part = own.gradients[a].values();
      std::string what = concat("d ", arguments[a].name, " on rank ", rank);
      bool isOfExperts = a != 1 && a != 7;
      for (size_t i = 0; !isOfExperts && i < whole.size(); ++i)
        compare.add(whole[i], part[i], what);
      for (int slot = 0; isOfExperts && slot < grid.slots(); ++slot)
        compareSlot(whole, expected.gradients[a].shape, part,
                    own.gradients[a].shape, slot,
                    unitAt(grid, table, rank * grid.slots() + slot),
                    grid.shards(), what, compare);
    }
  }
  return compare.difference();
}

std::string conformance::sameUnits(const GradientGrid &grid,
                                   const std::vector<int32_t> &oneTable,
                                   const std::vector<GradientStep> &one,
                                   const std::vector<int32_t> &otherTable,
                                   const std::vector<GradientStep> &other) {
  using Bytes = std::vector<unsigned char>;
  auto collect = [&](const std::vector<int32_t> &table,
                     const std::vector<GradientStep> &steps, size_t argument) {
    std::vector<Bytes> units(grid.experts * grid.shards());
    for (int place = 0; place < grid.ranks * grid.slots(); ++place) {
      int unit = unitAt(grid, table, place);
      if (unit < 0)
        continue;
      const Bytes &all = steps[place / grid.slots()].gradients[argument].bytes;
      size_t size = all.size() / grid.slots();
      auto begin = all.begin() + place % grid.slots() * size;
      units[unit] = Bytes(begin, begin + size);
    }
    return units;
  };
  for (size_t argument = 2; argument < 7; ++argument)
    if (collect(oneTable, one, argument) !=
        collect(otherTable, other, argument))
      return concat("gradient ", argument, " differs in some unit");
  return "";
}

std::string conformance::sameBits(const std::vector<GradientStep> &one,
                                  const std::vector<GradientStep> &other,
                                  bool sameSlots) {
  for (size_t rank = 0; rank < one.size(); ++rank) {
    std::string results = difference(one[rank].results, other[rank].results);
    if (!results.empty())
      return concat("rank ", rank, ": results: ", results);
    for (size_t i = 0; i < one[rank].gradients.size(); ++i) {
      bool isOfExperts = i > 1 && i < 7;
      if ((sameSlots || !isOfExperts) &&
          !(one[rank].gradients[i] == other[rank].gradients[i]))
        return concat("rank ", rank, ": gradient ", i, " differs");
    }
  }
  return "";
}
