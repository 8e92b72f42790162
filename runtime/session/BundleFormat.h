// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The layout of a bundle's bytes; docs/bundle.md explains it.

#ifndef MOIRA_RUNTIME_SESSION_BUNDLEFORMAT_H
#define MOIRA_RUNTIME_SESSION_BUNDLEFORMAT_H

#include <cstdint>

namespace moira::runtime {

/// All numbers are little-endian.
struct BundleHeader {
  char magic[8];
  uint32_t version;     ///< bundleFormatVersion
  uint32_t sections;    ///< entries in the table that follows
  uint64_t fileBytes;   ///< of the whole file
  uint64_t headerBytes; ///< of header and table
  uint64_t checksum;    ///< XXH64 of header and table, this field as zero
  uint8_t reserved[24]; ///< zero
};
static_assert(sizeof(BundleHeader) == 64, "the header is 64 bytes");

struct BundleSection {
  uint32_t kind;     ///< SectionKind
  uint32_t reserved; ///< zero
  uint64_t offset;   ///< from the start of the file
  uint64_t bytes;
  uint64_t checksum; ///< XXH64 of the section's bytes
};
static_assert(sizeof(BundleSection) == 32, "a table entry is 32 bytes");

enum class SectionKind : uint32_t {
  Manifest = 1,
  HostCode = 2,
  PackedParameters = 3,
  GpuCode = 4 ///< PTX and cubins, where the manifest says
};

inline constexpr char bundleMagic[8] = {'M', 'O', 'I', 'R', 'A', 'B', 'D', 'L'};
/// Sections stand in ascending order, each on the next multiple of this; the
/// bytes between are zero, and the file ends with the last section.
inline constexpr uint64_t sectionAlignment = 64;
inline constexpr uint32_t maxSections = 4;

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_SESSION_BUNDLEFORMAT_H
