// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Interpreter.h"

#include "moira/Schedule/Passes.h"

namespace mlir::moe {
#define GEN_PASS_DEF_CHECKSCHEDULEPASS
#include "moira/Schedule/Passes.h.inc"
} // namespace mlir::moe

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

/// Chunk counts to try: with 4 every pair of neighbours, and of ops two chunks
/// apart, meets in every stage.
static constexpr int64_t kMostChunks = 4;

namespace {
struct CheckSchedule : public moe::impl::CheckSchedulePassBase<CheckSchedule> {
  void runOnOperation() override {
    markAllAnalysesPreserved();
    if (!findCollective(getOperation()))
      return;
    for (int64_t chunks = 1; chunks <= kMostChunks; ++chunks)
      if (failed(Interpreter(getOperation(), chunks).run()))
        return signalPassFailure();
  }
};
} // namespace
