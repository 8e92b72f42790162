// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// moira/adapt.h and plans of ranks, as a deployment has them.

#include "Runtime/CApiRanksTools.h"
#include "Runtime/TestFiles.h"
#include "moira/adapt.h"

#include <cstring>

using namespace moira::test;

namespace {

moira_adapt_options usualOptions() {
  moira_adapt_options options{};
  options.struct_size = sizeof(options);
  EXPECT_CODE(moira_adapt_defaults(&options), MOIRA_OK);
  return options;
}

/// A text of the library as a string.
std::string take(char *text) {
  std::string copy = text ? text : "";
  moira_text_free(text);
  return copy;
}

bool contains(const std::string &text, const std::string &part) {
  return text.find(part) != std::string::npos;
}

/// The last step's first layer, of statistics that the caller ends.
moira_layer_row lastLayer(moira_session *session,
                          moira_statistics **statistics) {
  moira_layer_row layer{};
  layer.struct_size = sizeof(layer);
  EXPECT_CODE(moira_session_statistics(session, statistics), MOIRA_OK);
  int64_t last = moira_statistics_steps(*statistics) - 1;
  EXPECT_CODE(moira_statistics_layer(*statistics, last, 0, &layer), MOIRA_OK);
  return layer;
}

struct CApiAdapt : RankGroup {};

} // namespace

TEST_F(CApiAdapt, PlansFollowTheLoads) {
  std::string explained[ranks], learned[ranks];
  onThreads([&](int rank) {
    Rank mine(bundle, group[rank]);
    ASSERT_CODE(moira_session_adapt(mine.session, nullptr, nullptr), MOIRA_OK);
    for (int i = 0; i < 12; ++i)
      ASSERT_CODE(mine.step(rank, 8 + i), MOIRA_OK);
    moira_statistics *statistics = nullptr;
    moira_layer_row layer = lastLayer(mine.session, &statistics);
    EXPECT_STRNE(layer.reason, "");
    EXPECT_STRNE(layer.reason, "first");
    EXPECT_GT(layer.predicted, 0);
    moira_statistics_destroy(statistics);
    char *json = nullptr;
    ASSERT_CODE(moira_session_explain(mine.session, "main", &json), MOIRA_OK);
    explained[rank] = take(json);
    ASSERT_CODE(moira_session_save_learned(mine.session, "main", &json),
                MOIRA_OK);
    learned[rank] = take(json);

    // What was learned goes into a session that begins.
    Rank next(bundle, group[rank]);
    ASSERT_CODE(moira_session_adapt(next.session, "main", nullptr), MOIRA_OK);
    EXPECT_CODE(
        moira_session_load_learned(next.session, "main", learned[rank].c_str()),
        MOIRA_OK);
    EXPECT_CODE(next.step(rank, 9), MOIRA_OK);
    ASSERT_CODE(moira_session_save_learned(next.session, "main", &json),
                MOIRA_OK);
    EXPECT_FALSE(take(json).empty());
    EXPECT_CODE(moira_session_load_learned(next.session, "main", "{}"),
                MOIRA_DATA_LOSS);

    EXPECT_CODE(moira_session_stop_adapting(mine.session, nullptr), MOIRA_OK);
    ASSERT_CODE(mine.step(rank, 8), MOIRA_OK);
    layer = lastLayer(mine.session, &statistics);
    EXPECT_STREQ(layer.reason, "");
    EXPECT_EQ(layer.predicted, 0);
    moira_statistics_destroy(statistics);
  });
  // All ranks came to the same.
  EXPECT_EQ(explained[0], explained[1]);
  EXPECT_EQ(learned[0], learned[1]);
  EXPECT_TRUE(contains(explained[0], "\"candidates\"")) << explained[0];
}

