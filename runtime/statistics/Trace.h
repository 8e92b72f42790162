// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What ran when, for a picture of a step.

#ifndef MOIRA_RUNTIME_STATISTICS_TRACE_H
#define MOIRA_RUNTIME_STATISTICS_TRACE_H

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace moira::runtime {

enum class TraceQueue { Compute = 0, Communication = 1 };

struct TraceEvent {
  std::string name;
  TraceQueue queue = TraceQueue::Compute;
  double begin = 0, end = 0; ///< seconds of one clock for all ranks
};

/// One end of a message on the communication queue. Both ends have the same
/// id, which no other message has.
struct TraceFlow {
  uint64_t id = 0;
  double time = 0;
  bool sent = false; ///< else received
};

struct TraceEvents {
  int rank = 0;
  std::vector<TraceEvent> events;
  std::vector<TraceFlow> flows;
};

/// Keeps the events of one rank. Any thread.
class TraceRecorder {
public:
  explicit TraceRecorder(int rank) { kept.rank = rank; }

  void add(TraceEvent event) {
    std::lock_guard<std::mutex> lock(mutex);
    kept.events.push_back(std::move(event));
  }
  void add(const TraceFlow &flow) {
    std::lock_guard<std::mutex> lock(mutex);
    kept.flows.push_back(flow);
  }
  TraceEvents events() const {
    std::lock_guard<std::mutex> lock(mutex);
    return kept;
  }

private:
  mutable std::mutex mutex;
  TraceEvents kept;
};

/// The JSON that Chrome's tracing page and Perfetto read: a process per rank, a
/// thread per queue, times in microseconds from the earliest event on.
std::string toChromeTrace(const std::vector<TraceEvents> &ranks);

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_STATISTICS_TRACE_H
