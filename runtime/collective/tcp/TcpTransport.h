// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Ranks that are bare processes, each connected to each by a TCP connection of
// its own: nothing needs to be installed. The kernel moves what has been handed
// to it, so transfers go on while a rank computes, as far as its buffers reach.

#ifndef MOIRA_RUNTIME_COLLECTIVE_TCP_TCPTRANSPORT_H
#define MOIRA_RUNTIME_COLLECTIVE_TCP_TCPTRANSPORT_H

#include "bootstrap/TcpStore.h"
#include "collective/tcp/TcpPeer.h"

#include <memory>
#include <mutex>

namespace moira::runtime {

struct TcpOptions {
  /// Seconds that a rank waits for the others when it starts.
  double connectSeconds = 60;
  /// Seconds that a rank which leaves after a failure waits for the others to
  /// have heard of it.
  double failureSeconds = 2;
  /// Bytes between two heads: how long a failure waits behind data.
  int64_t piece = 1 << 20;
};

class TcpTransport final : public Transport {
public:
  /// Collective over the ranks of the store, which is not needed afterwards.
  static Result<std::unique_ptr<TcpTransport>> open(TcpStore &store,
                                                    const TcpOptions &options);
  ~TcpTransport() override;

  const char *name() const override { return "tcp"; }
  int rank() const override { return self; }
  int ranks() const override { return size; }
  Status post(const Batch &batch) override;
  Result<bool> test() override;
  void idle() override;
  int awaited() override;
  void abort(const Failure &failure) override;
  std::optional<Failure> failure() override;

private:
  TcpTransport(int self, int size, const TcpOptions &options)
      : self(self), size(size), options(options) {}
  Status connect(TcpStore &store);
  // The rest needs `mutex`.
  bool isDone() const;
  void progress(bool all); ///< with `all` without asking poll who is ready
  void fail(const Failure &failure);
  void drain(double seconds, bool untilEnd);

  const int self, size;
  const TcpOptions options;
  mutable std::mutex mutex;
  std::vector<std::unique_ptr<TcpPeer>> peers; ///< by rank; none for `self`
  FirstFailure failed;
  bool hasTold = false;
};

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_COLLECTIVE_TCP_TCPTRANSPORT_H
