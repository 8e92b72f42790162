// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Any bytes are a header or an error of one line; all tensors of a header lie
// in the file and do not overlap.

#include "io/Safetensors.h"

#include <cstdlib>

using namespace moira;

static void checkMessage(const Status &status) {
  if (status.message.empty() || status.message.find('\n') != std::string::npos)
    std::abort();
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  auto index = io::parseSafetensorsIndex(
      {reinterpret_cast<const char *>(data), size}, "input");
  if (!index.ok())
    checkMessage(index.status());

  auto header =
      io::parseSafetensorsHeader(data, static_cast<int64_t>(size), "input");
  if (!header.ok()) {
    checkMessage(header.status());
    return 0;
  }
  int64_t total = 0;
  for (const io::SafetensorsEntry &entry : header->entries) {
    if (entry.begin < 0 || entry.begin > entry.end ||
        header->dataOffset + entry.end > static_cast<int64_t>(size))
      std::abort();
    total += entry.end - entry.begin;
    if (entry.dtype && runtime::compactBytes(*entry.dtype, entry.shape) !=
                           entry.end - entry.begin)
      std::abort();
    if (header->find(entry.name) != &entry)
      std::abort();
  }
  if (header->dataOffset + total != static_cast<int64_t>(size))
    std::abort();
  return 0;
}
