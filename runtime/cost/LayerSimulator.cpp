// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "cost/LayerSimulator.h"

#include <algorithm>

using namespace moira;
using namespace moira::runtime;

LayerSimulator::LayerSimulator(const LayerShape &shape,
                               const Topology &topology,
                               const ComputeTimes &times,
                               ShadowTransport transport, int64_t stagingBytes)
    : shape(shape), topology(topology), times(times), transport(transport),
      stagingBytes(stagingBytes), schedule(topology) {}

RankGroups LayerSimulator::groupsOf(int rank) const {
  int node = topology.ranksPerNode();
  return {rank, shape.ranks, node > 0 && node < shape.ranks ? node : 1};
}

int64_t LayerSimulator::chunks(const LayerPlan &plan) const {
  return chunkCount(plan.degree, plan.schedule, groupsOf(0));
}

Status LayerSimulator::setPlacement(const LayerPlan &plan,
                                    const int32_t *slotTable) {
  std::vector<int32_t> even;
  if (!slotTable) {
    even = shape.evenTable();
    slotTable = even.data();
  }
  return placement.set({shape.experts, shape.shards, plan.copies, shape.slots},
                       slotTable, shape.ranks);
}

/// Batch by batch, as VirtualNetwork times an operation.
void LayerSimulator::carry(std::vector<MessageRound> &rounds, Times &ends) {
  for (MessageRound &round : rounds) {
    std::vector<int> turns(shape.ranks);
    for (TimedMessage &message : round)
      message.turn = turns[message.from]++;
    schedule.place(ends, round);
    for (const TimedMessage &message : round)
      for (int rank : {message.from, message.to})
        ends[rank] = std::max(ends[rank], message.end);
  }
}

//===----------------------------------------------------------------------===//
// Messages
//===----------------------------------------------------------------------===//

Status LayerSimulator::layout(const LayerPlan &plan, const int32_t *counts,
                              int rank, int direction, int64_t chunk) {
  moira_exchange exchange{};
  exchange.placement = placement.constants();
  exchange.placement.copies = plan.copies;
  exchange.direction = direction;
  exchange.schedule = plan.schedule;
  exchange.chunk = chunk;
  exchange.chunks = chunks(plan);
  exchange.counts = counts;
  exchange.home_rows = INT64_MAX / std::max(plan.copies, 1);
  return rows.set(exchange, placement, groupsOf(rank));
}

static void add(MessageRound &round, int from, int to, int64_t bytes) {
  if (from != to && bytes > 0)
    round.push_back({from, to, bytes, 0, 0, 0});
}

Status LayerSimulator::exchangeRounds(const LayerPlan &plan,
                                      const int32_t *counts, int direction,
                                      int64_t chunk, int64_t rowBytes,
                                      std::vector<MessageRound> &rounds) {
  int ranks = shape.ranks;
  const RankGroups groups = groupsOf(0);
  rounds.assign(1, {});
  pairs.assign(size_t(ranks) * ranks, 0);
  for (int rank = 0; rank < ranks; ++rank) {
    MOIRA_RETURN_IF_ERROR(layout(plan, counts, rank, direction, chunk));
    for (int d = 0; d < ranks; ++d) {
      int peer = groups.peer(rank, d);
      for (int slot = 0; slot < shape.slots; ++slot) {
        const RowRange &range = direction == MOIRA_TO_TOKENS
                                    ? rows.away(slot, peer)
                                    : rows.home(peer, slot);
        add(rounds[0], rank, peer, range.rows * rowBytes);
        pairs[size_t(rank) * ranks + peer] += range.rows * rowBytes;
      }
    }
  }
  int node = topology.ranksPerNode();
  if (plan.exchange == 1 && node > 1 && node < ranks && ranks % node == 0)
    hierarchicalRounds(rounds);
  return Status();
}

/// The messages of HierarchicalExchange, from what travels between pairs.
void LayerSimulator::hierarchicalRounds(
    std::vector<MessageRound> &rounds) const {
  int ranks = shape.ranks, size = topology.ranksPerNode();
  int nodes = ranks / size;
  rounds.clear();
  int64_t cut = std::max<int64_t>(stagingBytes / ranks, 1024), largest = 0;
  for (int64_t bytes : pairs)
    largest = std::max(largest, bytes);
  for (int64_t turn = 0; turn * cut < largest; ++turn) {
    auto now = [&](int from, int to) {
      return std::clamp<int64_t>(pairs[size_t(from) * ranks + to] - turn * cut,
                                 0, cut);
    };
    MessageRound local, cross;
    for (int rank = 0; rank < ranks; ++rank) {
      int node = rank / size, mine = rank % size;
      // Each sends to the next one first.
      for (int d = 1; d < size; ++d) {
        int j = (mine + d) % size;
        int64_t bytes = 0;
        for (int b = 0; b < nodes; ++b)
          bytes += now(rank, b * size + j);
        add(local, rank, node * size + j, bytes);
      }
      for (int d = 1; d < nodes; ++d) {
        int b = (node + d) % nodes;
        int64_t bytes = 0;
        for (int i = 0; i < size; ++i)
          bytes += now(node * size + i, b * size + mine);
        add(cross, rank, b * size + mine, bytes);
      }
    }
    rounds.push_back(std::move(local));
    rounds.push_back(std::move(cross));
  }
}

