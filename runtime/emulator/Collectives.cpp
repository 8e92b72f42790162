// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "emulator/Table.h"

using namespace moira;
using namespace moira::emulator;

// Kinds of collectives; the low bits of a tag tell their forms apart.
static constexpr uint64_t syncTag = 1 << 8, shuffleTag = 2 << 8,
                          voteTag = 3 << 8, electTag = 4 << 8;

Gathering &Machine::gatheringOf(std::deque<Gathering> &list, uint32_t mask,
                                int lanes) {
  for (Gathering &gathering : list)
    if (gathering.mask == mask)
      return gathering;
  // One that nobody waits in can serve another mask.
  for (Gathering &gathering : list)
    if (!gathering.arrived) {
      gathering.mask = mask;
      return gathering;
    }
  Gathering &added = list.emplace_back();
  added.mask = mask;
  added.members.assign(lanes, -1);
  added.arguments.assign(lanes, nullptr);
  return added;
}

/// Comes to a gathering of `needed` members as `member`.
static void join(Machine &machine, Gathering &gathering, int member, int needed,
                 uint64_t tag, int32_t site, void *argument, const char *wait,
                 Action<Gathering &> action) {
  if (gathering.arrived && gathering.tag != tag)
    machine.fail(site,
                 "expected all threads of a collective in one op, "
                 "got others at ",
                 machine.siteText(gathering.site));
  gathering.tag = tag;
  gathering.site = site;
  gathering.members[member] = machine.self();
  gathering.arguments[member] = argument;
  ++machine.counters.warpOps;
  if (++gathering.arrived < needed)
    return machine.block(wait, site);
  action(gathering);
  gathering.arrived = 0;
  for (int &other : gathering.members) {
    if (other >= 0 && other != machine.self())
      machine.wake(other);
    other = -1;
  }
  machine.yield();
}

void Machine::collect(uint32_t mask, uint64_t tag, int32_t site, void *argument,
                      Action<Gathering &> action) {
  if (!(mask >> lane() & 1))
    fail(site, "expected a mask with this thread's lane ", lane(), ", got ",
         mask);
  Gathering &gathering = gatheringOf(warps[self() / 32], mask, 32);
  join(*this, gathering, lane(), __builtin_popcount(mask), tag, site, argument,
       "a collective of its warp", action);
}

void Machine::collectGroup(uint64_t tag, int32_t site, void *argument,
                           Action<Gathering &> action) {
  int group = self() / 128;
  if ((group + 1) * 128 > threadCount)
    fail(site, "expected a warpgroup of 128 threads, got ",
         threadCount - group * 128);
  join(*this, gatheringOf(groupGatherings[group], ~0u, 128), self() % 128, 128,
       tag, site, argument, "a collective of its warpgroup", action);
}

//===----------------------------------------------------------------------===//
// Warp operations
//===----------------------------------------------------------------------===//

void moira::emulator::sync_warp(int32_t mask, int32_t site) {
  Machine &machine = Machine::current();
  machine.collect(mask, syncTag, site, nullptr, [&](Gathering &gathering) {
    if (!machine.races())
      return;
    Knowledge all;
    for (int member : gathering.members)
      if (member >= 0)
        all.join(machine.threads[member].known);
    for (int member : gathering.members)
      if (member >= 0) {
        Knowledge &known = machine.threads[member].known;
        known.join(all);
        ++known.seen[member];
      }
  });
}

namespace {
struct Shuffle {
  int32_t value, offset, clamp;
  int64_t result;
};
} // namespace

/// The lane that `lane` reads, or -1 where there is none.
static int sourceLane(int32_t kind, int lane, const Shuffle &own) {
  int clamp = own.clamp & 31, segment = own.clamp >> 8 & 31;
  int last = (lane & segment) | (clamp & ~segment);
  int offset = own.offset & 31;
  switch (kind) {
  case MOIRA_EMU_SHUFFLE_UP: {
    int source = lane - offset;
    return source >= last ? source : -1;
  }
  case MOIRA_EMU_SHUFFLE_DOWN: {
    int source = lane + offset;
    return source <= last ? source : -1;
  }
  case MOIRA_EMU_SHUFFLE_BFLY: {
    int source = lane ^ offset;
    return source <= last ? source : -1;
  }
  default: {
    int source = (lane & segment) | (offset & ~segment);
    return source <= last ? source : -1;
  }
  }
}

int64_t moira::emulator::shuffle(int32_t kind, int32_t mask, int32_t value,
                                 int32_t offset, int32_t clamp, int32_t site) {
  Machine &machine = Machine::current();
  Shuffle own{value, offset, clamp, 0};
  machine.collect(
      mask, shuffleTag + kind, site, &own, [&](Gathering &gathering) {
        for (int lane = 0; lane < 32; ++lane) {
          if (gathering.members[lane] < 0)
            continue;
          Shuffle &one = *static_cast<Shuffle *>(gathering.arguments[lane]);
          int source = sourceLane(kind, lane, one);
          if (source >= 0 && gathering.members[source] < 0)
            machine.fail(site, "expected a source lane within mask ", mask,
                         ", got lane ", source, " for lane ", lane);
          const Shuffle &from =
              source < 0 ? one
                         : *static_cast<Shuffle *>(gathering.arguments[source]);
          one.result = int64_t(uint32_t(from.value)) | int64_t(source >= 0)
                                                           << 32;
        }
      });
  return own.result;
}

int32_t moira::emulator::vote(int32_t kind, int32_t mask, int32_t value,
                              int32_t site) {
  struct Vote {
    int32_t value, result;
  } own{value, 0};
  Machine::current().collect(
      mask, voteTag + kind, site, &own, [&](Gathering &gathering) {
        uint32_t ballot = 0, voters = 0;
        for (int lane = 0; lane < 32; ++lane)
          if (gathering.members[lane] >= 0) {
            voters |= 1u << lane;
            if (static_cast<Vote *>(gathering.arguments[lane])->value)
              ballot |= 1u << lane;
          }
        int32_t result = 0;
        switch (kind) {
        case MOIRA_EMU_VOTE_ANY:
          result = ballot != 0;
          break;
        case MOIRA_EMU_VOTE_ALL:
          result = ballot == voters;
          break;
        case MOIRA_EMU_VOTE_BALLOT:
          result = int32_t(ballot);
          break;
        default:
          result = ballot == 0 || ballot == voters;
        }
        for (int lane = 0; lane < 32; ++lane)
          if (gathering.members[lane] >= 0)
            static_cast<Vote *>(gathering.arguments[lane])->result = result;
      });
  return own.result;
}

int32_t moira::emulator::elect(int32_t mask, int32_t site) {
  int32_t own = 0;
  Machine::current().collect(
      mask, electTag, site, &own, [&](Gathering &gathering) {
        for (int lane = 0; lane < 32; ++lane)
          if (gathering.members[lane] >= 0) {
            *static_cast<int32_t *>(gathering.arguments[lane]) = 1;
            return;
          }
      });
  return own;
}
