// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Products of small matrices as the emulated matrix units form them.

#ifndef MOIRA_RUNTIME_EMULATOR_MULTIPLYADD_H
#define MOIRA_RUNTIME_EMULATOR_MULTIPLYADD_H

#include <cstdint>

namespace moira::emulator {

/// c[m][n] += a[m][k] * b[k][n]: each element is one chain of fused
/// multiply-adds in increasing k, as everywhere in this project. The hardware
/// adds in an order of its own.
void multiplyAdd(int m, int n, int k, const float *a, const float *b, float *c);

float halfToFloat(uint16_t bits);

} // namespace moira::emulator

#endif // MOIRA_RUNTIME_EMULATOR_MULTIPLYADD_H
