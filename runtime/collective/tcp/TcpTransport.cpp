// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "collective/tcp/TcpTransport.h"

#include "collective/SelfMessages.h"

#include <algorithm>
#include <poll.h>

using namespace moira;
using namespace moira::runtime;

bool TcpTransport::isDone() const {
  return std::all_of(peers.begin(), peers.end(),
                     [](const auto &peer) { return !peer || peer->isDone(); });
}

/// Remembers the first failure, and tells all ranks of it, once.
void TcpTransport::fail(const Failure &failure) {
  failed.set(failure);
  if (hasTold)
    return;
  hasTold = true;
  const FailureFrame frame(*failed.get());
  for (const auto &peer : peers)
    if (peer) {
      peer->drop();
      peer->tell(frame);
      peer->send();
    }
}

void TcpTransport::progress(bool all) {
  std::vector<pollfd> entries;
  for (const auto &peer : peers) {
    short events = peer ? peer->events() : short(0);
    entries.push_back({events ? peer->descriptor() : -1, events, 0});
  }
  if (!all && poll(entries.data(), entries.size(), 0) <= 0)
    return;
  for (size_t i = 0; i < entries.size(); ++i) {
    if (entries[i].fd < 0 || !(all || entries[i].revents))
      continue;
    peers[i]->send();
    if (std::optional<Failure> failure = peers[i]->receive())
      fail(*failure);
  }
}

Status TcpTransport::post(const Batch &batch) {
  std::lock_guard<std::mutex> lock(mutex);
  if (failed.isSet())
    return failed.status();
  if (!isDone())
    return Status(MOIRA_FAILED,
                  "expected the previous batch to have completed");
  MOIRA_RETURN_IF_ERROR(checkBatch(batch, size));
  MOIRA_RETURN_IF_ERROR(copySelfMessages(batch, self));
  for (const Message &message : batch.sends)
    if (message.peer != self && message.bytes > 0)
      peers[message.peer]->queueSend(message);
  for (const Message &message : batch.receives)
    if (message.peer != self && message.bytes > 0)
      peers[message.peer]->queueReceive(message);
  for (const auto &peer : peers)
    if (peer && !peer->isDone() && !peer->isOpen())
      fail({peer->rank, MOIRA_FAILED, "has left before the last message"});
  progress(true);
  return failed.isSet() ? failed.status() : Status();
}

Result<bool> TcpTransport::test() {
  std::lock_guard<std::mutex> lock(mutex);
  progress(false);
  if (failed.isSet())
    return failed.status();
  return isDone();
}

void TcpTransport::idle() {
  std::vector<pollfd> entries;
  {
    std::lock_guard<std::mutex> lock(mutex);
    for (const auto &peer : peers)
      if (short events = peer ? peer->events() : short(0))
        entries.push_back({peer->descriptor(), events, 0});
  }
  poll(entries.data(), entries.size(), 1);
}

int TcpTransport::awaited() {
  std::lock_guard<std::mutex> lock(mutex);
  // What does not arrive says more than what is not fetched.
  for (const auto &peer : peers)
    if (peer && peer->receivesMore())
      return peer->rank;
  for (const auto &peer : peers)
    if (peer && !peer->isDone())
      return peer->rank;
  return -1;
}

void TcpTransport::abort(const Failure &failure) {
  std::lock_guard<std::mutex> lock(mutex);
  if (!failed.isSet())
    fail(failure);
}

std::optional<Failure> TcpTransport::failure() {
  // Whoever holds the lock looks by itself.
  std::unique_lock<std::mutex> lock(mutex, std::try_to_lock);
  if (lock)
    progress(false);
  return failed.get();
}

/// Sends what is left to be said, then hears the others out: to close a socket
/// with unread bytes would take back what was sent last.
void TcpTransport::drain(double seconds, bool untilEnd) {
  Deadline deadline = deadlineIn(seconds);
  auto flushed = [this] {
    return std::all_of(peers.begin(), peers.end(), [](const auto &peer) {
      return !peer || peer->isFlushed();
    });
  };
  auto ended = [this] {
    return std::none_of(peers.begin(), peers.end(), [](const auto &peer) {
      return peer && peer->isOpen();
    });
  };
  bool shut = false;
  while (millisecondsUntil(deadline) > 0) {
    progress(false);
    if (!shut && flushed()) {
      shut = true;
      for (const auto &peer : peers)
        if (peer)
          peer->shutDown();
    }
    if (shut && (!untilEnd || ended()))
      return;
    std::vector<pollfd> entries;
    for (const auto &peer : peers)
      if (short events = peer ? peer->events() : short(0))
        entries.push_back({peer->descriptor(), events, 0});
    poll(entries.data(), entries.size(), 1);
  }
}

TcpTransport::~TcpTransport() {
  std::lock_guard<std::mutex> lock(mutex);
  if (!failed.isSet() && !isDone())
    fail({self, MOIRA_FAILED, "left in the middle of a batch"});
  const bool failing = failed.isSet();
  if (!failing)
    for (const auto &peer : peers)
      if (peer)
        peer->sayBye();
  drain(options.failureSeconds, failing);
}
