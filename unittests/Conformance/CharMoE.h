// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// examples/char-moe, with the weights of its init.py and the batches of its
// model.py.

#ifndef MOIRA_UNITTESTS_CONFORMANCE_CHARMOE_H
#define MOIRA_UNITTESTS_CONFORMANCE_CHARMOE_H

#include "session/Session.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace moira::conformance {

/// Bytes and next bytes of a batch, `[batch, 64]`.
struct CharBatch {
  std::vector<int32_t> tokens, targets;
  int64_t sequences;
};

/// Batch number `step` of a text, by a counter (model.py: windows).
CharBatch makeCharBatch(const std::string &text, uint64_t seed, int64_t step,
                        int64_t batch);

/// The weights that init.py writes, by the names of the program's parameters.
class CharWeights {
public:
  explicit CharWeights(uint64_t seed);
  testing::AssertionResult bind(runtime::Session &session) const;

private:
  struct Parameter {
    std::string name; ///< with {} for experts, which are put together
    runtime::Shape shape;
    std::vector<float> values;
  };
  std::vector<Parameter> parameters;
};

/// Compiles the example with its way back and AdamW.
std::shared_ptr<const runtime::Program> compileCharMoE();

/// The rows of a .csv file of test/fixtures/char-moe, without the first; the
/// first column is the key.
std::vector<std::pair<std::string, std::vector<double>>>
readFixture(const std::string &name);

} // namespace moira::conformance

#endif // MOIRA_UNITTESTS_CONFORMANCE_CHARMOE_H
