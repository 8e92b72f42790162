// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "cost/Topology.h"

#include <algorithm>
#include <limits>

using namespace moira;
using namespace moira::runtime;

double Topology::messageSeconds(int from, int to, int64_t bytes) const {
  double latency = 0, narrowest = 0, overhead = 0;
  for (int index : path(from, to)) {
    const Link &link = linkList[index];
    latency += link.latency;
    overhead = std::max(overhead, link.overhead);
    narrowest = std::max(narrowest, bytes / link.bandwidth);
  }
  return latency + overhead + narrowest;
}

double Topology::boundSeconds(const std::vector<Transfer> &transfers) const {
  std::vector<double> traffic(linkList.size());
  for (const Transfer &transfer : transfers)
    for (int index : path(transfer.from, transfer.to))
      traffic[index] += transfer.bytes;
  double seconds = 0;
  for (size_t i = 0; i < traffic.size(); ++i)
    seconds = std::max(seconds, traffic[i] / linkList[i].bandwidth);
  return seconds;
}

Topology Topology::uniform(int ranks, double bandwidth, double latency) {
  Topology topology;
  topology.rankCount = ranks;
  topology.perNode = 1;
  topology.paths.resize(ranks * ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    topology.nodes.push_back(rank);
    // A wire's latency is that of its two ends together.
    topology.linkList.push_back(
        {concat("rank ", rank, " out"), bandwidth, latency, 0});
    topology.linkList.push_back(
        {concat("rank ", rank, " in"), bandwidth, 0, 0});
  }
  for (int from = 0; from < ranks; ++from)
    for (int to = 0; to < ranks; ++to)
      if (from != to)
        topology.paths[from * ranks + to] = {2 * from, 2 * to + 1};
  return topology;
}
