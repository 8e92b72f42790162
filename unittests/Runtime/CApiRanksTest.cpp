// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// moira/ranks.h as a deployment has it: threads and processes that are ranks.

#include "Runtime/CApiRanksTools.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

using namespace moira::test;

namespace {

struct CApiRanks : RankGroup {};

} // namespace

TEST_F(CApiRanks, DescribeThemselves) {
  for (int rank = 0; rank < ranks; ++rank) {
    moira_ranks_info info{};
    info.struct_size = sizeof(info);
    EXPECT_CODE(moira_ranks_describe(group[rank], &info), MOIRA_OK);
    EXPECT_EQ(info.rank, rank);
    EXPECT_EQ(info.ranks, ranks);
    EXPECT_STREQ(info.transport, "inprocess");
    EXPECT_EQ(info.virtual_clock, 0);
  }
  moira_entry_info entry{};
  entry.struct_size = sizeof(entry);
  EXPECT_CODE(moira_bundle_entry(bundle, 0, &entry), MOIRA_OK);
  EXPECT_EQ(entry.ranks, ranks);
}

TEST_F(CApiRanks, RunSteps) {
  onThreads([&](int rank) {
    Rank mine(bundle, group[rank]);
    for (int64_t rows : {3, 0, 17, 8})
      EXPECT_CODE(mine.step(rank, rows + rank), MOIRA_OK);
    moira_statistics *statistics = nullptr;
    EXPECT_CODE(moira_session_statistics(mine.session, &statistics), MOIRA_OK);
    moira_layer_row layer{};
    layer.struct_size = sizeof(layer);
    EXPECT_CODE(moira_statistics_layer(statistics, 2, 0, &layer), MOIRA_OK);
    ASSERT_EQ(layer.ranks, ranks);
    // 17 rows of rank 0 and 18 of rank 1, one after the other to 4 experts.
    const int32_t expected[] = {5, 4, 4, 4, 5, 5, 4, 4};
    for (int i = 0; i < 8; ++i)
      EXPECT_EQ(layer.matrix[i], expected[i]);
    EXPECT_GT(layer.bytes_sent, 0);
    moira_statistics_destroy(statistics);
  });
}

TEST_F(CApiRanks, SessionsOutliveTheHandles) {
  std::vector<std::unique_ptr<Rank>> sessions;
  for (moira_ranks *&rank : group) {
    sessions.push_back(std::make_unique<Rank>(bundle, rank));
    moira_ranks_destroy(std::exchange(rank, nullptr));
  }
  onThreads([&](int rank) {
    EXPECT_CODE(sessions[rank]->step(rank, 5), MOIRA_OK);
    sessions[rank] = nullptr;
  });
}

TEST_F(CApiRanks, SessionsOfOneGroupTakeTurns) {
  onThreads([&](int rank) {
    Rank first(bundle, group[rank]), second(bundle, group[rank]);
    for (int i = 0; i < 20; ++i) {
      EXPECT_CODE(first.step(rank, 5), MOIRA_OK);
      EXPECT_CODE(second.step(rank, 6), MOIRA_OK);
    }
  });
}

TEST_F(CApiRanks, GroupsRunBesideEachOther) {
  constexpr int groups = 3;
  onThreads(
      [&](int) {
        moira_ranks *own[ranks];
        ASSERT_CODE(moira_ranks_threads(ranks, nullptr, own), MOIRA_OK);
        onThreads([&](int rank) {
          Rank mine(bundle, own[rank]);
          for (int i = 0; i < 20; ++i)
            EXPECT_CODE(mine.step(rank, 7), MOIRA_OK);
          moira_ranks_destroy(own[rank]);
        });
      },
      groups);
}

