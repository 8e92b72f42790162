// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "emulator/Table.h"

#include <cstring>

using namespace moira;
using namespace moira::emulator;

//===----------------------------------------------------------------------===//
// Named barriers
//===----------------------------------------------------------------------===//

void Machine::barrier(int32_t id, int32_t count, bool waits, int32_t site) {
  if (id < 0 || id >= namedBarriers)
    fail(site, "expected a barrier of 0 to ", namedBarriers - 1, ", got ", id);
  if (count % 32 || count < 0 || count > (threadCount + 31) / 32 * 32)
    fail(site, "expected a multiple of 32 of at most ", threadCount,
         " threads, got ", count);
  NamedBarrier &barrier = barriers[id];
  if (barrier.arrived && barrier.expected != count)
    fail(site, "expected ", barrier.expected, " threads at barrier ", id,
         " as at ", siteText(barrier.site), ", got ", count);
  barrier.expected = count;
  barrier.site = site;
  ++counters.barriers;
  if (races()) {
    barrier.gathered.join(thread().known);
    ++thread().known.seen[self()];
  }
  ++barrier.arrived;
  int needed = count ? count : live;
  if (barrier.arrived < needed) {
    if (!waits)
      return;
    barrier.waiting.push_back(self());
    block("a barrier", site);
    return;
  }
  if (races() && waits)
    thread().known.join(barrier.gathered);
  openBarrier(barrier);
  if (waits)
    yield();
}

void Machine::openBarrier(NamedBarrier &barrier) {
  NamedBarrier open = std::move(barrier);
  barrier = NamedBarrier();
  for (int other : open.waiting) {
    if (races())
      threads[other].known.join(open.gathered);
    wake(other);
  }
}

void moira::emulator::barrier(int32_t id, int32_t threads, int32_t site) {
  Machine::current().barrier(id, threads, /*waits=*/true, site);
}

void moira::emulator::barrier_arrive(int32_t id, int32_t threads,
                                     int32_t site) {
  Machine::current().barrier(id, threads, /*waits=*/false, site);
}

//===----------------------------------------------------------------------===//
// mbarriers
//===----------------------------------------------------------------------===//

MBarrier &Machine::mbarrier(void *at, int32_t site) {
  checkAlignment(at, 8, site);
  int64_t offset = sharedOffset(at);
  if (!inShared(at))
    fail(site, "expected an mbarrier in shared memory, got one elsewhere");
  auto found = mbarriers.find(offset);
  if (found == mbarriers.end())
    fail(site, "expected an initialised mbarrier at shared+", offset,
         ", got none");
  uint64_t mark = 0;
  memcpy(&mark, at, sizeof(mark));
  if (mark != mbarrierMark)
    fail(site, "expected the mbarrier at shared+", offset,
         " as it was initialised, got other data");
  if (races())
    accessShared(offset, 8, makeAccess(AccessKind::Atomic, site));
  return found->second;
}

void Machine::release(MBarrier &barrier) {
  if (!races())
    return;
  barrier.gathered.join(thread().known);
  ++thread().known.seen[self()];
}

void Machine::completePhase(MBarrier &barrier) {
  if (barrier.pending || barrier.bytes)
    return;
  ++barrier.phase;
  barrier.pending = barrier.expected;
  if (races())
    barrier.completed = barrier.gathered;
  for (int waiting : barrier.waiting)
    wake(waiting);
  barrier.waiting.clear();
}

int64_t Machine::arrive(void *at, int64_t count, int64_t bytes, int32_t site) {
  MBarrier &barrier = mbarrier(at, site);
  int64_t phase = barrier.phase;
  release(barrier);
  if (barrier.pending < count)
    fail(site, "expected at most ", barrier.pending,
         " arrivals in this phase of the mbarrier, got ", count);
  barrier.bytes += bytes;
  barrier.pending -= count;
  completePhase(barrier);
  return phase;
}

void moira::emulator::mbarrier_init(void *at, int32_t count, int32_t site) {
  Machine &machine = Machine::current();
  machine.checkAlignment(at, 8, site);
  int64_t offset = machine.sharedOffset(at);
  machine.checkShared(offset, 8, site, "initialises");
  if (count < 1 || count >= 1 << 20)
    machine.fail(site, "expected 1 to 1048575 arrivals, got ", count);
  if (machine.mbarriers.count(offset) && machine.checks().sync)
    machine.fail(site, "expected no mbarrier at shared+", offset,
                 ", got one that is in use");
  machine.accessShared(offset, 8, machine.makeAccess(AccessKind::Write, site));
  memcpy(at, &mbarrierMark, sizeof(mbarrierMark));
  MBarrier barrier;
  barrier.expected = barrier.pending = count;
  barrier.initThread = machine.self();
  machine.mbarriers[offset] = std::move(barrier);
}

void moira::emulator::mbarrier_inval(void *at, int32_t site) {
  Machine &machine = Machine::current();
  if (!machine.mbarrier(at, site).waiting.empty())
    machine.fail(site, "expected an mbarrier that nobody waits for, got one "
                       "with waiting threads");
  machine.accessShared(machine.sharedOffset(at), 8,
                       machine.makeAccess(AccessKind::Write, site));
  machine.mbarriers.erase(machine.sharedOffset(at));
  memset(at, poisonByte, 8);
}

void moira::emulator::mbarrier_expect(void *at, int32_t bytes, int32_t site) {
  Machine &machine = Machine::current();
  machine.mbarrier(at, site).bytes += bytes;
}

int64_t moira::emulator::mbarrier_arrive(void *at, int32_t count,
                                         int32_t site) {
  Machine &machine = Machine::current();
  int64_t phase = machine.arrive(at, count, 0, site);
  machine.yield();
  return phase;
}

int64_t moira::emulator::mbarrier_arrive_expect(void *at, int32_t bytes,
                                                int32_t site) {
  return Machine::current().arrive(at, 1, bytes, site);
}

/// What a thread knows after it has seen a phase end.
static void acquire(Machine &machine, MBarrier &barrier) {
  if (machine.races())
    machine.thread().known.join(barrier.completed);
}

void moira::emulator::mbarrier_wait(void *at, int32_t parity, int32_t site) {
  Machine &machine = Machine::current();
  MBarrier &barrier = machine.mbarrier(at, site);
  while ((barrier.phase & 1) == uint32_t(parity & 1)) {
    barrier.waiting.push_back(machine.self());
    machine.block("a wait for an mbarrier", site);
  }
  acquire(machine, barrier);
  machine.yield();
}

int32_t moira::emulator::mbarrier_test(void *at, int64_t token, int32_t site) {
  Machine &machine = Machine::current();
  MBarrier &barrier = machine.mbarrier(at, site);
  if (int64_t(barrier.phase) > token) {
    acquire(machine, barrier);
    return 1;
  }
  // Loops that ask again and again must let others run.
  machine.wake(machine.self());
  machine.block(nullptr, site);
  return 0;
}

//===----------------------------------------------------------------------===//
// Fences
//===----------------------------------------------------------------------===//

void moira::emulator::fence_mbarrier_init(int32_t) {
  Machine &machine = Machine::current();
  for (auto &entry : machine.mbarriers)
    if (entry.second.initThread == machine.self())
      entry.second.fenced = true;
}

void moira::emulator::fence_proxy(int32_t site) {
  Machine &machine = Machine::current();
  fence_mbarrier_init(site);
  if (!machine.races())
    return;
  Knowledge &known = machine.thread().known;
  known.fenced = known.seen;
  // What this thread writes from now on is not covered.
  ++known.seen[machine.self()];
}
