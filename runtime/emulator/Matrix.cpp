// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// The matrix instructions. Which lane holds which element, and where a
// descriptor of wgmma leads, is written down in docs/emulator.md.

#include "emulator/MultiplyAdd.h"
#include "emulator/Table.h"

#include <cstring>

using namespace moira;
using namespace moira::emulator;

static constexpr uint64_t loadTag = 5 << 8, storeTag = 6 << 8, mmaTag = 7 << 8,
                          wgmmaTag = 8 << 8, commitTag = 9 << 8,
                          waitTag = 10 << 8, fenceTag = 11 << 8;
static constexpr uint32_t allLanes = ~0u;

//===----------------------------------------------------------------------===//
// ldmatrix, stmatrix
//===----------------------------------------------------------------------===//

namespace {
struct Matrices {
  char *row;
  uint32_t *registers;
};
} // namespace

/// Copies 8x8 elements of 16 bits between the rows of a matrix and a register
/// of each lane.
static void moveMatrix(char *const *rows, const Gathering &gathering,
                       int number, bool transposed, bool store) {
  for (int lane = 0; lane < 32; ++lane)
    for (int half = 0; half < 2; ++half) {
      int row = lane / 4, column = lane % 4 * 2 + half;
      if (transposed)
        std::swap(row, column);
      char *place = rows[row] + column * 2;
      char *value = reinterpret_cast<char *>(
                        &static_cast<Matrices *>(gathering.arguments[lane])
                             ->registers[number]) +
                    half * 2;
      memcpy(store ? place : value, store ? value : place, 2);
    }
}

static void moveMatrices(char *row, int count, bool transposed,
                         uint32_t *registers, bool store, int32_t site) {
  Machine &machine = Machine::current();
  // The lanes beyond name no row.
  if (machine.lane() < 8 * count) {
    machine.checkAlignment(row, 16, site);
    if (!machine.inShared(row))
      machine.fail(site, "expected a row in shared memory, got one elsewhere");
    machine.checkShared(machine.sharedOffset(row), 16, site,
                        store ? "stores" : "loads");
    machine.accessShared(
        machine.sharedOffset(row), 16,
        machine.makeAccess(store ? AccessKind::Write : AccessKind::Read, site));
  }
  Matrices own{row, registers};
  uint64_t tag = (store ? storeTag : loadTag) + count + 16 * transposed;
  machine.collect(allLanes, tag, site, &own, [&](Gathering &gathering) {
    for (int number = 0; number < count; ++number) {
      char *rows[8];
      int64_t offsets[8];
      for (int i = 0; i < 8; ++i) {
        rows[i] =
            static_cast<Matrices *>(gathering.arguments[number * 8 + i])->row;
        offsets[i] = machine.sharedOffset(rows[i]);
      }
      if (machine.checks().counters) {
        int needed = 0, passes = bankPasses(offsets, 8, 16, needed);
        machine.counters.sharedPasses += needed;
        machine.counters.bankConflicts += passes - needed;
      }
      moveMatrix(rows, gathering, number, transposed, store);
    }
  });
}

void moira::emulator::ldmatrix(void *row, int32_t count, int32_t transposed,
                               uint32_t *registers, int32_t site) {
  moveMatrices(static_cast<char *>(row), count, transposed, registers, false,
               site);
}

void moira::emulator::stmatrix(void *row, int32_t count, int32_t transposed,
                               uint32_t *registers, int32_t site) {
  moveMatrices(static_cast<char *>(row), count, transposed, registers, true,
               site);
}

//===----------------------------------------------------------------------===//
// mma.sync
//===----------------------------------------------------------------------===//

static float widen(uint16_t bits, int32_t element) {
  if (element == MOIRA_EMU_BF16) {
    uint32_t wide = uint32_t(bits) << 16;
    float value;
    memcpy(&value, &wide, 4);
    return value;
  }
  return halfToFloat(bits);
}

