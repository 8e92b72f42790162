// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Sessions whose plans follow their loads: results, memory, what is told.

#include "Collective/Threads.h"
#include "Runtime/AdaptiveProgram.h"
#include "base/Draws.h"
#include "session/Adaptation.h"
#include "session/StatisticsJson.h"

#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>
#include <mutex>
#include <set>
#include <unistd.h>

using namespace moira;
using namespace moira::runtime;
using namespace moira::test;

namespace {

using P = AdaptiveProgram;

/// A rank's session of the program.
struct RankSession {
  explicit RankSession(Communicator &group, const char *gathered = "f32",
                       std::vector<std::shared_ptr<StatisticsSink>> sinks = {})
      : rank(group.rank()) {
    SessionOptions options;
    options.sinks = std::move(sinks);
    options.statisticsSteps = 2;
    session = P::open(group, options, gathered);
  }
  /// Other rows on each rank, some of them few, some skewed.
  Status step(int number) {
    int64_t count = 4 + (number / 7 * 5 + rank * 6) % 19;
    std::vector<float> x =
        P::rows(count, uint64_t(number * P::ranks + rank), number / 10 % 4);
    SCOPED_TRACE(number);
    return P::run(*session, x);
  }
  std::string variant() const {
    const EntrySpec &entry = session->manifest().entries[0];
    return entry.variants[session->statistics().back().variant].name;
  }
  int rank;
  std::unique_ptr<Session> session;
};

CommunicatorOptions twoNodes() {
  CommunicatorOptions options;
  options.ranksPerNode = 2;
  return options;
}

/// Of this process alone: another one may run the same test.
std::string fileOf(const std::string &name) {
  std::string own = name + '.' + std::to_string(getpid());
  return (std::filesystem::path(testing::TempDir()) / own).string();
}

} // namespace

TEST(AdaptingSession, ResultsAreRightWhateverIsChosen) {
  std::mutex mutex;
  std::set<std::string> seen;
  expectRanks(P::ranks, twoNodes(), [&](Communicator &group) {
    RankSession rank(group);
    EXPECT_OK(rank.session->adapt("main", AdaptOptions()));
    for (int step = 0; step < 300; ++step) {
      MOIRA_RETURN_IF_ERROR(rank.step(step));
      std::lock_guard<std::mutex> lock(mutex);
      seen.insert(rank.variant());
    }
    return Status();
  });
  EXPECT_GE(seen.size(), 4u); // of r = 0 and r = 1, for few and many rows
}

TEST(AdaptingSession, ThousandSwitchesMoveNothingAndChangeNoBit) {
  expectRanks(P::ranks, twoNodes(), [&](Communicator &group) {
    RankSession rank(group);
    EXPECT_OK(rank.session->adapt("main", AdaptOptions()));
    std::vector<Candidate> all = *rank.session->candidates("main");
    EXPECT_GE(all.size(), 9u);
    MemoryFigures before;
    const void *weights = nullptr;
    std::set<int> variants;
    for (int step = 0; step < 1000; ++step) {
      Draws draws({1, 2}, uint32_t(step)); // alike on all ranks
      const Candidate &next = all[draws.below(int64_t(all.size()))];
      EXPECT_OK(rank.session->forceCandidate("main", next.describe()));
      MOIRA_RETURN_IF_ERROR(rank.step(step % 100));
      const StepRow row = rank.session->statistics().back();
      EXPECT_EQ(row.layers[1].plan.degree, next.plan.degree);
      EXPECT_EQ(row.layers[1].plan.exchange, next.plan.exchange);
      EXPECT_STREQ(row.layers[1].reason, "fixed");
      variants.insert(row.variant);
      if (step == 100) { // all sizes have been seen
        before = rank.session->memory();
        weights = P::seenWeights[rank.rank];
      }
      if (step > 100) {
        EXPECT_EQ(rank.session->memory().workspace, before.workspace);
        EXPECT_EQ(rank.session->memory().parameters, before.parameters);
        EXPECT_EQ(rank.session->memory().peak, before.peak);
        EXPECT_EQ(P::seenWeights[rank.rank], weights);
      }
      // No rank may fail alone.
      if (testing::Test::HasFailure())
        return group.endStep(Status(MOIRA_FAILED, "see above"));
    }
    EXPECT_EQ(variants.size(), 6u);
    return Status();
  });
}

