// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Small kernels, written by hand: what each op of the emulator computes.

#include "GPU/TextKernel.h"

#include <cmath>
#include <gtest/gtest.h>
#include <numeric>

using namespace moira;
using namespace moira::test;
using namespace moira::runtime;

//===----------------------------------------------------------------------===//
// Warps
//===----------------------------------------------------------------------===//

TEST(EmulatorTest, shuffles) {
  TextKernel kernel(R"(
    %lane = nvvm.read.ptx.sreg.laneid : i32
    %full = arith.constant -1 : i32
    %c31 = arith.constant 31 : i32
    %c0 = arith.constant 0 : i32
    %c3 = arith.constant 3 : i32
    %a = nvvm.shfl.sync bfly %full, %lane, %c3, %c31 : i32 -> i32
    %b = nvvm.shfl.sync up %full, %lane, %c3, %c0 : i32 -> i32
    %c = nvvm.shfl.sync down %full, %lane, %c3, %c31
        {return_value_and_is_valid} : i32 -> !llvm.struct<(i32, i1)>
    %cv = llvm.extractvalue %c[0] : !llvm.struct<(i32, i1)>
    %cp = llvm.extractvalue %c[1] : !llvm.struct<(i32, i1)>
    %cw = arith.extui %cp : i1 to i32
    %f = arith.sitofp %lane : i32 to f32
    %df = nvvm.shfl.sync idx %full, %f, %c3, %c31 : f32 -> f32
    %d = arith.fptosi %df : f32 to i32
    %base = llvm.getelementptr %p0[%lane] : (!llvm.ptr<1>, i32) ->
        !llvm.ptr<1>, !llvm.array<5 x i32>
    llvm.store %a, %base : i32, !llvm.ptr<1>
    %q1 = llvm.getelementptr %base[1] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i32
    llvm.store %b, %q1 : i32, !llvm.ptr<1>
    %q2 = llvm.getelementptr %base[2] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i32
    llvm.store %cv, %q2 : i32, !llvm.ptr<1>
    %q3 = llvm.getelementptr %base[3] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i32
    llvm.store %cw, %q3 : i32, !llvm.ptr<1>
    %q4 = llvm.getelementptr %base[4] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i32
    llvm.store %d, %q4 : i32, !llvm.ptr<1>
  )");
  kernel.threads = 32;
  std::vector<int32_t> out = kernel.run<int32_t>(32 * 5);
  for (int lane = 0; lane < 32; ++lane) {
    EXPECT_EQ(out[lane * 5], lane ^ 3);
    EXPECT_EQ(out[lane * 5 + 1], lane < 3 ? lane : lane - 3);
    EXPECT_EQ(out[lane * 5 + 2], lane > 28 ? lane : lane + 3);
    EXPECT_EQ(out[lane * 5 + 3], lane > 28 ? 0 : 1);
    EXPECT_EQ(out[lane * 5 + 4], 3);
  }
}

TEST(EmulatorTest, votes) {
  TextKernel kernel(R"(
    %lane = nvvm.read.ptx.sreg.laneid : i32
    %full = arith.constant -1 : i32
    %c5 = arith.constant 5 : i32
    %small = arith.cmpi ult, %lane, %c5 : i32
    %ballot = nvvm.vote.sync ballot %full, %small -> i32
    %any = nvvm.vote.sync any %full, %small -> i1
    %all = nvvm.vote.sync all %full, %small -> i1
    %one = nvvm.elect.sync -> i1
    %x = arith.extui %any : i1 to i32
    %y = arith.extui %all : i1 to i32
    %z = arith.extui %one : i1 to i32
    %base = llvm.getelementptr %p0[%lane] : (!llvm.ptr<1>, i32) ->
        !llvm.ptr<1>, !llvm.array<4 x i32>
    llvm.store %ballot, %base : i32, !llvm.ptr<1>
    %q1 = llvm.getelementptr %base[1] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i32
    llvm.store %x, %q1 : i32, !llvm.ptr<1>
    %q2 = llvm.getelementptr %base[2] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i32
    llvm.store %y, %q2 : i32, !llvm.ptr<1>
    %q3 = llvm.getelementptr %base[3] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i32
    llvm.store %z, %q3 : i32, !llvm.ptr<1>
  )");
  kernel.threads = 32;
  std::vector<int32_t> out = kernel.run<int32_t>(32 * 4);
  for (int lane = 0; lane < 32; ++lane) {
    EXPECT_EQ(out[lane * 4], 31);
    EXPECT_EQ(out[lane * 4 + 1], 1);
    EXPECT_EQ(out[lane * 4 + 2], 0);
    EXPECT_EQ(out[lane * 4 + 3], lane == 0);
  }
}

