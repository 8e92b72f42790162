// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Who decides for an entry, told directly: which loads decisions are made of,
// what is kept when a step fails, what can be explained.

#include "Runtime/AgreeingRanks.h"

#include <nlohmann/json.hpp>

using namespace moira;
using namespace moira::runtime;
using namespace moira::test;

namespace {

using P = AdaptiveProgram;

/// An entry whose steps have the same loads in all layers.
struct Told {
  explicit Told(const AdaptOptions &options)
      : adaptation(makeAdaptation(manifest, {0, P::ranks, 1}, options)) {}
  /// Each rank has so many rows for each expert. Groups of `padded` rows
  /// travel; 0: nothing does.
  Status step(int32_t rows, int32_t padded = 0, double seconds = 1e-3,
              bool succeeds = true) {
    MOIRA_RETURN_IF_ERROR(adaptation->next());
    RankRecord record;
    record.variants = adaptation->mask();
    record.seconds = seconds;
    const std::vector<RankRecord> records(P::ranks, record);
    const std::vector<int32_t> matrix(P::ranks * P::experts, rows),
        sent(P::ranks * P::experts, padded);
    for (int layer = 0; layer < P::layers; ++layer) {
      MOIRA_RETURN_IF_ERROR(
          adaptation->gathered(layer, records, matrix.data()).status());
      if (padded > 0)
        adaptation->travelled(layer, sent.data());
    }
    adaptation->finish(succeeds, number++, {seconds, seconds}, false);
    return Status();
  }
  /// What the next step is expected to take.
  double expected() {
    EXPECT_OK(adaptation->next());
    return adaptation->decision(1).seconds;
  }
  const Manifest manifest = P::manifest();
  std::unique_ptr<Adaptation> adaptation;
  int64_t number = 0;
};

AdaptOptions byModel(int lag = 1) {
  AdaptOptions options;
  options.selection.mode = SelectionMode::Model;
  options.selection.lag = lag;
  options.selection.fixed = 1; // r = 1
  return options;
}

double expectedOf(std::initializer_list<std::pair<int32_t, int32_t>> steps) {
  Told told(byModel());
  for (auto [rows, padded] : steps)
    EXPECT_OK(told.step(rows, padded));
  return told.expected();
}

} // namespace

TEST(AdaptationLoads, PaddingThatTravelsTakesThePlaceOfRows) {
  EXPECT_EQ(expectedOf({{2, 2000}}), expectedOf({{2000, 0}}));
  EXPECT_GT(expectedOf({{2, 2000}}), expectedOf({{2, 0}}));
  // Without padding the same rows travel as were told.
  EXPECT_EQ(expectedOf({{2, 2}}), expectedOf({{2, 0}}));
  // A chunk that comes later says nothing new.
  Told told(byModel());
  ASSERT_OK(told.step(2, 2000));
  const std::vector<int32_t> other(P::ranks * P::experts, 9);
  told.adaptation->travelled(1, other.data());
  EXPECT_EQ(told.expected(), expectedOf({{2000, 0}}));
}

/// Who announces tokens knows nothing of padding: it grows with them.
TEST(AdaptationLoads, AnnouncedTokensAreOfRowsNotOfPadding) {
  for (int64_t times : {1, 2}) {
    Told told(byModel());
    ASSERT_OK(told.step(2, 2000));
    told.adaptation->announce(times * 2 * P::ranks * P::experts);
    EXPECT_EQ(told.expected(), expectedOf({{int32_t(2000 * times), 0}}));
  }
  Told later(byModel());
  ASSERT_OK(later.step(2, 2000));
  ASSERT_OK(later.step(4)); // sends none
  later.adaptation->announce(2 * P::ranks * P::experts);
  EXPECT_EQ(later.expected(), expectedOf({{2000, 0}}));
}

/// Where weights travel, no group does: padding is as it was last, by rows.
TEST(AdaptationLoads, PaddingIsKnownInStepsThatSendNoRows) {
  EXPECT_EQ(expectedOf({{2, 2000}, {4, 0}}), expectedOf({{4000, 0}}));
  EXPECT_EQ(expectedOf({{2, 2000}, {2, 0}, {1, 0}}), expectedOf({{1000, 0}}));
  // And as it is now, where rows travel again.
  EXPECT_EQ(expectedOf({{2, 2000}, {2, 0}, {2, 30}}), expectedOf({{30, 0}}));
  // Never less than rows; no rows, no padding.
  EXPECT_EQ(expectedOf({{0, 8}, {5, 0}}), expectedOf({{5, 0}}));
}

