// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Sums and maxima of arrays, in one order.

#ifndef MOIRA_RUNTIME_COLLECTIVE_REDUCTION_H
#define MOIRA_RUNTIME_COLLECTIVE_REDUCTION_H

#include "base/Status.h"

#include <cstdint>
#include <vector>

namespace moira::runtime {

enum class Reduction { Sum, Max };

/// Bytes of an element of type MOIRA_...; 0 where reductions do not know it.
int64_t reducibleBytes(int32_t dtype);
/// Success where they do.
Status checkReducible(int32_t dtype);

/// out[i] = parts[0][i] + parts[1][i] + ..., from the left, for i < count; or
/// their maximum. f16 and bf16 are reduced in f32 and rounded once. `out` may
/// be parts[0]; it overlaps no other. At least one part; checkReducible holds.
void reduceParts(void *out, const std::vector<const void *> &parts,
                 int64_t count, int32_t dtype, Reduction reduction);

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_COLLECTIVE_REDUCTION_H
