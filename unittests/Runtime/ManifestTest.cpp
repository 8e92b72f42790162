// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "session/Manifest.h"
#include "Runtime/TestProgram.h"

#include <random>

using namespace moira;
using namespace moira::runtime;
using namespace moira::test;

/// The schema of docs/bundle.md, as a compiler writes it.
static const char *const text = R"({
  "moira": {"version": "0.1.0", "abi": 3},
  "module": "layer.mlir",
  "target": {"triple": "x86_64-linux-gnu", "cpu": "x86-64-v3",
             "features": "+avx2,+fma"},
  "entries": [{
    "name": "main", "ranks": 8,
    "inputs": [{"name": "x", "dtype": "bf16", "shape": [-1, 2048]}],
    "results": [{"dtype": "bf16", "shape": [-1, 2048]}],
    "layers": [{"index": 0, "experts": 64, "top_k": 8,
                "flops_per_row": 12582912,
                "placement": {"experts": 64, "shards": 1, "copies": 1,
                              "slots": 9},
                "cost": {"row_bytes": 4096, "result_bytes": 4096,
                         "partial_bytes": 8192, "result_gradient_bytes": 4096,
                         "row_gradient_bytes": 4096, "hidden_bytes": 2048,
                         "weights": [{"parameter": 0, "bytes": 4194304,
                                      "gradient_bytes": 4194304,
                                      "replicated": true}]}}],
    "flops_per_token": 262144,
    "variants": [
      {"name": "decode", "row_class": "decode", "min_rows": 0, "step": "s0",
       "workspace": "w0", "numerics": "cpu-fma", "qualified": "none"},
      {"name": "prefill", "row_class": "prefill", "min_rows": 16,
       "step": "s1", "workspace": "w1", "numerics": "cpu-fma",
       "qualified": "none", "schedule": "equal", "copies": 0,
       "peak_bytes": 1048576}]}],
  "parameters": [{
    "name": "model.layers.0.mlp.experts.{}.gate_proj.weight", "slices": 64,
    "source": {"dtype": "bf16", "shape": [1024, 2048]}, "stacked": true,
    "logical_shape": [64, 1024, 2048], "packed_slice_bytes": 4194304,
    "pack": "moira_pack_0", "layout": "panel32"}, {
    "name": "gate_up", "slices": 2, "source": {"dtype": "f32",
    "shape": [6, 4]}, "stacked": false, "logical_shape": [4, 12, 4],
    "packed_slice_bytes": 96, "pack": "moira_pack_1",
    "placement": {"experts": 4, "shards": 2, "dim": 0, "parts": 3,
                  "interleaved": true}}]
})";

/// `text` with the first `from` replaced.
static std::string edited(const std::string &from, const std::string &to) {
  std::string json = text;
  size_t place = json.find(from);
  EXPECT_NE(place, std::string::npos) << from;
  return json.replace(place, from.size(), to);
}

TEST(Manifest, Parses) {
  Result<Manifest> manifest = Manifest::parse(text);
  ASSERT_TRUE(manifest.ok()) << manifest.status().message;
  EXPECT_EQ(manifest->version, "0.1.0");
  EXPECT_EQ(manifest->module, "layer.mlir");
  EXPECT_EQ(manifest->target.features, "+avx2,+fma");
  ASSERT_EQ(manifest->entries.size(), 1u);
  const EntrySpec &entry = manifest->entries[0];
  EXPECT_EQ(manifest->findEntry("main"), 0);
  EXPECT_EQ(manifest->findEntry("other"), -1);
  EXPECT_EQ(entry.inputs[0].name, "x");
  EXPECT_EQ(entry.inputs[0].dtype, DataType::BF16);
  EXPECT_EQ(entry.inputs[0].shape, (Shape{-1, 2048}));
  EXPECT_EQ(entry.results[0].name, "");
  EXPECT_EQ(entry.layers[0].experts, 64);
  EXPECT_EQ(entry.layers[0].topK, 8);
  EXPECT_EQ(entry.layers[0].flopsPerRow, 12582912);
  EXPECT_EQ(entry.flopsPerToken, 262144);
  EXPECT_EQ(entry.variants[1].minRows, 16);
  EXPECT_EQ(entry.variants[1].workspace, "w1");
  EXPECT_EQ(entry.findVariant("prefill"), 1);
  EXPECT_EQ(entry.findVariant(""), -1);
  const ParameterSpec &parameter = manifest->parameters[0];
  EXPECT_TRUE(parameter.stacked);
  EXPECT_EQ(parameter.sourceShape, (Shape{1024, 2048}));
  EXPECT_EQ(parameter.packedBytes(), int64_t(64) * 4194304);
  EXPECT_EQ(parameter.sliceName(7),
            "model.layers.0.mlp.experts.7.gate_proj.weight");
  EXPECT_EQ(parameter.fileSlices(), 64);
  EXPECT_EQ(parameter.fileShape(), parameter.sourceShape);
}