TEST_F(CApiRanks, WrongArgumentsOfOneRankEndTheStepOfAll) {
  onThreads([&](int rank) {
    Rank mine(bundle, group[rank]);
    std::vector<float> x = rowsOf(rank, 2);
    Floats input(x, {2, features});
    if (rank == 1)
      input.managed.dl_tensor.dtype.lanes = 2; // no tensor of moira's
    const DLTensor *inputs[] = {input.dl()};
    DLManagedTensor *result = nullptr;
    EXPECT_CODE(
        moira_session_invoke(mine.session, nullptr, inputs, 1, &result, 1),
        MOIRA_INVALID_ARGUMENT);
    EXPECT_NE(std::string(moira_error_message()).find("rank 1"),
              std::string::npos)
        << moira_error_message();
    EXPECT_EQ(result, nullptr);
    // Threads go on.
    EXPECT_CODE(mine.step(rank, 4), MOIRA_OK);
  });
}

TEST_F(CApiRanks, AProgramForOthersIsRefused) {
  moira_session *alone = nullptr;
  ASSERT_CODE(moira_session_create(bundle, nullptr, &alone), MOIRA_OK);
  EXPECT_CODE(moira_session_bind_random(alone, 1), MOIRA_OK);
  Floats x(rowsOf(0, 2), {2, features});
  const DLTensor *inputs[] = {x.dl()};
  DLManagedTensor *result = nullptr;
  EXPECT_MESSAGE(moira_session_invoke(alone, "main", inputs, 1, &result, 1),
                 MOIRA_INVALID_ARGUMENT,
                 "entry 'main': expected 2 ranks, as the entry was compiled "
                 "for, got 1");
  moira_session_destroy(alone);
}

TEST_F(CApiRanks, Collectives) {
  onThreads([&](int rank) {
    EXPECT_CODE(moira_ranks_barrier(group[rank]), MOIRA_OK);
    int32_t numbers[3] = {rank + 1, 10 * rank, -rank};
    EXPECT_CODE(moira_ranks_sum(group[rank], numbers, 3, MOIRA_I32), MOIRA_OK);
    EXPECT_EQ(numbers[0], 3);
    EXPECT_EQ(numbers[1], 10);
    EXPECT_EQ(numbers[2], -1);
    char text[6] = "-----";
    if (rank == 1)
      std::copy_n("hello", 6, text);
    EXPECT_CODE(moira_ranks_broadcast(group[rank], 1, text, 6), MOIRA_OK);
    EXPECT_STREQ(text, "hello");
    EXPECT_CODE(moira_ranks_sum(group[rank], nullptr, 0, MOIRA_F32), MOIRA_OK);
    // One rank's mistake is everybody's failure.
    EXPECT_CODE(moira_ranks_broadcast(group[rank], 0, rank ? text : nullptr, 6),
                MOIRA_INVALID_ARGUMENT);
    EXPECT_CODE(moira_ranks_broadcast(group[rank], 2, text, 6),
                MOIRA_INVALID_ARGUMENT);
    EXPECT_CODE(moira_ranks_sum(group[rank], text, -1, MOIRA_F32),
                MOIRA_INVALID_ARGUMENT);
    EXPECT_CODE(moira_ranks_sum(group[rank], text, 1, 99),
                MOIRA_INVALID_ARGUMENT);
    EXPECT_CODE(moira_ranks_barrier(group[rank]), MOIRA_OK);
  });
}

TEST_F(CApiRanks, AnInterruptEndsAWait) {
  std::thread waits([&] {
    EXPECT_NE(moira_ranks_barrier(group[0]), MOIRA_OK);
    EXPECT_NE(std::string(moira_error_message()).find("interrupt"),
              std::string::npos)
        << moira_error_message();
  });
  moira_ranks_interrupt(group[0]);
  waits.join();
  moira_ranks_interrupt(nullptr);
}

TEST_F(CApiRanks, WhoNeverComesIsNamed) {
  moira_ranks *late[ranks];
  moira_ranks_options options = timeoutOf(0.05);
  ASSERT_CODE(moira_ranks_threads(ranks, &options, late), MOIRA_OK);
  EXPECT_CODE(moira_ranks_barrier(late[1]), MOIRA_FAILED);
  EXPECT_NE(std::string(moira_error_message()).find("rank 0"),
            std::string::npos)
      << moira_error_message();
  for (moira_ranks *rank : late)
    moira_ranks_destroy(rank);
}

