// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "GPU/GroupedCase.h"

#include "base/Convert.h"
#include "moira/Dialect/MoE/IR/MoEDialect.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

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
// The kernel of a case
//===----------------------------------------------------------------------===//

/// x0 (silu) * x1 + vector + element, times scalar; with integers max(x0, 0)
/// instead of silu.
static void fillEpilogue(mlir::Block &block, mlir::MLIRContext &context,
                         const GroupedCase &grouped,
                         const GroupedKernel &kernel) {
  mlir::Location loc = mlir::UnknownLoc::get(&context);
  mlir::OpBuilder b(&context);
  b.setInsertionPointToStart(&block);
  mlir::Type f32 = b.getF32Type();
  auto add = [&](llvm::ArrayRef<mlir::Type> types) {
    llvm::SmallVector<mlir::Value> values;
    for (mlir::Type type : types)
      values.push_back(block.addArgument(type, loc));
    return values;
  };
  auto sums = add(llvm::SmallVector<mlir::Type>(kernel.weights, f32));
  auto vectors = add(kernel.vectors), elements = add(kernel.elements),
       scalars = add(kernel.scalars);
  auto wide = [&](mlir::Value value) -> mlir::Value {
    return value.getType().isF32()
               ? value
               : mlir::arith::ExtFOp::create(b, loc, f32, value);
  };
  mlir::Value value;
  auto constant = [&](float number) -> mlir::Value {
    return mlir::arith::ConstantOp::create(b, loc, b.getF32FloatAttr(number));
  };
  if (grouped.integers) {
    value = mlir::arith::MaximumFOp::create(b, loc, sums[0], constant(0));
  } else {
    mlir::Value power = mlir::math::ExpOp::create(
        b, loc, mlir::arith::NegFOp::create(b, loc, sums[0]));
    value = mlir::arith::DivFOp::create(
        b, loc, sums[0],
        mlir::arith::AddFOp::create(b, loc, power, constant(1)));
  }
  for (mlir::Value other : llvm::ArrayRef(sums).drop_front())
    value = mlir::arith::MulFOp::create(b, loc, value, other);
  for (mlir::Value other : vectors)
    value = mlir::arith::AddFOp::create(b, loc, value, wide(other));
  for (mlir::Value other : elements)
    value = mlir::arith::AddFOp::create(b, loc, value, wide(other));
  for (mlir::Value other : scalars)
    value = mlir::arith::MulFOp::create(b, loc, value, wide(other));
  if (!kernel.result.isF32())
    value = mlir::arith::TruncFOp::create(b, loc, kernel.result, value);
  mlir::moe::YieldOp::create(b, loc, value);
}

static GroupedKernel describe(const GroupedCase &grouped,
                              mlir::MLIRContext &context) {
  mlir::Builder b(&context);
  GroupedKernel kernel;
  kernel.name = "grouped";
  kernel.element =
      grouped.isHalf ? mlir::Type(b.getF16Type()) : mlir::Type(b.getBF16Type());
  kernel.result = grouped.f32Result ? b.getF32Type() : kernel.element;
  kernel.experts = grouped.sizes.size();
  kernel.n = grouped.n;
  kernel.k = grouped.k;
  kernel.weights = grouped.weights;
  kernel.transposed = grouped.transposed;
  kernel.contraction = grouped.contraction;
  kernel.padded = grouped.stride > 0;
  kernel.gather = grouped.gather;
  if (grouped.bias)
    kernel.bias.assign(grouped.weights, kernel.element);
  if (grouped.fullEpilogue) {
    kernel.vectors = {kernel.element};
    kernel.elements = {kernel.element};
    kernel.scalars = {b.getF32Type()};
  }
  kernel.schedule = grouped.schedule;
  return kernel;
}

mlir::OwningOpRef<mlir::ModuleOp>
moira::test::buildCase(GPUContext &context, const GroupedCase &grouped,
                       int64_t *sharedBytes) {
  mlir::MLIRContext &own = context.get();
  mlir::Location loc = mlir::UnknownLoc::get(&own);
  mlir::OwningOpRef<mlir::ModuleOp> module = mlir::ModuleOp::create(loc);
  mlir::OpBuilder b(module->getBodyRegion());
  auto gpuModule = mlir::gpu::GPUModuleOp::create(b, loc, "kernels");
  GroupedKernel kernel = describe(grouped, own);
  mlir::Block epilogue;
  if (grouped.fullEpilogue) {
    fillEpilogue(epilogue, own, grouped, kernel);
    kernel.epilogue = &epilogue;
  }
  if (mlir::failed(mlir::moe::checkKernel(
          kernel, [&] { return gpuModule.emitError(); }))) {
    ADD_FAILURE() << context.errors;
    return module;
  }
  mlir::moe::buildGroupedKernel(gpuModule, kernel);
  if (grouped.edit)
    grouped.edit(gpuModule);
  if (sharedBytes)
    *sharedBytes = kernel.sharedBytes();
  return module;
}

