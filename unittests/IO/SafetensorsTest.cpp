// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "TestFiles.h"

#include "io/CheckpointSource.h"
#include "io/Safetensors.h"

#include <cstring>
#include <gtest/gtest.h>
#include <thread>

using namespace moira;
using namespace moira::io;
using moira::test::TempFolder;

/// A file with this header text and `data` bytes.
static std::string file(const std::string &header, size_t data) {
  std::string out;
  for (int i = 0; i < 8; ++i)
    out += static_cast<char>(uint64_t(header.size()) >> 8 * i);
  return out + header + std::string(data, '\1');
}

static Result<SafetensorsHeader> parse(const std::string &bytes) {
  return parseSafetensorsHeader(reinterpret_cast<const uint8_t *>(bytes.data()),
                                static_cast<int64_t>(bytes.size()), "m");
}

static std::string problemOf(const std::string &bytes) {
  Result<SafetensorsHeader> header = parse(bytes);
  return header.ok() ? "accepted" : header.status().message;
}

/// The header of one tensor 'a'.
static std::string tensor(const std::string &dtype, const std::string &shape,
                          const std::string &offsets) {
  return R"({"a":{"dtype":")" + dtype + R"(","shape":)" + shape +
         R"(,"data_offsets":)" + offsets + "}}";
}

TEST(Safetensors, RoundTripsEveryType) {
  TempFolder folder;
  std::vector<uint8_t> data(48);
  for (size_t i = 0; i < data.size(); ++i)
    data[i] = i % 2;
  std::vector<SafetensorsSpec> specs;
  std::vector<const void *> buffers;
  for (DataType dtype :
       {DataType::F32, DataType::F64, DataType::F16, DataType::BF16,
        DataType::I1, DataType::I8, DataType::I32, DataType::I64}) {
    specs.push_back({runtime::name(dtype), dtype, {2, 3}});
    buffers.push_back(data.data());
  }
  specs.push_back({"scalar", DataType::F32, {}});
  specs.push_back({"empty", DataType::F32, {0, 7}});
  buffers.insert(buffers.end(), 2, data.data());
  std::string path = folder.path("m.safetensors");
  ASSERT_TRUE(writeSafetensors(path, specs, buffers).ok());
  EXPECT_EQ(folder.count(), 1);

  auto checkpoint = Safetensors::open(path);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message;
  EXPECT_EQ((*checkpoint)->names().size(), specs.size());
  for (const SafetensorsSpec &spec : specs) {
    Result<MappedTensor> found = (*checkpoint)->tensor(spec.name);
    ASSERT_TRUE(found.ok()) << found.status().message;
    EXPECT_TRUE(checkTensor(*found, spec.dtype, spec.shape).ok());
    for (int64_t i = 0; i < found->bytes; ++i)
      EXPECT_EQ(found->data[i], data[i]);
    found->release(0, found->bytes);
    if (found->bytes != 0) {
      EXPECT_EQ(found->data[0], data[0]);
    }
  }
}

TEST(Safetensors, ChecksTypeAndShapeOfATensor) {
  TempFolder folder;
  folder.write("m.safetensors", file(tensor("F32", "[2,3]", "[0,24]"), 24));
  std::string path = folder.path("m.safetensors");
  auto checkpoint = Safetensors::open(path);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message;
  Result<MappedTensor> found = (*checkpoint)->tensor("a");
  ASSERT_TRUE(found.ok()) << found.status().message;
  EXPECT_TRUE(checkTensor(*found, DataType::F32, {-1, 3}).ok());
  EXPECT_EQ(checkTensor(*found, DataType::BF16, {3, 2}).message,
            path + ": tensor 'a': expected bf16[3, 2], got f32[2, 3]");
  EXPECT_EQ((*checkpoint)->tensor("b").status().message,
            path + ": no tensor 'b'");
  EXPECT_EQ((*checkpoint)->tensor("b").status().code, MOIRA_NOT_FOUND);
}

TEST(Safetensors, ReadsMetadataAndPadding) {
  std::string text =
      R"({"__metadata__":{"format":"pt"},"a":{"data_offsets":[0,4],)"
      R"("shape":[2],"dtype":"BF16"}}   )";
  Result<SafetensorsHeader> header = parse(file(text, 4));
  ASSERT_TRUE(header.ok()) << header.status().message;
  EXPECT_EQ(header->metadata.at("format"), "pt");
  ASSERT_NE(header->find("a"), nullptr);
  EXPECT_EQ(header->find("a")->dtype, DataType::BF16);
  EXPECT_EQ(header->find("__metadata__"), nullptr);
}

