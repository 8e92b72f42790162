// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A layer and a plan, as far as time and memory depend on them.

#ifndef MOIRA_RUNTIME_COST_LAYERSHAPE_H
#define MOIRA_RUNTIME_COST_LAYERSHAPE_H

#include "base/Status.h"
#include "moira/abi.h"

#include <cstdint>
#include <vector>

namespace moira::runtime {

/// One parameter of the experts.
struct WeightShape {
  int64_t bytes = 0;         ///< of one slot
  int64_t gradientBytes = 0; ///< of its gradient
  bool replicated = false;   ///< each shard's holder has all of it
};

struct LayerShape {
  int ranks = 1;
  int experts = 1;
  int shards = 1; ///< ranks that share an expert
  int slots = 1;  ///< of each rank, spare ones among them
  // Bytes of a row that travels, forward and backward.
  int64_t rowBytes = 0;            ///< to experts
  int64_t resultBytes = 0;         ///< to tokens, r = 1
  int64_t partialBytes = 0;        ///< to tokens, r > 1
  int64_t resultGradientBytes = 0; ///< backward, to experts
  int64_t rowGradientBytes = 0;    ///< backward, to tokens
  /// Memory of a row inside of an expert, all shards together.
  int64_t hiddenBytes = 0;
  std::vector<WeightShape> weights;
  /// A step has a backward part.
  bool training = false;
  /// The backward part gathers weights again instead of keeping them.
  bool gathersAgain = false;
  /// The backward part's exchanges are not cut, whatever the plan: compiled
  /// programs need all rows for the gradients of weights.
  bool backInOneChunk = false;
  /// Weights of shadows follow the counts, by which they were chosen, instead
  /// of beginning with the step.
  bool lateShadows = false;

  int units() const { return experts * shards; }
  /// Slots that no unit of an identity table needs.
  int spareSlots() const { return slots - (units() + ranks - 1) / ranks; }
  Status check() const;
  /// The table that a step has without shadows: units dealt out evenly, in
  /// order, spare slots free. (The null table would fill the first ranks'.)
  std::vector<int32_t> evenTable() const;
};

/// What a plan decides, without its table.
struct LayerPlan {
  int copies = 1;   ///< r
  int schedule = 0; ///< MOIRA_SCHEDULE_EQUAL or MOIRA_SCHEDULE_GROUPS
  int degree = 1;   ///< chunks of MOIRA_SCHEDULE_EQUAL
  int exchange = 0; ///< 0 linear, 1 hierarchical
  int shadows = 0;  ///< experts that all ranks hold in this step

  /// What the backward part of a step with this plan runs with.
  LayerPlan back(const LayerShape &shape) const {
    LayerPlan plan = *this;
    if (shape.backInOneChunk) {
      plan.degree = 1;
      plan.schedule = MOIRA_SCHEDULE_EQUAL;
    }
    return plan;
  }
  bool operator==(const LayerPlan &o) const {
    return copies == o.copies && schedule == o.schedule && degree == o.degree &&
           exchange == o.exchange && shadows == o.shadows;
  }
  bool operator!=(const LayerPlan &o) const { return !(*this == o); }
};

/// How the weights of a shadowed expert reach all ranks. Gradients come back to
/// the owner straight from each rank, which adds them in the order of ranks.
enum class ShadowTransport {
  Direct, ///< the owner sends to each
  Tree,   ///< a binomial tree: Broadcast in collective/Collective.h
  Split,  ///< a part to each rank, then all gather: twice the bytes once
  BySize  ///< what shadowTransport says, as communicators do it
};

/// How a unit's bytes go to `ranks` ranks, the owner among them: down a tree
/// while latencies count, in parts from 256 KiB on, where a tree of four and
/// more sends them twice and more through one link.
ShadowTransport shadowTransport(int ranks, int64_t bytes);

/// Where a step's time goes, seconds of the rank that ends last, and the most
/// memory that a rank needs beside its own weights and tokens.
struct LayerPrediction {
  double seconds = 0;  ///< forward, and backward where the shape says so
  double compute = 0;  ///< of the rank with most, experts alone
  double exchange = 0; ///< that the queue is busy with rows
  double weights = 0;  ///< and with weights and gradients
  int64_t peakBytes = 0;
};

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_COST_LAYERSHAPE_H
