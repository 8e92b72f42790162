// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Sessions whose experts move for good: what all ranks learn of a mistake of
// one, and the memory that moves take.

#include "Collective/Threads.h"
#include "Runtime/AdaptiveProgram.h"
#include "session/Rebalancing.h"

#include <algorithm>

using namespace moira;
using namespace moira::runtime;
using namespace moira::test;

namespace {

using P = AdaptiveProgram;
constexpr int64_t rowBytes = P::features * sizeof(float);
/// Every unit on another rank.
const std::vector<int32_t> reversed = {7, 6, -1, 5, 4, -1, 3, 2, -1, 1, 0, -1};

/// A rank's session of the program; memory that nobody wrote is poison.
struct MovingSession {
  explicit MovingSession(Communicator &group, int64_t memoryLimit = 0) {
    SessionOptions options;
    options.statisticsSteps = 1;
    options.poisonMemory = true;
    options.memoryLimit = memoryLimit;
    session = P::open(group, options);
    EXPECT_OK(session->setVariant("main", "r1-decode"));
  }
  Session *operator->() { return session.get(); }
  /// Rows that all want one expert of each layer.
  Status hotStep(int seed = 1) {
    return P::run(*session, P::rows(7, uint64_t(seed), /*skew=*/4));
  }
  std::unique_ptr<Session> session;
};

/// Who is not told of another rank's error waits for as long as this.
CommunicatorOptions patient() {
  CommunicatorOptions options;
  options.timeoutSeconds = 3600;
  return options;
}

void expectSaid(const Status &status, const std::string &message) {
  EXPECT_EQ(status.code, MOIRA_INVALID_ARGUMENT);
  EXPECT_NE(status.message.find(message), std::string::npos) << status.message;
}

} // namespace

/// Where all rows want two experts, others give their slots.
TEST(SlotMoves, ExpertsFollowTheirLoads) {
  expectRanks(P::ranks, patient(), [](Communicator &group) {
    MovingSession rank(group);
    expectSaid(rank->rebalance("main").status(),
               ": entry 'main': expected one whose loads are counted "
               "(countLoads), got one whose are not");
    RebalanceOptions options;
    options.threshold = 0.5;
    EXPECT_ERROR(rank->countLoads("main", options), MOIRA_INVALID_ARGUMENT,
                 "entry 'main': rebalance: expected a threshold of 1 or more, "
                 "0 or more rounds and 1 or more steps, got 0.5, 16 and 100");
    EXPECT_OK(rank->countLoads("main", RebalanceOptions()));
    for (int seed = 0; seed < 5; ++seed)
      MOIRA_RETURN_IF_ERROR(rank.hotStep(seed));
    Result<int64_t> moved = rank->rebalance("main");
    MOIRA_RETURN_IF_ERROR(moved.status());
    EXPECT_EQ(*moved, 2);
    std::vector<int32_t> first = rank->slotTable(0),
                         second = rank->slotTable(1);
    EXPECT_GE(std::count(first.begin(), first.end(), 0), 2);
    EXPECT_GE(std::count(second.begin(), second.end(), 3), 2);
    MOIRA_RETURN_IF_ERROR(rank.hotStep(9));
    EXPECT_TRUE(rank->unbound().empty());
    // Nothing new is known.
    EXPECT_OK(rank->countLoads("main", RebalanceOptions()));
    moved = rank->rebalance("main");
    MOIRA_RETURN_IF_ERROR(moved.status());
    EXPECT_EQ(*moved, 0);
    return Status();
  });
}

TEST(SlotMoves, AMistakeOfOneRankEndsARebalanceOnAll) {
  expectRanks(P::ranks, patient(), [](Communicator &group) {
    MovingSession rank(group);
    if (group.rank() != 2)
      EXPECT_OK(rank->countLoads("main", RebalanceOptions()));
    for (int seed = 0; seed < 5; ++seed)
      MOIRA_RETURN_IF_ERROR(rank.hotStep(seed));
    expectSaid(rank->rebalance("main").status(),
               "rank 2: entry 'main': expected one whose loads are counted "
               "(countLoads), got one whose are not");
    const char *name = group.rank() == 1 ? "other" : "main";
    EXPECT_OK(rank->countLoads("main", RebalanceOptions()));
    Status named = rank->rebalance(name).status();
    EXPECT_EQ(named.code, MOIRA_NOT_FOUND);
    EXPECT_EQ(named.message,
              "rank 1: expected an entry of the program ('main'), got 'other'");
    // The ranks are together: everything goes on.
    for (int seed = 0; seed < 5; ++seed)
      MOIRA_RETURN_IF_ERROR(rank.hotStep(seed));
    Result<int64_t> moved = rank->rebalance("main");
    MOIRA_RETURN_IF_ERROR(moved.status());
    EXPECT_EQ(*moved, 2);
    return rank.hotStep();
  });
}

