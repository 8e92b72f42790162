// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How well the accesses of a warp fit the memory: passes through the banks of
// shared memory, sectors of global memory.

#ifndef MOIRA_RUNTIME_EMULATOR_ACCESSCOUNTER_H
#define MOIRA_RUNTIME_EMULATOR_ACCESSCOUNTER_H

#include "emulator/Report.h"

#include <array>
#include <deque>
#include <unordered_map>

namespace moira::emulator {

/// Passes that the `count` accesses of up to 32 lanes need, each of `bytes`
/// bytes at the given offsets; `needed` is what a perfect layout takes.
int bankPasses(const int64_t *offsets, int count, int bytes, int &needed);

/// Puts the accesses that the lanes of a warp make one after the other back
/// together: the i-th of each lane at a site are one access of the warp.
class AccessCounter {
public:
  explicit AccessCounter(Counters &counters) : counters(counters) {}

  void add(int warp, int lane, int32_t site, bool isShared, int64_t address,
           int bytes);
  /// Counts what not all lanes took part in. Called at the end of a block.
  void finish();

private:
  struct Group {
    int count = 0;
    int bytes = 0;
    std::array<int64_t, 32> addresses;
  };
  struct Place {
    bool isShared = false;
    std::array<uint32_t, 32> times{};
    uint32_t first = 0; ///< number of the group at the front
    std::deque<Group> groups;
  };
  void count(const Group &group, bool isShared);

  Counters &counters;
  std::unordered_map<uint64_t, Place> places;
};

} // namespace moira::emulator

#endif // MOIRA_RUNTIME_EMULATOR_ACCESSCOUNTER_H
