// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Ranks that are the processes of an MPI program.
//
// MPI moves nothing while no thread is inside of it (OpenMPI 4.1: a 64 MiB
// MPI_Ialltoallv beside 200 ms of compute does not overlap at all). So the
// thread of the communicator's queue polls, and compute threads never call MPI.
// Only `abort` may come from another thread; a lock keeps MPI_THREAD_SERIALIZED
// enough.

#ifndef MOIRA_RUNTIME_COLLECTIVE_MPI_MPITRANSPORT_H
#define MOIRA_RUNTIME_COLLECTIVE_MPI_MPITRANSPORT_H

#include "collective/Failing.h"
#include "collective/Transport.h"

#include <memory>
#include <mpi.h>
#include <string>
#include <vector>

namespace moira::runtime {

struct MpiOptions {
  /// Bytes of one MPI message. Larger ones are cut, so that a size fits MPI's
  /// `int` and the two directions of a link share it (OpenMPI's TCP loses half
  /// the rate on messages of 512 KiB and more).
  int64_t piece = 256 * 1024;
  /// Pieces in flight to one rank or from one, to all ranks together, and from
  /// all: MPI looks at each of them whenever it looks for progress.
  int perPeer = 4;
  int sends = 64;
  int receives = 128;
  /// `idle` waits inside of MPI: for a simulator, where time passes only there.
  bool waitInside = false;
  /// Seconds that a rank which leaves waits for the others: to finish, and
  /// after a failure to have heard of it.
  double finishSeconds = 600;
  double failureSeconds = 2;
};

class MpiTransport final : public Transport {
public:
  /// Initialises MPI unless the program has; then MPI is finalised with the
  /// transport, and no other can be opened in this process. Collective.
  static Result<std::unique_ptr<MpiTransport>> open(const MpiOptions &options);
  /// Collective, unless a rank has failed. After a failure MPI is not
  /// finalised (it would wait for ever). If some ranks do not answer MPI_Abort
  /// ends all of them, this one too: report the failure before.
  ~MpiTransport() override;

  const char *name() const override { return "mpi"; }
  int rank() const override { return self; }
  int ranks() const override { return size; }
  Status post(const Batch &batch) override;
  Result<bool> test() override;
  void idle() override;
  int awaited() override;
  void abort(const Failure &failure) override;
  std::optional<Failure> failure() override;

private:
  /// The messages of a batch to one rank, or from one.
  struct Stream {
    int peer = 0;
    std::vector<Message> messages;
    size_t message = 0; ///< that the next piece is of
    int64_t offset = 0;
    int inFlight = 0;
    bool begun() const { return message == messages.size(); }
  };
  struct Piece {
    Stream *stream = nullptr;
    int bytes = 0;
    bool sent = false;
  };

  explicit MpiTransport(const MpiOptions &options) : options(options) {}
  Status begin(); ///< MPI and our communicators
  // The rest needs `mutex`.
  Status beginPiece(Stream &stream, bool send);
  Status fillWindows();
  Status blame(int rank, const Status &status);
  Status completePieces(int count, bool someFailed);
  Result<bool> progress(bool inside);
  void hearFailures();
  void tellFailure();
  void dropBatch();
  bool leaveTogether();
  bool allHaveHeard();

  const MpiOptions options;
  MPI_Comm data = MPI_COMM_NULL;    ///< pieces
  MPI_Comm control = MPI_COMM_NULL; ///< failures, and leaving
  int self = 0, size = 1;
  bool ownsMpi = false;

  mutable std::mutex mutex; ///< one thread at a time inside of MPI
  std::vector<Stream> sends, receives;
  std::vector<MPI_Request> requests;
  std::vector<Piece> pieces; ///< beside `requests`
  int sendsInFlight = 0, receivesInFlight = 0;
  int waits = 0;            ///< calls of `idle` since something moved
  std::vector<int> indices; ///< room for MPI_Testsome's answers
  std::vector<MPI_Status> statuses;

  FirstFailure failed;
  FailureFrame heard, told;
  MPI_Request hearing = MPI_REQUEST_NULL; ///< persistent
  std::vector<MPI_Request> telling;
  std::vector<bool> hasHeard; ///< which ranks know of the failure
};

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_COLLECTIVE_MPI_MPITRANSPORT_H
