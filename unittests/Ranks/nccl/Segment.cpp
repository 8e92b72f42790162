// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Segment.h"

#include <algorithm>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

using namespace standin;

std::unique_ptr<Segment> Segment::attach(const std::string &name, int ranks) {
  std::unique_ptr<Segment> segment(new Segment(name, ranks));
  constexpr size_t headBytes = 4096;
  static_assert(sizeof(SegmentHead) <= headBytes);
  segment->bytes =
      headBytes + sizeof(Channel) * static_cast<size_t>(ranks) * ranks;
  int file = shm_open(name.c_str(), O_CREAT | O_RDWR, 0600);
  if (file < 0)
    return nullptr;
  // All ranks ask for the same size, and new memory is zero.
  void *memory = MAP_FAILED;
  if (ftruncate(file, static_cast<off_t>(segment->bytes)) == 0)
    memory = mmap(nullptr, segment->bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                  file, 0);
  close(file);
  if (memory == MAP_FAILED)
    return nullptr;
  segment->head = static_cast<SegmentHead *>(memory);
  segment->channels =
      reinterpret_cast<Channel *>(static_cast<char *>(memory) + headBytes);
  int32_t nobody = 0;
  if (!segment->head->ranks.compare_exchange_strong(nobody, ranks) &&
      nobody != ranks)
    return nullptr;
  // The name is needed no longer, and should not outlive a rank that crashes.
  if (segment->head->attached.fetch_add(1) + 1 == ranks)
    shm_unlink(name.c_str());
  return segment;
}

Segment::~Segment() {
  if (!head)
    return;
  if (!allAttached())
    shm_unlink(name.c_str());
  munmap(head, bytes);
}

void Segment::fail(const std::string &reason) {
  int32_t none = 0;
  if (!head->failed.compare_exchange_strong(none, 1))
    return;
  size_t length = std::min(reason.size(), sizeof(head->reason) - 1);
  std::memcpy(head->reason, reason.data(), length);
  head->failed.store(2);
}

std::string Segment::failure() const {
  return head->failed.load() == 2 ? head->reason : "";
}
