// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "cost/BatchCost.h"

#include <algorithm>

using namespace moira;
using namespace moira::runtime;

BatchCost::BatchCost(const Topology &topology) : ranks(topology.ranks()) {
  const int node = topology.ranksPerNode();
  groups = {0, ranks, node > 0 && node < ranks ? node : 1};
  for (const Link &link : topology.links())
    wires.push_back({link.overhead, 1 / link.bandwidth});
  free.resize(wires.size());
  next.resize(ranks);
  if (byRank())
    turns.reserve(size_t(ranks) * ranks);
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

void BatchCost::reserve(BatchFlows &batch) const {
  batch.traffic.resize(wires.size());
  if (byRank())
    batch.sent.reserve(size_t(ranks) * ranks);
}

void BatchCost::set(const Flow *flows, bool back, BatchFlows &batch) const {
  if (!byRank())
    return setTraffic(flows, back, batch);
  std::vector<BatchFlows::Sent> &sent = batch.sent;
  sent.clear();
  for (int p = 0; p < ranks; ++p) {
    double turn = 0;
    for (int distance = 1; distance < ranks; ++distance) {
      int q = groups.peer(p, distance);
      const Flow &flow = flows[back ? q * ranks + p : p * ranks + q];
      if (!(flow.amount > 0))
        continue;
      sent.push_back({p, q, int(turn), flow});
      turn += flow.messages;
    }
  }
  std::sort(sent.begin(), sent.end(), [](const auto &a, const auto &b) {
    return a.turn != b.turn ? a.turn < b.turn : a.from < b.from;
  });
}

void BatchCost::schedule(const BatchFlows &batch, double unitBytes,
                         std::vector<double> &ends) {
  const std::vector<BatchFlows::Sent> &sent = batch.sent;
  std::fill(free.begin(), free.end(), 0);
  std::copy(ends.begin(), ends.end(), next.begin());
  turns.clear();
  bool sorted = true;
  for (size_t i = 0; i < sent.size(); ++i) {
    turns.push_back({std::max(ends[sent[i].from], ends[sent[i].to]), int(i)});
    sorted &= i == 0 || turns[i - 1].begin <= turns[i].begin;
  }
  if (!sorted)
    std::sort(turns.begin(), turns.end());
  for (const Turn &turn : turns) {
    const BatchFlows::Sent &message = sent[turn.index];
    const Way &way = ways[message.from * ranks + message.to];
    const int *links = pathLinks.data() + way.first;
    double bytes = message.flow.amount * unitBytes;
    double begin = turn.begin;
    for (int i = 0; i < way.count; ++i)
      begin = std::max(begin, free[links[i]]);
    for (int i = 0; i < way.count; ++i)
      free[links[i]] = begin +
                       message.flow.messages * wires[links[i]].overhead +
                       bytes * wires[links[i]].secondsPerByte;
    double end = begin + way.latency + message.flow.messages * way.overhead +
                 bytes * way.secondsPerByte;
    next[message.from] = std::max(next[message.from], end);
    next[message.to] = std::max(next[message.to], end);
  }
  ends.swap(next);
}

void BatchCost::setTraffic(const Flow *flows, bool back,
                           BatchFlows &batch) const {
  batch.traffic.assign(wires.size(), Flow());
  batch.latency = 0;
  for (int p = 0; p < ranks; ++p)
    for (int q = 0; q < ranks; ++q) {
      const Flow &flow = flows[size_t(p) * ranks + q];
      if (p == q || !(flow.amount > 0))
        continue;
      const Way &way =
          ways[back ? size_t(q) * ranks + p : size_t(p) * ranks + q];
      batch.latency = std::max(batch.latency, way.latency);
      const int *links = pathLinks.data() + way.first;
      for (int i = 0; i < way.count; ++i) {
        batch.traffic[links[i]].amount += flow.amount;
        batch.traffic[links[i]].messages += flow.messages;
      }
    }
}

void BatchCost::bound(const BatchFlows &batch, double unitBytes,
                      std::vector<double> &ends) const {
  double longest = 0;
  for (size_t i = 0; i < wires.size(); ++i)
    longest = std::max(longest, batch.traffic[i].messages * wires[i].overhead +
                                    batch.traffic[i].amount * unitBytes *
                                        wires[i].secondsPerByte);
  ends[0] += batch.latency + longest;
}
