// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How exchanges, products and weights of a step follow each other.

#include "cost/LayerModel.h"

#include <algorithm>

using namespace moira;
using namespace moira::runtime;

/// Rows of a chunk's piece below which chunks are told apart.
static constexpr double fewRows = 4;

static double largest(const std::vector<double> &lanes) {
  return *std::max_element(lanes.begin(), lanes.end());
}

/// An exchange begins when all of its ranks are there.
void LayerModel::synchronize(Lanes &list) const {
  double last = largest(list);
  std::fill(list.begin(), list.end(), last);
}

/// Moves the queue on by a chunk's exchange; `queue` has when it can begin.
void LayerModel::exchange(int chunk, bool back, double rowBytes,
                          LayerPrediction &sum) {
  bool equal = current.schedule == MOIRA_SCHEDULE_EQUAL && !byPieces;
  double parts = equal ? current.degree - emptyChunks : 1;
  if (equal && chunk < emptyChunks)
    return;
  const Duration &time = times[back][equal ? 0 : chunk];
  double begin = largest(queue);
  if (detail == Detail::Careful && lanes > 1) {
    run(time, rowBytes / parts, queue);
    sum.exchange += largest(queue) - begin;
    return;
  }
  double busy = 0;
  for (int lane = 0; lane < lanes; ++lane) {
    double seconds = time.zero[lane] + time.perByte[lane] * rowBytes / parts;
    // A rank without messages waits for nobody.
    if (seconds > 0)
      queue[lane] = begin + seconds;
    busy = std::max(busy, seconds);
  }
  sum.exchange += busy;
}

/// Gradients of gathered weights and of shadows follow the last exchange.
void LayerModel::reduceWeights(const Weights &weights, const LayerPlan &plan) {
  if (current.copies == 0)
    std::copy(clock.begin(), clock.end(), queue.begin());
  if (detail == Detail::Careful && lanes > 1) {
    for (const WeightShape &weight : layer.weights)
      if (weight.gradientBytes > 0)
        batch.run(weights.back[weight.replicated], double(weight.gradientBytes),
                  queue);
  } else {
    double begin = largest(queue);
    for (int lane = 0; lane < lanes; ++lane)
      if (weights.reduce[lane] > 0)
        queue[lane] = begin + weights.reduce[lane];
  }
  returnShadows(plan);
}

/// One way of a step: docs/ranks.md, "Schedules". Returns its end.
double LayerModel::pass(const LayerPlan &plan, bool backward,
                        LayerPrediction &sum) {
  const KernelCurve &curve = backward ? costs.backward : costs.forward;
  const Weights &weights = weightsOf(plan.copies);
  std::fill(queue.begin(), queue.end(), 0);
  std::fill(clock.begin(), clock.end(), 0);
  if (!backward && !layer.lateShadows)
    sendShadows(plan);
  if (!backward || layer.gathersAgain)
    for (int lane = 0; lane < lanes; ++lane)
      queue[lane] += weights.gather[lane];
  sum.weights += largest(queue);
  if (!backward) {
    for (int lane = 0; lane < lanes; ++lane)
      clock[lane] = std::max(queue[lane], costs.gate.at(own[lane]));
    synchronize(clock);
    for (int lane = 0; lane < lanes; ++lane)
      queue[lane] = clock[lane] += countsTime[lane];
    if (layer.lateShadows) {
      double begin = largest(queue);
      sendShadows(plan);
      sum.weights += largest(queue) - begin;
    }
  }
  for (int lane = 0; lane < lanes; ++lane)
    clock[lane] += costs.dispatch.at(own[lane]);

  if (plan.copies == 0) {
    timeOwn(curve);
    for (int lane = 0; lane < lanes; ++lane)
      clock[lane] =
          std::max(clock[lane], queue[lane]) + chunks.compute[0][lane];
    sum.compute += largest(chunks.compute[0]);
  } else {
    if (byPieces) {
      timePieces(plan, curve);
    } else {
      timeExchange(plan, false);
      timeExchange(plan, true);
      plan.schedule == MOIRA_SCHEDULE_GROUPS ? timeGroups(plan, curve)
                                             : timeEqual(plan, curve);
    }
    double there = backward ? layer.resultGradientBytes : layer.rowBytes;
    double back = backward          ? layer.rowGradientBytes
                  : plan.copies > 1 ? layer.partialBytes
                                    : layer.resultBytes;
    for (int lane = 0; lane < lanes; ++lane)
      queue[lane] = std::max(queue[lane], clock[lane]);
    for (int i = 0; i < chunks.count; ++i) {
      exchange(i, false, there, sum);
      std::copy(queue.begin(), queue.end(), arrived[i].begin());
    }
    double busy = 0;
    for (int i = 0; i < chunks.count; ++i)
      busy += largest(chunks.compute[i]);
    sum.compute += busy;
    // What comes back is started when its product ends, in the queue's order:
    // `arrived` becomes the ends of products.
    for (int i = 0; i < chunks.count; ++i)
      for (int lane = 0; lane < lanes; ++lane)
        arrived[i][lane] = clock[lane] =
            std::max(clock[lane], arrived[i][lane]) + chunks.compute[i][lane];
    for (int i = 0; i < chunks.count; ++i) {
      for (int lane = 0; lane < lanes; ++lane)
        queue[lane] = std::max(queue[lane], arrived[i][lane]);
      exchange(i, true, back, sum);
    }
    for (int lane = 0; lane < lanes; ++lane)
      clock[lane] = std::max(clock[lane], queue[lane]);
  }
  if (backward) {
    double begin = largest(queue);
    reduceWeights(weights, plan);
    sum.weights += largest(queue) - begin;
  }
  for (int lane = 0; lane < lanes; ++lane)
    clock[lane] += costs.combine.at(own[lane] * std::max(plan.copies, 1));
  for (int lane = 0; lane < lanes && backward; ++lane)
    clock[lane] = std::max(clock[lane], queue[lane]);
  return largest(clock);
}

