// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// What kernel a moe.grouped_matmul asks for, and how it is cut.

#ifndef MOIRA_LIB_CONVERSION_MOETOGPU_GROUPEDSCHEDULES_H
#define MOIRA_LIB_CONVERSION_MOETOGPU_GROUPEDSCHEDULES_H

#include "moira/Conversion/MoEToGPU/GroupedKernel.h"

namespace mlir::moe::detail {

/// Fills in all but the name and the schedule. An op that no kernel can do is
/// an error that says why.
LogicalResult describeKernel(GroupedMatmulOp op, GroupedKernel &kernel);

/// The schedule that the op asks for, else the first of those that suit the
/// architecture and the kernel.
LogicalResult chooseSchedule(GroupedMatmulOp op, GroupedKernel &kernel,
                             bool hasWarpgroups);

} // namespace mlir::moe::detail

#endif // MOIRA_LIB_CONVERSION_MOETOGPU_GROUPEDSCHEDULES_H
