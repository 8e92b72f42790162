// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Philox4x32-10 (Salmon et al., SC 2011): random numbers as a function of a
// key and a counter, so that any thread can make any of them.

#ifndef MOIRA_RUNTIME_BASE_RANDOM_H
#define MOIRA_RUNTIME_BASE_RANDOM_H

#include "base/Types.h"

#include <array>
#include <cstdint>
#include <string_view>

namespace moira::runtime {

using PhiloxCounter = std::array<uint32_t, 4>;
using PhiloxKey = std::array<uint32_t, 2>;

PhiloxCounter philox(PhiloxCounter counter, PhiloxKey key);

/// The key of a named stream.
PhiloxKey streamKey(uint64_t seed, std::string_view name);

/// Fills elements [first, first + count) of stream `key` into `data`: floats
/// uniform in (-bound, bound), rounded once to the type; integers 0.
void fillUniform(DataType dtype, void *data, int64_t first, int64_t count,
                 PhiloxKey key, double bound);

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_BASE_RANDOM_H
