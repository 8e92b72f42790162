// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Numbers as they travel between processes: little-endian, whatever the
// machine.

#ifndef MOIRA_RUNTIME_BOOTSTRAP_WIRE_H
#define MOIRA_RUNTIME_BOOTSTRAP_WIRE_H

#include <cstdint>
#include <cstring>

namespace moira::runtime {

inline void putNumber(unsigned char *at, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i)
    at[i] = static_cast<unsigned char>(value >> (8 * i));
}
inline uint64_t getNumber(const unsigned char *at, int bytes) {
  uint64_t value = 0;
  for (int i = 0; i < bytes; ++i)
    value |= static_cast<uint64_t>(at[i]) << (8 * i);
  return value;
}

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_BOOTSTRAP_WIRE_H
