// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// usage: moira-rank-worker cases [GTEST OPTIONS...]
//        moira-rank-worker traffic
//        moira-rank-worker STAGE ACT RANK
//
// One rank of a test whose ranks are processes; a launcher starts all of them.
// `cases` runs what every transport must do, by itself and under a
// communicator. `traffic` moves some megabytes and prints "counted BYTES", what
// our counters say that this rank has sent. Else RANK does ACT at STAGE:
//
// | ACT | |
// | --- | --- |
// | kill | ends without a word |
// | stop | stays, but does nothing any more |
// | abort | gives up, from a thread that is not the transport's |
// | short | sends fewer bytes than the others expect |
// | leave | ends well, while the others go on |
//
// STAGE: start (before it connects), connected, between (batches), within
// (one). The others must report one failure, which this program prints;
// status 3.

#include "Collective/Conformance.h"
#include "Ranks/TransportCases.h"
#include "Runtime/AgreeingRanks.h"
#include "base/Hash.h"
#include "collective/Connect.h"

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <gtest/gtest.h>
#include <set>
#include <thread>

using namespace moira;
using namespace moira::runtime;

static constexpr double waitSeconds = 2;
static double stepSeconds = 60; // of a communicator
// More than buffers hold.
static constexpr int64_t largeBytes = 24 << 20;

static std::unique_ptr<Transport> transport;
static std::unique_ptr<Communicator> communicator; // has it, once there is one

TEST(RanksOfATransport, Cases) {
  for (const TransportCase &one : transportCases()) {
    SCOPED_TRACE(one.name);
    one.run(*transport);
  }
}

static Communicator &ranks() {
  if (!communicator) {
    CommunicatorOptions options;
    // Nodes of two ranks, so that there is something to be hierarchical about.
    options.ranksPerNode = transport->ranks() % 2 == 0 ? 2 : 0;
    options.timeoutSeconds = stepSeconds;
    Result<std::unique_ptr<Communicator>> made =
        Communicator::create(std::move(transport), options);
    if (!made.ok())
      abort();
    communicator = std::move(*made);
  }
  return *communicator;
}

// After the transport's own cases: from here on it is the communicator's.
TEST(RanksOfACommunicator, Conformance) {
  Status status = test::testAll(ranks());
  ASSERT_TRUE(status.ok()) << status.message;
}

/// Ranks that are processes choose the same plans as long as they run, whatever
/// their clocks say.
TEST(RanksOfACommunicator, Adapt) {
  if (ranks().ranks() != test::AdaptiveProgram::ranks)
    return; // the program is for four
  // scripts/check-all lets them run for longer.
  const char *given = getenv("MOIRA_ADAPT_STEPS");
  test::SeenPlans seen;
  Status status =
      test::runAgreeing(ranks(), given ? atoi(given) : 500, AdaptOptions(),
                        /*failing=*/false, seen);
  ASSERT_TRUE(status.ok()) << status.message;
  uint64_t mine =
      hashBytes(seen.candidates.data(), seen.candidates.size() * sizeof(int));
  std::vector<uint64_t> all(ranks().ranks());
  status = ranks().allGather(&mine, sizeof(mine), all.data());
  ASSERT_TRUE(status.ok()) << status.message;
  for (uint64_t other : all)
    EXPECT_EQ(other, all[0]);
  EXPECT_GE(
      std::set<int>(seen.candidates.begin(), seen.candidates.end()).size(), 4u);
}

static Status moveMegabytes() {
  test::ExchangeCase one;
  one.experts = 2 * ranks().ranks();
  one.counts = test::Counts::Ragged;
  one.rowBytes = 20000;
  // It resets the counters, so it comes first.
  MOIRA_RETURN_IF_ERROR(test::testExchange(ranks(), one));
  std::vector<float> numbers(300001, 1.0f);
  MOIRA_RETURN_IF_ERROR(
      ranks().allReduce(numbers.data(), 300001, MOIRA_F32, Reduction::Sum));
  MOIRA_RETURN_IF_ERROR(ranks().broadcast(1, numbers.data(), 1200004));
  std::vector<char> all(ranks().ranks() * 50000);
  return ranks().allGather(numbers.data(), 50000, all.data());
}

static int report(const Status &status) {
  // In one piece, since ranks share the stream.
  std::string line = concat("error: ", status.message, "\n");
  fputs(line.c_str(), stderr);
  return 3;
}