TEST(Safetensors, RefusesTypesWeCannotComputeWithOnlyWhenAskedForThem) {
  TempFolder folder;
  folder.write("m.safetensors", file(tensor("F8_E4M3", "[3]", "[0,3]"), 3));
  auto checkpoint = Safetensors::open(folder.path("m.safetensors"));
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message;
  EXPECT_EQ((*checkpoint)->tensor("a").status().message,
            folder.path("m.safetensors") +
                ": tensor 'a': unsupported dtype F8_E4M3");
  EXPECT_NE(problemOf(file(tensor("F4", "[3]", "[0,1]"), 1)), "accepted");
  EXPECT_EQ(problemOf(file(tensor("F4", "[4]", "[0,2]"), 2)), "accepted");
}

TEST(Safetensors, RefusesWrongSizesAndOffsets) {
  EXPECT_EQ(problemOf(file(tensor("F32", "[2,3]", "[0,20]"), 20)),
            "m: safetensors header: tensor 'a': expected 24 bytes for "
            "F32[2, 3], got data_offsets [0, 20]");
  EXPECT_EQ(problemOf(file(tensor("F32", "[2]", "[8,0]"), 8)),
            "m: safetensors header: tensor 'a': expected 8 bytes for F32[2], "
            "got data_offsets [8, 0]");
  EXPECT_EQ(problemOf(file(tensor("F32", "[2]", "[0,8]"), 4)),
            "m: truncated data: tensor 'a' ends at offset 8, got 4 bytes of "
            "data");
  EXPECT_EQ(problemOf(file(tensor("F32", "[2]", "[0,8]"), 12)),
            "m: expected 8 bytes of data, got 12");
  EXPECT_EQ(problemOf(file(tensor("F32", "[2]", "[4,12]"), 12)),
            "m: tensor 'a': expected data at offset 0, got 4");
  EXPECT_NE(
      problemOf(file(
          tensor("F32", "[2]", "[18446744073709551608,18446744073709551615]"),
          8)),
      "accepted");
}

TEST(Safetensors, RefusesShapesWhoseSizeOverflows) {
  for (const char *shape :
       {"[4611686018427387904,2]", "[4294967296,4294967296]",
        "[4294967296,4294967296,0]", "[18446744073709551615]",
        "[9223372036854775807]", "[184467440737095516160]"})
    EXPECT_NE(problemOf(file(tensor("F32", shape, "[0,0]"), 0)), "accepted")
        << shape;
}

TEST(Safetensors, RefusesOverlapsAndHoles) {
  auto two = [](const char *a, const char *b) {
    return std::string(R"({"a":{"dtype":"I8","shape":[4],"data_offsets":)") +
           a + R"(},"b":{"dtype":"I8","shape":[4],"data_offsets":)" + b + "}}";
  };
  EXPECT_EQ(problemOf(file(two("[0,4]", "[4,8]"), 8)), "accepted");
  EXPECT_EQ(problemOf(file(two("[4,8]", "[0,4]"), 8)), "accepted");
  EXPECT_EQ(problemOf(file(two("[0,4]", "[2,6]"), 6)),
            "m: tensor 'b': expected data at offset 4, got 2");
  EXPECT_EQ(problemOf(file(two("[0,4]", "[0,4]"), 4)),
            "m: tensor 'b': expected data at offset 4, got 0");
  EXPECT_EQ(problemOf(file(two("[0,4]", "[5,9]"), 9)),
            "m: tensor 'b': expected data at offset 4, got 5");
}

TEST(Safetensors, RefusesDuplicates) {
  std::string a = R"("a":{"dtype":"I8","shape":[0],"data_offsets":[0,0]})";
  EXPECT_EQ(problemOf(file("{" + a + "," + a + "}", 0)),
            "m: duplicate tensor 'a'");
  EXPECT_EQ(problemOf(file(R"({"a":{"dtype":"I8","dtype":"I8"}})", 0)),
            "m: safetensors header: tensor 'a': duplicate key 'dtype'");
  EXPECT_EQ(problemOf(file(R"({"__metadata__":{},"__metadata__":{}})", 0)),
            "m: safetensors header: duplicate key '__metadata__'");
  EXPECT_NE(problemOf(file(R"({"__metadata__":{"a":"1","a":"2"}})", 0)),
            "accepted");
}

