// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Binding where each rank holds shards: compared with the whole tensor, cut
// element by element.

#include "Runtime/MemorySource.h"
#include "Runtime/TestProgram.h"
#include "session/ParameterTable.h"

#include <algorithm>
#include <cmath>
#include <cstring>

using namespace moira;
using namespace moira::runtime;
using namespace moira::test;

namespace {

/// Elements of every shard here, so that one pack entry fits all.
constexpr int64_t shardElements = 12;

void copyShard(moira_ctx *, const void *source, void *packed) {
  std::memcpy(packed, source, shardElements * sizeof(float));
}

/// A parameter "w" (or "w.{}") of experts over ranks.
struct Case {
  int ranks, slots;
  ParameterPlacement placement;
  Shape shard;
  bool stacked = false;

  ParameterSpec spec() const {
    ParameterSpec spec;
    spec.name = stacked ? "w.{}" : "w";
    spec.stacked = stacked;
    spec.slices = slots;
    spec.sourceShape = shard;
    spec.packedSliceBytes = shardElements * sizeof(float);
    spec.pack = "pack";
    spec.placement = placement;
    spec.logicalShape = spec.fileShape();
    spec.logicalShape.insert(spec.logicalShape.begin(), placement.experts);
    return spec;
  }
  int64_t sliceElements() const {
    return shardElements * (placement.dim < 0 ? 1 : placement.shards);
  }
  /// The parameter's tensor: every element another integer.
  std::vector<float> tensor() const {
    std::vector<float> values(placement.experts * sliceElements());
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = float(i + 1);
    return values;
  }
  /// A unit cut from `whole`, one element after the other.
  std::vector<float> cut(const std::vector<float> &whole, int64_t unit) const;
  std::vector<int32_t> identity() const;
};

std::vector<float> Case::cut(const std::vector<float> &whole,
                             int64_t unit) const {
  auto slice = whole.begin() + unit / placement.shards * sliceElements();
  if (placement.dim < 0)
    return {slice, slice + sliceElements()};
  int64_t index = unit % placement.shards;
  int64_t inner = 1, outer = 1;
  for (int32_t d = 0; d < int32_t(shard.size()); ++d)
    (d < placement.dim ? outer : inner) *= d == placement.dim ? 1 : shard[d];
  int64_t size = shard[placement.dim] * placement.shards;
  int64_t length = size / placement.parts; // of one part
  std::vector<float> values;
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t place = 0; place < size; ++place) {
      int64_t inPart =
          placement.interleaved ? place / placement.parts : place % length;
      if (inPart / (length / placement.shards) != index)
        continue;
      auto from = slice + (o * size + place) * inner;
      values.insert(values.end(), from, from + inner);
    }
  return values;
}

std::vector<int32_t> Case::identity() const {
  std::vector<int32_t> table;
  for (int64_t i = 0; i < int64_t(ranks) * slots; ++i)
    table.push_back(i < placement.units() ? i : -1);
  return table;
}

const Case cases[] = {
    {4, 1, {4, 1, 0, 1, false}, {3, 4}},
    {4, 2, {4, 1, -1, 1, false}, {12}}, // half of the slots are spare
    {2, 4, {8, 1, 1, 1, false}, {2, 6}},
    {4, 1, {2, 2, 0, 1, false}, {3, 4}},
    {4, 1, {2, 2, 1, 1, false}, {3, 4}},
    {4, 1, {2, 2, -1, 1, false}, {12}},
    {8, 1, {2, 4, 0, 2, false}, {4, 3}},
    {8, 1, {2, 4, 0, 2, true}, {4, 3}},
    {8, 2, {2, 4, 1, 2, false}, {3, 4}},
    {8, 1, {2, 4, 1, 2, true}, {3, 4}},
    {6, 1, {1, 6, 1, 1, false}, {2, 2, 3}},
    {1, 3, {3, 1, 1, 2, false}, {3, 4}},
};

