// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "emulator/Shadow.h"

using namespace moira::emulator;

/// Bytes of a cell. Threads that write the two bytes of one cell at the same
/// time are reported, though the hardware would not mind.
static constexpr int cellBytes = 2;

/// Whether nothing orders `last` before an access with this knowledge.
static bool isUnordered(const LastAccess &last, const Access &access) {
  if (last.actor == LastAccess::nobody)
    return false;
  if (last.block != access.block)
    return true;
  return last.actor != access.actor &&
         access.knowledge->seen[last.actor] < last.clock;
}

/// Lanes of a warp that store the same value by one instruction: who wins is
/// undefined, that one does is not, and it does not matter.
static bool isOneStore(const Cell &cell, const Access &access) {
  return access.kind == AccessKind::Write && access.isSameValue &&
         !access.engine && !cell.engineWrote &&
         cell.write.site == access.site && cell.write.block == access.block &&
         cell.write.actor / 32 == access.actor / 32;
}

static Conflict conflictWith(const LastAccess &last, bool writes,
                             Conflict::Kind kind = Conflict::Order) {
  return {kind, writes, last.actor, last.site, last.block};
}

void CellMap::addReader(Cell &cell, uint64_t index, const Access &access) {
  const Clock &seen = access.knowledge->seen;
  LastAccess own{access.actor, seen[access.actor], access.site, access.block};
  if (cell.read.actor != LastAccess::nobody &&
      cell.read.block != access.block) {
    // Readers of several blocks: any write after them is a conflict, so one of
    // them is enough to remember.
    cell.read = own;
    cell.read.block = LastAccess::many;
    return;
  }
  if (cell.read.actor != LastAccess::many && !isUnordered(cell.read, access)) {
    cell.read = own;
    return;
  }
  std::vector<LastAccess> &list = readers[index];
  if (cell.read.actor >= 0)
    list = {cell.read};
  auto place =
      std::find_if(list.begin(), list.end(), [&](const LastAccess &reader) {
        return reader.actor == access.actor;
      });
  if (place == list.end())
    list.push_back(own);
  else
    *place = own;
  cell.read.actor = LastAccess::many;
}

Conflict CellMap::findReader(const Cell &cell, uint64_t index,
                             const Access &access) {
  if (cell.read.actor == LastAccess::many && cell.read.block == access.block) {
    for (const LastAccess &reader : readers[index])
      if (isUnordered(reader, access))
        return conflictWith(reader, false);
    return {};
  }
  return isUnordered(cell.read, access) ? conflictWith(cell.read, false)
                                        : Conflict();
}

Conflict CellMap::access(Cell &cell, uint64_t index, const Access &access) {
  const Knowledge &known = *access.knowledge;
  Conflict found;
  if (isUnordered(cell.write, access) && !isOneStore(cell, access))
    found = conflictWith(cell.write, true);
  else if (access.engine && cell.write.actor != LastAccess::nobody &&
           !cell.engineWrote &&
           known.fenced[cell.write.actor] < cell.write.clock)
    found = conflictWith(cell.write, true, Conflict::Proxy);
  else if (access.kind != AccessKind::Atomic &&
           isUnordered(cell.atomic, access))
    found = conflictWith(cell.atomic, true);
  else if (access.kind != AccessKind::Read)
    found = findReader(cell, index, access);

  LastAccess own{access.actor, known.seen[access.actor], access.site,
                 access.block};
  switch (access.kind) {
  case AccessKind::Read:
    addReader(cell, index, access);
    break;
  case AccessKind::Atomic:
    cell.atomic = own;
    break;
  case AccessKind::Write:
    if (cell.read.actor == LastAccess::many)
      readers.erase(index);
    cell.read = LastAccess();
    cell.atomic = LastAccess();
    cell.write = own;
    cell.engineWrote = access.engine;
    break;
  }
  return found;
}

//===----------------------------------------------------------------------===//
// SharedShadow
//===----------------------------------------------------------------------===//

void SharedShadow::reset(int64_t bytes) {
  cells.assign((bytes + cellBytes - 1) / cellBytes, Cell());
  defined.assign(bytes, false);
  map.clearReaders();
}

Conflict SharedShadow::access(int64_t offset, int64_t bytes,
                              const Access &access) {
  Conflict found;
  int64_t last = std::min<int64_t>((offset + bytes - 1) / cellBytes,
                                   int64_t(cells.size()) - 1);
  for (int64_t i = offset / cellBytes; i <= last; ++i) {
    Conflict one = map.access(cells[i], i, access);
    if (one.kind && !found.kind)
      found = one;
  }
  return found;
}

void SharedShadow::define(int64_t offset, int64_t bytes) {
  int64_t end = std::min<int64_t>(offset + bytes, defined.size());
  if (offset < end)
    std::fill(defined.begin() + offset, defined.begin() + end, true);
}

bool SharedShadow::isDefined(int64_t offset, int64_t bytes) const {
  int64_t end = std::min<int64_t>(offset + bytes, defined.size());
  return offset >= end ||
         std::find(defined.begin() + offset, defined.begin() + end, false) ==
             defined.begin() + end;
}

//===----------------------------------------------------------------------===//
// GlobalShadow
//===----------------------------------------------------------------------===//

Conflict GlobalShadow::access(uint64_t address, int64_t bytes,
                              const Access &access) {
  Conflict found;
  uint64_t last = (address + bytes - 1) / cellBytes;
  for (uint64_t i = address / cellBytes; i <= last; ++i) {
    uint64_t number = i * cellBytes >> pageBits;
    if (number != lastNumber) {
      std::unique_ptr<Page> &page = pages[number];
      if (!page)
        page = std::make_unique<Page>();
      lastNumber = number;
      lastPage = page.get();
    }
    uint64_t mask = (uint64_t(1) << pageBits) / cellBytes - 1;
    Conflict one = map.access(lastPage->cells[i & mask], i, access);
    if (one.kind && !found.kind)
      found = one;
  }
  return found;
}
