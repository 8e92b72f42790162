// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Binding: by name, by slice, from a source, at random.

#include "Runtime/MemorySource.h"
#include "Runtime/TestModule.h"
#include "Runtime/TestProgram.h"
#include "base/Convert.h"

#include <cmath>
#include <cstring>
#include <map>
#include <mutex>
#include <set>

using namespace moira;
using namespace moira::runtime;
using namespace moira::test;

namespace {
struct ParametersTest : testing::Test {
  TestWeights weights = TestWeights::integers();
  std::unique_ptr<Session> session;

  void SetUp() override { session = makeSession(testProgram()); }

  static std::unique_ptr<Session>
  makeSession(std::shared_ptr<const Program> program, int threads = 2) {
    SessionOptions options;
    options.threads = threads;
    auto session = Session::create(std::move(program), options);
    EXPECT_OK(session.status());
    return std::move(*session);
  }
  std::vector<float> expert(int index) const {
    auto begin = weights.weight.begin() + index * 16;
    return {begin, begin + 16};
  }
  void fill(MemorySource &source, DataType dtype = DataType::F32,
            int offset = 0) const {
    source.add("experts.0.weight", expert(0), {4, 4}, dtype, offset);
    source.add("experts.1.weight", expert(1), {4, 4}, dtype, offset);
    source.add("bias", weights.bias, {4}, dtype, offset);
  }
  void check() {
    EXPECT_TRUE(session->unbound().empty());
    std::vector<float> x = integerRows(9);
    std::vector<ResultTensor> results;
    EXPECT_OK(session->invoke("main", {view(x, {9, 4})}, results));
    EXPECT_EQ(values(results[0]), weights.expect(x));
  }
};
} // namespace

TEST_F(ParametersTest, BindByName) {
  weights.bind(*session);
  check();
  EXPECT_EQ(session->memory().parameters, 144);
}

TEST_F(ParametersTest, BindSliceBySlice) {
  std::vector<float> first = expert(0), second = expert(1);
  EXPECT_OK(session->bind("bias", view(weights.bias, {4})));
  EXPECT_OK(session->bind("experts.1.weight", view(second, {4, 4})));
  EXPECT_EQ(session->unbound(),
            (std::vector<std::string>{"experts.{}.weight"}));
  EXPECT_OK(session->bind("experts.0.weight", view(first, {4, 4})));
  check();
}

TEST_F(ParametersTest, BindingAgainReplaces) {
  weights.bind(*session);
  weights.bias = {9, 8, 7, 6};
  for (float &value : weights.weight)
    value += 1;
  weights.bind(*session);
  check();
  EXPECT_EQ(session->memory().parameters, 144);
}

TEST_F(ParametersTest, FloatTypesAreConverted) {
  std::vector<uint16_t> half(4);
  convert(DataType::F32, weights.bias.data(), DataType::BF16, half.data(), 4);
  EXPECT_OK(session->bind("bias", {DataType::BF16, {4}, half.data()}));
  std::vector<double> wide(weights.weight.begin(), weights.weight.end());
  EXPECT_OK(session->bind("experts.{}.weight",
                          {DataType::F64, {2, 4, 4}, wide.data()}));
  check();
}

