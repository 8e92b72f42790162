// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// cp.async, and bulk copies of boxes (TMA).

#include "emulator/Table.h"

#include <cstring>

using namespace moira;
using namespace moira::emulator;

//===----------------------------------------------------------------------===//
// cp.async
//===----------------------------------------------------------------------===//

void Machine::flushCopies(GpuThread &thread, uint32_t before) {
  while (!thread.copies.empty() && thread.copies.front().group < before) {
    const PendingCopy &copy = thread.copies.front();
    memcpy(copy.to, copy.from, copy.bytes);
    memset(copy.to + copy.bytes, 0, copy.size - copy.bytes);
    thread.copies.pop_front();
  }
}

void moira::emulator::cp_async(void *to, void *from, int32_t size,
                               int32_t bytes, int32_t site) {
  Machine &machine = Machine::current();
  if (bytes < 0 || bytes > size)
    machine.fail(site, "expected 0 to ", size, " bytes to copy, got ", bytes);
  machine.checkAlignment(to, size, site);
  int64_t offset = machine.sharedOffset(to);
  if (!machine.inShared(to))
    machine.fail(site, "expected a destination in shared memory, got one "
                       "elsewhere");
  machine.checkShared(offset, size, site, "copies");
  GpuThread &thread = machine.thread();
  if (bytes)
    machine.checkAlignment(from, size, site);
  if (machine.checks().counters && bytes)
    machine.accesses.add(machine.self() / 32, machine.lane(), site, false,
                         reinterpret_cast<int64_t>(from), bytes);
  Access access = machine.makeAccess(AccessKind::Write, site);
  access.actor = machine.copyEngine(machine.self());
  uint32_t *clock = nullptr, before = 0;
  if (machine.races()) {
    // The engine knows what its thread knows, and is at the open group.
    clock = &thread.known.seen[access.actor];
    before = *clock;
    *clock = thread.copyGroups + 1;
  }
  machine.accessShared(offset, size, access);
  if (bytes) {
    access.kind = AccessKind::Read;
    machine.accessGlobal(from, bytes, access);
  }
  if (clock)
    *clock = before;
  // As late as it may be: the destination is nothing until then.
  memset(to, poisonByte, size);
  thread.copies.push_back({static_cast<char *>(to),
                           static_cast<const char *>(from), size, bytes,
                           thread.copyGroups});
}

void moira::emulator::cp_async_commit(int32_t) {
  ++Machine::current().thread().copyGroups;
}

void moira::emulator::cp_async_wait(int32_t left, int32_t) {
  Machine &machine = Machine::current();
  GpuThread &thread = machine.thread();
  uint32_t done =
      thread.copyGroups > uint32_t(left) ? thread.copyGroups - left : 0;
  machine.flushCopies(thread, done);
  if (machine.races()) {
    uint32_t &clock = thread.known.seen[machine.copyEngine(machine.self())];
    clock = std::max(clock, done);
  }
  machine.yield();
}

//===----------------------------------------------------------------------===//
// Bulk copies
//===----------------------------------------------------------------------===//

static int64_t boxBytes(const TensorMap &map) {
  int64_t bytes = map.elementBytes;
  for (uint32_t i = 0; i < map.rank; ++i)
    bytes *= map.box[i];
  return bytes;
}

/// A swizzle of `bytes` exchanges 16-byte pieces within each row of that many
/// bytes, by the row's number within eight (four, two) rows of 128 bytes.
static uint64_t swizzled(uint64_t offset, uint32_t bytes) {
  switch (bytes) {
  case 128:
    return offset ^ (offset >> 7 & 7) << 4;
  case 64:
    return offset ^ (offset >> 7 & 3) << 4;
  case 32:
    return offset ^ (offset >> 7 & 1) << 4;
  default:
    return offset;
  }
}

/// Calls visit(offset in the box, place in global memory or null, bytes) for
/// the pieces of a box; a piece lies in one row and is at most 16 bytes.
template <typename Visit>
static void forEachPiece(const BulkCopy &copy, Visit visit) {
  const TensorMap &map = copy.map;
  int64_t rows = 1;
  for (uint32_t i = 1; i < map.rank; ++i)
    rows *= map.box[i];
  int64_t rowBytes = int64_t(map.box[0]) * map.elementBytes;
  int64_t firstByte = int64_t(copy.coordinates[0]) * map.elementBytes;
  int64_t endByte = int64_t(map.sizes[0]) * map.elementBytes;
  for (int64_t row = 0; row < rows; ++row) {
    bool inside = true;
    uint64_t address = map.base;
    int64_t rest = row;
    for (uint32_t i = 1; i < map.rank; ++i) {
      int64_t at = copy.coordinates[i] + rest % map.box[i];
      rest /= map.box[i];
      inside = inside && at >= 0 && at < int64_t(map.sizes[i]);
      address += uint64_t(at) * map.strides[i - 1];
    }
    for (int64_t byte = 0, step = 0; byte < rowBytes; byte += step) {
      int64_t at = firstByte + byte;
      auto within = [&] { return at >= 0 && at + step <= endByte; };
      step = std::min<int64_t>(16 - byte % 16, rowBytes - byte);
      // At the edges element by element.
      if (!within())
        step = map.elementBytes;
      visit(row * rowBytes + byte,
            inside && within() ? reinterpret_cast<char *>(address + at)
                               : nullptr,
            step);
    }
  }
}

static void checkMap(Machine &machine, const TensorMap &map, int32_t rank,
                     int32_t site) {
  if (map.magic != TensorMap::magicNumber)
    machine.fail(site, "expected a tensor map, got other data");
  if (int32_t(map.rank) != rank)
    machine.fail(site, "expected ", map.rank, " coordinates, got ", rank);
}

