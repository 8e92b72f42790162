// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One rank fails, stalls or goes: all end the step, in bounded time, with one
// error; and where all stay, the next step works.

#include "Collective/Conformance.h"
#include "Collective/Threads.h"

#include <atomic>
#include <chrono>
#include <cstring>

using namespace moira;
using namespace moira::runtime;
using namespace moira::test;

namespace {
/// Where a step of four calls is left by the bad rank.
enum Stage { BeforeCounts, BeforeThere, BeforeBack, BeforeEnd, Stages };

using Clock = std::chrono::steady_clock;

double since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// A layer's step: counts, rows there and back. `at` runs before each stage
/// and may end the step.
Status step(Communicator &ranks, const std::function<Status(Stage)> &at,
            const RankRecord &record = {}, int experts = 0) {
  int w = ranks.ranks();
  experts = experts ? experts : w;
  std::vector<int32_t> mine(experts, 2), matrix(w * experts);
  std::vector<double> home(2 * experts, ranks.rank()), away(2 * w * experts);
  auto body = [&]() -> Status {
    MOIRA_RETURN_IF_ERROR(at(BeforeCounts));
    MOIRA_RETURN_IF_ERROR(
        ranks.gatherCounts(7, experts, mine.data(), record, matrix.data()));
    moira_plan plan{};
    plan.degree = 1;
    moira_exchange exchange{};
    exchange.layer = 7;
    exchange.placement = {experts, 1, 1, experts / w};
    exchange.chunks = 1;
    exchange.counts = matrix.data();
    exchange.home = home.data();
    exchange.home_rows = 2 * experts;
    exchange.away = away.data();
    exchange.row_bytes = sizeof(double);
    for (int direction : {MOIRA_TO_EXPERTS, MOIRA_TO_TOKENS}) {
      MOIRA_RETURN_IF_ERROR(
          at(direction == MOIRA_TO_EXPERTS ? BeforeThere : BeforeBack));
      exchange.direction = direction;
      Result<int64_t> ticket = ranks.exchange(plan, exchange);
      MOIRA_RETURN_IF_ERROR(ticket.ok() ? ranks.wait(*ticket)
                                        : ticket.status());
    }
    MOIRA_RETURN_IF_ERROR(at(BeforeEnd));
    for (double value : home)
      if (value != ranks.rank())
        return Status(MOIRA_FAILED, "rows differ");
    return Status();
  };
  Status begun = ranks.beginStep();
  return ranks.endStep(begun.ok() ? body() : begun);
}

Status fine(Stage) { return Status(); }

void expectAll(const std::vector<Status> &outcomes, int32_t code,
               const std::string &message) {
  for (const Status &outcome : outcomes) {
    EXPECT_EQ(outcome.code, code);
    EXPECT_EQ(outcome.message, message);
  }
}
} // namespace

TEST(Failure, ErrorOfOneRankEndsAllAndTheNextStepWorks) {
  for (int ranks : {2, 5})
    for (int stage = 0; stage < Stages; ++stage) {
      std::vector<Status> first(ranks), second(ranks);
      expectRanks(ranks, {}, [&](Communicator &self) {
        int rank = self.rank();
        first[rank] = step(self, [&](Stage now) {
          return rank == 1 && now == stage
                     ? Status(MOIRA_OUT_OF_MEMORY, "no room for 8 bytes")
                     : Status();
        });
        second[rank] = step(self, fine);
        return second[rank];
      });
      expectAll(first, MOIRA_OUT_OF_MEMORY, "rank 1: no room for 8 bytes");
    }
}

TEST(Failure, ManyRoundsOfFailuresByChangingRanks) {
  expectRanks(4, {}, [&](Communicator &self) -> Status {
    for (int round = 0; round < 40; ++round) {
      Status outcome = step(self, [&](Stage now) {
        return round % 3 != 2 && self.rank() == round % 4 &&
                       now == round % Stages
                   ? Status(MOIRA_FAILED, concat("round ", round))
                   : Status();
      });
      bool ok = round % 3 == 2 ? outcome.ok()
                               : outcome.message == concat("rank ", round % 4,
                                                           ": round ", round);
      if (!ok)
        return outcome.within(concat("round ", round));
    }
    return Status();
  });
}

TEST(Failure, RankThatGoesIsNamed) {
  static const char *const operations[] = {
      "gather counts, layer 7", "exchange to experts, layer 7, chunk 0",
      "exchange to tokens, layer 7, chunk 0", "end of the step"};
  for (int stage = 0; stage < Stages; ++stage) {
    Clock::time_point begin = Clock::now();
    std::vector<Status> outcomes =
        runRanks(3, {}, [&](Communicator &self) -> Status {
          if (self.rank() != 2)
            return step(self, fine);
          // Leaves without a word: its communicator goes.
          struct Gone {};
          try {
            return step(self, [&](Stage now) -> Status {
              if (now == stage)
                throw Gone();
              return Status();
            });
          } catch (const Gone &) {
            return Status();
          }
        });
    EXPECT_LT(since(begin), 20);
    EXPECT_EQ(outcomes[0].message, outcomes[1].message);
    EXPECT_EQ(outcomes[0].code, MOIRA_UNAVAILABLE);
    EXPECT_NE(outcomes[0].message.find(
                  concat(operations[stage], ": rank 2 has left")),
              std::string::npos)
        << outcomes[0].message;
  }
}

