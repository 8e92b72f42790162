// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// usage: moira-rank-worker cases [GTEST OPTIONS...]
//        moira-rank-worker STAGE ACT RANK
//
// One rank of a test whose ranks are processes; a launcher starts all of them.
// `cases` runs what every transport must do. Else RANK does ACT at STAGE:
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

#include "Ranks/TransportCases.h"
#include "collective/Connect.h"

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <gtest/gtest.h>
#include <thread>

using namespace moira;
using namespace moira::runtime;

static constexpr double waitSeconds = 2;
// More than buffers hold.
static constexpr int64_t largeBytes = 24 << 20;

static Transport *transport = nullptr;

namespace {
class Ranks : public testing::TestWithParam<TransportCase> {};
} // namespace

TEST_P(Ranks, Case) { GetParam().run(*transport); }

INSTANTIATE_TEST_SUITE_P(Transport, Ranks, testing::ValuesIn(transportCases()),
                         [](const auto &info) {
                           std::string name = info.param.name;
                           for (char &letter : name)
                             if (letter == '-')
                               letter = '_';
                           return name;
                         });

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
  transport = opened->get();

  if (stage == "cases") {
    testing::InitGoogleTest(&argc, argv);
    if (transport->rank() > 0) // one rank lists the tests, all list failures
      testing::GTEST_FLAG(brief) = true;
    int failed = RUN_ALL_TESTS();
    return failed;
  }
  Status status =
      what == "leave" && isActor ? Status() : misbehave(stage, what, isActor);
  // Before the end of the transport, which may end all ranks.
  int result = status.ok() ? 0 : report(status);
  opened->reset();
  return result;
}
