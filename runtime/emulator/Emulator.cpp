// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "emulator/Emulator.h"

#include "base/Pool.h"
#include "emulator/Table.h"

#include <cstring>

using namespace moira;
using namespace moira::emulator;

//===----------------------------------------------------------------------===//
// What needs no state
//===----------------------------------------------------------------------===//

int32_t moira::emulator::special(int32_t which, int32_t site) {
  Machine &machine = Machine::current();
  const Extent &block = machine.plan->block, &grid = machine.plan->grid;
  int thread = machine.self();
  switch (which) {
  case MOIRA_EMU_TID_X:
    return thread % block.x;
  case MOIRA_EMU_TID_Y:
    return thread / block.x % block.y;
  case MOIRA_EMU_TID_Z:
    return thread / block.x / block.y;
  case MOIRA_EMU_NTID_X:
    return block.x;
  case MOIRA_EMU_NTID_Y:
    return block.y;
  case MOIRA_EMU_NTID_Z:
    return block.z;
  case MOIRA_EMU_CTAID_X:
    return machine.index.x;
  case MOIRA_EMU_CTAID_Y:
    return machine.index.y;
  case MOIRA_EMU_CTAID_Z:
    return machine.index.z;
  case MOIRA_EMU_NCTAID_X:
    return grid.x;
  case MOIRA_EMU_NCTAID_Y:
    return grid.y;
  case MOIRA_EMU_NCTAID_Z:
    return grid.z;
  case MOIRA_EMU_LANEID:
    return machine.lane();
  case MOIRA_EMU_WARPSIZE:
    return 32;
  }
  machine.fail(site, "expected a special register that is emulated, got ",
               which);
}

void *moira::emulator::shared_address(int64_t offset) {
  return Machine::current().shared + offset;
}

int64_t moira::emulator::shared_offset(void *address) {
  return Machine::current().sharedOffset(address);
}

void moira::emulator::load(void *at, int32_t bytes, int32_t space,
                           int32_t site) {
  Machine::current().access(at, bytes, space, AccessKind::Read, site);
}

void moira::emulator::store(void *at, const void *value, int32_t bytes,
                            int32_t space, int32_t site) {
  Machine::current().access(at, bytes, space, AccessKind::Write, site, value);
}

void moira::emulator::atomic(void *at, int32_t bytes, int32_t space,
                             int32_t site) {
  Machine::current().access(at, bytes, space, AccessKind::Atomic, site);
}

void moira::emulator::trap(int32_t site) {
  Machine::current().fail(site, "the kernel ends by a trap");
}

//===----------------------------------------------------------------------===//
// Modules and launches
//===----------------------------------------------------------------------===//

Status moira::emulator::bindModule(const moira_emu_module &module) {
  if (module.version != MOIRA_EMU_VERSION)
    return Status(MOIRA_VERSION,
                  concat("emulated module: expected version ",
                         MOIRA_EMU_VERSION, ", got ", module.version));
  if (module.functions != MOIRA_EMU_FUNCTION_COUNT)
    return Status(MOIRA_VERSION, concat("emulated module: expected a table of ",
                                        int(MOIRA_EMU_FUNCTION_COUNT),
                                        " functions, got ", module.functions));
  void *const functions[] = {
#define MOIRA_EMU_ADDRESS(name, result, parameters)                            \
  reinterpret_cast<void *>(&moira::emulator::name),
      MOIRA_EMU_FUNCTIONS(MOIRA_EMU_ADDRESS)
#undef MOIRA_EMU_ADDRESS
  };
  memcpy(module.table, functions, sizeof(functions));
  return Status();
}

static Status checkLaunch(const moira_emu_kernel &kernel, Extent grid,
                          Extent block, int64_t sharedBytes) {
  auto refuse = [&](const std::string &text) {
    return Status(MOIRA_INVALID_ARGUMENT,
                  concat("kernel ", kernel.name, ": ", text));
  };
  if (grid.x < 1 || grid.y < 1 || grid.z < 1 || grid.y > 65535 ||
      grid.z > 65535)
    return refuse(concat("expected a grid of 1 to 2147483647, 65535, 65535, "
                         "got ",
                         grid.x, ", ", grid.y, ", ", grid.z));
  if (block.x < 1 || block.y < 1 || block.z < 1 || block.count() > 1024)
    return refuse(concat("expected a block of 1 to 1024 threads, got ", block.x,
                         ", ", block.y, ", ", block.z));
  if (kernel.threads && block.count() != kernel.threads)
    return refuse(concat("expected a block of ", kernel.threads,
                         " threads, got ", block.count()));
  if (sharedBytes > maxSharedBytes)
    return refuse(concat("expected at most ", maxSharedBytes,
                         " bytes of shared memory, got ", sharedBytes));
  return Status();
}

Result<LaunchReport> moira::emulator::launch(
    const moira_emu_module &module, const moira_emu_kernel &kernel, Extent grid,
    Extent block, int64_t dynamicShared, void *const *arguments,
    const Regions *regions, const LaunchOptions &options) {
  int64_t sharedBytes = dynamicShared > 0
                            ? kernel.dynamic_offset + dynamicShared
                            : kernel.shared_bytes;
  MOIRA_RETURN_IF_ERROR(checkLaunch(kernel, grid, block, sharedBytes));
  GlobalShadow globalShadow;
  LaunchPlan plan;
  plan.module = &module;
  plan.kernel = &kernel;
  plan.grid = grid;
  plan.block = block;
  plan.sharedBytes = sharedBytes;
  plan.arguments = const_cast<void **>(arguments);
  plan.regions = regions;
  plan.options = options;
  if (options.checks.race)
    plan.globalShadow = &globalShadow;

  LaunchReport whole;
  whole.faults.reserve(options.faultLimit);
  auto indexOf = [&](int64_t number) {
    Extent index;
    index.x = int32_t(number % grid.x);
    index.y = int32_t(number / grid.x % grid.y);
    index.z = int32_t(number / grid.x / grid.y);
    return index;
  };
  if (options.workers <= 1 || options.checks.race) {
    Machine machine;
    for (int64_t i = 0; i < grid.count(); ++i) {
      MOIRA_RETURN_IF_ERROR(machine.run(plan, indexOf(i), whole));
      // What follows a block that did not end would only repeat it.
      if (!whole.clean() && machine.hasStopped())
        break;
    }
    return whole;
  }

  runtime::Pool pool(options.workers);
  std::vector<std::unique_ptr<Machine>> machines(pool.threads());
  std::vector<LaunchReport> reports(pool.threads());
  std::vector<Status> statuses(pool.threads());
  pool.run(grid.count(), /*cost=*/1'000'000, [&](int64_t i, int64_t worker) {
    std::unique_ptr<Machine> &machine = machines[worker];
    if (!machine)
      machine = std::make_unique<Machine>();
    if (statuses[worker].ok() && reports[worker].clean())
      statuses[worker] = machine->run(plan, indexOf(i), reports[worker]);
  });
  for (size_t i = 0; i < reports.size(); ++i) {
    MOIRA_RETURN_IF_ERROR(statuses[i]);
    whole.add(reports[i]);
  }
  return whole;
}
