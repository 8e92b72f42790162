// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a launch found out, and what it counted.

#ifndef MOIRA_RUNTIME_EMULATOR_REPORT_H
#define MOIRA_RUNTIME_EMULATOR_REPORT_H

#include <cstdint>
#include <string>
#include <vector>

namespace moira::emulator {

/// Which faults a launch looks for. Deadlocks, and misuse that leaves nothing
/// to go on with, are found always.
struct Checks {
  bool race = false;     ///< accesses that nothing orders
  bool bounds = false;   ///< accesses outside allocations
  bool uninit = false;   ///< reads of shared memory that nobody wrote
  bool sync = false;     ///< misuse of barriers, copies and matrix units
  bool counters = false; ///< bank conflicts and sectors per warp access

  static Checks all() { return {true, true, true, true, true}; }
  bool any() const { return race || bounds || uninit || sync || counters; }
};

/// Reads "race,bounds,uninit,sync,counters" or "all" or ""; false for other
/// text.
bool parseChecks(const std::string &text, Checks &checks);

enum class FaultKind { Race, Bounds, Uninit, Sync, Deadlock };
const char *faultName(FaultKind kind);

/// One fault; faults of the same kind at the same two sites are one.
struct Fault {
  FaultKind kind;
  /// One line: kernel, block, threads, sites, what happened.
  std::string text;
  /// Sites in the module's table, -1 for none.
  int32_t site = -1, other = -1;
  int64_t times = 1;
};

/// What the kernels of a launch did.
struct Counters {
  uint64_t switches = 0, barriers = 0, warpOps = 0;
  uint64_t mma = 0, wgmma = 0;
  /// Accesses of warps to shared memory: passes through the banks that a
  /// perfect layout needs, and those beyond.
  uint64_t sharedPasses = 0, bankConflicts = 0;
  /// 32-byte sectors that accesses of warps to global memory touched, and how
  /// many of them their bytes would fill.
  uint64_t sectors = 0, neededSectors = 0;

  void add(const Counters &other);
};

struct LaunchReport {
  std::vector<Fault> faults;
  int64_t faultsInAll = 0; ///< also those not kept
  Counters counters;

  bool clean() const { return faultsInAll == 0; }
  /// All faults, one a line; "" when clean.
  std::string text() const;
  void add(const LaunchReport &other);
};

} // namespace moira::emulator

#endif // MOIRA_RUNTIME_EMULATOR_REPORT_H
