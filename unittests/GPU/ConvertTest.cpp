// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// convert-moe-to-gpu, executed: a small interpreter does what the host code
// around the launches says, and the emulated device runs the kernels.

#include "GPU/Harness.h"
#include "moira/Conversion/Passes.h"
#include "moira/Dialect/NV/IR/NVDialect.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/ADT/DenseMap.h"

#include <gtest/gtest.h>
#include <numeric>

using namespace moira;
using namespace moira::test;
using namespace moira::runtime;

namespace {

/// A memref of the device.
struct Memory {
  void *base = nullptr;
  std::vector<int64_t> shape;
};

/// Runs a function of launches.
class HostInterpreter {
public:
  HostInterpreter(Device &device, const EmulatedImage &image)
      : device(device), image(image) {}

  void bind(mlir::Value value, void *base, std::vector<int64_t> shape) {
    memory[value] = {base, std::move(shape)};
  }
  Status run(mlir::func::FuncOp function) {
    for (mlir::Operation &op : function.getBody().front())
      MOIRA_RETURN_IF_ERROR(runOp(op));
    return Status();
  }

private:
  Status runOp(mlir::Operation &op);
  EncodedTensor encode(mlir::nv::TensorMapOp op);
  Status launch(mlir::nv::LaunchOp op);

  Device &device;
  const EmulatedImage &image;
  llvm::DenseMap<mlir::Value, Memory> memory;
  llvm::DenseMap<mlir::Value, int64_t> numbers;
  llvm::DenseMap<mlir::Value, EncodedTensor> maps;
};

} // namespace

EncodedTensor HostInterpreter::encode(mlir::nv::TensorMapOp op) {
  const Memory &source = memory[op.getSource()];
  TensorBox box;
  box.base = source.base;
  box.rank = int32_t(source.shape.size());
  int64_t bytes = 2;
  for (int i = 0; i < box.rank; ++i) {
    int64_t size = source.shape[box.rank - 1 - i];
    box.sizes[i] = size;
    box.box[i] = int32_t(op.getBox()[box.rank - 1 - i]);
    if (i)
      box.strides[i - 1] = bytes;
    bytes *= size;
  }
  Result<EncodedTensor> map = device.encode(box);
  EXPECT_TRUE(map.ok()) << map.status().message;
  return *map;
}

Status HostInterpreter::launch(mlir::nv::LaunchOp op) {
  std::vector<KernelArgument> arguments;
  std::vector<int32_t> words(op.getArguments().size());
  for (auto [i, value] : llvm::enumerate(op.getArguments())) {
    if (memory.count(value)) {
      arguments.push_back(KernelArgument::of(memory[value].base));
    } else if (maps.count(value)) {
      arguments.push_back(KernelArgument::of(maps[value]));
    } else {
      words[i] = int32_t(numbers[value]);
      arguments.push_back(KernelArgument::of(words[i]));
    }
  }
  LaunchShape shape;
  shape.grid.x = int32_t(numbers[op.getGrid()]);
  shape.block.x = int32_t(op.getBlock());
  shape.dynamicShared = op.getShared();
  return launchAndWait(device, image, op.getKernel().getLeafReference().str(),
                       shape, arguments);
}

Status HostInterpreter::runOp(mlir::Operation &op) {
  if (auto constant = llvm::dyn_cast<mlir::arith::ConstantOp>(op)) {
    numbers[constant] =
        llvm::cast<mlir::IntegerAttr>(constant.getValue()).getInt();
  } else if (auto dim = llvm::dyn_cast<mlir::memref::DimOp>(op)) {
    numbers[dim] = memory[dim.getSource()].shape[numbers[dim.getIndex()]];
  } else if (auto cast = llvm::dyn_cast<mlir::arith::IndexCastOp>(op)) {
    numbers[cast] = numbers[cast.getIn()];
  } else if (auto collapse =
                 llvm::dyn_cast<mlir::memref::CollapseShapeOp>(op)) {
    Memory source = memory[collapse.getSrc()];
    memory[collapse] = {source.base,
                        {source.shape[0] * source.shape[1], source.shape[2]}};
  } else if (llvm::isa<mlir::nv::ProcessorsOp>(op)) {
    numbers[op.getResult(0)] = device.processors();
  } else if (auto map = llvm::dyn_cast<mlir::nv::TensorMapOp>(op)) {
    maps[map] = encode(map);
  } else if (auto launched = llvm::dyn_cast<mlir::nv::LaunchOp>(op)) {
    return launch(launched);
  } else if (!llvm::isa<mlir::func::ReturnOp>(op)) {
    return Status(MOIRA_FAILED, "expected an op of launches, got " +
                                    op.getName().getStringRef().str());
  }
  return Status();
}

