// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Ranks/TransportCases.h"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <gtest/gtest.h>
#include <thread>

using namespace moira;
using namespace moira::runtime;

using Bytes = std::vector<unsigned char>;

static std::atomic<int64_t> sentToOthers{0};

int64_t moira::runtime::bytesSentToOthers() { return sentToOthers; }

Status moira::runtime::complete(Transport &transport, const Batch &batch,
                                double seconds) {
  auto limit =
      std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  for (const Message &message : batch.sends)
    if (message.peer != transport.rank())
      sentToOthers += message.bytes;
  MOIRA_RETURN_IF_ERROR(transport.post(batch));
  while (true) {
    Result<bool> done = transport.test();
    if (!done.ok())
      return done.status();
    if (*done)
      return Status();
    if (std::chrono::steady_clock::now() > limit) {
      int blamed = transport.awaited();
      transport.abort({blamed, MOIRA_FAILED,
                       concat("has not answered for ", seconds, " s")});
    }
    transport.idle();
  }
}

static Bytes pattern(int from, int to, int64_t bytes, int salt) {
  Bytes result(bytes);
  uint32_t state =
      1u + static_cast<uint32_t>(from * 7919 + to * 104729 + salt * 1299709);
  for (unsigned char &byte : result) {
    state = state * 1664525u + 1013904223u;
    byte = static_cast<unsigned char>(state >> 24);
  }
  return result;
}

/// What one rank sends to all and receives from all, with `size(from, to, i)`
/// bytes in the i-th of `messages` messages.
template <typename Size>
static void exchangeAll(Transport &transport, int messages, int salt,
                        Size size) {
  const int self = transport.rank(), ranks = transport.ranks();
  std::vector<Bytes> out, in;
  for (int peer = 0; peer < ranks; ++peer)
    for (int i = 0; i < messages; ++i) {
      out.push_back(pattern(self, peer, size(self, peer, i), salt + i));
      in.push_back(Bytes(size(peer, self, i), 0xee));
    }
  Batch batch;
  for (int step = 0; step < ranks; ++step)
    for (int i = 0; i < messages; ++i) {
      int to = (self + step) % ranks, from = (self + ranks - step) % ranks;
      Bytes &source = out[to * messages + i], &target = in[from * messages + i];
      batch.sends.push_back(
          {to, source.data(), static_cast<int64_t>(source.size())});
      batch.receives.push_back(
          {from, target.data(), static_cast<int64_t>(target.size())});
    }
  Status status = complete(transport, batch);
  ASSERT_TRUE(status.ok()) << status.message;
  for (int peer = 0; peer < ranks; ++peer)
    for (int i = 0; i < messages; ++i)
      ASSERT_TRUE(in[peer * messages + i] ==
                  pattern(peer, self, size(peer, self, i), salt + i))
          << "message " << i << " from rank " << peer;
}

static void nothing(Transport &transport) {
  ASSERT_TRUE(complete(transport, {}).ok());
  char byte = 0;
  Batch batch;
  batch.sends.push_back({(transport.rank() + 1) % transport.ranks(), &byte, 0});
  ASSERT_TRUE(complete(transport, batch).ok());
}

static void oddSizes(Transport &transport) {
  for (int round = 0; round < 20; ++round)
    exchangeAll(transport, 1, round, [round](int from, int to, int) {
      return (from * 37 + to * 101 + round * 53) % 7 == 0
                 ? 0
                 : (from * 7013 + to * 3571 + round * 1409) % 9973;
    });
}

static void order(Transport &transport) {
  exchangeAll(transport, 100, 3, [](int from, int to, int i) {
    return i % 11 == 5 ? 0 : 1 + (from + 2 * to + i) % 50;
  });
}

static void large(Transport &transport) {
  // Several pieces, the last of them short, both ways at once.
  exchangeAll(transport, 2, 5, [](int from, int to, int i) {
    return (5 << 20) + 13 * from + 7 * to - i * (3 << 20);
  });
}

static void oneLarge(Transport &transport) {
  exchangeAll(transport, 1, 6, [](int from, int to, int) {
    return from == 0 && to != 0 ? 9000001 : 0;
  });
}

/// Half of the ranks only send, batch after batch, while the others sleep.
static void ahead(Transport &transport) {
  const int self = transport.rank(), ranks = transport.ranks();
  const bool sends = self % 2 == 0;
  const int other = sends ? self + 1 : self - 1;
  if (other >= ranks)
    return;
  if (!sends)
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  for (int round = 0; round < 8; ++round) {
    Bytes out = pattern(self, other, 1000, round), in(1000);
    Batch batch;
    if (sends)
      batch.sends.push_back({other, out.data(), 1000});
    else
      batch.receives.push_back({other, in.data(), 1000});
    ASSERT_TRUE(complete(transport, batch).ok());
    if (!sends)
      ASSERT_TRUE(in == pattern(other, self, 1000, round));
  }
}

static void manyBatches(Transport &transport) {
  for (int round = 0; round < 300; ++round)
    exchangeAll(transport, 1, round, [](int, int, int) { return 8; });
}

/// A message whose size does not fit in 32 bits. Only where it is asked for:
/// it takes several GB.
static void huge(Transport &transport) {
  if (!getenv("MOIRA_TEST_HUGE"))
    return;
  const int64_t bytes = (int64_t(1) << 32) + (int64_t(1) << 20) + 5;
  const int self = transport.rank();
  if (self > 1 || transport.ranks() < 2)
    return;
  Bytes memory(bytes);
  Batch batch;
  if (self == 0) {
    for (int64_t i = 0; i < bytes; i += 4093)
      memory[i] = static_cast<unsigned char>(i / 4093 * 31);
    memory[bytes - 1] = 77;
    batch.sends.push_back({1, memory.data(), bytes});
  } else {
    batch.receives.push_back({0, memory.data(), bytes});
  }
  Status status = complete(transport, batch, 300);
  ASSERT_TRUE(status.ok()) << status.message;
  for (int64_t i = 0; i < bytes - 1; i += 4093)
    ASSERT_EQ(memory[i], static_cast<unsigned char>(i / 4093 * 31)) << i;
  ASSERT_EQ(memory[bytes - 1], 77);
}

/// What cannot be sent is refused before anything is, and harms nothing.
static void refused(Transport &transport) {
  char byte = 0;
  Batch batch;
  batch.sends.push_back({transport.ranks(), &byte, 1});
  EXPECT_FALSE(transport.post(batch).ok());
  batch.sends = {{0, &byte, -1}};
  EXPECT_FALSE(transport.post(batch).ok());
  EXPECT_FALSE(transport.failure().has_value());
  exchangeAll(transport, 1, 1, [](int, int, int) { return 100; });
}

const std::vector<TransportCase> &moira::runtime::transportCases() {
  static const std::vector<TransportCase> cases = {
      {"nothing", nothing},
      {"odd-sizes", oddSizes},
      {"order", order},
      {"large", large},
      {"one-large", oneLarge},
      {"ahead", ahead},
      {"many-batches", manyBatches},
      {"refused", refused},
      {"huge", huge}};
  return cases;
}
