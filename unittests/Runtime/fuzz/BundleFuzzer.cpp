// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads arbitrary bytes as a bundle and as a manifest. Three ways in, chosen by
// the first byte, so that the checksums do not keep the fuzzer out:
//   0  the bytes as they are
//   1  a bundle whose header checksum is made right
//   2  a manifest
// Whatever passes must come back the same when written again.

#include "base/Hash.h"
#include "session/BundleFile.h"
#include "session/BundleFormat.h"
#include "session/Manifest.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

using namespace moira;
using namespace moira::runtime;

static void require(bool condition) {
  if (!condition)
    std::abort();
}

static void checkManifest(std::string_view text) {
  Result<Manifest> manifest = Manifest::parse(text);
  if (!manifest.ok()) {
    require(!manifest.status().message.empty());
    return;
  }
  std::string json = manifest->serialize();
  Result<Manifest> again = Manifest::parse(json);
  require(again.ok() && again->serialize() == json);
}

static void checkBundle(const std::vector<unsigned char> &bytes) {
  BundleContents contents;
  Status status = verifyBundle(bytes.data(), bytes.size(), contents);
  if (!status.ok()) {
    require(!status.message.empty());
    return;
  }
  checkManifest(contents.manifest);
  // The order of sections is free, so only a rewritten file is unique.
  std::vector<unsigned char> written = encodeBundle(contents);
  BundleContents again;
  require(verifyBundle(written.data(), written.size(), again).ok());
  require(again.manifest == contents.manifest &&
          again.hostCode == contents.hostCode &&
          again.packedParameters == contents.packedParameters);
}

/// Makes the header's checksum and the size of the file right.
static void seal(std::vector<unsigned char> &bytes) {
  BundleHeader header;
  if (bytes.size() < sizeof(header))
    return;
  std::memcpy(&header, bytes.data(), sizeof(header));
  header.fileBytes = bytes.size();
  header.checksum = 0;
  std::memcpy(bytes.data(), &header, sizeof(header));
  if (header.headerBytes > bytes.size())
    return;
  header.checksum = hashBytes(bytes.data(), header.headerBytes);
  std::memcpy(bytes.data(), &header, sizeof(header));
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size == 0)
    return 0;
  // A copy of exactly this size: a read behind it is seen.
  std::vector<unsigned char> bytes(data + 1, data + size);
  switch (data[0]) {
  case 0:
    checkBundle(bytes);
    break;
  case 1:
    seal(bytes);
    checkBundle(bytes);
    break;
  case 2:
    checkManifest({reinterpret_cast<const char *>(bytes.data()), bytes.size()});
    break;
  }
  return 0;
}
