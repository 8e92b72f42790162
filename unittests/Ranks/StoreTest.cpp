// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Ranks/Launch.h"
#include "Ranks/TransportCases.h"
#include "bootstrap/TcpStore.h"
#include "collective/tcp/TcpTransport.h"

#include <gtest/gtest.h>
#include <mutex>
#include <random>
#include <set>
#include <thread>

using namespace moira;
using namespace moira::runtime;

static Environment member(int rank, int ranks, int port) {
  Environment environment;
  environment.rank = rank;
  environment.ranks = ranks;
  environment.masterAddress = "127.0.0.1";
  environment.storePort = port;
  environment.job = "test";
  return environment;
}

/// Runs `body` as each of the ranks, in threads.
template <typename Body> static void asRanks(int ranks, Body body) {
  HeldPort port;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      Result<std::unique_ptr<TcpStore>> store =
          TcpStore::open(member(rank, ranks, port.port + 1), 20);
      ASSERT_TRUE(store.ok()) << store.status().message;
      body(**store);
    });
  for (std::thread &thread : threads)
    thread.join();
}

TEST(StoreTest, SetsGetsAndAdds) {
  std::mutex mutex;
  std::multiset<int64_t> sums;
  asRanks(3, [&](TcpStore &store) {
    const std::string own = concat("key ", store.rank());
    const std::string bytes("a\0b", 3);
    if (store.rank() == 1)
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
    EXPECT_TRUE(store.set(own, bytes + own).ok());
    for (int rank = 0; rank < 3; ++rank) {
      std::string key = concat("key ", rank);
      Result<std::string> value = store.get(key, 20);
      ASSERT_TRUE(value.ok()) << value.status().message;
      EXPECT_EQ(*value, bytes + key);
    }
    EXPECT_TRUE(store.add("sum", store.rank() + 1).ok());
    EXPECT_TRUE(store.barrier("all", 20).ok());
    int64_t sum = *store.add("sum", -6);
    {
      std::lock_guard<std::mutex> lock(mutex);
      sums.insert(sum);
    }
    EXPECT_TRUE(store.barrier("all", 20).ok()) << "a second time";
  });
  // Of 1 + 2 + 3, in an order that nobody knows.
  EXPECT_EQ(sums, (std::multiset<int64_t>{-12, -6, 0}));
}

TEST(StoreTest, TimesOut) {
  asRanks(2, [](TcpStore &store) {
    Result<std::string> value = store.get("nothing", 0.05);
    ASSERT_FALSE(value.ok());
    EXPECT_EQ(value.status().code, MOIRA_UNAVAILABLE);
    EXPECT_EQ(value.status().message, "store: get nothing: no value in 0.05 s; "
                                      "has a rank not started?");
    if (store.rank() == 0)
      EXPECT_FALSE(store.barrier("half", 0.05).ok());
    EXPECT_TRUE(store.barrier("end", 20).ok()) << "it still works";
  });
}

TEST(StoreTest, RefusesWhatIsTooLarge) {
  asRanks(1, [](TcpStore &store) {
    EXPECT_TRUE(store.set("k", std::string(storeMaxValue, 'x')).ok());
    EXPECT_EQ(store.get("k", 1)->size(), storeMaxValue);
    EXPECT_FALSE(store.set("k", std::string(storeMaxValue + 1, 'x')).ok());
    EXPECT_FALSE(store.set(std::string(storeMaxKey + 1, 'x'), "v").ok());
    EXPECT_TRUE(store.set("k", "v").ok());
  });
}

TEST(StoreTest, RefusesAnotherJob) {
  HeldPort port;
  Result<std::unique_ptr<TcpStore>> store =
      TcpStore::open(member(0, 2, port.port + 1), 5);
  ASSERT_TRUE(store.ok()) << store.status().message;
  Environment stranger = member(1, 2, port.port + 1);
  stranger.job = "other";
  Result<std::unique_ptr<TcpStore>> refused = TcpStore::open(stranger, 5);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message.find(
                "expected 2 ranks of job 'other', it serves 2 ranks of job "
                "'test'"),
            std::string::npos)
      << refused.status().message;
  // And two processes that both take themselves for rank 0 do not go on.
  Result<std::unique_ptr<TcpStore>> second =
      TcpStore::open(member(0, 2, port.port + 1), 5);
  ASSERT_FALSE(second.ok());
  EXPECT_NE(second.status().message.find("MOIRA_MASTER_PORT"),
            std::string::npos);
}

