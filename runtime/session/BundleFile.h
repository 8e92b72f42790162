// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The bundle as bytes: writing one, and reading one back fully verified.
// docs/bundle.md has the format. No code is loaded here.

#ifndef MOIRA_RUNTIME_SESSION_BUNDLEFILE_H
#define MOIRA_RUNTIME_SESSION_BUNDLEFILE_H

#include "base/Status.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace moira::runtime {

inline constexpr uint32_t bundleFormatVersion = 1;

/// What a bundle holds. Views: the bytes belong to somebody else.
struct BundleContents {
  std::string_view manifest;         ///< JSON
  std::string_view hostCode;         ///< an ELF shared object
  std::string_view packedParameters; ///< empty: none
  std::string_view gpuCode{};        ///< empty: none
};

/// A verified bundle, in memory of its own (so that nobody changes it after
/// the check). Immutable: any thread may read.
class BundleFile {
public:
  /// Reads the whole file. Errors name the path.
  static Result<std::shared_ptr<const BundleFile>>
  open(const std::string &path);
  /// Copies the bytes.
  static Result<std::shared_ptr<const BundleFile>> read(const void *data,
                                                        size_t bytes);
  ~BundleFile();

  const BundleContents &contents() const { return parts; }

  BundleFile(const BundleFile &) = delete;
  BundleFile &operator=(const BundleFile &) = delete;

private:
  BundleFile() = default;

  void *address = nullptr;
  size_t bytes = 0;
  BundleContents parts;
};

/// Checks every byte: magic, version, sizes, order, padding, checksums. On
/// success `contents` points into `data`. MOIRA_DATA_LOSS or MOIRA_VERSION.
Status verifyBundle(const void *data, size_t bytes, BundleContents &contents);

/// The bytes of a bundle.
std::vector<unsigned char> encodeBundle(const BundleContents &contents);

/// Writes a bundle. The file appears whole or not at all: written beside
/// `path` under another name, then renamed.
Status writeBundle(const std::string &path, const BundleContents &contents);

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_SESSION_BUNDLEFILE_H
