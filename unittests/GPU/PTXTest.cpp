// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// PTX of the kernels as they are shipped, and what ptxas makes of it: no
// spills, no stack, no products in single file, and the resources of the
// committed table resources.txt.

#include "moira/Target/PTX.h"
#include "GPU/GroupedCase.h"

#include <cstdlib>
#include <fstream>
#include <gtest/gtest.h>
#include <sstream>

using namespace moira;
using namespace moira::test;
using mlir::moe::GPUSchedule;
using mlir::moe::GPUStyle;

namespace {
struct Shipped {
  const char *name;
  const char *chip;
  GPUSchedule schedule;
  int64_t weights = 1;
  bool transposed = false, contraction = false, gather = false, full = false;
  bool isHalf = false;
};
} // namespace

static GPUSchedule cpAsync(int64_t m, int64_t n, int64_t k, int64_t stages,
                           int64_t warpsM, int64_t warpsN) {
  return {GPUStyle::CpAsync, m, n, k, stages, warpsM, warpsN};
}

static GPUSchedule warpgroup(int64_t n, int64_t stages) {
  return {GPUStyle::Warpgroup, 128, n, 64, stages, 2, 1};
}

static const Shipped shipped[] = {
    {"rows", "sm_80", cpAsync(128, 128, 32, 4, 2, 2)},
    {"rows-f16", "sm_80", cpAsync(128, 128, 32, 4, 2, 2), 1, false, false,
     false, false, true},
    {"rows-8-warps", "sm_80", cpAsync(128, 128, 32, 4, 2, 4)},
    {"gated-gather", "sm_80", cpAsync(128, 64, 32, 4, 2, 4), 2, false, false,
     true, true},
    {"input-gradient", "sm_80", cpAsync(128, 128, 32, 4, 2, 4), 1, true},
    {"weight-gradient", "sm_80", cpAsync(128, 128, 32, 4, 2, 4), 1, false,
     true},
    {"rows", "sm_90a", warpgroup(128, 4)},
    {"rows-wide", "sm_90a", warpgroup(256, 4)},
    {"rows-f16", "sm_90a", warpgroup(256, 4), 1, false, false, false, false,
     true},
    {"gated", "sm_90a", warpgroup(128, 4), 2, false, false, false, true},
    {"input-gradient", "sm_90a", warpgroup(256, 4), 1, true},
    {"weight-gradient", "sm_90a", cpAsync(128, 128, 32, 4, 2, 4), 1, false,
     true},
};

/// PTX of a kernel at sizes of a real layer.
static std::string ptxOf(const Shipped &kernel, int64_t &sharedBytes) {
  GPUContext context;
  GroupedCase grouped;
  grouped.sizes.assign(64, 0);
  grouped.n = 2048;
  grouped.k = 4096;
  grouped.weights = kernel.weights;
  grouped.transposed = kernel.transposed;
  grouped.contraction = kernel.contraction;
  grouped.gather = kernel.gather;
  grouped.fullEpilogue = kernel.full;
  grouped.integers = false;
  grouped.isHalf = kernel.isHalf;
  grouped.schedule = kernel.schedule;
  auto module = buildCase(context, grouped, &sharedBytes);
  EXPECT_TRUE(lowerGPUModules(*module)) << context.errors;
  auto gpuModule = *module->getOps<mlir::gpu::GPUModuleOp>().begin();
  llvm::Expected<std::string> ptx = translateToPTX(gpuModule, {kernel.chip, 3});
  if (!ptx) {
    ADD_FAILURE() << llvm::toString(ptx.takeError()) << context.errors;
    return "";
  }
  return *ptx;
}

static int count(const std::string &text, const std::string &part) {
  int found = 0;
  for (size_t at = text.find(part); at != std::string::npos;
       at = text.find(part, at + 1))
    ++found;
  return found;
}

TEST(PTXTest, hasTheInstructions) {
  int64_t bytes = 0;
  std::string old = ptxOf(shipped[0], bytes);
  EXPECT_EQ(count(old, "mma.sync.aligned.m16n8k16.row.col.f32.bf16"), 64);
  EXPECT_EQ(count(old, "ldmatrix.sync.aligned.m8n8.x4.shared.b16"), 16);
  EXPECT_NE(old.find("cp.async.cg.shared.global"), std::string::npos);
  EXPECT_NE(old.find(".extern .shared .align 1024"), std::string::npos);
  // Static shared memory would lie below the dynamic one.
  EXPECT_EQ(count(old, ".shared .align"), 1);
  std::string next = ptxOf(shipped[6], bytes);
  EXPECT_GE(count(next, "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16"), 4);
  EXPECT_NE(next.find("cp.async.bulk.tensor.2d"), std::string::npos);
  EXPECT_NE(next.find("cp.async.bulk.tensor.3d"), std::string::npos);
  EXPECT_NE(next.find("setmaxnreg"), std::string::npos);
}