TEST(Manifest, ParsesPlacements) {
  Result<Manifest> manifest = Manifest::parse(text);
  ASSERT_TRUE(manifest.ok()) << manifest.status().message;
  const EntrySpec &entry = manifest->entries[0];
  EXPECT_EQ(entry.ranks, 8);
  ASSERT_TRUE(entry.layers[0].placement);
  EXPECT_EQ(entry.layers[0].placement->experts, 64);
  EXPECT_EQ(entry.layers[0].placement->shards, 1);
  EXPECT_EQ(entry.layers[0].placement->copies, 1);
  EXPECT_EQ(entry.layers[0].placement->slots, 9);
  EXPECT_EQ(entry.variants[0].schedule, "");
  EXPECT_EQ(entry.variants[1].schedule, "equal");
  EXPECT_FALSE(manifest->parameters[0].placement);
  const ParameterSpec &parameter = manifest->parameters[1];
  ASSERT_TRUE(parameter.placement);
  EXPECT_EQ(parameter.placement->experts, 4);
  EXPECT_EQ(parameter.placement->shards, 2);
  EXPECT_EQ(parameter.placement->dim, 0);
  EXPECT_EQ(parameter.placement->parts, 3);
  EXPECT_TRUE(parameter.placement->interleaved);
  EXPECT_EQ(parameter.fileSlices(), 4);
  EXPECT_EQ(parameter.fileShape(), (Shape{12, 4}));
}

TEST(Manifest, ParsesCosts) {
  Result<Manifest> manifest = Manifest::parse(text);
  ASSERT_TRUE(manifest.ok()) << manifest.status().message;
  const EntrySpec &entry = manifest->entries[0];
  ASSERT_TRUE(entry.layers[0].cost);
  const LayerCostSpec &cost = *entry.layers[0].cost;
  EXPECT_EQ(cost.rowBytes, 4096);
  EXPECT_EQ(cost.partialBytes, 8192);
  EXPECT_EQ(cost.hiddenBytes, 2048);
  ASSERT_EQ(cost.weights.size(), 1u);
  EXPECT_EQ(cost.weights[0].parameter, 0);
  EXPECT_EQ(cost.weights[0].bytes, 4194304);
  EXPECT_EQ(cost.weights[0].gradientBytes, 4194304);
  EXPECT_TRUE(cost.weights[0].replicated);
  EXPECT_EQ(entry.variants[0].copies, -1);
  EXPECT_EQ(entry.variants[1].copies, 0);
  EXPECT_EQ(entry.variants[1].peakBytes, 1048576);
}

TEST(Manifest, ComesBack) {
  Result<Manifest> first = Manifest::parse(text);
  ASSERT_TRUE(first.ok());
  std::string json = first->serialize();
  Result<Manifest> second = Manifest::parse(json);
  ASSERT_TRUE(second.ok()) << second.status().message;
  EXPECT_EQ(second->serialize(), json);
  EXPECT_EQ(second->parameters[0].layout, "panel32");
  EXPECT_EQ(second->entries[0].variants[0].rowClass, "decode");
  std::string made = testManifest().serialize();
  Result<Manifest> test = Manifest::parse(made);
  ASSERT_TRUE(test.ok()) << test.status().message;
  EXPECT_EQ(test->serialize(), made);
}

/// `text` with a description of a GPU's kernels.
static std::string withDevice(const std::string &device) {
  return edited(R"("module": "layer.mlir",)",
                R"("module": "layer.mlir", "device": )" + device + ",");
}

static const char *const device = R"({"abi": 1, "images": [
    {"name": "a", "arch": "sm_80", "ptx": [0, 8], "cubin": [8, 4]},
    {"name": "b", "arch": "sm_90a", "emulated": "moira_emu_module_b"}],
  "kernels": [{"name": "grouped_0", "image": 1, "threads": 256,
               "shared": 65536, "parameters": [8, 128, 4]}]})";