/// f(rows, sizes, weights, up, scale, out): max(gate, 0) * up + scale[row].
static std::string layer(bool padded) {
  std::string rows = padded ? "3x?x40xbf16" : "?x40xbf16";
  std::string scalars = padded ? "3x?xf32" : "?xf32";
  std::string out = padded ? "3x?x72xf32" : "?x72xf32";
  return "func.func @f(%x: memref<" + rows +
         ">, %s: memref<3xi32>, %g: memref<3x72x40xbf16>, "
         "%u: memref<3x72x40xbf16>, %c: memref<" +
         scalars + ">, %y: memref<" + out +
         ">) {\n"
         "  moe.grouped_matmul rows(%x : memref<" +
         rows +
         ">) groups(%s : memref<3xi32>)\n"
         "      weights(%g, %u : memref<3x72x40xbf16>, memref<3x72x40xbf16>) "
         "nk\n      scalars(%c : memref<" +
         scalars + ">) outs(%y : memref<" + out +
         ">) {\n"
         "  ^bb0(%a: f32, %b: f32, %w: f32):\n"
         "    %z = arith.constant 0.0 : f32\n"
         "    %m = arith.maximumf %a, %z : f32\n"
         "    %p = arith.mulf %m, %b : f32\n"
         "    %r = arith.addf %p, %w : f32\n"
         "    moe.yield %r : f32\n"
         "  }\n  return\n}\n";
}

static uint16_t toBF16(int value) {
  float real = float(value);
  uint32_t bits;
  memcpy(&bits, &real, 4);
  return uint16_t(bits >> 16);
}

struct Variant {
  const char *arch;
  bool padded;
};

class ConvertMoEToGPUTest : public testing::TestWithParam<Variant> {};

INSTANTIATE_TEST_SUITE_P(All, ConvertMoEToGPUTest,
                         testing::Values(Variant{"sm_80", false},
                                         Variant{"sm_80", true},
                                         Variant{"sm_90a", false},
                                         Variant{"sm_90a", true}),
                         [](const auto &info) {
                           return std::string(info.param.arch) +
                                  (info.param.padded ? "padded" : "ragged");
                         });

TEST_P(ConvertMoEToGPUTest, runs) {
  bool padded = GetParam().padded;
  GPUContext context;
  auto module =
      mlir::parseSourceString<mlir::ModuleOp>(layer(padded), &context.get());
  ASSERT_TRUE(module) << context.errors;
  mlir::PassManager manager(&context.get());
  mlir::moe::ConvertMoEToGPUPassOptions passOptions;
  passOptions.arch = GetParam().arch;
  manager.addPass(mlir::moe::createConvertMoEToGPUPass(passOptions));
  ASSERT_TRUE(mlir::succeeded(manager.run(*module))) << context.errors;

  // The kernels apart from their launches.
  auto function = *module->getOps<mlir::func::FuncOp>().begin();
  mlir::OwningOpRef<mlir::ModuleOp> kernels = module->clone();
  kernels->lookupSymbol("f")->erase();
  auto image = EmulatedImage::compile(*kernels, "moira_gpu");
  ASSERT_TRUE(image) << context.errors;

  EmulatedOptions options;
  options.checks = emulator::Checks::all();
  options.seed = 5;
  auto device = openEmulated(options);
  std::vector<int32_t> sizes = {5, 0, 20};
  int64_t room = 22, count = padded ? 3 * room : 25;
  std::vector<uint16_t> x, g, u;
  for (int64_t i = 0; i < count * 40; ++i)
    x.push_back(toBF16(int(i * 7 % 5) - 2));
  for (int64_t i = 0; i < 3 * 72 * 40; ++i) {
    g.push_back(toBF16(int(i * 11 % 3) - 1));
    u.push_back(toBF16(int(i * 13 % 5) - 2));
  }
  std::vector<float> c(count);
  std::iota(c.begin(), c.end(), 0.5f);
  DeviceArray dx(*device, x), ds(*device, sizes), dg(*device, g),
      du(*device, u), dc(*device, c), dy(*device, count * 72 * 4);
  HostInterpreter host(*device, *image);
  auto bind = [&](int i, DeviceArray &array, std::vector<int64_t> shape) {
    host.bind(function.getArgument(i), array.memory, std::move(shape));
  };
  auto rows = [&](std::vector<int64_t> inner) {
    std::vector<int64_t> shape =
        padded ? std::vector<int64_t>{3, room} : std::vector<int64_t>{count};
    shape.insert(shape.end(), inner.begin(), inner.end());
    return shape;
  };
  bind(0, dx, rows({40}));
  bind(1, ds, {3});
  bind(2, dg, {3, 72, 40});
  bind(3, du, {3, 72, 40});
  bind(4, dc, rows({}));
  bind(5, dy, rows({72}));
  Status status = host.run(function);
  ASSERT_TRUE(status.ok()) << status.message << device->takeReport().text();

  auto number = [](uint16_t bits) {
    uint32_t wide = uint32_t(bits) << 16;
    float value;
    memcpy(&value, &wide, 4);
    return value;
  };
  std::vector<float> y = dy.values<float>();
  int64_t ragged = 0;
  for (int64_t e = 0; e < 3; ++e)
    for (int64_t r = 0; r < sizes[e]; ++r) {
      int64_t row = padded ? e * room + r : ragged++;
      for (int64_t n = 0; n < 72; ++n) {
        float gate = 0, up = 0;
        for (int64_t k = 0; k < 40; ++k) {
          float value = number(x[row * 40 + k]);
          gate += value * number(g[(e * 72 + n) * 40 + k]);
          up += value * number(u[(e * 72 + n) * 40 + k]);
        }
        ASSERT_EQ(y[row * 72 + n], std::max(gate, 0.0f) * up + c[row])
            << "row " << row << ", column " << n;
      }
    }
}