TEST_F(CApiRanks, ClocksMayBeVirtual) {
  moira_ranks *timed[ranks];
  moira_ranks_options options = timeoutOf(20);
  options.virtual_clock = 1;
  // Slow enough that a step must take longer than it does here.
  options.topology = R"({"nodes": 2,
      "inter": {"bandwidth": 1000, "latency": 1}})";
  int32_t code = moira_ranks_threads(ranks, &options, timed);
  ASSERT_EQ(code, MOIRA_OK) << moira_error_message();
  moira_ranks_info info{};
  info.struct_size = sizeof(info);
  EXPECT_CODE(moira_ranks_describe(timed[0], &info), MOIRA_OK);
  EXPECT_EQ(info.virtual_clock, 1);
  onThreads([&](int rank) {
    Rank mine(bundle, timed[rank]);
    EXPECT_CODE(mine.step(rank, 8), MOIRA_OK);
    moira_statistics *statistics = nullptr;
    EXPECT_CODE(moira_session_statistics(mine.session, &statistics), MOIRA_OK);
    moira_step_row row{};
    row.struct_size = sizeof(row);
    EXPECT_CODE(moira_statistics_step(statistics, 0, &row), MOIRA_OK);
    EXPECT_GT(row.total, 2);
    moira_statistics_destroy(statistics);
    moira_ranks_destroy(timed[rank]);
  });
}

TEST_F(CApiRanks, WrongArguments) {
  const int32_t bad = MOIRA_INVALID_ARGUMENT;
  moira_ranks *made = nullptr;
  moira_ranks_info info{};
  info.struct_size = sizeof(info);
  EXPECT_MESSAGE(moira_ranks_threads(0, nullptr, &made), bad,
                 "expected 1 to 4096 ranks, got 0");
  EXPECT_CODE(moira_ranks_threads(1, nullptr, nullptr), bad);
  moira_ranks_options options{};
  EXPECT_MESSAGE(moira_ranks_threads(1, &options, &made), bad,
                 "expected struct_size to be set, got 0");
  options = timeoutOf(-1);
  moira_ranks *two[ranks];
  EXPECT_MESSAGE(moira_ranks_threads(ranks, &options, two), bad,
                 "expected a timeout of more than 0 seconds, got -1");
  options = timeoutOf(1);
  options.topology = "{";
  EXPECT_CODE(moira_ranks_threads(ranks, &options, two), bad);
  options.topology = R"({"nodes": 3,
      "inter": {"bandwidth": 1000, "latency": 1}})";
  EXPECT_MESSAGE(moira_ranks_threads(ranks, &options, two), bad,
                 "topology: expected 2 ranks, got 3");
  EXPECT_CODE(moira_ranks_launched(nullptr, nullptr), bad);
  EXPECT_CODE(moira_ranks_connect(nullptr, nullptr, &made), bad);
  moira_ranks_address address{};
  EXPECT_CODE(moira_ranks_connect(&address, nullptr, nullptr), bad);
  EXPECT_CODE(moira_ranks_connect(&address, nullptr, &made), bad);
  address.struct_size = sizeof(address);
  EXPECT_MESSAGE(moira_ranks_connect(&address, nullptr, &made), bad,
                 "expected a rank below the number of ranks, got 0 of 0");
  address.ranks = 2;
  EXPECT_MESSAGE(moira_ranks_connect(&address, nullptr, &made), bad,
                 "expected a port from 1 to 65535, got 0");
  address.port = 1;
  options = timeoutOf(1);
  options.virtual_clock = 1;
  EXPECT_MESSAGE(moira_ranks_connect(&address, &options, &made), bad,
                 "expected ranks that are threads of one process for the "
                 "virtual clock, got processes");
  options = timeoutOf(1);
  options.transport = "pigeon";
  EXPECT_MESSAGE(moira_ranks_connect(&address, &options, &made), bad,
                 "expected the transport 'mpi', 'tcp' or 'nccl', got 'pigeon'");
  EXPECT_CODE(moira_ranks_describe(nullptr, &info), bad);
  EXPECT_CODE(moira_ranks_describe(group[0], nullptr), bad);
  EXPECT_CODE(moira_ranks_barrier(nullptr), bad);
  EXPECT_CODE(moira_ranks_broadcast(nullptr, 0, nullptr, 0), bad);
  EXPECT_CODE(moira_ranks_sum(nullptr, nullptr, 0, MOIRA_F32), bad);
  EXPECT_EQ(made, nullptr);
}

