// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// moira/runtime.h as a deployment has it: the shared library and a bundle.

#include "Runtime/CApiTools.h"
#include "Runtime/TestFiles.h"
#include "moira/runtime.h"

#include <gtest/gtest.h>

#include <cstring>
#include <thread>

using namespace moira::test;

namespace {
struct CApiTest : testing::Test {
  moira_bundle *bundle = nullptr;
  moira_session *session = nullptr;
  Floats x{{1, 0, 0, 0, 0, 0, 0, 1}, {2, 4}};

  void SetUp() override {
    ASSERT_EQ(moira_bundle_open(MOIRA_TEST_BUNDLE, &bundle), MOIRA_OK)
        << moira_error_message();
    ASSERT_EQ(moira_session_create(bundle, nullptr, &session), MOIRA_OK)
        << moira_error_message();
  }
  void TearDown() override {
    moira_session_destroy(session);
    moira_bundle_close(bundle);
  }
  void bindIntegers() {
    std::vector<float> weights(32);
    for (int i = 0; i < 32; ++i)
      weights[i] = float(i);
    Floats weight(weights, {2, 4, 4});
    Floats bias({100, 200, 300, 400}, {4});
    EXPECT_CODE(moira_session_bind(session, "experts.{}.weight", weight.dl()),
                MOIRA_OK);
    EXPECT_CODE(moira_session_bind(session, "bias", bias.dl()), MOIRA_OK);
  }
  int32_t invoke(DLManagedTensor **result) {
    const DLTensor *inputs[] = {x.dl()};
    return moira_session_invoke(session, "main", inputs, 1, result, 1);
  }
};
} // namespace

TEST(CApi, SaysWhatItIs) {
  EXPECT_STREQ(moira_version(), "0.1.0");
  EXPECT_EQ(moira_abi_version(), MOIRA_ABI_VERSION);
  EXPECT_STREQ(moira_status_name(MOIRA_DATA_LOSS), "DATA_LOSS");
  EXPECT_NE(moira_error_message(), nullptr);
}

TEST_F(CApiTest, Runs) {
  bindIntegers();
  DLManagedTensor *result = nullptr;
  ASSERT_CODE(invoke(&result), MOIRA_OK);
  ASSERT_NE(result, nullptr);
  const DLTensor &y = result->dl_tensor;
  EXPECT_EQ(y.ndim, 2);
  EXPECT_EQ(y.shape[0], 2);
  EXPECT_EQ(y.shape[1], 4);
  EXPECT_EQ(y.strides, nullptr);
  EXPECT_EQ(y.byte_offset, 0u);
  EXPECT_EQ(y.dtype.code, kDLFloat);
  EXPECT_EQ(y.dtype.bits, 32);
  EXPECT_EQ(y.device.device_type, kDLCPU);
  const float expected[] = {100, 204, 308, 412, 119, 223, 327, 431};
  EXPECT_EQ(std::memcmp(y.data, expected, sizeof(expected)), 0);

  // Handles end in any order.
  moira_bundle_close(std::exchange(bundle, nullptr));
  DLManagedTensor *again = nullptr;
  ASSERT_CODE(invoke(&again), MOIRA_OK);
  moira_session_destroy(std::exchange(session, nullptr));
  EXPECT_EQ(std::memcmp(again->dl_tensor.data, expected, sizeof(expected)), 0);
  result->deleter(result);
  again->deleter(again);
}

TEST_F(CApiTest, FillsTheCallersTensor) {
  bindIntegers();
  Floats y(std::vector<float>(8), {2, 4});
  DLManagedTensor *result = &y.managed;
  ASSERT_CODE(invoke(&result), MOIRA_OK);
  EXPECT_EQ(result, &y.managed);
  EXPECT_EQ(y.data[7], 431);
}

TEST_F(CApiTest, FailedStepsLeaveTheResultsAlone) {
  DLManagedTensor *result = nullptr;
  EXPECT_MESSAGE(invoke(&result), MOIRA_INVALID_ARGUMENT,
                 "entry 'main': expected all parameters to be bound, got 2 "
                 "that are not, first 'experts.{}.weight'");
  EXPECT_EQ(result, nullptr);
  EXPECT_CODE(moira_session_bind_random(session, 1), MOIRA_OK);
  ASSERT_CODE(invoke(&result), MOIRA_OK);
  result->deleter(result);
}