/// Sums what threads hold: shuffles within warps, shared memory between them.
static const char *const reduction = R"(
    %tid = nvvm.read.ptx.sreg.tid.x : i32
    %bid = nvvm.read.ptx.sreg.ctaid.x : i32
    %ntid = nvvm.read.ptx.sreg.ntid.x : i32
    %lane = nvvm.read.ptx.sreg.laneid : i32
    %full = arith.constant -1 : i32
    %c31 = arith.constant 31 : i32
    %c32 = arith.constant 32 : i32
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %off = arith.muli %bid, %ntid : i32
    %i = arith.addi %off, %tid : i32
    %src = llvm.getelementptr %p1[%i] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, f32
    %x = llvm.load %src : !llvm.ptr<1> -> f32
    %c16 = arith.constant 16 : i32
    %sum:2 = scf.while (%v = %x, %d = %c16) : (f32, i32) -> (f32, i32) {
      %more = arith.cmpi ugt, %d, %c0 : i32
      scf.condition(%more) %v, %d : f32, i32
    } do {
    ^bb0(%v: f32, %d: i32):
      %o = nvvm.shfl.sync bfly %full, %v, %d, %c31 : f32 -> f32
      %n = arith.addf %v, %o : f32
      %h = arith.shrui %d, %c1 : i32
      scf.yield %n, %h : f32, i32
    }
    %warp = arith.divui %tid, %c32 : i32
    %sm = llvm.mlir.addressof @partial : !llvm.ptr<3>
    %first = arith.cmpi eq, %lane, %c0 : i32
    scf.if %first {
      %to = llvm.getelementptr %sm[%warp] : (!llvm.ptr<3>, i32) ->
        !llvm.ptr<3>, f32
      llvm.store %sum#0, %to : f32, !llvm.ptr<3>
    }
    BARRIER
    %leader = arith.cmpi eq, %tid, %c0 : i32
    scf.if %leader {
      %warps = arith.divui %ntid, %c32 : i32
      %zero = arith.constant 0.0 : f32
      %t = scf.for %w = %c0 to %warps step %c1 iter_args(%a = %zero) -> (f32) :
        i32 {
        %from = llvm.getelementptr %sm[%w] : (!llvm.ptr<3>, i32) ->
        !llvm.ptr<3>, f32
        %y = llvm.load %from : !llvm.ptr<3> -> f32
        %s = arith.addf %a, %y : f32
        scf.yield %s : f32
      }
      %dst = llvm.getelementptr %p0[%bid] : (!llvm.ptr<1>, i32) ->
        !llvm.ptr<1>, f32
      llvm.store %t, %dst : f32, !llvm.ptr<1>
    }
)";

static std::string withBarrier(const char *barrier) {
  std::string text = reduction;
  text.replace(text.find("BARRIER"), 7, barrier);
  return text;
}

static std::vector<float> ramp(int count) {
  std::vector<float> values(count);
  for (int i = 0; i < count; ++i)
    values[i] = float(i * 7919 % 101) - 50;
  return values;
}

TEST(EmulatorTest, reducesBlocks) {
  TextKernel kernel(withBarrier("nvvm.barrier0"));
  kernel.globals =
      "llvm.mlir.global internal @partial() {addr_space = 3 : i32} "
      ": !llvm.array<8 x f32>";
  kernel.threads = 256;
  kernel.blocks = 5;
  std::vector<float> in = ramp(5 * 256);
  kernel.input = in;
  for (int workers : {1, 3})
    for (uint64_t seed : {0, 1, 2}) {
      kernel.options.seed = seed;
      kernel.options.workers = workers;
      if (workers > 1)
        kernel.options.checks = emulator::Checks();
      std::vector<float> out = kernel.run<float>(5);
      for (int block = 0; block < 5; ++block)
        EXPECT_EQ(out[block],
                  std::accumulate(in.begin() + block * 256,
                                  in.begin() + (block + 1) * 256, 0.0f));
    }
}