TEST(CApiGrids, SessionsTakeTheGridOfTheirRanks) {
  moira_bundle *bundle = nullptr, *two = nullptr;
  ASSERT_CODE(moira_bundle_open(MOIRA_TEST_GRIDS_BUNDLE, &bundle), MOIRA_OK);
  int32_t count = 0;
  EXPECT_CODE(moira_bundle_grid(bundle, 0, &count), MOIRA_OK);
  EXPECT_EQ(count, 1);
  EXPECT_CODE(moira_bundle_grid(bundle, 1, &count), MOIRA_OK);
  EXPECT_EQ(count, 2);
  const int32_t bad = MOIRA_INVALID_ARGUMENT;
  EXPECT_MESSAGE(moira_bundle_grid(bundle, 2, &count), bad,
                 "expected a grid below 2, got 2");
  // Each handle describes one.
  ASSERT_CODE(moira_bundle_for_ranks(bundle, 2, &two), MOIRA_OK);
  moira_entry_info entry{};
  entry.struct_size = sizeof(entry);
  const char *json = nullptr;
  EXPECT_CODE(moira_bundle_entry(bundle, 0, &entry), MOIRA_OK);
  EXPECT_EQ(entry.ranks, 1);
  EXPECT_CODE(moira_bundle_entry(two, 0, &entry), MOIRA_OK);
  EXPECT_EQ(entry.ranks, 2);
  EXPECT_CODE(moira_bundle_manifest(two, &json), MOIRA_OK);
  EXPECT_NE(std::string(json).find("experts.{}.scale"), std::string::npos);
  EXPECT_CODE(moira_bundle_manifest(bundle, &json), MOIRA_OK);
  EXPECT_EQ(std::string(json).find("experts.{}.scale"), std::string::npos);
  moira_bundle_close(two);

  moira_ranks *group[ranks];
  ASSERT_CODE(moira_ranks_threads(ranks, nullptr, group), MOIRA_OK);
  onThreads([&](int rank) {
    Rank mine(bundle, group[rank]);
    EXPECT_CODE(mine.step(rank, 6), MOIRA_OK);
  });
  moira_session *alone = nullptr;
  ASSERT_CODE(moira_session_create(bundle, nullptr, &alone), MOIRA_OK);
  EXPECT_CODE(moira_session_bind_random(alone, 1), MOIRA_OK);
  Floats x(rowsOf(0, 2), {2, features});
  const DLTensor *inputs[] = {x.dl()};
  DLManagedTensor *result = nullptr;
  ASSERT_CODE(moira_session_invoke(alone, "main", inputs, 1, &result, 1),
              MOIRA_OK);
  result->deleter(result);
  moira_session_destroy(alone);
  for (moira_ranks *rank : group)
    moira_ranks_destroy(rank);

  // There is none for three.
  moira_ranks *three[3];
  ASSERT_CODE(moira_ranks_threads(3, nullptr, three), MOIRA_OK);
  moira_session_options options{};
  options.struct_size = sizeof(options);
  options.ranks = three[0];
  moira_session *none = nullptr;
  const char *message = "expected a grid of the bundle (1, 2 ranks), got 3";
  EXPECT_CODE(moira_session_create(bundle, &options, &none), bad);
  EXPECT_NE(std::string(moira_error_message()).find(message), std::string::npos)
      << moira_error_message();
  EXPECT_MESSAGE(moira_bundle_for_ranks(bundle, 3, &two), bad, message);
  EXPECT_CODE(moira_bundle_for_ranks(bundle, 0, &two), bad);
  EXPECT_CODE(moira_bundle_for_ranks(nullptr, 2, &two), bad);
  EXPECT_CODE(moira_bundle_for_ranks(bundle, 2, nullptr), bad);
  EXPECT_CODE(moira_bundle_grid(nullptr, 0, &count), bad);
  EXPECT_CODE(moira_bundle_grid(bundle, 0, nullptr), bad);
  for (moira_ranks *rank : three)
    moira_ranks_destroy(rank);
  moira_bundle_close(bundle);
}

