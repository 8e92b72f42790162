// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "cost/LinkTraffic.h"

#include <algorithm>

using namespace moira;
using namespace moira::runtime;

// More groups than this are not told apart.
static constexpr int maxChunks = 32;

LinkTraffic::LinkTraffic(const Topology &topology, int groupSize,
                         bool hierarchical)
    : ranks(topology.ranks()), groupSize(groupSize),
      groupCount((ranks + groupSize - 1) / groupSize),
      chunks(groupCount <= maxChunks ? groupCount : 1) {
  for (const Link &link : topology.links()) {
    wires.push_back({link.overhead, 1 / link.bandwidth});
    overheads |= link.overhead > 0;
  }
  ways.resize(size_t(ranks) * ranks);
  latencies.resize(chunks);
  for (int p = 0; p < ranks; ++p)
    for (int q = 0; q < ranks; ++q) {
      const std::vector<int> &path = topology.path(p, q);
      ways[size_t(p) * ranks + q] = {int(links.size()), int(path.size())};
      double seconds = 0;
      for (int link : path) {
        links.push_back(link);
        seconds += topology.links()[link].latency;
      }
      double &longest = latencies[chunkOf(p, q)];
      longest = std::max(longest, seconds);
      latency = std::max(latency, seconds);
    }
  size_t size = wires.size();
  for (int back = 0; back < 2; ++back) {
    rows[back].resize(chunks * size);
    messages[back].resize(overheads ? chunks * size : 0);
    if (!hierarchical)
      continue;
    local[back].resize(size_t(ranks) * groupSize);
    cross[back].resize(size_t(groupCount) * ranks);
    for (int stage = 0; stage < 2; ++stage) {
      stageRows[back][stage].resize(size);
      stageMessages[back][stage].resize(overheads ? size : 0);
    }
  }
}

void LinkTraffic::add(int from, int to, double amount, double count,
                      Totals &amounts, Totals &counts, size_t offset) const {
  const Way &way = ways[size_t(from) * ranks + to];
  const int *path = links.data() + way.first;
  double *place = amounts.data() + offset;
  for (int i = 0; i < way.count; ++i)
    place[path[i]] += amount;
  if (overheads)
    for (int i = 0; i < way.count; ++i)
      counts[offset + path[i]] += count;
}

void LinkTraffic::set(const std::vector<Flow> &pairs) {
  for (int back = 0; back < 2; ++back) {
    std::fill(rows[back].begin(), rows[back].end(), 0);
    std::fill(messages[back].begin(), messages[back].end(), 0);
  }
  const Flow *flow = pairs.data();
  for (int p = 0; p < ranks; ++p)
    for (int q = 0; q < ranks; ++q, ++flow) {
      if (p == q || !(flow->amount > 0))
        continue;
      size_t offset = size_t(chunkOf(p, q)) * wires.size();
      add(p, q, flow->amount, flow->messages, rows[0], messages[0], offset);
      add(q, p, flow->amount, flow->messages, rows[1], messages[1], offset);
    }
}

void LinkTraffic::remove(int from, int to, const Flow &flow) {
  if (from == to)
    return;
  size_t offset = size_t(chunkOf(from, to)) * wires.size();
  add(from, to, -flow.amount, -flow.messages, rows[0], messages[0], offset);
  add(to, from, -flow.amount, -flow.messages, rows[1], messages[1], offset);
}

/// Both stages of both ways are sums of blocks of the pairs.
void LinkTraffic::setStages(const std::vector<Flow> &pairs) {
  for (int back = 0; back < 2; ++back) {
    std::fill(local[back].begin(), local[back].end(), 0);
    std::fill(cross[back].begin(), cross[back].end(), 0);
  }
  int size = groupSize;
  for (int p = 0; p < ranks; ++p) {
    const Flow *row = pairs.data() + size_t(p) * ranks;
    double *gathered = local[0].data() + size_t(p) * size;
    double *crossing = cross[0].data() + size_t(p / size) * ranks;
    double *returned = cross[1].data();
    for (int b = 0; b < groupCount; ++b)
      for (int j = 0; j < size; ++j) {
        int q = b * size + j;
        double amount = row[q].amount;
        gathered[j] += amount; // there: p to its node's j-th
        crossing[q] += amount; // and p's node to q
        local[1][size_t(q) * size + p % size] += amount;
        returned[size_t(b) * ranks + p] += amount;
      }
  }
  for (int back = 0; back < 2; ++back) {
    for (int stage = 0; stage < 2; ++stage) {
      Totals &totals = stageRows[back][stage];
      Totals &counts = stageMessages[back][stage];
      std::fill(totals.begin(), totals.end(), 0);
      std::fill(counts.begin(), counts.end(), 0);
      if (stage == 0)
        for (int p = 0; p < ranks; ++p)
          for (int j = 0; j < size; ++j) {
            int to = p / size * size + j;
            double amount = local[back][size_t(p) * size + j];
            if (to != p && amount > 0)
              add(p, to, amount, 1, totals, counts, 0);
          }
      else
        for (int a = 0; a < groupCount; ++a)
          for (int q = 0; q < ranks; ++q) {
            int from = a * size + q % size;
            double amount = cross[back][size_t(a) * ranks + q];
            if (from != q && amount > 0)
              add(from, q, amount, 1, totals, counts, 0);
          }
    }
  }
}

LinkBound LinkTraffic::bound(const Totals &amounts, const Totals &counts,
                             size_t first, size_t count, double longest) const {
  LinkBound result;
  for (size_t i = 0; i < wires.size(); ++i) {
    double amount = 0, number = 0;
    for (size_t c = first; c < first + count; ++c) {
      amount += amounts[c * wires.size() + i];
      if (overheads)
        number += counts[c * wires.size() + i];
    }
    result.perByte = std::max(result.perByte, amount * wires[i].secondsPerByte);
    result.zero = std::max(result.zero, number * wires[i].overhead);
  }
  // A link that nothing crosses takes no time.
  if (result.perByte > 0)
    result.zero += longest;
  return result;
}

LinkBound LinkTraffic::linear(bool back) const {
  return bound(rows[back], messages[back], 0, chunks, latency);
}

LinkBound LinkTraffic::group(int chunk, bool back) const {
  if (chunks == groupCount)
    return bound(rows[back], messages[back], chunk, 1, latencies[chunk]);
  LinkBound part = linear(back);
  part.perByte /= groupCount;
  return part;
}

LinkBound LinkTraffic::hierarchical(bool back) const {
  LinkBound sum;
  for (int stage = 0; stage < 2; ++stage) {
    LinkBound part = bound(stageRows[back][stage], stageMessages[back][stage],
                           0, 1, stage ? latency : latencies[0]);
    sum.zero += part.zero;
    sum.perByte += part.perByte;
  }
  return sum;
}