LayerPrediction LayerModel::predict(const LayerPlan &plan, Detail wanted) {
  LayerPrediction result;
  detail = wanted;
  emptyChunks = 0;
  byPieces = false;
  current.copies = plan.copies ? current.copies : 0;
  if (plan.copies > 0) {
    select(plan);
    if (plan.schedule == MOIRA_SCHEDULE_EQUAL && plan.degree > 1) {
      double rows = allRows * plan.copies, pieces = flows.pieceCount();
      double mean = pieces > 0 ? rows / pieces : 0;
      byPieces = detail == Detail::Careful && lanes > 1 &&
                 mean < fewRows * plan.degree;
      emptyChunks = plan.degree - int(std::clamp<double>(mean, 1, plan.degree));
    }
  }
  result.seconds = pass(plan, false, result);
  if (layer.training) {
    LayerPlan back = plan.back(layer);
    if (back != plan) {
      current.degree = back.degree;
      current.schedule = back.schedule;
      byPieces = false;
      emptyChunks = 0;
    }
    result.seconds += pass(back, true, result);
  }
  result.peakBytes = peak(plan);
  return result;
}

int64_t LayerModel::peak(const LayerPlan &plan) const {
  const Weights &weights = weightsOf(plan.copies);
  int64_t result = weights.bytes;
  if (layer.training)
    result += weights.gradientBytes;
  double away = 0;
  if (plan.copies > 0) {
    for (int rank = 0; rank < layer.ranks && lanes > 1; ++rank) {
      double rows = 0;
      for (int slot = 0; slot < flows.slotsWithShadows(); ++slot)
        rows += flows.slotRows(rank, slot);
      away = std::max(away, rows);
    }
    if (lanes == 1)
      away = rankRows[busiest[0]];
    double back = plan.copies > 1 ? layer.partialBytes : layer.resultBytes;
    result += int64_t(away * (double(layer.rowBytes) + back));
    result += int64_t(mostRows * double(plan.copies) * back);
    // Hidden rows of one chunk, or of all where the way back needs them.
    double hidden = double(layer.hiddenBytes) / plan.copies;
    int parts = plan.schedule == MOIRA_SCHEDULE_EQUAL ? plan.degree : 1;
    result += int64_t(away * hidden / (layer.training ? 1 : parts));
  } else {
    result += int64_t(mostRows * double(layer.hiddenBytes + layer.resultBytes));
  }
  return result + int64_t(mostRows * double(layer.rowBytes));
}
