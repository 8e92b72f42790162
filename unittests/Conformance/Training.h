// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Programs with their way back, for tests that compare gradients and losses.

#ifndef MOIRA_UNITTESTS_CONFORMANCE_TRAINING_H
#define MOIRA_UNITTESTS_CONFORMANCE_TRAINING_H

#include "session/Session.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

namespace moira::conformance {

/// The content of a file; the test fails where there is none.
std::string readText(const std::string &path);

/// Compiles text with gradients and these optimizers, as product or oracle; the
/// test fails where that fails.
std::shared_ptr<const runtime::Program>
compileTraining(const std::string &text,
                const std::vector<std::string> &updates = {},
                bool isOracle = false);

} // namespace moira::conformance

#define MOIRA_ASSERT_OK(expression)                                            \
  do {                                                                         \
    ::moira::Status moiraTested = (expression);                                \
    ASSERT_TRUE(moiraTested.ok()) << moiraTested.message;                      \
  } while (false)

#endif // MOIRA_UNITTESTS_CONFORMANCE_TRAINING_H