TEST_F(CApiAdapt, ACandidateCanBeForced) {
  onThreads([&](int rank) {
    Rank mine(bundle, group[rank]);
    moira_adapt_options options = usualOptions();
    const int32_t degrees[] = {1, 4};
    options.mode = MOIRA_ADAPT_MODEL;
    options.degrees = degrees;
    options.degree_count = 2;
    options.max_shadows = 0;
    ASSERT_CODE(moira_session_adapt(mine.session, nullptr, &options), MOIRA_OK);
    char *json = nullptr;
    ASSERT_CODE(moira_session_candidates(mine.session, nullptr, &json),
                MOIRA_OK);
    EXPECT_EQ(take(json), R"(["r=1 degree=1","r=1 degree=4","r=1 groups"])");
    EXPECT_CODE(moira_session_force(mine.session, nullptr, "r=1 degree=4"),
                MOIRA_OK);
    ASSERT_CODE(mine.step(rank, 8), MOIRA_OK);
    moira_statistics *statistics = nullptr;
    EXPECT_EQ(lastLayer(mine.session, &statistics).degree, 4);
    moira_statistics_destroy(statistics);
    EXPECT_CODE(moira_session_force(mine.session, nullptr, "r=7"),
                MOIRA_NOT_FOUND);
    EXPECT_CODE(moira_session_force(mine.session, nullptr, nullptr), MOIRA_OK);
    ASSERT_CODE(mine.step(rank, 8), MOIRA_OK);
    EXPECT_STRNE(lastLayer(mine.session, &statistics).reason, "");
    moira_statistics_destroy(statistics);
  });
}

TEST_F(CApiAdapt, AVariantCanBeForbidden) {
  onThreads([&](int rank) {
    Rank mine(bundle, group[rank]);
    moira_adapt_options options = usualOptions();
    options.mode = MOIRA_ADAPT_MODEL;
    ASSERT_CODE(moira_session_adapt(mine.session, nullptr, &options), MOIRA_OK);
    // One rank says so, all follow from the second step on.
    if (rank == 1)
      EXPECT_CODE(moira_session_forbid(mine.session, nullptr, "equal", 1),
                  MOIRA_OK);
    for (int i = 0; i < 6; ++i)
      ASSERT_CODE(mine.step(rank, 8), MOIRA_OK);
    moira_statistics *statistics = nullptr;
    ASSERT_CODE(moira_session_statistics(mine.session, &statistics), MOIRA_OK);
    moira_step_row row{};
    row.struct_size = sizeof(row);
    for (int64_t i = 2; i < 6; ++i) {
      ASSERT_CODE(moira_statistics_step(statistics, i, &row), MOIRA_OK);
      EXPECT_EQ(row.variant, 1) << "step " << i;
    }
    moira_statistics_destroy(statistics);
    EXPECT_CODE(moira_session_forbid(mine.session, nullptr, "none", 1),
                MOIRA_NOT_FOUND);
    EXPECT_CODE(moira_session_forbid(mine.session, nullptr, "equal", 0),
                MOIRA_OK);
  });
}

TEST_F(CApiAdapt, LogsAreWrittenAndReplayed) {
  TestFolder folder;
  std::string path = folder.path("flight.log");
  auto run = [&](bool replay) {
    onThreads([&](int rank) {
      Rank mine(bundle, group[rank]);
      moira_adapt_options options = usualOptions();
      (replay ? options.replay : options.flight_log) = path.c_str();
      ASSERT_CODE(moira_session_adapt(mine.session, nullptr, &options),
                  MOIRA_OK);
      for (int i = 0; i < 5; ++i)
        ASSERT_CODE(mine.step(rank, 8 + i), MOIRA_OK);
      EXPECT_CODE(moira_session_stop_adapting(mine.session, nullptr), MOIRA_OK);
    });
  };
  run(false);
  EXPECT_FALSE(readFile(path).empty());
  run(true);
}

