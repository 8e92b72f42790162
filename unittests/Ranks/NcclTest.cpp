// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The NCCL transport over the library that stands in for NCCL (nccl/), and that
// library's own judgement.

#include "collective/nccl/Nccl.h"
#include "Collective/Conformance.h"
#include "Collective/Threads.h"
#include "Ranks/TransportCases.h"
#include "collective/nccl/NcclLibrary.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>
#include <thread>
#include <unistd.h>

using namespace moira;
using namespace moira::runtime;

static NcclOptions standin() {
  NcclOptions options;
  options.library = MOIRA_NCCL_STANDIN;
  options.connectSeconds = 20;
  return options;
}

static std::vector<std::unique_ptr<Transport>> makeNccl(int ranks) {
  std::vector<std::unique_ptr<Transport>> ends = makeInProcess(ranks);
  std::vector<std::thread> threads;
  for (std::unique_ptr<Transport> &end : ends)
    threads.emplace_back([&end] {
      Result<std::unique_ptr<Transport>> made =
          openNccl(std::move(end), standin());
      ASSERT_TRUE(made.ok()) << made.status().message;
      end = std::move(*made);
    });
  for (std::thread &thread : threads)
    thread.join();
  return ends;
}

static void asRanks(int ranks, const std::function<void(Transport &)> &body) {
  std::vector<std::unique_ptr<Transport>> ends = makeNccl(ranks);
  std::vector<std::thread> threads;
  for (std::unique_ptr<Transport> &end : ends)
    threads.emplace_back([&end, &body] {
      body(*end);
      end.reset();
    });
  for (std::thread &thread : threads)
    thread.join();
}

TEST(NcclTest, Cases) {
  for (int ranks : {1, 2, 4})
    asRanks(ranks, [](Transport &transport) {
      EXPECT_EQ(transport.memory(), MemorySpace::Host) << "of the stand-in";
      for (const TransportCase &one : transportCases()) {
        SCOPED_TRACE(one.name);
        one.run(transport);
      }
    });
}

TEST(NcclTest, Conformance) {
  CommunicatorOptions options;
  options.ranksPerNode = 2;
  for (const Status &status :
       test::runRanks(4, options, test::testAll, makeNccl))
    EXPECT_TRUE(status.ok()) << status.message;
}

/// One batch is one group, in the order of the batch; nothing is sent for
/// nothing.
TEST(NcclTest, CallsOfABatch) {
  const std::string file =
      testing::TempDir() + "moira-nccl-" + std::to_string(getpid()) + ".log";
  setenv("MOIRA_NCCL_STANDIN_LOG", file.c_str(), 1);
  asRanks(2, [](Transport &transport) {
    const int self = transport.rank(), other = 1 - self;
    char out[8] = {}, in[8] = {};
    Batch batch;
    batch.sends = {
        {other, out, 5}, {other, out, 0}, {self, out, 2}, {other, out, 3}};
    batch.receives = {{self, in, 2}, {other, in, 5}, {other, in, 3}};
    ASSERT_TRUE(complete(transport, batch).ok());
    ASSERT_TRUE(complete(transport, {}).ok());
  });
  unsetenv("MOIRA_NCCL_STANDIN_LOG");
  std::ifstream log(file);
  std::vector<std::string> lines[2];
  for (std::string line; std::getline(log, line);)
    lines[line[0] - '0'].push_back(line.substr(2));
  remove(file.c_str());
  for (int self : {0, 1}) {
    const std::string other = std::to_string(1 - self) + " ";
    const std::string me = std::to_string(self) + " ";
    EXPECT_EQ(lines[self],
              (std::vector<std::string>{
                  "init 2", "group 1 6", "send 1 " + other + "5 int8",
                  "send 1 " + me + "2 int8", "send 1 " + other + "3 int8",
                  "recv 1 " + me + "2 int8", "recv 1 " + other + "5 int8",
                  "recv 1 " + other + "3 int8", "finalize", "destroy"}));
  }
}

