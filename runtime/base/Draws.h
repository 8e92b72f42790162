// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Draws from distributions, as functions of a key and a counter.

#ifndef MOIRA_RUNTIME_BASE_DRAWS_H
#define MOIRA_RUNTIME_BASE_DRAWS_H

#include "base/Random.h"

namespace moira::runtime {

/// A sequence of draws that a key and three numbers name: the same whatever
/// was drawn elsewhere.
class Draws {
public:
  Draws(PhiloxKey key, uint32_t a, uint32_t b = 0, uint32_t c = 0)
      : key(key), counter{0, a, b, c} {}

  uint32_t bits();
  /// In (0, 1), with 32 bits.
  double uniform() { return (bits() + 0.5) * 0x1p-32; }
  double normal();
  /// An integer of [0, n), n >= 1.
  int64_t below(int64_t n);
  /// How many of n trials succeed: exact for few expected ones, else a rounded
  /// normal variate.
  int64_t binomial(int64_t n, double p);

private:
  PhiloxKey key;
  PhiloxCounter counter;
  PhiloxCounter words{};
  int used = 4;
};

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_BASE_DRAWS_H
