// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "GPU/GroupedCase.h"

#include "moira/Dialect/MoE/IR/MoEDialect.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

#include <gtest/gtest.h>

using namespace moira;
using namespace moira::test;
using mlir::moe::GroupedKernel;

/// x0 (silu) * x1 + vector + element, times scalar; with integers max(x0, 0)
/// instead of silu.
static void fillEpilogue(mlir::Block &block, mlir::MLIRContext &context,
                         const GroupedCase &grouped,
                         const GroupedKernel &kernel) {
  mlir::Location loc = mlir::UnknownLoc::get(&context);
  mlir::OpBuilder b(&context);
  b.setInsertionPointToStart(&block);
  mlir::Type f32 = b.getF32Type();
  auto add = [&](llvm::ArrayRef<mlir::Type> types) {
    llvm::SmallVector<mlir::Value> values;
    for (mlir::Type type : types)
      values.push_back(block.addArgument(type, loc));
    return values;
  };
  auto sums = add(llvm::SmallVector<mlir::Type>(kernel.sums(), f32));
  auto vectors = add(kernel.vectors), elements = add(kernel.elements),
       scalars = add(kernel.scalars);
  auto wide = [&](mlir::Value value) -> mlir::Value {
    return value.getType().isF32()
               ? value
               : mlir::arith::ExtFOp::create(b, loc, f32, value);
  };
  mlir::Value value;
  auto constant = [&](float number) -> mlir::Value {
    return mlir::arith::ConstantOp::create(b, loc, b.getF32FloatAttr(number));
  };
  if (grouped.integers) {
    value = mlir::arith::MaximumFOp::create(b, loc, sums[0], constant(0));
  } else {
    mlir::Value power = mlir::math::ExpOp::create(
        b, loc, mlir::arith::NegFOp::create(b, loc, sums[0]));
    value = mlir::arith::DivFOp::create(
        b, loc, sums[0],
        mlir::arith::AddFOp::create(b, loc, power, constant(1)));
  }
  for (mlir::Value other : llvm::ArrayRef(sums).drop_front())
    value = mlir::arith::MulFOp::create(b, loc, value, other);
  for (mlir::Value other : vectors)
    value = mlir::arith::AddFOp::create(b, loc, value, wide(other));
  for (mlir::Value other : elements)
    value = mlir::arith::AddFOp::create(b, loc, value, wide(other));
  for (mlir::Value other : scalars)
    value = mlir::arith::MulFOp::create(b, loc, value, wide(other));
  llvm::SmallVector<mlir::Value> results;
  for (mlir::Type type : kernel.results) {
    if (!results.empty())
      value = mlir::arith::MulFOp::create(b, loc, value, constant(2));
    results.push_back(type.isF32()
                          ? value
                          : mlir::arith::TruncFOp::create(b, loc, type, value));
  }
  mlir::moe::YieldOp::create(b, loc, results);
}

GroupedKernel moira::test::describeCase(const GroupedCase &grouped,
                                        mlir::MLIRContext &context) {
  mlir::Builder b(&context);
  GroupedKernel kernel;
  kernel.name = "grouped";
  if (grouped.isSingle())
    kernel.element = b.getF32Type();
  else
    kernel.element = grouped.isHalf ? mlir::Type(b.getF16Type())
                                    : mlir::Type(b.getBF16Type());
  kernel.results.assign(grouped.hasTwoResults ? 2 : 1,
                        grouped.f32Result ? b.getF32Type() : kernel.element);
  kernel.experts = grouped.sizes.size();
  kernel.n = grouped.n;
  kernel.k = grouped.k;
  kernel.weights = grouped.weights;
  kernel.layout = grouped.layout;
  if (grouped.hasPanels())
    kernel.panelWidth = grouped.panelWidth;
  kernel.columnBlocks = grouped.columnBlocks;
  kernel.chains = grouped.chains;
  kernel.chained = grouped.chained;
  kernel.contraction = grouped.contraction;
  kernel.padded = grouped.stride > 0;
  kernel.gather = grouped.gather;
  if (grouped.bias)
    kernel.bias.assign(kernel.sums(), kernel.element);
  if (grouped.fullEpilogue) {
    kernel.vectors = {kernel.element};
    kernel.elements = {kernel.element};
    kernel.scalars = {b.getF32Type()};
  }
  kernel.schedule = grouped.schedule;
  return kernel;
}

mlir::OwningOpRef<mlir::ModuleOp>
moira::test::buildCase(GPUContext &context, const GroupedCase &grouped,
                       int64_t *sharedBytes) {
  mlir::MLIRContext &own = context.get();
  mlir::Location loc = mlir::UnknownLoc::get(&own);
  mlir::OwningOpRef<mlir::ModuleOp> module = mlir::ModuleOp::create(loc);
  mlir::OpBuilder b(module->getBodyRegion());
  auto gpuModule = mlir::gpu::GPUModuleOp::create(b, loc, "kernels");
  GroupedKernel kernel = describeCase(grouped, own);
  mlir::Block epilogue;
  if (grouped.fullEpilogue) {
    fillEpilogue(epilogue, own, grouped, kernel);
    kernel.epilogue = &epilogue;
  }
  if (mlir::failed(mlir::moe::checkKernel(
          kernel, [&] { return gpuModule.emitError(); }))) {
    ADD_FAILURE() << context.errors;
    return module;
  }
  mlir::moe::buildGroupedKernel(gpuModule, kernel);
  if (grouped.edit)
    grouped.edit(gpuModule);
  if (sharedBytes)
    *sharedBytes = kernel.sharedBytes();
  return module;
}
