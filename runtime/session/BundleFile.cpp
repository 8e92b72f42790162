// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "session/BundleFile.h"

#include "base/Hash.h"
#include "io/AtomicFile.h"
#include "session/BundleFormat.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <optional>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace moira;
using namespace moira::runtime;

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
              "the format is read in place");

static uint64_t alignUp(uint64_t offset) {
  return (offset + sectionAlignment - 1) & -sectionAlignment;
}

static Status damaged(const std::string &message) {
  return Status(MOIRA_DATA_LOSS, message);
}

//===----------------------------------------------------------------------===//
// Verification
//===----------------------------------------------------------------------===//

namespace {
/// Checks one bundle, in the order in which a check makes the next one safe.
class Verifier {
public:
  Verifier(const void *data, size_t bytes)
      : data(static_cast<const unsigned char *>(data)), bytes(bytes) {}

  Status run(BundleContents &contents) {
    MOIRA_RETURN_IF_ERROR(checkHeader());
    uint64_t end =
        sizeof(BundleHeader) + header.sections * sizeof(BundleSection);
    for (uint32_t i = 0; i < header.sections; ++i) {
      BundleSection section;
      std::memcpy(&section,
                  data + sizeof(BundleHeader) + i * sizeof(BundleSection),
                  sizeof(section));
      MOIRA_RETURN_IF_ERROR(
          checkSection(section, end, contents).within(concat("section ", i)));
      end = section.offset + section.bytes;
    }
    if (end != bytes)
      return damaged(concat("expected the file to end at byte ", end, ", got ",
                            bytes, " bytes"));
    for (uint32_t kind : {1, 2})
      if (!seen[kind])
        return damaged(
            concat("expected a section of kind ", kind, ", got none"));
    return Status();
  }

private:
  Status checkHeader() {
    if (bytes < sizeof(header))
      return damaged(concat("expected a bundle of at least ", sizeof(header),
                            " bytes, got ", bytes));
    std::memcpy(&header, data, sizeof(header));
    if (std::memcmp(header.magic, bundleMagic, sizeof(bundleMagic)) != 0)
      return damaged("expected a moira bundle, got a file of another kind");
    // Before the checksum: another version may have it elsewhere.
    if (header.version != bundleFormatVersion)
      return Status(MOIRA_VERSION,
                    concat("bundle format: expected version ",
                           bundleFormatVersion, ", got ", header.version));
    if (header.fileBytes != bytes)
      return damaged(
          concat("expected ", header.fileBytes, " bytes, got ", bytes));
    uint64_t table = uint64_t(header.sections) * sizeof(BundleSection);
    if (header.sections > maxSections ||
        header.headerBytes != sizeof(header) + table ||
        header.headerBytes > bytes)
      return damaged(concat("expected a header of ", sizeof(header) + table,
                            " bytes for ", header.sections, " sections, got ",
                            header.headerBytes));
    std::vector<unsigned char> copy(data, data + header.headerBytes);
    std::memset(copy.data() + offsetof(BundleHeader, checksum), 0,
                sizeof(header.checksum));
    if (hashBytes(copy.data(), copy.size()) != header.checksum)
      return damaged("expected the header's checksum to match, got another");
    if (std::any_of(std::begin(header.reserved), std::end(header.reserved),
                    [](uint8_t byte) { return byte != 0; }))
      return damaged("expected zeros in the header's reserved bytes");
    return Status();
  }