void Machine::startBulk(const BulkCopy &start) {
  // In its place first: what a fault leaves behind on this stack is lost.
  bulk.push_back(start);
  BulkCopy &copy = bulk.back();
  copy.slot = nextSlot++ % bulkSlots;
  copy.thread = self();
  int32_t actor = bulkEngine(copy.slot);
  int64_t offset = sharedOffset(copy.shared), bytes = boxBytes(copy.map);
  Access access = makeAccess(
      copy.isStore ? AccessKind::Read : AccessKind::Write, copy.site);
  access.actor = actor;
  access.engine = true;
  if (races()) {
    copy.known = thread().known;
    copy.known.seen[actor] = ++slotClocks[copy.slot];
    access.knowledge = &copy.known;
  }
  if (copy.isStore)
    thread().stores.push_back(
        {copy.slot, slotClocks[copy.slot], thread().bulkGroups});
  accessShared(offset, bytes, access);
  access.kind = copy.isStore ? AccessKind::Write : AccessKind::Read;
  if (checks().bounds || races())
    forEachPiece(copy, [&](int64_t, char *global, int64_t size) {
      if (global)
        accessGlobal(global, size, access);
    });
  if (!copy.isStore)
    memset(copy.shared, poisonByte, bytes);
}

bool Machine::finishBulk(size_t number) {
  BulkCopy copy = std::move(bulk[number]);
  bulk.erase(bulk.begin() + number);
  uint32_t swizzle = copy.map.swizzleBytes;
  uint64_t base = sharedOffset(copy.shared);
  forEachPiece(copy, [&](int64_t offset, char *global, int64_t size) {
    char *place = shared + swizzled(base + offset, swizzle);
    if (copy.isStore) {
      if (global)
        memcpy(global, place, size);
    } else if (global) {
      memcpy(place, global, size);
    } else {
      memset(place, 0, size);
    }
  });
  if (copy.isStore)
    return true;
  MBarrier &barrier = mbarriers[copy.mbarrier];
  barrier.bytes -= boxBytes(copy.map);
  if (races())
    barrier.gathered.join(copy.known);
  completePhase(barrier);
  return true;
}

bool Machine::stepEngines() {
  if (bulk.empty())
    return false;
  return finishBulk(plan->options.seed ? random() % bulk.size() : 0);
}

void moira::emulator::tensor_load(void *to, void *map, void *mbarrier,
                                  int32_t rank, int32_t *coordinates,
                                  int32_t site) {
  Machine &machine = Machine::current();
  const TensorMap &view = *static_cast<const TensorMap *>(map);
  checkMap(machine, view, rank, site);
  MBarrier &barrier = machine.mbarrier(mbarrier, site);
  if (machine.checks().sync && !barrier.fenced)
    machine.fail(site, "expected fence.mbarrier.init between the mbarrier's "
                       "initialisation and its use by a copy, got none");
  machine.checkAlignment(to, view.swizzleBytes == 128 ? 1024 : 128, site);
  if (!machine.inShared(to))
    machine.fail(site, "expected a destination in shared memory, got one "
                       "elsewhere");
  machine.checkShared(machine.sharedOffset(to), boxBytes(view), site, "copies");
  BulkCopy copy;
  copy.map = view;
  copy.shared = static_cast<char *>(to);
  copy.mbarrier = machine.sharedOffset(mbarrier);
  std::copy_n(coordinates, rank, copy.coordinates);
  copy.site = site;
  machine.startBulk(copy);
}

void moira::emulator::tensor_store(void *map, void *from, int32_t rank,
                                   int32_t *coordinates, int32_t site) {
  Machine &machine = Machine::current();
  const TensorMap &view = *static_cast<const TensorMap *>(map);
  checkMap(machine, view, rank, site);
  machine.checkAlignment(from, view.swizzleBytes == 128 ? 1024 : 128, site);
  if (!machine.inShared(from))
    machine.fail(site, "expected a source in shared memory, got one elsewhere");
  machine.checkShared(machine.sharedOffset(from), boxBytes(view), site,
                      "stores");
  GpuThread &thread = machine.thread();
  BulkCopy copy;
  copy.map = view;
  copy.isStore = true;
  copy.shared = static_cast<char *>(from);
  copy.group = thread.bulkGroups;
  std::copy_n(coordinates, rank, copy.coordinates);
  copy.site = site;
  machine.startBulk(copy);
}

void moira::emulator::bulk_commit(int32_t) {
  ++Machine::current().thread().bulkGroups;
}

void moira::emulator::bulk_wait(int32_t left, int32_t) {
  Machine &machine = Machine::current();
  GpuThread &thread = machine.thread();
  uint32_t done =
      thread.bulkGroups > uint32_t(left) ? thread.bulkGroups - left : 0;
  for (size_t i = 0; i < machine.bulk.size();) {
    const BulkCopy &copy = machine.bulk[i];
    if (!copy.isStore || copy.thread != machine.self() || copy.group >= done) {
      ++i;
      continue;
    }
    machine.finishBulk(i);
  }
  auto keep = thread.stores.begin();
  for (const BulkMark &mark : thread.stores) {
    if (mark.group >= done) {
      *keep++ = mark;
      continue;
    }
    if (machine.races()) {
      uint32_t &clock = thread.known.seen[machine.bulkEngine(mark.slot)];
      clock = std::max(clock, mark.clock);
    }
  }
  thread.stores.erase(keep, thread.stores.end());
}
