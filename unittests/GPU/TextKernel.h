// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Kernels written by hand, in one line of a test.

#ifndef MOIRA_UNITTESTS_GPU_TEXTKERNEL_H
#define MOIRA_UNITTESTS_GPU_TEXTKERNEL_H

#include "GPU/Harness.h"

#include <functional>
#include <gtest/gtest.h>

namespace moira::test {

/// A kernel @k with the given body. Its parameters: `maps` tensor maps %map0..,
/// the output %p0 and the input %p1, both !llvm.ptr<1>.
class TextKernel {
public:
  explicit TextKernel(std::string body) : body(std::move(body)) {
    options.checks = emulator::Checks::all();
  }

  std::string body;
  std::string globals; ///< of the GPU module
  int maps = 0;
  int32_t threads = 1, blocks = 1;
  int64_t dynamicShared = 0;
  std::vector<float> input = {0};
  int64_t outputBytes = 64;
  runtime::EmulatedOptions options;
  std::function<std::vector<runtime::EncodedTensor>(runtime::Device &,
                                                    DeviceArray &output)>
      withMaps;
  std::vector<std::unique_ptr<DeviceArray>> arrays;
  emulator::LaunchReport report;

  /// Runs it, expects no fault, and returns the output.
  template <typename T> std::vector<T> run(int64_t count) {
    outputBytes = count * sizeof(T);
    Status status = launch();
    EXPECT_TRUE(status.ok()) << status.message << '\n' << report.text();
    const T *first = reinterpret_cast<const T *>(output.data());
    return std::vector<T>(first, first + count);
  }

  /// Runs it and expects a fault of this kind that says `text`.
  void expectFault(emulator::FaultKind kind, const std::string &text);
  Status launch();

  std::vector<unsigned char> output;

private:
  std::string source() const;
  std::shared_ptr<EmulatedImage> image;
};

} // namespace moira::test

#endif // MOIRA_UNITTESTS_GPU_TEXTKERNEL_H
