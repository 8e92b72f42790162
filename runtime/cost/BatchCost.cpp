// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "cost/BatchCost.h"

#include <algorithm>

using namespace moira;
using namespace moira::runtime;

BatchCost::BatchCost(const Topology &topology) : ranks(topology.ranks()) {
  for (const Link &link : topology.links())
    wires.push_back({link.overhead, 1 / link.bandwidth});
  free.resize(wires.size());
  next.resize(ranks);
  ways.resize(size_t(ranks) * ranks);
  for (int p = 0; p < ranks; ++p)
    for (int q = 0; q < ranks; ++q) {
      Way &way = ways[size_t(p) * ranks + q];
      const std::vector<int> &path = topology.path(p, q);
      way.first = int(pathLinks.size());
      way.count = int(path.size());
      for (int link : path) {
        pathLinks.push_back(link);
        way.latency += topology.links()[link].latency;
        way.overhead = std::max(way.overhead, wires[link].overhead);
        way.secondsPerByte =
            std::max(way.secondsPerByte, wires[link].secondsPerByte);
      }
    }
}

void BatchCost::schedule(const Flow *flows, double unitBytes, bool back,
                         std::vector<double> &ends) {
  std::fill(free.begin(), free.end(), 0);
  std::copy(ends.begin(), ends.end(), next.begin());
  // The order of turns: each rank sends to the next one first.
  for (int distance = 1; distance < ranks; ++distance)
    for (int p = 0; p < ranks; ++p) {
      int q = p + distance < ranks ? p + distance : p + distance - ranks;
      const Flow &flow = flows[back ? q * ranks + p : p * ranks + q];
      if (!(flow.amount > 0))
        continue;
      const Way &way = ways[p * ranks + q];
      const int *links = pathLinks.data() + way.first;
      double bytes = flow.amount * unitBytes;
      double begin = std::max(ends[p], ends[q]);
      for (int i = 0; i < way.count; ++i)
        begin = std::max(begin, free[links[i]]);
      for (int i = 0; i < way.count; ++i)
        free[links[i]] = begin + flow.messages * wires[links[i]].overhead +
                         bytes * wires[links[i]].secondsPerByte;
      double end = begin + way.latency + flow.messages * way.overhead +
                   bytes * way.secondsPerByte;
      next[p] = std::max(next[p], end);
      next[q] = std::max(next[q], end);
    }
  ends.swap(next);
}

void BatchCost::bound(const Flow *flows, double unitBytes, bool back,
                      std::vector<double> &ends) {
  std::fill(free.begin(), free.end(), 0);
  double latency = 0;
  for (int p = 0; p < ranks; ++p)
    for (int q = 0; q < ranks; ++q) {
      const Flow &flow = flows[size_t(p) * ranks + q];
      if (p == q || !(flow.amount > 0))
        continue;
      const Way &way =
          ways[back ? size_t(q) * ranks + p : size_t(p) * ranks + q];
      latency = std::max(latency, way.latency);
      const int *links = pathLinks.data() + way.first;
      for (int i = 0; i < way.count; ++i)
        free[links[i]] +=
            flow.messages * wires[links[i]].overhead +
            flow.amount * unitBytes * wires[links[i]].secondsPerByte;
    }
  ends[0] += latency + *std::max_element(free.begin(), free.end());
}
