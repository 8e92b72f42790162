// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "emulator/Machine.h"

#include <cstring>

using namespace moira;
using namespace moira::emulator;

/// Wgmma descriptors hold the bits 4 to 17 of an address, and a swizzle takes
/// its pattern from the address: the window begins at a multiple of this.
static constexpr int64_t sharedAlignment = 256 << 10;
/// Blocks that run at the same time keep their own machine.
static thread_local Machine *running = nullptr;

Machine::Machine()
    : matrixScratch(64 * 16 + 256 * 16 + 64 * 256), accesses(counters),
      fibres(std::make_unique<FibreSet>()) {}
Machine::~Machine() = default;

Machine &Machine::current() { return *running; }

uint64_t Machine::random() {
  randomState ^= randomState << 13;
  randomState ^= randomState >> 7;
  randomState ^= randomState << 17;
  return randomState;
}

//===----------------------------------------------------------------------===//
// One block
//===----------------------------------------------------------------------===//

Status Machine::prepare() {
  int warpCount = (threadCount + 31) / 32;
  int groupCount = (threadCount + 127) / 128;
  threads.clear();
  threads.resize(threadCount);
  warps.assign(warpCount, {});
  groupGatherings.assign(groupCount, {});
  groups.assign(groupCount, WarpGroup());
  barriers.assign(namedBarriers, NamedBarrier());
  mbarriers.clear();
  bulk.clear();
  slotClocks.assign(bulkSlots, 0);
  nextSlot = 0;
  counters = Counters();
  lastRegion = {};
  stopped = false;
  live = threadCount;

  if (!sharedStorage) {
    sharedStorage = std::make_unique<char[]>(2 * sharedAlignment);
    uintptr_t start = reinterpret_cast<uintptr_t>(sharedStorage.get());
    uintptr_t aligned =
        (start + sharedAlignment - 1) / sharedAlignment * sharedAlignment;
    shared = sharedStorage.get() + (aligned - start);
  }
  memset(shared, poisonByte, plan->sharedBytes);
  if (races() || checks().uninit)
    shadow.reset(plan->sharedBytes);
  if (races()) {
    int actors = bulkEngine(bulkSlots);
    for (int i = 0; i < threadCount; ++i) {
      threads[i].known.reset(actors);
      threads[i].known.seen[i] = 1;
    }
  }

  size_t ring = 1;
  while (ring < size_t(threadCount) + 1)
    ring *= 2;
  ready.assign(ring, 0);
  readyHead = 0;
  readyCount = 0;
  for (int i = 0; i < threadCount; ++i)
    wake(i);
  return fibres->reset(threadCount, &beginThread, this);
}

Status Machine::run(const LaunchPlan &launch, Extent blockIndex,
                    LaunchReport &report) {
  plan = &launch;
  index = blockIndex;
  blockNumber = index.x + launch.grid.x * (index.y + launch.grid.y * index.z);
  threadCount = int(launch.block.count());
  findings = &report;
  randomState = launch.options.seed * 0x9e3779b97f4a7c15ull +
                uint64_t(blockNumber) * 0xbf58476d1ce4e5b9ull + 1;
  MOIRA_RETURN_IF_ERROR(prepare());
  Machine *before = running;
  running = this;
  leave();
  running = before;
  accesses.finish();
  report.counters.add(counters);
  return Status();
}

void Machine::beginThread(void *machine) {
  Machine *self = static_cast<Machine *>(machine);
  self->plan->kernel->entry(self->plan->arguments);
  GpuThread &thread = self->thread();
  if (!thread.copies.empty()) {
    self->flushCopies(thread, thread.copyGroups + 1);
    if (self->checks().sync && !self->stopped)
      self->report(FaultKind::Sync, -1, -1,
                   concat("thread ", self->self(),
                          " ends with cp.async copies that nobody waited for"));
  }
  thread.done = true;
  --self->live;
  // A barrier of all threads waits for those that are left.
  for (int id = 0; id < namedBarriers; ++id) {
    NamedBarrier &barrier = self->barriers[id];
    if (barrier.arrived && !barrier.expected && barrier.arrived == self->live)
      self->openBarrier(barrier);
  }
  self->leave();
  __builtin_trap(); // nobody wakes a thread that is done
}

//===----------------------------------------------------------------------===//
// Scheduling
//===----------------------------------------------------------------------===//

void Machine::wake(int thread) {
  threads[thread].waitsFor = nullptr;
  ready[(readyHead + readyCount++) & (ready.size() - 1)] = thread;
}

void Machine::leave() {
  bool isRandom = plan->options.seed != 0;
  // Engines take their time: in turn, they work when no thread can.
  if (isRandom && random() % 4 == 0)
    stepEngines();
  while (readyCount == 0)
    if (!stepEngines()) {
      if (live)
        reportDeadlock();
      fibres->switchTo(-1);
      return;
    }
  size_t mask = ready.size() - 1;
  if (isRandom)
    std::swap(ready[readyHead & mask],
              ready[(readyHead + random() % readyCount) & mask]);
  int next = ready[readyHead & mask];
  ++readyHead;
  --readyCount;
  ++counters.switches;
  fibres->switchTo(next);
}

void Machine::block(const char *reason, int32_t site) {
  thread().waitsFor = reason;
  thread().site = site;
  leave();
}

void Machine::yield() {
  if (!plan->options.seed)
    return;
  wake(self());
  leave();
}

void Machine::stop() {
  stopped = true;
  fibres->switchTo(-1);
  __builtin_trap(); // a stopped block is never resumed
}
