// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Communicator.h"

#include <chrono>

using namespace standin;

static void nap(int &idle) {
  if (++idle < 50)
    std::this_thread::yield();
  else
    std::this_thread::sleep_for(std::chrono::microseconds(20));
}

ncclComm::~ncclComm() {
  stopping = true;
  changed.notify_all();
  thread.join();
}

ncclResult_t ncclComm::fault(ncclResult_t result, const std::string &text) {
  std::lock_guard<std::mutex> lock(mutex);
  error = text;
  return result;
}

const char *ncclComm::lastError() {
  std::lock_guard<std::mutex> lock(mutex);
  shownError = error; // stays while `error` may change
  return shownError.c_str();
}

ncclResult_t ncclComm::beginCall(const char *call) {
  int now = state.load();
  if (finalized)
    return fault(ncclInvalidUsage,
                 std::string(call) + " after ncclCommFinalize");
  if (now == ncclInProgress)
    return fault(ncclInvalidUsage,
                 std::string(call) + " while another call is in progress");
  return static_cast<ncclResult_t>(now);
}

ncclResult_t ncclComm::submit(std::vector<Operation> operations,
                              CUstream_st *stream) {
  {
    std::lock_guard<std::mutex> lock(mutex);
    if (stream)
      ++stream->outstanding;
    tasks.push_back({Group(rank, std::move(operations)), stream});
    if (!blocking)
      state = ncclInProgress; // until the group is "launched"
  }
  changed.notify_all();
  return blocking ? ncclSuccess : ncclInProgress;
}

ncclResult_t ncclComm::waitUntilIdle() {
  std::unique_lock<std::mutex> lock(mutex);
  changed.wait(lock, [this] {
    return stopping || (tasks.empty() && state != ncclInProgress) ||
           (state != ncclSuccess && state != ncclInProgress);
  });
  return static_cast<ncclResult_t>(state.load());
}

bool ncclComm::attach() {
  segment = Segment::attach(name, ranks);
  if (!segment) {
    fault(ncclInvalidArgument, "the ranks disagree on their number, or there "
                               "is no shared memory");
    state = ncclInvalidArgument;
    return false;
  }
  for (int idle = 0; !segment->allAttached(); nap(idle))
    if (stopping)
      return false;
  state = ncclSuccess;
  return true;
}

void ncclComm::work() {
  bool attached = attach();
  changed.notify_all();
  while (attached && !stopping) {
    std::unique_lock<std::mutex> lock(mutex);
    changed.wait(lock, [this] { return stopping || !tasks.empty(); });
    if (stopping)
      break;
    Task &task = tasks.front();
    int running = ncclInProgress;
    state.compare_exchange_strong(running, ncclSuccess);
    lock.unlock();
    for (int idle = 0; !task.group.isDone() && !stopping;) {
      if (task.group.move(*segment))
        idle = 0;
      else
        nap(idle);
      std::string failure = segment->failure();
      if (!failure.empty()) {
        fault(ncclInvalidUsage, failure);
        state = ncclInvalidUsage;
        changed.notify_all();
        return; // as a kernel that never ends
      }
    }
    lock.lock();
    if (task.stream)
      --task.stream->outstanding;
    tasks.pop_front();
    changed.notify_all();
  }
}