TEST(Safetensors, RefusesMalformedHeaders) {
  EXPECT_EQ(problemOf(file("{}", 0)), "accepted");
  for (const char *text :
       {"",
        "[]",
        "1",
        "null",
        "\"a\"",
        "{",
        "{}{}",
        "{\"a\":1}",
        "{\"a\":[]}",
        "{\"a\":{}}",
        "{\"a\":{\"dtype\":1}}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[0]}}",
        "{\"a\":{\"dtype\":{},\"shape\":[0],\"data_offsets\":[0,0]}}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":{},\"data_offsets\":[0,0]}}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[[0]],\"data_offsets\":[0,0]}}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,0]}}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[0.0],\"data_offsets\":[0,0]}}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0]}}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0,0]}}",
        "{\"a\":{\"dtype\":\"F33\",\"shape\":[0],\"data_offsets\":[0,0]}}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0],"
        "\"x\":1}}",
        "{\"__metadata__\":1}",
        "{\"__metadata__\":{\"a\":1}}",
        "{\"__metadata__\":{\"a\":{}}}",
        "{\"\xff\":1}"}) {
    std::string problem = problemOf(file(text, 0));
    EXPECT_NE(problem, "accepted") << text;
    EXPECT_EQ(problem.find('\n'), std::string::npos) << problem;
  }
  EXPECT_EQ(problemOf(file(std::string("{}\0{", 4), 0)),
            "m: safetensors header: malformed JSON at byte 2");
}

TEST(Safetensors, SurvivesDeepNesting) {
  std::string deep = R"({"a":)" + std::string(1000000, '[');
  EXPECT_NE(problemOf(file(deep, 0)), "accepted");
  EXPECT_FALSE(
      parseSafetensorsIndex(R"({"weight_map":{},"x":)" + deep, "i").ok());
}

TEST(Safetensors, KeepsMessagesOnOneShortLine) {
  std::string name(1000, 'x');
  name[3] = '\n';
  std::string problem =
      problemOf(file("{\"x\\ny" + name.substr(4) + "\":1}", 0));
  EXPECT_LT(problem.size(), 300u);
  EXPECT_EQ(problem.find('\n'), std::string::npos);
  EXPECT_NE(problem.find("x\\x0ay"), std::string::npos);
}

TEST(Safetensors, RefusesHugeHeaderLengths) {
  for (uint64_t length :
       {uint64_t(9), uint64_t(100'000'001), uint64_t(1) << 63, ~uint64_t(0)}) {
    std::string bytes = file("{}", 4);
    for (int i = 0; i < 8; ++i)
      bytes[i] = static_cast<char>(length >> 8 * i);
    EXPECT_NE(problemOf(bytes), "accepted") << length;
  }
}

TEST(Safetensors, RefusesEveryTruncation) {
  std::string whole = file(tensor("F32", "[2,3]", "[0,24]"), 24);
  ASSERT_EQ(problemOf(whole), "accepted");
  for (size_t length = 0; length < whole.size(); ++length)
    EXPECT_NE(problemOf(whole.substr(0, length)), "accepted") << length;
}

TEST(Safetensors, RefusesEveryChangedLengthByte) {
  std::string whole = file(tensor("F32", "[2,3]", "[0,24]"), 24);
  for (int at = 0; at < 8; ++at)
    for (int value = 1; value < 256; ++value) {
      std::string bytes = whole;
      bytes[at] = static_cast<char>(bytes[at] + value);
      EXPECT_NE(problemOf(bytes), "accepted") << at << " " << value;
    }
}

TEST(Safetensors, RefusesBooleansOtherThanZeroAndOne) {
  TempFolder folder;
  std::string bytes = file(tensor("BOOL", "[2]", "[0,2]"), 2);
  bytes.back() = '\2';
  folder.write("m.safetensors", bytes);
  auto checkpoint = Safetensors::open(folder.path("m.safetensors"));
  ASSERT_TRUE(checkpoint.ok());
  EXPECT_FALSE((*checkpoint)->tensor("a").ok());
}

TEST(Safetensors, WriterRefusesWhatItCannotWrite) {
  TempFolder folder;
  float value = 0;
  std::string path = folder.path("m.safetensors");
  EXPECT_FALSE(
      writeSafetensors(path, {{"a", DataType::F32, {-1}}}, {&value}).ok());
  EXPECT_EQ(writeSafetensors(
                path, {{"a", DataType::F32, {1}}, {"a", DataType::F32, {1}}},
                {&value, &value})
                .message,
            path + ": cannot write two tensors 'a'");
  EXPECT_EQ(folder.count(), 0);
}

//===----------------------------------------------------------------------===//
// Several files
//===----------------------------------------------------------------------===//

/// A folder with 'a' in one shard and 'b' in another.
static void writeShards(const TempFolder &folder) {
  folder.write("1.safetensors", file(tensor("I8", "[2]", "[0,2]"), 2));
  folder.write(
      "2.safetensors",
      file(R"({"b":{"dtype":"I8","shape":[3],"data_offsets":[0,3]}})", 3));
  folder.write("model.safetensors.index.json",
               R"({"metadata":{"total_size":5},"weight_map":{)"
               R"("a":"1.safetensors","b":"2.safetensors",)"
               R"("c":"1.safetensors","d":"3.safetensors"}})");
}

