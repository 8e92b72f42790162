// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The parts of LayerModel that depend on loads: durations of exchanges and
// products.

#include "cost/LayerModel.h"

#include <algorithm>

using namespace moira;
using namespace moira::runtime;

void LayerModel::setLoads(const int32_t *newCounts, const int32_t *newOrder,
                          int shadows) {
  counts = newCounts;
  order = newOrder;
  orderCount = shadows;
  flowsSet = false;
  timesOf[0] = timesOf[1] = -1;
  int ranks = layer.ranks;
  mostRows = allRows = 0;
  fullest = 0;
  trafficSet = stagesSet = false;
  for (int p = 0; p < ranks; ++p) {
    int64_t sum = 0;
    const int32_t *mine = counts + size_t(p) * layer.experts;
    for (int e = 0; e < layer.experts; ++e)
      sum += mine[e];
    if (lanes > 1)
      own[p] = double(sum);
    allRows += double(sum);
    if (double(sum) > mostRows) {
      mostRows = double(sum);
      fullest = p;
    }
  }
  if (lanes == 1)
    own[0] = mostRows;
}

/// Brings flows to the plan's copies and shadows.
void LayerModel::select(const LayerPlan &plan) {
  if (plan.copies != current.copies || plan.shadows < flows.shadows())
    flowsSet = false;
  bool changed = !flowsSet || flows.shadows() < plan.shadows;
  if (!flowsSet) {
    flows.set(table, counts, plan.copies);
    trafficSet = stagesSet = false;
  }
  flowsSet = true;
  while (flows.shadows() < plan.shadows)
    shadow(order[flows.shadows()]);
  if (changed) {
    timesOf[0] = timesOf[1] = -1;
    if (lanes == 1)
      findBusiest();
  }
  current = plan;
}

/// One more expert on all ranks. On large grids links lose its rows one by one:
/// that is far less than counting them again.
void LayerModel::shadow(int32_t expert) {
  flows.shadow(expert);
  stagesSet = false;
  if (lanes > 1 || !trafficSet)
    return;
  for (int p = 0; p < layer.ranks; ++p)
    flows.pieces(expert, counts[size_t(p) * layer.experts + expert],
                 [&](int unit, double rows) {
                   int holder = table.holderFor(unit, p).rank;
                   if (rows > 0)
                     traffic->remove(p, holder, {rows, 1});
                 });
}

/// Products are timed of the ranks with most rows: of all where there are few.
void LayerModel::findBusiest() {
  constexpr size_t few = 4;
  rankRows.resize(layer.ranks);
  for (int rank = 0; rank < layer.ranks; ++rank) {
    rankRows[rank] = 0;
    for (int slot = 0; slot < flows.slotsWithShadows(); ++slot)
      rankRows[rank] += flows.slotRows(rank, slot);
  }
  busiest.clear();
  for (int rank = 0; rank < layer.ranks; ++rank) {
    if (busiest.size() == few) {
      if (rankRows[rank] <= rankRows[busiest.back()])
        continue;
      busiest.pop_back();
    }
    size_t place = busiest.size();
    busiest.push_back(rank);
    for (; place > 0 && rankRows[busiest[place - 1]] < rankRows[rank]; --place)
      busiest[place] = busiest[place - 1];
    busiest[place] = rank;
  }
}

//===----------------------------------------------------------------------===//
// Exchanges
//===----------------------------------------------------------------------===//

void LayerModel::run(const Duration &duration, double unitBytes, Lanes &ends) {
  for (int i = 0; i < duration.count; ++i)
    batch.run(duration.batches[i], unitBytes, ends);
}

/// Straight, or first within nodes and then between namesakes
/// (HierarchicalExchange).
void LayerModel::measure(const Flow *pairs, const LayerPlan &plan, bool back,
                         Duration &duration) {
  int ranks = layer.ranks, size = rankGroupSize;
  if (plan.exchange == 0 || !hierarchical) {
    duration.count = 1;
    batch.set(pairs, back, duration.batches[0]);
  } else {
    duration.count = 2;
    std::fill(stage[0].begin(), stage[0].end(), Flow());
    std::fill(stage[1].begin(), stage[1].end(), Flow());
    for (int p = 0; p < ranks; ++p)
      for (int q = 0; q < ranks; ++q) {
        double amount =
            pairs[back ? size_t(q) * ranks + p : size_t(p) * ranks + q].amount;
        if (amount <= 0)
          continue;
        int middle = p / size * size + q % size;
        if (middle != p)
          stage[0][size_t(p) * ranks + middle] = {
              stage[0][size_t(p) * ranks + middle].amount + amount, 1};
        if (middle != q)
          stage[1][size_t(middle) * ranks + q] = {
              stage[1][size_t(middle) * ranks + q].amount + amount, 1};
      }
    batch.set(stage[0].data(), false, duration.batches[0]);
    batch.set(stage[1].data(), false, duration.batches[1]);
  }
  if (detail == Detail::Careful && lanes > 1)
    return;
  double unit = std::max<double>(layer.rowBytes, 1);
  std::fill(duration.zero.begin(), duration.zero.end(), 0);
  run(duration, 0, duration.zero);
  std::fill(duration.perByte.begin(), duration.perByte.end(), 0);
  run(duration, unit, duration.perByte);
  for (int lane = 0; lane < lanes; ++lane)
    duration.perByte[lane] =
        (duration.perByte[lane] - duration.zero[lane]) / unit;
}

/// What travels in a chunk of MOIRA_SCHEDULE_GROUPS: group g has its rows for
/// group (g - i) mod n.
const Flow *LayerModel::ofGroup(int index) {
  int ranks = layer.ranks, size = rankGroupSize, n = groupCount;
  for (int p = 0; p < ranks; ++p)
    for (int q = 0; q < ranks; ++q) {
      bool meets = (p / size - q / size + n) % n == index;
      subset[size_t(p) * ranks + q] =
          meets ? flows.pairs()[size_t(p) * ranks + q] : Flow();
    }
  return subset.data();
}