/// Nor does anybody wait for a rank that runs an entry that is not there.
TEST(SlotMoves, AnEntryThatOneRankDoesNotHaveFailsTheStep) {
  expectRanks(P::ranks, patient(), [](Communicator &group) {
    MovingSession rank(group);
    std::vector<float> x = P::rows(2, 1, 0);
    std::vector<ResultTensor> results;
    Status status = rank->invoke(group.rank() == 3 ? "other" : "main",
                                 {view(x, {2, P::features})}, results);
    EXPECT_EQ(status.code, MOIRA_NOT_FOUND);
    EXPECT_NE(status.message.find("rank 3: expected an entry of the program "
                                  "('main'), got 'other'"),
              std::string::npos)
        << status.message;
    return rank.hotStep();
  });
}

/// A rank that has counted less would move nothing, while others wait for it.
TEST(SlotMoves, RanksMustHaveCountedTheSame) {
  expectRanks(P::ranks, patient(), [](Communicator &group) {
    MovingSession rank(group);
    EXPECT_OK(rank->countLoads("main", RebalanceOptions()));
    for (int seed = 0; seed < 5; ++seed)
      MOIRA_RETURN_IF_ERROR(rank.hotStep(seed));
    if (group.rank() == 3)
      EXPECT_OK(rank->countLoads("main", RebalanceOptions()));
    std::vector<int32_t> before = rank->slotTable(0);
    expectSaid(rank->rebalance("main").status(),
               "expected the same entry and counted loads on all ranks, got "
               "others on rank 3 than on rank 0");
    EXPECT_EQ(rank->slotTable(0), before);
    return rank.hotStep();
  });
}

/// What arrives stands beside the slots until all have been read.
TEST(SlotMoves, MovesCountTheirMemory) {
  expectRanks(P::ranks, patient(), [](Communicator &group) {
    int64_t held = 0;
    {
      MovingSession rank(group);
      held = rank->memory().total();
      MOIRA_RETURN_IF_ERROR(rank->moveWeights(0, reversed));
      EXPECT_EQ(rank->memory().total(), held);
      EXPECT_EQ(rank->memory().peak, held + 2 * rowBytes);
      MOIRA_RETURN_IF_ERROR(rank.hotStep());
    }
    int64_t needed = held + 2 * rowBytes;
    {
      MovingSession rank(group, needed - 1);
      Status status = rank->moveWeights(0, reversed);
      EXPECT_EQ(status.code, MOIRA_OUT_OF_MEMORY);
      EXPECT_NE(status.message.find(concat(
                    "expected a peak within the memory limit of ", needed - 1,
                    " bytes, got a predicted peak of ", needed,
                    " bytes (slots that arrive ", 2 * rowBytes, ", copies 0)")),
                std::string::npos)
          << status.message;
      // Nothing has moved, nothing is lost.
      EXPECT_TRUE(rank->unbound().empty());
      EXPECT_EQ(rank->slotTable(0)[0], 0);
    }
    MovingSession rank(group, needed);
    MOIRA_RETURN_IF_ERROR(rank->moveWeights(0, reversed));
    EXPECT_EQ(rank->slotTable(0), reversed);
    EXPECT_EQ(rank->memory().peak, needed);
    return Status();
  });
}

/// A limit that one rank alone has holds for all: nobody moves.
TEST(SlotMoves, TheMemoryOfOneRankIsEnoughToRefuse) {
  expectRanks(P::ranks, patient(), [](Communicator &group) {
    int64_t held = MovingSession(group)->memory().total();
    MovingSession rank(group, group.rank() == 1 ? held + 1 : 0);
    Status status = rank->moveWeights(1, reversed);
    EXPECT_EQ(status.code, MOIRA_OUT_OF_MEMORY);
    EXPECT_EQ(status.message.rfind("move of layer 1: rank 1: expected a peak "
                                   "within the memory limit of ",
                                   0),
              0u)
        << status.message;
    EXPECT_TRUE(rank->unbound().empty());
    EXPECT_EQ(rank->slotTable(1)[0], 0);
    return Status();
  });
}
