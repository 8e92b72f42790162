// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "collective/InProcess.h"

#include "collective/Collective.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>

using namespace moira;
using namespace moira::runtime;

namespace {

class InProcess;

/// A posted message until its receiver has copied it. Lies with the sender.
struct Posted {
  InProcess *sender = nullptr;
  const void *data = nullptr;
  int64_t bytes = 0;
  int peer = 0;
  Posted *next = nullptr; ///< from the same sender to the same receiver
  std::atomic<bool> copied{false};
};

/// Where others leave what they send to a rank, and wake it.
struct Inbox {
  std::mutex mutex;
  std::condition_variable wake;
  uint64_t events = 0;              ///< counts what may have moved a batch on
  std::vector<Posted *> head, tail; ///< by sender
  std::vector<int> ready;           ///< senders that have posted
  std::vector<char> listed;         ///< by sender: whether it is in `ready`

  void notify() {
    std::lock_guard<std::mutex> lock(mutex);
    ++events;
    wake.notify_one();
  }
};

/// What all ranks share. At most one lock is held at a time.
struct Shared {
  explicit Shared(int ranks) : inboxes(ranks), left(ranks) {
    for (Inbox &inbox : inboxes) {
      inbox.head.resize(ranks);
      inbox.tail.resize(ranks);
      inbox.listed.resize(ranks);
      inbox.ready.reserve(ranks);
    }
  }

  void wakeAll() {
    for (Inbox &inbox : inboxes)
      inbox.notify();
  }

  std::vector<Inbox> inboxes;
  std::vector<std::atomic<bool>> left;
  std::atomic<bool> anyLeft{false};
  std::atomic<bool> failed{false};
  std::mutex mutex; ///< of what follows
  std::optional<Failure> failure;
  int recovering = 0; ///< ranks that have left the step
  uint64_t epoch = 0; ///< failures forgotten so far
};

class InProcess final : public Transport {
public:
  InProcess(std::shared_ptr<Shared> shared, int rank)
      : shared(std::move(shared)), self(rank),
        inbox(this->shared->inboxes[rank]), firstReceive(ranks(), -1),
        lastReceive(ranks(), -1) {
    pending.reserve(2 * ranks());
  }

  ~InProcess() override {
    withdraw();
    shared->left[self] = true;
    shared->anyLeft = true;
    shared->wakeAll();
  }

  const char *name() const override { return "inprocess"; }
  int rank() const override { return self; }
  int ranks() const override {
    return static_cast<int>(shared->inboxes.size());
  }

  Status post(const Batch &batch) override;
  Result<bool> test() override;
  void idle() override;
  int awaited() override;
  void abort(const Failure &failure) override;
  std::optional<Failure> failure() override;
  bool recoverable() const override { return true; }
  bool recover() override;

private:
  struct Receive {
    void *data;
    int64_t bytes;
    int from;
    int next; ///< from the same rank; -1: none
  };
  struct Copy {
    int receive;
    Posted *from;
  };

  void match();
  Status copy();
  void withdraw();
  Status failedStatus();
  Status checkPeers();

  std::shared_ptr<Shared> shared;
  const int self;
  Inbox &inbox;
  std::unique_ptr<Posted[]> sends; ///< of the batch under way
  size_t sendRoom = 0, sendCount = 0;
  /// Sends whose memory is still read. Counted down by receivers.
  std::atomic<int64_t> unsent{0};
  std::vector<Receive> receives;
  std::vector<int> firstReceive, lastReceive; ///< by sender, into receives
  int64_t unreceived = 0;
  std::vector<int> pending; ///< senders to look at
  std::vector<Copy> copies;
  uint64_t seen = 0; ///< events of the inbox before the last test
  bool announced = false;
  uint64_t announcedEpoch = 0;
};

} // namespace

Status InProcess::failedStatus() {
  withdraw();
  std::optional<Failure> known = failure();
  return known ? Status(known->code, known->reason)
               : Status(MOIRA_FAILED, "the failure was forgotten");
}

Status InProcess::post(const Batch &batch) {
  if (shared->failed)
    return failedStatus();
  if (batch.sends.size() > sendRoom) {
    sendRoom = batch.sends.size();
    sends.reset();
    sends.reset(new Posted[sendRoom]);
  }
  receives.clear();
  pending.clear();
  for (const Message &message : batch.receives) {
    if (message.bytes == 0)
      continue;
    int index = static_cast<int>(receives.size());
    receives.push_back({message.data, message.bytes, message.peer, -1});
    if (firstReceive[message.peer] < 0) {
      firstReceive[message.peer] = index;
      pending.push_back(message.peer);
    } else {
      receives[lastReceive[message.peer]].next = index;
    }
    lastReceive[message.peer] = index;
  }
  unreceived = receives.size();
  copies.reserve(receives.size());

  sendCount = 0;
  for (const Message &message : batch.sends)
    if (message.bytes > 0) {
      Posted &posted = sends[sendCount++];
      posted.sender = this;
      posted.data = message.data;
      posted.bytes = message.bytes;
      posted.peer = message.peer;
      posted.next = nullptr;
      posted.copied.store(false, std::memory_order_relaxed);
    }
  unsent.store(sendCount, std::memory_order_relaxed);
  for (size_t i = 0; i < sendCount;) {
    int peer = sends[i].peer;
    Inbox &target = shared->inboxes[peer];
    std::lock_guard<std::mutex> lock(target.mutex);
    for (; i < sendCount && sends[i].peer == peer; ++i) {
      Posted *&tail = target.tail[self];
      (tail ? tail->next : target.head[self]) = &sends[i];
      tail = &sends[i];
    }
    if (!target.listed[self]) {
      target.listed[self] = true;
      target.ready.push_back(self);
    }
    ++target.events;
    target.wake.notify_one();
  }
  return Status();
}

