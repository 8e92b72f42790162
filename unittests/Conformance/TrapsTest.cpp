// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Faults of public implementations that show in compiled code only: padding of
// tiles, uninitialised memory, batches, sizes of indices.

#include "Conformance/Harness.h"
#include "Conformance/LayerTools.h"
#include "Reference/Cases.h"
#include "Reference/RandomProgram.h"
#include "base/Convert.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <sys/mman.h>
#include <sys/sysinfo.h>

using namespace moira;
using namespace moira::conformance;
using namespace moira::reference;

//===----------------------------------------------------------------------===//
// Layers
//===----------------------------------------------------------------------===//

namespace {
/// A layer with random values of real numbers.
struct Sizes {
  int64_t tokens, experts, choices, features, hidden, outFeatures;
};
} // namespace

static Reals roundAll(Reals values, DType type) {
  for (double &value : values.data)
    value = roundTo(type, value);
  return values;
}

static Case randomLayer(const Sizes &sizes, DType type, bool gated = true) {
  Router router;
  router.topK = sizes.choices;
  router.normalize = Normalize::SumPlusEps;
  Case c = routerCase(
      "", noise(Distribution::Normal, sizes.tokens, sizes.experts, {1, 0, 0}),
      router);
  c.layer.features = sizes.features;
  c.layer.hidden = sizes.hidden;
  c.layer.outFeatures = sizes.outFeatures;
  c.layer.rowType = type;
  c.layer.activation = Activation::Silu;
  c.layer.gated = gated;
  uint32_t layer = 0;
  auto draw = [&](int64_t rows, int64_t cols) {
    return roundAll(noise(Distribution::Normal, rows, cols, {2, ++layer, 0}),
                    type);
  };
  c.inputs.x = draw(sizes.tokens, sizes.features);
  for (int64_t e = 0; e < sizes.experts; ++e) {
    c.inputs.w1[e] = draw(sizes.hidden, sizes.features);
    c.inputs.w2[e] = draw(sizes.outFeatures, sizes.hidden);
    if (gated)
      c.inputs.wg.push_back(draw(sizes.hidden, sizes.features));
    c.inputs.b1.push_back(draw(1, sizes.hidden).data);
    c.inputs.b2.push_back(draw(1, sizes.outFeatures).data);
  }
  return c;
}

static Runner makeRunner(const Case &c, const CompileOptions &options) {
  Runner runner(compileLayer(c.layer, c.inputs, options));
  if (!options.weights.arguments)
    runner.bindWeights(c.layer, c.inputs, options.weights);
  return runner;
}

/// Oracle and product, and the interpreter, on a layer.
static void expectAgreement(const Case &c, CompileOptions options = {}) {
  options.oracle = true;
  Outputs bits = makeRunner(c, options).run(c.layer, c.inputs);
  EXPECT_EQ(
      differenceFrom(results(evaluate(c.layer, c.inputs), c.layer), bits, 0),
      "");
  options.oracle = false;
  Runner product = makeRunner(c, options);
  for (const std::string &variant : product.variants()) {
    SCOPED_TRACE(variant);
    product.setVariant(variant);
    Outputs outputs = product.run(c.layer, c.inputs);
    EXPECT_EQ(difference(bits, outputs), "");
    ASSERT_FALSE(outputs.empty());
    for (double value : outputs.back().values())
      ASSERT_FALSE(std::isnan(value));
  }
}

//===----------------------------------------------------------------------===//
// Padding and memory that nobody wrote
//===----------------------------------------------------------------------===//

TEST(CompiledTraps, TilesArePaddedWithZeros) {
  // All memory is poisoned, packed weights included.
  for (const Sizes &sizes :
       {Sizes{7, 5, 3, 20, 12, 20}, Sizes{9, 3, 2, 1, 1, 1},
        Sizes{11, 2, 1, 17, 33, 65}, Sizes{40, 3, 2, 64, 128, 31}})
    for (DType type : {DType::F32, DType::BF16}) {
      SCOPED_TRACE(concat("features ", sizes.features, ", hidden ",
                          sizes.hidden, ", ", nameOf(type)));
      CompileOptions options;
      options.weights.perExpert = true;
      expectAgreement(randomLayer(sizes, type), options);
    }
}