/// As with NCCL itself: what is on the GPU goes through it, what is on the host
/// through the other transport, and a batch may have both.
TEST(NcclTest, CarriesWhatIsOnTheHostBesides) {
  void *library = dlopen(MOIRA_NCCL_STANDIN, RTLD_NOW | RTLD_LOCAL);
  ASSERT_TRUE(library) << dlerror();
  char memory[2][16] = {};
  auto variable = [&](const char *name) { return dlsym(library, name); };
  int &usesHost = *static_cast<int *>(variable("moira_nccl_uses_host_memory"));
  auto place = [&](const char *name) {
    return static_cast<const void **>(variable(name));
  };
  *place("moira_nccl_device_begin") = memory;
  *place("moira_nccl_device_end") = memory + 2;
  usesHost = 0;
  const std::string file =
      testing::TempDir() + "moira-split-" + std::to_string(getpid()) + ".log";
  setenv("MOIRA_NCCL_STANDIN_LOG", file.c_str(), 1);
  asRanks(2, [&](Transport &transport) {
    EXPECT_EQ(transport.memory(), MemorySpace::Device);
    const int self = transport.rank(), other = 1 - self;
    char *there = memory[self];
    char home[4] = {char('a' + self), 0, 0, 0};
    there[0] = char('A' + self);
    for (int round = 0; round < 3; ++round) {
      Batch batch;
      batch.sends = {{other, there, 1}, {other, home, 1}};
      batch.receives = {{other, home + 1, 1}, {other, there + 8, 1}};
      ASSERT_TRUE(complete(transport, batch).ok());
      EXPECT_EQ(there[8], 'A' + other);
      EXPECT_EQ(home[1], 'a' + other);
      there[8] = home[1] = 0;
    }
    // Either alone.
    Batch host, device;
    host.sends = {{other, home, 2}};
    host.receives = {{other, home + 2, 2}};
    ASSERT_TRUE(complete(transport, host).ok());
    EXPECT_EQ(home[2], 'a' + other);
    device.sends = {{other, there, 1}};
    device.receives = {{other, there + 9, 1}};
    ASSERT_TRUE(complete(transport, device).ok());
    EXPECT_EQ(there[9], 'A' + other);
  });
  unsetenv("MOIRA_NCCL_STANDIN_LOG");
  usesHost = 1;
  *place("moira_nccl_device_begin") = *place("moira_nccl_device_end") = nullptr;
  std::ifstream log(file);
  int groups = 0;
  for (std::string line; std::getline(log, line);)
    groups += line.find(" group ") != std::string::npos;
  remove(file.c_str());
  EXPECT_EQ(groups, 2 * 4);
}

TEST(NcclTest, DisagreementFailsOnAllRanks) {
  asRanks(3, [](Transport &transport) {
    const int self = transport.rank();
    char bytes[16] = {};
    Batch batch;
    if (self == 0)
      batch.sends = {{1, bytes, 8}};
    if (self == 1)
      batch.receives = {{0, bytes, 4}};
    if (self == 2) // waits for what never comes
      batch.receives = {{0, bytes, 4}};
    Status status = complete(transport, batch, 20);
    ASSERT_FALSE(status.ok());
    EXPECT_NE(status.message.find("rank 0 sends 8 elements to rank 1, which "
                                  "receives 4"),
              std::string::npos)
        << status.message;
    EXPECT_TRUE(transport.failure().has_value());
    EXPECT_FALSE(transport.post({}).ok());
  });
}

TEST(NcclTest, AbortEndsAllRanks) {
  asRanks(3, [](Transport &transport) {
    char bytes[16] = {};
    if (transport.rank() == 2)
      return transport.abort({2, MOIRA_FAILED, "had enough"});
    Batch batch;
    batch.receives = {{2, bytes, 4}};
    Status status = complete(transport, batch, 20);
    ASSERT_FALSE(status.ok());
    ASSERT_TRUE(transport.failure().has_value());
    EXPECT_EQ(transport.failure()->rank, 2);
    EXPECT_EQ(transport.failure()->reason, "had enough");
  });
}

TEST(NcclTest, SaysWhatIsMissing) {
  NcclOptions options;
  options.library = "/nowhere/libnccl.so.2";
  Result<std::unique_ptr<Transport>> none =
      openNccl(std::move(makeInProcess(1)[0]), options);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.status().code, MOIRA_UNAVAILABLE);
  EXPECT_NE(none.status().message.find("/nowhere/libnccl.so.2"),
            std::string::npos);
  // A rank that has no such GPU ends the start of all.
  std::vector<std::unique_ptr<Transport>> ends = makeInProcess(2);
  std::thread other([&] {
    NcclOptions wrong = standin();
    wrong.device = -1;
    Result<std::unique_ptr<Transport>> made =
        openNccl(std::move(ends[1]), wrong);
    EXPECT_FALSE(made.ok());
  });
  Result<std::unique_ptr<Transport>> made =
      openNccl(std::move(ends[0]), standin());
  other.join();
  ASSERT_FALSE(made.ok());
  EXPECT_NE(made.status().message.find("cuDeviceGet: no such device"),
            std::string::npos)
      << made.status().message;
}

//===----------------------------------------------------------------------===//
// What the stand-in library notices
//===----------------------------------------------------------------------===//