/// Pairs receives with what has been sent, sender by sender in order.
void InProcess::match() {
  copies.clear();
  std::lock_guard<std::mutex> lock(inbox.mutex);
  seen = inbox.events;
  for (int from : inbox.ready) {
    inbox.listed[from] = false;
    pending.push_back(from);
  }
  inbox.ready.clear();
  for (int from : pending) {
    int &receive = firstReceive[from];
    Posted *&head = inbox.head[from];
    while (receive >= 0 && head) {
      copies.push_back({receive, head});
      head = head->next;
      receive = receives[receive].next;
    }
    if (!head)
      inbox.tail[from] = nullptr;
  }
  pending.clear();
}

Status InProcess::copy() {
  Status status;
  for (const Copy &pair : copies) {
    const Receive &receive = receives[pair.receive];
    Posted &posted = *pair.from;
    if (posted.bytes != receive.bytes && status.ok())
      status = Status(MOIRA_FAILED,
                      concat("expected ", receive.bytes, " bytes from rank ",
                             receive.from, ", which sends ", posted.bytes));
    if (status.ok())
      copyBytes(receive.data, posted.data, posted.bytes);
    InProcess *sender = posted.sender;
    Inbox &sendersInbox = shared->inboxes[sender->self];
    posted.copied.store(true, std::memory_order_relaxed);
    // The sender may be gone once it has seen the count.
    if (sender->unsent.fetch_sub(1, std::memory_order_acq_rel) == 1)
      sendersInbox.notify();
    --unreceived;
  }
  return status;
}

Result<bool> InProcess::test() {
  if (shared->failed)
    return failedStatus();
  match();
  Status status = copy();
  if (!status.ok()) {
    withdraw();
    return status;
  }
  if (unreceived == 0 && unsent.load(std::memory_order_acquire) == 0)
    return true;
  if (shared->anyLeft) {
    status = checkPeers();
    if (!status.ok()) {
      withdraw();
      return status;
    }
  }
  return false;
}

/// Fails where the batch waits for a rank that has left.
Status InProcess::checkPeers() {
  int peer = -1;
  for (int from = 0; from < ranks() && peer < 0; ++from)
    if (firstReceive[from] >= 0 && shared->left[from])
      peer = from;
  for (size_t i = 0; i < sendCount && peer < 0; ++i)
    if (shared->left[sends[i].peer] &&
        !sends[i].copied.load(std::memory_order_relaxed))
      peer = sends[i].peer;
  if (peer < 0)
    return Status();
  // What it sent before it left may have come in the meantime.
  match();
  MOIRA_RETURN_IF_ERROR(copy());
  if (firstReceive[peer] < 0 && unsent.load(std::memory_order_acquire) == 0)
    return Status();
  return Status(MOIRA_UNAVAILABLE, concat("rank ", peer, " has left"));
}

void InProcess::idle() {
  std::unique_lock<std::mutex> lock(inbox.mutex);
  inbox.wake.wait_for(lock, std::chrono::milliseconds(100),
                      [&] { return inbox.events != seen; });
  seen = inbox.events; // the caller looks next
}

int InProcess::awaited() {
  for (int from = 0; from < ranks(); ++from)
    if (firstReceive[from] >= 0)
      return from;
  for (size_t i = 0; i < sendCount; ++i)
    if (!sends[i].copied.load(std::memory_order_relaxed))
      return sends[i].peer;
  return -1;
}

/// Takes back what nobody has begun to copy, and waits for the rest, which are
/// copies under way.
void InProcess::withdraw() {
  std::fill(firstReceive.begin(), firstReceive.end(), -1);
  unreceived = 0;
  int64_t taken = 0;
  for (size_t i = 0; i < sendCount; ++i) {
    Inbox &target = shared->inboxes[sends[i].peer];
    std::lock_guard<std::mutex> lock(target.mutex);
    for (Posted *left = target.head[self]; left; left = left->next)
      ++taken;
    target.head[self] = target.tail[self] = nullptr;
  }
  sendCount = 0;
  if (taken)
    unsent.fetch_sub(taken, std::memory_order_acq_rel);
  std::unique_lock<std::mutex> lock(inbox.mutex);
  inbox.wake.wait(lock,
                  [&] { return unsent.load(std::memory_order_acquire) == 0; });
}

void InProcess::abort(const Failure &newFailure) {
  {
    std::lock_guard<std::mutex> lock(shared->mutex);
    if (shared->failure)
      return;
    shared->failure = newFailure;
    shared->failed = true;
  }
  shared->wakeAll();
}

std::optional<Failure> InProcess::failure() {
  if (!shared->failed)
    return std::nullopt;
  std::lock_guard<std::mutex> lock(shared->mutex);
  return shared->failure;
}

bool InProcess::recover() {
  {
    std::lock_guard<std::mutex> lock(shared->mutex);
    if (!announced) {
      announced = true;
      announcedEpoch = shared->epoch;
      ++shared->recovering;
    }
    if (shared->epoch == announcedEpoch && shared->recovering < ranks())
      return false;
    announced = false;
    if (shared->epoch != announcedEpoch)
      return true;
    shared->recovering = 0;
    shared->failure.reset();
    shared->failed = false;
    ++shared->epoch;
  }
  shared->wakeAll();
  return true;
}

std::vector<std::unique_ptr<Transport>>
moira::runtime::makeInProcess(int ranks) {
  auto shared = std::make_shared<Shared>(ranks);
  std::vector<std::unique_ptr<Transport>> ends;
  for (int rank = 0; rank < ranks; ++rank)
    ends.push_back(std::make_unique<InProcess>(shared, rank));
  return ends;
}
