// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "session/BundleFile.h"
#include "Runtime/TestFiles.h"
#include "Runtime/TestProgram.h"
#include "base/Hash.h"
#include "session/BundleFormat.h"

#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace moira;
using namespace moira::runtime;
using namespace moira::test;

namespace {
/// A small bundle with every section, and ways to damage it.
struct BundleFileTest : testing::Test {
  std::vector<unsigned char> bytes = encodeBundle(
      {"{\"manifest\": 1}", "code", std::string_view(packed, 100)});

  Status verify() const {
    BundleContents contents;
    return verifyBundle(bytes.data(), bytes.size(), contents);
  }
  template <typename T> T get(size_t offset) const {
    T value;
    std::memcpy(&value, bytes.data() + offset, sizeof(value));
    return value;
  }
  template <typename T> void set(size_t offset, T value) {
    std::memcpy(bytes.data() + offset, &value, sizeof(value));
  }
  static size_t entry(size_t section) {
    return sizeof(BundleHeader) + section * sizeof(BundleSection);
  }
  /// Makes the header's checksum right again, so that the checks behind it
  /// are reached.
  void seal() {
    set<uint64_t>(offsetof(BundleHeader, checksum), 0);
    auto header = get<BundleHeader>(0);
    size_t size = std::min<size_t>(header.headerBytes, bytes.size());
    set(offsetof(BundleHeader, checksum), hashBytes(bytes.data(), size));
  }

  static constexpr char packed[100] = {1, 2, 3};
};
constexpr char BundleFileTest::packed[];
} // namespace

TEST_F(BundleFileTest, ComesBack) {
  BundleContents contents;
  EXPECT_OK(verifyBundle(bytes.data(), bytes.size(), contents));
  EXPECT_EQ(contents.manifest, "{\"manifest\": 1}");
  EXPECT_EQ(contents.hostCode, "code");
  EXPECT_EQ(contents.packedParameters, std::string_view(packed, 100));
  EXPECT_EQ((contents.packedParameters.data() -
             reinterpret_cast<const char *>(bytes.data())) %
                64,
            0);
}

TEST_F(BundleFileTest, ParametersAreOptional) {
  bytes = encodeBundle({"m", "c", ""});
  BundleContents contents;
  EXPECT_OK(verifyBundle(bytes.data(), bytes.size(), contents));
  EXPECT_EQ(contents.packedParameters, "");
}

TEST_F(BundleFileTest, SectionsMayStandInAnyOrder) {
  // Kinds are exchanged in the table; places and checksums stay.
  set<uint32_t>(entry(0), 2);
  set<uint32_t>(entry(1), 1);
  seal();
  BundleContents contents;
  EXPECT_OK(verifyBundle(bytes.data(), bytes.size(), contents));
  EXPECT_EQ(contents.manifest, "code");
  EXPECT_EQ(contents.hostCode, "{\"manifest\": 1}");
}

TEST_F(BundleFileTest, SizesAroundTheAlignmentComeBack) {
  for (size_t first : {0, 1, 63, 64, 65, 127, 128})
    for (size_t second : {0, 1, 64, 100}) {
      std::string manifest(first, 'm'), code(second, 'c');
      bytes = encodeBundle({manifest, code, "p", "ptx"});
      BundleContents contents;
      EXPECT_OK(verifyBundle(bytes.data(), bytes.size(), contents));
      EXPECT_EQ(contents.manifest, manifest);
      EXPECT_EQ(contents.hostCode, code);
      EXPECT_EQ(contents.packedParameters, "p");
      EXPECT_EQ(contents.gpuCode, "ptx");
    }
}

TEST_F(BundleFileTest, GpuCodeNeedsNoParameters) {
  bytes = encodeBundle({"m", "c", "", "ptx"});
  BundleContents contents;
  EXPECT_OK(verifyBundle(bytes.data(), bytes.size(), contents));
  EXPECT_EQ(contents.packedParameters, "");
  EXPECT_EQ(contents.gpuCode, "ptx");
}

TEST_F(BundleFileTest, EncodingIsDeterministic) {
  EXPECT_EQ(bytes, encodeBundle({"{\"manifest\": 1}", "code",
                                 std::string_view(packed, 100)}));
}

TEST_F(BundleFileTest, EveryFlippedByteIsFound) {
  for (size_t i = 0; i < bytes.size(); ++i)
    for (unsigned char mask : {0x01, 0x80, 0xff}) {
      bytes[i] ^= mask;
      Status status = verify();
      EXPECT_TRUE(status.code == MOIRA_DATA_LOSS ||
                  status.code == MOIRA_VERSION)
          << "byte " << i << ": " << status.message;
      bytes[i] ^= mask;
    }
  EXPECT_OK(verify());
}

