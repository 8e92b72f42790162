// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Kernels that move rows, on the emulated device.

#include "GPU/RoutingRun.h"

#include <algorithm>
#include <cstring>
#include <gtest/gtest.h>
#include <numeric>
#include <random>

using namespace moira;
using namespace moira::test;
using namespace moira::runtime;
namespace moe = mlir::moe;

namespace {
struct MoveCase {
  const char *name;
  int bits; ///< 32: f32, 16: bf16, -16: f16
  int64_t features;
  bool weights;
};
void PrintTo(const MoveCase &move, std::ostream *stream) {
  *stream << move.name;
}
} // namespace

static const MoveCase moveCases[] = {
    {"F32", 32, 40, true},       {"BF16", 16, 72, true},
    {"F16", -16, 64, false},     {"Plain", 16, 520, false},
    {"OddBF16", 16, 71, true},   {"OddF32", 32, 3, false},
    {"OneFeature", 16, 1, true},
};

class MovementKernelTest : public testing::TestWithParam<MoveCase> {};

INSTANTIATE_TEST_SUITE_P(All, MovementKernelTest, testing::ValuesIn(moveCases),
                         [](const auto &info) { return info.param.name; });

TEST_P(MovementKernelTest, movesRowsAndSumsThem) {
  const MoveCase &move = GetParam();
  int64_t T = 21, K = 3, D = move.features, R = 45;
  RoutingRun run([&](mlir::gpu::GPUModuleOp module, mlir::OpBuilder &b) {
    moe::MovementKernel kernel;
    kernel.element = move.bits == 32   ? mlir::Type(b.getF32Type())
                     : move.bits == 16 ? mlir::Type(b.getBF16Type())
                                       : mlir::Type(b.getF16Type());
    kernel.features = D;
    kernel.choices = K;
    kernel.weights = move.weights;
    kernel.name = "dispatch";
    moe::buildDispatchKernel(module, kernel);
    kernel.name = "combine";
    moe::buildCombineKernel(module, kernel);
  });
  int64_t bytes = std::abs(move.bits) / 8;
  // Small integers and halves: exact in every type.
  auto encode = [&](float value, unsigned char *to) {
    if (move.bits == 32) {
      memcpy(to, &value, 4);
    } else if (move.bits == -16) {
      _Float16 half = _Float16(value);
      memcpy(to, &half, 2);
    } else {
      memcpy(to, reinterpret_cast<unsigned char *>(&value) + 2, 2);
    }
  };
  auto decode = [&](const unsigned char *from) {
    float value = 0;
    if (move.bits == 32) {
      memcpy(&value, from, 4);
    } else if (move.bits == -16) {
      _Float16 half;
      memcpy(&half, from, 2);
      value = float(half);
    } else {
      memcpy(reinterpret_cast<unsigned char *>(&value) + 2, from, 2);
    }
    return value;
  };
  std::mt19937 random(8);
  std::vector<int32_t> slots(T * K, -1), free(R);
  std::iota(free.begin(), free.end(), 0);
  std::shuffle(free.begin(), free.end(), random);
  for (int32_t &slot : slots)
    if (random() % 4 && free.size() > 2) {
      slot = free.back();
      free.pop_back();
    }
  std::fill_n(slots.begin() + K, K, -1); // a token without rows
  slots[3 * K] = int32_t(R);             // no row
  std::vector<float> weights(T * K);
  for (float &w : weights)
    w = float(random() % 5) * 0.5f;
  std::vector<unsigned char> x(T * D * bytes);
  std::vector<float> values(T * D);
  for (int64_t i = 0; i < T * D; ++i) {
    values[i] = float(int(random() % 9) - 4);
    encode(values[i], &x[i * bytes]);
  }
  for (uint64_t seed : {0, 6}) {
    auto device = openChecked(seed);
    DeviceArray dx(*device, x), ds(*device, slots), dw(*device, weights),
        rows(*device, R * D * bytes), dy(*device, T * D * bytes);
    int32_t tokens = int32_t(T), bound = int32_t(R);
    auto with = [&](const DeviceArray &from, const DeviceArray &to) {
      std::vector<KernelArgument> arguments = {place(from), place(ds)};
      if (move.weights)
        arguments.push_back(place(dw));
      arguments.insert(arguments.end(), {place(to), word(tokens), word(bound)});
      return arguments;
    };
    run.run(*device, "dispatch", with(dx, rows));
    run.run(*device, "combine", with(rows, dy));
    auto gotRows = rows.values<unsigned char>();
    auto got = dy.values<unsigned char>();
    std::vector<bool> used(R, false);
    for (int64_t t = 0; t < T; ++t)
      for (int64_t d = 0; d < D; ++d) {
        float sum = 0;
        for (int64_t j = 0; j < K; ++j) {
          int32_t slot = slots[t * K + j];
          if (slot < 0 || slot >= R)
            continue;
          used[slot] = true;
          float weight = move.weights ? weights[t * K + j] : 1;
          float row = weight * values[t * D + d];
          ASSERT_EQ(decode(&gotRows[(slot * D + d) * bytes]), row);
          sum += weight * row;
        }
        ASSERT_EQ(decode(&got[(t * D + d) * bytes]), sum)
            << "token " << t << ", feature " << d;
      }
    for (int64_t r = 0; r < R; ++r)
      for (int64_t i = 0; i < D * bytes && !used[r]; ++i)
        ASSERT_EQ(gotRows[r * D * bytes + i], 0xff) << "row " << r;
    emulator::Counters counters = device->takeReport().counters;
    if (D * bytes % 32 == 0)
      EXPECT_EQ(counters.sectors, counters.neededSectors);
  }
}
