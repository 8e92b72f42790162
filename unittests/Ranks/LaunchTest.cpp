// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Ranks that are processes: what they can do, and that all of them end, soon
// and with one reason, when one of them does not go on.

#include "Ranks/Launch.h"

#include <gtest/gtest.h>

using namespace moira::runtime;

static constexpr int ranks = 4;
static constexpr int actor = 2;
// The ranks wait 2 seconds for each other and 2 for a last word; the rest is
// for a machine that is busy with other tests.
static constexpr double boundSeconds = 30;

static std::vector<Outcome> run(const std::string &transport,
                                const std::vector<std::string> &arguments,
                                double seconds, size_t mayStay = 0,
                                const Variables &more = {}) {
  std::vector<std::string> words = arguments;
  // Options of mpirun come before the program.
  if (arguments[0][0] != '-')
    words.insert(words.begin(), MOIRA_RANK_WORKER);
  if (transport != "mpi") {
    HeldPort port;
    return runAll(torchrun(ranks, port.port, words, more), seconds, mayStay);
  }
  words.insert(words.begin(), {MOIRA_MPIRUN, std::to_string(ranks)});
  Variables variables = more;
  variables.emplace_back("MOIRA_MPI_PLUGIN", MOIRA_MPI_PLUGIN);
  variables.emplace_back("MOIRA_MPI_SECONDS", std::to_string(seconds));
  return runAll({{words, variables}}, seconds + 10);
}

static size_t count(const std::string &text, const std::string &part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos;
       at = text.find(part, at + 1))
    ++found;
  return found;
}

namespace {

class Launch : public testing::TestWithParam<const char *> {};

struct Act {
  const char *transport, *stage, *what;
};
class Misbehaving : public testing::TestWithParam<Act> {};

} // namespace

TEST_P(Launch, Cases) {
  for (const Outcome &outcome : run(GetParam(), {"cases"}, 120)) {
    EXPECT_EQ(outcome.status, 0) << outcome.output;
    EXPECT_FALSE(outcome.late);
  }
}

TEST_P(Misbehaving, EndsAll) {
  const auto [transport, stage, what] = GetParam();
  const bool stays = std::string(what) == "stop";
  std::vector<Outcome> outcomes =
      run(transport, {stage, what, std::to_string(actor)}, boundSeconds,
          stays ? 1 : 0);
  const std::string name = "rank " + std::to_string(actor);
  for (size_t i = 0; i < outcomes.size(); ++i) {
    const Outcome &outcome = outcomes[i];
    const bool isActor = outcomes.size() == ranks && i == actor;
    SCOPED_TRACE(outcome.output);
    if (isActor && (stays || outcome.status == 0))
      continue;
    EXPECT_FALSE(outcome.late) << outcome.seconds << " s";
    EXPECT_NE(outcome.status, 0);
    if (isActor)
      continue;
    if (outcomes.size() == 1) { // mpirun
      // Before MPI_Init has returned nobody knows of anybody.
      if (std::string(stage) != "start")
        EXPECT_NE(outcome.output.find(name), std::string::npos);
      continue;
    }
    EXPECT_EQ(outcome.status, 3);
    EXPECT_EQ(count(outcome.output, "error: "), 1u);
    EXPECT_NE(outcome.output.find(name), std::string::npos);
  }
}

static std::string label(const testing::TestParamInfo<Act> &info) {
  return std::string(info.param.transport) + "_" + info.param.stage + "_" +
         info.param.what;
}

static std::vector<Act> acts(const char *transport) {
  std::vector<Act> result;
  for (const char *stage : {"start", "connected", "between", "within"})
    for (const char *what : {"kill", "stop"})
      result.push_back({transport, stage, what});
  // MPI_Init waits as long as the launcher lets it.
  if (std::string(transport) == "mpi")
    result.erase(result.begin() + 1);
  for (const char *what : {"kill", "stop", "abort"})
    result.push_back({transport, "step", what});
  result.push_back({transport, "between", "abort"});
  result.push_back({transport, "within", "abort"});
  result.push_back({transport, "between", "short"});
  result.push_back({transport, "between", "leave"});
  return result;
}

INSTANTIATE_TEST_SUITE_P(Tcp, Launch, testing::Values("tcp"));
INSTANTIATE_TEST_SUITE_P(Tcp, Misbehaving, testing::ValuesIn(acts("tcp")),
                         label);
#ifdef MOIRA_NCCL_STANDIN
TEST(LaunchNccl, Cases) {
  for (const Outcome &outcome : run("nccl", {"cases"}, 120, 0,
                                    {{"MOIRA_TRANSPORT", "nccl"},
                                     {"MOIRA_NCCL_LIB", MOIRA_NCCL_STANDIN}})) {
    EXPECT_EQ(outcome.status, 0) << outcome.output;
    EXPECT_FALSE(outcome.late);
  }
}
#endif
#ifdef MOIRA_HAS_MPI

/// The sum of the numbers that follow `word` in a text.
static double sumAfter(const std::string &text, const std::string &word,
                       int &found) {
  double sum = 0;
  found = 0;
  for (size_t at = text.find(word); at != std::string::npos;
       at = text.find(word, at + 1)) {
    sum += atof(text.c_str() + at + word.size());
    ++found;
  }
  return sum;
}

TEST(Traffic, IsWhatMpiIsGiven) {
  Outcome outcome =
      run("mpi",
          {"-x", "LD_PRELOAD=" MOIRA_COUNT_SENDS, MOIRA_RANK_WORKER, "traffic"},
          60)[0];
  SCOPED_TRACE(outcome.output);
  ASSERT_EQ(outcome.status, 0);
  int ours = 0, theirs = 0;
  double counted = sumAfter(outcome.output, "counted ", ours);
  double sent = sumAfter(outcome.output, "sent ", theirs);
  ASSERT_EQ(ours, ranks);
  ASSERT_EQ(theirs, ranks);
  EXPECT_GT(counted, 1e6);
  EXPECT_NEAR(sent, counted, 0.05 * counted);
}

INSTANTIATE_TEST_SUITE_P(Mpi, Launch, testing::Values("mpi"));
INSTANTIATE_TEST_SUITE_P(Mpi, Misbehaving, testing::ValuesIn(acts("mpi")),
                         label);
#endif
