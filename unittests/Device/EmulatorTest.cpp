// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// The emulator without a compiler: kernels are functions that call its table as
// compiled ones do. Runs in the sanitized builds of the runtime.

#include "emulator/Emulator.h"
#include "device/Device.h"

#include <atomic>
#include <cstring>
#include <gtest/gtest.h>

using namespace moira;
using namespace moira::runtime;
using emulator::FaultKind;

static void *table[MOIRA_EMU_FUNCTION_COUNT];

namespace calls {
// Typed views of the table's entries.
#define MOIRA_CALL(name, result, parameters)                                   \
  using name##_type = result(*) parameters;                                    \
  [[maybe_unused]] static name##_type name() {                                 \
    return reinterpret_cast<name##_type>(table[MOIRA_EMU_FN_##name]);          \
  }
MOIRA_EMU_FUNCTIONS(MOIRA_CALL)
#undef MOIRA_CALL
} // namespace calls

static int32_t threadNumber() { return calls::special()(MOIRA_EMU_TID_X, 0); }
static int32_t blockNumber() { return calls::special()(MOIRA_EMU_CTAID_X, 0); }

/// Stores thread numbers, waits (unless told not to), and sums the stores of
/// all in thread 0: kernel(out, i32 waits).
static void reduce(void **arguments) {
  int64_t *out = *static_cast<int64_t **>(arguments[0]);
  bool waits = *static_cast<int32_t *>(arguments[1]) != 0;
  int32_t *cells = static_cast<int32_t *>(calls::shared_address()(0));
  int32_t self = threadNumber();
  calls::store()(cells + self, 4, MOIRA_EMU_SHARED, 1);
  cells[self] = self;
  if (waits)
    calls::barrier()(0, 0, 2);
  if (self)
    return;
  int64_t sum = 0;
  for (int i = 0; i < 64; ++i) {
    calls::load()(cells + i, 4, MOIRA_EMU_SHARED, 3);
    sum += cells[i];
  }
  calls::store()(out + blockNumber(), 8, MOIRA_EMU_GLOBAL, 4);
  out[blockNumber()] = sum;
}

/// Half of the threads wait for all.
static void getStuck(void **) {
  // What is on the stacks of threads that never end must not trouble anybody.
  char buffer[256];
  memset(buffer, threadNumber(), sizeof(buffer));
  if (threadNumber() % 64 < 32)
    calls::barrier()(3, 64, 2);
  else if (buffer[7] == 33)
    calls::trap()(5);
}

/// All threads add to one number, and read what a warp mate has.
static void count(void **arguments) {
  auto *total = *static_cast<std::atomic<int64_t> **>(arguments[0]);
  calls::atomic()(total, 8, MOIRA_EMU_GLOBAL, 6);
  int64_t other =
      calls::shuffle()(MOIRA_EMU_SHUFFLE_BFLY, -1, threadNumber(), 1, 31, 7);
  *total += int32_t(other);
}

static const int32_t bytes[] = {8, 4};
static const moira_emu_kernel kernels[] = {
    {"reduce", reduce, 256, 256, 64, 2, bytes},
    {"getStuck", getStuck, 0, 0, 0, 0, bytes},
    {"count", count, 0, 0, 0, 1, bytes}};
static const char *const sites[] = {"",
                                    "a.mlir:1: store",
                                    "a.mlir:2: barrier",
                                    "a.mlir:3: load",
                                    "a.mlir:4: store",
                                    "a.mlir:5: trap",
                                    "a.mlir:6: atomic",
                                    "a.mlir:7: shuffle"};
static const moira_emu_module module = {
    MOIRA_EMU_VERSION, MOIRA_EMU_FUNCTION_COUNT, table, 3, 8, kernels, sites};

static emulator::LaunchReport run(const char *name, int32_t blocks,
                                  int32_t threads,
                                  const std::vector<KernelArgument> &arguments,
                                  EmulatedDevice &device) {
  auto loaded = *device.load(&module, 0);
  auto kernel = *device.find(loaded, name);
  DeviceQueue queue = *device.createQueue();
  LaunchShape shape;
  shape.grid.x = blocks;
  shape.block.x = threads;
  EXPECT_TRUE(device.launch(*kernel, shape, arguments, queue).ok());
  (void)device.destroyQueue(queue);
  return device.takeReport();
}

TEST(EmulatorTest, runsBlocksOnSeveralThreads) {
  for (int workers : {1, 4})
    for (uint64_t seed : {0, 3}) {
      EmulatedOptions options;
      options.workers = workers;
      options.seed = seed;
      if (workers == 1)
        options.checks = emulator::Checks::all();
      auto device = openEmulated(options);
      int64_t *out = static_cast<int64_t *>(*device->allocate(40 * 8));
      int32_t waits = 1;
      emulator::LaunchReport report =
          run("reduce", 40, 64,
              {KernelArgument::of(out), KernelArgument::of(waits)}, *device);
      EXPECT_TRUE(report.clean()) << report.text();
      EXPECT_EQ(report.counters.barriers, 40u * 64);
      for (int i = 0; i < 40; ++i)
        EXPECT_EQ(out[i], 63 * 32);
      EXPECT_TRUE(device->release(out).ok());
    }
}

TEST(EmulatorTest, tellsBothSidesOfARace) {
  EmulatedOptions options;
  options.checks.race = true;
  auto device = openEmulated(options);
  int64_t *out = static_cast<int64_t *>(*device->allocate(8));
  int32_t waits = 0;
  emulator::LaunchReport report =
      run("reduce", 1, 64, {KernelArgument::of(out), KernelArgument::of(waits)},
          *device);
  ASSERT_EQ(report.faults.size(), 1u);
  EXPECT_EQ(report.faults[0].text,
            "kernel reduce, block (0, 0, 0): thread 1 at a.mlir:1: store "
            "writes shared+4, which thread 0 read at a.mlir:3: load; expected "
            "an order between them, got none");
  EXPECT_EQ(report.faults[0].times, 63);
  EXPECT_EQ(report.faultsInAll, 63);
  EXPECT_TRUE(device->release(out).ok());
}

TEST(EmulatorTest, endsWhenNobodyCanGoOn) {
  // Twice: a machine is used again after a block that did not end.
  for (int times = 0; times < 2; ++times) {
    auto device = openEmulated({});
    emulator::LaunchReport report = run("getStuck", 3, 32, {}, *device);
    ASSERT_EQ(report.faults.size(), 1u) << report.text();
    EXPECT_EQ(report.faults[0].kind, FaultKind::Sync);
    report = run("getStuck", 3, 96, {}, *device);
    ASSERT_FALSE(report.clean());
    EXPECT_NE(report.text().find("the kernel ends by a trap"),
              std::string::npos)
        << report.text();
  }
}

TEST(EmulatorTest, atomicsAreInOrder) {
  for (int workers : {1, 3}) {
    EmulatedOptions options;
    options.workers = workers;
    options.checks.race = workers == 1;
    auto device = openEmulated(options);
    auto *total = static_cast<std::atomic<int64_t> *>(*device->allocate(8));
    *total = 0;
    emulator::LaunchReport report =
        run("count", 9, 64, {KernelArgument::of(total)}, *device);
    EXPECT_TRUE(report.clean()) << report.text();
    EXPECT_EQ(*total, 9 * 63 * 32);
    EXPECT_TRUE(device->release(total).ok());
  }
}