TEST_F(BundleFileTest, EveryFlippedHeaderByteIsFoundUnderARightChecksum) {
  // Somebody who can compute the checksum must not reach bad memory either.
  // Flips of a section's own checksum or size change what is checked.
  std::vector<unsigned char> good = bytes;
  for (size_t i = 0; i < entry(3); ++i) {
    if (i >= offsetof(BundleHeader, checksum) &&
        i < offsetof(BundleHeader, checksum) + 8)
      continue;
    for (int bit = 0; bit < 8; ++bit) {
      bytes = good;
      bytes[i] ^= 1 << bit;
      seal();
      EXPECT_FALSE(verify().ok()) << "byte " << i << " bit " << bit;
    }
  }
}

TEST_F(BundleFileTest, EveryTruncationIsFound) {
  for (size_t size = 0; size < bytes.size(); ++size) {
    // Exactly as large as it is, so that a sanitizer sees a read behind it.
    std::vector<unsigned char> part(bytes.begin(), bytes.begin() + size);
    BundleContents contents;
    EXPECT_EQ(verifyBundle(part.data(), size, contents).code, MOIRA_DATA_LOSS)
        << size;
  }
}

TEST_F(BundleFileTest, BytesAtTheEndAreFound) {
  size_t size = bytes.size();
  bytes.push_back(0);
  EXPECT_ERROR(verify(), MOIRA_DATA_LOSS,
               concat("expected ", size, " bytes, got ", size + 1));
  set<uint64_t>(offsetof(BundleHeader, fileBytes), size + 1);
  seal();
  EXPECT_ERROR(verify(), MOIRA_DATA_LOSS,
               concat("expected the file to end at byte ", size, ", got ",
                      size + 1, " bytes"));
}

TEST_F(BundleFileTest, AnotherVersionIsNamed) {
  set<uint32_t>(offsetof(BundleHeader, version), 7);
  EXPECT_ERROR(verify(), MOIRA_VERSION,
               "bundle format: expected version 1, got 7");
}

TEST_F(BundleFileTest, AnotherKindOfFileIsNamed) {
  bytes[0] = 'X';
  EXPECT_ERROR(verify(), MOIRA_DATA_LOSS,
               "expected a moira bundle, got a file of another kind");
  bytes.clear();
  EXPECT_ERROR(verify(), MOIRA_DATA_LOSS,
               "expected a bundle of at least 64 bytes, got 0");
}

TEST_F(BundleFileTest, DamageInASectionNamesTheSection) {
  auto section = get<BundleSection>(entry(1));
  bytes[section.offset] ^= 1;
  EXPECT_ERROR(verify(), MOIRA_DATA_LOSS,
               "section 1: expected its checksum to match, got another");
}

TEST_F(BundleFileTest, PaddingMustBeZero) {
  auto section = get<BundleSection>(entry(1));
  bytes[section.offset - 1] = 1;
  EXPECT_ERROR(verify(), MOIRA_DATA_LOSS,
               "section 1: expected zeros before it, got other bytes");
}

TEST_F(BundleFileTest, PlacesOutsideOfTheFileAreFound) {
  size_t offset = entry(2) + offsetof(BundleSection, offset);
  size_t size = entry(2) + offsetof(BundleSection, bytes);
  std::vector<unsigned char> good = bytes;
  for (uint64_t value :
       {uint64_t(0), uint64_t(64), uint64_t(bytes.size()),
        uint64_t(bytes.size() + 64), uint64_t(1) << 63, ~uint64_t(63)}) {
    bytes = good;
    set(offset, value);
    seal();
    EXPECT_EQ(verify().code, MOIRA_DATA_LOSS) << value;
    bytes = good;
    set(size, value);
    seal();
    EXPECT_EQ(verify().code, MOIRA_DATA_LOSS) << value;
    set(offset, -value);
    seal();
    EXPECT_EQ(verify().code, MOIRA_DATA_LOSS) << value;
  }
}

TEST_F(BundleFileTest, OverlapsAreFound) {
  auto first = get<BundleSection>(entry(0));
  set(entry(1) + offsetof(BundleSection, offset), first.offset);
  seal();
  Status status = verify();
  EXPECT_EQ(status.code, MOIRA_DATA_LOSS);
  EXPECT_NE(status.message.find("section 1: expected a place at byte"),
            std::string::npos)
      << status.message;
}

TEST_F(BundleFileTest, KindsAreChecked) {
  set<uint32_t>(entry(1), 9);
  seal();
  EXPECT_ERROR(verify(), MOIRA_DATA_LOSS,
               "section 1: expected a kind of 1 to 4, got 9");
  set<uint32_t>(entry(1), 1);
  seal();
  EXPECT_ERROR(verify(), MOIRA_DATA_LOSS,
               "section 1: expected kind 1 once, got it again");
}