TEST(AdaptingSession, AFailedStepLeavesAllRanksAlike) {
  for (int lag : {0, 1})
    expectRanks(P::ranks, {}, [&](Communicator &group) {
      RankSession rank(group);
      AdaptOptions options;
      options.selection.lag = lag;
      options.selection.fixed = 1;
      EXPECT_OK(rank.session->adapt("main", options));
      for (int step = 0; step < 60; ++step) {
        if (step % 9 == 4) {
          // One rank fails before it decides.
          std::vector<float> x(8);
          std::vector<ResultTensor> results;
          Status status = rank.session->invoke(
              "main", {view(x, {2, rank.rank == 1 ? 3 : 4})}, results);
          EXPECT_FALSE(status.ok());
        }
        MOIRA_RETURN_IF_ERROR(rank.step(step));
      }
      return Status();
    });
}

TEST(AdaptingSession, WithinAStepDegreesFollowItsOwnLoads) {
  expectRanks(P::ranks, {}, [&](Communicator &group) {
    RankSession rank(group);
    AdaptOptions options;
    options.selection.lag = 0;
    options.selection.mode = SelectionMode::Model;
    options.selection.fixed = 1; // r = 1
    EXPECT_OK(rank.session->adapt("main", options));
    // Steps begin with eight chunks, which such small ones are not worth.
    const std::vector<Candidate> all = *rank.session->candidates("main");
    const Candidate begin = all[1];
    for (size_t i = 0; i < all.size(); ++i)
      if (all[i].variant == begin.variant && all[i].plan.degree == 8 &&
          all[i].plan.shadows == 0)
        options.selection.fixed = int(i);
    EXPECT_EQ(all[options.selection.fixed].plan.degree, 8);
    EXPECT_OK(rank.session->adapt("main", options));
    for (int step = 0; step < 60; ++step) {
      MOIRA_RETURN_IF_ERROR(rank.step(step));
      StepRow row = rank.session->statistics().back();
      std::vector<Explanation> why = *rank.session->explain("main");
      for (int layer = 0; layer < P::layers; ++layer) {
        const Candidate &chosen = all[why[layer].decision.candidate];
        EXPECT_LT(chosen.plan.degree, 8);
        EXPECT_EQ(row.layers[layer].plan.degree, chosen.plan.degree);
        EXPECT_EQ(why[layer].step, step);
      }
    }
    return Status();
  });
}

TEST(AdaptingSession, AForbiddenVariantIsLeftWithTheNextRecord) {
  expectRanks(P::ranks, {}, [&](Communicator &group) {
    RankSession rank(group);
    AdaptOptions options;
    options.selection.mode = SelectionMode::Fixed;
    EXPECT_OK(rank.session->adapt("main", options));
    MOIRA_RETURN_IF_ERROR(rank.step(0));
    EXPECT_EQ(rank.variant().substr(0, 2), "r0");
    if (rank.rank == 3)
      EXPECT_OK(rank.session->forbidVariant("main", "r0-decode", true));
    MOIRA_RETURN_IF_ERROR(rank.step(1));
    EXPECT_EQ(rank.variant().substr(0, 2), "r0"); // others know now
    MOIRA_RETURN_IF_ERROR(rank.step(2));
    EXPECT_EQ(rank.variant().substr(0, 2), "r1");
    if (rank.rank == 3)
      EXPECT_OK(rank.session->forbidVariant("main", "r0-decode", false));
    MOIRA_RETURN_IF_ERROR(rank.step(3));
    MOIRA_RETURN_IF_ERROR(rank.step(4));
    EXPECT_EQ(rank.variant().substr(0, 2), "r0");
    return Status();
  });
}

TEST(AdaptingSession, OfOneNumericsClass) {
  expectRanks(P::ranks, {}, [&](Communicator &group) {
    RankSession rank(group, "other");
    AdaptOptions options;
    options.selection.numerics = "f32";
    EXPECT_OK(rank.session->adapt("main", options));
    for (int step = 0; step < 40; ++step) {
      MOIRA_RETURN_IF_ERROR(rank.step(step));
      EXPECT_EQ(rank.variant().substr(0, 2), "r1");
    }
    return Status();
  });
}

