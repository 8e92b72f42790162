// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Rows on every link of a large grid, and what that takes at least.

#ifndef MOIRA_RUNTIME_COST_LINKTRAFFIC_H
#define MOIRA_RUNTIME_COST_LINKTRAFFIC_H

#include "cost/BatchCost.h"

#include <vector>

namespace moira::runtime {

/// The fullest link's time: zero + perByte * bytes of a row.
struct LinkBound {
  double zero = 0, perByte = 0;
};

/// Traffic of an exchange, there and back at once, whole and by chunk of
/// MOIRA_SCHEDULE_GROUPS. Allocates nothing after the constructor.
class LinkTraffic {
public:
  LinkTraffic(const Topology &topology, int groupSize, bool hierarchical);

  /// Whether messages count: some link has an overhead.
  bool countsMessages() const { return overheads; }
  /// pairs[from, to] of the way there.
  void set(const std::vector<Flow> &pairs);
  /// Takes a flow away, such as that of a shadow's rows that stay at home.
  void remove(int from, int to, const Flow &flow);
  /// For `hierarchical`: after the pairs have changed.
  void setStages(const std::vector<Flow> &pairs);

  LinkBound linear(bool back) const;
  LinkBound group(int chunk, bool back) const;
  LinkBound hierarchical(bool back) const;

private:
  struct Way {
    int first = 0, count = 0; ///< into links
  };
  struct Wire {
    double overhead = 0, secondsPerByte = 0;
  };
  using Totals = std::vector<double>; ///< by link

  int chunkOf(int from, int to) const {
    return chunks == 1
               ? 0
               : (from / groupSize - to / groupSize + groupCount) % groupCount;
  }
  void add(int from, int to, double rows, double messages, Totals &amounts,
           Totals &counts, size_t offset) const;
  LinkBound bound(const Totals &rows, const Totals &messages, size_t first,
                  size_t count, double latency) const;

  const int ranks, groupSize, groupCount;
  int chunks; ///< that are told apart: the groups, or 1 where they are many
  bool overheads = false;
  std::vector<Way> ways; ///< [ranks, ranks]
  std::vector<int> links;
  std::vector<Wire> wires;
  std::vector<double> latencies; ///< longest, by chunk
  double latency = 0;
  Totals rows[2], messages[2];                 ///< [back][chunk, link]
  std::vector<double> local[2], cross[2];      ///< [back]: flows of both stages
  Totals stageRows[2][2], stageMessages[2][2]; ///< [back][stage]
};

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_COST_LINKTRAFFIC_H
