// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// What the checks of the emulated device say about kernels that are wrong.

#include "GPU/TextKernel.h"

using namespace moira;
using namespace moira::test;
using namespace moira::runtime;
using emulator::FaultKind;

/// One i32 at place %i of the output.
static const char *const storeAt = R"(
    %to = llvm.getelementptr %p0[%i] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    llvm.store %i, %to : i32, !llvm.ptr<1>
)";

TEST(FaultTest, globalBounds) {
  TextKernel kernel(std::string("%i = nvvm.read.ptx.sreg.tid.x : i32") +
                    storeAt);
  kernel.threads = 16;
  kernel.run<int32_t>(16);
  kernel.outputBytes = 60;
  kernel.expectFault(FaultKind::Bounds,
                     "writes 4 bytes at offset 60 of an allocation of 60");
}

TEST(FaultTest, outsideAllAllocations) {
  TextKernel kernel(R"(
    %zero = llvm.mlir.zero : !llvm.ptr<1>
    %x = llvm.load %zero : !llvm.ptr<1> -> f32
    llvm.store %x, %p0 : f32, !llvm.ptr<1>
  )");
  kernel.expectFault(FaultKind::Bounds, "outside all allocations");
}

static const char *const sharedArray =
    "llvm.mlir.global internal @s() {addr_space = 3 : i32} : "
    "!llvm.array<8 x i32>";

TEST(FaultTest, sharedBounds) {
  TextKernel kernel(R"(
    %i = nvvm.read.ptx.sreg.tid.x : i32
    %s = llvm.mlir.addressof @s : !llvm.ptr<3>
    %to = llvm.getelementptr %s[%i] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i32
    llvm.store %i, %to : i32, !llvm.ptr<3>
  )");
  kernel.globals = sharedArray;
  kernel.threads = 9;
  kernel.expectFault(FaultKind::Bounds,
                     "writes 4 bytes at shared+32; expected an end within 32");
}

TEST(FaultTest, barrierThatNotAllReach) {
  TextKernel kernel(R"(
    %i = nvvm.read.ptx.sreg.tid.x : i32
    %c32 = arith.constant 32 : i32
    %c64 = arith.constant 64 : i32
    %c1 = arith.constant 1 : i32
    %low = arith.cmpi ult, %i, %c32 : i32
    scf.if %low {
      nvvm.barrier id = %c1 number_of_threads = %c64
    }
  )");
  kernel.threads = 64;
  kernel.expectFault(FaultKind::Deadlock,
                     "32 threads (first 0) in a barrier at ");
}

TEST(FaultTest, barriersThatDisagree) {
  TextKernel kernel(R"(
    %i = nvvm.read.ptx.sreg.tid.x : i32
    %c32 = arith.constant 32 : i32
    %c64 = arith.constant 64 : i32
    %c96 = arith.constant 96 : i32
    %c1 = arith.constant 1 : i32
    %low = arith.cmpi ult, %i, %c32 : i32
    %n = arith.select %low, %c64, %c96 : i32
    nvvm.barrier id = %c1 number_of_threads = %n
  )");
  kernel.threads = 96;
  kernel.expectFault(FaultKind::Sync, "expected 64 threads at barrier 1");
  TextKernel odd(R"(
    %c33 = arith.constant 33 : i32
    %c1 = arith.constant 1 : i32
    nvvm.barrier id = %c1 number_of_threads = %c33
  )");
  odd.threads = 64;
  odd.expectFault(FaultKind::Sync, "expected a multiple of 32");
}

TEST(FaultTest, collectivesThatDisagree) {
  TextKernel kernel(R"(
    %lane = nvvm.read.ptx.sreg.laneid : i32
    %full = arith.constant -1 : i32
    %c16 = arith.constant 16 : i32
    %c31 = arith.constant 31 : i32
    %low = arith.cmpi ult, %lane, %c16 : i32
    scf.if %low {
      nvvm.bar.warp.sync %full : i32
    } else {
      %x = nvvm.shfl.sync bfly %full, %lane, %c16, %c31 : i32 -> i32
      llvm.store %x, %p0 : i32, !llvm.ptr<1>
    }
  )");
  kernel.threads = 32;
  kernel.expectFault(FaultKind::Sync,
                     "expected all threads of a collective in one op");
}

