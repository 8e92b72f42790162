// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// PTX of the kernels as they are shipped, and what ptxas makes of it: no
// spills, no stack, no products in single file, and the resources of the
// committed table resources.txt.

#include "moira/Target/PTX.h"
#include "GPU/GroupedCase.h"
#include "moira/Conversion/MoEToGPU/RoutingKernel.h"

#include "mlir/AsmParser/AsmParser.h"

#include <cstdlib>
#include <fstream>
#include <gtest/gtest.h>
#include <sstream>

using namespace moira;
using namespace moira::test;
namespace moe = mlir::moe;
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
  /// What else is set.
  void (*set)(GroupedCase &grouped) = nullptr;
};
} // namespace

static GPUSchedule simt(int64_t m, int64_t n, int64_t k, int64_t stages,
                        int64_t warpsM, int64_t warpsN) {
  return {GPUStyle::Simt, m, n, k, stages, warpsM, warpsN};
}

/// Hidden blocks as ranks exchange them.
static void setPanels(GroupedCase &grouped) {
  grouped.layout = moe::WeightLayout::Panels;
  grouped.columnBlocks = 8;
}
static void setPanelChains(GroupedCase &grouped) {
  grouped.layout = moe::WeightLayout::Panels;
  grouped.chains = 4;
}
static void setTransposedPanels(GroupedCase &grouped) {
  grouped.layout = moe::WeightLayout::TransposedPanels;
  grouped.columnBlocks = 8;
}
static void setChained(GroupedCase &grouped) {
  grouped.layout = moe::WeightLayout::KN;
  grouped.chained = true;
  grouped.weights = 2;
}
static void setTwoResults(GroupedCase &grouped) {
  grouped.hasTwoResults = true;
}

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
    {"decode", "sm_80", cpAsync(16, 128, 64, 4, 1, 4)},
    {"decode-gated-gather", "sm_80", cpAsync(16, 64, 64, 4, 1, 4), 2, false,
     false, true, true},
    {"rows", "sm_90a", warpgroup(128, 4)},
    {"rows-wide", "sm_90a", warpgroup(256, 4)},
    {"rows-f16", "sm_90a", warpgroup(256, 4), 1, false, false, false, false,
     true},
    {"gated", "sm_90a", warpgroup(128, 4), 2, false, false, false, true},
    {"input-gradient", "sm_90a", warpgroup(256, 4), 1, true},
    {"weight-gradient", "sm_90a", warpgroup(256, 4), 1, false, true},
    {"panels", "sm_80", cpAsync(128, 128, 32, 4, 2, 4), 1, false, false, false,
     false, false, setPanels},
    {"panels-chains", "sm_80", cpAsync(128, 64, 32, 4, 2, 4), 1, false, false,
     false, false, false, setPanelChains},
    {"transposed-panels", "sm_80", cpAsync(128, 128, 32, 4, 2, 4), 1, false,
     false, false, false, false, setTransposedPanels},
    {"chained", "sm_80", cpAsync(128, 128, 32, 4, 2, 4), 1, false, false, false,
     false, false, setChained},
    {"two-results", "sm_80", cpAsync(128, 64, 32, 4, 2, 4), 2, false, false,
     true, true, false, setTwoResults},
    {"f32", "sm_80", simt(128, 128, 16, 4, 2, 4)},
    {"f32-gated-gather", "sm_80", simt(128, 64, 16, 4, 2, 4), 2, false, false,
     true, true},
    {"f32-input-gradient", "sm_80", simt(128, 128, 16, 4, 2, 4), 1, true},
    {"f32-weight-gradient", "sm_80", simt(128, 128, 16, 4, 2, 4), 1, false,
     true},
    {"f32-panels", "sm_80", simt(128, 128, 16, 4, 2, 4), 1, false, false, false,
     false, false, setPanels},
    {"f32-decode", "sm_80", simt(16, 128, 32, 4, 1, 4)},
};

