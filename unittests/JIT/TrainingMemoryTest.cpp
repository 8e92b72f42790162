// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A layer of experts that trains for long: nothing grows, whatever routers do.

#include "JIT/TrainingRanks.h"

using namespace moira;
using namespace moira::runtime;
using namespace moira::test;

namespace {

/// Steps of as many sizes, one after the other.
constexpr int kSizes = 5;
/// Blocks of residuals are kept by size: the first steps find them all.
constexpr int kFirstSteps = 5 * kSizes;

TEST(TrainingMemory, AThousandStepsOfALayerAreFlat) {
  auto program = layer(1, 1);
  auto session = makeSession(program);
  ASSERT_OK(session->bindRandom(11));
  std::vector<float> all = fractions(16 * features, 1),
                     gradients = fractions(16 * features, 2);
  int64_t held[kSizes] = {}, peak = 0;
  std::vector<float> firstRow, lastRow;
  for (int step = 0; step < 1000; ++step) {
    int64_t rows = 2 + step % kSizes;
    Shape shape{rows, features};
    std::vector<ResultTensor> results, ofInputs;
    std::shared_ptr<const Residuals> handle;
    ASSERT_OK(session->forward("main", {{DataType::F32, shape, all.data()}},
                               results, handle));
    const float *row = static_cast<const float *>(results[0].data);
    (step == 0 ? firstRow : lastRow).assign(row, row + features);
    session->zeroGradients();
    ASSERT_OK(session->accumulate(
        *handle, {{DataType::F32, shape, gradients.data()}}, ofInputs));
    results.clear();
    ofInputs.clear();
    handle.reset();
    UpdateOptions options;
    options.learningRate = 1e-3;
    ASSERT_OK(session->update(options));
    MemoryFigures memory = session->memory();
    if (step < kFirstSteps) {
      held[step % kSizes] = memory.total();
      peak = memory.peak;
      continue;
    }
    ASSERT_EQ(memory.total(), held[step % kSizes]) << "step " << step;
    ASSERT_EQ(memory.peak, peak) << "step " << step;
  }
  EXPECT_GT(held[0], 0);
  EXPECT_NE(firstRow, lastRow) << "expected weights that change";
}

} // namespace