/// A rank's table with the parameter of a case.
struct Rank {
  Rank(const Case &test, int rank, std::vector<int32_t> slotTable = {})
      : program(makeProgram(test)), pool(2),
        account(std::make_shared<MemoryAccount>(0, /*poison=*/true)),
        table(*program, pool, account, nullptr) {
    EXPECT_OK(table.open());
    EXPECT_OK(table.place(rank, test.ranks, {std::move(slotTable)}));
  }
  static std::shared_ptr<const Program> makeProgram(const Case &test) {
    Manifest manifest;
    manifest.parameters = {test.spec()};
    auto program = Program::create(manifest, [](const char *) -> void * {
      return reinterpret_cast<void *>(copyShard);
    });
    EXPECT_OK(program.status());
    return *program;
  }
  std::vector<float> slot(int64_t index) const {
    auto *data = static_cast<const float *>(table.params()[0].data);
    return {data + index * shardElements, data + (index + 1) * shardElements};
  }
  /// Every slot against the units of `slotTable`.
  void check(const Case &test, int rank, const std::vector<float> &whole,
             const std::vector<int32_t> &slotTable) const {
    EXPECT_TRUE(table.unbound().empty());
    for (int64_t i = 0; i < test.slots; ++i) {
      int32_t unit = slotTable[rank * test.slots + i];
      std::vector<float> wanted(shardElements);
      if (unit >= 0)
        wanted = test.cut(whole, unit);
      EXPECT_EQ(slot(i), wanted) << "rank " << rank << " slot " << i;
    }
  }

  std::shared_ptr<const Program> program;
  Pool pool;
  std::shared_ptr<MemoryAccount> account;
  ParameterTable table;
};

/// The tensors of a checkpoint.
void fill(MemorySource &source, const Case &test,
          DataType dtype = DataType::F32, int offset = 0) {
  std::vector<float> whole = test.tensor();
  ParameterSpec spec = test.spec();
  if (!test.stacked) {
    Shape shape = spec.fileShape();
    shape.insert(shape.begin(), spec.fileSlices());
    source.add("w", whole, shape, dtype, offset);
    return;
  }
  for (int64_t i = 0; i < spec.fileSlices(); ++i) {
    auto from = whole.begin() + i * test.sliceElements();
    source.add(spec.sliceName(i), {from, from + test.sliceElements()},
               spec.fileShape(), dtype, offset);
  }
}

} // namespace

TEST(Shards, EachRankHasItsOwn) {
  for (Case test : cases)
    for (bool stacked : {false, true}) {
      test.stacked = stacked;
      std::vector<float> whole = test.tensor();
      for (int rank = 0; rank < test.ranks; ++rank) {
        Rank held(test, rank);
        MemorySource source;
        fill(source, test);
        EXPECT_OK(held.table.bindSource(source));
        held.check(test, rank, whole, test.identity());
      }
    }
}

TEST(Shards, SourcesMayBeOfAnotherTypeAndNotAligned) {
  for (const Case &test : cases)
    for (int offset : {0, 1, 2}) {
      // Integers up to 256 are exact in bf16.
      Rank held(test, test.ranks - 1);
      MemorySource source;
      fill(source, test, DataType::BF16, offset);
      EXPECT_OK(held.table.bindSource(source));
      held.check(test, test.ranks - 1, test.tensor(), test.identity());
    }
}

TEST(Shards, WholeTensorsInMemoryAreCutByEachRank) {
  for (Case test : cases) {
    std::vector<float> whole = test.tensor();
    Shape shape = test.spec().logicalShape;
    for (int rank : {0, test.ranks - 1}) {
      Rank held(test, rank);
      EXPECT_OK(held.table.bind("w", view(whole, shape)));
      held.check(test, rank, whole, test.identity());
      // Slice by slice: those that the rank does not hold are welcome too.
      test.stacked = true;
      Rank sliced(test, rank);
      ParameterSpec spec = test.spec();
      for (int64_t i = 0; i < spec.fileSlices(); ++i) {
        auto from = whole.begin() + i * test.sliceElements();
        std::vector<float> slice(from, from + test.sliceElements());
        EXPECT_OK(sliced.table.bind(spec.sliceName(i),
                                    view(slice, spec.fileShape())));
      }
      sliced.check(test, rank, whole, test.identity());
      test.stacked = false;
    }
  }
}

TEST(Shards, RandomValuesAreThoseOfTheWholeTensor) {
  for (const Case &test : cases) {
    ParameterSpec spec = test.spec();
    std::vector<float> whole(spec.placement->experts * test.sliceElements());
    fillUniform(DataType::F32, whole.data(), 0, whole.size(),
                streamKey(7, spec.name),
                1 / std::sqrt(double(spec.logicalShape.back())));
    for (int rank = 0; rank < test.ranks; ++rank) {
      Rank held(test, rank);
      EXPECT_OK(held.table.bindRandom(7));
      held.check(test, rank, whole, test.identity());
    }
  }
}

