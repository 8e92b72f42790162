// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Manifests for several grids, and variants with residuals of their own.

#include "Runtime/TestProgram.h"

#include "session/Manifest.h"
#include "session/ManifestMerge.h"
#include "session/Predictions.h"
#include <functional>

using namespace moira;
using namespace moira::runtime;
using namespace moira::test;

/// A manifest for `ranks` ranks; the entry's name tells grids apart.
static GridManifest gridOf(int32_t ranks) {
  GridManifest grid{ranks, testManifest()};
  grid.manifest.entries[0].name = "on" + std::to_string(ranks);
  grid.manifest.entries[0].ranks = ranks;
  return grid;
}

TEST(Grids, EachIsReadByItsRanks) {
  std::vector<GridManifest> all{gridOf(1), gridOf(2), gridOf(8)};
  for (GridManifest &grid : all) {
    grid.manifest.hiddenBlocks = 4;
    grid.manifest.notes = {"a note"};
  }
  std::string json = serializeGrids(all);
  Result<std::vector<int32_t>> grids = listGrids(json);
  ASSERT_TRUE(grids.ok()) << grids.status().message;
  EXPECT_EQ(*grids, (std::vector<int32_t>{1, 2, 8}));
  for (const GridManifest &grid : all) {
    Result<Manifest> manifest = Manifest::parse(json, grid.ranks);
    ASSERT_TRUE(manifest.ok()) << manifest.status().message;
    EXPECT_EQ(manifest->hiddenBlocks, 4);
    EXPECT_EQ(manifest->serialize(), grid.manifest.serialize());
  }
}

TEST(Grids, OneIsWrittenAsManifestsWithoutGrids) {
  std::string json = serializeGrids({gridOf(4)});
  EXPECT_EQ(json, gridOf(4).manifest.serialize());
  EXPECT_EQ(*listGrids(json), std::vector<int32_t>{4});
  EXPECT_TRUE(Manifest::parse(json).ok());
  // Who runs on other ranks is told when the session checks them.
  EXPECT_TRUE(Manifest::parse(json, 3).ok());
}

TEST(Grids, OthersAreNamed) {
  std::string json = serializeGrids({gridOf(1), gridOf(2)});
  EXPECT_ERROR(Manifest::parse(json, 3).status(), MOIRA_INVALID_ARGUMENT,
               "expected a grid of the bundle (1, 2 ranks), got 3");
  EXPECT_ERROR(Manifest::parse(json).status(), MOIRA_INVALID_ARGUMENT,
               "expected a grid of the bundle (1, 2 ranks), got none");
}

TEST(Grids, DamageIsNamed) {
  std::string json = serializeGrids({gridOf(1), gridOf(2)});
  auto edited = [&](const std::string &from, const std::string &to) {
    std::string text = json;
    size_t place = text.rfind(from);
    EXPECT_NE(place, std::string::npos) << from;
    return text.replace(place, from.size(), to);
  };
  EXPECT_ERROR(Manifest::parse(edited("\"on2\"", "\"\""), 2).status(),
               MOIRA_DATA_LOSS,
               "manifest: grids[1].entries[0].name: expected a string that is "
               "not empty");
  std::string twice = json;
  for (const char *text : {"\"ranks\": 2,\n   \"entries\"", "\"ranks\": 2"})
    if (size_t place = twice.find(text); place != std::string::npos)
      twice.replace(place + 9, 1, "1");
  EXPECT_ERROR(Manifest::parse(twice, 1).status(), MOIRA_DATA_LOSS,
               "manifest: grids[1].ranks: expected a number of ranks used "
               "once, got 1 again");
  EXPECT_ERROR(Manifest::parse(R"({"moira": {"version": "", "abi": 3},
                                   "grids": []})",
                               1)
                   .status(),
               MOIRA_DATA_LOSS,
               "manifest: grids: expected at least one grid, got none");
  for (size_t length = 0; length < json.size(); length += 7)
    EXPECT_FALSE(Manifest::parse(json.substr(0, length), 2).ok());
}

