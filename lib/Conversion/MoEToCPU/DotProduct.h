// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Dot products of pairs, which some targets have as an instruction.

#ifndef MOIRA_LIB_CONVERSION_MOETOCPU_DOTPRODUCT_H
#define MOIRA_LIB_CONVERSION_MOETOCPU_DOTPRODUCT_H

#include "LoopUtils.h"

namespace mlir::moe::detail {

/// `sums[i] + words[i].high * panel[2 i + 1] + words[i].low * panel[2 i]`, the
/// odd product first, each product added with one rounding: two links of the
/// chain of an element. `words` holds two bf16 per integer of 32 bits.
Value emitPairDot(LoopBuilder &b, Value sums, Value words, Value panel);

/// Two vectors of sums of dot products, none of them denormal, rounded to bf16,
/// one behind the other; the bits are those of arith.truncf, in fewer
/// operations.
Value emitRoundSums(LoopBuilder &b, Value low, Value high);

} // namespace mlir::moe::detail

#endif // MOIRA_LIB_CONVERSION_MOETOCPU_DOTPRODUCT_H
