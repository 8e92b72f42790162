// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Inputs of a case, and what plain loops in the order of the op's definition
// give for them.

#include "GPU/GroupedCase.h"

#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <numeric>
#include <random>

using namespace moira;
using namespace moira::test;
using namespace moira::runtime;
using mlir::moe::GPUStyle;
using mlir::moe::GroupedKernel;
using mlir::moe::WeightLayout;

namespace {
/// Numbers that the element type has.
struct Values {
  std::vector<float> values;
  float operator[](int64_t index) const { return values[index]; }
};
} // namespace

//===----------------------------------------------------------------------===//
// Elements of 16 bits
//===----------------------------------------------------------------------===//

static uint16_t narrow(float value, bool isHalf) {
  if (isHalf) {
    _Float16 half = _Float16(value);
    uint16_t bits;
    memcpy(&bits, &half, 2);
    return bits;
  }
  uint32_t bits;
  memcpy(&bits, &value, 4);
  return uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static float widen(uint16_t bits, bool isHalf) {
  if (isHalf) {
    _Float16 half;
    memcpy(&half, &bits, 2);
    return float(half);
  }
  uint32_t wide = uint32_t(bits) << 16;
  float value;
  memcpy(&value, &wide, 4);
  return value;
}

//===----------------------------------------------------------------------===//
// Inputs
//===----------------------------------------------------------------------===//

struct GroupedRun::Data {
  explicit Data(const GroupedCase &grouped) : grouped(grouped) {}

  GroupedCase grouped;
  GPUContext context;
  GroupedKernel kernel;
  std::unique_ptr<EmulatedImage> image;
  int64_t sharedBytes = 0;
  int64_t rowCount = 0, sourceRows = 0;
  std::vector<Values> rows, weights, bias;
  Values vectors, elements;
  std::vector<float> scalars;
  std::vector<int32_t> gather;
  std::vector<std::vector<uint8_t>> results; ///< of the last run
  std::mt19937 random{1};

  float draw() {
    float value = grouped.integers ? float(int(random() % 5) - 2)
                                   : float(random() % 2001) / 1000.0f - 1.0f;
    return grouped.isSingle()
               ? value
               : widen(narrow(value, grouped.isHalf), grouped.isHalf);
  }
  Values drawAll(int64_t count) {
    Values all;
    for (int64_t i = 0; i < count; ++i)
      all.values.push_back(draw());
    return all;
  }
  std::vector<uint8_t> encode(const Values &given) const {
    std::vector<uint8_t> bytes(given.values.size() *
                               (grouped.isSingle() ? 4 : 2));
    for (size_t i = 0; i < given.values.size(); ++i) {
      if (grouped.isSingle()) {
        memcpy(&bytes[i * 4], &given.values[i], 4);
        continue;
      }
      uint16_t bits = std::isnan(given.values[i])
                          ? 0x7fff
                          : narrow(given.values[i], grouped.isHalf);
      memcpy(&bytes[i * 2], &bits, 2);
    }
    return bytes;
  }
  int64_t firstRow(size_t expert) const {
    return grouped.stride
               ? int64_t(expert) * grouped.stride
               : std::accumulate(grouped.sizes.begin(),
                                 grouped.sizes.begin() + expert, int64_t(0));
  }
  int64_t resultBytes() const {
    return grouped.f32Result || grouped.isSingle() ? 4 : 2;
  }
  int64_t resultElements() const {
    return grouped.contraction
               ? int64_t(grouped.sizes.size()) * grouped.n * grouped.k
               : rowCount * grouped.n;
  }
  /// Columns of a row operand.
  int64_t widthOf(size_t operand) const {
    return grouped.contraction && operand == 0 ? grouped.n : grouped.k;
  }
  int64_t placeOf(int64_t expert, int64_t n, int64_t k) const;
  void draw(uint32_t seed);
  float expectSum(size_t expert, int64_t row, int64_t column, size_t w) const;
  float expectRow(size_t expert, int64_t row, int64_t column) const;
  float expectContraction(size_t expert, int64_t n, int64_t k) const;
  void compare(size_t result, int64_t index, float expected) const;
};

/// Where a weight's element stands, as moe.grouped_matmul and moe.pack say.
int64_t GroupedRun::Data::placeOf(int64_t expert, int64_t n, int64_t k) const {
  int64_t sizeN = grouped.n, sizeK = grouped.k;
  int64_t blocksN = grouped.columnBlocks, blocksK = grouped.chains;
  if (grouped.layout == WeightLayout::NK)
    return (expert * sizeN + n) * sizeK + k;
  if (grouped.layout == WeightLayout::KN)
    return (expert * sizeK + k) * sizeN + n;
  if (grouped.layout == WeightLayout::TransposedPanels) {
    std::swap(n, k);
    std::swap(sizeN, sizeK);
    std::swap(blocksN, blocksK);
  }
  int64_t width = grouped.panelWidth;
  int64_t blockN = sizeN / blocksN, blockK = sizeK / blocksK;
  int64_t panels = (blockN + width - 1) / width;
  int64_t panel = (n / blockN + k / blockK) * panels + n % blockN / width;
  int64_t all = blocksN * blocksK * panels;
  return ((expert * all + panel) * blockK + k % blockK) * width +
         n % blockN % width;
}

void GroupedRun::Data::draw(uint32_t seed) {
  random.seed(seed);
  int64_t experts = grouped.sizes.size();
  // Rows that no group has must be read into no result.
  rowCount = grouped.stride ? experts * grouped.stride : firstRow(experts) + 3;
  sourceRows = grouped.gather ? 37 : rowCount;
  int64_t count = grouped.contraction ? 2
                  : grouped.chained   ? grouped.weights
                                      : 1;
  for (int64_t i = 0; i < count; ++i) {
    rows.push_back(drawAll(sourceRows * widthOf(i)));
    std::vector<bool> used(sourceRows, grouped.gather);
    for (int64_t e = 0; e < experts && !grouped.gather; ++e)
      for (int32_t r = 0; r < grouped.sizes[e]; ++r)
        used[firstRow(e) + r] = true;
    for (int64_t r = 0; r < sourceRows; ++r)
      if (!used[r])
        std::fill_n(rows[i].values.begin() + r * widthOf(i), widthOf(i), NAN);
  }
  // What is beyond the matrices in panels must be read into no result either.
  for (int64_t w = 0; w < grouped.weights && !grouped.contraction; ++w) {
    Values packed;
    for (int64_t e = 0; e < experts; ++e)
      for (int64_t n = 0; n < grouped.n; ++n)
        for (int64_t k = 0; k < grouped.k; ++k) {
          size_t place = size_t(placeOf(e, n, k));
          if (place >= packed.values.size())
            packed.values.resize(place + 1, NAN);
          packed.values[place] = draw();
        }
    if (grouped.hasPanels())
      packed.values.resize((packed.values.size() + grouped.panelWidth - 1) /
                               grouped.panelWidth * grouped.panelWidth,
                           NAN);
    weights.push_back(std::move(packed));
  }
  if (grouped.bias)
    for (int64_t w = 0; w < kernel.sums(); ++w)
      bias.push_back(drawAll(experts * grouped.n));
  if (grouped.gather)
    for (int64_t r = 0; r < rowCount; ++r)
      gather.push_back(int32_t(random() % (sourceRows + 1)) - 1);
  if (!grouped.fullEpilogue)
    return;
  vectors = drawAll(experts * grouped.n);
  elements = drawAll(rowCount * grouped.n);
  for (int64_t r = 0; r < rowCount; ++r)
    scalars.push_back(grouped.integers ? float(random() % 3) * 0.5f : draw());
}

//===----------------------------------------------------------------------===//
// The answer
//===----------------------------------------------------------------------===//

/// Sum `w`: one chain of multiply-adds, or one for each block of k, added in
/// pairs while their number is even and then in order.
float GroupedRun::Data::expectSum(size_t expert, int64_t row, int64_t column,
                                  size_t w) const {
  int64_t source = grouped.gather ? std::max(gather[row], 0) : row;
  std::vector<float> chains(grouped.chains, 0.0f);
  if (grouped.bias)
    chains[0] = bias[w][expert * grouped.n + column];
  int64_t block = grouped.k / grouped.chains;
  for (size_t i = 0; i < (grouped.chained ? weights.size() : 1); ++i)
    for (int64_t k = 0; k < grouped.k; ++k) {
      float &sum = chains[k / block];
      sum = std::fmaf(rows[i][source * grouped.k + k],
                      weights[w + i][placeOf(expert, column, k)], sum);
    }
  while (chains.size() % 2 == 0) {
    for (size_t i = 0; i < chains.size() / 2; ++i)
      chains[i] = chains[2 * i] + chains[2 * i + 1];
    chains.resize(chains.size() / 2);
  }
  return std::accumulate(chains.begin() + 1, chains.end(), chains[0]);
}

float GroupedRun::Data::expectRow(size_t expert, int64_t row,
                                  int64_t column) const {
  std::vector<float> sums;
  for (int64_t w = 0; w < kernel.sums(); ++w)
    sums.push_back(expectSum(expert, row, column, w));
  if (!grouped.fullEpilogue)
    return sums[0];
  double value = grouped.integers ? std::max(sums[0], 0.0f)
                                  : sums[0] / (1 + std::exp(-double(sums[0])));
  for (size_t w = 1; w < sums.size(); ++w)
    value *= sums[w];
  value += vectors[expert * grouped.n + column];
  value += elements[row * grouped.n + column];
  return float(value * scalars[row]);
}

float GroupedRun::Data::expectContraction(size_t expert, int64_t n,
                                          int64_t k) const {
  float sum = 0;
  for (int32_t r = 0; r < grouped.sizes[expert]; ++r) {
    int64_t row = firstRow(expert) + r;
    sum = std::fmaf(rows[0][row * grouped.n + n], rows[1][row * grouped.k + k],
                    sum);
  }
  return sum;
}

void GroupedRun::Data::compare(size_t result, int64_t index,
                               float expected) const {
  float got;
  const std::vector<uint8_t> &bytes = results[result];
  bool isWide = resultBytes() == 4;
  // Sums are exact; an activation of real numbers is not.
  bool isExact = grouped.integers || !grouped.fullEpilogue;
  if (isWide) {
    memcpy(&got, &bytes[index * 4], 4);
  } else {
    uint16_t bits;
    memcpy(&bits, &bytes[index * 2], 2);
    got = widen(bits, grouped.isHalf);
    if (isExact)
      expected = widen(narrow(expected, grouped.isHalf), grouped.isHalf);
  }
  if (isExact) {
    ASSERT_EQ(got, expected) << "element " << index << " of result " << result;
    return;
  }
  // Half a unit of the result, and what f32 may lose in the epilogue.
  float unit = isWide ? 0 : grouped.isHalf ? 0x1p-11f : 0x1p-8f;
  ASSERT_LE(std::fabs(got - expected),
            std::fabs(expected) * unit + float(grouped.k) * 16e-5f)
      << "element " << index << ": got " << got << ", expected " << expected;
}

GroupedRun::GroupedRun(const GroupedCase &grouped)
    : data(std::make_unique<Data>(grouped)) {
  data->kernel = describeCase(grouped, data->context.get());
  auto module = buildCase(data->context, grouped, &data->sharedBytes);
  data->image = EmulatedImage::compile(*module);
  EXPECT_TRUE(data->image) << data->context.errors;
  data->draw(grouped.seed);
}

GroupedRun::~GroupedRun() = default;

//===----------------------------------------------------------------------===//
// Launch
//===----------------------------------------------------------------------===//

static EncodedTensor encodeRows(Device &device, const DeviceArray &array,
                                int64_t width, int64_t count,
                                const int64_t (&box)[2]) {
  TensorBox view;
  view.base = array.memory;
  view.rank = 2;
  view.sizes[0] = width;
  view.sizes[1] = count;
  view.strides[0] = width * 2;
  view.box[0] = int32_t(box[0]);
  view.box[1] = int32_t(box[1]);
  Result<EncodedTensor> map = device.encode(view);
  EXPECT_TRUE(map.ok()) << map.status().message;
  return *map;
}

static EncodedTensor encodeWeights(Device &device, const DeviceArray &array,
                                   int64_t inner, int64_t outer,
                                   int64_t experts, const int64_t (&box)[2]) {
  TensorBox view;
  view.base = array.memory;
  view.rank = 3;
  view.sizes[0] = inner;
  view.sizes[1] = outer;
  view.sizes[2] = experts;
  view.strides[0] = inner * 2;
  view.strides[1] = inner * outer * 2;
  view.box[0] = int32_t(box[0]);
  view.box[1] = int32_t(box[1]);
  view.box[2] = 1;
  Result<EncodedTensor> map = device.encode(view);
  EXPECT_TRUE(map.ok()) << map.status().message;
  return *map;
}

Status GroupedRun::run(const EmulatedOptions &options, int32_t blocks) {
  const GroupedCase &grouped = data->grouped;
  std::unique_ptr<EmulatedDevice> device = openEmulated(options);
  int64_t experts = grouped.sizes.size();
  bool bulk = grouped.schedule.style == GPUStyle::Warpgroup;

  std::vector<std::unique_ptr<DeviceArray>> arrays;
  std::vector<KernelArgument> arguments;
  auto upload = [&](const auto &given) -> DeviceArray & {
    if constexpr (std::is_same_v<std::decay_t<decltype(given)>, Values>) {
      arrays.push_back(
          std::make_unique<DeviceArray>(*device, data->encode(given)));
    } else {
      arrays.push_back(std::make_unique<DeviceArray>(*device, given));
    }
    return *arrays.back();
  };
  auto pass = [&](DeviceArray &array) {
    arguments.push_back(KernelArgument::of(array.memory));
  };
  std::vector<EncodedTensor> maps;
  std::vector<DeviceArray *> rows, weights;
  for (const auto &values : data->rows)
    rows.push_back(&upload(values));
  for (const auto &values : data->weights)
    weights.push_back(&upload(values));
  if (bulk) {
    mlir::moe::KernelBoxes boxes = mlir::moe::getBoxes(data->kernel);
    bool isTransposed = data->kernel.hasColumnsInside();
    for (size_t i = 0; i < rows.size(); ++i)
      maps.push_back(encodeRows(*device, *rows[i], data->widthOf(i),
                                data->sourceRows,
                                i == 0 ? boxes.rows : boxes.weights));
    for (DeviceArray *array : weights)
      maps.push_back(encodeWeights(
          *device, *array, isTransposed ? grouped.n : grouped.k,
          isTransposed ? grouped.k : grouped.n, experts, boxes.weights));
    for (const EncodedTensor &map : maps)
      arguments.push_back(KernelArgument::of(map));
  } else {
    for (DeviceArray *array : rows)
      pass(*array);
  }
  pass(upload(grouped.sizes));
  if (!bulk)
    for (DeviceArray *array : weights)
      pass(*array);
  for (const auto &values : data->bias)
    pass(upload(values));
  if (grouped.gather)
    pass(upload(data->gather));
  if (grouped.fullEpilogue) {
    pass(upload(data->vectors));
    pass(upload(data->elements));
    arrays.push_back(std::make_unique<DeviceArray>(*device, data->scalars));
    pass(*arrays.back());
  }
  std::vector<std::unique_ptr<DeviceArray>> results;
  for (size_t i = 0; i < data->kernel.results.size(); ++i) {
    results.push_back(std::make_unique<DeviceArray>(
        *device, data->resultElements() * data->resultBytes()));
    pass(*results.back());
  }
  int32_t stride = int32_t(grouped.stride);
  arguments.push_back(KernelArgument::of(stride));

  LaunchShape shape;
  shape.grid.x = blocks;
  shape.block.x = int32_t(grouped.schedule.threads());
  shape.dynamicShared = data->sharedBytes;
  Status status =
      launchAndWait(*device, *data->image, "grouped", shape, arguments);
  report = device->takeReport();
  data->results.clear();
  for (const auto &result : results)
    data->results.push_back(result->values<uint8_t>());
  return status;
}

void GroupedRun::expectAnswer() const {
  const GroupedCase &grouped = data->grouped;
  int64_t experts = grouped.sizes.size();
  if (grouped.contraction) {
    for (int64_t e = 0; e < experts; ++e)
      for (int64_t n = 0; n < grouped.n; ++n)
        for (int64_t k = 0; k < grouped.k; ++k)
          ASSERT_NO_FATAL_FAILURE(
              data->compare(0, (e * grouped.n + n) * grouped.k + k,
                            data->expectContraction(e, n, k)));
    return;
  }
  std::vector<bool> used(data->rowCount, false);
  for (int64_t e = 0; e < experts; ++e)
    for (int32_t r = 0; r < grouped.sizes[e]; ++r) {
      int64_t row = data->firstRow(e) + r;
      used[row] = true;
      for (int64_t n = 0; n < grouped.n; ++n) {
        float expected = data->expectRow(e, row, n);
        for (size_t i = 0; i < data->results.size(); ++i)
          ASSERT_NO_FATAL_FAILURE(data->compare(
              i, row * grouped.n + n, expected * float(int64_t(1) << i)));
      }
    }
  int64_t rowBytes = grouped.n * data->resultBytes();
  for (const std::vector<uint8_t> &result : data->results)
    for (int64_t row = 0; row < data->rowCount; ++row)
      for (int64_t byte = 0; byte < rowBytes && !used[row]; ++byte)
        ASSERT_EQ(result[row * rowBytes + byte], 0xff)
            << "row " << row << " belongs to no group";
}
