// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Kernels that this project did not write, from clang and from Triton
// (kernels/generate.py), on the emulated device with all checks: the check of
// the emulator that does not share our reading of PTX.

#include "GPU/Harness.h"
#include "base/Convert.h"

#include <cmath>
#include <gtest/gtest.h>
#include <random>

using namespace moira;
using namespace moira::test;
using namespace moira::runtime;

namespace {
/// The kernels of one file.
class Imported {
public:
  explicit Imported(const std::string &file) {
    auto module = importKernels(MOIRA_KERNELS + ("/" + file), context.get());
    if (!module) {
      ADD_FAILURE() << llvm::toString(module.takeError());
      return;
    }
    image = EmulatedImage::compile(**module);
  }

  /// Runs one with threads in turn or, with a seed, at random.
  Status launch(EmulatedDevice &device, const char *name,
                const LaunchShape &shape,
                const std::vector<KernelArgument> &arguments) {
    if (!image)
      return Status(MOIRA_FAILED, "no image");
    return launchAndWait(device, *image, name, shape, arguments);
  }
  void run(EmulatedDevice &device, const char *name, const LaunchShape &shape,
           const std::vector<KernelArgument> &arguments) {
    Status status = launch(device, name, shape, arguments);
    EXPECT_TRUE(status.ok()) << status.message;
  }

private:
  GPUContext context;
  std::unique_ptr<EmulatedImage> image;
};

class ImportTest : public testing::TestWithParam<int> {
protected:
  ImportTest() {
    EmulatedOptions options;
    options.checks = emulator::Checks::all();
    options.seed = uint64_t(GetParam());
    device = openEmulated(options);
  }
  static KernelArgument place(const DeviceArray &array) {
    return KernelArgument::of(array.memory);
  }
  static LaunchShape shapeOf(Dim3 grid, Dim3 block, int64_t shared = 0) {
    LaunchShape shape;
    shape.grid = grid;
    shape.block = block;
    shape.dynamicShared = shared;
    return shape;
  }
  /// Small integers, for sums that are exact.
  std::vector<float> integers(size_t count) {
    std::vector<float> values(count);
    for (float &value : values)
      value = float(int(random() % 17) - 8);
    return values;
  }

  std::unique_ptr<EmulatedDevice> device;
  std::mt19937 random{7};
  void *const null = nullptr; ///< Triton's two further parameters
};
} // namespace

INSTANTIATE_TEST_SUITE_P(Seeds, ImportTest, testing::Values(0, 5));

//===----------------------------------------------------------------------===//
// clang
//===----------------------------------------------------------------------===//

TEST_P(ImportTest, addsVectors) {
  const int32_t n = 500;
  std::vector<float> a = integers(n), b = integers(n);
  DeviceArray da(*device, a), db(*device, b), dc(*device, n * 4);
  Imported("cuda.ll").run(
      *device, "vector_add", shapeOf({3}, {64}),
      {place(da), place(db), place(dc), KernelArgument::of(n)});
  std::vector<float> c = dc.values<float>();
  for (int i = 0; i < n; ++i)
    ASSERT_EQ(c[i], a[i] + b[i]) << i;
}

TEST_P(ImportTest, sumsRowsByShuffles) {
  const int32_t n = 301, rows = 3;
  std::vector<float> a = integers(n * rows);
  DeviceArray da(*device, a), out(*device, rows * 4);
  Imported("cuda.ll").run(*device, "row_sum", shapeOf({rows}, {96}),
                          {place(da), place(out), KernelArgument::of(n)});
  std::vector<float> got = out.values<float>();
  for (int r = 0; r < rows; ++r) {
    float sum = 0;
    for (int i = 0; i < n; ++i)
      sum += a[r * n + i];
    EXPECT_EQ(got[r], sum) << r;
  }
}

