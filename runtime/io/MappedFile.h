// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef MOIRA_RUNTIME_IO_MAPPEDFILE_H
#define MOIRA_RUNTIME_IO_MAPPEDFILE_H

#include "io/Tensor.h"

#include <cstdint>
#include <memory>
#include <string>

namespace moira::io {

/// A regular file mapped for reading. Shared by the views into it; safe to use
/// from several threads. The file must not be shortened while it is mapped.
class MappedFile {
public:
  static Result<std::shared_ptr<const MappedFile>>
  open(const std::string &path);

  ~MappedFile();
  MappedFile(const MappedFile &) = delete;
  MappedFile &operator=(const MappedFile &) = delete;

  const uint8_t *data() const { return begin; }
  int64_t size() const { return bytes; }
  const std::string &path() const { return name; }

  /// Drops the whole pages inside [address, address + count), a range of this
  /// mapping, from the process's memory; the next access reads them again.
  void release(const void *address, int64_t count) const;

  /// Asks the system to read a range of this mapping ahead.
  void prefetch(const void *address, int64_t count) const;

private:
  MappedFile(std::string name, const uint8_t *begin, int64_t bytes)
      : name(std::move(name)), begin(begin), bytes(bytes) {}

  std::string name;
  const uint8_t *begin;
  int64_t bytes;
};

} // namespace moira::io

#endif // MOIRA_RUNTIME_IO_MAPPEDFILE_H
