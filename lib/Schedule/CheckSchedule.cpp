// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "moira/Schedule/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
namespace mlir::moe {
#define GEN_PASS_DEF_CHECKSCHEDULEPASS
#include "moira/Schedule/Passes.h.inc"
} // namespace mlir::moe

using namespace mlir;
using namespace mlir::moe;

namespace {
struct CheckSchedule : public moe::impl::CheckSchedulePassBase<CheckSchedule> {
  void runOnOperation() override {}
};
} // namespace
