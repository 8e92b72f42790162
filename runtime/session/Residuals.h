// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a forward step leaves for its way back.

#ifndef MOIRA_RUNTIME_SESSION_RESIDUALS_H
#define MOIRA_RUNTIME_SESSION_RESIDUALS_H

#include "base/Memory.h"
#include "session/StepPlan.h"

#include <memory>
#include <mutex>
#include <vector>

namespace moira::runtime {

/// Memory that steps take and give back, so that a training step like the one
/// before it allocates nothing. Keeps free blocks up to what was in use at most
/// at the same time. Any thread; blocks may outlive who made the pool.
class ResidualPool : public std::enable_shared_from_this<ResidualPool> {
public:
  explicit ResidualPool(std::shared_ptr<MemoryAccount> account)
      : account(std::move(account)) {}

  /// A block of at least `bytes` >= 0, which goes back when nobody holds it.
  Result<std::shared_ptr<Storage>> take(int64_t bytes);

  /// What `take` holds for so many bytes, at most.
  static int64_t blockBytes(int64_t bytes);
  /// Bytes that nobody holds now.
  int64_t freeBytes() const;

private:
  void giveBack(Storage storage);
  void trim(int64_t most);

  mutable std::mutex mutex;
  std::shared_ptr<MemoryAccount> account;
  std::vector<Storage> blocks; ///< free, the oldest first
  int64_t freeSize = 0, usedSize = 0, mostUsed = 0;
};

/// What identifies a session, beyond its life.
struct SessionIdentity {};

/// The handle that Session::forward gives. Says nothing to others.
class Residuals {
public:
  /// Bytes held.
  int64_t bytes() const;

private:
  friend class Session;

  std::shared_ptr<const SessionIdentity> owner;
  int entry = 0;
  int variant = 0;
  int64_t step = 0; ///< of the session
  int64_t rows = 0;
  std::vector<LayerRun> layers;      ///< of the plan that it ran with
  uint64_t parameters = 0;           ///< which ones it ran with
  std::vector<Shape> resultShapes;   ///< of the program's own results
  std::vector<ResultTensor> tensors; ///< the residuals
};

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_SESSION_RESIDUALS_H
