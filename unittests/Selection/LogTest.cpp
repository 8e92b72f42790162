// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What outlives a run: the learned table and the flight log.

#include "Selection/Games.h"

#include <algorithm>

using namespace moira;
using namespace moira::runtime;
using namespace moira::test;

namespace {
/// A run of a training layer that somebody may record.
struct Played {
  Machine machine = machineA();
  Truth truth{machine};
  std::vector<int> decisions;
  size_t largestRecord = 0;

  void play(Decider &decider, int steps, FlightRecorder *recorder = nullptr,
            const char *loadsName = "training") {
    LoadOptions options;
    EXPECT_TRUE(options.parse(loadsName).ok());
    options.ranks = 8;
    options.experts = 32;
    options.tokens = 2048;
    options.topK = 2;
    LoadTrace trace = *LoadTrace::create(options);
    std::vector<int32_t> counts;
    std::vector<double> seconds(8);
    std::vector<uint64_t> variants(8, ~uint64_t(0)), programs(8, 42);
    double last = 0;
    SharedStep record;
    record.step = -1;
    record.variants = variants.data();
    record.programs = programs.data();
    for (int step = 0; step < steps; ++step) {
      if (step == steps / 2)
        variants[3] = 0b011;
      Decision decision = *decider.decide(record);
      if (recorder) {
        recorder->add(record, decision);
        largestRecord = std::max(largestRecord, recorder->lastBytes());
      }
      decisions.push_back(decision.candidate);
      trace.next();
      trace.rows(counts);
      for (int rank = 0; rank < 8; ++rank)
        seconds[rank] = last * (1 - 0.01 * rank);
      if (step % 17 == 5)
        seconds[2] = INFINITY;
      last = truth.noisy(truth.timeOf(counts, decision), step);
      record.step = step;
      record.counts = counts.data();
      record.timedStep = step - 1;
      record.seconds = seconds.data();
      record.nextRows = step % 5 ? -1 : 30000;
    }
  }
};
} // namespace

TEST(FlightLog, ReplaysARun) {
  Played run;
  auto decider = run.machine.decider();
  FlightRecorder recorder(*decider);
  run.play(*decider, 150, &recorder);
  ASSERT_TRUE(decider->setPlacement(nullptr).ok());
  recorder.addPlacement(nullptr);
  // The bar, for 8 ranks and 32 experts.
  EXPECT_LT(run.largestRecord, 1024u);
  printf("largest record: %zu bytes\n", run.largestRecord);
  Result<FlightLog> log = FlightLog::parse(recorder.bytes());
  ASSERT_TRUE(log.ok()) << log.status().message;
  EXPECT_EQ(log->entries().size(), 151u);
  EXPECT_FALSE(log->cut());
  auto again = run.machine.decider(log->options());
  std::vector<int> decisions;
  Status replayed =
      log->replay(*again, [&](const auto &, const Decision &made) {
        decisions.push_back(made.candidate);
      });
  ASSERT_TRUE(replayed.ok()) << replayed.message;
  EXPECT_EQ(decisions, run.decisions);
  EXPECT_EQ(again->saveLearned(), decider->saveLearned());
}

/// A log that begins with what an earlier run has learned, written in pieces.
TEST(FlightLog, BeginsWithWhatWasLearned) {
  Played first;
  auto teacher = first.machine.decider();
  first.play(*teacher, 80);
  Played run;
  auto decider = run.machine.decider();
  ASSERT_TRUE(decider->loadLearned(teacher->saveLearned()).ok());
  FlightRecorder recorder(*decider);
  std::string file = recorder.bytes();
  recorder.clear();
  run.play(*decider, 60, &recorder);
  file += recorder.bytes();
  auto again = run.machine.decider();
  EXPECT_TRUE(FlightLog::parse(file)->replay(*again).ok());
  EXPECT_EQ(again->saveLearned(), decider->saveLearned());
}

TEST(FlightLog, FindsTheFirstDifference) {
  Played run;
  auto decider = run.machine.decider();
  FlightRecorder recorder(*decider);
  run.play(*decider, 30, &recorder);
  FlightLog log = *FlightLog::parse(recorder.bytes(), "flight");
  SelectionOptions options;
  options.mode = SelectionMode::Fixed;
  options.fixed = 1;
  auto other = run.machine.decider(options);
  EXPECT_EQ(log.replay(*other).message,
            concat("flight: step 0: expected ", run.decisions[0],
                   " as it was, got 1"));
  auto smaller = machineB().decider();
  EXPECT_EQ(log.replay(*smaller).message,
            "flight: expected a decider of the same candidates");
}

