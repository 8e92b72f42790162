// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef MOIRA_RUNTIME_IO_ATOMICFILE_H
#define MOIRA_RUNTIME_IO_ATOMICFILE_H

#include "io/Tensor.h"

#include <cstdint>
#include <string>

namespace moira::io {

/// Writes a temporary file beside `path` and renames it into place on
/// commit(). Without a commit nothing is left behind.
class AtomicFile {
public:
  static Result<AtomicFile> create(const std::string &path);

  AtomicFile(AtomicFile &&other) noexcept;
  AtomicFile &operator=(AtomicFile &&other) noexcept;
  ~AtomicFile();

  Status write(const void *data, int64_t bytes);
  Status commit();
  /// The same, after all bytes are on disk; returns when the name is, too.
  Status commitDurably();

  const std::string &path() const { return target; }

private:
  AtomicFile(std::string target, std::string temporary, int fd)
      : target(std::move(target)), temporary(std::move(temporary)), fd(fd) {}
  void discard();

  std::string target;
  std::string temporary;
  int fd;
};

/// Writes `bytes` of `data` to `path` in one go.
Status writeFile(const std::string &path, const void *data, int64_t bytes);

} // namespace moira::io

#endif // MOIRA_RUNTIME_IO_ATOMICFILE_H