TEST(CApiGrids, OneGridIsTheBundle) {
  moira_bundle *bundle = nullptr, *same = nullptr;
  ASSERT_CODE(moira_bundle_open(MOIRA_TEST_RANKS_BUNDLE, &bundle), MOIRA_OK);
  int32_t count = 0;
  EXPECT_CODE(moira_bundle_grid(bundle, 0, &count), MOIRA_OK);
  EXPECT_EQ(count, 2);
  EXPECT_CODE(moira_bundle_for_ranks(bundle, 2, &same), MOIRA_OK);
  moira_bundle_close(same);
  EXPECT_MESSAGE(moira_bundle_for_ranks(bundle, 1, &same),
                 MOIRA_INVALID_ARGUMENT,
                 "expected a grid of the bundle (2 ranks), got 1");
  moira_bundle_close(bundle);
}

TEST(CApiRank, OneIsAlone) {
  moira_ranks *one = nullptr;
  ASSERT_CODE(moira_ranks_threads(1, nullptr, &one), MOIRA_OK);
  moira_ranks_info info{};
  info.struct_size = sizeof(info);
  EXPECT_CODE(moira_ranks_describe(one, &info), MOIRA_OK);
  EXPECT_EQ(info.ranks, 1);
  EXPECT_STREQ(info.transport, "none");
  EXPECT_CODE(moira_ranks_barrier(one), MOIRA_OK);
  float sum = 3;
  EXPECT_CODE(moira_ranks_sum(one, &sum, 1, MOIRA_F32), MOIRA_OK);
  EXPECT_EQ(sum, 3);
  EXPECT_CODE(moira_ranks_broadcast(one, 0, &sum, 4), MOIRA_OK);
  EXPECT_CODE(moira_ranks_broadcast(one, 1, &sum, 4), MOIRA_INVALID_ARGUMENT);
  EXPECT_CODE(moira_ranks_sum(one, nullptr, 1, MOIRA_F32),
              MOIRA_INVALID_ARGUMENT);
  moira_ranks_interrupt(one);
  moira_ranks_destroy(one);
  moira_ranks_destroy(nullptr);
}

//===----------------------------------------------------------------------===//
// Processes
//===----------------------------------------------------------------------===//

/// A port that nobody listens on now.
static int32_t freePort() { return 20000 + getpid() % 20000; }

/// Starts this program again for each rank, as the disabled test `name` alone:
/// a fork of a process that has threads could do little else. `prepare` sets
/// variables there.
static void onProcesses(const std::string &name, int count,
                        const std::function<void(int)> &prepare) {
  std::vector<pid_t> children;
  for (int rank = 0; rank < count; ++rank) {
    pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      prepare(rank);
      std::string filter = "--gtest_filter=CApiRankProcess.DISABLED_" + name;
      execl("/proc/self/exe", "moira-runtime-capi-tests", filter.c_str(),
            "--gtest_also_run_disabled_tests", nullptr);
      _exit(127);
    }
    children.push_back(child);
  }
  for (pid_t child : children) {
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
}

static void setNumber(const char *name, int value) {
  setenv(name, std::to_string(value).c_str(), 1);
}
static int numberOf(const char *name) {
  const char *text = getenv(name);
  return text ? std::atoi(text) : -1;
}