/// An entry with a residual and its way back, in two variants, the second with
/// other residuals.
static const char *const trainingText = R"({
  "moira": {"version": "0.1.0", "abi": 3},
  "entries": [
    {"name": "main", "backward": "back", "residuals": 1,
     "inputs": [{"name": "x", "dtype": "f32", "shape": [-1, 4]}],
     "results": [{"dtype": "f32", "shape": [-1, 3]},
                 {"dtype": "i64", "shape": []}],
     "variants": [
       {"name": "a", "step": "s", "workspace": "w"},
       {"name": "b", "step": "s", "workspace": "w",
        "residuals": [{"dtype": "bf16", "shape": [-1, 7]},
                      {"dtype": "i32", "shape": [5]}]}]},
    {"name": "back",
     "inputs": [{"name": "r", "dtype": "i64", "shape": []},
                {"name": "d", "dtype": "f32", "shape": [-1, 3]}],
     "results": [{"dtype": "f32", "shape": [-1, 4], "gradient": {"input": 0}}],
     "variants": [{"name": "a", "step": "s", "workspace": "w"},
                  {"name": "b", "step": "s", "workspace": "w"}]}],
  "parameters": []})";

TEST(Signatures, VariantsHaveResidualsOfTheirOwn) {
  Result<Manifest> manifest = Manifest::parse(trainingText);
  ASSERT_TRUE(manifest.ok()) << manifest.status().message;
  EntrySpec first = manifest->signature(0, 0);
  EXPECT_EQ(first.results.size(), 2u);
  EntrySpec second = manifest->signature(0, 1);
  ASSERT_EQ(second.results.size(), 3u);
  EXPECT_EQ(second.residuals, 2);
  EXPECT_EQ(second.ownResults(), 1);
  EXPECT_EQ(second.results[1].shape, (Shape{-1, 7}));
  EXPECT_EQ(manifest->signature(1, 0).inputs.size(), 2u);
  EntrySpec back = manifest->signature(1, 1);
  ASSERT_EQ(back.inputs.size(), 3u);
  EXPECT_EQ(back.inputs[0].dtype, DataType::BF16);
  EXPECT_EQ(back.inputs[1].shape, (Shape{5}));
  EXPECT_EQ(back.inputs[2].name, "d");
  std::string json = manifest->serialize();
  Result<Manifest> again = Manifest::parse(json);
  ASSERT_TRUE(again.ok()) << again.status().message;
  EXPECT_EQ(again->serialize(), json);
}

TEST(Signatures, ResidualsNeedAnEntryThatHasSome) {
  std::string json = trainingText;
  for (auto [from, to] :
       {std::pair("\"residuals\": 1", "\"residuals\": 0"),
        std::pair("{\"dtype\": \"f32\", \"shape\": [-1, 3]},\n                 "
                  "{\"dtype\": \"i64\", \"shape\": []}",
                  "{\"dtype\": \"f32\", \"shape\": [-1, 3]}"),
        std::pair("{\"name\": \"r\", \"dtype\": \"i64\", \"shape\": []},", "")})
    json.replace(json.find(from), std::string(from).size(), to);
  EXPECT_ERROR(Manifest::parse(json).status(), MOIRA_DATA_LOSS,
               "manifest: entries[0].backward: expected no residuals of "
               "variant 'b', as the entry has none, got 2");
}

/// A manifest with one entry for two ranks that reads one parameter.
static Manifest unit(const std::string &variant, int32_t copies) {
  Manifest manifest = testManifest();
  EntrySpec &entry = manifest.entries[0];
  entry.ranks = 2;
  entry.layers = {{0, 4, 2, 10, LayerPlacement{4, 1, copies, 2}, {}}};
  entry.variants.resize(1);
  entry.variants[0].name = variant;
  entry.variants[0].copies = copies;
  return manifest;
}

TEST(Merge, AddsVariants) {
  Manifest grid = unit("a", 1), other = unit("b", 0);
  other.entries[0].layers[0].flopsPerRow = 20;
  other.parameters[0].pack = "another_symbol";
  std::string pack = grid.parameters[0].pack;
  EXPECT_OK(mergeVariants(grid, other));
  const EntrySpec &entry = grid.entries[0];
  ASSERT_EQ(entry.variants.size(), 2u);
  EXPECT_EQ(entry.variants[1].name, "b");
  EXPECT_EQ(entry.variants[1].copies, 0);
  EXPECT_TRUE(entry.variants[1].residuals.empty());
  EXPECT_EQ(entry.layers[0].placement->copies, 1);
  EXPECT_EQ(entry.layers[0].flopsPerRow, 20);
  EXPECT_EQ(grid.parameters[0].pack, pack);
}

