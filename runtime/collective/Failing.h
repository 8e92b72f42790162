// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The failure that a transport remembers, and its form on the wire.

#ifndef MOIRA_RUNTIME_COLLECTIVE_FAILING_H
#define MOIRA_RUNTIME_COLLECTIVE_FAILING_H

#include "collective/Transport.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>

namespace moira::runtime {

/// The first failure that a rank has heard of. Any thread.
class FirstFailure {
public:
  /// Keeps `failure` unless there is one; whether it was the first.
  bool set(const Failure &failure) {
    std::lock_guard<std::mutex> lock(mutex);
    if (held)
      return false;
    held = failure;
    any.store(true, std::memory_order_release);
    return true;
  }
  bool isSet() const { return any.load(std::memory_order_acquire); }
  std::optional<Failure> get() const {
    std::lock_guard<std::mutex> lock(mutex);
    return held;
  }
  /// The failure as the status of a call; only after `set`.
  Status status() const {
    std::lock_guard<std::mutex> lock(mutex);
    return Status(held->code, concat("rank ", held->rank, ": ", held->reason));
  }

private:
  mutable std::mutex mutex;
  std::optional<Failure> held;
  std::atomic<bool> any{false};
};

/// A failure as ranks tell it to each other: of one size, so that a receive can
/// stand ready for it. Machines of a grid share one byte order.
struct FailureFrame {
  int32_t rank = -1;
  int32_t code = 0;
  int64_t step = 0;
  char reason[496] = {}; ///< ends with 0; cut where it is longer

  FailureFrame() = default;
  explicit FailureFrame(const Failure &failure)
      : rank(failure.rank), code(failure.code), step(failure.step) {
    size_t bytes = std::min(failure.reason.size(), sizeof(reason) - 1);
    std::memcpy(reason, failure.reason.data(), bytes);
  }
  /// The bytes may come from anywhere: a code is never "ok".
  Failure failure() const {
    bool known = code > MOIRA_OK && code <= MOIRA_FAILED;
    return {rank, known ? code : MOIRA_FAILED,
            std::string(reason, strnlen(reason, sizeof(reason))), step};
  }
};
static_assert(sizeof(FailureFrame) == 512, "the same on all ranks");

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_COLLECTIVE_FAILING_H