void LayerSimulator::countRounds(std::vector<MessageRound> &rounds) const {
  int ranks = shape.ranks;
  int64_t bytes = 48 + int64_t(4) * shape.experts;
  rounds.assign(1, {});
  if (ranks < 16) { // AllGather's own numbers
    for (int rank = 0; rank < ranks; ++rank)
      for (int d = 1; d < ranks; ++d)
        add(rounds[0], rank, (rank + d) % ranks, bytes);
    return;
  }
  rounds.clear();
  for (int distance = 1; distance < ranks; distance *= 2) {
    rounds.emplace_back();
    for (int rank = 0; rank < ranks; ++rank)
      add(rounds.back(), rank, (rank + ranks - distance) % ranks,
          std::min(distance, ranks - distance) * bytes);
  }
}

void LayerSimulator::weightRounds(const LayerPlan &plan,
                                  const WeightShape &weight, bool reduce,
                                  std::vector<MessageRound> &rounds) const {
  int ranks = shape.ranks, shards = shape.shards;
  const RankGroups groups = groupsOf(0);
  int64_t bytes = reduce ? weight.gradientBytes : weight.bytes;
  // What each rank needs, and from whom (weightPieces).
  std::vector<std::vector<int>> from(ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    if (plan.copies == 0)
      for (int e = 0; e < shape.experts; ++e) {
        int own = -1;
        for (int h = 0; h < shards && own < 0; ++h)
          if (placement.holderFor(e * shards + h, rank).rank == rank)
            own = rank;
        for (int h = 0; h < (weight.replicated ? 1 : shards); ++h) {
          int unit = e * shards + (weight.replicated ? rank % shards : h);
          from[rank].push_back(weight.replicated && own >= 0
                                   ? own
                                   : placement.holderFor(unit, rank).rank);
        }
      }
    else if (!weight.replicated)
      for (int slot = 0; slot < shape.slots; ++slot) {
        int unit = placement.unit(rank, slot), group = shards / plan.copies;
        for (int j = 0; unit >= 0 && j < group; ++j)
          from[rank].push_back(
              placement.holderFor(unit - unit % shards % group + j, rank).rank);
      }
  }
  rounds.assign(1, {});
  for (int rank = 0; rank < ranks; ++rank)
    for (int d = 0; d < ranks; ++d) {
      int peer = groups.peer(rank, d);
      // A gather is sent by the holder, a gradient by who needed the weight.
      for (int holder : from[reduce ? rank : peer])
        if (holder == (reduce ? peer : rank))
          add(rounds[0], rank, peer, bytes);
    }
}

void LayerSimulator::shadowRounds(int owner, int64_t bytes,
                                  std::vector<MessageRound> &rounds) const {
  int ranks = shape.ranks;
  rounds.clear();
  auto send = [&](int from, int to, int64_t amount) {
    add(rounds.back(), (from + owner) % ranks, (to + owner) % ranks, amount);
  };
  ShadowTransport way = transport == ShadowTransport::BySize
                            ? shadowTransport(ranks, bytes)
                            : transport;
  if (way == ShadowTransport::Tree) {
    int top = 1;
    while (top < ranks)
      top *= 2;
    for (int bit = top / 2; bit > 0; bit /= 2) {
      rounds.emplace_back();
      for (int from = 0; from + bit < ranks; from += 2 * bit)
        send(from, from + bit, bytes);
    }
    return;
  }
  bool split = way == ShadowTransport::Split;
  auto part = [&](int place) {
    return bytes * (place + 1) / ranks - bytes * place / ranks;
  };
  rounds.emplace_back();
  for (int to = 1; to < ranks; ++to)
    send(0, to, split ? part(to) : bytes);
  if (!split)
    return;
  rounds.emplace_back();
  for (int from = 0; from < ranks; ++from)
    for (int d = 1; d < ranks; ++d)
      if ((from + d) % ranks != 0)
        send(from, (from + d) % ranks, part(from));
}

//===----------------------------------------------------------------------===//
// The timeline
//===----------------------------------------------------------------------===//

/// A rank's product over the rows of a chunk; `rows` is set for it.
double LayerSimulator::product(const LayerPlan &plan, const int32_t *counts,
                               int rank, bool backward) {
  double seconds = times.call(backward);
  if (plan.copies == 0) {
    for (int e = 0; e < shape.experts; ++e)
      if (int64_t n = counts[size_t(rank) * shape.experts + e])
        seconds += times.group(n, backward);
    return seconds;
  }
  for (int slot = 0; slot < shape.slots; ++slot)
    if (int64_t n = rows.slotRows(slot))
      seconds += times.group(n, backward) / plan.copies;
  return seconds;
}

