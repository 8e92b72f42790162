// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Random cases of moe.grouped_matmul for GPU kernels, and what a plain loop
// gives for them.

#ifndef MOIRA_UNITTESTS_GPU_GROUPEDCASE_H
#define MOIRA_UNITTESTS_GPU_GROUPEDCASE_H

#include "GPU/Harness.h"
#include "moira/Conversion/MoEToGPU/GroupedKernel.h"

#include <optional>

namespace moira::test {

struct GroupedCase {
  std::vector<int32_t> sizes = {0, 70, 0, 133, 1};
  int64_t n = 136, k = 72;
  int64_t weights = 1;
  bool isHalf = false; ///< f16 instead of bf16; with Simt both are f32
  mlir::moe::WeightLayout layout = mlir::moe::WeightLayout::NK;
  int64_t panelWidth = 32; ///< where the layout has panels
  int64_t columnBlocks = 1, chains = 1;
  bool chained = false; ///< as many rows as weights, in one sum
  bool contraction = false, gather = false;
  int64_t stride = 0; ///< rows of a padded group; 0: ragged
  bool bias = false;
  /// silu-like activation of the first sum times the second, a vector, an
  /// element and a scalar: everything that an epilogue may take.
  bool fullEpilogue = false;
  bool f32Result = false;
  /// With the full epilogue: a second result, the first's value doubled.
  bool hasTwoResults = false;
  bool integers = true; ///< small ones: every order of sums is exact
  uint32_t seed = 1;
  mlir::moe::GPUSchedule schedule;
  Edit edit = {};

  bool isSingle() const { return schedule.style == mlir::moe::GPUStyle::Simt; }
  bool hasPanels() const {
    return layout == mlir::moe::WeightLayout::Panels ||
           layout == mlir::moe::WeightLayout::TransposedPanels;
  }
};

mlir::moe::GroupedKernel describeCase(const GroupedCase &grouped,
                                      mlir::MLIRContext &context);

/// One case, compiled for the emulated device, with its inputs and answer.
class GroupedRun {
public:
  explicit GroupedRun(const GroupedCase &grouped);
  ~GroupedRun();

  /// Runs it; what the device found is in `report`.
  Status run(const runtime::EmulatedOptions &options, int32_t blocks = 3);
  /// Expects the answer: exact with integers, else within the rounding of the
  /// result's type. Rows beyond the groups must be as they were.
  void expectAnswer() const;

  emulator::LaunchReport report;

private:
  struct Data;
  std::unique_ptr<Data> data;
};

/// The GPU module with the kernel of a case.
mlir::OwningOpRef<mlir::ModuleOp> buildCase(GPUContext &context,
                                            const GroupedCase &grouped,
                                            int64_t *sharedBytes = nullptr);

} // namespace moira::test

#endif // MOIRA_UNITTESTS_GPU_GROUPEDCASE_H
