// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A program and its way back as one: its results, then its gradients. And the
// comparison of those gradients with differences of the results.

#ifndef MOIRA_UNITTESTS_AUTODIFF_GRADIENTPROGRAM_H
#define MOIRA_UNITTESTS_AUTODIFF_GRADIENTPROGRAM_H

#include "Conformance/Harness.h"

namespace moira::autodiff {

using conformance::Outputs;
using reference::Argument;

struct GradientOptions {
  bool oracle = true;
  bool recompute = false;
  unsigned optLevel = 0;
  int threads = 1;
  /// Blocks that hidden dimensions of experts are summed in.
  int64_t hiddenBlocks = 1;
};

/// What one run gives: gradients in the order of the arguments that have one.
struct GradientRun {
  Outputs results, gradients;
};

class GradientProgram {
public:
  /// Differentiates and compiles `@main` of a module. Fails the test where that
  /// is not possible; nothing runs then.
  explicit GradientProgram(const std::string &text,
                           const GradientOptions &options = {});

  /// Parameters are arguments like others. `seeds` are the gradients of the
  /// float results.
  GradientRun run(const std::vector<Argument> &arguments,
                  const std::vector<Argument> &seeds);
  /// The results of the program without gradients, by the oracle.
  Outputs runPlain(const std::vector<Argument> &arguments) const;
  /// Gradients to begin with, for the results that the arguments lead to.
  std::vector<Argument> makeSeeds(const std::vector<Argument> &arguments,
                                  unsigned seed) const;
  /// The number of the argument that gradient i belongs to.
  unsigned getArgument(unsigned i) const { return argumentOf[i]; }
  bool isValid() const { return runner != nullptr; }

private:
  std::unique_ptr<conformance::Runner> runner;
  std::string forward;
  unsigned numResults = 0;
  int64_t hiddenBlocks = 1;
  std::vector<unsigned> argumentOf;
};

/// The first error of differentiating `@main`, empty where there is none.
std::string getDifferentiationError(const std::string &text);

/// Numbers in (-1, 1) for every float result of `run`: gradients to begin with.
std::vector<Argument> makeSeeds(const Outputs &results, unsigned seed);

struct CheckOptions {
  GradientOptions program;
  double step = 1e-6, tolerance = 1e-6;
  /// Elements of each argument that are moved; all where there are fewer.
  unsigned maxElements = 40;
  unsigned seed = 1;
};

/// How many elements were compared, and how many not, since the program took
/// other decisions (its integer results changed) near them.
struct CheckCounts {
  unsigned compared = 0, skipped = 0;
};

/// Compares the gradients of a program whose floats are f64 with central
/// differences of its results. The first difference in words, or nothing.
std::string checkGradients(const std::string &text,
                           const std::vector<Argument> &arguments,
                           const CheckOptions &options = {},
                           CheckCounts *counts = nullptr);

/// An f64 argument with numbers in (low, high), the same for the same seed.
Argument randomArgument(const std::string &name, std::vector<int64_t> shape,
                        unsigned seed, double low = -1, double high = 1);

} // namespace moira::autodiff

#endif // MOIRA_UNITTESTS_AUTODIFF_GRADIENTPROGRAM_H
