// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A compiled layer on four ranks that trains while its plans change: r, degree,
// exchange, schedule, shadows, k of the rows.

#include "Collective/Threads.h"
#include "JIT/TrainingProgram.h"

#include "moira/JIT/ParseProgram.h"
#include "moira/JIT/Variants.h"

#include "base/Draws.h"
#include "session/Adaptation.h"
#include "session/Residuals.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FileUtilities.h"
#include "llvm/Support/MemoryBuffer.h"

#include <cstring>
#include <map>
#include <set>

using namespace moira;
using namespace moira::runtime;
using namespace moira::test;

static constexpr int ranks = 4;

namespace {
/// A layer with all of its variants, gradients and a spare slot.
struct Layer {
  std::shared_ptr<const Program> program;
  int64_t in = 4, out = 2; ///< numbers of a row
};
} // namespace

static std::shared_ptr<const Program> compileFile(const std::string &path) {
  mlir::DialectRegistry registry;
  registerDialects(registry);
  mlir::MLIRContext context(registry, mlir::MLIRContext::Threading::DISABLED);
  auto module = parseProgram(path, context);
  EXPECT_TRUE(bool(module)) << llvm::toString(module.takeError());
  if (!module)
    return nullptr;
  JitOptions options;
  options.pipeline.gradients = true;
  options.pipeline.ranks = ranks;
  options.pipeline.spareSlots = 1;
  auto program = compileVariants(**module, options, VariantOptions());
  EXPECT_TRUE(bool(program)) << llvm::toString(program.takeError());
  return program ? *program : nullptr;
}

/// The tools' test layer.
static Layer compileLayer() {
  static Layer made; // takes a second or two
  if (!made.program)
    made.program =
        compileFile(MOIRA_SOURCE_DIR "/test/Tools/Inputs/layer.mlir");
  return made;
}

/// Two gated experts, which two ranks share each.
static Layer compileShared() {
  auto text =
      llvm::MemoryBuffer::getFile(MOIRA_SOURCE_DIR "/examples/olmoe/tiny.mlir");
  EXPECT_TRUE(bool(text));
  std::string program = (*text)->getBuffer().str();
  const std::pair<std::string, std::string> changes[] = {
      {"tensor<16x", "tensor<2x"}, {"x16x", "x2x"}, {"?x4x", "?x2x"}};
  for (const auto &[from, to] : changes)
    for (size_t at = program.find(from); at != std::string::npos;
         at = program.find(from, at + to.size()))
      program.replace(at, from.size(), to);
  llvm::SmallString<128> path;
  EXPECT_FALSE(llvm::sys::fs::createTemporaryFile("moira", "mlir", path));
  llvm::FileRemover remove(path);
  std::error_code error;
  llvm::raw_fd_ostream(path, error) << program;
  EXPECT_FALSE(error);
  return {compileFile(std::string(path)), 40, 40};
}

namespace {
/// A forward step of a rank that waits for its way back.
struct Waiting {
  std::shared_ptr<const Residuals> handle;
  std::vector<char> result;             ///< its bytes
  std::vector<float> gradient;          ///< of the results
  std::vector<std::vector<char>> first; ///< what the way back gave at once
};

struct TrainingRank {
  TrainingRank(Communicator &group, const Layer &layer)
      : layer(layer), rank(group.rank()) {
    SessionOptions options;
    options.threads = 1;
    options.statisticsSteps = 1;
    options.communicator = std::shared_ptr<Communicator>(&group, [](auto *) {});
    session = makeSession(layer.program, options);
    EXPECT_OK(session->bindRandom(5));
    EXPECT_OK(session->adapt("main", AdaptOptions()));
    candidates = *session->candidates("main");
  }
  std::vector<float> reals(int64_t count, int seed) const {
    Draws draws({uint32_t(seed), uint32_t(rank)}, 0);
    std::vector<float> values;
    for (int64_t i = 0; i < count; ++i)
      values.push_back(float(draws.normal()));
    return values;
  }
  Status forward(int step, Waiting &made) {
    int64_t rows = 2 + (step * 5 + rank * 3) % 23;
    std::vector<float> x = reals(rows * layer.in, step);
    std::vector<ResultTensor> results;
    MOIRA_RETURN_IF_ERROR(session->forward("main", {view(x, {rows, layer.in})},
                                           results, made.handle));
    made.gradient = reals(rows * layer.out, step + 10000);
    auto *data = static_cast<const char *>(results[0].data);
    made.result.assign(data, data + rows * layer.out * sizeof(float));
    return Status();
  }
  /// The bytes of all gradients.
  Status backward(const Waiting &waiting,
                  std::vector<std::vector<char>> &bytes) {
    std::vector<ResultTensor> results;
    MOIRA_RETURN_IF_ERROR(session->backward(
        *waiting.handle,
        {view(waiting.gradient,
              {int64_t(waiting.gradient.size()) / layer.out, layer.out})},
        results));
    bytes.clear();
    for (const ResultTensor &result : results) {
      auto *data = static_cast<const char *>(result.data);
      bytes.emplace_back(
          data, data + compactBytes(result.dtype, result.shape).value());
    }
    return Status();
  }
  const Layer layer;
  const int rank;
  std::unique_ptr<Session> session;
  std::vector<Candidate> candidates;
};
} // namespace

