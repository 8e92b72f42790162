// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Device/DeviceProgram.h"

#include <cstring>
#include <dlfcn.h>
#include <gtest/gtest.h>

using namespace moira;
using namespace moira::test;
using namespace moira::runtime;

const char test::deviceCode[] = ".version 8.0\n";

Manifest test::manifestOf(const std::string &arch) {
  std::string text = R"({
    "moira": {"version": "0.1.0", "abi": )" +
                     std::to_string(MOIRA_ABI_VERSION) + R"(},
    "entries": [{"name": "main",
      "inputs": [{"name": "x", "dtype": "i32", "shape": [-1]},
                 {"name": "n", "dtype": "i64", "shape": []}],
      "results": [{"dtype": "i32", "shape": [-1]}],
      "layers": [{"index": 0, "experts": 2, "top_k": 1}],
      "variants": [{"name": "only", "step": "step",
                    "workspace": "workspace"}]}],
    "parameters": [{"name": "p", "slices": 1,
      "source": {"dtype": "i32", "shape": [2]}, "stacked": false,
      "logical_shape": [2], "packed_slice_bytes": 8, "pack": "pack"}],
    "device": {"abi": 1,
      "images": [{"name": "kernels", "arch": ")" +
                     arch + R"(", "ptx": [0, 13]}],
      "kernels": [{"name": "scale", "image": 0, "threads": 1, "shared": 0,
                   "parameters": [8, 4]}]}
  })";
  Result<Manifest> manifest = Manifest::parse(text);
  EXPECT_TRUE(manifest.ok()) << manifest.status().message;
  return *manifest;
}

static int64_t workspaceEntry(moira_ctx *, const moira_buffer *) { return 64; }

static void packEntry(moira_ctx *, const void *source, void *packed) {
  memcpy(packed, source, 8);
}

const moira_device *test::tableOf(moira_ctx *ctx) {
  return static_cast<const moira_device *>(ctx->queues);
}

void test::stepEntry(moira_ctx *ctx, const moira_buffer *inputs) {
  const moira_device *device = tableOf(ctx);
  int64_t size = inputs[0].shape[0];
  void *place = ctx->api->alloc(ctx, 0, size * 4);
  void *result = ctx->api->result(ctx, 0, 1, &size);
  if (!place || !result)
    return;
  device->copy(ctx, place, inputs[0].data, size * 4);
  int32_t factor = 0;
  device->read(ctx, &factor, static_cast<const char *>(ctx->params[0].data) + 4,
               4);
  factor *= static_cast<int32_t>(*static_cast<int64_t *>(inputs[1].data));
  void *arguments[] = {&place, &factor};
  device->launch(ctx, 0, size, arguments);
  device->launch(ctx, 0, 0, arguments); // no block: nothing
  device->copy(ctx, result, place, size * 4);
  // Two numbers, of memory of the device.
  int64_t counts = (int64_t(3) << 32) | 5;
  void *loads = ctx->api->alloc(ctx, 0, 8);
  device->write(ctx, loads, &counts, 8);
  counts = 0; // it was read at once
  ctx->api->loads(ctx, 0, 2, static_cast<int32_t *>(loads),
                  static_cast<int32_t *>(loads));
}

std::shared_ptr<const Program> test::programOf(Manifest manifest,
                                               moira_step_entry step) {
  auto resolve = [&](const char *symbol) -> void * {
    std::string name = symbol;
    if (name == "step")
      return reinterpret_cast<void *>(step);
    if (name == "workspace")
      return reinterpret_cast<void *>(&workspaceEntry);
    return name == "pack" ? reinterpret_cast<void *>(&packEntry) : nullptr;
  };
  Result<std::shared_ptr<const Program>> program = Program::create(
      std::move(manifest), resolve, nullptr, {}, std::string_view(deviceCode));
  EXPECT_TRUE(program.ok()) << program.status().message;
  return *program;
}

int &test::fakeNumber(const char *name) {
  void *library = dlopen(MOIRA_FAKE_DRIVER, RTLD_NOW | RTLD_LOCAL);
  EXPECT_TRUE(library) << dlerror();
  return *static_cast<int *>(dlsym(library, name));
}

SessionOptions test::optionsWithDevice() {
  Result<std::unique_ptr<Device>> device = openCuda(0, MOIRA_FAKE_DRIVER);
  EXPECT_TRUE(device.ok()) << device.status().message;
  SessionOptions options;
  options.device = std::shared_ptr<Device>(std::move(*device));
  return options;
}

std::unique_ptr<Session> test::sessionOf(moira_step_entry step) {
  Result<std::unique_ptr<Session>> session =
      Session::create(programOf(manifestOf(), step), optionsWithDevice());
  EXPECT_TRUE(session.ok()) << session.status().message;
  int32_t weights[] = {1, 7};
  EXPECT_OK((*session)->bind("p", {DataType::I32, {2}, weights}));
  return std::move(*session);
}

int32_t *test::onDevice(Device &device, const std::vector<int32_t> &values) {
  int64_t bytes = int64_t(values.size() * sizeof(int32_t));
  DeviceQueue queue = *device.createQueue();
  void *memory = *device.allocate(bytes);
  EXPECT_OK(device.copyIn(memory, values.data(), bytes, queue));
  EXPECT_OK(device.destroyQueue(queue));
  return static_cast<int32_t *>(memory);
}