TEST(Failure, StalledRankIsNamedAfterTheTimeout) {
  static const char *const operations[] = {
      "gather counts, layer 7", "exchange to experts, layer 7, chunk 0",
      "exchange to tokens, layer 7, chunk 0", "end of the step"};
  CommunicatorOptions options;
  options.timeoutSeconds = 0.3;
  for (int stage = 0; stage < Stages; ++stage) {
    std::vector<Status> outcomes(3), next(3);
    std::atomic<int> ended{0};
    expectRanks(3, options, [&](Communicator &self) {
      outcomes[self.rank()] = step(self, [&](Stage now) {
        // Until the others have given up.
        while (now == stage && self.rank() == 1 && ended < 2)
          std::this_thread::sleep_for(std::chrono::milliseconds(5));
        return Status();
      });
      ++ended;
      next[self.rank()] = step(self, fine);
      return next[self.rank()];
    });
    EXPECT_EQ(outcomes[0].code, MOIRA_FAILED);
    EXPECT_EQ(outcomes[0].message.rfind(
                  concat("rank 1: ", operations[stage],
                         ": expected its part within 0.3 seconds"),
                  0),
              0u)
        << outcomes[0].message;
    expectAll(outcomes, MOIRA_FAILED, outcomes[0].message);
  }
}

TEST(Failure, RanksThatDisagreeAreNamed) {
  struct {
    const char *what;
    uint64_t RankRecord::*field;
  } const cases[] = {{"program", &RankRecord::program},
                     {"plan", &RankRecord::plan},
                     {"shapes of inputs", &RankRecord::shapes}};
  for (const auto &c : cases) {
    std::vector<Status> outcomes(4);
    expectRanks(4, {}, [&](Communicator &self) {
      RankRecord record;
      record.*c.field = self.rank() >= 2 ? 5 + self.rank() : 1;
      outcomes[self.rank()] = step(self, fine, record);
      return step(self, fine);
    });
    expectAll(outcomes, MOIRA_INVALID_ARGUMENT,
              concat("rank 2: gather counts, layer 7: expected the same ",
                     c.what, " as on rank 0, got another"));
  }
}

TEST(Failure, RecordsOfAnotherSizeAreAnError) {
  std::vector<Status> outcomes(2);
  expectRanks(2, {}, [&](Communicator &self) {
    outcomes[self.rank()] = step(self, fine, {}, self.rank() ? 4 : 2);
    return step(self, fine);
  });
  EXPECT_EQ(outcomes[0].message, outcomes[1].message);
  EXPECT_NE(outcomes[0].message.find("gather counts, layer 7: expected "),
            std::string::npos)
      << outcomes[0].message;
}

TEST(Failure, ExchangeThatDoesNotFitFailsOnAllRanks) {
  std::vector<Status> outcomes(3);
  expectRanks(3, {}, [&](Communicator &self) {
    auto bad = [&]() -> Status {
      MOIRA_RETURN_IF_ERROR(self.beginStep());
      std::vector<int32_t> counts(9, 1);
      moira_plan plan{};
      moira_exchange exchange{};
      exchange.layer = 2;
      exchange.placement = {3, 1, 1, 1};
      exchange.chunk = self.rank() == 1 ? 5 : 0;
      exchange.chunks = 1;
      exchange.counts = counts.data();
      std::vector<char> home(3), away(3);
      exchange.home = home.data();
      exchange.away = away.data();
      exchange.row_bytes = 1;
      Result<int64_t> ticket = self.exchange(plan, exchange);
      Status status = ticket.ok() ? self.wait(*ticket) : ticket.status();
      return self.endStep(status);
    };
    outcomes[self.rank()] = bad();
    return step(self, fine);
  });
  expectAll(outcomes, MOIRA_INVALID_ARGUMENT,
            "rank 1: exchange to experts, layer 2, chunk 5: exchange: "
            "expected a chunk below the number of chunks, got 5");
}