/// One column in the last tile: LLVM 22 may store more than its one element.
TEST(CompiledTraps, TilesOfOneColumn) {
  for (int64_t columns : {1, 17, 33, 129})
    for (DType type : {DType::F32, DType::BF16, DType::F16})
      for (unsigned level : {0, 3}) {
        SCOPED_TRACE(
            concat(columns, " columns, ", nameOf(type), ", -O", level));
        CompileOptions options;
        options.optLevel = level;
        expectAgreement(
            randomLayer({9, 2, 1, 4, columns, columns}, type, columns == 33),
            options);
      }
}

TEST(CompiledTraps, WeightsMayStandInAnyForm) {
  Case c = randomLayer({9, 3, 2, 20, 37, 11}, DType::F32);
  for (int form = 0; form < 16; ++form) {
    SCOPED_TRACE(form);
    CompileOptions options;
    options.weights.perExpert = form & 1;
    options.weights.transposed = form & 2;
    options.weights.joined = form & 4;
    options.weights.interleaved = form & 8;
    if (options.weights.interleaved && !options.weights.joined)
      continue;
    expectAgreement(c, options);
  }
  CompileOptions options;
  options.weights.arguments = true;
  expectAgreement(c, options);
}

TEST(CompiledTraps, EmptyGroupsAndUnevenGroups) {
  for (const Counts &counts :
       {Counts{3, 0, 2}, Counts{1, 2, 3}, Counts{0, 0, 5}, Counts{0, 17, 0}}) {
    Ids ids(std::accumulate(counts.begin(), counts.end(), 0), 1);
    int64_t token = 0;
    for (size_t e = 0; e < counts.size(); ++e)
      for (int32_t i = 0; i < counts[e]; ++i)
        ids(token++, 0) = e;
    for (bool padded : {false, true}) {
      Case c = randomLayer({ids.rows, 3, 1, 5, 9, 3}, DType::F32);
      c.layer.padded = padded;
      c.inputs.gate.replay = ids;
      SCOPED_TRACE(concat("group 0 of ", counts[0], ", padded ", padded));
      EXPECT_EQ(evaluate(c.layer, c.inputs).counts, counts);
      expectAgreement(c);
    }
  }
}

//===----------------------------------------------------------------------===//
// Numbers of experts and tokens
//===----------------------------------------------------------------------===//

TEST(CompiledTraps, ManyExperts) {
  Case c = randomLayer({4, 300, 1, 3, 2, 3}, DType::F32);
  for (int64_t t = 0; t < 4; ++t)
    for (int64_t e = 0; e < 300; ++e)
      c.inputs.gate.logits(t, e) = e == (t < 2 ? 299 : 256 + t) ? 5 : 0;
  EXPECT_EQ(evaluate(c.layer, c.inputs).gate.ids.data,
            (std::vector<int32_t>{299, 299, 258, 259}));
  expectAgreement(c);
}

TEST(CompiledTraps, AllTokensToOneExpert) {
  Case c = randomLayer({4, 5, 1, 6, 4, 6}, DType::F32);
  for (int64_t t = 0; t < 4; ++t)
    c.inputs.gate.logits(t, 0) = 100;
  c.layer.padded = true;
  c.layer.capacity = Capacity{CapacityRule::Fixed, 4, 0, 16};
  EXPECT_EQ(evaluate(c.layer, c.inputs).assignment.sizes,
            (Counts{4, 0, 0, 0, 0}));
  expectAgreement(c);
}

TEST(CompiledTraps, NoTokens) {
  for (bool padded : {false, true}) {
    Case c = randomLayer({0, 4, 2, 6, 5, 3}, DType::BF16);
    c.layer.padded = padded;
    expectAgreement(c);
  }
}

/// A capacity that folds to 0 makes dimensions of 0.
TEST(CompiledTraps, NoCapacity) {
  for (bool padded : {false, true}) {
    Case c = randomLayer({5, 4, 2, 6, 5, 3}, DType::F32);
    c.layer.padded = padded;
    c.layer.capacity = Capacity{CapacityRule::Fixed, 0};
    EXPECT_EQ(evaluate(c.layer, c.inputs).assignment.sizes, Counts(4, 0));
    expectAgreement(c);
  }
}

TEST(CompiledTraps, NaNInFarRows) {
  Case c = randomLayer({600, 513, 2, 1, 1, 1}, DType::F32, /*gated=*/false);
  double nan = std::numeric_limits<double>::quiet_NaN();
  for (int64_t e = 0; e < 513; ++e)
    c.inputs.gate.logits(599, e) = nan;
  c.inputs.gate.logits(0, 0) = c.inputs.gate.logits(0, 512) = nan;
  GateResult gate = evaluate(c.layer, c.inputs).gate;
  EXPECT_EQ(gate.ids(599, 0), 0);
  EXPECT_EQ(gate.ids(599, 1), 1);
  expectAgreement(c);
}

