// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Programs for tests: the one of TestModule.c, and ones of a single entry made
// from a function.

#ifndef MOIRA_UNITTESTS_RUNTIME_TESTPROGRAM_H
#define MOIRA_UNITTESTS_RUNTIME_TESTPROGRAM_H

#include "session/Program.h"
#include "session/Session.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

namespace moira::test {

/// The manifest of TestModule.c: entry "main" (x: f32[?, 4] -> f32[?, 4]) with
/// variants "decode" and "prefill" (from 8 rows), parameters
/// "experts.{}.weight" (2 slices of f32[4, 4]) and "bias" (f32[4]).
runtime::Manifest testManifest();

/// The manifest of TestRanks.c: entry "main" for two ranks (x: f32[?, 4] ->
/// f32[?, 4]) with variants "equal" and "groups", parameter
/// "experts.{}.scale" (f32[4] for each of four experts).
runtime::Manifest ranksManifest();

/// TestModule.c linked into the test.
std::shared_ptr<const runtime::Program> testProgram();

/// An entry "main" with one input f32[?] and `results` results f32[?], no
/// layer but TEST_LAYER, and one variant.
std::shared_ptr<const runtime::Program>
entryProgram(moira_step_entry step, int results = 1,
             moira_workspace_entry workspace = nullptr);

/// A session of a program, with its parameters bound at random; the test
/// fails where that fails.
std::unique_ptr<runtime::Session>
testSession(std::shared_ptr<const runtime::Program> program,
            const runtime::SessionOptions &options = {});

/// Weights of TestModule.c in the file's order.
struct TestWeights {
  std::vector<float> weight; ///< [2, 4, 4]
  std::vector<float> bias;   ///< [4]

  /// Small integers: every sum is exact.
  static TestWeights integers();
  void bind(runtime::Session &session) const;
  /// What the step gives for `x` of [rows, 4].
  std::vector<float> expect(const std::vector<float> &x) const;
};

runtime::TensorView view(const std::vector<float> &data, runtime::Shape shape);
/// The elements of an f32 result.
std::vector<float> values(const runtime::ResultTensor &result);

/// Small integers that differ from row to row.
std::vector<float> integerRows(int64_t rows, int64_t features = 4);

} // namespace moira::test

/// Both check a Status, or the status of a Result, and print its message.
#define EXPECT_OK(expression)                                                  \
  do {                                                                         \
    ::moira::Status moiraTested = (expression);                                \
    EXPECT_TRUE(moiraTested.ok()) << moiraTested.message;                      \
  } while (false)
#define ASSERT_OK(expression)                                                  \
  do {                                                                         \
    ::moira::Status moiraTested = (expression);                                \
    ASSERT_TRUE(moiraTested.ok()) << moiraTested.message;                      \
  } while (false)
#define EXPECT_ERROR(expression, expectedCode, expectedMessage)                \
  do {                                                                         \
    ::moira::Status moiraTested = (expression);                                \
    EXPECT_EQ(moiraTested.code, expectedCode);                                 \
    EXPECT_EQ(moiraTested.message, expectedMessage);                           \
  } while (false)

#endif // MOIRA_UNITTESTS_RUNTIME_TESTPROGRAM_H
