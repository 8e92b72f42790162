// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A small program with a loss, its steps there and back on one rank or many.

#ifndef MOIRA_UNITTESTS_CONFORMANCE_GRADIENTLAYER_H
#define MOIRA_UNITTESTS_CONFORMANCE_GRADIENTLAYER_H

#include "Conformance/Harness.h"
#include "collective/Communicator.h"

namespace moira::conformance {

/// A grid that the program is compiled for, once for all plans.
struct GradientGrid {
  int ranks, experts, copies;
  bool groups = false, padded = false;
  int spare = 0;
  bool recompute = false;

  int shards() const { return std::max(1, ranks / experts); }
  int slots() const { return std::max(1, experts / ranks) + spare; }
};

std::ostream &operator<<(std::ostream &stream, const GradientGrid &grid);

/// A router, gated experts with biases, a scale; a sum over all tokens as loss.
struct GradientLayer {
  static constexpr int64_t features = 9, outFeatures = 7;
  int64_t experts = 1, hidden = 16;
  bool padded = false;
  /// Choices weigh what their logits say, so that integers stay integers.
  bool integers = false;

  std::string print() const;
  /// A value of the argument: small integers, or numbers in (-1, 1).
  double value(int argument, int64_t i) const;
};

/// The arguments of the program, in order; all but `x` are parameters.
struct GradientArgument {
  const char *name;
  runtime::Shape shape;
};
std::vector<GradientArgument> argumentsOf(const GradientLayer &layer);

/// What a step gives: loss and y, and the gradients of x and all parameters.
struct GradientStep {
  Outputs results, gradients;
};

/// Sessions of all ranks of a compiled program.
class GradientRanks {
public:
  GradientRanks(std::shared_ptr<const runtime::Program> program, int ranks,
                int ranksPerNode = 0);

  void bind(const GradientLayer &layer);
  void setPlan(const runtime::PlanOptions &plan);
  /// A step on each rank's tokens of one batch; results and gradients by rank.
  /// `blocks`: the program has that input. Before the way back traffic is
  /// reset.
  std::vector<GradientStep> run(const GradientLayer &layer,
                                const std::vector<int32_t> &tokens,
                                bool blocks = false);
  runtime::Session &session(int rank) { return *runners[rank]->get(); }
  /// Traffic of the last step's way there, and of its way back.
  const runtime::Traffic &traffic(int rank, bool back) const {
    return (back ? backTraffic : thereTraffic)[rank];
  }

private:
  GradientStep runRank(size_t rank, const GradientLayer &layer, int64_t first,
                       int64_t count, const std::vector<int32_t> *blocks);

  std::vector<std::unique_ptr<Runner>> runners;
  std::vector<runtime::Communicator *> communicators;
  std::vector<runtime::Traffic> thereTraffic, backTraffic;
};

} // namespace moira::conformance

#endif // MOIRA_UNITTESTS_CONFORMANCE_GRADIENTLAYER_H