TEST_P(ImportTest, countsByAtomics) {
  const int32_t n = 700;
  std::vector<int32_t> a(n), counts(64, 0), expected(64, 0);
  for (int32_t &x : a) {
    x = int32_t(random() % 64);
    ++expected[x];
  }
  DeviceArray da(*device, a), out(*device, counts);
  Imported("cuda.ll").run(*device, "histogram", shapeOf({2}, {128}),
                          {place(da), place(out), KernelArgument::of(n)});
  EXPECT_EQ(out.values<int32_t>(), expected);
}

TEST_P(ImportTest, ranksByVotes) {
  std::vector<float> a = integers(128);
  DeviceArray da(*device, a), out(*device, 128 * 4);
  Imported("cuda.ll").run(*device, "ranks", shapeOf({2}, {64}),
                          {place(da), place(out)});
  std::vector<int32_t> got = out.values<int32_t>();
  for (int i = 0; i < 128; ++i) {
    int before = 0;
    for (int j = i / 32 * 32; j < i; ++j)
      before += a[j] > 0;
    ASSERT_EQ(got[i], before) << i;
  }
}

TEST_P(ImportTest, multipliesInTiles) {
  const int32_t n = 48;
  std::vector<float> a = integers(n * n), b = integers(n * n);
  DeviceArray da(*device, a), db(*device, b), dc(*device, n * n * 4);
  std::vector<KernelArgument> arguments = {place(da), place(db), place(dc),
                                           KernelArgument::of(n)};
  Imported kernels("cuda.ll");
  kernels.run(*device, "tiled_matmul", shapeOf({3, 3}, {16, 16}), arguments);
  std::vector<float> c = dc.values<float>();
  for (int i = 0; i < n; ++i)
    for (int j = 0; j < n; ++j) {
      float sum = 0;
      for (int k = 0; k < n; ++k)
        sum += a[i * n + k] * b[k * n + j];
      ASSERT_EQ(c[i * n + j], sum) << i << ", " << j;
    }
  // The same without its second barrier; the file and line are the user's.
  Status status = kernels.launch(*device, "racing_matmul",
                                 shapeOf({3, 3}, {16, 16}), arguments);
  EXPECT_FALSE(status.ok());
  EXPECT_NE(status.message.find("race: kernel racing_matmul"),
            std::string::npos)
      << status.message;
  EXPECT_NE(status.message.find("kernels.cu:"), std::string::npos)
      << status.message;
}

TEST_P(ImportTest, copiesAsynchronously) {
  const int32_t n = 32 * 4 * 5;
  std::vector<float> a = integers(n);
  DeviceArray da(*device, a), out(*device, n * 4);
  Imported("cuda.ll").run(*device, "pipelined_copy", shapeOf({1}, {32}),
                          {place(da), place(out), KernelArgument::of(n)});
  std::vector<float> got = out.values<float>();
  for (int i = 0; i < n; ++i)
    ASSERT_EQ(got[i], 2 * a[i]) << i;
}

/// bf16 or f16.
static std::vector<uint16_t> narrow(const std::vector<float> &values,
                                    bool isHalf = false) {
  std::vector<uint16_t> bits;
  for (float value : values)
    bits.push_back(isHalf ? toHalf(value) : toBfloat(value));
  return bits;
}

TEST_P(ImportTest, multipliesByInlinePTX) {
  std::vector<float> a = integers(16 * 16), b = integers(8 * 16);
  DeviceArray da(*device, narrow(a)), db(*device, narrow(b)),
      dd(*device, 16 * 8 * 4);
  Imported("cuda.ll").run(*device, "one_mma", shapeOf({1}, {32}),
                          {place(da), place(db), place(dd)});
  std::vector<float> d = dd.values<float>();
  for (int i = 0; i < 16; ++i)
    for (int j = 0; j < 8; ++j) {
      float sum = 0;
      for (int k = 0; k < 16; ++k)
        sum += a[i * 16 + k] * b[j * 16 + k];
      ASSERT_EQ(d[i * 8 + j], sum) << i << ", " << j;
    }
}