TEST_F(CApiAdapt, PlansOfOneLayer) {
  onThreads([&](int rank) {
    Rank mine(bundle, group[rank]);
    moira_plan_options plan{};
    plan.struct_size = sizeof(plan);
    plan.degree = 2;
    EXPECT_CODE(moira_session_set_layer_plan(mine.session, 0, &plan), MOIRA_OK);
    ASSERT_CODE(mine.step(rank, 9), MOIRA_OK);
    // Expert 3 stands on rank 1; in the spare slots all have it.
    const int32_t shadows[] = {3};
    plan.shadows = shadows;
    plan.shadow_count = 1;
    EXPECT_CODE(moira_session_set_plan(mine.session, &plan), MOIRA_OK);
    ASSERT_CODE(mine.step(rank, 9), MOIRA_OK);
    moira_statistics *statistics = nullptr;
    moira_layer_row layer = lastLayer(mine.session, &statistics);
    EXPECT_EQ(layer.degree, 2);
    ASSERT_EQ(layer.shadow_count, 1);
    EXPECT_EQ(layer.shadows[0], 3);
    EXPECT_STREQ(layer.reason, "");
    moira_statistics_destroy(statistics);
    // Weights that now stand elsewhere are bound again.
    const int32_t table[] = {3, 2, -1, 1, 0, -1};
    plan = {};
    plan.struct_size = sizeof(plan);
    plan.slot_table = table;
    plan.slot_count = 6;
    EXPECT_CODE(moira_session_set_plan(mine.session, &plan), MOIRA_OK);
    EXPECT_CODE(mine.step(rank, 9), MOIRA_INVALID_ARGUMENT);
    mine.bind();
    EXPECT_CODE(mine.step(rank, 9), MOIRA_OK);

    const int32_t bad = MOIRA_INVALID_ARGUMENT;
    EXPECT_CODE(moira_session_set_layer_plan(mine.session, 9, &plan),
                MOIRA_NOT_FOUND);
    EXPECT_CODE(moira_session_set_layer_plan(nullptr, 0, &plan), bad);
    EXPECT_MESSAGE(moira_session_set_layer_plan(mine.session, 0, nullptr), bad,
                   "plan: expected a pointer, got null");
    plan.slot_table = nullptr;
    EXPECT_MESSAGE(moira_session_set_plan(mine.session, &plan), bad,
                   "slot_table: expected 6 slots, got none");
    plan.slot_count = 0;
    plan.shadow_count = 2;
    EXPECT_MESSAGE(moira_session_set_plan(mine.session, &plan), bad,
                   "shadows: expected 2 experts, got none");
  });
}

TEST_F(CApiAdapt, WeightsMove) {
  onThreads([&](int rank) {
    Rank mine(bundle, group[rank]);
    int32_t table[6] = {};
    int64_t count = 0, moved = -1;
    EXPECT_CODE(moira_session_slot_table(mine.session, 0, table, 6, &count),
                MOIRA_OK);
    EXPECT_EQ(count, 6);
    const std::vector<int32_t> even = {0, 1, -1, 2, 3, -1};
    EXPECT_EQ(std::vector<int32_t>(table, table + 6), even);
    const int32_t other[] = {3, 2, -1, 1, 0, -1};
    ASSERT_CODE(moira_session_move_weights(mine.session, 0, other, 6),
                MOIRA_OK);
    EXPECT_CODE(mine.step(rank, 9), MOIRA_OK); // nothing was bound again
    EXPECT_CODE(moira_session_slot_table(mine.session, 0, table, 1, nullptr),
                MOIRA_OK);
    EXPECT_EQ(table[0], 3);
    EXPECT_EQ(table[1], 1);
    EXPECT_CODE(moira_session_slot_table(mine.session, 9, table, 6, &count),
                MOIRA_OK);
    EXPECT_EQ(count, 0);

    moira_rebalance_options options{};
    options.struct_size = sizeof(options);
    options.threshold = 1.01;
    ASSERT_CODE(moira_session_count_loads(mine.session, nullptr, &options),
                MOIRA_OK);
    // Five rows for four experts: expert 0 is hot.
    for (int i = 0; i < 4; ++i)
      ASSERT_CODE(mine.step(rank, 5), MOIRA_OK);
    EXPECT_CODE(moira_session_rebalance(mine.session, nullptr, &moved),
                MOIRA_OK);
    EXPECT_TRUE(moved == 0 || moved == 1) << moved;
    EXPECT_CODE(mine.step(rank, 9), MOIRA_OK);

    const int32_t bad = MOIRA_INVALID_ARGUMENT;
    EXPECT_CODE(moira_session_move_weights(mine.session, 0, nullptr, 6), bad);
    EXPECT_CODE(moira_session_move_weights(mine.session, 0, other, 0), bad);
    EXPECT_CODE(moira_session_move_weights(nullptr, 0, other, 6), bad);
    EXPECT_CODE(moira_session_slot_table(nullptr, 0, table, 6, &count), bad);
    EXPECT_CODE(moira_session_count_loads(nullptr, "main", nullptr), bad);
    options.struct_size = 0;
    EXPECT_CODE(moira_session_count_loads(mine.session, "main", &options), bad);
    options.struct_size = sizeof(options);
    options.topology = "{}";
    EXPECT_CODE(moira_session_count_loads(mine.session, "main", &options), bad);
    EXPECT_CODE(moira_session_rebalance(nullptr, "main", &moved), bad);

    // What leaves no room for shadows is refused before anything moves.
    ASSERT_CODE(moira_session_move_weights(mine.session, 0, other, 6),
                MOIRA_OK);
    ASSERT_CODE(moira_session_adapt(mine.session, nullptr, nullptr), MOIRA_OK);
    const int32_t full[] = {0, 1, 2, 2, 3, 0};
    EXPECT_CODE(moira_session_move_weights(mine.session, 0, full, 6), bad);
    EXPECT_CODE(moira_session_slot_table(mine.session, 0, table, 6, &count),
                MOIRA_OK);
    EXPECT_EQ(std::vector<int32_t>(table, table + 6),
              std::vector<int32_t>(other, other + 6));
    EXPECT_CODE(mine.step(rank, 9), MOIRA_OK);
  });
}

