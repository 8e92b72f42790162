// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "emulator/MultiplyAdd.h"

#include <cmath>
#include <cstring>

using namespace moira::emulator;

// One function for every width of vectors: libraries are built for any machine
// of their family, and without an instruction for it a fused multiply-add is a
// call.
#define MOIRA_CHAINS(name, attribute)                                          \
  attribute static void name(int m, int n, int k, const float *a,              \
                             const float *b, float *c) {                       \
    for (int i = 0; i < m; ++i)                                                \
      for (int s = 0; s < k; ++s) {                                            \
        float x = a[i * k + s];                                                \
        for (int j = 0; j < n; ++j)                                            \
          c[i * n + j] = __builtin_fmaf(x, b[s * n + j], c[i * n + j]);        \
      }                                                                        \
  }

MOIRA_CHAINS(multiplyAddAny, )
#if defined(__x86_64__)
MOIRA_CHAINS(multiplyAddAvx2, __attribute__((target("avx2,fma"))))
MOIRA_CHAINS(multiplyAddAvx512, __attribute__((target("avx512f,avx2,fma"))))
#endif

void moira::emulator::multiplyAdd(int m, int n, int k, const float *a,
                                  const float *b, float *c) {
#if defined(__x86_64__)
  static const int level =
      __builtin_cpu_supports("avx512f")                                 ? 2
      : __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? 1
                                                                        : 0;
  if (level == 2)
    return multiplyAddAvx512(m, n, k, a, b, c);
  if (level == 1)
    return multiplyAddAvx2(m, n, k, a, b, c);
#endif
  multiplyAddAny(m, n, k, a, b, c);
}

float moira::emulator::halfToFloat(uint16_t bits) {
  uint32_t sign = uint32_t(bits & 0x8000) << 16;
  uint32_t exponent = bits >> 10 & 31, mantissa = bits & 1023;
  if (exponent == 0) {
    float value = std::ldexp(float(mantissa), -24);
    return sign ? -value : value;
  }
  uint32_t wide = sign | mantissa << 13 |
                  (exponent == 31 ? 0x7f800000 : (exponent + 112) << 23);
  float value;
  memcpy(&value, &wide, 4);
  return value;
}