TEST(FaultTest, maskWithoutOneself) {
  TextKernel kernel(R"(
    %mask = arith.constant 1 : i32
    nvvm.bar.warp.sync %mask : i32
  )");
  kernel.threads = 32;
  kernel.expectFault(FaultKind::Sync,
                     "expected a mask with this thread's lane 1, got 1");
}

TEST(FaultTest, mbarriers) {
  auto check = [](const char *body, const char *text) {
    TextKernel kernel(std::string(R"(
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %bar = llvm.mlir.addressof @s : !llvm.ptr<3>
    )") + body);
    kernel.globals = "llvm.mlir.global internal @s() {addr_space = 3 : i32, "
                     "alignment = 8 : i64} : !llvm.array<8 x i32>";
    kernel.expectFault(FaultKind::Sync, text);
  };
  check("%t = nvvm.mbarrier.arrive %bar : !llvm.ptr<3> -> i64",
        "expected an initialised mbarrier at shared+0, got none");
  check("nvvm.mbarrier.init %bar, %c0 : !llvm.ptr<3>, i32",
        "expected 1 to 1048575 arrivals, got 0");
  check(R"(
    nvvm.mbarrier.init %bar, %c1 : !llvm.ptr<3>, i32
    nvvm.mbarrier.init %bar, %c1 : !llvm.ptr<3>, i32
  )",
        "expected no mbarrier at shared+0, got one that is in use");
  check(R"(
    nvvm.mbarrier.init %bar, %c1 : !llvm.ptr<3>, i32
    llvm.store %c1, %bar : i32, !llvm.ptr<3>
  )",
        "got an ordinary access");
  check(R"(
    %c2 = arith.constant 2 : i32
    nvvm.mbarrier.init %bar, %c1 : !llvm.ptr<3>, i32
    %t = nvvm.mbarrier.arrive %bar, %c2 : !llvm.ptr<3> -> i64
  )",
        "expected at most 1 arrivals in this phase of the mbarrier, got 2");
  check(R"(
    %odd = llvm.getelementptr %bar[1] : (!llvm.ptr<3>) -> !llvm.ptr<3>, i32
    nvvm.mbarrier.init %odd, %c1 : !llvm.ptr<3>, i32
  )",
        "expected an address aligned to 8 bytes");
}

TEST(FaultTest, waitsForNobody) {
  TextKernel kernel(R"(
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %bar = llvm.mlir.addressof @s : !llvm.ptr<3>
    nvvm.mbarrier.init %bar, %c1 : !llvm.ptr<3>, i32
    nvvm.mbarrier.try_wait.parity %bar, %c0, %c1 : !llvm.ptr<3>, i32, i32
  )");
  kernel.globals = "llvm.mlir.global internal @s() {addr_space = 3 : i32, "
                   "alignment = 8 : i64} : i64";
  kernel.expectFault(FaultKind::Deadlock,
                     "1 thread (first 0) in a wait for an mbarrier at ");
}

TEST(FaultTest, blocksThatWriteTheSame) {
  TextKernel kernel(R"(
    %i = nvvm.read.ptx.sreg.ctaid.x : i32
    llvm.store %i, %p0 : i32, !llvm.ptr<1>
  )");
  kernel.blocks = 2;
  kernel.expectFault(FaultKind::Race, "which a thread of block 0 wrote at ");
  TextKernel atomic(R"(
    %c1 = arith.constant 1 : i32
    %old = llvm.atomicrmw add %p0, %c1 monotonic : !llvm.ptr<1>, i32
  )");
  atomic.blocks = 5;
  atomic.threads = 32;
  EXPECT_EQ(atomic.run<int32_t>(1).front(), -1 + 5 * 32);
}

