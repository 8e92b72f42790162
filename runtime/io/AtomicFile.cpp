// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "io/AtomicFile.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace moira;
using namespace moira::io;

static Status writeFailure(const std::string &path, int error) {
  return Status(error == ENOENT ? MOIRA_NOT_FOUND : MOIRA_INVALID_ARGUMENT,
                path + ": cannot write: " + std::strerror(error));
}

/// Whether `path` is there and is no file: a device, a pipe. A file renamed to
/// it would take its place, so that it is written to as it is.
static bool isDevice(const std::string &path) {
  struct stat status;
  return stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode) &&
         !S_ISDIR(status.st_mode);
}

Result<AtomicFile> AtomicFile::create(const std::string &path) {
  if (isDevice(path)) {
    int fd = open(path.c_str(), O_WRONLY | O_CLOEXEC);
    return fd >= 0 ? Result<AtomicFile>(AtomicFile(path, "", fd))
                   : writeFailure(path, errno);
  }
  static std::atomic<uint32_t> counter{0};
  // A name left behind by a killed process is passed over.
  for (int attempt = 0;; ++attempt) {
    std::string temporary = path + ".tmp" + std::to_string(getpid()) + "-" +
                            std::to_string(counter.fetch_add(1));
    int fd =
        open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd >= 0)
      return AtomicFile(path, std::move(temporary), fd);
    if (errno != EEXIST || attempt == 100)
      return writeFailure(path, errno);
  }
}

AtomicFile::AtomicFile(AtomicFile &&other) noexcept
    : target(std::move(other.target)), temporary(std::move(other.temporary)),
      fd(std::exchange(other.fd, -1)) {}

AtomicFile &AtomicFile::operator=(AtomicFile &&other) noexcept {
  std::swap(target, other.target);
  std::swap(temporary, other.temporary);
  std::swap(fd, other.fd);
  return *this;
}

AtomicFile::~AtomicFile() { discard(); }

void AtomicFile::discard() {
  if (fd < 0)
    return;
  close(std::exchange(fd, -1));
  if (!temporary.empty())
    unlink(temporary.c_str());
}

Status AtomicFile::write(const void *data, int64_t bytes) {
  const char *next = static_cast<const char *>(data);
  while (bytes != 0) {
    // One call writes at most 2 GiB on Linux.
    ssize_t done = ::write(fd, next, std::min<int64_t>(bytes, 1 << 30));
    if (done < 0) {
      if (errno == EINTR)
        continue;
      int error = errno;
      discard();
      return writeFailure(target, error);
    }
    next += done;
    bytes -= done;
  }
  return Status();
}

Status AtomicFile::commit() {
  int status = close(std::exchange(fd, -1));
  if (temporary.empty())
    return status == 0 ? Status() : writeFailure(target, errno);
  if (status == 0)
    status = std::rename(temporary.c_str(), target.c_str());
  if (status == 0)
    return Status();
  int error = errno;
  unlink(temporary.c_str());
  return writeFailure(target, error);
}

Status AtomicFile::commitDurably() {
  if (!temporary.empty() && fsync(fd) != 0) {
    int error = errno;
    discard();
    return writeFailure(target, error);
  }
  MOIRA_RETURN_IF_ERROR(commit());
  size_t slash = target.rfind('/');
  std::string folder =
      slash == std::string::npos ? "." : target.substr(0, slash + 1);
  int place = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  // Some file systems cannot; the rename has been done all the same.
  if (place >= 0) {
    (void)fsync(place);
    close(place);
  }
  return Status();
}

Status io::writeFile(const std::string &path, const void *data, int64_t bytes) {
  Result<AtomicFile> file = AtomicFile::create(path);
  if (!file.ok())
    return file.status();
  Status status = file->write(data, bytes);
  return status.ok() ? file->commit() : status;
}