TEST(AdaptationLoads, WithinAStepPaddingIsThatOfTheLast) {
  Told padded(byModel(0)), plain(byModel(0)), same(byModel(0));
  // The first step chooses the variant of the second one.
  ASSERT_OK(padded.step(2, 2000));
  ASSERT_OK(padded.step(4));
  ASSERT_OK(plain.step(2));
  ASSERT_OK(plain.step(4));
  ASSERT_OK(same.step(2000));
  ASSERT_OK(same.step(4000));
  EXPECT_EQ(padded.adaptation->decision(0).seconds,
            same.adaptation->decision(0).seconds);
  EXPECT_GT(padded.adaptation->decision(0).seconds,
            plain.adaptation->decision(0).seconds);
}

/// Some ranks may have decided within the step, others not: what all were told
/// to begin with they still have alike.
TEST(AdaptationLoads, ALoadedTableOutlivesAFailedStep) {
  AdaptOptions options = byModel(0);
  options.selection.mode = SelectionMode::Measured;
  Told teacher(options);
  for (int i = 0; i < 30; ++i)
    ASSERT_OK(teacher.step(2 + i / 10));
  std::string learned = teacher.adaptation->saveLearned();
  Told told(options);
  std::string nothing = told.adaptation->saveLearned();
  ASSERT_NE(learned, nothing);
  ASSERT_OK(told.step(3, 0, 1e-3, /*succeeds=*/false));
  EXPECT_EQ(told.adaptation->saveLearned(), nothing);
  ASSERT_OK(told.adaptation->loadLearned(learned));
  for (int i = 0; i < 3; ++i)
    ASSERT_OK(told.step(3));
  EXPECT_NE(told.adaptation->saveLearned(), learned);
  ASSERT_OK(told.step(3, 0, 1e-3, /*succeeds=*/false));
  EXPECT_EQ(told.adaptation->saveLearned(), learned);
  EXPECT_OK(told.step(3));
}

/// A step may fail when some ranks know its loads and others do not: what they
/// run next, and what they decide from, is alike.
TEST(AdaptationLoads, AFailedStepLeavesNothingThatOthersLack) {
  for (int lag : {0, 1}) {
    Told knows(byModel(lag)), lacks(byModel(lag));
    for (Told *told : {&knows, &lacks})
      for (int32_t rows : {2, 3, 4})
        ASSERT_OK(told->step(rows, 2000));
    ASSERT_OK(knows.step(900, 90000, 1e-3, /*succeeds=*/false));
    ASSERT_OK(lacks.adaptation->next());
    lacks.adaptation->finish(false, lacks.number++, {0, 0}, false);
    for (int32_t rows : {700, 4, 4}) {
      for (Told *told : {&knows, &lacks})
        ASSERT_OK(told->adaptation->next());
      EXPECT_EQ(knows.adaptation->variant(8), lacks.adaptation->variant(8));
      for (int layer = 0; layer < P::layers; ++layer) {
        const AdaptedPlan &one = knows.adaptation->plan(layer),
                          &other = lacks.adaptation->plan(layer);
        EXPECT_EQ(one.degree, other.degree) << lag;
        EXPECT_EQ(one.exchange, other.exchange) << lag;
        EXPECT_EQ(one.shadows, other.shadows) << lag;
        EXPECT_EQ(knows.adaptation->decision(layer).seconds,
                  lacks.adaptation->decision(layer).seconds);
      }
      for (Told *told : {&knows, &lacks})
        ASSERT_OK(told->step(rows));
    }
  }
}

TEST(AdaptationLoads, ExplanationsAreMadeWhenTheyAreAskedFor) {
  Told told(byModel());
  size_t all = told.adaptation->candidates().size();
  EXPECT_TRUE(told.adaptation->explain()[0].rows.empty()); // nothing decided
  ASSERT_OK(told.step(500));
  ASSERT_OK(told.adaptation->next());
  std::vector<Explanation> why = told.adaptation->explain();
  ASSERT_EQ(why.size(), size_t(P::layers));
  EXPECT_EQ(why[1].rows.size(), all);
  EXPECT_EQ(why[1].step, 1);
  EXPECT_EQ(why[1].decision.candidate, told.adaptation->decision(1).candidate);
  EXPECT_EQ(why[1].shadows, told.adaptation->plan(1).shadows);
  // It stays as it was when the next step has been decided.
  std::string text = why[1].toText(told.adaptation->candidates());
  ASSERT_OK(told.step(3));
  ASSERT_OK(told.adaptation->next());
  EXPECT_EQ(why[1].toText(told.adaptation->candidates()), text);
  EXPECT_EQ(told.adaptation->explain()[1].step, 2);
  // Of a plan whose decider has begun anew, what it is, not why.
  ASSERT_OK(told.adaptation->loadLearned(told.adaptation->saveLearned()));
  why = told.adaptation->explain();
  EXPECT_TRUE(why[1].rows.empty());
  EXPECT_EQ(why[1].step, 2);
  auto json = nlohmann::json::parse(told.adaptation->explainJson());
  EXPECT_EQ(json["layers"][1]["step"], 2);
  EXPECT_TRUE(json["layers"][1]["candidates"].empty());
}
