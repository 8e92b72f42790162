// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// The style for f32, of which tensor cores would lose bits: threads multiply
// and add what stands in shared memory. Each sum is one chain of fused
// multiply-adds in the order of the contraction, as on the processor. A thread
// has the sums that mma.sync m16n8 would give it.

#include "StagedKernel.h"

#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

namespace {
class SimtKernel : public StagedKernel {
public:
  using StagedKernel::StagedKernel;

private:
  /// values[t]: what stands at step t of a few.
  using Steps = SmallVector<Value>;

  SmallVector<Value> multiply(Value stage, ValueRange sums) override;
  /// `count` neighbours of a row, from element `column` on.
  SmallVector<Value> load(const StagedOperand &operand, Value stage, Value row,
                          Value column, int64_t count);
  Steps loadRow(Value stage, Value row, int64_t step);
  std::pair<Steps, Steps> loadColumns(const StagedOperand &operand, Value stage,
                                      Value column, int64_t step);
};
} // namespace

SmallVector<Value> SimtKernel::load(const StagedOperand &operand, Value stage,
                                    Value row, Value column, int64_t count) {
  Value place = placeOf(operand, stage, row, b.div(column, pieceElements));
  place = b.add(place, b.mul(b.rem(column, pieceElements), bytes));
  Value address = b.at(shared, place);
  if (count == 1)
    return {b.load(address, b.f32)};
  Value all = b.load(address, VectorType::get({count}, b.f32));
  SmallVector<Value> values;
  for (int64_t i = 0; i < count; ++i)
    values.push_back(b.make<LLVM::ExtractElementOp>(all, b.number(i)));
  return values;
}

/// Steps `step` and the next of a row of the result.
SimtKernel::Steps SimtKernel::loadRow(Value stage, Value row, int64_t step) {
  if (!a.isTransposed)
    return load(a, stage, row, b.number(step), pieceElements);
  Steps values;
  for (int64_t t = 0; t < pieceElements; ++t)
    values.append(load(a, stage, b.number(step + t), row, 1));
  return values;
}

/// Likewise of two neighbouring columns.
std::pair<SimtKernel::Steps, SimtKernel::Steps>
SimtKernel::loadColumns(const StagedOperand &operand, Value stage, Value column,
                        int64_t step) {
  if (!operand.isTransposed)
    return {
        load(operand, stage, column, b.number(step), pieceElements),
        load(operand, stage, b.add(column, 1), b.number(step), pieceElements)};
  Steps first, second;
  for (int64_t t = 0; t < pieceElements; ++t) {
    SmallVector<Value> both =
        load(operand, stage, b.number(step + t), column, 2);
    first.push_back(both[0]);
    second.push_back(both[1]);
  }
  return {first, second};
}

SmallVector<Value> SimtKernel::multiply(Value stage, ValueRange start) {
  SmallVector<Value> sums(start);
  Value rowInTile = b.add(warpRow, b.div(lane, 4));
  Value columnInTile = b.add(warpColumn, b.mul(b.rem(lane, 4), 2));
  for (int64_t step = 0; step < s.tileK; step += pieceElements) {
    SmallVector<Steps> rows;
    for (int64_t i = 0; i < 2 * rowTiles(); ++i)
      rows.push_back(loadRow(stage, b.add(rowInTile, 8 * i), step));
    for (auto [w, operand] : llvm::enumerate(weights))
      for (int64_t j = 0; j < columnTiles(); ++j) {
        auto [first, second] =
            loadColumns(operand, stage, b.add(columnInTile, 8 * j), step);
        for (int64_t t = 0; t < pieceElements; ++t)
          for (int64_t i = 0; i < rowTiles(); ++i)
            for (int64_t v = 0; v < 4; ++v) {
              Value &sum = sums[sumIndex(w, i, j, v)];
              sum = b.make<math::FmaOp>(rows[2 * i + v / 2][t],
                                        v % 2 ? second[t] : first[t], sum);
            }
      }
  }
  return sums;
}

LLVM::LLVMFuncOp
mlir::moe::detail::buildSimtKernel(gpu::GPUModuleOp module,
                                   const GroupedKernel &kernel) {
  return SimtKernel(module, kernel).build();
}
