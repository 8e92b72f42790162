// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Runs kernels that were compiled for the host (moira/emulator_abi.h).

#ifndef MOIRA_RUNTIME_EMULATOR_EMULATOR_H
#define MOIRA_RUNTIME_EMULATOR_EMULATOR_H

#include "base/Status.h"
#include "emulator/Report.h"
#include "moira/emulator_abi.h"

#include <cstdint>
#include <map>
#include <mutex>

namespace moira::emulator {

/// Allocations of global memory. Any thread may call anything.
class Regions {
public:
  void add(const void *start, int64_t bytes);
  void remove(const void *start);
  /// The allocation around `at`, or one of 0 bytes.
  struct Region {
    uint64_t start = 0, bytes = 0;
    bool contains(uint64_t at, uint64_t size) const {
      return at >= start && at - start <= bytes && size <= bytes - (at - start);
    }
  };
  Region find(const void *at) const;

private:
  mutable std::mutex mutex;
  std::map<uint64_t, uint64_t> regions;
};

struct Extent {
  int32_t x = 1, y = 1, z = 1;
  int64_t count() const { return int64_t(x) * y * z; }
};

struct LaunchOptions {
  Checks checks;
  /// 0: threads run in turn; others: the order is random and depends on it.
  uint64_t seed = 0;
  /// Blocks that run at the same time; 1 where races are looked for.
  int workers = 1;
  /// Faults that a report keeps.
  int faultLimit = 32;
};

/// Largest dynamic and static shared memory of a block.
constexpr int64_t maxSharedBytes = 227 << 10;

/// A two- to five-dimensional box view of global memory: what a CUtensorMap
/// holds here. Innermost dimension first.
struct alignas(64) TensorMap {
  static constexpr uint32_t magicNumber = 0x6d6f7470;
  uint32_t magic = 0;
  uint32_t rank = 0;
  uint32_t elementBytes = 0;
  uint32_t swizzleBytes = 0; ///< 0, 32, 64 or 128
  uint64_t base = 0;
  uint64_t sizes[5] = {};
  uint64_t strides[4] = {}; ///< bytes, of dimensions 1 and up
  uint16_t box[5] = {};
};
static_assert(sizeof(TensorMap) <= 128, "it travels as a CUtensorMap");

/// Fills the table of a module with the emulator's functions. Refuses another
/// version.
Status bindModule(const moira_emu_module &module);

/// Runs all blocks of a kernel of a bound module and returns what was found;
/// fails only where the launch itself is wrong. `regions` may be null where
/// bounds are not checked.
Result<LaunchReport> launch(const moira_emu_module &module,
                            const moira_emu_kernel &kernel, Extent grid,
                            Extent block, int64_t dynamicShared,
                            void *const *arguments, const Regions *regions,
                            const LaunchOptions &options);

} // namespace moira::emulator

#endif // MOIRA_RUNTIME_EMULATOR_EMULATOR_H