Status LayerSimulator::pass(const LayerPlan &plan, const int32_t *counts,
                            const std::vector<Place> &shadowed, bool backward,
                            Times &clock) {
  int ranks = shape.ranks;
  Times queue(ranks), own(ranks);
  std::vector<MessageRound> rounds;
  for (int rank = 0; rank < ranks; ++rank)
    for (int e = 0; e < shape.experts; ++e)
      own[rank] += counts[size_t(rank) * shape.experts + e];
  auto sendShadows = [&] {
    for (const Place &place : shadowed)
      for (const WeightShape &weight : shape.weights) {
        shadowRounds(place.rank, weight.bytes, rounds);
        carry(rounds, queue);
      }
  };
  if (!backward && !shape.lateShadows)
    sendShadows();
  if (!backward || shape.gathersAgain)
    for (const WeightShape &weight : shape.weights) {
      weightRounds(plan, weight, false, rounds);
      carry(rounds, queue);
    }
  if (!backward) {
    for (int rank = 0; rank < ranks; ++rank)
      queue[rank] =
          std::max(queue[rank], clock[rank] += times.gate(int64_t(own[rank])));
    countRounds(rounds);
    carry(rounds, queue);
    for (int rank = 0; rank < ranks; ++rank)
      clock[rank] = std::max(clock[rank], queue[rank]);
    if (shape.lateShadows)
      sendShadows();
  }
  for (int rank = 0; rank < ranks; ++rank)
    clock[rank] += times.dispatch(int64_t(own[rank]));
  if (plan.copies == 0) {
    for (int rank = 0; rank < ranks; ++rank)
      clock[rank] = std::max(clock[rank], queue[rank]) +
                    product(plan, counts, rank, backward);
  } else {
    int64_t n = chunks(plan);
    int64_t there = backward ? shape.resultGradientBytes : shape.rowBytes;
    int64_t back = backward          ? shape.rowGradientBytes
                   : plan.copies > 1 ? shape.partialBytes
                                     : shape.resultBytes;
    std::vector<Times> ends(n);
    for (int rank = 0; rank < ranks; ++rank)
      queue[rank] = std::max(queue[rank], clock[rank]);
    for (int64_t i = 0; i < n; ++i) {
      MOIRA_RETURN_IF_ERROR(
          exchangeRounds(plan, counts, MOIRA_TO_EXPERTS, i, there, rounds));
      carry(rounds, queue);
      ends[i] = queue;
    }
    for (int64_t i = 0; i < n; ++i)
      for (int rank = 0; rank < ranks; ++rank) {
        MOIRA_RETURN_IF_ERROR(layout(plan, counts, rank, MOIRA_TO_EXPERTS, i));
        ends[i][rank] = clock[rank] = std::max(clock[rank], ends[i][rank]) +
                                      product(plan, counts, rank, backward);
      }
    for (int64_t i = 0; i < n; ++i) {
      for (int rank = 0; rank < ranks; ++rank)
        queue[rank] = std::max(queue[rank], ends[i][rank]);
      MOIRA_RETURN_IF_ERROR(
          exchangeRounds(plan, counts, MOIRA_TO_TOKENS, i, back, rounds));
      carry(rounds, queue);
    }
    for (int rank = 0; rank < ranks; ++rank)
      clock[rank] = std::max(clock[rank], queue[rank]);
  }
  if (backward) {
    for (int rank = 0; plan.copies == 0 && rank < ranks; ++rank)
      queue[rank] = std::max(queue[rank], clock[rank]);
    for (const WeightShape &weight : shape.weights) {
      weightRounds(plan, weight, true, rounds);
      // One batch: a rank adds a part for each of its slots that gathered it.
      int64_t parts = weight.replicated
                          ? shape.shards
                          : shape.shards / std::max(plan.copies, 1);
      for (int rank = 0; rank < ranks; ++rank)
        for (int d = 1; d < ranks; ++d)
          for (const Place &place : shadowed)
            for (int64_t j = 0; j < parts; ++j)
              if (place.rank == groupsOf(rank).peer(rank, d))
                add(rounds[0], rank, place.rank, weight.gradientBytes);
      carry(rounds, queue);
    }
  }
  for (int rank = 0; rank < ranks; ++rank)
    clock[rank] =
        std::max(clock[rank] + times.combine(int64_t(own[rank]) *
                                             std::max(plan.copies, 1)),
                 backward ? queue[rank] : 0);
  return Status();
}

Result<double> LayerSimulator::run(const LayerPlan &plan, const int32_t *counts,
                                   const int32_t *slotTable,
                                   const std::vector<Place> &shadowed) {
  MOIRA_RETURN_IF_ERROR(setPlacement(plan, slotTable));
  Times clock(shape.ranks);
  MOIRA_RETURN_IF_ERROR(pass(plan, counts, shadowed, false, clock));
  if (shape.training) {
    // The passes are apart: what stands between them is not the layer's.
    double forward = *std::max_element(clock.begin(), clock.end());
    std::fill(clock.begin(), clock.end(), 0);
    MOIRA_RETURN_IF_ERROR(
        pass(plan.back(shape), counts, shadowed, true, clock));
    return forward + *std::max_element(clock.begin(), clock.end());
  }
  return *std::max_element(clock.begin(), clock.end());
}
