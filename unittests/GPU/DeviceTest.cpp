// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// The emulated device itself: memory, queues, events, and launches that are
// wrong.

#include "GPU/TextKernel.h"
#include "device/emulated/Queues.h"

using namespace moira;
using namespace moira::test;
using namespace moira::runtime;

static std::unique_ptr<EmulatedDevice> open(uint64_t seed = 0) {
  EmulatedOptions options;
  options.seed = seed;
  return openEmulated(options);
}

TEST(EmulatedDeviceTest, copies) {
  auto device = open();
  EXPECT_STREQ(device->kind(), "emulated");
  std::vector<int32_t> values = {1, 2, 3, 4};
  DeviceArray a(*device, values), b(*device, 16);
  DeviceQueue queue = *device->createQueue();
  EXPECT_TRUE(device->copyWithin(b.memory, a.memory, 16, queue).ok());
  EXPECT_TRUE(device->fill(a.memory, 0, 8, queue).ok());
  EXPECT_TRUE(device->copyOut(nullptr, a.memory, 0, queue).ok());
  EXPECT_TRUE(device->synchronize(queue).ok());
  EXPECT_EQ(b.values<int32_t>(), values);
  EXPECT_EQ(a.values<int32_t>(), (std::vector<int32_t>{0, 0, 3, 4}));
  EXPECT_TRUE(device->destroyQueue(queue).ok());
}

TEST(EmulatedDeviceTest, refusesForeignMemory) {
  auto device = open();
  int local = 0;
  DeviceQueue queue = *device->createQueue();
  Status status = device->copyIn(&local, &local, 4, queue);
  EXPECT_EQ(status.message, "emulated device: expected 4 bytes within an "
                            "allocation, got an address outside");
  DeviceArray array(*device, 8);
  EXPECT_FALSE(device->fill(array.memory, 0, 9, queue).ok());
  EXPECT_EQ(device->release(&local).message,
            "emulated device: expected memory of this device, got other "
            "memory");
  EXPECT_TRUE(device->release(nullptr).ok());
  EXPECT_FALSE(device->allocate(-1).ok());
  DeviceArray empty(*device, 0);
  EXPECT_NE(empty.memory, nullptr);
  EXPECT_FALSE(device->synchronize(queue + 1).ok());
  EXPECT_FALSE(device->destroyEvent(99).ok());
}

TEST(EmulatedDeviceTest, eventsOrderQueues) {
  // With the event the second queue sees what the first wrote, whatever the
  // order; without it some order shows the difference.
  bool differs = false;
  for (uint64_t seed = 0; seed < 20; ++seed)
    for (bool ordered : {true, false}) {
      auto device = open(seed);
      DeviceArray array(*device, 4), copy(*device, 4);
      DeviceQueue first = *device->createQueue(),
                  second = *device->createQueue();
      Event event = *device->createEvent();
      // A wait for what was never recorded is none.
      EXPECT_TRUE(device->wait(second, event).ok());
      EXPECT_TRUE(device->fill(array.memory, 1, 4, first).ok());
      EXPECT_TRUE(device->record(event, first).ok());
      if (ordered)
        EXPECT_TRUE(device->wait(second, event).ok());
      EXPECT_TRUE(
          device->copyWithin(copy.memory, array.memory, 4, second).ok());
      EXPECT_FALSE(device->destroyEvent(event).ok());
      EXPECT_TRUE(device->synchronize(second).ok());
      EXPECT_TRUE(device->synchronize(first).ok());
      EXPECT_TRUE(device->destroyEvent(event).ok());
      int32_t value = copy.values<int32_t>().front();
      if (ordered)
        EXPECT_EQ(value, 0x01010101);
      else
        differs |= value != 0x01010101;
    }
  EXPECT_TRUE(differs);
}

TEST(EmulatedDeviceTest, failuresStayInTheirQueue) {
  EmulatedQueues queues;
  DeviceQueue bad = queues.createQueue(), good = queues.createQueue();
  int ran = 0;
  EXPECT_TRUE(
      queues.push(bad, [] { return Status(MOIRA_FAILED, "first"); }).ok());
  EXPECT_TRUE(queues
                  .push(bad,
                        [&] {
                          ++ran;
                          return Status();
                        })
                  .ok());
  EXPECT_TRUE(queues
                  .push(good,
                        [&] {
                          ++ran;
                          return Status();
                        })
                  .ok());
  EXPECT_EQ(queues.synchronize(bad).message, "first");
  EXPECT_TRUE(queues.synchronize(bad).ok());
  EXPECT_TRUE(queues.synchronize(good).ok());
  EXPECT_EQ(ran, 1);
}

