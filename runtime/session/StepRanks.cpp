// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The part of a step that knows of other ranks.

#include "collective/VirtualClock.h"
#include "session/Adaptation.h"
#include "session/DeviceStep.h"
#include "session/Shadows.h"
#include "session/StepContext.h"

#include <algorithm>

using namespace moira;
using namespace moira::runtime;

void StepContext::setCommunicator(std::shared_ptr<Communicator> given) {
  communicator = std::move(given);
  ctx.rank = communicator ? communicator->rank() : 0;
  ctx.ranks = communicator ? communicator->ranks() : 1;
  ctx.communicator = communicator.get();
  steps.setClock(communicator ? communicator->clock() : nullptr);
  steps.setTrace(communicator ? communicator->trace() : nullptr);
  computed.setClock(communicator ? communicator->clock() : nullptr);
}

Communicator &StepContext::link() {
  if (communicator)
    return *communicator;
  if (!alone)
    alone = Communicator::single();
  return *alone;
}

/// Makes a failure the step's. What the ranks share names itself already.
void StepContext::note(const char *function, const Status &status) {
  if (!status.ok())
    fail(status.code,
         communicator ? status.message : status.within(function).message);
}

uint64_t moira::runtime::hashPlanOf(const EntrySpec *entry, moira_plan plan,
                                    int ranks) {
  // Variants for few and for many rows say the same to other ranks: which one
  // runs is each rank's own affair.
  auto talksAlike = [&](const VariantSpec &a, const VariantSpec &b) {
    return a.copies >= 0 && a.copies == b.copies && a.schedule == b.schedule;
  };
  for (uint32_t v = 0; entry && v < plan.variant; ++v)
    if (talksAlike(entry->variants[v], entry->variants[plan.variant]))
      plan.variant = v;
  return hashPlan(plan, ranks);
}

void StepContext::prepareLayer(int64_t layer) {
  if (shadows && layer >= 0 && !hasFailed())
    note("shadows", shadows->start(layer));
}

/// The plan of a layer, outside of loop bodies only; null on failure.
const moira_plan *StepContext::planOf(const char *function, int64_t layer) {
  if (!checkNotInBody(function))
    return nullptr;
  prepareLayer(layer);
  if (!entry || entry->layers.empty())
    return ctx.plan;
  for (size_t i = 0; i < entry->layers.size(); ++i)
    if (entry->layers[i].index == layer)
      return ctx.plan + i;
  fail(MOIRA_FAILED,
       concat(function, ": expected a layer of the entry, got ", layer));
  return nullptr;
}

bool StepContext::settle(const char *function) {
  if (gpu)
    if (Status status = gpu->settle(); !status.ok())
      fail(status.code, status.within(function).message);
  return !hasFailed();
}

void StepContext::gatherCounts(int64_t layer, int64_t experts,
                               const int32_t *counts, int32_t *matrix) {
  const moira_plan *plan = planOf("gather_counts", layer);
  if (!plan || !settle("gather_counts"))
    return;
  std::fill_n(matrix, std::max<int64_t>(experts, 0) * ctx.ranks, 0);
  RankRecord mine = record;
  size_t place = size_t(plan - ctx.plan);
  mine.plan = hashPlanOf(entry, *plan, ctx.ranks);
  if (layerSeconds && place < layerSeconds->size())
    mine.seconds = (*layerSeconds)[place];
  if (adaptation && adaptation->shadowsLate())
    mine.stale = shadows->isStale(layer);
  waiting(layer, [&] {
    note("gather_counts",
         link().gatherCounts(layer, experts, counts, mine, matrix));
  });
  if (hasFailed())
    return;
  steps.matrix(layer, experts, ctx.ranks, matrix);
  if (gpu)
    gpu->keepCounts(matrix, experts * ctx.ranks);
  if (adaptation)
    adapt(place, experts, matrix);
}

/// Tells who decides what the ranks said in a layer, and follows.
void StepContext::adapt(size_t place, int64_t experts, const int32_t *matrix) {
  if (experts != adaptation->experts(place))
    return fail(MOIRA_FAILED, concat("gather_counts: expected the ",
                                     adaptation->experts(place),
                                     " experts of the layer, got ", experts));
  Result<bool> changed = adaptation->gathered(place, link().records(), matrix);
  if (!changed.ok())
    return fail(changed.status().code, changed.status().message);
  if (!*changed)
    return;
  moira_plan &plan = (*layerPlans)[place];
  plan.degree = adaptation->plan(place).degree;
  plan.exchange = adaptation->plan(place).exchange;
  const std::vector<int32_t> &chosen = adaptation->plan(place).shadows;
  if (adaptation->shadowsLate()) {
    bool stale = false;
    for (const RankRecord &record : link().records())
      stale |= record.stale != 0;
    if (Status status = shadows->choose(place, chosen, stale); !status.ok())
      return fail(status.code, status.within("shadows").message);
  }
  const Decision &decision = adaptation->decision(place);
  steps.replanned(place, plan);
  steps.planned(place, chosen, decision.seconds, reasonName(decision.reason));
}

/// Tells who decides what an exchange of a forward step sends.
void StepContext::noteTravel(const moira_plan &plan,
                             const moira_exchange &exchange) {
  if (!adaptation || exchange.chunk != 0 ||
      exchange.direction != MOIRA_TO_EXPERTS)
    return;
  size_t place = size_t(&plan - ctx.plan);
  const int32_t *counts =
      gpu ? gpu->findCounts(exchange.counts) : exchange.counts;
  if (counts && exchange.placement.experts == adaptation->experts(place))
    adaptation->travelled(place, counts);
}