TEST(EmulatorTest, findsTheMissingBarrier) {
  TextKernel kernel(withBarrier(""));
  kernel.globals =
      "llvm.mlir.global internal @partial() {addr_space = 3 : i32} "
      ": !llvm.array<8 x f32>";
  kernel.threads = 256;
  kernel.input = ramp(256);
  kernel.options.checks.uninit = false;
  kernel.expectFault(emulator::FaultKind::Race,
                     "kernel k, block (0, 0, 0): thread 32 at -:36: llvm.store "
                     "writes shared+4, which thread 0 read at -:47: llvm.load");
  // Nothing was written yet where the first thread runs ahead.
  kernel.options.checks = emulator::Checks();
  kernel.options.checks.uninit = true;
  kernel.expectFault(emulator::FaultKind::Uninit, "which nobody wrote");
}

//===----------------------------------------------------------------------===//
// Matrices and boxes
//===----------------------------------------------------------------------===//

TEST(EmulatorTest, matricesGoThroughSharedMemory) {
  // Each lane stores a pair, and reads the transpose back.
  TextKernel kernel(R"(
    %lane = nvvm.read.ptx.sreg.laneid : i32
    %full = arith.constant -1 : i32
    %c7 = arith.constant 7 : i32
    %c2 = arith.constant 2 : i32
    %c1 = arith.constant 1 : i32
    %c16 = arith.constant 16 : i32
    %sm = llvm.mlir.addressof @tile : !llvm.ptr<3>
    %row = arith.andi %lane, %c7 : i32
    %off = arith.muli %row, %c16 : i32
    %at = llvm.getelementptr %sm[%off] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    %lo = arith.muli %lane, %c2 : i32
    %hi0 = arith.addi %lo, %c1 : i32
    %hi = arith.shli %hi0, %c16 : i32
    %pair = arith.ori %lo, %hi : i32
    nvvm.stmatrix %at, %pair {layout = #nvvm.mma_layout<row>, shape =
        #nvvm.ld_st_matrix_shape<m = 8, n = 8>, eltType =
        #nvvm.ld_st_matrix_elt_type<b16>} : !llvm.ptr<3>, i32
    nvvm.bar.warp.sync %full : i32
    %t = nvvm.ldmatrix %at {num = 1 : i32, layout = #nvvm.mma_layout<col>,
        shape = #nvvm.ld_st_matrix_shape<m = 8, n = 8>, eltType =
        #nvvm.ld_st_matrix_elt_type<b16>} : (!llvm.ptr<3>) -> i32
    %dst = llvm.getelementptr %p0[%lane] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>,
        i32
    llvm.store %t, %dst : i32, !llvm.ptr<1>
  )");
  kernel.globals = "llvm.mlir.global internal @tile() {addr_space = 3 : i32, "
                   "alignment = 128 : i64} : !llvm.array<128 x i8>";
  kernel.threads = 32;
  std::vector<int32_t> out = kernel.run<int32_t>(32);
  for (int lane = 0; lane < 32; ++lane) {
    // Element (r, c) was 8 r + c; the lane has (c, r) and (c + 1, r).
    int row = lane / 4, column = lane % 4 * 2;
    EXPECT_EQ(out[lane] & 0xffff, column * 8 + row);
    EXPECT_EQ(out[lane] >> 16, (column + 1) * 8 + row);
  }
}

/// Loads a box, adds 1 to its elements and stores it elsewhere.
static const char *const boxes = R"(
    %tid = nvvm.read.ptx.sreg.tid.x : i32
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %c8 = arith.constant 8 : i32
    %c4 = arith.constant 4 : i32
    %cm8 = arith.constant -8 : i32
    %bytes = arith.constant 1024 : i32
    %ticks = arith.constant 1000 : i32
    %sm = llvm.mlir.addressof @box : !llvm.ptr<3>
    %bar = llvm.mlir.addressof @bar : !llvm.ptr<3>
    %first = arith.cmpi eq, %tid, %c0 : i32
    scf.if %first {
      nvvm.mbarrier.init %bar, %c1 : !llvm.ptr<3>, i32
      nvvm.fence.mbarrier.init
      nvvm.mbarrier.arrive.expect_tx %bar, %bytes : !llvm.ptr<3>, i32
      %to = llvm.addrspacecast %sm : !llvm.ptr<3> to !llvm.ptr<7>
      nvvm.cp.async.bulk.tensor.shared.cluster.global %to, %map0, %bar,
        box[%cm8, %c4] : !llvm.ptr<7>, !llvm.ptr
    }
    nvvm.barrier0
    nvvm.mbarrier.try_wait.parity %bar, %c0, %ticks : !llvm.ptr<3>, i32, i32
    %p = llvm.getelementptr %sm[%tid] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i16
    %x = llvm.load %p : !llvm.ptr<3> -> i16
    %one = arith.constant 1 : i16
    %y = arith.addi %x, %one : i16
    llvm.store %y, %p : i16, !llvm.ptr<3>
    FENCE
    nvvm.barrier0
    scf.if %first {
      nvvm.cp.async.bulk.tensor.global.shared.cta %map1, %sm, box[%c0, %c0] :
        !llvm.ptr, !llvm.ptr<3>
      nvvm.cp.async.bulk.commit.group
      nvvm.cp.async.bulk.wait_group 0
    }
)";

static TextKernel boxKernel(const char *fence) {
  std::string text = boxes;
  text.replace(text.find("FENCE"), 5, fence);
  TextKernel kernel(text);
  kernel.maps = 2;
  kernel.globals =
      "llvm.mlir.global internal @box() {addr_space = 3 : i32, alignment = "
      "1024 "
      ": i64} : !llvm.array<1024 x i8>\n"
      "llvm.mlir.global internal @bar() {addr_space = 3 : i32, alignment = 8 : "
      "i64} : i64";
  kernel.threads = 512;
  return kernel;
}

/// Tensors of 24 x 10 elements of 16 bits; the box is 64 x 8.
static EncodedTensor mapOf(Device &device, const DeviceArray &array) {
  TensorBox box;
  box.base = array.memory;
  box.sizes[0] = 24;
  box.sizes[1] = 10;
  box.strides[0] = 48;
  box.box[0] = 64;
  box.box[1] = 8;
  Result<EncodedTensor> map = device.encode(box);
  EXPECT_TRUE(map.ok()) << map.status().message;
  return *map;
}

TEST(EmulatorTest, boxesAreSwizzledAndCutOff) {
  TextKernel kernel = boxKernel(
      "nvvm.fence.proxy {kind = #nvvm.proxy_kind<async.shared>, space "
      "= #nvvm.shared_space<cta>}");
  std::vector<uint16_t> in(240);
  std::iota(in.begin(), in.end(), 100);
  kernel.withMaps = [&](Device &device, DeviceArray &out) {
    kernel.arrays.push_back(std::make_unique<DeviceArray>(device, in));
    return std::vector<EncodedTensor>{mapOf(device, *kernel.arrays.back()),
                                      mapOf(device, out)};
  };
  for (uint64_t seed : {0, 3}) {
    kernel.options.seed = seed;
    std::vector<uint16_t> out = kernel.run<uint16_t>(240);
    for (int row = 0; row < 10; ++row)
      for (int column = 0; column < 24; ++column) {
        // The box began 8 to the left of the tensor, in row 4.
        int source =
            row + 4 < 10 && column >= 8 ? in[(row + 4) * 24 + column - 8] : 0;
        EXPECT_EQ(out[row * 24 + column], row < 8 ? source + 1 : 0xffff);
      }
  }
}

TEST(EmulatorTest, findsTheMissingProxyFence) {
  TextKernel kernel = boxKernel("");
  std::vector<uint16_t> in(240);
  kernel.withMaps = [&](Device &device, DeviceArray &out) {
    kernel.arrays.push_back(std::make_unique<DeviceArray>(device, in));
    return std::vector<EncodedTensor>{mapOf(device, *kernel.arrays.back()),
                                      mapOf(device, out)};
  };
  kernel.outputBytes = 480;
  kernel.expectFault(emulator::FaultKind::Race,
                     "expected a proxy fence between them");
}