TEST_F(ParametersTest, WrongTensorsAreNamed) {
  EXPECT_ERROR(session->bind("gamma", view(weights.bias, {4})), MOIRA_NOT_FOUND,
               "expected a parameter of the program, got 'gamma'");
  EXPECT_ERROR(session->bind("bias", view(weights.bias, {5})),
               MOIRA_INVALID_ARGUMENT,
               "parameter 'bias': expected f32[4], got f32[5]");
  EXPECT_ERROR(session->bind("bias", {DataType::I32, {4}, &weights.bias[0]}),
               MOIRA_INVALID_ARGUMENT,
               "parameter 'bias': expected f32[4], got i32[4]");
  EXPECT_ERROR(session->bind("bias", {DataType::F32, {4}, nullptr}),
               MOIRA_INVALID_ARGUMENT,
               "parameter 'bias': expected data, got a null pointer");
  EXPECT_ERROR(session->bind("experts.{}.weight", view(weights.weight, {4, 4})),
               MOIRA_INVALID_ARGUMENT,
               "parameter 'experts.{}.weight': expected f32[2, 4, 4], got "
               "f32[4, 4]");
  EXPECT_ERROR(
      session->bind("experts.1.weight", view(weights.weight, {2, 4, 4})),
      MOIRA_INVALID_ARGUMENT,
      "parameter 'experts.1.weight': expected f32[4, 4], got "
      "f32[2, 4, 4]");
  for (const char *name :
       {"experts.2.weight", "experts.01.weight", "experts.-1.weight",
        "experts..weight", "experts.1.weigh", "experts.1.weightx",
        "experts.99999999999999999999999.weight", "expert", ""})
    EXPECT_EQ(session->bind(name, view(weights.weight, {4, 4})).code,
              MOIRA_NOT_FOUND)
        << name;
}

TEST_F(ParametersTest, BindFromASource) {
  MemorySource source;
  fill(source);
  EXPECT_OK(session->bindSource(source));
  check();
  EXPECT_EQ(source.released.size(), 3u);
  for (auto &[address, bytes] : source.released)
    EXPECT_EQ(bytes % 16, 0);
}

TEST_F(ParametersTest, SourcesMayBeOfAnotherTypeAndNotAligned) {
  for (DataType dtype : {DataType::F32, DataType::BF16, DataType::F16})
    for (int offset : {0, 1, 3}) {
      session = makeSession(testProgram());
      MemorySource source;
      fill(source, dtype, offset);
      EXPECT_OK(session->bindSource(source));
      check();
      int64_t all = 0;
      for (auto &[address, bytes] : source.released)
        all += bytes;
      EXPECT_EQ(all, 36 * byteSize(dtype));
    }
}

TEST_F(ParametersTest, SourcesFillWhatIsNotBoundYet) {
  EXPECT_OK(session->bind("bias", view(weights.bias, {4})));
  MemorySource source;
  fill(source);
  source.add("bias", {0, 0, 0, 0}, {4});
  EXPECT_OK(session->bindSource(source));
  check();
}

TEST_F(ParametersTest, MissingTensorsAreNamed) {
  MemorySource source;
  source.add("experts.0.weight", expert(0), {4, 4});
  EXPECT_ERROR(session->bindSource(source), MOIRA_NOT_FOUND,
               "parameter 'experts.1.weight': memory: expected a tensor, got "
               "none");
  source.add("experts.1.weight", weights.bias, {2, 2});
  EXPECT_ERROR(session->bindSource(source), MOIRA_INVALID_ARGUMENT,
               "memory: parameter 'experts.1.weight': expected f32[4, 4], got "
               "f32[2, 2]");
  // Nothing was packed before all was found.
  EXPECT_EQ(session->unbound().size(), 2u);
  EXPECT_TRUE(source.released.empty());
}

TEST_F(ParametersTest, ProgressReachesTheEnd) {
  SessionOptions options;
  int64_t last = 0, all = 0;
  options.progress = [&](int64_t done, int64_t total) {
    EXPECT_GT(done, last);
    last = done;
    all = total;
  };
  session = std::move(*Session::create(testProgram(), options));
  EXPECT_OK(session->bindRandom(1));
  EXPECT_EQ(last, 144);
  EXPECT_EQ(all, 144);
}

//===----------------------------------------------------------------------===//
// Random
//===----------------------------------------------------------------------===//