TEST(Manifest, ReadsDevices) {
  Result<Manifest> manifest = Manifest::parse(withDevice(device));
  ASSERT_TRUE(manifest.ok()) << manifest.status().message;
  Result<Manifest> again = Manifest::parse(manifest->serialize());
  ASSERT_TRUE(again.ok()) << again.status().message;
  for (const Manifest *one : {&*manifest, &*again}) {
    ASSERT_TRUE(one->device);
    ASSERT_EQ(one->device->images.size(), 2u);
    EXPECT_EQ(one->device->images[0].cubin.offset, 8);
    EXPECT_EQ(one->device->images[0].cubin.bytes, 4);
    EXPECT_EQ(one->device->images[0].emulated, "");
    EXPECT_EQ(one->device->images[1].arch, "sm_90a");
    EXPECT_EQ(one->device->images[1].emulated, "moira_emu_module_b");
    EXPECT_EQ(one->device->images[1].ptx.bytes, 0);
    ASSERT_EQ(one->device->kernels.size(), 1u);
    const KernelSpec &kernel = one->device->kernels[0];
    EXPECT_EQ(kernel.name, "grouped_0");
    EXPECT_EQ(kernel.image, 1);
    EXPECT_EQ(kernel.threads, 256);
    EXPECT_EQ(kernel.shared, 65536);
    EXPECT_EQ(kernel.parameters, (std::vector<int64_t>{8, 128, 4}));
  }
}

TEST(Manifest, RefusesWrongDevices) {
  auto check = [](const std::string &from, const std::string &to,
                  const std::string &message) {
    std::string changed = device;
    size_t place = changed.find(from);
    ASSERT_NE(place, std::string::npos) << from;
    changed.replace(place, from.size(), to);
    EXPECT_EQ(Manifest::parse(withDevice(changed)).status().message,
              "manifest: device." + message);
  };
  check(R"("abi": 1)", R"("abi": 2)", "abi: expected version 1, got 2");
  check(R"("image": 1)", R"("image": 2)",
        "kernels[0].image: expected one of 2 images, got 2");
  check(R"("threads": 256)", R"("threads": 2048)",
        "kernels[0].threads: expected at most 1024 threads, got 2048");
  check("[0, 8]", "[0]",
        "images[0].ptx: expected offset and bytes, got 1 numbers");
  check("[8, 128, 4]", "[8, 0]",
        "kernels[0].parameters[1]: expected at least 1, got 0");
}

TEST(Manifest, TextThatIsNoUnicodeDoesNotThrow) {
  Manifest manifest = testManifest();
  manifest.module = "\xff\xfe";
  EXPECT_TRUE(Manifest::parse(manifest.serialize()).ok());
}

TEST(Manifest, WhatIsOptionalMayBeMissing) {
  Result<Manifest> manifest = Manifest::parse(R"({
    "moira": {"version": "", "abi": 3}, "unknown": {"key": []},
    "entries": [{"name": "e", "inputs": [], "results": [],
      "variants": [{"name": "v", "step": "s", "workspace": "w"}]}],
    "parameters": []})");
  ASSERT_TRUE(manifest.ok()) << manifest.status().message;
  EXPECT_EQ(manifest->entries[0].variants[0].minRows, 0);
  EXPECT_EQ(manifest->entries[0].ranks, 1);
}

TEST(Manifest, VariantsAreChosenByRows) {
  EntrySpec entry;
  auto add = [&](int64_t minRows) {
    entry.variants.emplace_back();
    entry.variants.back().minRows = minRows;
  };
  add(16);
  EXPECT_EQ(entry.variantForRows(0), 0);
  EXPECT_EQ(entry.variantForRows(100), 0);
  add(0);
  add(64);
  add(16);
  EXPECT_EQ(entry.variantForRows(0), 1);
  EXPECT_EQ(entry.variantForRows(15), 1);
  EXPECT_EQ(entry.variantForRows(16), 0);
  EXPECT_EQ(entry.variantForRows(63), 0);
  EXPECT_EQ(entry.variantForRows(64), 2);
}

TEST(Manifest, SliceNamesOfPlainParameters) {
  ParameterSpec spec;
  spec.name = "a.{}.b";
  EXPECT_EQ(spec.sliceName(3), "a.{}.b");
  spec.stacked = true;
  EXPECT_EQ(spec.sliceName(3), "a.3.b");
}

TEST(Manifest, AnotherAbiIsNamed) {
  EXPECT_ERROR(Manifest::parse(edited("\"abi\": 3", "\"abi\": 9")).status(),
               MOIRA_VERSION, "manifest: moira.abi: expected version 3, got 9");
}

