// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "base/Hash.h"

// Inlined: the library needs no xxhash at run time.
#define XXH_INLINE_ALL
#include <xxhash.h>

uint64_t moira::runtime::hashBytes(const void *data, size_t bytes,
                                   uint64_t seed) {
  return XXH64(data, bytes, seed);
}
