// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "GroupedSchedules.h"

#include "moira/Dialect/NV/IR/NVDialect.h"

#include "mlir/Interfaces/FunctionInterfaces.h"

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

/// The schedule that an op asks for, or null.
static nv::ScheduleAttr givenSchedule(GroupedMatmulOp op) {
  return op->getAttrOfType<nv::ScheduleAttr>(nv::kScheduleAttrName);
}

static GPUSchedule toSchedule(nv::ScheduleAttr attribute) {
  GPUSchedule schedule;
  switch (attribute.getStyle()) {
  case nv::Style::CpAsync:
    schedule.style = GPUStyle::CpAsync;
    break;
  case nv::Style::Warpgroup:
    schedule.style = GPUStyle::Warpgroup;
    break;
  case nv::Style::Simt:
    schedule.style = GPUStyle::Simt;
    break;
  }
  schedule.tileM = attribute.getTile()[0];
  schedule.tileN = attribute.getTile()[1];
  schedule.tileK = attribute.getTile()[2];
  schedule.stages = attribute.getStages();
  schedule.warpsM = attribute.getWarps()[0];
  schedule.warpsN = attribute.getWarps()[1];
  return schedule;
}

LogicalResult mlir::moe::detail::describeKernel(GroupedMatmulOp op,
                                                GroupedKernel &kernel) {
  if (op.getOuts().empty())
    return op.emitOpError("expected the buffer form, got the tensor form");
  for (Value operand : op->getOperands()) {
    auto type = cast<MemRefType>(operand.getType());
    if (!type.getLayout().isIdentity())
      return op.emitOpError("expected memrefs with the identity layout on a "
                            "GPU, got ")
             << type;
  }
  auto elementOf = [](Value value) {
    return cast<MemRefType>(value.getType()).getElementType();
  };
  kernel.element = elementOf(op.getRows()[0]);
  for (ValueRange operands :
       {ValueRange(op.getRows()), ValueRange(op.getWeights())})
    for (Value operand : operands)
      if (elementOf(operand) != kernel.element)
        return op.emitOpError("expected rows and weights of one type on a GPU, "
                              "got ")
               << kernel.element << " and " << elementOf(operand);
  for (unsigned i = 0; i < op.getNumDestinations(); ++i)
    kernel.results.push_back(op.getResultType(i).getElementType());
  kernel.experts = op.getNumExperts();
  kernel.contraction = op.getContraction();
  kernel.chained = op.getChained();
  kernel.layout = op.getLayout();
  kernel.chains = op.getBlocks(HiddenDim::K);
  if (op.hasPanels()) {
    PanelForm form = op.getForm();
    if (form.pairs)
      return op.emitOpError("expected panels of single steps on a GPU, got "
                            "pairs");
    kernel.panelWidth = form.width;
    kernel.columnBlocks = op.getBlocks(HiddenDim::N);
  }
  kernel.weights = kernel.contraction ? 1 : op.getWeights().size();
  if (kernel.contraction) {
    auto columnsOf = [&](unsigned i) {
      return cast<MemRefType>(op.getRows()[i].getType()).getShape().back();
    };
    kernel.n = columnsOf(0);
    kernel.k = columnsOf(1);
  } else {
    kernel.n = op.getN();
    kernel.k = op.getK();
  }
  for (int64_t size : {kernel.experts, kernel.n, kernel.k})
    if (ShapedType::isDynamic(size) || size < 1 || size > INT32_MAX / 2)
      return op.emitOpError("expected static experts and features on a GPU, "
                            "got ")
             << op.getResultType();
  kernel.padded = op.isPadded();
  kernel.gather = bool(op.getGather());
  auto types = [&](OperandRange operands) {
    return llvm::map_to_vector(operands, elementOf);
  };
  kernel.bias = types(op.getBias());
  kernel.vectors = types(op.getVectors());
  kernel.elements = types(op.getElements());
  kernel.scalars = types(op.getScalars());
  // Mode contraction only rounds.
  if (!kernel.contraction)
    kernel.epilogue = &op.getEpilogue().front();
  return success();
}

/// Whether the op's function is the variant for a few rows per expert.
static bool isDecode(GroupedMatmulOp op) {
  auto function = op->getParentOfType<FunctionOpInterface>();
  auto rowClass = function
                      ? function->getAttrOfType<RowClassAttr>("moe.row_class")
                      : nullptr;
  return rowClass && rowClass.getValue() == RowClass::Decode;
}

/// Schedules to try, best first.
static SmallVector<GPUSchedule>
candidatesOf(const GroupedKernel &kernel, bool isDecode, bool hasWarpgroups) {
  SmallVector<GPUSchedule> candidates;
  bool isSimt = kernel.element.isF32();
  GPUStyle style = isSimt ? GPUStyle::Simt : GPUStyle::CpAsync;
  // f32 has half as many elements in the bytes of a stage.
  int64_t deep = isSimt ? 32 : 64, flat = isSimt ? 16 : 32;
  // Weights are most of the work: deep tiles of them, and no rows but those of
  // one product.
  if (isDecode && !kernel.contraction) {
    candidates.push_back({style, 16, 128, deep, 4, 1, 4});
    candidates.push_back({style, 16, 64, deep, 4, 1, 4});
  }
  if (hasWarpgroups && !isSimt) {
    int64_t wide = 256 / kernel.weights / 64 * 64;
    if (wide)
      candidates.push_back({GPUStyle::Warpgroup, 128, wide, 64, 4, 2, 1});
  }
  candidates.push_back({style, 128, 128, flat, 4, 2, 4});
  candidates.push_back({style, 128, 64, flat, 4, 2, 4});
  // Chains that wait for each other hold sums.
  candidates.push_back({style, 64, 64, deep, 3, 2, 4});
  candidates.push_back({style, 32, 64, deep, 3, 2, 4});
  return candidates;
}

LogicalResult mlir::moe::detail::chooseSchedule(GroupedMatmulOp op,
                                                GroupedKernel &kernel,
                                                bool hasWarpgroups) {
  auto report = [&] { return op.emitOpError(); };
  if (nv::ScheduleAttr given = givenSchedule(op)) {
    kernel.schedule = toSchedule(given);
    if (kernel.schedule.style == GPUStyle::Warpgroup && !hasWarpgroups)
      return op.emitOpError("expected a schedule of style cp_async for this "
                            "architecture, got warpgroup");
    return checkKernel(kernel, report);
  }
  // Columns of all sums share the accumulators; tiles wider than a block of
  // columns would be empty there.
  auto suits = [&](const GPUSchedule &schedule) {
    if (schedule.style == GPUStyle::Warpgroup || schedule.tileN <= 64)
      return true;
    return kernel.sums() == 1 && kernel.blockColumns() > 64;
  };
  auto fits = [&](const GPUSchedule &schedule) {
    if (!suits(schedule))
      return false;
    kernel.schedule = schedule;
    // Only whether, not why not.
    ScopedDiagnosticHandler silence(op.getContext(),
                                    [](Diagnostic &) { return success(); });
    return succeeded(checkKernel(kernel, report));
  };
  if (llvm::any_of(candidatesOf(kernel, isDecode(op), hasWarpgroups), fits))
    return success();
  return checkKernel(kernel, report);
}
