// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Bytes and messages that a rank has sent and received.

#ifndef MOIRA_RUNTIME_COLLECTIVE_TRAFFIC_H
#define MOIRA_RUNTIME_COLLECTIVE_TRAFFIC_H

#include "collective/Transport.h"

#include <array>

namespace moira::runtime {

enum class TrafficKind {
  RowsToExperts,
  RowsToTokens,
  Weights,
  Gradients, ///< of weights
  Sums,      ///< over all ranks
  Shadows,   ///< weights, to where they are for a step
  Moves,     ///< weights and states, to where they are from then on
  Control,   ///< counts, votes, and other collectives that a caller asks for
};
constexpr int trafficKinds = 8;

/// What a batch belongs to.
struct TrafficTag {
  TrafficKind kind = TrafficKind::Control;
  int64_t layer = -1;     ///< -1: none
  int64_t parameter = -1; ///< of weights and gradients
};

struct TrafficCount {
  int64_t bytesSent = 0;
  int64_t messagesSent = 0;
  int64_t bytesReceived = 0;
  int64_t messagesReceived = 0;
};

/// What passed through the transport: a hierarchical exchange counts rows
/// twice, and what a rank has for itself does not count.
struct Traffic {
  std::array<TrafficCount, trafficKinds> kinds{};
  std::vector<TrafficCount> parameters; ///< weights and gradients
  std::vector<TrafficCount> peers;      ///< by rank
  std::vector<TrafficCount> layers;     ///< rows, weights, gradients

  const TrafficCount &operator[](TrafficKind kind) const {
    return kinds[static_cast<int>(kind)];
  }

  void count(const Batch &batch, const TrafficTag &tag);
};

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_COLLECTIVE_TRAFFIC_H
