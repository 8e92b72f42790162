// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A few small values that all ranks see: addresses, the id of an NCCL
// communicator. Rank 0 serves them at Environment::masterAddress.

#ifndef MOIRA_RUNTIME_BOOTSTRAP_TCPSTORE_H
#define MOIRA_RUNTIME_BOOTSTRAP_TCPSTORE_H

#include "bootstrap/Environment.h"
#include "bootstrap/StoreServer.h"

#include <map>
#include <memory>
#include <mutex>

namespace moira::runtime {

/// Calls may come from any thread; each waits for the one before it. The store
/// of rank 0 serves until it is destroyed: a `barrier` before that.
class TcpStore {
public:
  /// Connects to rank 0, which serves; waits `seconds` for it to begin.
  static Result<std::unique_ptr<TcpStore>> open(const Environment &environment,
                                                double seconds);

  /// Keys have at most 256 bytes, values at most 1 MiB.
  Status set(const std::string &key, const std::string &value);
  /// The value, as soon as there is one. MOIRA_UNAVAILABLE after `seconds`.
  Result<std::string> get(const std::string &key, double seconds);
  /// Adds to a number that begins at 0; the sum.
  Result<int64_t> add(const std::string &key, int64_t value);
  /// Returns when all ranks have called it with this name; a name may be used
  /// again.
  Status barrier(const std::string &name, double seconds);

  int rank() const { return self; }
  int ranks() const { return size; }
  const std::string &host() const { return master; }
  /// The address by which this machine reaches rank 0.
  std::string ownAddress() const { return localAddress(socket); }

private:
  TcpStore(const Environment &environment)
      : self(environment.rank), size(environment.ranks),
        master(environment.masterAddress) {}
  struct Answer {
    StoreSays says = StoreSays::Ok;
    std::string value;
  };
  Result<Answer> ask(StoreAsk what, const std::string &key,
                     const std::string &value, double wait);

  const int self, size;
  const std::string master;
  std::unique_ptr<StoreServer> server; ///< of rank 0
  std::mutex mutex;
  Socket socket;
  std::map<std::string, int> barriers; ///< how often each was passed
};

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_BOOTSTRAP_TCPSTORE_H