TEST(Failure, SumsThatDoNotFitFailOnAllRanks) {
  auto run = [&](Communicator &self, int32_t dtype, int64_t count,
                 bool weights) -> Status {
    MOIRA_RETURN_IF_ERROR(self.beginStep());
    std::vector<float> whole(3), local(1);
    moira_reduce reduce{};
    reduce.layer = 2;
    reduce.parameter = 1;
    reduce.placement = {3, 1, 0, 1};
    reduce.whole = whole.data();
    reduce.local = local.data();
    reduce.count = count;
    reduce.dtype = dtype;
    moira_plan plan{};
    Result<int64_t> ticket =
        weights ? self.reduceWeights(plan, reduce)
                : self.startAllReduce(whole.data(), whole.data(), count, dtype);
    return self.endStep(ticket.ok() ? self.wait(*ticket) : ticket.status());
  };
  struct {
    int32_t dtype;
    int64_t count;
    bool weights;
    const char *message;
  } const cases[] = {
      {MOIRA_I8, 1, true,
       "rank 1: reduce weights, layer 2, parameter 1: reduction: expected "
       "f16, bf16, f32, f64, i32 or i64, got type 5"},
      {MOIRA_F32, -1, true,
       "rank 1: reduce weights, layer 2, parameter 1: expected 0 or "
       "more elements, got -1"},
      {MOIRA_I1, 1, false,
       "rank 1: all-reduce: reduction: expected f16, bf16, f32, f64, i32 or "
       "i64, got type 4"},
      {MOIRA_F32, -3, false,
       "rank 1: all-reduce: expected 0 or more elements, got -3"}};
  for (const auto &c : cases) {
    std::vector<Status> outcomes(3);
    expectRanks(3, {}, [&](Communicator &self) -> Status {
      bool bad = self.rank() == 1;
      outcomes[self.rank()] =
          run(self, bad ? c.dtype : MOIRA_F32, bad ? c.count : 1, c.weights);
      return run(self, MOIRA_F32, 1, c.weights);
    });
    expectAll(outcomes, MOIRA_INVALID_ARGUMENT, c.message);
  }
}

TEST(Failure, SumsOfAnotherSizeAreAnError) {
  std::vector<Status> outcomes(2);
  expectRanks(2, {}, [&](Communicator &self) -> Status {
    auto run = [&](int64_t count) -> Status {
      MOIRA_RETURN_IF_ERROR(self.beginStep());
      std::vector<float> data(count);
      return self.endStep(
          self.allReduce(data.data(), count, MOIRA_F32, Reduction::Sum));
    };
    outcomes[self.rank()] = run(self.rank() ? 8 : 4);
    return run(4);
  });
  EXPECT_EQ(outcomes[0].message, outcomes[1].message);
  EXPECT_NE(outcomes[0].message.find("all-reduce: expected "),
            std::string::npos)
      << outcomes[0].message;
}

TEST(Failure, InterruptEndsTheStep) {
  std::vector<Status> outcomes(2);
  expectRanks(2, {}, [&](Communicator &self) {
    outcomes[self.rank()] = step(self, [&](Stage now) -> Status {
      if (now != BeforeThere || self.rank() != 0)
        return Status();
      self.interrupt();
      return Status();
    });
    return step(self, fine);
  });
  EXPECT_EQ(outcomes[0].message, outcomes[1].message);
  // What rank 0 waited for when it looked.
  EXPECT_NE(outcomes[0].message.find("interrupted"), std::string::npos)
      << outcomes[0].message;
}

/// Between a step that failed and the next one nobody waits: all learn of it as
/// soon as somebody does.
TEST(Failure, AnInterruptBetweenStepsIsNotLost) {
  std::vector<Status> failed(2), interrupted(2);
  expectRanks(2, {}, [&](Communicator &self) {
    failed[self.rank()] = step(self, [&](Stage now) {
      return now == BeforeThere && self.rank() == 1
                 ? Status(MOIRA_FAILED, "wrong input")
                 : Status();
    });
    if (self.rank() == 0)
      self.interrupt();
    interrupted[self.rank()] = step(self, fine);
    return step(self, fine);
  });
  expectAll(failed, MOIRA_FAILED, "rank 1: wrong input");
  EXPECT_EQ(interrupted[0].message, interrupted[1].message);
  EXPECT_NE(interrupted[0].message.find("interrupted"), std::string::npos)
      << interrupted[0].message;
}

TEST(Failure, FailureOfASubCommunicatorIsOne) {
  std::vector<Status> outcomes(4);
  CommunicatorOptions options;
  options.timeoutSeconds = 10;
  expectRanks(4, options, [&](Communicator &self) -> Status {
    // A step of its own: nobody fails the next one before all have split.
    MOIRA_RETURN_IF_ERROR(self.beginStep());
    auto half = self.split(self.rank() % 2);
    MOIRA_RETURN_IF_ERROR(self.endStep(half.status()));
    Status mine = self.beginStep();
    if (mine.ok())
      mine = self.rank() == 3 ? Status(MOIRA_FAILED, "gave up")
                              : (*half)->barrier();
    outcomes[self.rank()] = self.endStep(mine);
    MOIRA_RETURN_IF_ERROR(self.beginStep());
    return self.endStep((*half)->barrier());
  });
  expectAll(outcomes, MOIRA_FAILED, "rank 3: gave up");
}

TEST(Failure, OptionsAreChecked) {
  auto create = [](CommunicatorOptions options) {
    auto ends = makeInProcess(1);
    return Communicator::create(std::move(ends[0]), options).status();
  };
  CommunicatorOptions options;
  options.timeoutSeconds = 0;
  EXPECT_EQ(create(options).message,
            "expected a timeout of more than 0 seconds, got 0");
  options = {};
  options.ranksPerNode = -1;
  EXPECT_EQ(create(options).message,
            "expected 0 or more ranks per node, got -1");
  EXPECT_EQ(Communicator::create(nullptr).status().message,
            "expected a transport, got none");
}