TEST(Merge, KeepsResidualsThatDiffer) {
  Manifest grid = *Manifest::parse(trainingText), other = grid;
  for (Manifest *manifest : {&grid, &other})
    for (EntrySpec &entry : manifest->entries)
      entry.variants.resize(1);
  other.entries[0].variants[0].name = other.entries[1].variants[0].name = "c";
  other.entries[0].results.push_back({"", DataType::I32, {3}, {}});
  other.entries[0].residuals = 2;
  other.entries[1].inputs.insert(other.entries[1].inputs.begin() + 1,
                                 {"s", DataType::I32, {3}, {}});
  EXPECT_OK(mergeVariants(grid, other));
  EXPECT_EQ(grid.entries[0].variants[1].residuals.size(), 2u);
  Result<Manifest> again = Manifest::parse(grid.serialize());
  ASSERT_TRUE(again.ok()) << again.status().message;
  EXPECT_EQ(again->signature(0, 0).results.size(), 2u);
  EXPECT_EQ(again->signature(0, 1).results.size(), 3u);
  EXPECT_EQ(again->signature(1, 1).inputs.size(), 3u);
}

TEST(Merge, NamesTheFirstDifference) {
  struct {
    std::function<void(Manifest &)> change;
    const char *message;
  } cases[] = {
      {[](Manifest &m) { m.entries.clear(); }, "expected 1 entries, got 0"},
      {[](Manifest &m) { m.parameters.pop_back(); }, " parameters, got "},
      {[](Manifest &m) { m.parameters[0].packedSliceBytes += 64; },
       "packed_slice_bytes: expected "},
      {[](Manifest &m) { m.parameters[0].layout = "other"; },
       "layout: expected "},
      {[](Manifest &m) { m.entries[0].name = "other"; },
       "expected entry 'main', got 'other'"},
      {[](Manifest &m) { m.entries[0].ranks = 4; }, "expected 2 ranks, got 4"},
      {[](Manifest &m) { m.entries[0].inputs[0].dtype = DataType::I8; },
       "input 0: expected "},
      {[](Manifest &m) { m.entries[0].results.pop_back(); }, " results, got "},
      {[](Manifest &m) { m.entries[0].layers[0].placement->slots = 3; },
       "layer 0: expected the same experts and placement in all variants"},
  };
  for (const auto &wrong : cases) {
    Manifest grid = unit("a", 1), other = unit("b", 0);
    wrong.change(other);
    std::string before = grid.serialize();
    Status status = mergeVariants(grid, other);
    EXPECT_EQ(status.code, MOIRA_INVALID_ARGUMENT);
    EXPECT_NE(status.message.find(wrong.message), std::string::npos)
        << status.message << "\nwithout " << wrong.message;
    EXPECT_EQ(grid.serialize(), before);
  }
}

TEST(Merge, MarksAndNotesInAllGrids) {
  std::string json = serializeGrids({gridOf(1), gridOf(2)});
  std::string variant = testManifest().entries[0].variants[0].name;
  Result<std::string> marked =
      qualifyVariants(json, 2, "on2", false, {{variant, "target"}});
  ASSERT_TRUE(marked.ok()) << marked.status().message;
  Result<std::string> noted = addNotes(*marked, {"a note"});
  ASSERT_TRUE(noted.ok()) << noted.status().message;
  Result<Manifest> one = Manifest::parse(*noted, 1);
  Result<Manifest> two = Manifest::parse(*noted, 2);
  ASSERT_TRUE(one.ok() && two.ok());
  EXPECT_NE(one->entries[0].variants[0].qualified, "target");
  EXPECT_EQ(two->entries[0].variants[0].qualified, "target");
  EXPECT_EQ(one->notes, std::vector<std::string>{"a note"});
  EXPECT_FALSE(qualifyVariants("{", 1, "on1", false, {}).ok());
}

TEST(Predictions, GrowWithRowsAndRanksHaveSome) {
  EntrySpec entry = unit("a", 1).entries[0];
  entry.variants.push_back(entry.variants[0]);
  entry.variants[1].copies = 0;
  EXPECT_TRUE(predictVariants(entry, 16)->empty()); // costs are not known
  entry.layers[0].cost =
      LayerCostSpec{64, 64, 128, 64, 64, 32, {{0, 1024, 1024, false}}};
  Result<std::vector<VariantPrediction>> few = predictVariants(entry, 16);
  Result<std::vector<VariantPrediction>> many = predictVariants(entry, 65536);
  ASSERT_TRUE(few.ok() && many.ok());
  ASSERT_EQ(few->size(), 2u);
  for (int i = 0; i < 2; ++i) {
    EXPECT_GT((*few)[i].seconds, 0);
    EXPECT_GT((*many)[i].seconds, (*few)[i].seconds);
    EXPECT_GT((*many)[i].peakBytes, (*few)[i].peakBytes);
  }
  entry.ranks = 1;
  EXPECT_TRUE(predictVariants(entry, 16)->empty());
}
