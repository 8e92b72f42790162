// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a communicator must be able to do. All collectives are made from it, so
// that threads, MPI, NCCL and a simulator of networks run the same algorithms.

#ifndef MOIRA_RUNTIME_COLLECTIVE_TRANSPORT_H
#define MOIRA_RUNTIME_COLLECTIVE_TRANSPORT_H

#include "base/Status.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace moira::runtime {

/// Bytes to one rank, or from one. `bytes` may be 0: such a message is not
/// sent, and both sides know it. A rank may send to itself, within one batch.
struct Message {
  int peer = 0;
  void *data = nullptr; ///< only read where it is sent from
  int64_t bytes = 0;
};

/// Messages that travel together. Messages from one rank to another match in
/// the order in which they were posted; both sides agree on their sizes.
struct Batch {
  std::vector<Message> sends;
  std::vector<Message> receives;
};

/// Where the memory of a message may lie: on the host alone, or on a GPU too.
enum class MemorySpace { Host, Device };

/// Why a step ends on all ranks.
struct Failure {
  int rank = -1;      ///< that gave up first, as far as known
  int32_t code = 0;   ///< MOIRA_...
  std::string reason; ///< with the operation
  /// Steps that the rank had begun by then; travels with the rest. Tells a rank
  /// that still waits for the end of a step whether this is about the next one.
  int64_t step = 0;
};

/// One rank's end of the connections among `ranks()` ranks. One thread at a
/// time uses it, except for `abort` and `failure`.
///
/// After a failure of any rank `test` and `post` fail within a bounded time,
/// and once one of them has, no message of this rank reads or writes memory
/// any more: the caller may free it.
class Transport {
public:
  virtual ~Transport() = default;

  virtual const char *name() const = 0;
  virtual int rank() const = 0;
  virtual int ranks() const = 0;
  virtual MemorySpace memory() const { return MemorySpace::Host; }

  /// Begins all messages of a batch, after the previous one has completed. The
  /// memory stays as it is until `test` says so. Does not wait for others.
  virtual Status post(const Batch &batch) = 0;
  /// Whether the batch has completed. Makes progress; returns soon.
  virtual Result<bool> test() = 0;
  /// Sleeps until the batch may have moved on. Returns early at will, and
  /// after 100 milliseconds at most, so that the caller can look at clocks and
  /// flags.
  virtual void idle() = 0;
  /// A rank that the batch waits for; -1 where that is not known. For messages.
  virtual int awaited() { return -1; }

  /// Tells all ranks that this one gives up. Any thread; the first call counts.
  virtual void abort(const Failure &failure) = 0;
  /// A failure that some rank has told. Any thread.
  virtual std::optional<Failure> failure() = 0;

  /// Whether a failure can be forgotten (threads of one process).
  virtual bool recoverable() const { return false; }
  /// Says that this rank has left the step that failed, and returns whether
  /// all ranks have: then the failure is forgotten. Returns at once; called
  /// again, with `idle` in between, until it is true.
  virtual bool recover() { return false; }
};

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_COLLECTIVE_TRANSPORT_H
