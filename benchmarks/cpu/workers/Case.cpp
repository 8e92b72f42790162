// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Case.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <fcntl.h>
#include <numeric>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace moira::bench;

int64_t Case::rows() const {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t(0));
}

int64_t Case::resultRows() const {
  return part == "dw" ? experts() * width : rows();
}

double Case::flops() const {
  double matrix = 2.0 * static_cast<double>(rows()) * hidden * width;
  return part == "forward" ? matrix * (gated ? 3 : 2) : matrix;
}

double Case::bytes() const {
  double matrix = static_cast<double>(hidden) * width;
  if (part == "dw") // the gradient is of f32 whatever the rows are
    return matrix * experts() * 4 +
           static_cast<double>(rows()) * (hidden + width) * elementBytes();
  auto active = std::count_if(sizes.begin(), sizes.end(),
                              [](int32_t size) { return size > 0; });
  double matrices = part == "forward" ? (gated ? 3 : 2) : 1;
  return matrix * matrices * active * elementBytes();
}

std::vector<Group> Case::groups() const {
  std::vector<Group> all;
  int64_t begin = 0;
  for (int64_t e = 0; e < experts(); begin += sizes[e++])
    if (sizes[e] > 0)
      all.push_back({e, begin, sizes[e]});
  std::sort(all.begin(), all.end(), [](const Group &a, const Group &b) {
    return a.rows != b.rows ? a.rows > b.rows : a.expert < b.expert;
  });
  return all;
}

std::string DataFile::open(const std::string &path) {
  close();
  int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0)
    return path + ": " + std::strerror(errno);
  struct stat info;
  fstat(file, &info);
  size = info.st_size;
  void *found = mmap(nullptr, size, PROT_READ, MAP_SHARED, file, 0);
  ::close(file);
  if (found == MAP_FAILED)
    return path + ": " + std::strerror(errno);
  base = found;
  uint64_t length;
  std::memcpy(&length, base, 8);
  const char *text = static_cast<const char *>(base) + 8;
  auto header = nlohmann::json::parse(text, text + length);
  for (auto &[name, entry] : header.items())
    if (entry.contains("data_offsets"))
      offsets[name] = 8 + length + entry["data_offsets"][0].get<size_t>();
  return "";
}

void DataFile::close() {
  if (base)
    munmap(base, size);
  base = nullptr;
  offsets.clear();
}

const void *DataFile::find(const std::string &name) const {
  auto found = offsets.find(name);
  return found == offsets.end() ? nullptr
                                : static_cast<char *>(base) + found->second;
}

static constexpr size_t hugePage = size_t(2) << 20;

Buffer::Buffer(size_t bytes) : size(bytes) {
  mapped = (bytes + hugePage - 1) / hugePage * hugePage + hugePage;
  base = mmap(nullptr, mapped, PROT_READ | PROT_WRITE,
              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) {
    perror("mmap");
    _exit(1);
  }
  auto address = reinterpret_cast<uintptr_t>(base);
  address = (address + hugePage - 1) / hugePage * hugePage;
  data = reinterpret_cast<void *>(address);
  madvise(data, mapped - hugePage, MADV_HUGEPAGE);
  std::memset(data, 0, size);
}

Buffer::~Buffer() {
  if (base)
    munmap(base, mapped);
}

Buffer &Buffer::operator=(Buffer &&other) noexcept {
  std::swap(data, other.data);
  std::swap(base, other.base);
  std::swap(size, other.size);
  std::swap(mapped, other.mapped);
  return *this;
}