/// Whatever happens to the bytes: an error of one line or the whole records
/// that there are, never more.
TEST(FlightLog, SurvivesDamage) {
  Played run;
  auto decider = run.machine.decider();
  FlightRecorder recorder(*decider);
  run.play(*decider, 12, &recorder);
  const std::string &good = recorder.bytes();
  for (size_t size = 0; size < good.size(); size += 7) {
    Result<FlightLog> log = FlightLog::parse(good.substr(0, size));
    if (log.ok()) {
      EXPECT_LT(log->entries().size(), 12u);
    } else {
      EXPECT_EQ(log.status().message.find('\n'), std::string::npos);
    }
  }
  Draws draws({1, 2}, 3);
  int refused = 0;
  for (int i = 0; i < 2000; ++i) {
    std::string bad = good;
    bad[draws.below(int64_t(bad.size()))] ^= char(1 + draws.below(255));
    Result<FlightLog> log = FlightLog::parse(bad);
    refused += !log.ok();
    if (log.ok()) {
      EXPECT_TRUE(log->cut()); // only a length may look like the end
    }
  }
  EXPECT_GT(refused, 1900);
  EXPECT_EQ(FlightLog::parse("other", "f").status().message,
            "f: expected a flight log, got another file");
  std::string bad = good;
  bad.back() ^= 1;
  EXPECT_EQ(FlightLog::parse(bad, "f").status().message,
            "f: expected a sound record, got record 11 damaged");
  bad = good;
  bad[20] ^= 1;
  EXPECT_EQ(FlightLog::parse(bad, "f").status().message,
            "f: expected a whole header, got a damaged one");
}

TEST(LearnedTable, SavesAndLoads) {
  Played run;
  auto decider = run.machine.decider();
  run.play(*decider, 100);
  std::string saved = decider->saveLearned();
  auto other = run.machine.decider();
  ASSERT_TRUE(other->loadLearned(saved).ok());
  EXPECT_EQ(other->saveLearned(), saved);
}

TEST(LearnedTable, RefusesOthers) {
  Played run;
  auto decider = run.machine.decider();
  run.play(*decider, 40);
  std::string good = decider->saveLearned();
  auto fault = [&](std::string text) {
    Status status = decider->loadLearned(text, "t.json");
    EXPECT_EQ(decider->saveLearned(), good); // nothing has changed
    return status.message;
  };
  auto replaced = [&](const std::string &from, const std::string &to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    return fault(text);
  };
  EXPECT_EQ(fault("no"), "t.json: expected JSON");
  EXPECT_EQ(replaced("\"version\": 1", "\"version\": 9"),
            "t.json: expected version 1, got 9");
  EXPECT_EQ(replaced("\"ranks\": 8", "\"ranks\": 4"),
            "t.json: expected a table of 8 ranks, got 4");
  EXPECT_EQ(replaced("\"experts\": 32", "\"experts\": 33"),
            "t.json: expected a table of 32 experts, got 33");
  EXPECT_NE(fault(machineB().decider()->saveLearned())
                .find("t.json: expected a table of these candidates ("),
            std::string::npos);
  Machine other = machineA();
  other.known.gate.fixed *= 2;
  EXPECT_NE(fault(other.decider()->saveLearned())
                .find("), got one of another calibration, cluster or layer"),
            std::string::npos);
  EXPECT_EQ(replaced("\"by_candidate\": [", "\"by_candidate\": [[999, 1, 1],"),
            "t.json.by_candidate[0]: expected a candidate below " +
                std::to_string(decider->candidates().size()) + ", got 999");
  EXPECT_EQ(replaced("\"by_candidate\": [", "\"by_candidate\": [[0, 1, 0],"),
            "t.json.by_candidate[0]: expected a ratio above 0 of a count that "
            "is kept");
  EXPECT_EQ(replaced("\"by_candidate\": [", "\"by_candidate\": [[0, 1],"),
            "t.json.by_candidate[0]: expected 3 numbers, got 2");
}
