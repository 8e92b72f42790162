// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The sends and receives of one group, and how they go through the channels.

#ifndef MOIRA_UNITTESTS_RANKS_NCCL_GROUP_H
#define MOIRA_UNITTESTS_RANKS_NCCL_GROUP_H

#include "Segment.h"

#include <map>
#include <nccl.h>
#include <vector>

namespace standin {

/// Bytes of an element; 0 for a number that is no type.
size_t bytesOf(ncclDataType_t type);
const char *nameOf(ncclDataType_t type);

struct Operation {
  bool isSend = false;
  int peer = 0;
  char *data = nullptr;
  uint64_t count = 0;
  ncclDataType_t type = ncclInt8;

  uint64_t bytes() const { return count * bytesOf(type); }
};

class Group {
public:
  Group(int rank, std::vector<Operation> operations);

  bool isDone() const { return left == 0; }
  /// Moves what can be moved; whether anything was. A sender has ended when its
  /// receiver has read all of it: nobody may count on buffers. What does not
  /// agree is told to all ranks.
  bool move(Segment &segment);

private:
  /// The messages of one pair in one direction, in order.
  struct Flow {
    std::vector<Operation> operations;
    size_t at = 0;
    bool begun = false;  ///< described, or compared
    uint64_t moved = 0;  ///< bytes of the operation at `at`
    uint64_t target = 0; ///< bytes of the channel after it
  };
  bool send(Segment &segment, int peer, Flow &flow);
  bool receive(Segment &segment, int peer, Flow &flow);
  std::string disagreement(const Description &theirs, int peer,
                           const Flow &flow) const;

  const int rank;
  std::map<int, Flow> sends, receives; ///< by peer
  size_t left = 0;
};

} // namespace standin

#endif // MOIRA_UNITTESTS_RANKS_NCCL_GROUP_H
