// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Training on ranks, saved and loaded with others.

#include "JIT/TrainingRanks.h"

#include <array>
#include <fstream>

using namespace moira;
using namespace moira::runtime;
using namespace moira::test;

namespace {

struct Layout {
  int ranks, copies, spare;
  bool permuted;
};

/// E >= W, E = W, E < W with rows or weights that travel, replicas.
const Layout layouts[] = {{2, 1, 0, false}, {4, 0, 0, true},  {8, 1, 0, true},
                          {2, 1, 1, true},  {16, 1, 0, true}, {16, 2, 0, false},
                          {16, 0, 0, true}};

/// Trains and saves rows of `width` on one rank, and goes on with each layout.
static void goOnWithOtherRanks(int64_t width, llvm::ArrayRef<Layout> others) {
  Folder one;
  Ranks trained(layer(1, 1, 0, width), 1);
  trained.bind();
  trained.train(1);
  trained.train(2);
  trained.save(one.name(), false);
  std::vector<float> expected = trained.forward(9);
  std::map<std::string, std::string> saved = tensorsOf(one.name());
  // The names and shapes of the program's own checkpoint, and states beside.
  EXPECT_EQ(saved.size(), 3u * (1 + 3 * 8));
  EXPECT_EQ(saved.count("model.layers.0.block_sparse_moe.gate.weight f32[8, " +
                        std::to_string(width) + "]"),
            1u)
      << saved.rbegin()->first;
  trained.train(4);
  Folder after;
  trained.save(after.name(), false);
  std::map<std::string, std::string> goneOn = tensorsOf(after.name());

  for (const Layout &layout : others) {
    SCOPED_TRACE(testing::Message()
                 << layout.ranks << " ranks, r " << layout.copies << ", "
                 << layout.spare << " spare");
    Ranks ranks(layer(layout.ranks, layout.copies, layout.spare, width),
                layout.ranks, layout.permuted);
    ranks.restore(one.name());
    // What was loaded is what was saved, and computes the same.
    for (bool sharded : {false, true}) {
      Folder again;
      ranks.save(again.name(), sharded);
      EXPECT_TRUE(tensorsOf(again.name()) == saved);
      if (!sharded)
        EXPECT_EQ(again.files().size(), 2u);
    }
    std::vector<float> result = ranks.forward(9);
    ASSERT_EQ(result, expected);
    // And goes on alike: weights as after the same step on one rank.
    ranks.train(4);
    Folder next;
    ranks.save(next.name(), true);
    std::map<std::string, std::string> found = tensorsOf(next.name());
    ASSERT_EQ(found.size(), goneOn.size());
    for (const auto &[name, bytes] : goneOn) {
      if (name.rfind("optimizer.exp_avg_sq", 0) == 0)
        continue; // squares of small numbers, below
      ASSERT_EQ(found.count(name), 1u) << name;
      for (size_t i = 0; i + 4 <= bytes.size(); i += 4) {
        float wanted, got;
        std::memcpy(&wanted, bytes.data() + i, 4);
        std::memcpy(&got, found[name].data() + i, 4);
        ASSERT_NEAR(got, wanted, 1e-4 * std::max(0.1f, std::fabs(wanted)))
            << name << " element " << i / 4;
      }
    }
  }
}

TEST(Checkpoint, GoesOnWithOtherRanks) {
  goOnWithOtherRanks(features, layouts);
}

/// Rows that no vector and no number of ranks divides.
TEST(Checkpoint, GoesOnWithRowsThatNothingDivides) {
  goOnWithOtherRanks(61, {{4, 1, 1, true}, {16, 2, 0, true}});
}

TEST(Checkpoint, NormsDoNotDependOnRanks) {
  Ranks one(layer(1, 1), 1);
  one.bind();
  one.forward(1, /*accumulate=*/true);
  double expected = one.norm();
  EXPECT_GT(expected, 0);
  for (const Layout &layout : layouts) {
    Ranks ranks(layer(layout.ranks, layout.copies, layout.spare), layout.ranks,
                layout.permuted);
    ranks.bind();
    ranks.forward(1, /*accumulate=*/true);
    // Gradients over ranks are sums in another order: a few roundings of f32.
    EXPECT_NEAR(ranks.norm(), expected, 1e-6 * expected)
        << layout.ranks << " ranks, r " << layout.copies;
  }
}

/// Ranks that go back from different steps, or with different plans, fail
/// together, and go on.
TEST(Checkpoint, RanksGoBackFromOneStep) {
  Ranks ranks(layer(2, 1), 2);
  ranks.bind();
  std::vector<float> x = fractions(5 * features, 1);
  std::vector<std::array<std::shared_ptr<const Residuals>, 2>> handles(2);
  TensorView view{DataType::F32, {5, features}, x.data()};
  for (int step = 0; step < 2; ++step)
    ranks.onAll([&](int rank) {
      std::vector<ResultTensor> results;
      return ranks.sessions[rank]->forward("main", {view}, results,
                                           handles[rank][step]);
    });
  std::array<Status, 2> outcomes;
  auto back = [&](int first, int second) {
    ranks.onAll([&](int rank) {
      std::vector<ResultTensor> gradients;
      outcomes[rank] = ranks.sessions[rank]->backward(
          *handles[rank][rank == 0 ? first : second], {view}, gradients);
      return Status();
    });
  };
  back(0, 1);
  for (const Status &outcome : outcomes)
    EXPECT_NE(outcome.message.find("expected residuals of the same forward "
                                   "step and plan on all ranks, got others on "
                                   "rank 1 than on rank 0"),
              std::string::npos)
        << outcome.message;
  back(1, 1); // in any order
  EXPECT_OK(outcomes[0]);
  back(0, 0);
  EXPECT_OK(outcomes[1]);
}

TEST(Checkpoint, KeepsMasterCopies) {
  JitOptions options = withOptimizers();
  auto program = compileProgram(linearProgram("bf16"), options);
  Folder folder;
  std::vector<uint16_t> x(8, 0x3f80), dy(6, 0x3f80); // ones
  auto step = [&](Session &session) {
    std::vector<ResultTensor> results, ofInputs;
    std::shared_ptr<const Residuals> handle;
    ASSERT_OK(session.forward("main", {{DataType::BF16, {1, 8}, x.data()}},
                              results, handle));
    session.zeroGradients();
    ASSERT_OK(session.accumulate(*handle, {{DataType::BF16, {1, 6}, dy.data()}},
                                 ofInputs));
    UpdateOptions update;
    update.rule = "sgd";
    update.momentum = 0.5;
    update.learningRate = 1e-4; // less than a bf16 shows at once
    ASSERT_OK(session.update(update));
  };
  auto first = makeSession(program), second = makeSession(program);
  ASSERT_OK(first->bindRandom(3));
  for (int i = 0; i < 5; ++i)
    step(*first);
  ASSERT_OK(first->saveCheckpoint(folder.name(), {5, 3, "", 0}, false));
  auto state = second->restoreCheckpoint(folder.name());
  ASSERT_OK(state.status());
  EXPECT_EQ(state->updates, 5);
  EXPECT_EQ(state->rule, "sgd");
  for (int i = 0; i < 20; ++i) {
    step(*first);
    step(*second);
  }
  Folder a, b;
  ASSERT_OK(first->saveCheckpoint(a.name(), {25, 3, "", 0}, false));
  ASSERT_OK(second->saveCheckpoint(b.name(), {25, 3, "", 0}, false));
  EXPECT_TRUE(tensorsOf(a.name()) == tensorsOf(b.name()));
}

//===----------------------------------------------------------------------===//
// What is wrong with a folder
//===----------------------------------------------------------------------===//

struct Damaged : testing::Test {
  Damaged() {
    session = makeSession(program());
    EXPECT_OK(session->bindRandom(3));
    EXPECT_OK(session->saveCheckpoint(folder.name(), {7, 3, "", 0}, false));
    EXPECT_EQ(folder.files().size(), 2u);
  }
  static std::shared_ptr<const Program> program() {
    static auto compiled =
        compileProgram(linearProgram("f32"), withOptimizers());
    return compiled;
  }
  std::string data() const {
    return folder.name() + "/step-7-rank-0.safetensors";
  }
  std::string index() const {
    return folder.name() + "/model.safetensors.index.json";
  }
  static std::string read(const std::string &path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  static void write(const std::string &path, const std::string &text) {
    std::ofstream(path, std::ios::binary) << text;
  }
  void replace(const std::string &from, const std::string &to) {
    std::string text = read(index());
    size_t place = text.find(from);
    ASSERT_NE(place, std::string::npos) << text;
    write(index(), text.replace(place, from.size(), to));
  }
  std::string failure() {
    return makeSession(program())
        ->restoreCheckpoint(folder.name())
        .status()
        .message;
  }

  Folder folder;
  std::unique_ptr<Session> session;
};

TEST_F(Damaged, IsWholeBefore) { EXPECT_EQ(failure(), ""); }

TEST_F(Damaged, NoIndex) {
  llvm::sys::fs::remove(index());
  EXPECT_EQ(failure(), "checkpoint: " + index() +
                           ": expected a checkpoint, got no such file");
}

TEST_F(Damaged, AnotherFormat) {
  replace("moira-training-1", "moira-training-9");
  EXPECT_EQ(failure(), "checkpoint: " + index() +
                           ": expected a checkpoint of format "
                           "'moira-training-1', got 'moira-training-9'");
}

TEST_F(Damaged, ANumberThatIsNone) {
  replace("\"step\": \"7\"", "\"step\": \"x\"");
  EXPECT_EQ(failure(), "checkpoint: " + index() +
                           ": metadata 'step': expected a number, got 'x'");
}

TEST_F(Damaged, AFlippedBit) {
  std::string bytes = read(data());
  bytes.back() ^= 1;
  write(data(), bytes);
  EXPECT_EQ(failure().find("checkpoint: " + data() + ": expected checksum "),
            0u)
      << failure();
}

TEST_F(Damaged, ATruncatedFile) {
  std::string bytes = read(data());
  write(data(), bytes.substr(0, bytes.size() - 4));
  std::string message = failure();
  EXPECT_EQ(message.find("checkpoint: " + data()), 0u) << message;
  EXPECT_EQ(message.find('\n'), std::string::npos);
}

TEST_F(Damaged, AMissingFile) {
  llvm::sys::fs::remove(data());
  EXPECT_NE(failure().find(data()), std::string::npos) << failure();
}

TEST_F(Damaged, AnotherProgram) {
  auto other = makeSession(compileProgram(R"(
    func.func @main(%x: tensor<?x4xf32>,
        %w: tensor<3x3xf32> {moe.param = #moe.param<"w">}) -> tensor<?x4xf32> {
      return %x : tensor<?x4xf32>
    })"));
  EXPECT_NE(other->restoreCheckpoint(folder.name())
                .status()
                .message.find("expected f32[3, 3], got f32[6, 8]"),
            std::string::npos)
      << other->restoreCheckpoint(folder.name()).status().message;
}

/// A checkpoint that cannot be written leaves the last one as it is.
TEST_F(Damaged, AFailedSaveChangesNothing) {
  std::map<std::string, std::string> before = tensorsOf(folder.name());
  std::string blocked = folder.name() + "/step-8-rank-0.safetensors";
  ASSERT_FALSE(llvm::sys::fs::create_directory(blocked)); // in the way
  EXPECT_NE(session->saveCheckpoint(folder.name(), {8, 3, "", 0}, false).code,
            MOIRA_OK);
  llvm::sys::fs::remove(blocked);
  EXPECT_EQ(failure(), "");
  EXPECT_TRUE(tensorsOf(folder.name()) == before);
  EXPECT_EQ(folder.files().size(), 2u);
}

/// Later checkpoints end the files of earlier ones, and of killed runs.
TEST_F(Damaged, LeftoversAreRemoved) {
  write(folder.name() + "/step-6-rank-3.safetensors", "old");
  write(data() + ".tmp1-1", "half");
  write(folder.name() + "/notes.txt", "mine");
  ASSERT_OK(session->saveCheckpoint(folder.name(), {8, 3, "", 0}, false));
  EXPECT_EQ(folder.files(), (std::vector<std::string>{
                                folder.name() + "/model.safetensors.index.json",
                                folder.name() + "/notes.txt",
                                folder.name() + "/step-8-rank-0.safetensors"}));
}

} // namespace