static void runAsProcess(int rank, moira_ranks *group) {
  moira_ranks_info info{};
  info.struct_size = sizeof(info);
  EXPECT_CODE(moira_ranks_describe(group, &info), MOIRA_OK);
  EXPECT_EQ(info.rank, rank);
  EXPECT_EQ(info.ranks, ranks);
  EXPECT_STREQ(info.transport, "tcp");
  moira_bundle *bundle = nullptr;
  ASSERT_CODE(moira_bundle_open(MOIRA_TEST_RANKS_BUNDLE, &bundle), MOIRA_OK);
  {
    Rank mine(bundle, group);
    EXPECT_CODE(mine.step(rank, 9 + rank), MOIRA_OK);
  }
  EXPECT_CODE(moira_ranks_barrier(group), MOIRA_OK);
  moira_ranks_destroy(group);
  moira_bundle_close(bundle);
}

TEST(CApiRankProcess, DISABLED_Address) {
  moira_ranks_address address{};
  address.struct_size = sizeof(address);
  address.rank = numberOf("TEST_RANK");
  address.ranks = ranks;
  address.port = numberOf("TEST_PORT");
  address.job = "test";
  moira_ranks_options options = timeoutOf(20);
  moira_ranks *group = nullptr;
  ASSERT_CODE(moira_ranks_connect(&address, &options, &group), MOIRA_OK);
  runAsProcess(address.rank, group);
}

TEST(CApiRankProcess, DISABLED_Launched) {
  moira_ranks_options options = timeoutOf(20);
  moira_ranks *group = nullptr;
  ASSERT_CODE(moira_ranks_launched(&options, &group), MOIRA_OK);
  runAsProcess(numberOf("RANK"), group);
}

TEST(CApiRankProcess, DISABLED_HalfLaunched) {
  moira_ranks *group = nullptr;
  EXPECT_CODE(moira_ranks_launched(nullptr, &group), MOIRA_INVALID_ARGUMENT);
  EXPECT_NE(std::string(moira_error_message()).find("WORLD_SIZE"),
            std::string::npos);
  EXPECT_EQ(group, nullptr);
}

TEST(CApiRankProcess, DISABLED_Alone) {
  moira_ranks *group = nullptr;
  ASSERT_CODE(moira_ranks_launched(nullptr, &group), MOIRA_OK);
  moira_ranks_info info{};
  info.struct_size = sizeof(info);
  EXPECT_CODE(moira_ranks_describe(group, &info), MOIRA_OK);
  EXPECT_EQ(info.ranks, 1);
  moira_ranks_destroy(group);
}

TEST(CApiRank, ProcessesMeetAtAnAddress) {
  int32_t port = freePort();
  onProcesses("Address", ranks, [&](int rank) {
    setNumber("TEST_RANK", rank);
    setNumber("TEST_PORT", port);
  });
}

TEST(CApiRank, ProcessesAskTheirLauncher) {
  int32_t port = freePort() + 1;
  onProcesses("Launched", ranks, [&](int rank) {
    setenv("TORCHELASTIC_RUN_ID", "test", 1);
    setNumber("RANK", rank);
    setNumber("WORLD_SIZE", ranks);
    setNumber("LOCAL_RANK", rank);
    setNumber("LOCAL_WORLD_SIZE", ranks);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    setNumber("MASTER_PORT", port + 1);
    setNumber("MOIRA_MASTER_PORT", port);
  });
}

TEST(CApiRank, HalfALauncherIsNamed) {
  onProcesses("HalfLaunched", 1, [](int) {
    setenv("TORCHELASTIC_RUN_ID", "test", 1);
    setenv("RANK", "0", 1);
    unsetenv("WORLD_SIZE");
  });
}

TEST(CApiRank, AProcessThatNobodyStartedIsAlone) {
  onProcesses("Alone", 1, [](int) { setenv("MOIRA_LAUNCHER", "none", 1); });
}