//===----------------------------------------------------------------------===//
// Rounding
//===----------------------------------------------------------------------===//

/// Numbers around every tie and border of 16-bit types: for each pattern of the
/// upper bits of an f32, the halfway point to the next, and its neighbours.
static std::vector<double> valuesToRound(bool wide) {
  std::vector<double> values;
  for (uint32_t upper = 0; upper < 1 << 16; upper += 7)
    for (uint32_t lower : {0x0000u, 0x0001u, 0x0fffu, 0x1000u, 0x1001u, 0x7fffu,
                           0x8000u, 0x8001u, 0xffffu}) {
      uint32_t bits = upper << 16 | lower;
      float value;
      std::memcpy(&value, &bits, 4);
      if (std::isnan(value))
        continue;
      values.push_back(value);
      if (wide && std::isfinite(value)) {
        values.push_back(std::nextafter(double(value), -INFINITY));
        values.push_back(std::nextafter(double(value), INFINITY));
        values.push_back(double(value) * 0x1.0000001p3);
      }
    }
  values.push_back(std::numeric_limits<double>::quiet_NaN());
  return values;
}

TEST(CompiledTraps, RoundingIsTheSameEverywhere) {
  for (std::string from : {"f32", "f64"})
    for (std::string to : {"bf16", "f16"}) {
      std::string in = "tensor<?x" + from + ">", out = "tensor<?x" + to + ">";
      std::string text = "func.func @main(%x: " + in + ") -> " + out +
                         " {\n  %0 = arith.truncf %x : " + in + " to " + out +
                         "\n  return %0 : " + out + "\n}\n";
      std::vector<double> values = valuesToRound(from == "f64");
      Output expected{*runtime::parseDataType(to),
                      {int64_t(values.size())},
                      std::vector<unsigned char>(values.size() * 2)};
      runtime::convert(runtime::DataType::F64, values.data(), expected.dtype,
                       expected.bytes.data(), values.size());
      for (std::string cpu : {"host", "x86-64-v3", "x86-64-v2"})
        for (unsigned level : {0, 3}) {
          SCOPED_TRACE(concat(from, " to ", to, ", ", cpu, ", -O", level));
          CompileOptions options;
          options.optLevel = level;
          options.cpu = cpu;
          Runner runner(compileText(text, options));
          Outputs outputs =
              runner.run({{"x", from, {int64_t(values.size())}, values}});
          EXPECT_EQ(
              differenceFrom({{"y", to, expected.shape, expected.values()}},
                             outputs, 0),
              "");
        }
    }
}

/// Sums and products of 16-bit numbers are those of f32, rounded each time.
TEST(CompiledTraps, ArithmeticOn16BitsRoundsEachTime) {
  for (DType type : {DType::BF16, DType::F16}) {
    std::string name = nameOf(type), tensor = "tensor<?x" + name + ">";
    std::string text = "func.func @main(%a: " + tensor + ", %b: " + tensor +
                       ") -> " + tensor +
                       " {\n  %0 = arith.mulf %a, %b : " + tensor +
                       "\n  %1 = arith.addf %0, %a : " + tensor +
                       "\n  %2 = math.sqrt %1 : " + tensor +
                       "\n  return %2 : " + tensor + "\n}\n";
    std::vector<double> a, b, expected;
    for (int i = 0; i < 400; ++i) {
      a.push_back(roundTo(type, std::ldexp(1 + i / 401.0, i % 11 - 5)));
      b.push_back(roundTo(type, 1 + i / 1003.0));
      double product = roundTo(type, float(a[i] * b[i]));
      double sum = roundTo(type, float(product + a[i]));
      expected.push_back(roundTo(type, std::sqrt(float(sum))));
    }
    for (std::string cpu : {"host", "x86-64-v3", "x86-64-v2"}) {
      SCOPED_TRACE(name + ", " + cpu);
      CompileOptions options;
      options.optLevel = 3;
      options.cpu = cpu;
      Runner runner(compileText(text, options));
      EXPECT_EQ(differenceFrom(
                    {{"y", name, {400}, expected}},
                    runner.run({{"a", name, {400}, a}, {"b", name, {400}, b}}),
                    0),
                "");
    }
  }
}