/// A program and its way back: x of any rows, a weight in panels.
static const char *const trainingText = R"({
  "moira": {"version": "0.1.0", "abi": 3},
  "entries": [
    {"name": "main", "backward": "back", "residuals": 1, "routing": 1,
     "inputs": [{"name": "x", "dtype": "f32", "shape": [-1, 4]}],
     "results": [{"dtype": "f32", "shape": [-1, 3]},
                 {"dtype": "f32", "shape": [-1, 9]},
                 {"dtype": "i64", "shape": []}],
     "variants": [{"name": "v", "step": "s", "workspace": "w",
                   "shapes": "h"}]},
    {"name": "back",
     "inputs": [{"name": "r", "dtype": "i64", "shape": []},
                {"name": "d", "dtype": "f32", "shape": [-1, 3]}],
     "results": [{"dtype": "f32", "shape": [-1, 4], "gradient": {"input": 0}},
                 {"dtype": "f32", "shape": [1, 2, 4, 2],
                  "gradient": {"parameter": "w", "rows": [0],
                               "packed_as": 0}}],
     "variants": [{"name": "v", "step": "s", "workspace": "w"}]},
    {"name": "moira_update_sgd_f32", "update": "sgd",
     "inputs": [], "results": [],
     "variants": [{"name": "only", "step": "s", "workspace": "w"}]}],
  "parameters": [
    {"name": "w", "slices": 1, "stacked": false,
     "source": {"dtype": "f32", "shape": [4, 6]}, "logical_shape": [3, 4],
     "packed_slice_bytes": 64, "pack": "p",
     "packing": {"part": [0, 2, 3], "first": [0, 1, 3], "second": [0, 1, 4],
                 "transpose": true, "width": 2, "pairs": false,
                 "first_is_n": true, "blocks_n": 1, "blocks_k": 1}}]})";

TEST(Manifest, ReadsGradientsAndPackings) {
  Result<Manifest> manifest = Manifest::parse(trainingText);
  ASSERT_TRUE(manifest.ok()) << manifest.status().message;
  EXPECT_EQ(manifest->mainEntry(), 0);
  const EntrySpec &main = manifest->entries[0];
  EXPECT_EQ(main.backward, "back");
  EXPECT_EQ(main.ownResults(), 2);
  EXPECT_EQ(main.programResults(), 1);
  EXPECT_EQ(main.variants[0].shapes, "h");
  EXPECT_EQ(manifest->entries[2].update, "sgd");
  const EntrySpec &back = manifest->entries[1];
  EXPECT_EQ(back.results[0].gradient->input, 0);
  EXPECT_EQ(back.results[1].gradient->rows, std::vector<int64_t>{0});
  EXPECT_EQ(back.results[1].gradient->packedAs, 0);
  const PackingSpec &packing = *manifest->parameters[0].packing;
  EXPECT_EQ(packing.part, (KeptPlaces{0, 2, 3}));
  EXPECT_EQ(*packing.first, (KeptPlaces{0, 1, 3}));
  EXPECT_EQ(packing.width, 2);
  EXPECT_TRUE(packing.transpose);
  std::string json = manifest->serialize();
  Result<Manifest> again = Manifest::parse(json);
  ASSERT_TRUE(again.ok()) << again.status().message;
  EXPECT_EQ(again->serialize(), json);
}

TEST(Manifest, RefusesWrongGradientsAndPackings) {
  const struct {
    const char *from, *to, *message;
  } cases[] = {
      {"\"backward\": \"back\"", "\"backward\": \"none\"",
       "entries[0].backward: expected another entry, got 'none'"},
      {"\"backward\": \"back\"", "\"backward\": \"main\"",
       "entries[0].backward: expected another entry, got 'main'"},
      {"\"residuals\": 1", "\"residuals\": 3",
       "entries[0]: expected at most the 3 results, got 3 residuals and 1 of "
       "routing"},
      {"\"routing\": 1", "\"routing\": 0",
       "entries[0].backward: expected 3 inputs of entry 'back', got 2"},
      {"\"name\": \"r\", \"dtype\": \"i64\"",
       "\"name\": \"r\", \"dtype\": \"i32\"",
       "entries[0].backward: expected i64[] as input 0 of entry 'back', got "
       "i32[]"},
      {"\"name\": \"v\", \"step\": \"s\", \"workspace\": \"w\"}",
       "\"name\": \"u\", \"step\": \"s\", \"workspace\": \"w\"}",
       "entries[0].backward: expected the variants of the entry itself"},
      {"{\"input\": 0}", "{\"input\": 1}",
       "entries[1].results[0].gradient: expected an input below 1, got 1"},
      {"\"rows\": [0]", "\"rows\": []",
       "entries[1].results[1].gradient: expected rows, got none"},
      {"\"rows\": [0]", "\"rows\": [1]",
       "entries[1].results[1].gradient: expected rows of parameter 'w', got 1"},
      {"\"packed_as\": 0", "\"packed_as\": 3",
       "entries[1].results[1].gradient: expected rows of parameter 'w', got 3"},
      {"[0, 2, 3]", "[0, 2, 4]",
       "parameters[0].packing.part: expected places below 6, got [0, 2, 4]"},
      {"[0, 1, 3]", "[0, 1]",
       "parameters[0].packing.first: expected offset, stride and size, got 2 "
       "numbers"},
      {"\"blocks_n\": 1", "\"blocks_n\": 2",
       "parameters[0].packing: expected blocks_n to divide 3, got 2"},
      {"\"packed_slice_bytes\": 64", "\"packed_slice_bytes\": 60",
       "parameters[0].packing: expected a packing of 60 bytes, got one of 64"},
      {"\"width\": 2", "\"width\": 2000000",
       "parameters[0].packing.width: expected a width of at most 1048576, got "
       "2000000"},
  };
  for (const auto &wrong : cases) {
    std::string json = trainingText;
    size_t place = json.find(wrong.from);
    ASSERT_NE(place, std::string::npos) << wrong.from;
    json.replace(place, std::string(wrong.from).size(), wrong.to);
    Result<Manifest> manifest = Manifest::parse(json);
    ASSERT_FALSE(manifest.ok()) << wrong.message;
    EXPECT_EQ(manifest.status().message,
              std::string("manifest: ") + wrong.message);
  }
}