//===----------------------------------------------------------------------===//
// Triton
//===----------------------------------------------------------------------===//

TEST_P(ImportTest, addsVectorsOfTriton) {
  for (const char *file :
       {"triton-vector-add.ll", "triton-vector-add-wide.ll"}) {
    // A multiple of 16, which the second was told.
    const int32_t n = 688;
    std::vector<float> a = integers(n), b = integers(n);
    DeviceArray da(*device, a), db(*device, b), dc(*device, n * 4);
    Imported(file).run(*device, "vector_add", shapeOf({3}, {128}),
                       {place(da), place(db), place(dc), KernelArgument::of(n),
                        KernelArgument::of(null), KernelArgument::of(null)});
    std::vector<float> c = dc.values<float>();
    for (int i = 0; i < n; ++i)
      ASSERT_EQ(c[i], a[i] + b[i]) << file << ", " << i;
  }
}

TEST_P(ImportTest, takesSoftmaxOfTriton) {
  const int32_t n = 200, rows = 3;
  std::vector<float> x = integers(n * rows);
  DeviceArray dx(*device, x), dy(*device, n * rows * 4);
  Imported("triton-softmax.ll")
      .run(*device, "softmax", shapeOf({rows}, {128}, 16),
           {place(dx), place(dy), KernelArgument::of(n),
            KernelArgument::of(null), KernelArgument::of(null)});
  std::vector<float> y = dy.values<float>();
  for (int r = 0; r < rows; ++r) {
    double sum = 0;
    for (int i = 0; i < n; ++i)
      sum += std::exp(double(x[r * n + i]));
    for (int i = 0; i < n; ++i) {
      double expected = std::exp(double(x[r * n + i])) / sum;
      ASSERT_NEAR(y[r * n + i], expected, expected * 1e-5 + 1e-30) << i;
    }
  }
}

TEST_P(ImportTest, countsByAtomicsOfTriton) {
  const int32_t n = 300;
  std::vector<int32_t> x(n), counts(16, 0), expected(16, 0);
  for (int32_t &value : x) {
    value = int32_t(random() % 16);
    ++expected[value];
  }
  DeviceArray dx(*device, x), out(*device, counts);
  Imported("triton-histogram.ll")
      .run(*device, "histogram", shapeOf({3}, {128}),
           {place(dx), place(out), KernelArgument::of(n),
            KernelArgument::of(null), KernelArgument::of(null)});
  EXPECT_EQ(out.values<int32_t>(), expected);
}

TEST_P(ImportTest, multipliesMatricesOfTriton) {
  struct Case {
    const char *file;
    int32_t m, n, k;
    bool isHalf;
    int64_t shared;
  };
  for (const Case &one :
       {Case{"triton-matmul.ll", 40, 50, 70, false, 4096},
        Case{"triton-matmul-pipelined.ll", 48, 64, 160, true, 8192}}) {
    SCOPED_TRACE(one.file);
    std::vector<float> a = integers(one.m * one.k), b = integers(one.k * one.n);
    DeviceArray da(*device, narrow(a, one.isHalf)),
        db(*device, narrow(b, one.isHalf)), dc(*device, one.m * one.n * 4);
    Imported(one.file).run(
        *device, "matmul",
        shapeOf({(one.m + 31) / 32, (one.n + 31) / 32}, {128}, one.shared),
        {place(da), place(db), place(dc), KernelArgument::of(one.m),
         KernelArgument::of(one.n), KernelArgument::of(one.k),
         KernelArgument::of(null), KernelArgument::of(null)});
    std::vector<float> c = dc.values<float>();
    for (int i = 0; i < one.m; ++i)
      for (int j = 0; j < one.n; ++j) {
        float sum = 0;
        for (int k = 0; k < one.k; ++k)
          sum += a[i * one.k + k] * b[k * one.n + j];
        ASSERT_EQ(c[i * one.n + j], sum) << i << ", " << j;
      }
  }
}
