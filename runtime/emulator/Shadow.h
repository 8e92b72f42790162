// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Who has accessed a place last, and whether that is ordered before an access
// now: the FastTrack algorithm over vector clocks.
//
// Every GPU thread is an actor, and so is every engine that works by itself:
// the cp.async engine of each thread, the matrix unit of each warpgroup, and
// slots for bulk copies under way. A clock has one entry per actor of a block.
//
// A second clock per thread says up to where writes of ordinary instructions
// have been made visible to the asynchronous engines by a proxy fence.

#ifndef MOIRA_RUNTIME_EMULATOR_SHADOW_H
#define MOIRA_RUNTIME_EMULATOR_SHADOW_H

#include <algorithm>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

namespace moira::emulator {

class Clock {
public:
  void reset(int actors) { entries.assign(actors, 0); }
  bool empty() const { return entries.empty(); }
  void clear() { entries.clear(); }
  uint32_t operator[](int actor) const { return entries[actor]; }
  uint32_t &operator[](int actor) { return entries[actor]; }

  void join(const Clock &other) {
    if (entries.size() < other.entries.size())
      entries.resize(other.entries.size(), 0);
    for (size_t i = 0; i < other.entries.size(); ++i)
      entries[i] = std::max(entries[i], other.entries[i]);
  }

private:
  std::vector<uint32_t> entries;
};

/// What an actor knows: clocks of all, and of their writes seen by engines.
struct Knowledge {
  Clock seen, fenced;

  void reset(int actors) {
    seen.reset(actors);
    fenced.reset(actors);
  }
  void clear() {
    seen.clear();
    fenced.clear();
  }
  void join(const Knowledge &other) {
    seen.join(other.seen);
    fenced.join(other.fenced);
  }
};

enum class AccessKind : uint8_t { Read, Write, Atomic };

struct Access {
  AccessKind kind;
  bool engine; ///< by the asynchronous proxy (bulk copies, wgmma)
  int32_t actor;
  int32_t site;
  int32_t block; ///< of the grid
  const Knowledge *knowledge;
  /// A store of what stands there already.
  bool isSameValue = false;
};

/// The other side of a conflict.
struct Conflict {
  enum Kind { None, Order, Proxy } kind = None;
  bool otherWrites = false;
  int32_t actor = -1, site = -1, block = -1;
};

/// One access that a cell remembers.
struct LastAccess {
  static constexpr int32_t nobody = -1, many = -2;
  int32_t actor = nobody;
  uint32_t clock = 0;
  int32_t site = -1, block = -1;
};

/// The last accesses of two bytes. Atomic ones are in order among each other,
/// but with no other access, so they are remembered apart.
struct Cell {
  LastAccess write, read, atomic;
  bool engineWrote = false;
};

/// Cells of a stretch of memory.
class CellMap {
public:
  /// Checks and records an access of cell `index`.
  Conflict access(Cell &cell, uint64_t index, const Access &access);
  void clearReaders() { readers.clear(); }

private:
  void addReader(Cell &cell, uint64_t index, const Access &access);
  /// A reader that nothing orders before a write.
  Conflict findReader(const Cell &cell, uint64_t index, const Access &access);

  /// Readers of one block that nothing orders among each other.
  std::unordered_map<uint64_t, std::vector<LastAccess>> readers;
};

/// The shared memory of one block.
class SharedShadow {
public:
  void reset(int64_t bytes);
  /// The first conflict of [offset, offset + bytes).
  Conflict access(int64_t offset, int64_t bytes, const Access &access);
  /// Marks bytes as written / whether all of them are.
  void define(int64_t offset, int64_t bytes);
  bool isDefined(int64_t offset, int64_t bytes) const;

private:
  std::vector<Cell> cells;
  std::vector<bool> defined;
  CellMap map;
};

/// Global memory during one launch, by pages that were touched.
class GlobalShadow {
public:
  Conflict access(uint64_t address, int64_t bytes, const Access &access);

private:
  static constexpr int pageBits = 12;
  struct Page {
    Cell cells[(1 << pageBits) / 2];
  };
  std::unordered_map<uint64_t, std::unique_ptr<Page>> pages;
  CellMap map;
  uint64_t lastNumber = ~uint64_t(0);
  Page *lastPage = nullptr;
};

} // namespace moira::emulator

#endif // MOIRA_RUNTIME_EMULATOR_SHADOW_H