TEST_F(CApiTest, TheOnlyEntryNeedsNoName) {
  bindIntegers();
  const DLTensor *inputs[] = {x.dl()};
  DLManagedTensor *result = nullptr;
  EXPECT_CODE(moira_session_invoke(session, nullptr, inputs, 1, &result, 1),
              MOIRA_OK);
  result->deleter(result);
}

TEST_F(CApiTest, NullIsAnError) {
  moira_bundle *otherBundle;
  moira_session *otherSession;
  moira_statistics *statistics;
  const char *text;
  int64_t number;
  moira_memory memory{};
  DLManagedTensor *result = nullptr;
  const DLTensor *inputs[] = {x.dl()};
  const int32_t bad = MOIRA_INVALID_ARGUMENT;
  EXPECT_MESSAGE(moira_bundle_open(nullptr, &otherBundle), bad,
                 "path: expected a pointer, got null");
  EXPECT_CODE(moira_bundle_open("x", nullptr), bad);
  EXPECT_CODE(moira_bundle_open_memory(nullptr, 5, &otherBundle), bad);
  EXPECT_CODE(moira_bundle_open_memory("x", 1, nullptr), bad);
  EXPECT_CODE(moira_bundle_manifest(nullptr, &text), bad);
  EXPECT_CODE(moira_bundle_manifest(bundle, nullptr), bad);
  EXPECT_CODE(moira_session_create(nullptr, nullptr, &otherSession), bad);
  EXPECT_CODE(moira_session_create(bundle, nullptr, nullptr), bad);
  EXPECT_CODE(moira_session_bind(nullptr, "bias", x.dl()), bad);
  EXPECT_CODE(moira_session_bind(session, nullptr, x.dl()), bad);
  EXPECT_CODE(moira_session_bind(session, "bias", nullptr), bad);
  EXPECT_CODE(moira_session_bind_checkpoint(nullptr, "x"), bad);
  EXPECT_CODE(moira_session_bind_checkpoint(session, nullptr), bad);
  EXPECT_CODE(moira_session_bind_random(nullptr, 1), bad);
  EXPECT_CODE(moira_session_unbound(nullptr, &number, &text), bad);
  EXPECT_CODE(moira_session_set_variant(nullptr, "main", "decode"), bad);
  EXPECT_CODE(moira_session_set_variant(session, nullptr, "decode"), bad);
  EXPECT_CODE(moira_session_set_plan(nullptr, nullptr), bad);
  EXPECT_CODE(moira_session_set_plan(session, nullptr), bad);
  EXPECT_CODE(moira_session_invoke(nullptr, "main", inputs, 1, &result, 1),
              bad);
  EXPECT_CODE(moira_session_invoke(session, "main", nullptr, 1, &result, 1),
              bad);
  EXPECT_CODE(moira_session_invoke(session, "main", inputs, 1, nullptr, 1),
              bad);
  EXPECT_CODE(moira_session_invoke(session, "main", inputs, -1, &result, 1),
              bad);
  EXPECT_CODE(moira_session_invoke(session, "main", inputs, 1, &result, 0),
              bad);
  EXPECT_CODE(moira_session_predict_peak(nullptr, "main", inputs, 1, &number),
              bad);
  EXPECT_CODE(moira_session_predict_peak(session, "main", inputs, 1, nullptr),
              bad);
  EXPECT_CODE(moira_session_memory(nullptr, &memory), bad);
  EXPECT_CODE(moira_session_memory(session, nullptr), bad);
  EXPECT_CODE(moira_session_statistics(nullptr, &statistics), bad);
  EXPECT_CODE(moira_session_statistics(session, nullptr), bad);
  EXPECT_EQ(moira_statistics_steps(nullptr), 0);
  EXPECT_CODE(moira_statistics_step(nullptr, 0, nullptr), bad);
  EXPECT_CODE(moira_statistics_layer(nullptr, 0, 0, nullptr), bad);
  moira_bundle_close(nullptr);
  moira_session_destroy(nullptr);
  moira_statistics_destroy(nullptr);
}