void moira::emulator::mma(int32_t element, uint32_t *registers, int32_t site) {
  Machine &machine = Machine::current();
  machine.collect(
      allLanes, mmaTag + element, site, registers, [&](Gathering &gathering) {
        ++machine.counters.mma;
        alignas(64) float a[16 * 16], b[16 * 8], c[16 * 8];
        auto of = [&](int lane) {
          return static_cast<uint32_t *>(gathering.arguments[lane]);
        };
        for (int lane = 0; lane < 32; ++lane) {
          uint32_t *r = of(lane);
          int group = lane / 4, pair = lane % 4 * 2;
          for (int half = 0; half < 2; ++half) {
            auto value = [&](int number) {
              return widen(uint16_t(r[number] >> 16 * half), element);
            };
            a[group * 16 + pair + half] = value(0);
            a[(group + 8) * 16 + pair + half] = value(1);
            a[group * 16 + pair + 8 + half] = value(2);
            a[(group + 8) * 16 + pair + 8 + half] = value(3);
            b[(pair + half) * 8 + group] = value(4);
            b[(pair + 8 + half) * 8 + group] = value(5);
          }
          memcpy(&c[group * 8 + pair], r + 6, 8);
          memcpy(&c[(group + 8) * 8 + pair], r + 8, 8);
        }
        multiplyAdd(16, 8, 16, a, b, c);
        for (int lane = 0; lane < 32; ++lane) {
          int group = lane / 4, pair = lane % 4 * 2;
          memcpy(of(lane) + 6, &c[group * 8 + pair], 8);
          memcpy(of(lane) + 8, &c[(group + 8) * 8 + pair], 8);
        }
      });
}

//===----------------------------------------------------------------------===//
// wgmma
//===----------------------------------------------------------------------===//

namespace {
struct Product {
  float *sums;
  int64_t a, b;
};

/// A matrix in shared memory as a descriptor of wgmma describes it.
struct Operand {
  int64_t start, leading, stride; ///< bytes
  int rowBytes;                   ///< of a swizzle atom
  bool transposed;                ///< contiguous along rows, not along k

  /// Offset of element (row, k).
  int64_t place(int row, int k) const {
    int64_t offset = start;
    if (!transposed)
      offset += row / 8 * stride + row % 8 * rowBytes + k * 2;
    else
      offset += row % (rowBytes / 2) * 2 + row / (rowBytes / 2) * leading +
                k % 8 * rowBytes + k / 8 * stride;
    int mask = rowBytes / 16 - 1;
    return offset ^ (offset >> 7 & mask) << 4;
  }
};
} // namespace

static Operand readDescriptor(Machine &machine, int64_t bits, bool transposed,
                              int32_t site) {
  static constexpr int swizzles[] = {0, 128, 64, 32};
  Operand operand;
  operand.start = (bits & 0x3fff) << 4;
  operand.leading = (bits >> 16 & 0x3fff) << 4;
  operand.stride = (bits >> 32 & 0x3fff) << 4;
  operand.rowBytes = swizzles[bits >> 62 & 3];
  operand.transposed = transposed;
  if (!operand.rowBytes || (bits >> 49 & 7))
    machine.fail(site, "expected a matrix descriptor with a swizzle of 32, 64 "
                       "or 128 bytes and base offset 0, got another");
  return operand;
}

/// Reads `rows` x 16 elements, k innermost, as floats.
static void readOperand(Machine &machine, const Operand &operand, int rows,
                        int32_t element, const Access &access, float *values,
                        bool byColumn) {
  for (int row = 0; row < rows; ++row)
    for (int k = 0; k < 16; ++k) {
      int64_t place = operand.place(row, k);
      machine.checkShared(place, 2, access.site, "multiplies");
      // Eight elements that stand together are one access.
      if ((operand.transposed ? row : k) % 8 == 0)
        machine.accessShared(place, 16, access);
      uint16_t bits;
      memcpy(&bits, machine.shared + place, 2);
      values[byColumn ? k * rows + row : row * 16 + k] = widen(bits, element);
    }
}

static uint64_t hashSums(const Gathering &gathering, int count) {
  uint64_t hash = 0xcbf29ce484222325;
  for (void *argument : gathering.arguments) {
    const float *sums = static_cast<Product *>(argument)->sums;
    for (int i = 0; i < count; ++i) {
      uint32_t bits;
      memcpy(&bits, sums + i, 4);
      hash = (hash ^ bits) * 0x100000001b3;
    }
  }
  return hash;
}

/// The accumulators of a thread of a warpgroup: value `i` is in row/column.
static float &accumulator(float *c, int n, int thread, int i) {
  int row = thread / 32 * 16 + thread % 32 / 4 + i % 4 / 2 * 8;
  int column = i / 4 * 8 + thread % 4 * 2 + i % 2;
  return c[row * n + column];
}