TEST(AdaptingSession, AReplayMakesTheSameDecisions) {
  std::string file = fileOf("adapting-session.flight");
  std::vector<std::vector<std::string>> runs(2);
  for (int run : {0, 1})
    expectRanks(P::ranks, twoNodes(), [&](Communicator &group) {
      RankSession rank(group);
      AdaptOptions options;
      (run == 0 ? options.flightLog : options.replay) = file;
      EXPECT_OK(rank.session->adapt("main", options));
      for (int step = 0; step < 50; ++step) {
        if (run == 0 && step == 20)
          EXPECT_OK(rank.session->forceCandidate("main", "r=1 groups"));
        if (run == 0 && step == 25)
          EXPECT_OK(rank.session->forceCandidate("main", ""));
        MOIRA_RETURN_IF_ERROR(rank.step(step));
        const StepRow row = rank.session->statistics().back();
        if (rank.rank == 0)
          for (const LayerRow &layer : row.layers)
            runs[run].push_back(concat(rank.variant(), " ", layer.plan.degree,
                                       " ", layer.plan.exchange, " ",
                                       layer.reason));
      }
      if (run == 1) // any rank may be the first to fail
        EXPECT_NE(rank.step(50).message.find(
                      ": replay: expected at most the 50 steps of the flight "
                      "log, got another"),
                  std::string::npos);
      return Status();
    });
  EXPECT_EQ(runs[0], runs[1]);
  EXPECT_EQ(runs[0].size(), 100u);
  for (const char *layer : {".0", ".1"}) {
    size_t bytes = std::filesystem::file_size(file + layer);
    EXPECT_LT(bytes, 50 * 1024u);
    std::filesystem::remove(file + layer);
  }
}

TEST(AdaptingSession, LearnedTablesOutliveASession) {
  std::string table;
  for (int run : {0, 1})
    expectRanks(P::ranks, {}, [&](Communicator &group) {
      RankSession rank(group);
      EXPECT_OK(rank.session->adapt("main", AdaptOptions()));
      if (run == 1) {
        EXPECT_ERROR(rank.session->loadLearned("main", "{}"), MOIRA_DATA_LOSS,
                     "learned table.format: expected a value, got none");
        EXPECT_OK(rank.session->loadLearned("main", table));
      }
      for (int step = 0; step < 30; ++step) {
        if (step == 0 && run == 1 && rank.rank == 0)
          EXPECT_EQ(*rank.session->saveLearned("main"), table);
        MOIRA_RETURN_IF_ERROR(rank.step(step));
      }
      if (run == 0 && rank.rank == 0)
        table = *rank.session->saveLearned("main");
      return Status();
    });
  EXPECT_NE(table.find("\"by_candidate\""), std::string::npos);
}

TEST(AdaptingSession, SaysWhy) {
  expectRanks(P::ranks, {}, [&](Communicator &group) {
    RankSession rank(group);
    EXPECT_OK(rank.session->adapt("main", AdaptOptions()));
    for (int step = 0; step < 5; ++step)
      MOIRA_RETURN_IF_ERROR(rank.step(0));
    StepRow row = rank.session->statistics().back();
    std::vector<Explanation> why = *rank.session->explain("main");
    EXPECT_EQ(why.size(), size_t(P::layers));
    EXPECT_EQ(why[0].step, 4);
    EXPECT_STREQ(row.layers[0].reason, reasonName(why[0].decision.reason));
    EXPECT_EQ(row.layers[0].predicted, why[0].decision.seconds);
    EXPECT_GT(row.layers[0].predicted, 0);
    EXPECT_GT(row.layers[0].total(), 0);
    std::string json = *rank.session->explainJson("main");
    EXPECT_EQ(json.rfind("{\"entry\":\"main\",\"layers\":[{\"layer\":0,"
                         "\"step\":4,\"chosen\":\"r=",
                         0),
              0u)
        << json;
    return Status();
  });
}