TEST_F(CApiTest, StructsMustSayTheirSize) {
  moira_session *other;
  moira_session_options options{};
  EXPECT_MESSAGE(moira_session_create(bundle, &options, &other),
                 MOIRA_INVALID_ARGUMENT,
                 "expected struct_size to be set, got 0");
  moira_memory memory{};
  EXPECT_CODE(moira_session_memory(session, &memory), MOIRA_INVALID_ARGUMENT);
  // A caller of an older version has fewer fields; they are all that is
  // written.
  memory.limit = 77;
  memory.struct_size = offsetof(moira_memory, limit);
  EXPECT_CODE(moira_session_memory(session, &memory), MOIRA_OK);
  EXPECT_EQ(memory.limit, 77);
  options.threads = -3;
  options.struct_size = sizeof(uint32_t);
  EXPECT_CODE(moira_session_create(bundle, &options, &other), MOIRA_OK);
  moira_session_destroy(other);
}

TEST_F(CApiTest, TensorsAreChecked) {
  bindIntegers();
  DLManagedTensor *result = nullptr;
  x.managed.dl_tensor.device.device_type = kDLCUDA;
  EXPECT_MESSAGE(invoke(&result), MOIRA_INVALID_ARGUMENT,
                 "entry 'main': input 0: expected a tensor on the cpu (device "
                 "type 1), got device type 2");
  x.managed.dl_tensor.device.device_type = kDLCPU;
  x.managed.dl_tensor.dtype.lanes = 2;
  EXPECT_MESSAGE(invoke(&result), MOIRA_INVALID_ARGUMENT,
                 "entry 'main': input 0: expected an element type of moira, "
                 "got dlpack code 2 with 32 bits and 2 lanes");
  x.managed.dl_tensor.dtype.lanes = 1;
  int64_t strides[] = {1, 2};
  x.managed.dl_tensor.strides = strides;
  EXPECT_MESSAGE(invoke(&result), MOIRA_INVALID_ARGUMENT,
                 "entry 'main': input 0: expected a compact row-major tensor "
                 "with stride 1 in dim 1, got 2");
  strides[1] = 1;
  strides[0] = 4;
  ASSERT_CODE(invoke(&result), MOIRA_OK);
  result->deleter(std::exchange(result, nullptr));
  x.managed.dl_tensor.strides = nullptr;
  x.shape[0] = -1;
  EXPECT_MESSAGE(invoke(&result), MOIRA_INVALID_ARGUMENT,
                 "entry 'main': input 0: expected dims of 0 or more, got -1");
  x.managed.dl_tensor.ndim = -1;
  EXPECT_CODE(invoke(&result), MOIRA_INVALID_ARGUMENT);
  EXPECT_EQ(result, nullptr);
}

TEST_F(CApiTest, StridesOfDimsOfOneAndEmptyTensorsAreFree) {
  bindIntegers();
  DLManagedTensor *result = nullptr;
  int64_t strides[] = {123, 1};
  x.managed.dl_tensor.strides = strides;
  x.shape[0] = 1;
  ASSERT_CODE(invoke(&result), MOIRA_OK);
  result->deleter(std::exchange(result, nullptr));
  x.shape[0] = 0;
  strides[1] = 9;
  x.managed.dl_tensor.data = nullptr;
  ASSERT_CODE(invoke(&result), MOIRA_OK);
  EXPECT_EQ(result->dl_tensor.shape[0], 0);
  result->deleter(result);
}

TEST_F(CApiTest, TensorsMayBeginInTheMiddle) {
  bindIntegers();
  Floats wide({9, 9, 1, 0, 0, 0, 0, 0, 0, 1}, {2, 4});
  wide.managed.dl_tensor.byte_offset = 8;
  const DLTensor *inputs[] = {wide.dl()};
  DLManagedTensor *result = nullptr;
  EXPECT_CODE(moira_session_invoke(session, "main", inputs, 1, &result, 1),
              MOIRA_OK);
  EXPECT_EQ(static_cast<float *>(result->dl_tensor.data)[7], 431);
  result->deleter(result);
}

