// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The one place that includes xxhash.

#ifndef MOIRA_RUNTIME_BASE_HASH_H
#define MOIRA_RUNTIME_BASE_HASH_H

#include <cstddef>
#include <cstdint>

namespace moira::runtime {

/// XXH64, the same on every machine.
uint64_t hashBytes(const void *data, size_t bytes, uint64_t seed = 0);

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_BASE_HASH_H
