// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "io/MappedFile.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace moira;
using namespace moira::io;

Result<std::shared_ptr<const MappedFile>>
MappedFile::open(const std::string &path) {
  auto failure = [&](int error) {
    return Status(error == ENOENT   ? MOIRA_NOT_FOUND
                  : error == ENOMEM ? MOIRA_OUT_OF_MEMORY
                                    : MOIRA_INVALID_ARGUMENT,
                  path + ": cannot read: " + std::strerror(error));
  };

  // O_NONBLOCK: opening a pipe returns at once and is then refused.
  int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0)
    return failure(errno);
  struct stat info;
  if (fstat(fd, &info) != 0) {
    int error = errno;
    close(fd);
    return failure(error);
  }
  if (!S_ISREG(info.st_mode)) {
    close(fd);
    return Status(MOIRA_INVALID_ARGUMENT, path + ": expected a regular file");
  }

  int64_t bytes = info.st_size;
  void *begin = nullptr;
  if (bytes != 0) {
    begin = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    if (begin == MAP_FAILED) {
      int error = errno;
      close(fd);
      return failure(error);
    }
  }
  close(fd);
  return std::shared_ptr<const MappedFile>(
      new MappedFile(path, static_cast<const uint8_t *>(begin), bytes));
}

MappedFile::~MappedFile() {
  if (bytes != 0)
    munmap(const_cast<uint8_t *>(begin), bytes);
}

void MappedFile::release(const void *address, int64_t count) const {
  int64_t page = sysconf(_SC_PAGESIZE);
  int64_t first = static_cast<const uint8_t *>(address) - begin;
  int64_t last = first + count;
  first = (first + page - 1) / page * page;
  // The rest of the file's last page belongs to nobody else.
  if (last != bytes)
    last = last / page * page;
  if (first < last)
    madvise(const_cast<uint8_t *>(begin) + first, last - first, MADV_DONTNEED);
}

void MappedFile::prefetch(const void *address, int64_t count) const {
  int64_t page = sysconf(_SC_PAGESIZE);
  int64_t first = static_cast<const uint8_t *>(address) - begin;
  int64_t last = first + count;
  first = first / page * page;
  if (first < last)
    madvise(const_cast<uint8_t *>(begin) + first, last - first, MADV_WILLNEED);
}
