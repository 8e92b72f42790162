// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "base/Draws.h"

#include <algorithm>
#include <cmath>

using namespace moira;
using namespace moira::runtime;

uint32_t Draws::bits() {
  if (used == 4) {
    words = philox(counter, key);
    ++counter[0];
    used = 0;
  }
  return words[used++];
}

double Draws::normal() {
  // Box and Muller; the second variate is not kept, so that draws have no
  // state but their number.
  double radius = std::sqrt(-2 * std::log(uniform()));
  return radius * std::cos(2 * 3.14159265358979323846 * uniform());
}

int64_t Draws::below(int64_t n) {
  return std::min<int64_t>(int64_t(uniform() * double(n)), n - 1);
}

int64_t Draws::binomial(int64_t n, double p) {
  if (n <= 0 || !(p > 0))
    return 0;
  if (p >= 1)
    return n;
  if (p > 0.5)
    return n - binomial(n, 1 - p);
  double mean = double(n) * p;
  if (mean > 30) {
    double x = std::round(mean + std::sqrt(mean * (1 - p)) * normal());
    return std::clamp<int64_t>(int64_t(x), 0, n);
  }
  // Walks along the distribution function.
  double ratio = p / (1 - p), term = std::exp(double(n) * std::log1p(-p));
  double rest = uniform();
  int64_t k = 0;
  while (k < n && rest > term) {
    rest -= term;
    term *= ratio * double(n - k) / double(k + 1);
    ++k;
    if (term < 1e-300)
      break;
  }
  return k;
}