/// The same with counts and sizes on the device: what the host knows of them
/// already, it does not wait for.
int64_t StepContext::receiveSizesOnDevice(const moira_plan &plan,
                                          const moira_exchange &exchange,
                                          int32_t *groups) {
  moira_exchange known = exchange;
  known.counts = gpu->findCounts(exchange.counts);
  if (!known.counts) {
    if (!settle("receive_sizes"))
      return 0;
    known.counts = exchange.counts;
  }
  std::vector<int32_t> sizes(std::max(exchange.placement.slots, 0));
  Result<int64_t> rows = link().receiveSizes(plan, known, sizes.data());
  if (!rows.ok()) {
    fail(rows.status().code, rows.status().within("receive_sizes").message);
    return 0;
  }
  note("receive_sizes", gpu->putCounts(groups, sizes));
  return hasFailed() ? 0 : *rows;
}

int64_t StepContext::receiveSizes(const moira_exchange &exchange,
                                  int32_t *groups) {
  const moira_plan *plan = planOf("receive_sizes", exchange.layer);
  if (!plan)
    return 0;
  if (gpu)
    return receiveSizesOnDevice(*plan, exchange, groups);
  Result<int64_t> rows = link().receiveSizes(*plan, exchange, groups);
  if (rows.ok())
    return *rows;
  std::fill_n(groups, std::max(exchange.placement.slots, 0), 0);
  fail(rows.status().code, rows.status().within("receive_sizes").message);
  return 0;
}

void StepContext::chargeProduct(const moira_plan &plan,
                                const moira_exchange &exchange) {
  if (!computed.active() || exchange.direction != MOIRA_TO_TOKENS)
    return;
  moira_exchange there = exchange;
  there.direction = MOIRA_TO_EXPERTS;
  chunkRows.resize(std::max(exchange.placement.slots, 0));
  // What is wrong with the exchange is said by the exchange itself.
  if (link().receiveSizes(plan, there, chunkRows.data()).ok())
    computed.product(exchange.layer, exchange.placement.copies,
                     chunkRows.data(), exchange.placement.slots);
}

namespace {
/// Rows that a loop copies, so many bytes in each iteration.
struct RowCopies {
  static constexpr int64_t block = int64_t(256) << 10;

  const std::vector<Communicator::RowMove> &moves;
  const moira_exchange &exchange;

  int64_t blocksOf(const Communicator::RowMove &move) const {
    return (move.rows * exchange.row_bytes + block - 1) / block;
  }
  int64_t blocks() const {
    int64_t n = 0;
    for (const Communicator::RowMove &move : moves)
      n += blocksOf(move);
    return n;
  }
  void copy(int64_t index) const {
    for (const Communicator::RowMove &move : moves) {
      int64_t n = blocksOf(move);
      if (index < n) {
        int64_t begin = index * block;
        int64_t bytes = std::min(block, move.rows * exchange.row_bytes - begin);
        copyBytes(static_cast<char *>(exchange.home) +
                      move.to * exchange.row_bytes + begin,
                  static_cast<const char *>(exchange.away) +
                      move.from * exchange.row_bytes + begin,
                  bytes);
        return;
      }
      index -= n;
    }
  }
};
} // namespace

void StepContext::mergeRows(const moira_exchange &exchange) {
  const moira_plan *plan = planOf("merge_rows", exchange.layer);
  if (!plan)
    return;
  moira_exchange known = exchange;
  if (gpu && gpu->findCounts(exchange.counts))
    known.counts = gpu->findCounts(exchange.counts);
  else if (!settle("merge_rows"))
    return;
  Result<const std::vector<Communicator::RowMove> *> moves =
      link().mergeRows(*plan, known);
  if (!moves.ok())
    return fail(moves.status().code,
                moves.status().within("merge_rows").message);
  if (gpu) {
    for (const Communicator::RowMove &move : **moves)
      note("merge_rows", gpu->copy(static_cast<char *>(exchange.home) +
                                       move.to * exchange.row_bytes,
                                   static_cast<const char *>(exchange.away) +
                                       move.from * exchange.row_bytes,
                                   move.rows * exchange.row_bytes));
    return;
  }
  RowCopies copies{**moves, exchange};
  // About 10 GB/s.
  parallelFor(
      [](moira_ctx *, void *captures, int64_t index, int64_t) {
        static_cast<const RowCopies *>(captures)->copy(index);
      },
      &copies, copies.blocks(), RowCopies::block / 10);
}

/// Charges a loop as if each worker had a core of its own and all were even:
/// the longest body, or the work of all in equal parts.
void StepContext::runOnVirtualWorkers(
    VirtualClock &clock, int64_t n, int64_t cost,
    const std::function<void(int64_t, int64_t)> &body) {
  std::vector<double> sums(workers()), longest(workers());
  clock.pause();
  pool->run(n, cost, [&](int64_t index, int64_t worker) {
    double begin = threadCpuSeconds();
    body(index, worker);
    double seconds = threadCpuSeconds() - begin;
    sums[worker] += seconds;
    longest[worker] = std::max(longest[worker], seconds);
  });
  double all = 0, most = 0;
  for (int64_t worker = 0; worker < workers(); ++worker) {
    all += sums[worker];
    most = std::max(most, longest[worker]);
  }
  clock.add(clock.scale() * std::max(most, all / workers()));
  clock.resume();
}