TEST(Shards, NothingElseIsRead) {
  for (const Case &test : cases) {
    int64_t all = 0;
    for (int rank = 0; rank < test.ranks; ++rank) {
      Rank held(test, rank);
      MemorySource source;
      fill(source, test);
      EXPECT_OK(held.table.bindSource(source));
      int64_t full = 0;
      for (int64_t i = 0; i < test.slots; ++i)
        full += rank * test.slots + i < test.placement.units();
      int64_t bytes = full * shardElements * int64_t(sizeof(float));
      EXPECT_LE(held.table.readBytes(), bytes + bytes / 20);
      EXPECT_GE(held.table.readBytes(), bytes);
      EXPECT_EQ(int64_t(source.released.size()), full);
      all += bytes;
    }
    EXPECT_EQ(all,
              test.placement.units() * shardElements * int64_t(sizeof(float)));
  }
}

TEST(Shards, OnlyTensorsOfOwnExpertsAreAskedFor) {
  Case test{4, 1, {2, 2, 0, 1, false}, {3, 4}, /*stacked=*/true};
  Rank held(test, 3);
  MemorySource source;
  fill(source, test);
  EXPECT_OK(held.table.bindSource(source));
  EXPECT_EQ(source.asked, (std::set<std::string>{"w.1"}));
}

TEST(Shards, SlotTablesMoveThem) {
  for (Case test : cases) {
    std::vector<float> whole = test.tensor();
    std::vector<int32_t> table = test.identity();
    std::reverse(table.begin(), table.end());
    for (int rank = 0; rank < test.ranks; ++rank) {
      Rank held(test, rank, table);
      MemorySource source;
      fill(source, test);
      EXPECT_OK(held.table.bindSource(source));
      held.check(test, rank, whole, table);
    }
  }
}

TEST(Shards, AnotherTableKeepsMemoryAndWhatStays) {
  Case test{2, 2, {3, 1, 0, 1, false}, {3, 4}};
  std::vector<float> whole = test.tensor();
  Shape shape = test.spec().logicalShape;
  Rank held(test, 0);
  EXPECT_OK(held.table.bind("w", view(whole, shape)));
  const void *address = held.table.params()[0].data;
  // Slot 0 keeps unit 0; nothing must be bound again for the same table.
  EXPECT_OK(held.table.place(0, 2, {{0, 1, 2, -1}}));
  held.check(test, 0, whole, {0, 1, 2, -1});
  for (std::vector<int32_t> table :
       {std::vector<int32_t>{0, 2, 1, -1}, {0, -1, 1, 2}, {2, 2, 1, 0}}) {
    EXPECT_OK(held.table.place(0, 2, {table}));
    EXPECT_EQ(held.table.unbound(), std::vector<int>{0});
    EXPECT_OK(held.table.bind("w", view(whole, shape)));
    held.check(test, 0, whole, table);
    EXPECT_EQ(held.table.params()[0].data, address);
  }
}

TEST(Shards, TablesThatDoNotFitAreNamed) {
  Case test{2, 2, {3, 1, 0, 1, false}, {3, 4}};
  Rank held(test, 1);
  EXPECT_ERROR(held.table.place(1, 2, {{0, 1, 2}}), MOIRA_INVALID_ARGUMENT,
               "parameter 'w': expected a slot table of 2 ranks with 2 slots "
               "each, got 3 places");
  EXPECT_ERROR(held.table.place(1, 2, {{0, 1, 2, 3}}), MOIRA_INVALID_ARGUMENT,
               "parameter 'w': expected units below 3, got 3");
}

TEST(Shards, WrongTensorsAreNamed) {
  Case test{4, 1, {2, 2, 1, 1, false}, {3, 4}};
  std::vector<float> whole = test.tensor();
  Rank held(test, 0);
  EXPECT_ERROR(held.table.bind("w", view(whole, {4, 3, 4})),
               MOIRA_INVALID_ARGUMENT,
               "parameter 'w': expected f32[2, 3, 8], got f32[4, 3, 4]");
  test.stacked = true;
  Rank stacked(test, 0);
  EXPECT_ERROR(stacked.table.bind("w.0", view(whole, {3, 4})),
               MOIRA_INVALID_ARGUMENT,
               "parameter 'w.0': expected f32[3, 8], got f32[3, 4]");
  EXPECT_EQ(stacked.table.bind("w.2", view(whole, {3, 8})).code,
            MOIRA_NOT_FOUND);
}

TEST(Shards, PackedParametersOfTheProgramHaveNone) {
  Case test{1, 1, {1, 1, 0, 1, false}, {3, 4}};
  Manifest manifest;
  manifest.parameters = {test.spec()};
  std::string packed(shardElements * sizeof(float), 0);
  auto program = Program::create(
      manifest,
      [](const char *) -> void * {
        return reinterpret_cast<void *>(copyShard);
      },
      nullptr, packed);
  EXPECT_ERROR(program.status(), MOIRA_DATA_LOSS,
               "parameter 'w': expected no packed bytes where ranks hold "
               "different shards, got some");
}
