// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a folder that scripts/gpu-check has made asks for: cases.json.

#ifndef MOIRA_TOOLS_MOIRA_GPU_CHECK_CASES_H
#define MOIRA_TOOLS_MOIRA_GPU_CHECK_CASES_H

#include "base/Status.h"
#include "base/Types.h"

#include <string>
#include <vector>

namespace moira::tools {

/// A program whose results are known.
struct ConformanceCase {
  std::string name;
  std::string bundle;   ///< file
  std::string arch;     ///< of its kernels: "sm_80", "sm_90a"
  std::string inputs;   ///< safetensors with every input by name
  std::string expected; ///< the same of every result
  bool exact = false;   ///< every bit, else within rounding
  bool backward = false;
  bool small = false; ///< short under compute-sanitizer
};

/// How an input of a measured program is made.
struct MadeInput {
  runtime::DataType dtype = runtime::DataType::F32;
  runtime::Shape shape;
  /// "uniform": in +-bound; "repeat": the same, a block of 32 MiB again and
  /// again; "permutation": of all integers below the size; "even": each
  /// element is `value`.
  std::string fill;
  double bound = 1;
  int64_t value = 0;
};

/// A program that is timed on tensors of the device.
struct MeasuredCase {
  std::string name;
  std::string bundle;
  std::vector<MadeInput> inputs;
  double flops = 0, bytes = 0; ///< of one step; 0: not what counts
};

struct Cases {
  std::vector<ConformanceCase> conformance;
  std::vector<MeasuredCase> measured;
};

/// Reads `folder`/cases.json; paths in the result begin with `folder`.
Result<Cases> readCases(const std::string &folder);

} // namespace moira::tools

#endif // MOIRA_TOOLS_MOIRA_GPU_CHECK_CASES_H
