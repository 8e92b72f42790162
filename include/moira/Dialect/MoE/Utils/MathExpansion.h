// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Elementary functions as arithmetic that every target computes alike.

#ifndef MOIRA_DIALECT_MOE_UTILS_MATHEXPANSION_H
#define MOIRA_DIALECT_MOE_UTILS_MATHEXPANSION_H

#include "mlir/IR/Builders.h"
#include "mlir/IR/Value.h"

namespace mlir {
class RewritePatternSet;
} // namespace mlir

namespace mlir::moe {

/// Builds exp(x) for an f32, or a vector of f32, from arith and math.fma:
/// within 1 ulp, denormal results rounded once, NaN in NaN out, +inf above
/// the largest finite exponential, 0 below half the least denormal.
Value buildExp(OpBuilder &builder, Location loc, Value x);

/// Builds the natural logarithm likewise, within 2 ulp.
Value buildLog(OpBuilder &builder, Location loc, Value x);

/// Adds the patterns that replace math.exp and math.log on f32 by the above,
/// tanh, erf, erfc, log1p and expm1 on f32 by polynomials (within 5 ulp), and
/// all of them on bf16 and f16 by f32 with one rounding. f64 stays: its
/// functions are those of the C library.
void populateMathExpansionPatterns(RewritePatternSet &patterns);

/// Adds the patterns that round f32 to bf16, and f64 to bf16 and f16, by
/// arithmetic that gives the same bits on every processor.
void populateRoundingPatterns(RewritePatternSet &patterns);

/// Adds the patterns that convert between f16 and wider types in integers.
void populateHalfPatterns(RewritePatternSet &patterns);

} // namespace mlir::moe

#endif // MOIRA_DIALECT_MOE_UTILS_MATHEXPANSION_H