//===----------------------------------------------------------------------===//
// Inputs and the answer
//===----------------------------------------------------------------------===//

struct GroupedRun::Data {
  explicit Data(const GroupedCase &grouped) : grouped(grouped) {}

  GroupedCase grouped;
  GPUContext context;
  GroupedKernel kernel;
  std::unique_ptr<EmulatedImage> image;
  int64_t sharedBytes = 0;
  int64_t rowCount = 0, sourceRows = 0;
  std::vector<std::vector<uint16_t>> rows, weights, bias;
  std::vector<uint16_t> vectors, elements;
  std::vector<float> scalars;
  std::vector<int32_t> gather;
  std::vector<uint8_t> result; ///< of the last run
  std::mt19937 random{1};

  float draw() {
    if (grouped.integers)
      return float(int(random() % 5) - 2);
    return float(random() % 2001) / 1000.0f - 1.0f;
  }
  std::vector<uint16_t> drawAll(int64_t count) {
    std::vector<uint16_t> values(count);
    for (uint16_t &value : values)
      value = narrow(draw(), grouped.isHalf);
    return values;
  }
  float at(const std::vector<uint16_t> &values, int64_t index) const {
    return widen(values[index], grouped.isHalf);
  }
  int64_t firstRow(size_t expert) const {
    return grouped.stride
               ? int64_t(expert) * grouped.stride
               : std::accumulate(grouped.sizes.begin(),
                                 grouped.sizes.begin() + expert, int64_t(0));
  }
  int64_t resultElements() const {
    return grouped.contraction
               ? int64_t(grouped.sizes.size()) * grouped.n * grouped.k
               : rowCount * grouped.n;
  }
  void draw(uint32_t seed);
  float expectRow(size_t expert, int64_t row, int64_t column) const;
  float expectContraction(size_t expert, int64_t n, int64_t k) const;
  void compare(int64_t index, float expected, float magnitude) const;
};