namespace {
struct BadManifest {
  const char *from, *to, *message;
};
} // namespace

TEST(Manifest, ErrorsNameThePlace) {
  const BadManifest cases[] = {
      {"{", "[", "expected JSON, got other text"},
      {"\"moira\"", "\"m\"", "moira: expected a value, got none"},
      {"{\"version\": \"0.1.0\", \"abi\": 3}", "3",
       "moira: expected an object, got number"},
      {"\"abi\": 3", "\"abi\": 3.5",
       "moira.abi: expected an integer of 64 bits, got number"},
      {"\"abi\": 3", "\"abi\": -1", "moira.abi: expected at least 0, got -1"},
      {"\"main\"", "\"\"",
       "entries[0].name: expected a string that is not empty"},
      {"\"main\"", "7", "entries[0].name: expected a string, got number"},
      {"\"name\": \"x\", ", "",
       "entries[0].inputs[0].name: expected a value, got none"},
      {"\"bf16\"", "\"f8\\u0001\"",
       "entries[0].inputs[0].dtype: expected an element type (f32, f64, f16, "
       "bf16, i1, i8, i32, i64), got 'f8?'"},
      {"[-1, 2048]", "[-2]",
       "entries[0].inputs[0].shape[0]: expected at least -1, got -2"},
      {"[-1, 2048]", "{}",
       "entries[0].inputs[0].shape: expected an array, got object"},
      {"[-1, 2048]", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]",
       "entries[0].inputs[0].shape: expected at most 16 dims, got 17"},
      {"[-1, 2048]", "[4611686018427387904, 4]",
       "entries[0].inputs[0].shape: expected a size in bytes that fits 64 "
       "bits, got [4611686018427387904, 4]"},
      {"[-1, 2048]", "[18446744073709551615]",
       "entries[0].inputs[0].shape[0]: expected an integer of 64 bits, got "
       "number"},
      {"\"experts\": 64", "\"experts\": 0",
       "entries[0].layers[0].experts: expected at least 1, got 0"},
      {"\"index\": 0", "\"index\": null",
       "entries[0].layers[0].index: expected an integer of 64 bits, got null"},
      {"\"row_bytes\": 4096", "\"row_bytes\": -1",
       "entries[0].layers[0].cost.row_bytes: expected at least 0, got -1"},
      {"\"parameter\": 0", "\"parameter\": 2",
       "entries[0].layers[0].cost.weights[0].parameter: expected a row below "
       "2, got 2"},
      {"\"bytes\": 4194304", "\"bytes\": 4",
       "entries[0].layers[0].cost.weights[0].bytes: expected the 4194304 bytes "
       "of a slice of row 0, got 4"},
      {"\"copies\": 0", "\"copies\": 2",
       "entries[0].variants[1].copies: expected 0 or a divisor of the 1 "
       "shards, got 2"},
      {"\"step\": \"s1\"", "\"step\": \"\"",
       "entries[0].variants[1].step: expected a string that is not empty"},
      {"\"prefill\"", "\"decode\"",
       "entries[0].variants[1]: expected a name used once, got 'decode' "
       "again"},
      {"\"min_rows\": 16", "\"min_rows\": -16",
       "entries[0].variants[1].min_rows: expected at least 0, got -16"},
      {"\"slices\": 64", "\"slices\": 0",
       "parameters[0].slices: expected at least 1, got 0"},
      {"\"stacked\": true", "\"stacked\": 1",
       "parameters[0].stacked: expected true or false, got number"},
      {"experts.{}.gate", "experts.gate",
       "parameters[0].name: expected '{}' in the name of a parameter with one "
       "tensor per slice, got "
       "'model.layers.0.mlp.experts.gate_proj.weight'"},
      {"\"packed_slice_bytes\": 4194304",
       "\"packed_slice_bytes\": 4611686018427387904",
       "parameters[0].packed_slice_bytes: expected all slices to fit 64 bits, "
       "got 64 slices of 4611686018427387904 bytes"},
      {"[1024, 2048]", "[-1, 2048]",
       "parameters[0].source.shape[0]: expected at least 0, got -1"},
      {"[1024, 2048]", "[1099511627776, 131072]",
       "parameters[0].source: expected all slices to fit 64 bits, got 64 "
       "slices of [1099511627776, 131072]"},
      {"\"pack\": \"moira_pack_0\", ", "",
       "parameters[0].pack: expected a value, got none"},
      {"\"ranks\": 8", "\"ranks\": 0",
       "entries[0].ranks: expected at least 1, got 0"},
      {"\"ranks\": 8", "\"ranks\": 2147483648",
       "entries[0].ranks: expected at most 2147483647, got 2147483648"},
      {"\"ranks\": 8", "\"ranks\": 7",
       "entries[0].layers[0].placement.slots: expected slots for 64 shards, "
       "got 9 on each of 7 ranks"},
      {"\"placement\": {\"experts\": 64", "\"placement\": {\"experts\": 63",
       "entries[0].layers[0].placement.experts: expected the layer's 64 "
       "experts, got 63"},
      {"\"copies\": 1", "\"copies\": 2",
       "entries[0].layers[0].placement.copies: expected 0 or a divisor of the "
       "1 shards, got 2"},
      {"\"copies\": 1", "\"copies\": -1",
       "entries[0].layers[0].placement.copies: expected at least 0, got -1"},
      {"\"equal\"", "\"eager\"",
       "entries[0].variants[1].schedule: expected 'equal' or 'groups', got "
       "'eager'"},
      {"\"dim\": 0", "\"dim\": 2",
       "parameters[1].placement.dim: expected -1 or a dim of the source of "
       "rank 2, got 2"},
      {"\"dim\": 0, ", "",
       "parameters[1].placement: expected a dim to find 3 parts in, got none"},
      {"\"parts\": 3", "\"parts\": 4",
       "parameters[1].placement: expected a multiple of 4 parts in dim 0, got "
       "6"},
      {"\"parts\": 3", "\"parts\": 0",
       "parameters[1].placement.parts: expected at least 1, got 0"},
      {"\"interleaved\": true", "\"interleaved\": 2",
       "parameters[1].placement.interleaved: expected true or false, got "
       "number"},
      {"\"placement\": {\"experts\": 4,", "\"placement\": {\"experts\": 5,",
       "parameters[1].logical_shape: expected all 5 experts in dim 0, got "
       "[4, 12, 4]"},
      {"\"placement\": {\"experts\": 4, \"shards\": 2",
       "\"placement\": {\"experts\": 4, \"shards\": 2147483648",
       "parameters[1].placement.shards: expected at most 2147483647, got "
       "2147483648"},
      {"\"slices\": 2", "\"slices\": 4294967296",
       "parameters[1].slices: expected at most 2147483647, got 4294967296"},
  };
  for (const BadManifest &bad : cases)
    EXPECT_ERROR(Manifest::parse(edited(bad.from, bad.to)).status(),
                 MOIRA_DATA_LOSS, std::string("manifest: ") + bad.message);
}

