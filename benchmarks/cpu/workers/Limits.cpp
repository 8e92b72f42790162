// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The machine's limits, measured in the same rounds as everything else:
// multiply-adds from registers, reading and copying from memory.

#include "Serve.h"
#include "Team.h"

#include <algorithm>
#include <memory>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

using namespace moira::bench;

namespace {
enum Mode { Fma, Read, Copy };

#if defined(__AVX512F__)
using Vector = float __attribute__((vector_size(64)));
#else
using Vector = float __attribute__((vector_size(32)));
#endif
constexpr int64_t lanes = sizeof(Vector) / sizeof(float);
#if defined(__AVX512F__)
constexpr int chains = 24; // as many as hide the latency of a dot product
#else
constexpr int chains = 12;
#endif

class Limits final : public Implementation {
public:
  std::string version() override { return "limits"; }
  std::string prepare(const Case &what, const DataFile &file,
                      std::vector<std::string> &modes) override;
  void run(int mode) override;
  Output output(int) override { return {}; }
  void release() override;
  double work(int mode) override { return done[mode]; }

private:
  std::unique_ptr<Team> team;
  Buffer data, copy;
  bool dot = false;
  int64_t steps = 0; ///< of the multiply-add loop, per thread
  double done[3] = {};
};
} // namespace

/// `steps` rounds over independent chains of multiply-adds.
static void multiplyAdd(int64_t steps) {
  Vector sums[chains] = {};
  Vector a = {}, b = {};
  for (int64_t i = 0; i < steps; ++i) {
    asm volatile("" : "+v"(a), "+v"(b));
#pragma clang loop unroll(full)
    for (int c = 0; c < chains; ++c)
      sums[c] += a * b;
  }
  for (Vector &sum : sums)
    asm volatile("" : "+v"(sum));
}

#if defined(__AVX512BF16__)
constexpr bool hasDot = true;
static void dotProducts(int64_t steps) {
  __m512 sums[chains] = {};
  __m512bh a = {}, b = {};
  for (int64_t i = 0; i < steps; ++i) {
    asm volatile("" : "+v"(a), "+v"(b));
#pragma clang loop unroll(full)
    for (int c = 0; c < chains; ++c)
      sums[c] = _mm512_dpbf16_ps(sums[c], a, b);
  }
  for (__m512 &sum : sums)
    asm volatile("" : "+v"(sum));
}
#else
constexpr bool hasDot = false;
static void dotProducts(int64_t) {}
#endif

static void readAll(const char *from, size_t bytes) {
  Vector sums[4] = {};
  size_t i = 0;
  for (; i + 4 * sizeof(Vector) <= bytes; i += 4 * sizeof(Vector))
    for (int c = 0; c < 4; ++c)
      sums[c] +=
          *reinterpret_cast<const Vector *>(from + i + c * sizeof(Vector));
  for (Vector &sum : sums)
    asm volatile("" : "+v"(sum));
}

std::string Limits::prepare(const Case &what, const DataFile &,
                            std::vector<std::string> &modes) {
  team = std::make_unique<Team>(what.threads);
  dot = what.isBf16() && hasDot;
  double perStep = chains * lanes * (dot ? 4.0 : 2.0);
  steps = std::max<int64_t>(
      200000, static_cast<int64_t>(what.flops() / perStep / what.threads));
  done[Fma] = steps * perStep * what.threads;
  constexpr double granule = 4096;
  double bytes =
      std::max(granule, std::floor(what.bytes() / granule) * granule);
  data = Buffer(static_cast<size_t>(std::max(bytes, double(64 << 20))));
  copy = Buffer(data.bytes() / 2);
  done[Read] = bytes;
  done[Copy] = 2.0 * copy.bytes();
  modes = {"fma", "read", "copy"};
  return "";
}

void Limits::run(int mode) {
  if (mode == Fma) {
    team->each([&](int) { dot ? dotProducts(steps) : multiplyAdd(steps); });
    return;
  }
  size_t bytes = mode == Read ? static_cast<size_t>(done[Read]) : copy.bytes();
  size_t share = (bytes / team->threads() + 4095) / 4096 * 4096;
  team->each([&](int thread) {
    size_t begin = std::min(bytes, thread * share);
    size_t size = std::min(bytes - begin, share);
    if (mode == Read)
      readAll(data.as<char>() + begin, size);
    else
      std::memcpy(copy.as<char>() + begin, data.as<char>() + begin, size);
  });
}

void Limits::release() {
  data = Buffer();
  copy = Buffer();
  team.reset();
}

int main() {
  Limits limits;
  return serve(limits);
}
