// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A program of two layers for several ranks, written by hand as the compiler
// would make it: variants of three kinds, each for few and for many rows.

#ifndef MOIRA_UNITTESTS_RUNTIME_ADAPTIVEPROGRAM_H
#define MOIRA_UNITTESTS_RUNTIME_ADAPTIVEPROGRAM_H

#include "Runtime/TestProgram.h"

#include <atomic>

namespace moira::test {

/// Experts scale rows: y = x * w0[e0] * w1[e1], where a row's experts come from
/// its own first element. A product is rounded alike wherever it is computed.
struct AdaptiveProgram {
  static constexpr int ranks = 4, experts = 8, slots = 3, features = 4;
  static constexpr int layers = 2;
  static constexpr int64_t manyRows = 8; ///< from here on: prefill

  /// Variants "r0-decode", "r0-prefill", "r1-decode", ..., "r1-groups-prefill".
  /// Those of r = 0 are of the class `gathered`.
  static runtime::Manifest manifest(const char *gathered = "f32");
  static std::shared_ptr<const runtime::Program>
  make(const char *gathered = "f32");

  /// [experts, features] of a layer.
  static std::vector<float> weights(int layer);
  static void bind(runtime::Session &session);
  /// A rank's session with these options, on one thread, with weights. The
  /// caller's communicator ends after it.
  static std::unique_ptr<runtime::Session> open(runtime::Communicator &group,
                                                runtime::SessionOptions options,
                                                const char *gathered = "f32");
  /// A step of compact rows, whose results are compared with `expect`.
  static Status run(runtime::Session &session, const std::vector<float> &x);
  /// Rows whose experts are drawn; `skew` of 4 rows go to expert 0.
  static std::vector<float> rows(int64_t count, uint64_t seed, int skew);
  static std::vector<float> expect(const std::vector<float> &x);

  /// Where a rank's last step found its weights, and which variant it was.
  static std::atomic<const void *> seenWeights[ranks];
  static std::atomic<int> seenVariant[ranks];
};

} // namespace moira::test

#endif // MOIRA_UNITTESTS_RUNTIME_ADAPTIVEPROGRAM_H
