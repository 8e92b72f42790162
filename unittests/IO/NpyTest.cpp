// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "TestFiles.h"

#include "io/Npy.h"

#include <cstring>
#include <gtest/gtest.h>

using namespace moira;
using namespace moira::io;
using moira::test::TempFolder;

/// A file of format `major` with this header text and `data` bytes.
static std::string npy(const std::string &dictionary, size_t data,
                       int major = 1) {
  std::string out = "\x93NUMPY";
  out += static_cast<char>(major);
  out += '\0';
  for (int i = 0; i < (major == 1 ? 2 : 4); ++i)
    out += static_cast<char>(dictionary.size() >> 8 * i);
  return out + dictionary + std::string(data, '\1');
}

static std::string dictionary(const std::string &descr,
                              const std::string &shape,
                              const std::string &order = "False") {
  return "{'descr': '" + descr + "', 'fortran_order': " + order +
         ", 'shape': " + shape + ", }\n";
}

static Result<MappedTensor> parse(const std::string &bytes,
                                  NpyOptions options = {}) {
  return parseNpy(reinterpret_cast<const uint8_t *>(bytes.data()),
                  static_cast<int64_t>(bytes.size()), "a.npy", options);
}

static std::string problemOf(const std::string &bytes,
                             NpyOptions options = {}) {
  Result<MappedTensor> tensor = parse(bytes, options);
  return tensor.ok() ? "accepted" : tensor.status().message;
}

TEST(Npy, RoundTripsEveryType) {
  TempFolder folder;
  struct Case {
    DataType dtype;
    int64_t size;
  };
  for (Case c :
       {Case{DataType::F32, 4}, Case{DataType::F64, 8}, Case{DataType::F16, 2},
        Case{DataType::I1, 1}, Case{DataType::I8, 1}, Case{DataType::I32, 4},
        Case{DataType::I64, 8}}) {
    std::vector<uint8_t> data(6 * c.size);
    for (size_t i = 0; i < data.size(); ++i)
      data[i] = c.dtype == DataType::I1 ? i % 2 : i * 37;
    std::string path = folder.path("a.npy");
    ASSERT_TRUE(writeNpy(path, c.dtype, {2, 3}, data.data()).ok());
    Result<MappedTensor> tensor = readNpy(path);
    ASSERT_TRUE(tensor.ok()) << tensor.status().message;
    EXPECT_EQ(tensor->dtype, c.dtype);
    EXPECT_EQ(tensor->shape, (Shape{2, 3}));
    ASSERT_EQ(tensor->bytes, 6 * c.size);
    EXPECT_EQ(std::memcmp(tensor->data, data.data(), data.size()), 0);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor->data) % 64, 0u);
  }
}

TEST(Npy, RoundTripsEveryRank) {
  TempFolder folder;
  std::vector<float> data(24, 1.5f);
  for (const Shape &shape : {Shape{}, Shape{5}, Shape{0}, Shape{2, 0, 3},
                             Shape{1, 2, 3, 4}, Shape(64, 1)}) {
    std::string path = folder.path("a.npy");
    ASSERT_TRUE(writeNpy(path, DataType::F32, shape, data.data()).ok());
    Result<MappedTensor> tensor = readNpy(path);
    ASSERT_TRUE(tensor.ok()) << tensor.status().message;
    EXPECT_EQ(tensor->shape, shape);
  }
}

TEST(Npy, WritesTheHeaderThatNumPyWrites) {
  std::string header = npyHeader(DataType::F32, {3});
  EXPECT_EQ(header.size(), 128u);
  EXPECT_EQ(header.substr(0, 10), std::string("\x93NUMPY\x01\0\x76\0", 10));
  EXPECT_EQ(header.substr(10, 59),
            "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }  ");
  EXPECT_EQ(header.back(), '\n');
}

TEST(Npy, WidensBf16) {
  TempFolder folder;
  std::vector<uint16_t> data(70000, 0x3fc0);
  data[1] = 0xc000;
  std::string path = folder.path("a.npy");
  ASSERT_TRUE(writeNpy(path, DataType::BF16, {70000}, data.data()).ok());
  Result<MappedTensor> tensor = readNpy(path);
  ASSERT_TRUE(tensor.ok()) << tensor.status().message;
  EXPECT_EQ(tensor->dtype, DataType::F32);
  const float *values = reinterpret_cast<const float *>(tensor->data);
  EXPECT_EQ(values[0], 1.5f);
  EXPECT_EQ(values[1], -2.0f);
  EXPECT_EQ(values[69999], 1.5f);
}

TEST(Npy, AcceptsAllFormatsAndSpellings) {
  for (int major : {1, 2, 3})
    EXPECT_TRUE(parse(npy(dictionary("<f4", "(2, 3)"), 24, major)).ok());
  EXPECT_TRUE(parse(npy("{\"shape\":(2L,3L),\"descr\":\"<f8\","
                        "\"fortran_order\":False}",
                        48))
                  .ok());
  EXPECT_EQ(parse(npy(dictionary("|b1", "(3,)"), 3))->dtype, DataType::I1);
  EXPECT_EQ(parse(npy(dictionary("<f2", "()"), 2))->shape, Shape());
}