TEST(AdaptingTraining, HandlesKeepTheirPlansWhileOthersChange) {
  Layer program = compileLayer();
  ASSERT_TRUE(program.program);
  std::set<int> copies;
  CommunicatorOptions grid;
  grid.ranksPerNode = 2;
  expectRanks(ranks, grid, [&](Communicator &group) {
    TrainingRank rank(group, program);
    std::vector<Waiting> waiting;
    std::vector<std::vector<char>> results(50); // by input
    for (int step = 0; step < 1000; ++step) {
      Draws draws({3, 4}, uint32_t(step)); // alike on all ranks
      const Candidate &next =
          rank.candidates[draws.below(int64_t(rank.candidates.size()))];
      if (rank.rank == 0)
        copies.insert(next.plan.copies);
      EXPECT_OK(rank.session->forceCandidate("main", next.describe()));
      Waiting &made = waiting.emplace_back();
      std::vector<char> &before = results[step % 50];
      MOIRA_RETURN_IF_ERROR(rank.forward(step % 50, made));
      // All variants are of one class: no plan changes a bit.
      if (before.empty())
        before = made.result;
      EXPECT_EQ(before, made.result) << next.describe();
      MOIRA_RETURN_IF_ERROR(rank.backward(made, made.first));
      if (waiting.size() < 4)
        continue;
      // Several are alive; any of them, with the plan that it has.
      size_t which = size_t(draws.below(int64_t(waiting.size())));
      std::vector<std::vector<char>> again;
      MOIRA_RETURN_IF_ERROR(rank.backward(waiting[which], again));
      EXPECT_EQ(again, waiting[which].first) << "step " << step;
      waiting.erase(waiting.begin() + int64_t(which));
      EXPECT_TRUE(rank.session->unbound().empty());
    }
    return Status();
  });
  EXPECT_EQ(copies, (std::set<int>{0, 1}));
}

TEST(AdaptingTraining, LearnsFromBothDirections) {
  Layer program = compileLayer();
  ASSERT_TRUE(program.program);
  expectRanks(ranks, {}, [&](Communicator &group) {
    TrainingRank rank(group, program);
    // All plans have been seen once; then they are decided.
    MemoryFigures before;
    size_t warm = rank.candidates.size();
    for (size_t step = 0; step < warm + 150; ++step) {
      EXPECT_OK(rank.session->forceCandidate(
          "main", step < warm ? rank.candidates[step].describe() : ""));
      if (step == warm)
        before = rank.session->memory();
      Waiting made;
      MOIRA_RETURN_IF_ERROR(rank.forward(7, made));
      MOIRA_RETURN_IF_ERROR(rank.backward(made, made.first));
    }
    // Residuals of other plans fit other blocks of the pool, more or less.
    EXPECT_LT(rank.session->memory().peak, before.peak + before.peak / 100);
    EXPECT_EQ(rank.session->memory().parameters, before.parameters);
    std::string learned = *rank.session->saveLearned("main");
    // Some ratio of measured to predicted times.
    EXPECT_EQ(learned.find("\"by_candidate\": []"), std::string::npos);
    return Status();
  });
}

/// Where ranks share experts, how often rows travel may change as well. Neither
/// results nor gradients of inputs depend on it.
TEST(AdaptingTraining, SharedExpertsSwitchHowOftenRowsTravel) {
  Layer shared = compileShared();
  ASSERT_TRUE(shared.program);
  std::set<int> copies;
  expectRanks(ranks, {}, [&](Communicator &group) {
    TrainingRank rank(group, shared);
    std::vector<Waiting> first(10);              // by input
    std::map<std::pair<int, int>, Waiting> same; // by input and r
    for (int step = 0; step < 200; ++step) {
      Draws draws({5, 6}, uint32_t(step)); // alike on all ranks
      const Candidate &next =
          rank.candidates[draws.below(int64_t(rank.candidates.size()))];
      if (rank.rank == 0)
        copies.insert(next.plan.copies);
      EXPECT_OK(rank.session->forceCandidate("main", next.describe()));
      Waiting made;
      MOIRA_RETURN_IF_ERROR(rank.forward(step % 10, made));
      MOIRA_RETURN_IF_ERROR(rank.backward(made, made.first));
      Waiting &before = first[step % 10];
      if (before.result.empty())
        before = made;
      EXPECT_TRUE(before.result == made.result) << next.describe();
      EXPECT_TRUE(before.first[0] == made.first[0]) << next.describe();
      // Sums of weights' gradients over ranks have an order for each r.
      Waiting &alike = same[{step % 10, next.plan.copies}];
      if (alike.result.empty())
        alike = made;
      EXPECT_TRUE(alike.first == made.first) << next.describe();
    }
    return Status();
  });
  EXPECT_EQ(copies, (std::set<int>{0, 1, 2}));
}
