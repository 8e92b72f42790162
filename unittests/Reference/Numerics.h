// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Scalar arithmetic of the reference interpreter: element types, the shared
// exponential, and the counter-based random numbers of routing noise.

#ifndef MOIRA_UNITTESTS_REFERENCE_NUMERICS_H
#define MOIRA_UNITTESTS_REFERENCE_NUMERICS_H

#include <array>
#include <cstdint>

namespace moira::reference {

/// Element type of a tensor. Values of every type are held in a double, which
/// represents all of them exactly.
enum class DType { F32, F64, BF16, F16 };

/// Spelling of the type in IR: "f32", "f64", "bf16", "f16".
const char *nameOf(DType type);

/// Rounds to the nearest value of `type`, ties to even. Values beyond the
/// largest finite one become infinite; denormals are kept; NaN stays NaN.
double roundTo(DType type, double value);

/// The f32 exponential that every target shares, operation by operation.
float exp32(float x);

/// exp in the router's type: exp32 for float, the C library's for double.
float expOf(float x);
double expOf(double x);

/// 1 / (1 + exp(-x)).
float sigmoid(float x);
double sigmoid(double x);

/// sqrt(log(1 + exp(x))), evaluated as sqrt(max(x, 0) + log1p(exp(-|x|))).
float sqrtSoftplus(float x);
double sqrtSoftplus(double x);

/// NaN becomes -inf and +inf the largest finite value.
float sanitize(float x);
double sanitize(double x);

/// Philox4x32 with ten rounds.
std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter,
                               std::array<uint32_t, 2> key);

/// Where in the global program a random number is drawn. Draws depend on
/// nothing else, so ranks, threads and pipeline degrees cannot change them.
struct DrawKey {
  uint64_t seed = 0;
  uint32_t layer = 0;
  uint32_t step = 0;
};

/// The four words drawn for one (token, expert) or (token, feature).
std::array<uint32_t, 4> draw(const DrawKey &key, uint64_t token,
                             uint32_t column);

/// Maps one word to the open interval (0, 1): 2^24 equally spaced values.
double uniformOf(uint32_t word);

/// A standard normal number from the first two words (Box-Muller).
double normalOf(const std::array<uint32_t, 4> &words);

} // namespace moira::reference

#endif // MOIRA_UNITTESTS_REFERENCE_NUMERICS_H