TEST(AdaptingSession, RefusesWhatDoesNotFit) {
  expectRanks(P::ranks, {}, [&](Communicator &group) {
    RankSession rank(group);
    EXPECT_ERROR(rank.session->explain("main").status(), MOIRA_INVALID_ARGUMENT,
                 "entry 'main': expected one that adapts (adapt), got one that "
                 "does not");
    EXPECT_ERROR(rank.session->adapt("other", {}), MOIRA_NOT_FOUND,
                 "expected an entry of the program ('main'), got 'other'");
    AdaptOptions options;
    options.replay = fileOf("no-such.flight");
    EXPECT_ERROR(rank.session->adapt("main", options), MOIRA_NOT_FOUND,
                 concat("entry 'main': replay: ", options.replay,
                        ".0: cannot read: No such file or directory"));
    options.replay.clear();
    options.flightLog = fileOf("no-such-folder/x");
    Status status = rank.session->adapt("main", options);
    EXPECT_EQ(status.ok(), rank.rank != 0); // who writes it
    EXPECT_OK(rank.session->adapt("main", AdaptOptions()));
    EXPECT_OK(rank.session->stopAdapting("main"));
    EXPECT_OK(rank.step(0));
    EXPECT_STREQ(rank.session->statistics().back().layers[0].reason, "");
    return Status();
  });
}

TEST(AdaptingSession, TenThousandStepsHoldNoMoreMemory) {
  expectRanks(P::ranks, {}, [&](Communicator &group) {
    RankSession rank(group);
    EXPECT_OK(rank.session->adapt("main", AdaptOptions()));
    MemoryFigures before;
    for (int step = 0; step < 10000; ++step) {
      MOIRA_RETURN_IF_ERROR(rank.step(step % 1000));
      if (step == 1000)
        before = rank.session->memory();
    }
    MemoryFigures after = rank.session->memory();
    EXPECT_EQ(after.peak, before.peak);
    EXPECT_EQ(after.workspace, before.workspace);
    return Status();
  });
}

TEST(AdaptingSession, StepsAreLinesOfJson) {
  std::string path = fileOf("adapting-session.jsonl");
  auto file = JsonLinesFile::open(path);
  ASSERT_OK(file.status());
  const Manifest manifest = P::manifest();
  expectRanks(P::ranks, {}, [&](Communicator &group) {
    RankSession rank(
        group, "f32",
        {std::make_shared<JsonLinesSink>(*file, manifest, group.rank())});
    EXPECT_OK(rank.session->adapt("main", AdaptOptions()));
    for (int step = 0; step < 3; ++step)
      MOIRA_RETURN_IF_ERROR(rank.step(step));
    return Status();
  });
  ASSERT_OK((*file)->flush());
  std::ifstream lines(path);
  std::set<std::pair<int, int>> seen;
  for (std::string line; std::getline(lines, line);) {
    nlohmann::json json = nlohmann::json::parse(line);
    seen.insert({json["rank"].get<int>(), json["step"].get<int>()});
    EXPECT_EQ(json["entry"], "main");
    EXPECT_EQ(json["layers"].size(), size_t(P::layers));
    const nlohmann::json &layer = json["layers"][1];
    EXPECT_EQ(layer["matrix"].size(), size_t(P::ranks));
    // A rank's own row of the matrix is what it routed.
    EXPECT_EQ(layer["matrix"][json["rank"].get<int>()], layer["counts"]);
    EXPECT_EQ(layer["routed"], json["rows"]);
    EXPECT_EQ(layer.contains("predicted"), json["step"] > 0);
    double parts = 0;
    for (const auto &part : layer["parts"])
      parts += part.get<double>();
    EXPECT_DOUBLE_EQ(layer["seconds"], parts);
  }
  EXPECT_EQ(seen.size(), size_t(3 * P::ranks));
  std::filesystem::remove(path);
  EXPECT_ERROR(
      JsonLinesFile::open(fileOf("no-such-folder/x")).status(), MOIRA_NOT_FOUND,
      concat("expected a file that can be written, got '",
             fileOf("no-such-folder/x"), "': No such file or directory"));
}
