// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "base/Random.h"

#include "base/Convert.h"
#include "base/Hash.h"

#include <algorithm>
#include <cstring>

using namespace moira;
using namespace moira::runtime;

PhiloxCounter runtime::philox(PhiloxCounter counter, PhiloxKey key) {
  for (int round = 0; round < 10; ++round) {
    uint64_t left = uint64_t(0xD2511F53) * counter[0];
    uint64_t right = uint64_t(0xCD9E8D57) * counter[2];
    counter = {uint32_t(right >> 32) ^ counter[1] ^ key[0], uint32_t(right),
               uint32_t(left >> 32) ^ counter[3] ^ key[1], uint32_t(left)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

PhiloxKey runtime::streamKey(uint64_t seed, std::string_view name) {
  uint64_t hash = hashBytes(name.data(), name.size(), seed);
  return {uint32_t(hash), uint32_t(hash >> 32)};
}

/// In (0, 1), with 24 bits.
static double uniform(uint32_t bits) { return ((bits >> 8) + 0.5) * 0x1p-24; }

void runtime::fillUniform(DataType dtype, void *data, int64_t first,
                          int64_t count, PhiloxKey key, double bound) {
  if (!isFloat(dtype)) {
    if (count)
      std::memset(data, 0, count * byteSize(dtype));
    return;
  }
  // Converted in small pieces, so that every type goes one way.
  constexpr int64_t pieceSize = 256;
  double piece[pieceSize];
  auto *out = static_cast<char *>(data);
  for (int64_t done = 0; done < count;) {
    int64_t n = std::min(pieceSize, count - done);
    for (int64_t i = 0; i < n;) {
      uint64_t element = first + done + i;
      uint64_t block = element / 4;
      PhiloxCounter words =
          philox({uint32_t(block), uint32_t(block >> 32), 0, 0}, key);
      for (uint64_t lane = element % 4; lane < 4 && i < n; ++lane, ++i)
        piece[i] = bound * (2 * uniform(words[lane]) - 1);
    }
    convert(DataType::F64, piece, dtype, out, n);
    out += n * byteSize(dtype);
    done += n;
  }
}