TEST(PTXTest, refusesOtherChips) {
  GPUContext context;
  auto module = buildCase(context, GroupedCase());
  ASSERT_TRUE(lowerGPUModules(*module));
  auto gpuModule = *module->getOps<mlir::gpu::GPUModuleOp>().begin();
  llvm::Expected<std::string> ptx = translateToPTX(gpuModule, {"gfx90a", 3});
  ASSERT_FALSE(ptx);
  EXPECT_EQ(llvm::toString(ptx.takeError()),
            "expected a GPU such as sm_80 or sm_90a, got 'gfx90a'");
  ptx = translateToPTX(gpuModule, {"sm_80", 4});
  ASSERT_FALSE(ptx);
  EXPECT_EQ(llvm::toString(ptx.takeError()),
            "expected an optimisation level of 0 to 3, got 4");
}

TEST(PtxasTest, readsItsOutput) {
  Assembly assembly;
  parsePtxasOutput(
      "ptxas info    : 0 bytes gmem\n"
      "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async "
      "instructions are serialized\n"
      "ptxas info    : Compiling entry function 'f' for 'sm_90a'\n"
      "ptxas info    : Function properties for f\n"
      "    16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads\n"
      "ptxas info    : Used 168 registers, used 1 barriers, 32 bytes smem\n",
      assembly);
  ASSERT_EQ(assembly.kernels.size(), 1u);
  const KernelResources &kernel = assembly.kernels.front();
  EXPECT_EQ(kernel.kernel, "f");
  EXPECT_EQ(kernel.registers, 168);
  EXPECT_EQ(kernel.stackBytes, 16);
  EXPECT_EQ(kernel.spillStores, 8);
  EXPECT_EQ(kernel.spillLoads, 12);
  EXPECT_EQ(kernel.sharedBytes, 32);
  EXPECT_EQ(kernel.barriers, 1);
  EXPECT_EQ(assembly.warnings.size(), 1u);
}

TEST(PtxasTest, tellsWhatIsWrong) {
  if (findPtxas().empty())
    GTEST_SKIP() << "no ptxas on this machine";
  llvm::Expected<Assembly> assembly =
      assemblePTX(".version 8.0\n.target sm_80\nnonsense\n", {"sm_80", 3});
  ASSERT_FALSE(assembly);
  std::string text = llvm::toString(assembly.takeError());
  EXPECT_NE(text.find("expected to assemble, got '"), std::string::npos)
      << text;
}

/// Set to the table's path, the test writes it instead of comparing.
static const char *const writeVariable = "MOIRA_WRITE_RESOURCES";

TEST(PtxasTest, resourcesAreThoseOfTheTable) {
  if (findPtxas().empty())
    GTEST_SKIP() << "no ptxas on this machine";
  std::ostringstream table;
  table << "# kernel chip registers dynamic-shared mma-or-wgmma; written by "
           "moira-gpu-tests with "
        << writeVariable << "=FILE\n";
  for (const Shipped &kernel : shipped) {
    SCOPED_TRACE(std::string(kernel.name) + " for " + kernel.chip);
    int64_t sharedBytes = 0;
    std::string ptx = ptxOf(kernel, sharedBytes);
    llvm::Expected<Assembly> assembly = assemblePTX(ptx, {kernel.chip, 3});
    if (!assembly) {
      ADD_FAILURE() << llvm::toString(assembly.takeError());
      continue;
    }
    EXPECT_TRUE(assembly->warnings.empty()) << assembly->warnings.front();
    ASSERT_EQ(assembly->kernels.size(), 1u);
    const KernelResources &resources = assembly->kernels.front();
    EXPECT_EQ(resources.stackBytes, 0);
    EXPECT_EQ(resources.spillStores, 0);
    EXPECT_EQ(resources.spillLoads, 0);
    EXPECT_EQ(resources.sharedBytes, 0);
    EXPECT_GT(resources.registers, 0);
    table << kernel.name << ' ' << kernel.chip << ' ' << resources.registers
          << ' ' << sharedBytes << ' '
          << count(ptx, "mma.sync.aligned") + count(ptx, "wgmma.mma_async")
          << '\n';
  }
  if (const char *path = getenv(writeVariable)) {
    std::ofstream(path) << table.str();
    return;
  }
  std::ifstream file(MOIRA_RESOURCES_TABLE);
  std::stringstream committed;
  committed << file.rdbuf();
  EXPECT_EQ(table.str(), committed.str());
}
