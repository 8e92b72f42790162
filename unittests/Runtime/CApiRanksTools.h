// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Ranks of TestRanks.c through the C API.

#ifndef MOIRA_UNITTESTS_RUNTIME_CAPIRANKSTOOLS_H
#define MOIRA_UNITTESTS_RUNTIME_CAPIRANKSTOOLS_H

#include "Runtime/CApiTools.h"
#include "moira/ranks.h"

#include <functional>
#include <memory>
#include <string>
#include <thread>

namespace moira::test {

inline constexpr int ranks = 2, features = 4;

inline moira_ranks_options timeoutOf(double seconds) {
  moira_ranks_options options{};
  options.struct_size = sizeof(options);
  options.timeout = seconds;
  return options;
}

/// Row t of rank r, small integers.
inline std::vector<float> rowsOf(int rank, int64_t rows) {
  std::vector<float> x;
  for (int64_t i = 0; i < rows * features; ++i)
    x.push_back(float(i * 5 % 13 - 6 + rank));
  return x;
}

/// A rank's session, with weight[e][k] = 10 e + k.
struct Rank {
  Rank(moira_bundle *bundle, moira_ranks *group) {
    moira_session_options options{};
    options.struct_size = sizeof(options);
    options.threads = 1;
    options.ranks = group;
    EXPECT_CODE(moira_session_create(bundle, &options, &session), MOIRA_OK);
    bind();
  }
  ~Rank() { moira_session_destroy(session); }
  Rank(const Rank &) = delete;
  Rank &operator=(const Rank &) = delete;

  void bind() {
    std::vector<float> weights;
    for (int e = 0; e < 4; ++e)
      for (int k = 0; k < features; ++k)
        weights.push_back(float(10 * e + k));
    Floats scale(weights, {4, features});
    EXPECT_CODE(moira_session_bind(session, "experts.{}.scale", scale.dl()),
                MOIRA_OK);
  }

  /// Runs a step and compares what it gives.
  int32_t step(int rank, int64_t rows) {
    std::vector<float> x = rowsOf(rank, rows);
    Floats input(x, {rows, features});
    const DLTensor *inputs[] = {input.dl()};
    DLManagedTensor *result = nullptr;
    int32_t code =
        moira_session_invoke(session, nullptr, inputs, 1, &result, 1);
    if (code != MOIRA_OK)
      return code;
    auto *y = static_cast<float *>(result->dl_tensor.data);
    for (int64_t i = 0; i < rows * features; ++i) {
      int64_t expert = i / features % 4;
      EXPECT_EQ(y[i], x[i] * float(10 * expert + i % features));
    }
    result->deleter(result);
    return MOIRA_OK;
  }

  moira_session *session = nullptr;
};

/// The bundle, and its ranks as threads of this process.
struct RankGroup : testing::Test {
  moira_bundle *bundle = nullptr;
  moira_ranks *group[ranks] = {};

  void SetUp() override {
    moira_ranks_options options = timeoutOf(20);
    ASSERT_CODE(moira_bundle_open(MOIRA_TEST_RANKS_BUNDLE, &bundle), MOIRA_OK);
    ASSERT_CODE(moira_ranks_threads(ranks, &options, group), MOIRA_OK);
  }
  void TearDown() override {
    for (moira_ranks *rank : group)
      moira_ranks_destroy(rank);
    moira_bundle_close(bundle);
  }
};

/// Calls `body` for each rank on a thread of its own.
inline void onThreads(const std::function<void(int)> &body, int count = ranks) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < count; ++rank)
    threads.emplace_back(body, rank);
  for (std::thread &thread : threads)
    thread.join();
}

} // namespace moira::test

#endif // MOIRA_UNITTESTS_RUNTIME_CAPIRANKSTOOLS_H
