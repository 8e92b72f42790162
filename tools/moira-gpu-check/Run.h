// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Runs the cases on a device.

#ifndef MOIRA_TOOLS_MOIRA_GPU_CHECK_RUN_H
#define MOIRA_TOOLS_MOIRA_GPU_CHECK_RUN_H

#include "Cases.h"
#include "device/Device.h"

#include <functional>
#include <memory>

namespace moira::tools {

/// Opens the device that kernels of an architecture run on.
using OpenDevice =
    std::function<Result<std::shared_ptr<runtime::Device>>(std::string arch)>;

/// How a case ended.
struct Outcome {
  std::string state; ///< "passed", "failed", "skipped"
  std::string detail;
  int64_t elements = 0, identical = 0;
  double maxRelative = 0;
  int64_t launches = 0;
};

/// Runs one case and compares its results.
Outcome checkCase(const ConformanceCase &check, const OpenDevice &open);

/// What a program took.
struct Timing {
  double median = 0, least = 0; ///< seconds of the device
  int64_t runs = 0, launches = 0, waits = 0;
  int64_t mostRows = 0; ///< of an expert; 0: no layer
};

/// Runs a program `runs` times after `warmUps`, on tensors that are made on the
/// device and stay there.
Result<Timing> measureCase(const MeasuredCase &measured, int warmUps, int runs,
                           const OpenDevice &open);

} // namespace moira::tools

#endif // MOIRA_TOOLS_MOIRA_GPU_CHECK_RUN_H