void GroupedRun::Data::draw(uint32_t seed) {
  random.seed(seed);
  int64_t experts = grouped.sizes.size();
  // Rows that no group has must be read into no result.
  rowCount = grouped.stride ? experts * grouped.stride : firstRow(experts) + 3;
  sourceRows = grouped.gather ? 37 : rowCount;
  auto poisonTails = [&](std::vector<uint16_t> &values, int64_t width) {
    if (grouped.gather)
      return;
    std::vector<bool> used(rowCount, false);
    for (int64_t e = 0; e < experts; ++e)
      for (int32_t r = 0; r < grouped.sizes[e]; ++r)
        used[firstRow(e) + r] = true;
    for (int64_t r = 0; r < rowCount; ++r)
      if (!used[r])
        std::fill_n(values.begin() + r * width, width, 0x7fff);
  };
  if (grouped.contraction) {
    rows = {drawAll(rowCount * grouped.n), drawAll(rowCount * grouped.k)};
    poisonTails(rows[0], grouped.n);
    poisonTails(rows[1], grouped.k);
  } else {
    rows = {drawAll(sourceRows * grouped.k)};
    poisonTails(rows[0], grouped.k);
    for (int64_t w = 0; w < grouped.weights; ++w)
      weights.push_back(drawAll(experts * grouped.n * grouped.k));
  }
  if (grouped.bias)
    for (int64_t w = 0; w < grouped.weights; ++w)
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

float GroupedRun::Data::expectRow(size_t expert, int64_t row,
                                  int64_t column) const {
  int64_t source = grouped.gather ? std::max(gather[row], 0) : row;
  std::vector<double> sums;
  for (int64_t w = 0; w < grouped.weights; ++w) {
    double sum = grouped.bias ? at(bias[w], expert * grouped.n + column) : 0.0;
    for (int64_t k = 0; k < grouped.k; ++k) {
      int64_t weight =
          grouped.transposed
              ? (int64_t(expert) * grouped.k + k) * grouped.n + column
              : (int64_t(expert) * grouped.n + column) * grouped.k + k;
      sum +=
          double(at(rows[0], source * grouped.k + k)) * at(weights[w], weight);
    }
    sums.push_back(sum);
  }
  if (!grouped.fullEpilogue)
    return float(sums[0]);
  double value = grouped.integers ? std::max(sums[0], 0.0)
                                  : sums[0] / (1 + std::exp(-sums[0]));
  for (size_t w = 1; w < sums.size(); ++w)
    value *= sums[w];
  value += at(vectors, expert * grouped.n + column);
  value += at(elements, row * grouped.n + column);
  return float(value * scalars[row]);
}

float GroupedRun::Data::expectContraction(size_t expert, int64_t n,
                                          int64_t k) const {
  double sum = 0;
  for (int32_t r = 0; r < grouped.sizes[expert]; ++r) {
    int64_t row = firstRow(expert) + r;
    sum += double(at(rows[0], row * grouped.n + n)) *
           at(rows[1], row * grouped.k + k);
  }
  return float(sum);
}

void GroupedRun::Data::compare(int64_t index, float expected,
                               float magnitude) const {
  float got;
  if (grouped.f32Result) {
    memcpy(&got, &result[index * 4], 4);
  } else {
    uint16_t bits;
    memcpy(&bits, &result[index * 2], 2);
    got = widen(bits, grouped.isHalf);
    if (grouped.integers)
      expected = widen(narrow(expected, grouped.isHalf), grouped.isHalf);
  }
  if (grouped.integers) {
    ASSERT_EQ(got, expected) << "element " << index;
    return;
  }
  // Half a unit of the result, and what an f32 sum may lose on its way.
  float unit = grouped.f32Result ? 0 : grouped.isHalf ? 0x1p-11f : 0x1p-8f;
  ASSERT_LE(std::fabs(got - expected),
            std::fabs(expected) * unit + magnitude * 1e-5f)
      << "element " << index << ": got " << got << ", expected " << expected;
}

GroupedRun::GroupedRun(const GroupedCase &grouped)
    : data(std::make_unique<Data>(grouped)) {
  data->kernel = describe(grouped, data->context.get());
  auto module = buildCase(data->context, grouped, &data->sharedBytes);
  data->image = EmulatedImage::compile(*module);
  EXPECT_TRUE(data->image) << data->context.errors;
  data->draw(grouped.seed);
}

GroupedRun::~GroupedRun() = default;

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
  auto upload = [&](const auto &values) -> DeviceArray & {
    arrays.push_back(std::make_unique<DeviceArray>(*device, values));
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
    maps.push_back(
        encodeRows(*device, *rows[0], grouped.k, data->sourceRows, boxes.rows));
    for (DeviceArray *array : weights)
      maps.push_back(encodeWeights(
          *device, *array, grouped.transposed ? grouped.n : grouped.k,
          grouped.transposed ? grouped.k : grouped.n, experts, boxes.weights));
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
    pass(upload(data->scalars));
  }
  DeviceArray result(*device,
                     data->resultElements() * (grouped.f32Result ? 4 : 2));
  pass(result);
  int32_t stride = int32_t(grouped.stride);
  arguments.push_back(KernelArgument::of(stride));

  LaunchShape shape;
  shape.grid.x = blocks;
  shape.block.x = int32_t(grouped.schedule.threads());
  shape.dynamicShared = data->sharedBytes;
  Status status =
      launchAndWait(*device, *data->image, "grouped", shape, arguments);
  report = device->takeReport();
  data->result = result.values<uint8_t>();
  return status;
}

void GroupedRun::expectAnswer() const {
  const GroupedCase &grouped = data->grouped;
  int64_t experts = grouped.sizes.size();
  if (grouped.contraction) {
    for (int64_t e = 0; e < experts; ++e)
      for (int64_t n = 0; n < grouped.n; ++n)
        for (int64_t k = 0; k < grouped.k; ++k)
          ASSERT_NO_FATAL_FAILURE(data->compare(
              (e * grouped.n + n) * grouped.k + k,
              data->expectContraction(e, n, k), float(grouped.sizes[e])));
    return;
  }
  std::vector<bool> used(data->rowCount, false);
  for (int64_t e = 0; e < experts; ++e)
    for (int32_t r = 0; r < grouped.sizes[e]; ++r) {
      int64_t row = data->firstRow(e) + r;
      used[row] = true;
      for (int64_t n = 0; n < grouped.n; ++n)
        ASSERT_NO_FATAL_FAILURE(data->compare(row * grouped.n + n,
                                              data->expectRow(e, row, n),
                                              float(grouped.k) * 16));
    }
  int64_t rowBytes = grouped.n * (grouped.f32Result ? 4 : 2);
  for (int64_t row = 0; row < data->rowCount; ++row)
    for (int64_t byte = 0; byte < rowBytes && !used[row]; ++byte)
      ASSERT_EQ(data->result[row * rowBytes + byte], 0xff)
          << "row " << row << " belongs to no group";
}