  /// `end` is where the bytes before the section end.
  Status checkSection(const BundleSection &section, uint64_t end,
                      BundleContents &contents) {
    if (section.reserved)
      return damaged("expected zero in the reserved field");
    if (section.kind < 1 || section.kind > maxSections)
      return damaged(concat("expected a kind of 1 to ", maxSections, ", got ",
                            section.kind));
    if (seen[section.kind])
      return damaged(
          concat("expected kind ", section.kind, " once, got it again"));
    seen[section.kind] = true;
    // No sum of the two is formed before both are known to be small.
    if (section.offset != alignUp(end) || section.offset > bytes ||
        section.bytes > bytes - section.offset)
      return damaged(concat("expected a place at byte ", alignUp(end),
                            " within ", bytes, " bytes, got ", section.bytes,
                            " bytes at ", section.offset));
    if (std::any_of(data + end, data + section.offset,
                    [](unsigned char byte) { return byte != 0; }))
      return damaged("expected zeros before it, got other bytes");
    if (hashBytes(data + section.offset, section.bytes) != section.checksum)
      return damaged("expected its checksum to match, got another");
    std::string_view view(reinterpret_cast<const char *>(data + section.offset),
                          section.bytes);
    switch (static_cast<SectionKind>(section.kind)) {
    case SectionKind::Manifest:
      contents.manifest = view;
      break;
    case SectionKind::HostCode:
      contents.hostCode = view;
      break;
    case SectionKind::PackedParameters:
      contents.packedParameters = view;
      break;
    case SectionKind::GpuCode:
      contents.gpuCode = view;
      break;
    }
    return Status();
  }

  const unsigned char *data;
  size_t bytes;
  BundleHeader header{};
  bool seen[maxSections + 1] = {};
};
} // namespace

Status runtime::verifyBundle(const void *data, size_t bytes,
                             BundleContents &contents) {
  BundleContents found;
  MOIRA_RETURN_IF_ERROR(Verifier(data, bytes).run(found));
  contents = found;
  return Status();
}

//===----------------------------------------------------------------------===//
// Reading
//===----------------------------------------------------------------------===//

/// Private zero pages, or nullptr.
static void *mapPrivate(size_t bytes) {
  void *address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED)
    return nullptr;
  // Advice only: packed parameters are walked in large steps.
  madvise(address, bytes, MADV_HUGEPAGE);
  return address;
}

BundleFile::~BundleFile() {
  if (address)
    munmap(address, bytes);
}

static Status noMemory(size_t bytes) {
  return Status(MOIRA_OUT_OF_MEMORY,
                concat("expected ", bytes,
                       " bytes for the bundle, got no memory from the system"));
}

Result<std::shared_ptr<const BundleFile>> BundleFile::read(const void *data,
                                                           size_t bytes) {
  BundleContents ignored;
  // An empty mapping is an error of its own; the check says it better.
  if (bytes == 0)
    return verifyBundle(data, bytes, ignored);
  std::shared_ptr<BundleFile> file(new BundleFile());
  file->address = mapPrivate(bytes);
  if (!file->address)
    return noMemory(bytes);
  file->bytes = bytes;
  std::memcpy(file->address, data, bytes);
  MOIRA_RETURN_IF_ERROR(verifyBundle(file->address, bytes, file->parts));
  return std::shared_ptr<const BundleFile>(std::move(file));
}

namespace {
/// Closes a descriptor at the end of a scope.
struct Descriptor {
  explicit Descriptor(int number) : number(number) {}
  ~Descriptor() {
    if (number >= 0)
      close(number);
  }
  Descriptor(const Descriptor &) = delete;
  const int number;
};
} // namespace

/// Reads until the buffer is full or the file ends; returns the bytes read, or
/// -1 with errno.
static int64_t readAll(int descriptor, char *buffer, int64_t bytes) {
  int64_t done = 0;
  while (done < bytes) {
    // One call moves at most 2 GiB.
    ssize_t part = ::read(descriptor, buffer + done,
                          std::min<int64_t>(bytes - done, 1 << 30));
    if (part < 0 && errno == EINTR)
      continue;
    if (part < 0)
      return -1;
    if (part == 0)
      break;
    done += part;
  }
  return done;
}

