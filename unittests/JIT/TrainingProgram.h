// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A program with a way back, written by hand, for tests of what runs one.

#ifndef MOIRA_UNITTESTS_JIT_TRAININGPROGRAM_H
#define MOIRA_UNITTESTS_JIT_TRAININGPROGRAM_H

#include "moira/jit.h"
#include "session/Session.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

namespace moira::test {

/// y = x w^T + b with its gradients: `@main(x[?, 8], w[6, 8], b[6]) -> y[?, 6]`
/// and `@main_backward`, in an element type ("f32"; "bf16", "f64").
std::string linearProgram(const std::string &type);

/// Compiles text; the test fails where that fails.
std::shared_ptr<const runtime::Program>
compileProgram(const std::string &text, const JitOptions &options = {});

/// The same of a file of the source tree.
std::shared_ptr<const runtime::Program> compileFile(const std::string &path,
                                                    const JitOptions &options);

/// Options of a program with the code of all optimizers.
JitOptions withOptimizers();

std::unique_ptr<runtime::Session>
makeSession(std::shared_ptr<const runtime::Program> program,
            const runtime::SessionOptions &options = {});

/// Small integers, another list for each seed.
std::vector<float> numbers(int64_t count, int seed);
runtime::TensorView view(const std::vector<float> &data, runtime::Shape shape);
std::vector<float> floats(const runtime::ResultTensor &result);

/// The gradients that the hand-written program has for `dy`.
struct LinearGradients {
  std::vector<float> x, w, b;
  LinearGradients(const std::vector<float> &x, const std::vector<float> &w,
                  const std::vector<float> &dy);
};

} // namespace moira::test

#define ASSERT_OK(expression)                                                  \
  do {                                                                         \
    ::moira::Status moiraTested = (expression);                                \
    ASSERT_TRUE(moiraTested.ok()) << moiraTested.message;                      \
  } while (false)
#define EXPECT_OK(expression)                                                  \
  do {                                                                         \
    ::moira::Status moiraTested = (expression);                                \
    EXPECT_TRUE(moiraTested.ok()) << moiraTested.message;                      \
  } while (false)
#define EXPECT_FAILURE(expression, text) EXPECT_EQ((expression).message, text)

#endif // MOIRA_UNITTESTS_JIT_TRAININGPROGRAM_H