namespace {

struct RawCall {
  bool isSend;
  uint64_t count;
  ncclDataType_t type;
};
/// Groups of calls to the other of two ranks.
using RawGroups = std::vector<std::vector<RawCall>>;

} // namespace

/// What two ranks that call the library in these ways are told; "" if nothing.
static std::string judge(const RawGroups &first, const RawGroups &second) {
  Result<NcclLibrary> library = NcclLibrary::load(MOIRA_NCCL_STANDIN);
  EXPECT_TRUE(library.ok());
  ncclUniqueId id;
  library->ncclGetUniqueId(&id);
  std::string told[2];
  auto run = [&](int rank, const RawGroups &groups) {
    ncclComm_t comm = nullptr;
    EXPECT_EQ(library->ncclCommInitRankConfig(&comm, 2, id, rank, nullptr),
              ncclSuccess);
    CUstream stream;
    library->createStream(&stream, 0);
    char bytes[64] = {};
    for (const std::vector<RawCall> &group : groups) {
      library->ncclGroupStart();
      for (const RawCall &call : group)
        if (call.isSend)
          library->ncclSend(bytes, call.count, call.type, 1 - rank, comm,
                            stream);
        else
          library->ncclRecv(bytes, call.count, call.type, 1 - rank, comm,
                            stream);
      library->ncclGroupEnd();
    }
    ncclResult_t state = ncclSuccess;
    while (library->queryStream(stream) == CUDA_ERROR_NOT_READY) {
      library->ncclCommGetAsyncError(comm, &state);
      if (state != ncclSuccess)
        break;
      std::this_thread::yield();
    }
    if (state != ncclSuccess) {
      EXPECT_EQ(state, ncclInvalidUsage);
      told[rank] = library->ncclGetLastError(comm);
    }
    library->ncclCommAbort(comm);
    library->destroyStream(stream);
  };
  std::thread other([&] { run(1, second); });
  run(0, first);
  other.join();
  EXPECT_EQ(told[0], told[1]);
  return told[0];
}

TEST(NcclStandinTest, JudgesWhatRanksDo) {
  const RawCall send{true, 4, ncclFloat32}, receive{false, 4, ncclFloat32};
  const RawCall other{false, 4, ncclInt32}, fewer{false, 3, ncclFloat32};
  EXPECT_EQ(judge({{send}}, {{receive}}), "");
  EXPECT_EQ(judge({{send, receive}}, {{receive, send}}), "");
  EXPECT_EQ(judge({{send}, {send}}, {{receive}, {receive}}), "");
  EXPECT_EQ(judge({{send}}, {{other}}),
            "rank 0 sends float32 to rank 1, which receives int32");
  EXPECT_EQ(judge({{send}}, {{fewer}}),
            "rank 0 sends 4 elements to rank 1, which receives 3");
  EXPECT_EQ(judge({{send}, {send}}, {{receive, receive}}),
            "rank 0 sends message 1 of 1 in its group to rank 1, which "
            "receives message 1 of 2");
  EXPECT_EQ(judge({{receive}}, {{send, send}}),
            "rank 1 sends message 1 of 2 in its group to rank 0, which "
            "receives message 1 of 1");
}

TEST(NcclStandinTest, JudgesWhatARankDoes) {
  Result<NcclLibrary> found = NcclLibrary::load(MOIRA_NCCL_STANDIN);
  ASSERT_TRUE(found.ok());
  const NcclLibrary &library = *found;
  EXPECT_EQ(library.ncclGroupEnd(), ncclInvalidUsage);
  ncclUniqueId id;
  library.ncclGetUniqueId(&id);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm = nullptr;
  char byte = 0;
  // Alone among two it is never ready.
  ASSERT_EQ(library.ncclCommInitRankConfig(&comm, 2, id, 0, &config),
            ncclInProgress);
  EXPECT_EQ(library.ncclSend(&byte, 1, ncclInt8, 1, comm, nullptr),
            ncclInvalidUsage);
  EXPECT_STREQ(library.ncclGetLastError(comm),
               "ncclSend while another call is in progress");
  library.ncclCommAbort(comm);
  library.ncclGetUniqueId(&id);
  ASSERT_EQ(library.ncclCommInitRankConfig(&comm, 1, id, 0, nullptr),
            ncclSuccess);
  EXPECT_EQ(library.ncclSend(&byte, 1, ncclInt8, 1, comm, nullptr),
            ncclInvalidArgument);
  EXPECT_EQ(library.ncclSend(nullptr, 1, ncclInt8, 0, comm, nullptr),
            ncclInvalidArgument);
  library.ncclCommDestroy(comm);
  EXPECT_EQ(library.ncclCommInitRankConfig(&comm, 2, id, 2, nullptr),
            ncclInvalidArgument);
}