TEST_F(CApiTest, BindsAndSaysWhatIsMissing) {
  int64_t count;
  const char *name;
  EXPECT_CODE(moira_session_unbound(session, &count, &name), MOIRA_OK);
  EXPECT_EQ(count, 2);
  EXPECT_STREQ(name, "experts.{}.weight");
  Tensor<uint16_t> bias({0x3f80, 0x4000, 0x4040, 0x4080}, {4},
                        {kDLBfloat, 16, 1});
  EXPECT_CODE(moira_session_bind(session, "bias", bias.dl()), MOIRA_OK);
  EXPECT_CODE(moira_session_bind_random(session, 3), MOIRA_OK);
  EXPECT_CODE(moira_session_unbound(session, &count, &name), MOIRA_OK);
  EXPECT_EQ(count, 0);
  EXPECT_EQ(name, nullptr);
  EXPECT_CODE(moira_session_unbound(session, nullptr, nullptr), MOIRA_OK);
  EXPECT_MESSAGE(moira_session_bind(session, "bias", x.dl()),
                 MOIRA_INVALID_ARGUMENT,
                 "parameter 'bias': expected f32[4], got f32[2, 4]");
}

TEST_F(CApiTest, BindsACheckpoint) {
  TestFolder folder;
  std::string header =
      R"({"bias":{"dtype":"F32","shape":[4],"data_offsets":[0,16]},)"
      R"("experts.0.weight":{"dtype":"F32","shape":[4,4],)"
      R"("data_offsets":[16,80]},)"
      R"("experts.1.weight":{"dtype":"F32","shape":[4,4],)"
      R"("data_offsets":[80,144]}})";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  uint64_t size = header.size();
  std::vector<float> data = {100, 200, 300, 400};
  for (int i = 0; i < 32; ++i)
    data.push_back(float(i));
  std::string path = folder.path("model.safetensors");
  writeFile(path, std::string(reinterpret_cast<char *>(&size), 8) + header +
                      std::string(reinterpret_cast<char *>(data.data()), 144));
  EXPECT_CODE(moira_session_bind_checkpoint(session, path.c_str()), MOIRA_OK);
  DLManagedTensor *result = nullptr;
  ASSERT_CODE(invoke(&result), MOIRA_OK);
  EXPECT_EQ(static_cast<float *>(result->dl_tensor.data)[7], 431);
  result->deleter(result);
  EXPECT_CODE(
      moira_session_bind_checkpoint(session, folder.path("none").c_str()),
      MOIRA_NOT_FOUND);
}

TEST_F(CApiTest, SelectsVariantsAndPlans) {
  bindIntegers();
  EXPECT_CODE(moira_session_set_variant(session, "main", "prefill"), MOIRA_OK);
  moira_plan_options plan{};
  plan.struct_size = sizeof(plan);
  plan.exchange = 1;
  EXPECT_CODE(moira_session_set_plan(session, &plan), MOIRA_OK);
  DLManagedTensor *result = nullptr;
  ASSERT_CODE(invoke(&result), MOIRA_OK);
  result->deleter(result);
  EXPECT_CODE(moira_session_set_variant(session, "main", nullptr), MOIRA_OK);
  EXPECT_CODE(moira_session_set_variant(session, "main", "none"),
              MOIRA_NOT_FOUND);
  plan.degree = -1;
  EXPECT_CODE(moira_session_set_plan(session, &plan), MOIRA_INVALID_ARGUMENT);

  moira_statistics *statistics = nullptr;
  EXPECT_CODE(moira_session_statistics(session, &statistics), MOIRA_OK);
  EXPECT_EQ(moira_statistics_steps(statistics), 1);
  moira_step_row step{};
  step.struct_size = sizeof(step);
  EXPECT_CODE(moira_statistics_step(statistics, 0, &step), MOIRA_OK);
  EXPECT_EQ(step.struct_size, sizeof(step));
  EXPECT_EQ(step.variant, 1);
  EXPECT_EQ(step.rows, 2);
  EXPECT_EQ(step.layers, 1);
  EXPECT_GT(step.total, 0);
  moira_layer_row layer{};
  layer.struct_size = sizeof(layer);
  EXPECT_CODE(moira_statistics_layer(statistics, 0, 0, &layer), MOIRA_OK);
  EXPECT_EQ(layer.layer, 3);
  EXPECT_EQ(layer.experts, 2);
  EXPECT_EQ(layer.counts[0], 1);
  EXPECT_EQ(layer.sizes[1], 1);
  EXPECT_EQ(layer.degree, 1);
  EXPECT_EQ(layer.exchange, 1);
  EXPECT_MESSAGE(moira_statistics_step(statistics, 1, &step),
                 MOIRA_INVALID_ARGUMENT, "expected a step below 1, got 1");
  EXPECT_MESSAGE(moira_statistics_layer(statistics, 0, -1, &layer),
                 MOIRA_INVALID_ARGUMENT, "expected a layer below 1, got -1");
  moira_statistics_destroy(statistics);
}