TEST_F(BundleFileTest, ManifestAndCodeMustBeThere) {
  BundleHeader header{};
  std::memcpy(header.magic, bundleMagic, sizeof(bundleMagic));
  header.version = bundleFormatVersion;
  header.fileBytes = header.headerBytes = sizeof(header);
  bytes.assign(sizeof(header), 0);
  set(0, header);
  seal();
  EXPECT_ERROR(verify(), MOIRA_DATA_LOSS,
               "expected a section of kind 1, got none");
}

TEST_F(BundleFileTest, TooManySectionsAreFound) {
  for (uint32_t count : {4u, 1000u, ~0u}) {
    set<uint32_t>(offsetof(BundleHeader, sections), count);
    set<uint64_t>(offsetof(BundleHeader, headerBytes),
                  sizeof(BundleHeader) + uint64_t(count) * 32);
    EXPECT_EQ(verify().code, MOIRA_DATA_LOSS);
  }
}

//===----------------------------------------------------------------------===//
// Files
//===----------------------------------------------------------------------===//

TEST_F(BundleFileTest, ReadKeepsACopy) {
  auto file = BundleFile::read(bytes.data(), bytes.size());
  ASSERT_TRUE(file.ok());
  bytes.assign(bytes.size(), 0);
  EXPECT_EQ((*file)->contents().hostCode, "code");
  EXPECT_FALSE(BundleFile::read(nullptr, 0).ok());
}

TEST_F(BundleFileTest, WritesAndOpens) {
  TestFolder folder;
  std::string path = folder.path("a.moira");
  EXPECT_OK(writeBundle(path, {"m", "code", "p"}));
  auto file = BundleFile::open(path);
  ASSERT_TRUE(file.ok()) << file.status().message;
  EXPECT_EQ((*file)->contents().manifest, "m");
  EXPECT_EQ((*file)->contents().packedParameters, "p");
  // Written again while open: the reader keeps what it has checked.
  EXPECT_OK(writeBundle(path, {"m", "other", ""}));
  EXPECT_EQ((*file)->contents().hostCode, "code");
}

TEST_F(BundleFileTest, NothingIsLeftWhereWritingFails) {
  TestFolder folder;
  ASSERT_EQ(mkdir(folder.path("taken").c_str(), 0700), 0);
  EXPECT_FALSE(writeBundle(folder.path("taken"), {"m", "c", ""}).ok());
  std::filesystem::remove(folder.path("taken"));
  EXPECT_TRUE(folder.empty());
  EXPECT_EQ(writeBundle(folder.path("no/where"), {"m", "c", ""}).code,
            MOIRA_NOT_FOUND);
}

TEST_F(BundleFileTest, OpenNamesThePath) {
  TestFolder folder;
  std::string path = folder.path("a.moira");
  EXPECT_ERROR(BundleFile::open(path).status(), MOIRA_NOT_FOUND,
               path + ": expected a readable file, got: No such file or "
                      "directory");
  writeFile(path, "short");
  EXPECT_ERROR(BundleFile::open(path).status(), MOIRA_DATA_LOSS,
               path + ": expected a bundle of at least 64 bytes, got 5");
  writeFile(path, std::string(100, 'x'));
  EXPECT_ERROR(BundleFile::open(path).status(), MOIRA_DATA_LOSS,
               path + ": expected a moira bundle, got a file of another kind");
  EXPECT_ERROR(BundleFile::open(folder.path("")).status(),
               MOIRA_INVALID_ARGUMENT,
               folder.path("") + ": expected a regular file, got another kind");
  ASSERT_EQ(mkfifo(folder.path("pipe").c_str(), 0600), 0);
  EXPECT_EQ(BundleFile::open(folder.path("pipe")).status().code,
            MOIRA_INVALID_ARGUMENT);
}

TEST_F(BundleFileTest, APipeStaysOne) {
  TestFolder folder;
  std::string path = folder.path("pipe");
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  int reader = open(path.c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  EXPECT_OK(writeBundle(path, {"m", "code", "p"}));
  std::vector<unsigned char> wanted = encodeBundle({"m", "code", "p"});
  std::vector<unsigned char> got(wanted.size() + 1);
  EXPECT_EQ(read(reader, got.data(), got.size()), ssize_t(wanted.size()));
  got.resize(wanted.size());
  EXPECT_EQ(got, wanted);
  close(reader);
  struct stat status;
  ASSERT_EQ(lstat(path.c_str(), &status), 0);
  EXPECT_TRUE(S_ISFIFO(status.st_mode));
}
