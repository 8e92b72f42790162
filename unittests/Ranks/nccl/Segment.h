// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Memory that the ranks of one communicator share: a channel from each to each.
// A channel carries descriptions of messages, and their bytes through a ring;
// one rank writes, one reads.

#ifndef MOIRA_UNITTESTS_RANKS_NCCL_SEGMENT_H
#define MOIRA_UNITTESTS_RANKS_NCCL_SEGMENT_H

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

namespace standin {

/// What a sender says of a message; the receiver compares it with its own call.
struct Description {
  uint64_t count = 0;
  int32_t type = 0;  ///< ncclDataType_t
  int32_t index = 0; ///< of this message among those of the pair and group
  int32_t total = 0; ///< of the pair's messages in the group
};

struct Channel {
  static constexpr uint64_t slots = 16;
  static constexpr uint64_t ringBytes = 32 * 1024;
  std::atomic<uint64_t> described, accepted; ///< messages
  std::atomic<uint64_t> written, read;       ///< bytes, since the beginning
  Description descriptions[slots];
  char ring[ringBytes];
};

/// The first words of the shared memory; zero to begin with.
struct SegmentHead {
  std::atomic<int32_t> ranks; ///< 0: nobody has come yet
  std::atomic<int32_t> attached;
  std::atomic<int32_t> failed; ///< 0, 1: being written, 2: `reason` is there
  char reason[256];
};

class Segment {
public:
  /// Opens (and makes, whoever comes first) the memory of this name. Null where
  /// the system refuses or `ranks` differs from what others said.
  static std::unique_ptr<Segment> attach(const std::string &name, int ranks);
  ~Segment();

  bool allAttached() const { return head->attached.load() >= ranks; }
  Channel &channel(int from, int to) { return channels[from * ranks + to]; }
  /// Tells all ranks what is wrong; the first reason stays.
  void fail(const std::string &reason);
  /// The reason, if there is one.
  std::string failure() const;

private:
  Segment(std::string name, int ranks) : name(std::move(name)), ranks(ranks) {}

  const std::string name;
  const int ranks;
  size_t bytes = 0;
  SegmentHead *head = nullptr;
  Channel *channels = nullptr;
};

} // namespace standin

#endif // MOIRA_UNITTESTS_RANKS_NCCL_SEGMENT_H
