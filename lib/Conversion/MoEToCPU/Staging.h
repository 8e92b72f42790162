// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Copies of parts of operands in the form that tile kernels read.

#ifndef MOIRA_LIB_CONVERSION_MOETOCPU_STAGING_H
#define MOIRA_LIB_CONVERSION_MOETOCPU_STAGING_H

#include "BlockedProduct.h"

namespace mlir::moe::detail {

/// Copies `count` rows of `source` [rows, K] to the stage; `findRow(r)` is the
/// source of row r. Widens elements, or makes pairs of them, as `format` says;
/// a missing second index of a pair is 0.
void emitStageRows(LoopBuilder &b, const TileFormat &format, Value source,
                   Value count, function_ref<Value(Value)> findRow,
                   StepRange range, StagePlace place);

} // namespace mlir::moe::detail

#endif // MOIRA_LIB_CONVERSION_MOETOCPU_STAGING_H