Result<std::shared_ptr<const BundleFile>>
BundleFile::open(const std::string &path) {
  auto unreadable = [&] {
    return Status(errno == ENOENT ? MOIRA_NOT_FOUND : MOIRA_INVALID_ARGUMENT,
                  concat(path, ": expected a readable file, got: ",
                         std::strerror(errno)));
  };
  // O_NONBLOCK: a pipe must not hang the open; it is refused below.
  Descriptor descriptor(
      ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info;
  if (descriptor.number < 0 || fstat(descriptor.number, &info) != 0)
    return unreadable();
  if (!S_ISREG(info.st_mode))
    return Status(MOIRA_INVALID_ARGUMENT,
                  path + ": expected a regular file, got another kind");
  BundleContents ignored;
  if (info.st_size < static_cast<int64_t>(sizeof(BundleHeader)))
    return verifyBundle(nullptr, info.st_size, ignored).within(path);

  std::shared_ptr<BundleFile> file(new BundleFile());
  file->address = mapPrivate(info.st_size);
  if (!file->address)
    return noMemory(info.st_size).within(path);
  file->bytes = info.st_size;
  int64_t done = readAll(descriptor.number, static_cast<char *>(file->address),
                         info.st_size);
  if (done < 0)
    return unreadable();
  MOIRA_RETURN_IF_ERROR(
      verifyBundle(file->address, done, file->parts).within(path));
  return std::shared_ptr<const BundleFile>(std::move(file));
}

//===----------------------------------------------------------------------===//
// Writing
//===----------------------------------------------------------------------===//

namespace {
struct Part {
  SectionKind kind;
  std::string_view bytes;
};
} // namespace

static std::vector<Part> listParts(const BundleContents &contents) {
  std::vector<Part> parts = {{SectionKind::Manifest, contents.manifest},
                             {SectionKind::HostCode, contents.hostCode}};
  if (!contents.packedParameters.empty())
    parts.push_back({SectionKind::PackedParameters, contents.packedParameters});
  if (!contents.gpuCode.empty())
    parts.push_back({SectionKind::GpuCode, contents.gpuCode});
  return parts;
}

/// Header and table; fills in where each part goes.
static std::vector<unsigned char> encodeHeader(const std::vector<Part> &parts,
                                               std::vector<uint64_t> &offsets) {
  BundleHeader header{};
  std::memcpy(header.magic, bundleMagic, sizeof(bundleMagic));
  header.version = bundleFormatVersion;
  header.sections = static_cast<uint32_t>(parts.size());
  header.headerBytes = sizeof(header) + parts.size() * sizeof(BundleSection);

  std::vector<unsigned char> bytes(header.headerBytes);
  uint64_t end = header.headerBytes;
  for (size_t i = 0; i < parts.size(); ++i) {
    BundleSection section{};
    section.kind = static_cast<uint32_t>(parts[i].kind);
    section.offset = alignUp(end);
    section.bytes = parts[i].bytes.size();
    section.checksum = hashBytes(parts[i].bytes.data(), section.bytes);
    std::memcpy(bytes.data() + sizeof(header) + i * sizeof(section), &section,
                sizeof(section));
    offsets.push_back(section.offset);
    end = section.offset + section.bytes;
  }
  header.fileBytes = end;
  std::memcpy(bytes.data(), &header, sizeof(header));
  header.checksum = hashBytes(bytes.data(), bytes.size());
  std::memcpy(bytes.data(), &header, sizeof(header));
  return bytes;
}

/// Hands the bytes of a bundle to `sink`, piece by piece.
template <typename Sink>
static void emitBundle(const BundleContents &contents, const Sink &sink) {
  static constexpr char zeros[sectionAlignment] = {};
  std::vector<Part> parts = listParts(contents);
  std::vector<uint64_t> offsets;
  std::vector<unsigned char> header = encodeHeader(parts, offsets);
  sink(header.data(), header.size());
  uint64_t end = header.size();
  for (size_t i = 0; i < parts.size(); ++i) {
    sink(zeros, offsets[i] - end);
    sink(parts[i].bytes.data(), parts[i].bytes.size());
    end = offsets[i] + parts[i].bytes.size();
  }
}

std::vector<unsigned char>
runtime::encodeBundle(const BundleContents &contents) {
  std::vector<unsigned char> bytes;
  emitBundle(contents, [&](const void *data, size_t size) {
    auto *begin = static_cast<const unsigned char *>(data);
    bytes.insert(bytes.end(), begin, begin + size);
  });
  return bytes;
}

Status runtime::writeBundle(const std::string &path,
                            const BundleContents &contents) {
  Result<io::AtomicFile> file = io::AtomicFile::create(path);
  if (!file.ok())
    return file.status();
  Status status;
  emitBundle(contents, [&](const void *data, size_t size) {
    if (status.ok() && size)
      status = file->write(data, size);
  });
  return status.ok() ? file->commit() : status;
}