void LayerModel::timeExchange(const LayerPlan &plan, bool back) {
  int key =
      plan.schedule * 2 + plan.exchange + (detail == Detail::Careful ? 4 : 0);
  if (timesOf[back] == key)
    return;
  timesOf[back] = key;
  if (lanes == 1)
    return boundExchange(plan, back);
  if (plan.schedule == MOIRA_SCHEDULE_GROUPS)
    for (int i = 0; i < groupCount; ++i)
      measure(ofGroup(i), plan, back, times[back][i]);
  else
    measure(flows.pairs().data(), plan, back, times[back][0]);
}

/// Of a large grid: by its links.
void LayerModel::boundExchange(const LayerPlan &plan, bool back) {
  bool groups = plan.schedule == MOIRA_SCHEDULE_GROUPS;
  bool stages = plan.exchange == 1 && hierarchical && !groups;
  if (!trafficSet) {
    traffic->set(flows.pairs());
    trafficSet = true;
    stagesSet = false;
  }
  if (stages && !stagesSet) {
    traffic->setStages(flows.pairs());
    stagesSet = true;
  }
  int count = groups ? groupCount : 1;
  for (int i = 0; i < count; ++i) {
    LinkBound bound = groups   ? traffic->group(i, back)
                      : stages ? traffic->hierarchical(back)
                               : traffic->linear(back);
    times[back][i].zero[0] = bound.zero;
    times[back][i].perByte[0] = bound.perByte;
  }
}

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

/// Rows of a slot fall into the chunks piece by piece: one of n rows has rows
/// in min(n, degree) of them, the last one among these.
void LayerModel::timeEqual(const LayerPlan &plan, const KernelCurve &curve) {
  int degree = chunks.count = plan.degree;
  double share = 1.0 / plan.copies;
  for (int i = 0; i < degree; ++i)
    std::fill(chunks.compute[i].begin(), chunks.compute[i].end(), 0);
  int slots = flows.slotsWithShadows();
  int ranks = lanes > 1 ? layer.ranks : int(busiest.size());
  for (int r = 0; r < ranks; ++r) {
    int rank = lanes > 1 ? r : busiest[r];
    std::fill(byParts.begin(), byParts.begin() + degree + 1, 0);
    for (int slot = 0; slot < slots; ++slot) {
      double rows = flows.slotRows(rank, slot);
      if (rows <= 0)
        continue;
      double sources = slot < layer.slots ? layer.ranks : 1;
      int parts = int(std::clamp<double>(rows / sources, 1, degree));
      byParts[parts] += share * curve.group(rows / parts);
    }
    double sum = 0;
    int lane = lanes > 1 ? rank : 0;
    for (int i = 0; i < degree; ++i) {
      sum += byParts[degree - i];
      double &place = chunks.compute[i][lane];
      place = std::max(place, curve.call + sum);
    }
  }
}

/// Chunks of few rows, exactly: which of them have any decides.
void LayerModel::timePieces(const LayerPlan &plan, const KernelCurve &curve) {
  int degree = chunks.count = plan.degree;
  int slots = flows.slotsWithShadows();
  double share = 1.0 / plan.copies;
  timesOf[0] = timesOf[1] = -1; // taken up here
  for (int i = 0; i < degree; ++i) {
    flows.chunk(i, degree, subset, pieceSlots);
    measure(subset.data(), plan, false, times[0][i]);
    measure(subset.data(), plan, true, times[1][i]);
    for (int rank = 0; rank < layer.ranks; ++rank) {
      double sum = curve.call;
      for (int slot = 0; slot < slots; ++slot)
        sum += share * curve.group(pieceSlots[size_t(rank) * slots + slot]);
      chunks.compute[i][rank] = sum;
    }
  }
}

void LayerModel::timeGroups(const LayerPlan &plan, const KernelCurve &curve) {
  int n = chunks.count = groupCount;
  double share = 1.0 / plan.copies;
  int slots = flows.slotsWithShadows();
  for (int i = 0; i < n; ++i)
    std::fill(chunks.compute[i].begin(), chunks.compute[i].end(), 0);
  int ranks = lanes > 1 ? layer.ranks : int(busiest.size());
  for (int r = 0; r < ranks; ++r)
    for (int i = 0; i < n; ++i) {
      int rank = lanes > 1 ? r : busiest[r];
      int group = n == 1 ? 0 : (rank / rankGroupSize + i) % n;
      double sum = curve.call;
      for (int slot = 0; slot < slots; ++slot)
        sum += share * curve.group(flows.groups() == n && n > 1
                                       ? flows.slotRowsFrom(group, rank, slot)
                                       : flows.slotRows(rank, slot) / n);
      double &place = chunks.compute[i][lanes > 1 ? rank : 0];
      place = std::max(place, sum);
    }
}

/// r = 0: each rank's own rows through all experts. On large grids only of the
/// rank with most rows.
void LayerModel::timeOwn(const KernelCurve &curve) {
  chunks.count = 1;
  std::fill(chunks.compute[0].begin(), chunks.compute[0].end(), 0);
  for (int rank = lanes > 1 ? 0 : fullest;
       rank < (lanes > 1 ? layer.ranks : fullest + 1); ++rank) {
    const int32_t *mine = counts + size_t(rank) * layer.experts;
    double sum = curve.call;
    for (int e = 0; e < layer.experts; ++e)
      sum += curve.group(mine[e]);
    double &place = chunks.compute[0][lanes > 1 ? rank : 0];
    place = std::max(place, sum);
  }
}