/// PTX of the one GPU module, brought to the NVVM dialect first.
static std::string ptxOf(GPUContext &context, mlir::ModuleOp module,
                         const char *chip) {
  EXPECT_TRUE(lowerGPUModules(module)) << context.errors;
  auto gpuModule = *module.getOps<mlir::gpu::GPUModuleOp>().begin();
  llvm::Expected<std::string> ptx = translateToPTX(gpuModule, {chip, 3});
  if (ptx)
    return *ptx;
  ADD_FAILURE() << llvm::toString(ptx.takeError()) << context.errors;
  return "";
}

/// PTX of a kernel at sizes of a real layer.
static std::string ptxOf(const Shipped &kernel, int64_t &sharedBytes) {
  GPUContext context;
  GroupedCase grouped;
  grouped.sizes.assign(64, 0);
  grouped.n = 2048;
  grouped.k = 4096;
  grouped.weights = kernel.weights;
  if (kernel.transposed)
    grouped.layout = moe::WeightLayout::KN;
  grouped.contraction = kernel.contraction;
  grouped.gather = kernel.gather;
  grouped.fullEpilogue = kernel.full;
  grouped.integers = false;
  grouped.isHalf = kernel.isHalf;
  grouped.schedule = kernel.schedule;
  if (kernel.set)
    kernel.set(grouped);
  auto module = buildCase(context, grouped, &sharedBytes);
  return ptxOf(context, *module, kernel.chip);
}

namespace {
/// A routing kernel, and its dynamic shared memory.
struct ShippedRouting {
  const char *name;
  std::function<int64_t(mlir::gpu::GPUModuleOp, mlir::OpBuilder &)> build;
};
} // namespace

static int64_t buildRouter(mlir::gpu::GPUModuleOp module, mlir::OpBuilder &b,
                           const char *router, moe::GateKernel kernel) {
  kernel.name = "k";
  kernel.router =
      llvm::cast<moe::RouterAttr>(mlir::parseAttribute(router, b.getContext()));
  kernel.logits = b.getBF16Type();
  if (kernel.router.getExpertChoice())
    moe::buildExpertScoresKernel(module, kernel);
  else
    moe::buildGateKernel(module, kernel);
  return kernel.sharedBytes();
}

static const ShippedRouting shippedRouting[] = {
    {"gate",
     [](mlir::gpu::GPUModuleOp module, mlir::OpBuilder &b) {
       moe::GateKernel kernel;
       kernel.experts = 128;
       kernel.choices = 8;
       return buildRouter(module, b, "#moe.router<normalize = max_sum_eps>",
                          kernel);
     }},
    {"gate-all-options",
     [](mlir::gpu::GPUModuleOp module, mlir::OpBuilder &b) {
       moe::GateKernel kernel;
       kernel.experts = 256;
       kernel.choices = 8;
       kernel.bias = kernel.mask = kernel.sample = kernel.topK =
           kernel.threshold = true;
       return buildRouter(
           module, b,
           "#moe.router<score = sigmoid, groups = 8, keep = 4, group_score = "
           "sum_top2, normalize = sum_plus_eps, eps = 1.0e-20, scale = 2.5>",
           kernel);
     }},
    {"gate-softplus",
     [](mlir::gpu::GPUModuleOp module, mlir::OpBuilder &b) {
       moe::GateKernel kernel;
       kernel.experts = 256;
       kernel.choices = 6;
       return buildRouter(module, b, "#moe.router<score = sqrtsoftplus>",
                          kernel);
     }},
    {"expert-scores",
     [](mlir::gpu::GPUModuleOp module, mlir::OpBuilder &b) {
       moe::GateKernel kernel;
       kernel.experts = kernel.choices = 64;
       kernel.mask = true;
       return buildRouter(module, b, "#moe.router<expert_choice>", kernel);
     }},
    {"expert-choice",
     [](mlir::gpu::GPUModuleOp module, mlir::OpBuilder &) {
       moe::GateKernel kernel;
       kernel.name = "k";
       kernel.experts = kernel.choices = 64;
       moe::buildExpertChoiceKernel(module, kernel);
       return int64_t(0);
     }},
    {"sizes",
     [](mlir::gpu::GPUModuleOp module, mlir::OpBuilder &) {
       moe::buildCountKernel(module, {"k", moe::Order::ChoiceMajor, 128, 8});
       return int64_t(0);
     }},
    {"assign",
     [](mlir::gpu::GPUModuleOp module, mlir::OpBuilder &) {
       moe::buildAssignKernel(module, {"k", moe::Order::ChoiceMajor, 128, 8});
       return int64_t(0);
     }},
    {"assign-priority",
     [](mlir::gpu::GPUModuleOp module, mlir::OpBuilder &) {
       moe::AssignKernel kernel{
           "k", moe::Order::BatchPrioritized, 128, 8, false, true};
       moe::buildAssignKernel(module, kernel);
       return kernel.sharedBytes();
     }},
    {"noise",
     [](mlir::gpu::GPUModuleOp module, mlir::OpBuilder &) {
       moe::buildNoiseKernel(module, {"k", moe::Distribution::Normal, 128, 0});
       return int64_t(0);
     }},
    {"dispatch",
     [](mlir::gpu::GPUModuleOp module, mlir::OpBuilder &b) {
       moe::buildDispatchKernel(module, {"k", b.getBF16Type(), 2048, 8, true});
       return int64_t(0);
     }},
    {"combine",
     [](mlir::gpu::GPUModuleOp module, mlir::OpBuilder &b) {
       moe::buildCombineKernel(module, {"k", b.getBF16Type(), 2048, 8, true});
       return int64_t(0);
     }},
};