TEST(Manifest, EntriesNeedAVariant) {
  std::string json = text;
  size_t from = json.find("\"variants\": [") + 13;
  json.replace(from, json.find("]}],", from) - from, "");
  EXPECT_ERROR(Manifest::parse(json).status(), MOIRA_DATA_LOSS,
               "manifest: entries[0].variants: expected at least one variant, "
               "got none");
}

TEST(Manifest, LayersAndEntriesAreNamedOnce) {
  Manifest manifest = testManifest();
  manifest.entries.push_back(manifest.entries[0]);
  EXPECT_ERROR(Manifest::parse(manifest.serialize()).status(), MOIRA_DATA_LOSS,
               "manifest: entries[1]: expected a name used once, got 'main' "
               "again");
  manifest = testManifest();
  manifest.entries[0].layers.push_back(manifest.entries[0].layers[0]);
  EXPECT_ERROR(Manifest::parse(manifest.serialize()).status(), MOIRA_DATA_LOSS,
               "manifest: entries[0].layers[1]: expected an index used once, "
               "got 3 again");
}

TEST(Manifest, LongForeignTextIsCut) {
  Status status =
      Manifest::parse(edited("\"bf16\"", '"' + std::string(5000, 'q') + '"'))
          .status();
  EXPECT_LT(status.message.size(), 300u);
}

