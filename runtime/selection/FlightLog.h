// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a decider was told, in few bytes: a run's decisions can be made again.

#ifndef MOIRA_RUNTIME_SELECTION_FLIGHTLOG_H
#define MOIRA_RUNTIME_SELECTION_FLIGHTLOG_H

#include "selection/Decider.h"

#include <functional>

namespace moira::runtime {

/// Writes the log of one layer. docs/selection.md has the bytes. One thread at
/// a time.
class FlightRecorder {
public:
  /// Before the decider's first decision, or after loadLearned and before the
  /// next one: the log begins with what it has learned.
  explicit FlightRecorder(const Decider &decider);

  void add(const SharedStep &record, const Decision &decision);
  /// A new lasting table, [ranks, slots]; null: the even one.
  void addPlacement(const int32_t *slotTable);

  /// All bytes since the beginning, or since `clear`: append them to the file.
  const std::string &bytes() const { return out; }
  void clear() { out.clear(); }
  /// Of the last record.
  size_t lastBytes() const { return last; }

private:
  void number(uint64_t value);
  void raw(const void *data, size_t bytes);
  void end(size_t begin);

  const int ranks, experts, slots;
  std::string out, body;
  std::vector<int32_t> before; ///< counts of the last record
  std::vector<uint64_t> variants, programs;
  size_t last = 0;
};

/// A log that was read, or the beginning of one: a record that was cut off by a
/// crash is left out.
class FlightLog {
public:
  static Result<FlightLog> parse(const std::string &bytes,
                                 const std::string &name = "flight log");

  struct Entry {
    bool placement = false;
    std::vector<int32_t> table; ///< of a placement; empty: even
    int64_t step = 0, timedStep = -1, nextRows = -1;
    std::vector<int32_t> counts; ///< empty: there was no step yet
    std::vector<double> seconds; ///< empty: nothing known
    std::vector<uint64_t> variants, programs;
    int variant = -1, forced = -1; ///< that somebody else had chosen
    int candidate = 0;
    DecisionReason reason = DecisionReason::First;

    SharedStep record() const;
  };
  const std::vector<Entry> &entries() const { return list; }
  /// Whether the file ended within a record.
  bool cut() const { return wasCut; }
  SelectionOptions options() const { return wanted; }

  /// Makes all decisions again with a decider that has the log's options and
  /// has not decided yet. Fails at the first that differs. `each` is told of
  /// every decision.
  Status replay(Decider &decider,
                const std::function<void(const Entry &, const Decision &)>
                    &each = nullptr) const;

private:
  std::string name, learned, space;
  int ranks = 0, experts = 0;
  SelectionOptions wanted;
  std::vector<Entry> list;
  bool wasCut = false;
};

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_SELECTION_FLIGHTLOG_H
