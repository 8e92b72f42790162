// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Comparing what a run computed with what the oracle computed.

#ifndef MOIRA_TOOLS_SUPPORT_COMPARE_H
#define MOIRA_TOOLS_SUPPORT_COMPARE_H

#include "base/Types.h"

#include <string>
#include <vector>

namespace moira::tools {

/// Elements of one result, or of several together.
struct Comparison {
  int64_t elements = 0;
  int64_t identical = 0; ///< bit for bit
  double maxAbsolute = 0;
  /// Largest error over the largest magnitude in the oracle's row.
  double maxRelative = 0;
  /// The errors beyond the bound; one is a failure.
  int64_t beyond = 0;
  std::string firstBeyond; ///< "result 0 [3, 17]: expected 1.5, got 1.25"

  void add(const Comparison &other);
};

/// The largest relative error (see Comparison) that counts as rounding: a few
/// units in the last place. 0 for integers.
double relativeBound(runtime::DataType dtype);

/// Compares tensors of equal type and shape; `name` is for messages. NaN equals
/// NaN, an infinity only itself.
Comparison compareValues(const std::string &name,
                         const runtime::TensorView &expected,
                         const runtime::TensorView &found);

/// Which experts a run chose, compared with the logits of the oracle.
struct Choices {
  int64_t tokens = 0;
  int64_t exact = 0;  ///< tokens whose ids are the oracle's own
  double epsilon = 0; ///< of a score's difference, over the row's largest
  int64_t wrong = 0;
  std::string firstWrong;

  void add(const Choices &other);
};

/// Checks ids `[T, K]` (i32) against logits `[T, E]`: distinct, in range, and
/// in order the K largest logits, up to epsilon times the largest magnitude in
/// the row.
Choices checkTopK(const std::string &name, const runtime::TensorView &logits,
                  const runtime::TensorView &ids);

/// Checks ids against the oracle's own, exactly.
Choices checkEqual(const std::string &name, const runtime::TensorView &expected,
                   const runtime::TensorView &ids);

} // namespace moira::tools

#endif // MOIRA_TOOLS_SUPPORT_COMPARE_H
