// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "emulator/Shadow.h"

using namespace moira::emulator;

/// Bytes of a cell. Threads that write the two bytes of one cell at the same
/// time are reported, though the hardware would not mind.
static constexpr int cellBytes = 2;

Conflict CellMap::access(Cell &cell, uint64_t index, const Access &access) {
  const Knowledge &known = *access.knowledge;
  bool writes = access.kind != AccessKind::Read;
  bool bothAtomic = access.kind == AccessKind::Atomic && cell.atomicWrote;
  Conflict found;
  auto conflict = [&](Conflict::Kind kind, bool otherWrites, int32_t actor,
                      int32_t site, int32_t block) {
    if (!found.kind)
      found = {kind, otherWrites, actor, site, block};
  };

  if (cell.writer != Cell::nobody && !bothAtomic) {
    if (cell.writeBlock != access.block)
      conflict(Conflict::Order, true, cell.writer, cell.writeSite,
               cell.writeBlock);
    else if (cell.writer != access.actor) {
      if (known.seen[cell.writer] < cell.writeClock)
        conflict(Conflict::Order, true, cell.writer, cell.writeSite,
                 cell.writeBlock);
      else if (access.engine && !cell.engineWrote &&
               known.fenced[cell.writer] < cell.writeClock)
        conflict(Conflict::Proxy, true, cell.writer, cell.writeSite,
                 cell.writeBlock);
    }
  }

  if (!writes) {
    if (cell.reader == Cell::nobody || cell.readBlock == access.block) {
      bool ordered =
          cell.reader == Cell::nobody || cell.reader == access.actor ||
          (cell.reader >= 0 && known.seen[cell.reader] >= cell.readClock);
      if (!ordered) {
        std::vector<Reader> &list = readers[index];
        if (cell.reader >= 0)
          list = {{cell.reader, cell.readClock, cell.readSite}};
        auto own = std::find_if(list.begin(), list.end(), [&](Reader &r) {
          return r.actor == access.actor;
        });
        if (own == list.end())
          own = list.insert(own, {access.actor, 0, -1});
        own->clock = known.seen[access.actor];
        own->site = access.site;
        cell.reader = Cell::many;
      } else {
        cell.reader = access.actor;
        cell.readClock = known.seen[access.actor];
        cell.readSite = access.site;
      }
      cell.readBlock = access.block;
    } else {
      // Readers of several blocks: any write after them is a conflict, so one
      // of them is enough to remember.
      cell.reader = access.actor;
      cell.readClock = known.seen[access.actor];
      cell.readSite = access.site;
      cell.readBlock = Cell::many;
    }
    return found;
  }

  if (cell.reader != Cell::nobody) {
    if (cell.readBlock != access.block)
      conflict(Conflict::Order, false, cell.reader, cell.readSite,
               cell.readBlock);
    else if (cell.reader == Cell::many) {
      for (const Reader &reader : readers[index])
        if (reader.actor != access.actor &&
            known.seen[reader.actor] < reader.clock)
          conflict(Conflict::Order, false, reader.actor, reader.site,
                   cell.readBlock);
      readers.erase(index);
    } else if (cell.reader != access.actor &&
               known.seen[cell.reader] < cell.readClock)
      conflict(Conflict::Order, false, cell.reader, cell.readSite,
               cell.readBlock);
  }
  cell.reader = Cell::nobody;
  cell.writer = access.actor;
  cell.writeClock = known.seen[access.actor];
  cell.writeSite = access.site;
  cell.writeBlock = access.block;
  cell.engineWrote = access.engine;
  cell.atomicWrote = access.kind == AccessKind::Atomic;
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