void moira::emulator::wgmma(float *sums, int64_t a, int64_t b, int32_t n,
                            int32_t form, int32_t site) {
  Machine &machine = Machine::current();
  if (n < 8 || n > 256 || n % 8)
    machine.fail(site, "expected n of 8 to 256 in steps of 8, got ", n);
  Product own{sums, a, b};
  machine.collectGroup(wgmmaTag + n, site, &own, [&](Gathering &gathering) {
    ++machine.counters.wgmma;
    int number = machine.self() / 128;
    WarpGroup &group = machine.groups[number];
    bool keeps = form & 1, negative = !(form >> 1 & 1) != !(form >> 2 & 1);
    int32_t element = form >> 8;
    for (void *argument : gathering.arguments)
      if (static_cast<Product *>(argument)->a != a ||
          static_cast<Product *>(argument)->b != b)
        machine.fail(site, "expected the same descriptors in all threads "
                           "of a warpgroup, got others");
    if (machine.checks().sync && !group.fenced &&
        !(keeps && group.produced.count(hashSums(gathering, n / 2))))
      machine.fail(site, "expected wgmma.fence between the last access to "
                         "accumulators and wgmma, got none");

    Access access = machine.makeAccess(AccessKind::Read, site);
    access.actor = machine.matrixEngine(number);
    access.engine = true;
    Knowledge &known = machine.matrixKnowledge;
    if (machine.races()) {
      known.clear();
      for (int member : gathering.members)
        known.join(machine.threads[member].known);
      known.seen[access.actor] = group.clock;
      access.knowledge = &known;
    }
    float *left = machine.matrixScratch.data();
    float *right = left + 64 * 16, *c = right + 256 * 16;
    readOperand(machine, readDescriptor(machine, a, form >> 3 & 1, site), 64,
                element, access, left, false);
    readOperand(machine, readDescriptor(machine, b, form >> 4 & 1, site), n,
                element, access, right, true);
    if (negative)
      for (int i = 0; i < 64 * 16; ++i)
        left[i] = -left[i];
    for (int thread = 0; thread < 128; ++thread)
      for (int i = 0; i < n / 2; ++i)
        accumulator(c, n, thread, i) =
            keeps ? static_cast<Product *>(gathering.arguments[thread])->sums[i]
                  : 0.0f;
    multiplyAdd(64, n, 16, left, right, c);
    for (int thread = 0; thread < 128; ++thread)
      for (int i = 0; i < n / 2; ++i)
        static_cast<Product *>(gathering.arguments[thread])->sums[i] =
            accumulator(c, n, thread, i);
    group.open = true;
    if (machine.checks().sync)
      group.produced.insert(hashSums(gathering, n / 2));
  });
}

void moira::emulator::wgmma_fence(int32_t site) {
  Machine &machine = Machine::current();
  machine.collectGroup(fenceTag, site, nullptr, [&](Gathering &) {
    WarpGroup &group = machine.groups[machine.self() / 128];
    group.fenced = true;
    group.produced.clear();
  });
}

void moira::emulator::wgmma_commit(int32_t site) {
  Machine &machine = Machine::current();
  machine.collectGroup(commitTag, site, nullptr, [&](Gathering &) {
    WarpGroup &group = machine.groups[machine.self() / 128];
    group.groups.push_back(group.clock++);
    group.open = false;
  });
}

void moira::emulator::wgmma_wait(int32_t left, int32_t site) {
  Machine &machine = Machine::current();
  machine.collectGroup(
      waitTag + left, site, nullptr, [&](Gathering &gathering) {
        int number = machine.self() / 128;
        WarpGroup &group = machine.groups[number];
        uint32_t done = 0;
        while (int(group.groups.size()) > left) {
          done = group.groups.front();
          group.groups.pop_front();
        }
        // Registers may be touched from now on.
        group.fenced = false;
        if (machine.races())
          for (int member : gathering.members) {
            uint32_t &clock = machine.threads[member]
                                  .known.seen[machine.matrixEngine(number)];
            clock = std::max(clock, done);
          }
      });
}

void moira::emulator::wgmma_use(int32_t site) {
  Machine &machine = Machine::current();
  if (!machine.checks().sync)
    return;
  const WarpGroup &group = machine.groups[machine.self() / 128];
  if (group.open || !group.groups.empty())
    machine.report(FaultKind::Sync, site, -1,
                   concat(machine.here(site),
                          " uses accumulators while wgmma may still write "
                          "them; expected wgmma.wait_group 0 before"));
}