TEST_F(CApiTest, CountsAndPredictsMemory) {
  moira_session_options options{};
  options.struct_size = sizeof(options);
  options.threads = 1;
  options.memory_limit = 10'000;
  options.statistics_steps = -1;
  moira_session_destroy(std::exchange(session, nullptr));
  EXPECT_CODE(moira_session_create(bundle, &options, &session), MOIRA_OK);
  bindIntegers();
  const DLTensor *inputs[] = {x.dl()};
  int64_t bytes = 0;
  EXPECT_CODE(moira_session_predict_peak(session, "main", inputs, 1, &bytes),
              MOIRA_OK);
  EXPECT_EQ(bytes, 144 + 64 + 32);
  DLManagedTensor *result = nullptr;
  ASSERT_CODE(invoke(&result), MOIRA_OK);
  moira_memory memory{};
  memory.struct_size = sizeof(memory);
  EXPECT_CODE(moira_session_memory(session, &memory), MOIRA_OK);
  EXPECT_EQ(memory.parameters, 144);
  EXPECT_EQ(memory.results, 32);
  EXPECT_EQ(memory.peak, bytes);
  EXPECT_EQ(memory.limit, 10'000);
  result->deleter(result);
  EXPECT_CODE(moira_session_memory(session, &memory), MOIRA_OK);
  EXPECT_EQ(memory.results, 0);
  moira_statistics *statistics = nullptr;
  EXPECT_CODE(moira_session_statistics(session, &statistics), MOIRA_OK);
  EXPECT_EQ(moira_statistics_steps(statistics), 0);
  moira_statistics_destroy(statistics);

  std::vector<float> many(4000);
  Floats large(many, {1000, 4});
  const DLTensor *largeInputs[] = {large.dl()};
  result = nullptr;
  EXPECT_CODE(moira_session_invoke(session, "main", largeInputs, 1, &result, 1),
              MOIRA_OUT_OF_MEMORY);
}

TEST_F(CApiTest, ManifestLivesAsLongAsTheBundle) {
  const char *json = nullptr;
  EXPECT_CODE(moira_bundle_manifest(bundle, &json), MOIRA_OK);
  EXPECT_NE(std::strstr(json, "\"moira_step_main_decode\""), nullptr);
}

TEST_F(CApiTest, BundlesSayTheirSignature) {
  moira_entry_info entry{};
  entry.struct_size = sizeof(entry);
  EXPECT_CODE(moira_bundle_entry(bundle, 0, &entry), MOIRA_OK);
  EXPECT_STREQ(entry.name, "main");
  EXPECT_EQ(entry.inputs, 1);
  EXPECT_EQ(entry.results, 1);
  EXPECT_EQ(entry.variants, 2);
  EXPECT_EQ(entry.ranks, 1);
  moira_tensor_info tensor{};
  tensor.struct_size = sizeof(tensor);
  EXPECT_CODE(moira_bundle_input(bundle, 0, 0, &tensor), MOIRA_OK);
  EXPECT_STREQ(tensor.name, "x");
  EXPECT_EQ(tensor.dtype, MOIRA_F32);
  EXPECT_EQ(tensor.dlpack.code, kDLFloat);
  EXPECT_EQ(tensor.dlpack.bits, 32);
  EXPECT_EQ(tensor.dlpack.lanes, 1);
  ASSERT_EQ(tensor.rank, 2);
  EXPECT_EQ(tensor.shape[0], -1);
  EXPECT_EQ(tensor.shape[1], 4);
  EXPECT_CODE(moira_bundle_result(bundle, 0, 0, &tensor), MOIRA_OK);
  EXPECT_STREQ(tensor.name, "");
  const char *name = nullptr;
  EXPECT_CODE(moira_bundle_variant(bundle, 0, 1, &name), MOIRA_OK);
  EXPECT_STREQ(name, "prefill");

  const int32_t bad = MOIRA_INVALID_ARGUMENT;
  EXPECT_MESSAGE(moira_bundle_entry(bundle, 1, &entry), bad,
                 "expected an entry below 1, got 1");
  EXPECT_MESSAGE(moira_bundle_input(bundle, 0, -1, &tensor), bad,
                 "expected a tensor below 1, got -1");
  EXPECT_CODE(moira_bundle_input(bundle, -1, 0, &tensor), bad);
  EXPECT_CODE(moira_bundle_result(bundle, 0, 1, &tensor), bad);
  EXPECT_MESSAGE(moira_bundle_variant(bundle, 0, 2, &name), bad,
                 "expected a variant below 2, got 2");
  EXPECT_CODE(moira_bundle_entry(nullptr, 0, &entry), bad);
  EXPECT_CODE(moira_bundle_entry(bundle, 0, nullptr), bad);
  EXPECT_CODE(moira_bundle_input(bundle, 0, 0, nullptr), bad);
  EXPECT_CODE(moira_bundle_result(bundle, 0, 0, nullptr), bad);
  EXPECT_CODE(moira_bundle_variant(bundle, 0, 0, nullptr), bad);
  entry.struct_size = 0;
  EXPECT_CODE(moira_bundle_entry(bundle, 0, &entry), bad);
}

TEST(CApi, BadFilesAreNamed) {
  TestFolder folder;
  moira_bundle *bundle = nullptr;
  std::string path = folder.path("gone.moira");
  EXPECT_MESSAGE(
      moira_bundle_open(path.c_str(), &bundle), MOIRA_NOT_FOUND,
      (path + ": expected a readable file, got: No such file or directory")
          .c_str());
  std::string good = readFile(MOIRA_TEST_BUNDLE);
  // Every byte of the header and a sample of the rest.
  for (size_t i = 0; i < good.size(); i += i < 128 ? 1 : 97) {
    good[i] ^= 1;
    int32_t code = moira_bundle_open_memory(good.data(), good.size(), &bundle);
    EXPECT_TRUE(code == MOIRA_DATA_LOSS || code == MOIRA_VERSION);
    good[i] ^= 1;
  }
  good[8] = 9;
  writeFile(path, good);
  EXPECT_MESSAGE(moira_bundle_open(path.c_str(), &bundle), MOIRA_VERSION,
                 (path + ": bundle format: expected version 1, got 9").c_str());
  EXPECT_EQ(bundle, nullptr);
}

TEST_F(CApiTest, ThreadsShareSessionsAndHaveTheirOwn) {
  bindIntegers();
  constexpr int threads = 4, steps = 100;
  std::vector<std::thread> started;
  for (int t = 0; t < threads; ++t)
    started.emplace_back([&] {
      moira_session *own = nullptr;
      ASSERT_CODE(moira_session_create(bundle, nullptr, &own), MOIRA_OK);
      ASSERT_CODE(moira_session_bind_random(own, 1), MOIRA_OK);
      const DLTensor *inputs[] = {x.dl()};
      for (int i = 0; i < steps; ++i) {
        DLManagedTensor *shared = nullptr, *mine = nullptr;
        ASSERT_CODE(invoke(&shared), MOIRA_OK);
        EXPECT_EQ(static_cast<float *>(shared->dl_tensor.data)[7], 431);
        shared->deleter(shared);
        ASSERT_CODE(moira_session_invoke(own, "main", inputs, 1, &mine, 1),
                    MOIRA_OK);
        mine->deleter(mine);
      }
      moira_session_destroy(own);
    });
  for (std::thread &thread : started)
    thread.join();
  moira_memory memory{};
  memory.struct_size = sizeof(memory);
  EXPECT_CODE(moira_session_memory(session, &memory), MOIRA_OK);
  EXPECT_EQ(memory.results, 0);
}

TEST(CApi, MessagesBelongToTheirThread) {
  moira_bundle *bundle = nullptr;
  EXPECT_EQ(moira_bundle_open("/no/such/file", &bundle), MOIRA_NOT_FOUND);
  std::string before = moira_error_message();
  std::thread([] {
    EXPECT_STREQ(moira_error_message(), "");
    EXPECT_EQ(moira_bundle_open(nullptr, nullptr), MOIRA_INVALID_ARGUMENT);
  }).join();
  EXPECT_EQ(moira_error_message(), before);
}
