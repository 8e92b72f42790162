// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// The style of sm_80 for 16-bit elements: warps read tiles by ldmatrix and
// multiply by mma.sync.

#include "StagedKernel.h"

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

namespace {
class CpAsyncKernel : public StagedKernel {
public:
  using StagedKernel::StagedKernel;

private:
  SmallVector<Value> multiply(Value stage, ValueRange sums) override;
};
} // namespace

SmallVector<Value> CpAsyncKernel::multiply(Value stage, ValueRange start) {
  MLIRContext *context = b.builder.getContext();
  SmallVector<Value> sums(start);
  auto four =
      LLVM::LLVMStructType::getLiteral(context, SmallVector<Type>(4, b.i32));
  auto fourSums =
      LLVM::LLVMStructType::getLiteral(context, SmallVector<Type>(4, b.f32));
  auto shape = NVVM::LdStMatrixShapeAttr::get(context, 8, 8);
  bool isHalf = kernel.element.isF16();
  auto pair = VectorType::get({2}, kernel.element);
  auto type = isHalf ? NVVM::MMATypes::f16 : NVVM::MMATypes::bf16;
  std::array<NVVM::MMATypes, 2> types{type, type};
  std::array<NVVM::MMALayout, 2> layouts{NVVM::MMALayout::row,
                                         NVVM::MMALayout::col};

  auto load = [&](Value offset, bool transposed) {
    Value loaded = b.makeHere<NVVM::LdMatrixOp>(
        __FILE__, __LINE__, four, b.at(shared, offset), uint32_t(4),
        transposed ? NVVM::MMALayout::col : NVVM::MMALayout::row, shape,
        NVVM::LdStMatrixEltType::B16);
    SmallVector<Value> registers;
    for (int64_t i = 0; i < 4; ++i) {
      Value one = b.make<LLVM::ExtractValueOp>(loaded, i);
      // Upstream's op wants pairs of f16, and integers for bf16.
      registers.push_back(isHalf ? b.make<LLVM::BitcastOp>(pair, one) : one);
    }
    return registers;
  };
  // Which row and piece of a tile this lane names: `first` is the tile's place
  // along rows (or columns) of the result, `high` tells the half of lanes that
  // stands for the next eight of them.
  auto offsetOf = [&](const StagedOperand &operand, Value first, int64_t step,
                      Value highRow, Value highStep) {
    Value low = b.rem(lane, 8);
    Value row, piece;
    if (!operand.isTransposed) {
      row = b.add(first, b.add(low, b.mul(highRow, 8)));
      piece = b.add(highStep, step / 8);
    } else {
      row = b.add(b.add(low, b.mul(highStep, 8)), step);
      piece = b.add(b.div(first, 8), highRow);
    }
    return placeOf(operand, stage, row, piece);
  };

  Value bit3 = b.rem(b.div(lane, 8), 2), bit4 = b.div(lane, 16);
  for (int64_t step = 0; step < s.tileK; step += 16) {
    SmallVector<SmallVector<Value>> left;
    for (int64_t i = 0; i < rowTiles(); ++i)
      left.push_back(load(offsetOf(a, b.add(warpRow, 16 * i), step,
                                   /*highRow=*/bit3, /*highStep=*/bit4),
                          a.isTransposed));
    for (auto [w, operand] : llvm::enumerate(weights))
      for (int64_t j = 0; j < columnTiles(); j += 2) {
        SmallVector<Value> right =
            load(offsetOf(operand, b.add(warpColumn, 8 * j), step,
                          /*highRow=*/bit4, /*highStep=*/bit3),
                 operand.isTransposed);
        for (int64_t i = 0; i < rowTiles(); ++i)
          for (int64_t half = 0; half < 2; ++half) {
            int64_t first = sumIndex(w, i, j + half, 0);
            Value product = b.makeHere<NVVM::MmaOp>(
                __FILE__, __LINE__, fourSums, left[i],
                ArrayRef<Value>(right).slice(2 * half, 2),
                ArrayRef<Value>(sums).slice(first, 4),
                ArrayRef<int64_t>{16, 8, 16}, std::nullopt, std::nullopt, types,
                layouts);
            for (int64_t v = 0; v < 4; ++v)
              sums[first + v] = b.make<LLVM::ExtractValueOp>(product, v);
          }
      }
  }
  return sums;
}

LLVM::LLVMFuncOp
mlir::moe::detail::buildCpAsyncKernel(gpu::GPUModuleOp module,
                                      const GroupedKernel &kernel) {
  return CpAsyncKernel(module, kernel).build();
}