static Status exchange(int64_t bytes, int64_t sent) {
  const int ranks = transport->ranks();
  std::vector<std::vector<char>> out(ranks), in(ranks);
  Batch batch;
  for (int peer = 0; peer < ranks; ++peer) {
    out[peer].resize(sent);
    in[peer].resize(bytes);
    if (peer == transport->rank())
      continue;
    batch.sends.push_back({peer, out[peer].data(), sent});
    batch.receives.push_back({peer, in[peer].data(), bytes});
  }
  return complete(*transport, batch, waitSeconds);
}

static Status act(const std::string &what) {
  if (what == "kill")
    raise(SIGKILL);
  if (what == "stop")
    raise(SIGSTOP);
  if (what == "short")
    return exchange(1 << 16, 1000);
  if (what == "abort") {
    std::thread other([] {
      transport->abort({transport->rank(), MOIRA_FAILED, "had enough"});
    });
    other.join();
  }
  return exchange(8, 8);
}

static Status misbehave(const std::string &stage, const std::string &what,
                        bool isActor) {
  if (stage == "connected" && isActor)
    return act(what);
  for (int round = 0; round < 100; ++round) {
    if (stage == "between" && isActor && round == 50)
      return act(what);
    MOIRA_RETURN_IF_ERROR(exchange(1 << 16, 1 << 16));
  }
  // The others are in the middle of it.
  if (stage == "within" && isActor) {
    std::vector<char> bytes(largeBytes);
    Batch batch;
    for (int peer = 0; peer < transport->ranks(); ++peer)
      if (peer != transport->rank())
        batch.sends.push_back({peer, bytes.data(), largeBytes});
    MOIRA_RETURN_IF_ERROR(transport->post(batch));
    for (int i = 0; i < 20; ++i)
      if (!transport->test().ok())
        break;
    Status status = act(what);
    return status.ok() ? complete(*transport, {}) : status;
  }
  return exchange(largeBytes, largeBytes);
}

static Status runSteps(const std::string &what, bool isActor) {
  std::vector<float> numbers(100000, 1.0f);
  for (int step = 0; step < 40; ++step) {
    MOIRA_RETURN_IF_ERROR(ranks().beginStep());
    Status mine;
    if (isActor && step == 20) {
      if (what == "kill")
        raise(SIGKILL);
      if (what == "stop")
        raise(SIGSTOP);
      mine = Status(MOIRA_FAILED, "had enough");
    } else {
      mine =
          ranks().allReduce(numbers.data(), 100000, MOIRA_F32, Reduction::Max);
    }
    MOIRA_RETURN_IF_ERROR(ranks().endStep(mine));
  }
  return Status();
}

int main(int argc, char **argv) {
  const std::string stage = argc > 1 ? argv[1] : "";
  Result<Environment> environment = Environment::read();
  if (!environment.ok())
    return report(environment.status());
  const std::string what = argc > 3 ? argv[2] : "";
  const bool isActor = argc > 3 && environment->rank == atoi(argv[3]);
  if (stage == "start" && isActor)
    raise(what == "kill" ? SIGKILL : SIGSTOP);
  ConnectOptions options;
  options.seconds = stage == "start" ? waitSeconds : 60;
  Result<std::unique_ptr<Transport>> opened =
      connectRanks(*environment, options);
  if (!opened.ok())
    return report(opened.status());
  transport = std::move(*opened);

  Status status;
  int result = 0;
  if (stage == "cases") {
    testing::InitGoogleTest(&argc, argv);
    if (transport->rank() > 0) // one rank lists the tests, all list failures
      testing::GTEST_FLAG(brief) = true;
    result = RUN_ALL_TESTS();
  } else if (stage == "traffic") {
    status = moveMegabytes();
    int64_t bytes = 0;
    for (const TrafficCount &peer : ranks().traffic().peers)
      bytes += peer.bytesSent;
    fputs(concat("counted ", bytes, "\n").c_str(), stderr);
  } else if (stage == "step") {
    stepSeconds = waitSeconds;
    status = runSteps(what, isActor);
  } else if (what != "leave" || !isActor) {
    status = misbehave(stage, what, isActor);
  }
  // Before the end of the transport, which may end all ranks.
  if (!status.ok())
    result = report(status);
  communicator.reset();
  transport.reset();
  return result;
}