TEST_F(CApiAdapt, TokensMayBeAnnounced) {
  onThreads([&](int rank) {
    Rank mine(bundle, group[rank]);
    EXPECT_CODE(moira_session_announce_tokens(mine.session, nullptr, 16),
                MOIRA_INVALID_ARGUMENT); // nothing adapts
    ASSERT_CODE(moira_session_adapt(mine.session, nullptr, nullptr), MOIRA_OK);
    EXPECT_CODE(moira_session_announce_tokens(mine.session, nullptr, 16),
                MOIRA_OK);
    EXPECT_CODE(mine.step(rank, 8), MOIRA_OK);
    EXPECT_CODE(moira_session_announce_tokens(nullptr, nullptr, 16),
                MOIRA_INVALID_ARGUMENT);
  });
}

TEST_F(CApiAdapt, StatisticsAsJson) {
  onThreads([&](int rank) {
    Rank mine(bundle, group[rank]);
    ASSERT_CODE(mine.step(rank, 9), MOIRA_OK);
    moira_statistics *statistics = nullptr;
    ASSERT_CODE(moira_session_statistics(mine.session, &statistics), MOIRA_OK);
    char *json = nullptr;
    ASSERT_CODE(moira_statistics_json(statistics, 0, &json), MOIRA_OK);
    std::string text = take(json);
    EXPECT_TRUE(contains(text, "\"rank\":" + std::to_string(rank))) << text;
    EXPECT_TRUE(contains(text, "\"entry\":\"main\""));
    EXPECT_TRUE(contains(text, "\"matrix\":[[3,2,2,2],[3,2,2,2]]")) << text;
    const int32_t bad = MOIRA_INVALID_ARGUMENT;
    EXPECT_CODE(moira_statistics_json(statistics, 1, &json), bad);
    EXPECT_CODE(moira_statistics_json(statistics, 0, nullptr), bad);
    EXPECT_CODE(moira_statistics_json(nullptr, 0, &json), bad);
    moira_statistics_destroy(statistics);
  });
}