TEST(Manifest, DeepNestingIsNoDanger) {
  std::string deep(200'000, '[');
  EXPECT_EQ(Manifest::parse(deep).status().code, MOIRA_DATA_LOSS);
  deep += std::string(200'000, ']');
  EXPECT_EQ(Manifest::parse(deep).status().code, MOIRA_DATA_LOSS);
  EXPECT_EQ(Manifest::parse("{\"moira\": " + deep + "}").status().code,
            MOIRA_DATA_LOSS);
}

TEST(Manifest, EveryTruncationIsAnError) {
  std::string json = text;
  for (size_t size = 0; size < json.size(); size += 3)
    EXPECT_EQ(Manifest::parse(json.substr(0, size)).status().code,
              MOIRA_DATA_LOSS);
}

TEST(Manifest, DamageNeverThrows) {
  std::mt19937 random(11);
  for (int i = 0; i < 3000; ++i) {
    std::string json = text;
    for (int j = random() % 4; j >= 0; --j)
      json[random() % json.size()] = "\"{}[],:019.-xe \\"[random() % 16];
    Result<Manifest> manifest = Manifest::parse(json);
    if (!manifest.ok())
      EXPECT_EQ(manifest.status().message.compare(0, 10, "manifest: "), 0);
    else
      EXPECT_TRUE(Manifest::parse(manifest->serialize()).ok());
  }
}

//===----------------------------------------------------------------------===//
// Random manifests come back field by field
//===----------------------------------------------------------------------===//

namespace {
/// Makes manifests that `parse` accepts.
struct Maker {
  std::mt19937 random{5};

  int64_t number(int64_t limit) { return random() % limit; }
  std::string text() {
    static const char *const pieces[] = {"a", ".", "\"", "\\", "é", "\n", " "};
    std::string result = "n" + std::to_string(count++);
    for (int64_t i = number(4); i > 0; --i)
      result += pieces[number(7)];
    return result;
  }
  DataType dtype() { return static_cast<DataType>(number(8)); }
  Shape shape(int64_t least) {
    Shape dims;
    for (int64_t i = number(4); i > 0; --i)
      dims.push_back(least + number(1000));
    return dims;
  }
  EntrySpec entry() {
    EntrySpec entry;
    entry.name = text();
    for (int64_t i = number(3); i > 0; --i)
      entry.inputs.push_back({text(), dtype(), shape(-1)});
    for (int64_t i = number(3); i > 0; --i)
      entry.results.push_back({number(2) ? text() : "", dtype(), shape(-1)});
    entry.ranks = 1 + number(5);
    for (int64_t i = number(3); i > 0; --i) {
      entry.layers.push_back(
          {i * 10, 1 + number(300), number(9), number(1 << 30), {}});
      if (number(2))
        entry.layers.back().placement = layerPlacement(entry);
    }
    entry.flopsPerToken = number(1 << 30);
    for (int64_t i = 1 + number(3); i > 0; --i)
      entry.variants.push_back({text(), text(), number(100), text(), text(),
                                text(), text(), number(2) ? "groups" : "",
                                number(2) ? text() : ""});
    entry.update = number(2) ? text() : "";
    return entry;
  }
  LayerPlacement layerPlacement(const EntrySpec &entry) {
    LayerPlacement placement;
    placement.experts = entry.layers.back().experts;
    placement.copies = number(4);
    placement.shards = std::max(1, placement.copies) * (1 + number(3));
    placement.slots = placement.units() / entry.ranks + 1 + number(2);
    return placement;
  }
  ParameterPlacement parameterPlacement(ParameterSpec &parameter) {
    ParameterPlacement placement;
    placement.experts = 1 + number(300);
    placement.shards = 1 + number(9);
    parameter.logicalShape.insert(parameter.logicalShape.begin(),
                                  placement.experts);
    if (parameter.sourceShape.empty() || number(3) == 0)
      return placement;
    placement.dim = number(parameter.sourceShape.size());
    placement.parts = 1 + number(3);
    placement.interleaved = number(2);
    parameter.sourceShape[placement.dim] *= placement.parts;
    return placement;
  }
  ParameterSpec parameter() {
    ParameterSpec parameter;
    parameter.stacked = number(2);
    parameter.name = text() + (parameter.stacked ? "{}" : "");
    parameter.slices = 1 + number(100);
    parameter.sourceType = dtype();
    parameter.sourceShape = shape(0);
    parameter.logicalShape = shape(0);
    parameter.packedSliceBytes = number(1 << 20);
    parameter.pack = text();
    parameter.layout = text();
    if (number(2))
      parameter.placement = parameterPlacement(parameter);
    return parameter;
  }

  int count = 0;
};
} // namespace

static void expectEqual(const EntrySpec &a, const EntrySpec &b) {
  EXPECT_EQ(a.name, b.name);
  EXPECT_EQ(a.ranks, b.ranks);
  EXPECT_EQ(a.flopsPerToken, b.flopsPerToken);
  EXPECT_EQ(a.update, b.update);
  auto same = [](const std::vector<TensorSpec> &left,
                 const std::vector<TensorSpec> &right) {
    ASSERT_EQ(left.size(), right.size());
    for (size_t i = 0; i < left.size(); ++i) {
      EXPECT_EQ(left[i].name, right[i].name);
      EXPECT_EQ(left[i].dtype, right[i].dtype);
      EXPECT_EQ(left[i].shape, right[i].shape);
    }
  };
  same(a.inputs, b.inputs);
  same(a.results, b.results);
  ASSERT_EQ(a.layers.size(), b.layers.size());
  for (size_t i = 0; i < a.layers.size(); ++i) {
    EXPECT_EQ(a.layers[i].index, b.layers[i].index);
    EXPECT_EQ(a.layers[i].experts, b.layers[i].experts);
    EXPECT_EQ(a.layers[i].topK, b.layers[i].topK);
    EXPECT_EQ(a.layers[i].flopsPerRow, b.layers[i].flopsPerRow);
    const auto &left = a.layers[i].placement, &right = b.layers[i].placement;
    ASSERT_EQ(left.has_value(), right.has_value());
    if (!left)
      continue;
    EXPECT_EQ(left->experts, right->experts);
    EXPECT_EQ(left->shards, right->shards);
    EXPECT_EQ(left->copies, right->copies);
    EXPECT_EQ(left->slots, right->slots);
  }
  ASSERT_EQ(a.variants.size(), b.variants.size());
  for (size_t i = 0; i < a.variants.size(); ++i) {
    EXPECT_EQ(a.variants[i].name, b.variants[i].name);
    EXPECT_EQ(a.variants[i].rowClass, b.variants[i].rowClass);
    EXPECT_EQ(a.variants[i].minRows, b.variants[i].minRows);
    EXPECT_EQ(a.variants[i].step, b.variants[i].step);
    EXPECT_EQ(a.variants[i].workspace, b.variants[i].workspace);
    EXPECT_EQ(a.variants[i].numerics, b.variants[i].numerics);
    EXPECT_EQ(a.variants[i].qualified, b.variants[i].qualified);
    EXPECT_EQ(a.variants[i].schedule, b.variants[i].schedule);
    EXPECT_EQ(a.variants[i].shapes, b.variants[i].shapes);
  }
}

static void expectEqual(const ParameterSpec &a, const ParameterSpec &b) {
  EXPECT_EQ(a.name, b.name);
  EXPECT_EQ(a.slices, b.slices);
  EXPECT_EQ(a.sourceType, b.sourceType);
  EXPECT_EQ(a.sourceShape, b.sourceShape);
  EXPECT_EQ(a.stacked, b.stacked);
  EXPECT_EQ(a.logicalShape, b.logicalShape);
  EXPECT_EQ(a.packedSliceBytes, b.packedSliceBytes);
  EXPECT_EQ(a.pack, b.pack);
  EXPECT_EQ(a.layout, b.layout);
  ASSERT_EQ(a.placement.has_value(), b.placement.has_value());
  if (!a.placement)
    return;
  EXPECT_EQ(a.placement->experts, b.placement->experts);
  EXPECT_EQ(a.placement->shards, b.placement->shards);
  EXPECT_EQ(a.placement->dim, b.placement->dim);
  EXPECT_EQ(a.placement->parts, b.placement->parts);
  EXPECT_EQ(a.placement->interleaved, b.placement->interleaved);
}

TEST(Manifest, RandomOnesComeBack) {
  Maker maker;
  for (int round = 0; round < 200; ++round) {
    Manifest made;
    made.version = maker.text();
    made.module = maker.text();
    made.target = {maker.text(), maker.text(), maker.text()};
    for (int64_t i = maker.number(4); i > 0; --i)
      made.entries.push_back(maker.entry());
    for (int64_t i = maker.number(4); i > 0; --i)
      made.parameters.push_back(maker.parameter());
    Result<Manifest> read = Manifest::parse(made.serialize());
    ASSERT_OK(read.status());
    EXPECT_EQ(read->version, made.version);
    EXPECT_EQ(read->module, made.module);
    EXPECT_EQ(read->target.triple, made.target.triple);
    EXPECT_EQ(read->target.cpu, made.target.cpu);
    EXPECT_EQ(read->target.features, made.target.features);
    ASSERT_EQ(read->entries.size(), made.entries.size());
    for (size_t i = 0; i < made.entries.size(); ++i)
      expectEqual(read->entries[i], made.entries[i]);
    ASSERT_EQ(read->parameters.size(), made.parameters.size());
    for (size_t i = 0; i < made.parameters.size(); ++i)
      expectEqual(read->parameters[i], made.parameters[i]);
  }
}