TEST(StoreTest, NobodyServes) {
  HeldPort port;
  Result<std::unique_ptr<TcpStore>> store =
      TcpStore::open(member(1, 2, port.port + 1), 0.1);
  ASSERT_FALSE(store.ok());
  EXPECT_NE(store.status().message.find("the store of rank 0 at 127.0.0.1"),
            std::string::npos)
      << store.status().message;
}

/// Whatever arrives at its port, a store serves on.
TEST(StoreTest, SurvivesGarbage) {
  HeldPort port;
  Result<std::unique_ptr<TcpStore>> store =
      TcpStore::open(member(0, 2, port.port + 1), 5);
  ASSERT_TRUE(store.ok());
  std::mt19937 random(7);
  const std::string greeting = storeGreeting("test", 2);
  for (int attempt = 0; attempt < 300; ++attempt) {
    std::string bytes;
    for (int part = 0; part < 4; ++part) {
      StoreHead head;
      head.ask = static_cast<StoreAsk>(part == 0 ? 1 : 1 + random() % 4);
      head.keyBytes = part == 0 ? 0 : random() % 300;
      head.valueBytes = part == 0 ? greeting.size() : random() % 40;
      head.milliseconds = random() % 3;
      std::string text(StoreHead::size, '\0');
      head.put(reinterpret_cast<unsigned char *>(text.data()));
      text += part == 0 ? greeting : std::string(random() % 400, 'x');
      bytes += text;
    }
    for (unsigned change = random() % 4; change > 0; --change)
      bytes[random() % bytes.size()] = static_cast<char>(random());
    bytes.resize(random() % (bytes.size() + 1));
    Result<Socket> socket =
        connectTo("127.0.0.1", port.port + 1, deadlineIn(5));
    ASSERT_TRUE(socket.ok());
    // It may be gone before all is sent.
    (void)sendAll(*socket, bytes.data(), bytes.size(), deadlineIn(5)).ok();
  }
  EXPECT_TRUE((*store)->set("key", "value").ok());
  EXPECT_EQ(*(*store)->get("key", 5), "value");
}

TEST(TcpTransportTest, CasesInThreads) {
  for (int ranks : {1, 2, 5})
    asRanks(ranks, [](TcpStore &store) {
      TcpOptions options;
      options.piece = 100000; // several even for what is not large
      Result<std::unique_ptr<TcpTransport>> transport =
          TcpTransport::open(store, options);
      ASSERT_TRUE(transport.ok()) << transport.status().message;
      for (const TransportCase &one : transportCases()) {
        SCOPED_TRACE(one.name);
        one.run(**transport);
      }
    });
}

/// Strangers that call at a rank's port, before its ranks do, change nothing.
TEST(TcpTransportTest, StrangersAreIgnored) {
  asRanks(2, [](TcpStore &store) {
    std::vector<Socket> strangers;
    std::thread caller;
    if (store.rank() == 1)
      caller = std::thread([&] {
        Result<std::string> place = store.get("tcp/0", 20);
        ASSERT_TRUE(place.ok());
        int port = atoi(place->c_str() + place->find(' '));
        for (int i = 0; i < 5; ++i) {
          Result<Socket> socket = connectTo("127.0.0.1", port, deadlineIn(5));
          ASSERT_TRUE(socket.ok());
          std::string bytes(i * 7, static_cast<char>(i));
          (void)sendAll(*socket, bytes.data(), bytes.size(), deadlineIn(5))
              .ok();
          strangers.push_back(std::move(*socket));
        }
      });
    if (caller.joinable())
      caller.join();
    Result<std::unique_ptr<TcpTransport>> transport =
        TcpTransport::open(store, {});
    ASSERT_TRUE(transport.ok()) << transport.status().message;
    EXPECT_TRUE(complete(**transport, {}).ok());
  });
}

TEST(TcpTransportTest, GivesUpOnWhoDoesNotCome) {
  HeldPort port;
  Result<std::unique_ptr<TcpStore>> store =
      TcpStore::open(member(0, 2, port.port + 1), 5);
  ASSERT_TRUE(store.ok());
  TcpOptions options;
  options.connectSeconds = 0.1;
  Result<std::unique_ptr<TcpTransport>> transport =
      TcpTransport::open(**store, options);
  ASSERT_FALSE(transport.ok());
  EXPECT_EQ(transport.status().message, "rank 1 has not connected in time");
}