/// PTX of a routing kernel for any GPU that the project knows.
static std::string ptxOf(const ShippedRouting &kernel, int64_t &sharedBytes) {
  GPUContext context;
  mlir::Location loc = mlir::UnknownLoc::get(&context.get());
  mlir::OwningOpRef<mlir::ModuleOp> module = mlir::ModuleOp::create(loc);
  mlir::OpBuilder b(module->getBodyRegion());
  sharedBytes =
      kernel.build(mlir::gpu::GPUModuleOp::create(b, loc, "kernels"), b);
  return ptxOf(context, *module, "sm_80");
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
  const Shipped *bulk = llvm::find_if(shipped, [](const Shipped &kernel) {
    return kernel.schedule.style == GPUStyle::Warpgroup;
  });
  std::string next = ptxOf(*bulk, bytes);
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
  auto row = [&](const char *name, const char *chip, const std::string &ptx,
                 int64_t sharedBytes) {
    SCOPED_TRACE(std::string(name) + " for " + chip);
    llvm::Expected<Assembly> assembly = assemblePTX(ptx, {chip, 3});
    if (!assembly) {
      ADD_FAILURE() << llvm::toString(assembly.takeError());
      return;
    }
    EXPECT_TRUE(assembly->warnings.empty()) << assembly->warnings.front();
    ASSERT_EQ(assembly->kernels.size(), 1u);
    const KernelResources &resources = assembly->kernels.front();
    EXPECT_EQ(resources.stackBytes, 0);
    EXPECT_EQ(resources.spillStores, 0);
    EXPECT_EQ(resources.spillLoads, 0);
    EXPECT_EQ(resources.sharedBytes, 0);
    EXPECT_GT(resources.registers, 0);
    table << name << ' ' << chip << ' ' << resources.registers << ' '
          << sharedBytes << ' '
          << count(ptx, "mma.sync.aligned") + count(ptx, "wgmma.mma_async")
          << '\n';
  };
  int64_t sharedBytes = 0;
  for (const Shipped &kernel : shipped) {
    std::string ptx = ptxOf(kernel, sharedBytes);
    row(kernel.name, kernel.chip, ptx, sharedBytes);
  }
  for (const ShippedRouting &kernel : shippedRouting) {
    std::string ptx = ptxOf(kernel, sharedBytes);
    row(kernel.name, "sm_80", ptx, sharedBytes);
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