TEST(EmulatedDeviceTest, refusesWrongLaunches) {
  GPUContext context;
  auto image = compileText(context, R"(
    module { gpu.module @kernels {
      llvm.func @k(%a: !llvm.ptr<1>, %b: i32) attributes {gpu.kernel,
        nvvm.kernel, nvvm.reqntid = array<i32: 64, 1, 1>} {
        llvm.return
      }
    } }
  )");
  ASSERT_TRUE(image) << context.errors;
  auto device = open();
  void *pointer = nullptr;
  int32_t number = 0;
  std::vector<KernelArgument> good = {KernelArgument::of(pointer),
                                      KernelArgument::of(number)};
  LaunchShape shape;
  shape.block.x = 64;
  EXPECT_TRUE(launchAndWait(*device, *image, "k", shape, good).ok());
  auto expect = [&](LaunchShape wrong, std::vector<KernelArgument> arguments,
                    const char *text) {
    Status status = launchAndWait(*device, *image, "k", wrong, arguments);
    EXPECT_EQ(status.message, text);
  };
  expect(shape, {good[0]}, "kernel k: expected 2 arguments, got 1");
  expect(shape, {good[1], good[1]},
         "kernel k: expected argument 0 of 8 bytes, got 4");
  LaunchShape wrong = shape;
  wrong.block.x = 32;
  expect(wrong, good, "kernel k: expected a block of 64 threads, got 32");
  wrong = shape;
  wrong.grid.y = 0;
  expect(wrong, good,
         "kernel k: expected a grid of 1 to 2147483647, 65535, 65535, got 1, "
         "0, 1");
  wrong = shape;
  wrong.dynamicShared = 1 << 20;
  expect(wrong, good,
         "kernel k: expected at most 232448 bytes of shared memory, got "
         "1048576");
  wrong = shape;
  wrong.cluster.x = 2;
  expect(wrong, good, "kernel k: clusters are not emulated");
  EXPECT_EQ(launchAndWait(*device, *image, "other", shape, good).message,
            "emulated device: expected a kernel 'other' in the module, got "
            "none");
  moira_emu_module old = *image->description;
  old.version = 0;
  EXPECT_EQ(device->load(&old, 0).status().message,
            "emulated module: expected version " +
                std::to_string(MOIRA_EMU_VERSION) + ", got 0");
  old.version = MOIRA_EMU_VERSION;
  old.functions = 1;
  EXPECT_FALSE(device->load(&old, 0).ok());
}

TEST(EmulatedDeviceTest, refusesWrongTensorMaps) {
  auto device = open();
  DeviceArray array(*device, 4096);
  TensorBox good;
  good.base = array.memory;
  good.sizes[0] = good.sizes[1] = 32;
  good.strides[0] = 64;
  good.box[0] = good.box[1] = 8;
  EXPECT_TRUE(device->encode(good).ok());
  auto expect = [&](const TensorBox &box, const char *text) {
    EXPECT_EQ(device->encode(box).status().message,
              std::string("tensor map: ") + text);
  };
  TensorBox box = good;
  box.rank = 6;
  expect(box, "expected 1 to 5 dimensions, got 6");
  box = good;
  box.base = static_cast<char *>(array.memory) + 2;
  expect(box, "expected a base aligned to 16 bytes, got another");
  box = good;
  box.strides[0] = 66;
  expect(box, "expected strides of multiples of 16 bytes, got 66");
  box = good;
  box.box[0] = 128;
  expect(box, "expected a box row of at most 128 bytes, got 256");
  box = good;
  box.box[1] = 257;
  expect(box, "expected a box of 1 to 256 per dimension, got 257");
  box = good;
  box.sizes[1] = 0;
  expect(box, "expected sizes of 1 to 4294967296, got 0");
  box = good;
  box.box[0] = 4;
  expect(box, "expected a box row of a multiple of 16 bytes, got 8");
}

TEST(EmulatedDeviceTest, readsChecks) {
  emulator::Checks checks;
  EXPECT_TRUE(emulator::parseChecks("race,bounds", checks));
  EXPECT_TRUE(checks.race && checks.bounds && !checks.sync);
  EXPECT_TRUE(emulator::parseChecks("all", checks));
  EXPECT_TRUE(checks.uninit && checks.counters);
  EXPECT_TRUE(emulator::parseChecks("", checks));
  EXPECT_FALSE(checks.any());
  EXPECT_FALSE(emulator::parseChecks("rase", checks));
  EXPECT_FALSE(emulator::parseChecks("race,", checks));
}
