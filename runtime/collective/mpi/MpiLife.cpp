// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How an MPI transport begins, fails and ends.
//
// Each rank that learns of a failure tells all others, once. So every rank
// hears from every other, which is how a rank knows that it may leave: the
// launcher ends the rest as soon as one process exits.

#include "collective/mpi/MpiStatus.h"
#include "collective/mpi/MpiTransport.h"

#include <algorithm>
#include <chrono>
#include <thread>

using namespace moira;
using namespace moira::runtime;

static constexpr int failureTag = 2;

Result<std::unique_ptr<MpiTransport>>
MpiTransport::open(const MpiOptions &options) {
  if (options.piece < 1 || options.piece > (1 << 30) || options.perPeer < 1 ||
      options.sends < 1 || options.receives < 1)
    return Status(MOIRA_INVALID_ARGUMENT,
                  "expected pieces of 1 byte to 1 GiB, one or more in flight");
  std::unique_ptr<MpiTransport> transport(new MpiTransport(options));
  MOIRA_RETURN_IF_ERROR(transport->begin());
  return transport;
}

Status MpiTransport::begin() {
  int initialized = 0, finalized = 0, level = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  if (finalized)
    return Status(MOIRA_UNAVAILABLE,
                  "MPI has been finalized; a process can use it once");
  if (initialized) {
    MPI_Query_thread(&level);
  } else {
    MOIRA_RETURN_IF_ERROR(mpiStatus(
        MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level),
        "MPI_Init_thread"));
    ownsMpi = true;
    // Of calls that concern no communicator.
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  }
  if (level < MPI_THREAD_SERIALIZED && !options.waitInside)
    return Status(MOIRA_UNAVAILABLE,
                  concat("expected MPI to be initialised with "
                         "MPI_THREAD_SERIALIZED or more, got level ",
                         level));
  MOIRA_RETURN_IF_ERROR(
      mpiStatus(MPI_Comm_dup(MPI_COMM_WORLD, &data), "MPI_Comm_dup"));
  MOIRA_RETURN_IF_ERROR(
      mpiStatus(MPI_Comm_dup(MPI_COMM_WORLD, &control), "MPI_Comm_dup"));
  MPI_Comm_set_errhandler(data, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(control, MPI_ERRORS_RETURN);
  MPI_Comm_rank(data, &self);
  MPI_Comm_size(data, &size);
  hasHeard.assign(size, false);
  hasHeard[self] = true;
  if (size == 1)
    return Status();
  MOIRA_RETURN_IF_ERROR(
      mpiStatus(MPI_Recv_init(&heard, sizeof(heard), MPI_BYTE, MPI_ANY_SOURCE,
                              failureTag, control, &hearing),
                "MPI_Recv_init"));
  return mpiStatus(MPI_Start(&hearing), "MPI_Start");
}

void MpiTransport::abort(const Failure &failure) {
  if (!failed.set(failure))
    return;
  std::lock_guard<std::mutex> lock(mutex);
  tellFailure();
}

std::optional<Failure> MpiTransport::failure() {
  // Whoever holds the lock looks by itself.
  std::unique_lock<std::mutex> lock(mutex, std::try_to_lock);
  if (lock)
    hearFailures();
  return failed.get();
}

void MpiTransport::tellFailure() {
  if (!telling.empty() || size == 1)
    return;
  told = FailureFrame(*failed.get());
  telling.assign(size, MPI_REQUEST_NULL);
  for (int i = 1; i < size; ++i) {
    // To its neighbours first, each rank another one. Errors are left alone: a
    // rank that cannot be told does not answer either.
    int peer = (self + i) % size;
    MPI_Isend(&told, sizeof(told), MPI_BYTE, peer, failureTag, control,
              &telling[peer]);
  }
}

void MpiTransport::hearFailures() {
  // A simulator charges time for each look, and its ranks do not fail.
  while (hearing != MPI_REQUEST_NULL && !options.waitInside) {
    int arrived = 0;
    MPI_Status status;
    if (MPI_Test(&hearing, &arrived, &status) != MPI_SUCCESS || !arrived)
      break;
    if (status.MPI_SOURCE >= 0 && status.MPI_SOURCE < size)
      hasHeard[status.MPI_SOURCE] = true;
    failed.set(heard.failure());
    if (MPI_Start(&hearing) != MPI_SUCCESS)
      break;
  }
  if (failed.isSet())
    tellFailure();
}

/// Takes back the receives, so that nothing is written to the batch's memory
/// any more. What has begun to arrive cannot be taken back and is waited for,
/// but not for long: its sender may be gone.
void MpiTransport::dropBatch() {
  for (size_t i = 0; i < requests.size(); ++i)
    if (!pieces[i].sent && requests[i] != MPI_REQUEST_NULL)
      MPI_Cancel(&requests[i]);
  for (int attempt = 0; attempt < 100 && !requests.empty(); ++attempt) {
    size_t kept = 0;
    for (size_t i = 0; i < requests.size(); ++i) {
      int done = 0;
      if (pieces[i].sent ||
          MPI_Test(&requests[i], &done, MPI_STATUS_IGNORE) != MPI_SUCCESS)
        done = 1; // sends are only read
      if (!done) {
        pieces[kept] = pieces[i];
        requests[kept++] = requests[i];
      }
    }
    pieces.resize(kept);
    requests.resize(kept);
    if (kept)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  requests.clear();
  pieces.clear();
  sends.clear();
  receives.clear();
}

bool MpiTransport::allHaveHeard() {
  hearFailures();
  int sent = 0;
  MPI_Testall(static_cast<int>(telling.size()), telling.data(), &sent,
              MPI_STATUSES_IGNORE);
  return sent && std::all_of(hasHeard.begin(), hasHeard.end(),
                             [](bool known) { return known; });
}

/// Waits until all ranks are here; false if one of them fails or is late.
bool MpiTransport::leaveTogether() {
  auto limit = std::chrono::steady_clock::now() +
               std::chrono::duration<double>(options.finishSeconds);
  MPI_Request barrier = MPI_REQUEST_NULL;
  int done = 0;
  if (MPI_Ibarrier(control, &barrier) != MPI_SUCCESS)
    return false;
  while (std::chrono::steady_clock::now() < limit) {
    if (MPI_Test(&barrier, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS)
      return false;
    if (done)
      return true;
    hearFailures();
    if (failed.isSet())
      return false;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  failed.set({self, MOIRA_FAILED, "some ranks have not finished"});
  tellFailure();
  return false;
}

MpiTransport::~MpiTransport() {
  std::lock_guard<std::mutex> lock(mutex);
  if (data == MPI_COMM_NULL || control == MPI_COMM_NULL) {
    if (ownsMpi)
      MPI_Finalize();
    return;
  }
  if (!failed.isSet() && !requests.empty()) {
    failed.set({self, MOIRA_FAILED, "the rank left in the middle of a batch"});
    dropBatch();
  }
  if (!failed.isSet() && (size == 1 || options.waitInside || leaveTogether())) {
    if (hearing != MPI_REQUEST_NULL) {
      MPI_Cancel(&hearing);
      MPI_Wait(&hearing, MPI_STATUS_IGNORE);
      MPI_Request_free(&hearing);
    }
    MPI_Comm_free(&data);
    MPI_Comm_free(&control);
    if (ownsMpi)
      MPI_Finalize();
    return;
  }
  auto limit = std::chrono::steady_clock::now() +
               std::chrono::duration<double>(options.failureSeconds);
  while (!allHaveHeard()) {
    if (std::chrono::steady_clock::now() > limit) {
      MPI_Abort(MPI_COMM_WORLD, failed.get()->code);
      return;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}
