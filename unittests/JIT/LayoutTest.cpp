// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a bundle's code packs is found again by the numbers of its manifest.

#include "JIT/TrainingProgram.h"

#include "session/PackedLayout.h"
#include "session/ParameterShard.h"
#include "session/StepContext.h"

#include <cstring>
#include <map>

using namespace moira;
using namespace moira::runtime;
using namespace moira::test;

namespace {

/// Numbers of `bytes` bytes, of which no two are equal as far as they reach.
std::vector<char> countUp(int64_t count, int64_t bytes) {
  std::vector<char> values(count * bytes);
  for (int64_t i = 0; i < count; ++i) {
    uint64_t value = i + 1;
    std::memcpy(values.data() + i * bytes, &value, bytes);
  }
  return values;
}

int64_t product(const Shape &shape) {
  int64_t count = 1;
  for (int64_t size : shape)
    count *= size;
  return count;
}

/// Which kinds of layouts were seen.
struct Seen {
  int panels = 0, blocks = 0;
};

/// Packs a slice with the program's code, and brings it back by the layout.
/// Marks the file's elements that came back.
void comeBack(const Program &program, int parameter,
              std::vector<char> &covered) {
  const ParameterSpec &spec = program.manifest().parameters[parameter];
  int64_t bytes = byteSize(spec.sourceType);
  int64_t count = product(spec.sourceShape);
  std::vector<char> source = countUp(count, bytes);
  std::vector<char> packed(spec.packedSliceBytes, 0x55);
  StepContext step(nullptr, std::make_shared<MemoryAccount>());
  step.begin(nullptr, nullptr);
  program.pack(parameter)(step.context(), source.data(), packed.data());
  ASSERT_OK(step.finish());

  PackedLayout layout(spec);
  ASSERT_EQ(layout.packed.count * bytes, spec.packedSliceBytes) << spec.name;
  ParameterShard whole;
  whole.length = count;
  std::vector<char> back(source.size(), 0);
  moveToFile(bytes, layout, layout.packed, packed.data(), whole, back.data());
  for (int64_t i = 0; i < count; ++i) {
    bool found = std::memcmp(back.data() + i * bytes, source.data() + i * bytes,
                             bytes) == 0;
    std::vector<char> none(bytes, 0);
    bool missing =
        std::memcmp(back.data() + i * bytes, none.data(), bytes) == 0;
    ASSERT_TRUE(found || missing) << spec.name << " element " << i;
    covered[i] |= found;
  }
  // What stands between is zero, and the other way round gives the same bytes.
  std::vector<char> again(packed.size(), 0);
  moveFromFile(bytes, layout, layout.packed, whole, source.data(),
               again.data());
  EXPECT_EQ(again, packed) << spec.name;
  // The program's form has the same elements.
  std::vector<char> program1(layout.program.count * bytes, 0);
  moveElements(bytes, layout.packed, packed.data(), layout.program,
               program1.data());
  std::fill(again.begin(), again.end(), 0);
  moveElements(bytes, layout.program, program1.data(), layout.packed,
               again.data());
  EXPECT_EQ(again, packed) << spec.name;
}

void checkProgram(const Program &program, Seen &seen) {
  std::map<std::string, std::vector<char>> covered;
  const std::vector<ParameterSpec> &specs = program.manifest().parameters;
  for (size_t i = 0; i < specs.size(); ++i) {
    std::vector<char> &cover = covered[specs[i].name];
    cover.resize(product(specs[i].sourceShape));
    comeBack(program, i, cover);
    if (!specs[i].packing)
      continue;
    const PackingSpec &packing = *specs[i].packing;
    seen.panels += packing.width > 0;
    seen.blocks += packing.blocksOfN > 1 || packing.blocksOfK > 1;
  }
  for (const auto &[name, cover] : covered)
    EXPECT_EQ(std::count(cover.begin(), cover.end(), 0), 0) << name;
}

TEST(PackedLayout, FindsWhatProgramsPack) {
  Seen seen;
  for (const char *path :
       {"examples/olmoe/tiny.mlir", "examples/switch-base-8/tiny.mlir"})
    for (int64_t ranks : {1, 32})
      for (int64_t copies : {1, 0}) {
        JitOptions options;
        options.optLevel = 0;
        options.pipeline.ranks = ranks;
        options.pipeline.copies = copies;
        options.pipeline.rowClasses = {mlir::moe::RowClass::Prefill};
        options.pipeline.gradients = ranks < 32;
        if (ranks == 1 && copies == 0)
          options.cpu = "x86-64-v3";
        auto program = compileFile(path, options);
        if (program)
          checkProgram(*program, seen);
      }
  for (int64_t blocks : {1, 4}) { // weights of 16 bits, blocks
    JitOptions options;
    options.optLevel = 0;
    options.pipeline.hiddenBlocks = blocks;
    options.pipeline.rowClasses = {mlir::moe::RowClass::Prefill};
    auto program = compileFile("examples/olmoe/layer.mlir", options);
    if (program)
      checkProgram(*program, seen);
  }
  EXPECT_GT(seen.panels, 0);
  EXPECT_GT(seen.blocks, 0);
}

/// Offsets by hand: two panels of two columns, three steps.
TEST(PackedLayout, PlacesPanels) {
  ParameterSpec spec;
  spec.sourceShape = {3, 3};
  PackingSpec packing;
  packing.first = KeptPlaces{0, 1, 3};
  packing.second = {0, 1, 3};
  packing.part = {0, 1, 3};
  packing.width = 2;
  spec.packing = packing;
  PackedLayout layout(spec);
  EXPECT_EQ(layout.packed.count, 12);
  EXPECT_EQ(layout.offset(0, 0, 0), 0);
  EXPECT_EQ(layout.offset(0, 1, 0), 1);
  EXPECT_EQ(layout.offset(0, 0, 2), 4);
  EXPECT_EQ(layout.offset(0, 2, 1), 8);
  EXPECT_EQ(layout.offset(2, 2, 1), 32);
  // Pairs: the later step first.
  spec.packing->pairs = true;
  layout = PackedLayout(spec);
  EXPECT_EQ(layout.packed.count, 16);
  EXPECT_EQ(layout.packed.at(0, 0), 1);
  EXPECT_EQ(layout.packed.at(0, 1), 0);
  EXPECT_EQ(layout.packed.at(1, 2), 7);
  // Every other row of the file, the second of two parts.
  spec.sourceShape = {6, 3};
  spec.packing->pairs = false;
  spec.packing->part = {1, 2, 3};
  layout = PackedLayout(spec);
  EXPECT_EQ(layout.file.at(0, 0), 3);
  EXPECT_EQ(layout.file.at(2, 1), 16);
  EXPECT_EQ(layout.program.at(2, 1), 7);
  // The file has it transposed.
  spec.sourceShape = {3, 6};
  spec.packing->transpose = true;
  layout = PackedLayout(spec);
  EXPECT_EQ(layout.file.at(2, 1), 11);
  // Blocks of K, each with its own panels.
  spec.sourceShape = {3, 4};
  spec.packing->transpose = false;
  spec.packing->part = {0, 1, 3};
  spec.packing->second = {0, 1, 4};
  spec.packing->blocksOfK = 2;
  layout = PackedLayout(spec);
  EXPECT_EQ(layout.packed.count, 16);
  EXPECT_EQ(layout.packed.at(0, 2), 8);
  EXPECT_EQ(layout.packed.at(2, 3), 14);
}

} // namespace