TEST_F(CApiAdapt, WrongArguments) {
  const int32_t bad = MOIRA_INVALID_ARGUMENT;
  moira_session_options created{};
  created.struct_size = sizeof(created);
  created.ranks = group[0];
  moira_session *session = nullptr;
  ASSERT_CODE(moira_session_create(bundle, &created, &session), MOIRA_OK);
  char *text = nullptr;
  // Nothing adapts yet.
  EXPECT_CODE(moira_session_candidates(session, "main", &text), bad);
  EXPECT_CODE(moira_session_force(session, "main", "r=1"), bad);
  EXPECT_CODE(moira_session_forbid(session, "main", "equal", 1), bad);
  EXPECT_CODE(moira_session_explain(session, "main", &text), bad);
  EXPECT_CODE(moira_session_save_learned(session, "main", &text), bad);
  EXPECT_CODE(moira_session_load_learned(session, "main", "{}"), bad);
  EXPECT_EQ(text, nullptr);

  moira_adapt_options options{};
  EXPECT_CODE(moira_adapt_defaults(nullptr), bad);
  EXPECT_CODE(moira_adapt_defaults(&options), bad);
  EXPECT_CODE(moira_session_adapt(session, "main", &options), bad);
  options = usualOptions();
  EXPECT_EQ(options.mode, MOIRA_ADAPT_MEASURED);
  EXPECT_EQ(options.lag, 1);
  EXPECT_EQ(options.max_shadows, -1);
  EXPECT_EQ(options.degree_count, 4);
  EXPECT_EQ(options.degrees[3], 8);
  options.mode = 3;
  EXPECT_MESSAGE(moira_session_adapt(session, "main", &options), bad,
                 "expected a mode from MOIRA_ADAPT_FIXED to "
                 "MOIRA_ADAPT_MEASURED, got 3");
  options = usualOptions();
  options.degree_count = 0;
  EXPECT_MESSAGE(moira_session_adapt(session, "main", &options), bad,
                 "expected 1 or more degrees, got 0");
  options = usualOptions();
  options.lag = 2;
  EXPECT_CODE(moira_session_adapt(session, "main", &options), bad);
  options = usualOptions();
  options.topology = "{}";
  EXPECT_CODE(moira_session_adapt(session, "main", &options), bad);
  EXPECT_TRUE(contains(moira_error_message(), "topology: "));
  options = usualOptions();
  options.calibration = "[";
  EXPECT_CODE(moira_session_adapt(session, "main", &options), MOIRA_DATA_LOSS);
  EXPECT_TRUE(contains(moira_error_message(), "calibration"));
  options = usualOptions();
  options.qualified = "surely";
  EXPECT_CODE(moira_session_adapt(session, "main", &options), bad);
  EXPECT_CODE(moira_session_adapt(session, "other", nullptr), MOIRA_NOT_FOUND);

  EXPECT_CODE(moira_session_adapt(nullptr, "main", nullptr), bad);
  EXPECT_CODE(moira_session_stop_adapting(nullptr, "main"), bad);
  EXPECT_CODE(moira_session_stop_adapting(session, "other"), MOIRA_NOT_FOUND);
  EXPECT_CODE(moira_session_candidates(nullptr, "main", &text), bad);
  EXPECT_CODE(moira_session_candidates(session, "main", nullptr), bad);
  EXPECT_CODE(moira_session_force(nullptr, "main", "r=1"), bad);
  EXPECT_CODE(moira_session_forbid(nullptr, "main", "equal", 1), bad);
  EXPECT_CODE(moira_session_forbid(session, "main", nullptr, 1), bad);
  EXPECT_CODE(moira_session_explain(nullptr, "main", &text), bad);
  EXPECT_CODE(moira_session_explain(session, "main", nullptr), bad);
  EXPECT_CODE(moira_session_save_learned(nullptr, "main", &text), bad);
  EXPECT_CODE(moira_session_save_learned(session, "main", nullptr), bad);
  EXPECT_CODE(moira_session_load_learned(nullptr, "main", "{}"), bad);
  EXPECT_CODE(moira_session_load_learned(session, "main", nullptr), bad);
  moira_text_free(nullptr);
  moira_session_destroy(session);
}

TEST(CApiAdaptAlone, OneRankHasNothingToChoose) {
  moira_bundle *bundle = nullptr;
  moira_session *session = nullptr;
  ASSERT_CODE(moira_bundle_open(MOIRA_TEST_BUNDLE, &bundle), MOIRA_OK);
  ASSERT_CODE(moira_session_create(bundle, nullptr, &session), MOIRA_OK);
  EXPECT_CODE(moira_session_adapt(session, nullptr, nullptr),
              MOIRA_INVALID_ARGUMENT);
  moira_session_destroy(session);
  moira_bundle_close(bundle);
}
