// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Conversion between float types, each value rounded once, to nearest even.

#ifndef MOIRA_RUNTIME_BASE_CONVERT_H
#define MOIRA_RUNTIME_BASE_CONVERT_H

#include "base/Types.h"

#include <cstdint>

namespace moira::runtime {

float fromHalf(uint16_t bits);
float fromBfloat(uint16_t bits);
/// Infinities and the sign of zero are kept, NaN stays NaN, and what is too
/// large becomes infinite.
uint16_t toHalf(double value);
uint16_t toBfloat(double value);

/// Whether `convert` knows the pair: equal types, or two float types.
bool isConvertible(DataType from, DataType to);

/// Converts `count` elements. Neither side need be aligned; they do not
/// overlap. Assumes isConvertible.
void convert(DataType from, const void *source, DataType to, void *target,
             int64_t count);

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_BASE_CONVERT_H