TEST(SafetensorsIndex, FindsTensorsInTheirShards) {
  TempFolder folder;
  writeShards(folder);
  for (const std::string &path :
       {folder.folder(), folder.path("model.safetensors.index.json")}) {
    auto checkpoint = Safetensors::open(path);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message;
    EXPECT_EQ((*checkpoint)->names(),
              (std::vector<std::string>{"a", "b", "c", "d"}));
    EXPECT_TRUE((*checkpoint)->contains("b"));
    EXPECT_EQ((*checkpoint)->tensor("a")->shape, Shape{2});
    EXPECT_EQ((*checkpoint)->tensor("b")->shape, Shape{3});
  }
}

TEST(SafetensorsIndex, NamesWhatIsMissing) {
  TempFolder folder;
  EXPECT_EQ(Safetensors::open(folder.folder()).status().message,
            folder.folder() + ": expected model.safetensors.index.json or "
                              "model.safetensors in this folder");
  writeShards(folder);
  auto checkpoint = Safetensors::open(folder.folder());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message;
  EXPECT_EQ((*checkpoint)->tensor("c").status().message,
            folder.path("1.safetensors") +
                ": no tensor 'c', which the index places in this file");
  EXPECT_EQ((*checkpoint)->tensor("d").status().message,
            folder.path("3.safetensors") +
                ": cannot read: No such file or directory");
  EXPECT_EQ((*checkpoint)->tensor("e").status().message,
            folder.path("model.safetensors.index.json") + ": no tensor 'e'");
}

TEST(SafetensorsIndex, IsSafeToUseFromSeveralThreads) {
  TempFolder folder;
  writeShards(folder);
  auto checkpoint = Safetensors::open(folder.folder());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message;
  std::vector<std::thread> threads;
  for (const char *name : {"a", "b", "a", "b"})
    threads.emplace_back([&, name] {
      for (int i = 0; i < 100; ++i)
        EXPECT_TRUE((*checkpoint)->tensor(name).ok());
    });
  for (std::thread &thread : threads)
    thread.join();
}

TEST(SafetensorsIndex, RefusesMalformedIndexes) {
  for (const char *text :
       {"", "{}", "[]", "1", "{\"weight_map\":1}", "{\"weight_map\":[]}",
        "{\"weight_map\":\"a\"}", "{\"weight_map\":{\"a\":1}}",
        "{\"weight_map\":{\"a\":{}}}", "{\"weight_map\":{\"a\":[\"x\"]}}",
        "{\"weight_map\":{\"a\":\"../x\"}}", "{\"weight_map\":{\"a\":\"\"}}",
        "{\"weight_map\":{\"a\":\"..\"}}", "{\"weight_map\":{\"a\":\"/x\"}}",
        "{\"weight_map\":{\"a\":\"x\\u0000y\"}}",
        "{\"weight_map\":{},\"weight_map\":{}}",
        "{\"weight_map\":{\"a\":\"x\",\"a\":\"y\"}}"})
    EXPECT_FALSE(parseSafetensorsIndex(text, "i").ok()) << text;
  auto index = parseSafetensorsIndex(
      R"({"x":[{"weight_map":{"z":"w"}}],"weight_map":{"a":"b"},"y":null})",
      "i");
  ASSERT_TRUE(index.ok()) << index.status().message;
  EXPECT_EQ(index->size(), 1u);
  EXPECT_EQ(index->at("a"), "b");
}

TEST(CheckpointSource, HandsOutTensorsAndReleasesTheirPages) {
  TempFolder folder;
  std::vector<float> data(100000);
  for (size_t i = 0; i < data.size(); ++i)
    data[i] = static_cast<float>(i);
  std::string path = folder.path("m.safetensors");
  ASSERT_TRUE(
      writeSafetensors(path, {{"a", DataType::F32, {1000, 100}}}, {data.data()})
          .ok());
  auto source = CheckpointSource::open(path);
  ASSERT_TRUE(source.ok()) << source.status().message;
  EXPECT_EQ((*source)->describe(), path);
  Result<runtime::TensorView> tensor = (*source)->find("a");
  ASSERT_TRUE(tensor.ok()) << tensor.status().message;
  EXPECT_EQ(tensor->shape, (Shape{1000, 100}));
  (*source)->releasePages(tensor->data, 400000);
  EXPECT_EQ(std::memcmp(tensor->data, data.data(), 400000), 0);
  EXPECT_EQ((*source)->find("b").status().code, MOIRA_NOT_FOUND);
}