static std::vector<float> randomStep(uint64_t seed, int threads) {
  auto session = ParametersTest::makeSession(testProgram(), threads);
  EXPECT_OK(session->bindRandom(seed));
  // Unit rows show the weights themselves.
  std::vector<float> x(2 * 4 * 4);
  for (int r = 0; r < 8; ++r)
    x[r * 4 + r / 2] = 1;
  std::vector<ResultTensor> results;
  EXPECT_OK(session->invoke("main", {view(x, {8, 4})}, results));
  return values(results[0]);
}

TEST(RandomParameters, AreTheSameForAnyNumberOfThreads) {
  std::vector<float> first = randomStep(42, 1);
  for (int threads : {2, 5})
    EXPECT_EQ(randomStep(42, threads), first);
  EXPECT_NE(randomStep(43, 1), first);
}

TEST(RandomParameters, AreBoundedByTheFanIn) {
  std::set<float> seen;
  for (float value : randomStep(1, 1)) {
    EXPECT_LT(std::fabs(value), 1.0f); // weight and bias: 1/sqrt(4) each
    seen.insert(value);
  }
  EXPECT_EQ(seen.size(), 32u);
}

//===----------------------------------------------------------------------===//
// Other shapes of parameters
//===----------------------------------------------------------------------===//

namespace {
/// A program without entries and with one parameter, whose packed form is
/// looked at through a second step.
struct OddProgram {
  static void step(moira_ctx *ctx, const moira_buffer *) {
    int64_t shape = ctx->params[0].bytes;
    void *data = ctx->api->result(ctx, 0, 1, &shape);
    if (data)
      std::memcpy(data, ctx->params[0].data, shape);
  }
  static int64_t workspace(moira_ctx *, const moira_buffer *) { return 0; }

  explicit OddProgram(moira_pack_entry pack) : pack(pack) {
    EntrySpec entry;
    entry.name = "show";
    entry.results = {{"", DataType::I8, {-1}}};
    entry.variants = {{"only", "", 0, "step", "workspace", "", "", ""}};
    manifest.entries = {entry};
    ParameterSpec parameter;
    parameter.name = "p";
    parameter.pack = "pack";
    manifest.parameters = {parameter};
  }
  std::shared_ptr<const Program> make(std::string_view packed = {}) const {
    auto program = Program::create(
        manifest,
        [&](const char *symbol) -> void * {
          if (!std::strcmp(symbol, "step"))
            return reinterpret_cast<void *>(step);
          if (!std::strcmp(symbol, "workspace"))
            return reinterpret_cast<void *>(workspace);
          return reinterpret_cast<void *>(pack);
        },
        nullptr, packed);
    EXPECT_OK(program.status());
    return *program;
  }
  static std::string show(Session &session) {
    std::vector<ResultTensor> results;
    EXPECT_OK(session.invoke("show", {}, results));
    return std::string(static_cast<char *>(results[0].data),
                       results[0].shape[0]);
  }

  moira_pack_entry pack;
  Manifest manifest;
};
} // namespace

static void copyFour(moira_ctx *, const void *source, void *packed) {
  std::memcpy(packed, source, 4);
}

TEST(OddParameters, OneSliceMayHaveALeadingOne) {
  OddProgram odd(copyFour);
  ParameterSpec &spec = odd.manifest.parameters[0];
  spec.sourceType = DataType::I8;
  spec.sourceShape = {2, 2};
  spec.logicalShape = {1, 2, 2};
  spec.packedSliceBytes = 4;
  for (Shape shape : {Shape{2, 2}, Shape{1, 2, 2}}) {
    auto session = ParametersTest::makeSession(odd.make());
    EXPECT_OK(session->bind("p", {DataType::I8, shape, "abcd"}));
    EXPECT_EQ(OddProgram::show(*session), "abcd");
  }
}

TEST(OddParameters, StackedInOneTensor) {
  OddProgram odd(copyFour);
  ParameterSpec &spec = odd.manifest.parameters[0];
  spec.sourceType = DataType::I32;
  spec.slices = 3;
  spec.packedSliceBytes = 8; // 4 of them stay as they were: zero or not
  auto session = ParametersTest::makeSession(odd.make());
  int32_t data[3] = {1, 2, 3};
  EXPECT_OK(session->bind("p", {DataType::I32, {3}, data}));
  std::string packed = OddProgram::show(*session);
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(packed[8 * i], i + 1);
}

