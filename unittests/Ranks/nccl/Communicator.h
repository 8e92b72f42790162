// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What an ncclComm_t and a CUstream are here. A thread takes the place of the
// GPU: it runs groups in the order in which they came.

#ifndef MOIRA_UNITTESTS_RANKS_NCCL_COMMUNICATOR_H
#define MOIRA_UNITTESTS_RANKS_NCCL_COMMUNICATOR_H

#include "Group.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

/// A stream only knows how much of what was put on it has not ended.
struct CUstream_st {
  std::atomic<int64_t> outstanding{0};
};

struct ncclComm {
  ncclComm(std::string name, int ranks, int rank, bool blocking)
      : name(std::move(name)), ranks(ranks), rank(rank), blocking(blocking),
        thread([this] { work(); }) {}
  ~ncclComm();

  /// Sets what ncclGetLastError says; `result`.
  ncclResult_t fault(ncclResult_t result, const std::string &text);
  /// Refuses a call while another one is in progress, or after a failure.
  ncclResult_t beginCall(const char *call);
  ncclResult_t submit(std::vector<standin::Operation> operations,
                      CUstream_st *stream);
  ncclResult_t waitUntilIdle();
  const char *lastError();

  const std::string name;
  const int ranks, rank;
  const bool blocking;
  std::atomic<int> state{ncclInProgress}; ///< ncclCommGetAsyncError's answer
  std::atomic<bool> stopping{false};
  bool finalized = false;
  int groups = 0;

private:
  struct Task {
    standin::Group group;
    CUstream_st *stream;
  };
  void work();
  bool attach();

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Task> tasks;
  std::string error, shownError;
  std::unique_ptr<standin::Segment> segment;
  std::thread thread; ///< last: it uses all the rest
};

#endif // MOIRA_UNITTESTS_RANKS_NCCL_COMMUNICATOR_H