/// Lanes of a warp that store the same value to one place are one store;
/// different values, or another warp's, are a race.
TEST(FaultTest, storesOfOneValue) {
  for (bool isSame : {true, false})
    for (int32_t threads : {32, 64}) {
      TextKernel kernel(std::string(R"(
        %i = nvvm.read.ptx.sreg.tid.x : i32
        %c32 = llvm.mlir.constant(32 : i32) : i32
        %x = llvm.)") + (isSame ? "udiv" : "urem") +
                        R"( %i, %c32 : i32
        llvm.store %x, %p0 : i32, !llvm.ptr<1>
      )");
      kernel.threads = threads;
      if (isSame && threads == 32)
        EXPECT_EQ(kernel.run<int32_t>(1)[0], 0);
      else
        kernel.expectFault(FaultKind::Race, "llvm.store writes");
    }
}

TEST(FaultTest, copiesThatNobodyWaitsFor) {
  TextKernel kernel(R"(
    %s = llvm.mlir.addressof @s : !llvm.ptr<3>
    nvvm.cp.async.shared.global %s, %p1, 16, cache = cg : !llvm.ptr<3>,
        !llvm.ptr<1>
    nvvm.cp.async.commit.group
  )");
  kernel.globals = "llvm.mlir.global internal @s() {addr_space = 3 : i32, "
                   "alignment = 16 : i64} : !llvm.array<8 x i32>";
  kernel.input = {1, 2, 3, 4};
  kernel.expectFault(FaultKind::Sync, "that nobody waited for");
  kernel.input = {1};
  kernel.expectFault(FaultKind::Bounds, "reads 16 bytes at offset 0");
}

TEST(FaultTest, readsBeforeTheWait) {
  TextKernel kernel(R"(
    %s = llvm.mlir.addressof @s : !llvm.ptr<3>
    nvvm.cp.async.shared.global %s, %p1, 16, cache = cg : !llvm.ptr<3>,
        !llvm.ptr<1>
    nvvm.cp.async.commit.group
    %x = llvm.load %s : !llvm.ptr<3> -> i32
    nvvm.cp.async.wait.group 0
    llvm.store %x, %p0 : i32, !llvm.ptr<1>
  )");
  kernel.globals = "llvm.mlir.global internal @s() {addr_space = 3 : i32, "
                   "alignment = 16 : i64} : !llvm.array<8 x i32>";
  kernel.input = {1, 2, 3, 4};
  kernel.expectFault(FaultKind::Race, "which cp.async of thread 0 wrote at ");
  // Without a check it reads what cannot be mistaken for a value.
  kernel.options.checks = emulator::Checks();
  EXPECT_EQ(kernel.run<uint32_t>(1).front(), 0xffffffffu);
}

TEST(FaultTest, countsSectorsAndBanks) {
  auto count = [](const char *stride) {
    TextKernel kernel(std::string(R"(
    %i = nvvm.read.ptx.sreg.tid.x : i32
    %stride = arith.constant )") +
                      stride + R"( : i32
    %j = arith.muli %i, %stride : i32
    %s = llvm.mlir.addressof @s : !llvm.ptr<3>
    %to = llvm.getelementptr %s[%j] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i32
    llvm.store %i, %to : i32, !llvm.ptr<3>
    %out = llvm.getelementptr %p0[%j] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    llvm.store %i, %out : i32, !llvm.ptr<1>
  )");
    kernel.globals = "llvm.mlir.global internal @s() {addr_space = 3 : i32} : "
                     "!llvm.array<1024 x i32>";
    kernel.threads = 64;
    kernel.run<int32_t>(1024);
    return kernel.report.counters;
  };
  emulator::Counters dense = count("1"), wide = count("8");
  EXPECT_EQ(dense.bankConflicts, 0u);
  EXPECT_EQ(dense.sectors, 8u);
  EXPECT_EQ(dense.neededSectors, 8u);
  // Eight lanes of each warp share a bank, and each has a sector of its own.
  EXPECT_EQ(wide.bankConflicts, 2u * 7);
  EXPECT_EQ(wide.sectors, 64u);
  EXPECT_EQ(wide.neededSectors, 8u);
}