//===----------------------------------------------------------------------===//
// Batches
//===----------------------------------------------------------------------===//

TEST(CompiledTraps, RowsDoNotDependOnTheBatch) {
  for (DType type : {DType::F32, DType::BF16}) {
    Case c = randomLayer({37, 6, 2, 19, 23, 17}, type);
    CompileOptions options;
    options.optLevel = 3;
    Runner runner = makeRunner(c, options);
    Outputs first = runner.run(c.layer, c.inputs);
    ASSERT_FALSE(first.empty());
    Output y = first.back();
    EXPECT_TRUE(y == runner.run(c.layer, c.inputs).back()) << "run again";

    std::vector<int64_t> order(37);
    std::iota(order.rbegin(), order.rend(), 0);
    Outputs reversed = runner.run(c.layer, takeTokens(c.inputs, order));
    EXPECT_EQ(difference({takeRows(y, order)}, {reversed.back()}), "")
        << "reversed";
    for (int64_t t : order) {
      Outputs alone = runner.run(c.layer, takeTokens(c.inputs, {t}));
      EXPECT_EQ(difference({takeRows(y, {t})}, {alone.back()}), "")
          << "token " << t << " alone";
    }
  }
}

//===----------------------------------------------------------------------===//
// Sizes beyond 32 bits
//===----------------------------------------------------------------------===//

/// Inputs of more than 2^31 elements that take no memory, and rows of experts
/// of more than 2^32 elements of which one row is written.
TEST(CompiledTraps, AddressesAre64Bit) {
  constexpr int64_t tokens = (int64_t(1) << 21) + 1, features = 1024;
  struct sysinfo machine;
  ASSERT_EQ(sysinfo(&machine), 0);
  // The runtime refuses workspace beyond the machine's memory.
  if (machine.totalram * machine.mem_unit < uint64_t(16) << 30)
    GTEST_SKIP() << "needs address space of 16 GiB";

  Case c = randomLayer({1, 3, 1, features, 1, 1}, DType::BF16, false);
  c.layer.activation = Activation::Identity;
  c.layer.padded = true;
  c.layer.capacity = Capacity{CapacityRule::Fixed, double(tokens - 1)};
  c.inputs.b1.clear();
  c.inputs.b2.clear();
  c.inputs.gate.mask = {1};
  for (int64_t e = 0; e < 3; ++e) {
    c.inputs.w1[e] = Reals(1, features);
    c.inputs.w1[e](0, 0) = e + 1;
    c.inputs.w2[e] = Reals{{1}};
  }
  CompileOptions options;
  options.optLevel = 1;
  options.weights.arguments = true;
  auto program = compileLayer(c.layer, c.inputs, options);
  ASSERT_TRUE(program);

  int64_t bytes = tokens * features * 2;
  void *x = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(x, MAP_FAILED);
  constexpr uint16_t one = 0x3f80;
  std::memcpy(static_cast<char *>(x) + bytes - features * 2, &one, 2);
  // Only the last token is routed, to the last expert.
  std::vector<float> logits(tokens * 3);
  logits.back() = 200;
  std::vector<char> mask(tokens);
  mask.back() = 1;
  std::vector<uint16_t> w1(3 * features), w2(3, one);
  w1[0] = one, w1[features] = 0x4000, w1[2 * features] = 0x4040;

  using runtime::DataType;
  auto session = runtime::Session::create(program);
  ASSERT_TRUE(session.ok()) << session.status().message;
  std::vector<runtime::ResultTensor> results;
  Status status =
      (*session)->invoke("main",
                         {{DataType::BF16, {tokens, features}, x},
                          {DataType::F32, {tokens, 3}, logits.data()},
                          {DataType::I1, {tokens}, mask.data()},
                          {DataType::BF16, {3, 1, features}, w1.data()},
                          {DataType::BF16, {3, 1, 1}, w2.data()}},
                         results);
  munmap(x, bytes);
  ASSERT_TRUE(status.ok()) << status.message;
  auto *slots = static_cast<const int32_t *>(results[3].data);
  EXPECT_EQ(slots[tokens - 1], 2 * (tokens - 1));
  auto *y = static_cast<const uint16_t *>(results[5].data);
  EXPECT_EQ(y[tokens - 1], 0x4040); // 3
  EXPECT_EQ(y[0], 0);
}