TEST(OddParameters, OneTensorForSeveralArguments) {
  OddProgram odd(copyFour);
  ParameterSpec &spec = odd.manifest.parameters[0];
  spec.sourceType = DataType::I32;
  spec.packedSliceBytes = 4;
  odd.manifest.parameters.push_back(spec);
  auto session = ParametersTest::makeSession(odd.make());
  MemorySource source;
  std::vector<float> one = {1};
  int32_t value = 77;
  EXPECT_OK(session->bind("p", {DataType::I32, {}, &value}));
  EXPECT_TRUE(session->unbound().empty());

  // Bytes that two parameters read are let go once.
  session = ParametersTest::makeSession([&] {
    for (ParameterSpec &each : odd.manifest.parameters)
      each.sourceType = DataType::F32;
    return odd.make();
  }());
  source.add("p", one, {});
  EXPECT_OK(session->bindSource(source));
  EXPECT_EQ(source.released.size(), 1u);
}

TEST(OddParameters, EmptyOnesAreLegal) {
  OddProgram odd([](moira_ctx *, const void *source, void *packed) {
    EXPECT_NE(source, nullptr);
    EXPECT_NE(packed, nullptr);
  });
  odd.manifest.parameters[0].sourceShape = {0, 4};
  auto session = ParametersTest::makeSession(odd.make());
  EXPECT_OK(session->bind("p", {DataType::F32, {0, 4}, nullptr}));
  EXPECT_EQ(OddProgram::show(*session), "");
  session = ParametersTest::makeSession(odd.make());
  EXPECT_OK(session->bindRandom(0));
  EXPECT_EQ(OddProgram::show(*session), "");
}

TEST(OddParameters, AFailedPackLeavesTheParameterUnbound) {
  static bool fails;
  OddProgram odd([](moira_ctx *ctx, const void *source, void *packed) {
    EXPECT_EQ(ctx->workers, 1);
    void *scratch = ctx->api->alloc(ctx, 0, 100);
    EXPECT_NE(scratch, nullptr);
    if (fails)
      ctx->api->fail(ctx, MOIRA_FAILED, "cannot pack");
    else
      copyFour(ctx, source, packed);
  });
  ParameterSpec &spec = odd.manifest.parameters[0];
  spec.slices = 50;
  spec.packedSliceBytes = 4;
  auto session = ParametersTest::makeSession(odd.make(), 3);
  fails = false;
  EXPECT_OK(session->bindRandom(1));
  fails = true;
  std::vector<float> data(50);
  EXPECT_ERROR(session->bind("p", view(data, {50})), MOIRA_FAILED,
               "parameter 'p': cannot pack");
  EXPECT_EQ(session->unbound().size(), 1u);
  fails = false;
  EXPECT_OK(session->bind("p", view(data, {50})));
  EXPECT_TRUE(session->unbound().empty());
}

TEST(OddParameters, ThePackedOnesOfTheProgramAreBoundAtOnce) {
  OddProgram odd(copyFour);
  odd.manifest.parameters[0].packedSliceBytes = 4;
  odd.manifest.parameters.push_back(odd.manifest.parameters[0]);
  std::string packed = "wxyz" + std::string(60, 0) + "abcd";
  auto session = ParametersTest::makeSession(odd.make(packed));
  EXPECT_TRUE(session->unbound().empty());
  EXPECT_EQ(OddProgram::show(*session), "wxyz");
  EXPECT_EQ(session->memory().parameters, 8);
  // Bound again: the session's own copy.
  EXPECT_OK(session->bind("p", {DataType::F32, {}, "ABCD"}));
  EXPECT_EQ(OddProgram::show(*session), "ABCD");
}