TEST(Npy, ReadsVoidAsBf16OnRequestOnly) {
  std::string file = npy(dictionary("<V2", "(4,)"), 8);
  EXPECT_EQ(problemOf(file), "a.npy: element type '<V2' has no meaning of its "
                             "own; ask for bf16 to read it");
  EXPECT_EQ(parse(file, {true})->dtype, DataType::BF16);
}

TEST(Npy, RefusesOtherLayouts) {
  EXPECT_EQ(problemOf(npy(dictionary("<f4", "(2,)", "True"), 8)),
            "a.npy: expected C order, got Fortran order");
  EXPECT_EQ(problemOf(npy(dictionary(">f4", "(2,)"), 8)),
            "a.npy: expected little-endian elements, got '>f4'");
  EXPECT_EQ(problemOf(npy(dictionary("<c8", "(2,)"), 16)),
            "a.npy: expected element type f2, f4, f8, i1, i4, i8 or b1, got "
            "'<c8'");
  EXPECT_EQ(problemOf(npy("{'descr': [('a', '<f4')], 'fortran_order': False, "
                          "'shape': (2,)}",
                          8)),
            "a.npy: expected a plain element type, got a structured one");
}

TEST(Npy, RefusesWrongSizes) {
  EXPECT_EQ(problemOf(npy(dictionary("<f4", "(2, 3)"), 23)),
            "a.npy: expected 24 bytes of f32[2, 3], got 23");
  EXPECT_EQ(problemOf(npy(dictionary("<f4", "(2, 3)"), 25)),
            "a.npy: expected 24 bytes of f32[2, 3], got 25");
  for (const char *shape :
       {"(4611686018427387904, 2)", "(0, 4611686018427387904)",
        "(4294967296, 4294967296)"})
    EXPECT_NE(problemOf(npy(dictionary("<f4", shape), 8)).find("too large"),
              std::string::npos)
        << shape;
}

TEST(Npy, RefusesMalformedHeaders) {
  for (const char *text :
       {"", "{", "}", "{'descr'", "{'descr': '<f4'}", "{'descr': '<f4",
        "{'descr': <f4, 'fortran_order': False, 'shape': (2,)}",
        "{'descr': '<f4', 'fortran_order': 0, 'shape': (2,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': [2]}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-2,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 'a')}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'x': 1}",
        "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, "
        "'shape': (2,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)} x",
        "{'descr': '<f4', 'fortran_order': False, "
        "'shape': (99999999999999999999,)}"})
    EXPECT_NE(problemOf(npy(text, 8)), "accepted") << text;
  EXPECT_NE(problemOf(npy(dictionary(
                              "<f4", "(" +
                                         [] {
                                           std::string ones;
                                           for (int i = 0; i < 65; ++i)
                                             ones += "1,";
                                           return ones;
                                         }() +
                                         ")"),
                          4)),
            "accepted");
}

TEST(Npy, RefusesHugeHeaderLengths) {
  std::string file = npy(dictionary("<f4", "(2,)"), 8, 2);
  file[11] = '\x7f';
  EXPECT_NE(problemOf(file).find("header of at most"), std::string::npos);
  EXPECT_EQ(problemOf(npy(dictionary("<f4", "(2,)"), 8, 4)),
            "a.npy: expected .npy format 1, 2 or 3, got 4");
}

TEST(Npy, RefusesEveryTruncation) {
  std::string file = npy(dictionary("<f4", "(2, 3)"), 24);
  for (size_t length = 0; length < file.size(); ++length)
    EXPECT_NE(problemOf(file.substr(0, length)), "accepted") << length;
}

TEST(Npy, RefusesBooleansOtherThanZeroAndOne) {
  std::string file = npy(dictionary("|b1", "(3,)"), 3);
  file.back() = '\2';
  EXPECT_EQ(problemOf(file), "a.npy: expected booleans to be 0 or 1");
}

TEST(Npy, NamesTheFileThatIsMissing) {
  TempFolder folder;
  Result<MappedTensor> tensor = readNpy(folder.path("none.npy"));
  EXPECT_EQ(tensor.status().code, MOIRA_NOT_FOUND);
  EXPECT_EQ(tensor.status().message, folder.path("none.npy") +
                                         ": cannot read: No such file or "
                                         "directory");
  EXPECT_FALSE(readNpy(folder.path("")).ok());
}

TEST(Npy, LeavesNothingBehindWhenItCannotWrite) {
  TempFolder folder;
  float value = 0;
  EXPECT_FALSE(
      writeNpy(folder.path("none/a.npy"), DataType::F32, {1}, &value).ok());
  EXPECT_FALSE(writeNpy(folder.path("a.npy"), DataType::F32,
                        {int64_t(1) << 62, 4}, &value)
                   .ok());
  EXPECT_EQ(folder.count(), 0);
}
