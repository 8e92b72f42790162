// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Ops in buffer form become kernels and their launches; here grouped products.

#include "Launches.h"

#include "moira/Conversion/MoEToGPU/GroupedKernel.h"
#include "moira/Conversion/Passes.h"
#include "moira/Dialect/MoE/IR/MoEDialect.h"
#include "moira/Dialect/NV/IR/NVDialect.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/Remarks.h"
#include "mlir/Interfaces/FunctionInterfaces.h"

namespace mlir::moe {
#define GEN_PASS_DEF_CONVERTMOETOGPUPASS
#include "moira/Conversion/Passes.h.inc"
} // namespace mlir::moe

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

static constexpr StringLiteral moduleName = "moira_gpu";

/// The schedule that an op asks for, or null.
static nv::ScheduleAttr givenSchedule(GroupedMatmulOp op) {
  return op->getAttrOfType<nv::ScheduleAttr>(nv::kScheduleAttrName);
}

static GPUSchedule toSchedule(nv::ScheduleAttr attribute) {
  GPUSchedule schedule;
  schedule.style = attribute.getStyle() == nv::Style::CpAsync
                       ? GPUStyle::CpAsync
                       : GPUStyle::Warpgroup;
  schedule.tileM = attribute.getTile()[0];
  schedule.tileN = attribute.getTile()[1];
  schedule.tileK = attribute.getTile()[2];
  schedule.stages = attribute.getStages();
  schedule.warpsM = attribute.getWarps()[0];
  schedule.warpsN = attribute.getWarps()[1];
  return schedule;
}

static LogicalResult describe(GroupedMatmulOp op, GroupedKernel &kernel) {
  if (op.getOuts().empty())
    return op.emitOpError("expected the buffer form, got the tensor form");
  for (Value operand : op->getOperands()) {
    auto type = cast<MemRefType>(operand.getType());
    if (!type.getLayout().isIdentity())
      return op.emitOpError("expected memrefs with the identity layout on a "
                            "GPU, got ")
             << type;
  }
  if (op.getHidden())
    return op.emitOpError("expected no hidden blocks on a GPU, got some");
  if (!op.getContraction() && op.getLayout() != WeightLayout::NK &&
      op.getLayout() != WeightLayout::KN)
    return op.emitOpError("expected weights in nk or kn on a GPU, got ")
           << stringifyWeightLayout(op.getLayout());
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
  kernel.result = op.getResultType().getElementType();
  kernel.experts = op.getNumExperts();
  kernel.contraction = op.getContraction();
  kernel.weights = kernel.contraction ? 1 : op.getWeights().size();
  if (kernel.contraction) {
    kernel.n = op.getResultType().getDimSize(1);
    kernel.k = op.getResultType().getDimSize(2);
  } else {
    kernel.n = op.getN();
    kernel.k = op.getK();
  }
  for (int64_t size : {kernel.experts, kernel.n, kernel.k})
    if (ShapedType::isDynamic(size) || size < 1 || size > INT32_MAX / 2)
      return op.emitOpError("expected static experts and features on a GPU, "
                            "got ")
             << op.getResultType();
  kernel.transposed = !kernel.contraction && op.getLayout() == WeightLayout::KN;
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

/// The first schedule of those that suit the architecture and the kernel.
static LogicalResult chooseSchedule(GroupedMatmulOp op, GroupedKernel &kernel,
                                    bool hasWarpgroups) {
  auto report = [&] { return op.emitOpError(); };
  if (nv::ScheduleAttr given = givenSchedule(op)) {
    kernel.schedule = toSchedule(given);
    if (kernel.schedule.style == GPUStyle::Warpgroup && !hasWarpgroups)
      return op.emitOpError("expected a schedule of style cp_async for this "
                            "architecture, got warpgroup");
    return checkKernel(kernel, report);
  }
  SmallVector<GPUSchedule> candidates;
  // Weights are most of the work: deep tiles of them, and no rows but those of
  // one product.
  if (isDecode(op) && !kernel.contraction) {
    candidates.push_back({GPUStyle::CpAsync, 16, 128, 64, 4, 1, 4});
    candidates.push_back({GPUStyle::CpAsync, 16, 64, 64, 4, 1, 4});
  }
  if (hasWarpgroups) {
    int64_t wide = 256 / kernel.weights / 64 * 64;
    if (wide)
      candidates.push_back({GPUStyle::Warpgroup, 128, wide, 64, 4, 2, 1});
  }
  candidates.push_back({GPUStyle::CpAsync, 128, 128, 32, 4, 2, 4});
  candidates.push_back({GPUStyle::CpAsync, 128, 64, 32, 4, 2, 4});
  // Columns of all weights share the accumulators.
  auto fits = [&](const GPUSchedule &schedule) {
    kernel.schedule = schedule;
    if (schedule.style == GPUStyle::CpAsync && kernel.weights > 1 &&
        schedule.tileN > 64)
      return false;
    // Only whether, not why not.
    ScopedDiagnosticHandler silence(op.getContext(),
                                    [](Diagnostic &) { return success(); });
    return succeeded(checkKernel(kernel, report));
  };
  if (llvm::any_of(candidates, fits))
    return success();
  return checkKernel(kernel, report);
}

bool mlir::moe::detail::isOfDevice(func::FuncOp function) {
  if (function.isDeclaration() || function->hasAttr("moe.update"))
    return false;
  if (auto kind = function->getAttrOfType<StringAttr>("moe.kind"))
    return kind.getValue() == "step";
  // Helpers of the host have no kind where others have one.
  auto module = function->getParentOfType<ModuleOp>();
  return llvm::none_of(module.getOps<func::FuncOp>(), [](func::FuncOp other) {
    return other->hasAttr("moe.kind");
  });
}

/// The name of the GPU module for `arch`; for all architectures without one.
static std::string moduleNameOf(StringRef arch) {
  return arch.empty() ? moduleName.str() : (moduleName + "_" + arch).str();
}

gpu::GPUModuleOp Launches::getModule(StringRef arch) {
  std::string name = moduleNameOf(arch);
  if (auto found = module.lookupSymbol<gpu::GPUModuleOp>(name))
    return found;
  OpBuilder builder = OpBuilder::atBlockEnd(module.getBody());
  module->setAttr(gpu::GPUDialect::getContainerModuleAttrName(),
                  builder.getUnitAttr());
  auto made = gpu::GPUModuleOp::create(builder, module.getLoc(), name);
  if (!arch.empty())
    made->setAttr(nv::kArchAttrName, builder.getStringAttr(arch));
  return made;
}

std::string Launches::makeName(StringRef stem) {
  return (stem + "_" + Twine(number++)).str();
}

void Launches::launch(OpBuilder &b, Location loc, StringRef name,
                      int64_t perUnit, int64_t threads, int64_t sharedBytes,
                      ValueRange arguments, StringRef arch) {
  Value blocks = nv::ProcessorsOp::create(b, loc, b.getIndexType());
  if (perUnit > 1) {
    Value factor = arith::ConstantIndexOp::create(b, loc, perUnit);
    blocks = arith::MulIOp::create(b, loc, blocks, factor);
  }
  launchOn(b, loc, name, blocks, threads, sharedBytes, arguments, arch);
}

void Launches::launchOn(OpBuilder &b, Location loc, StringRef name,
                        Value blocks, int64_t threads, int64_t sharedBytes,
                        ValueRange arguments, StringRef arch) {
  auto symbol =
      SymbolRefAttr::get(b.getStringAttr(moduleNameOf(arch)),
                         FlatSymbolRefAttr::get(b.getContext(), name));
  nv::LaunchOp::create(b, loc, symbol, blocks, threads, sharedBytes, arguments);
}

/// Launches the op's kernel in front of `b`.
static void emitLaunch(OpBuilder &b, GroupedMatmulOp op,
                       const GroupedKernel &kernel, Launches &launches,
                       StringRef arch) {
  Location loc = op.getLoc();
  bool bulk = kernel.schedule.style == GPUStyle::Warpgroup;
  SmallVector<Value> arguments;
  if (bulk) {
    KernelBoxes boxes = getBoxes(kernel);
    Value rows = op.getRows()[0];
    // Groups of equal room are one tensor of rows.
    if (kernel.padded) {
      SmallVector<ReassociationIndices> pairs{{0, 1}, {2}};
      rows = memref::CollapseShapeOp::create(b, loc, rows, pairs);
    }
    auto encode = [&](Value source, ArrayRef<int64_t> box) {
      arguments.push_back(nv::TensorMapOp::create(
          b, loc, nv::TensorMapType::get(b.getContext()), source,
          b.getDenseI64ArrayAttr(box)));
    };
    encode(rows, {boxes.rows[1], boxes.rows[0]});
    for (Value weight : op.getWeights())
      encode(weight, {1, boxes.weights[1], boxes.weights[0]});
  } else {
    llvm::append_range(arguments, op.getRows());
  }
  arguments.push_back(op.getSizes());
  if (!bulk)
    llvm::append_range(arguments, op.getWeights());
  llvm::append_range(arguments, op.getBias());
  if (op.getGather())
    arguments.push_back(op.getGather());
  for (OperandRange operands :
       {op.getVectors(), op.getElements(), op.getScalars(), op.getOuts()})
    llvm::append_range(arguments, operands);
  Value stride = arith::ConstantIntOp::create(b, loc, b.getI32Type(), 0);
  if (kernel.padded) {
    Value one = arith::ConstantIndexOp::create(b, loc, 1);
    Value room = memref::DimOp::create(b, loc, op.getRows()[0], one);
    stride = arith::IndexCastOp::create(b, loc, b.getI32Type(), room);
  }
  arguments.push_back(stride);
  launches.launch(b, loc, kernel.name, 1, kernel.schedule.threads(),
                  kernel.sharedBytes(), arguments, arch);
}

namespace {
struct ConvertMoEToGPU
    : public mlir::moe::impl::ConvertMoEToGPUPassBase<ConvertMoEToGPU> {
  using ConvertMoEToGPUPassBase::ConvertMoEToGPUPassBase;
  void runOnOperation() override;

private:
  LogicalResult convert(Operation *op, Launches &launches);
};
} // namespace

void ConvertMoEToGPU::runOnOperation() {
  ModuleOp module = getOperation();
  if (arch != "sm_80" && arch != "sm_90a" && arch != "sm_80,sm_90a") {
    module.emitError("expected the architecture sm_80, sm_90a or "
                     "sm_80,sm_90a, got '")
        << arch << "'";
    return signalPassFailure();
  }
  SmallVector<Operation *> ops;
  for (auto function : module.getOps<func::FuncOp>())
    if (isOfDevice(function))
      function.walk([&](Operation *op) {
        if (isa<GroupedMatmulOp, GateOp, NoiseOp, CountOp, AssignOp, DispatchOp,
                CombineOp, SourcesOp>(op))
          ops.push_back(op);
      });
  Launches launches(module);
  for (Operation *op : ops) {
    if (!fallback) {
      if (failed(convert(op, launches)))
        return signalPassFailure();
      continue;
    }
    std::string reason;
    {
      ScopedDiagnosticHandler listen(&getContext(), [&](Diagnostic &error) {
        if (reason.empty())
          reason = error.str();
        return success();
      });
      if (succeeded(convert(op, launches)))
        continue;
    }
    remark::missed(op->getLoc(),
                   remark::RemarkOpts::name("ConvertMoEToGPU")
                       .category(getArgument())
                       .function(op->getParentOfType<func::FuncOp>().getName()))
        << remark::add("loops instead of a kernel: {0}", reason);
    ++numFallbacks;
  }
  numKernels += launches.count();
}

LogicalResult ConvertMoEToGPU::convert(Operation *op, Launches &launches) {
  auto grouped = dyn_cast<GroupedMatmulOp>(op);
  if (!grouped)
    return convertRouting(op, launches);
  auto make = [&](bool hasWarpgroups, GroupedKernel &kernel) -> LogicalResult {
    return success(succeeded(describe(grouped, kernel)) &&
                   succeeded(chooseSchedule(grouped, kernel, hasWarpgroups)));
  };
  GroupedKernel kernel, other;
  if (failed(make(arch == "sm_90a", kernel)))
    return failure();
  // One more where the later architecture has a better style.
  bool hasOther = StringRef(arch).contains(',') &&
                  succeeded(make(/*hasWarpgroups=*/true, other)) &&
                  other.schedule.style != kernel.schedule.style;
  kernel.name = launches.makeName("grouped");
  buildGroupedKernel(launches.getModule(), kernel);
  OpBuilder b(op);
  if (!hasOther) {
    emitLaunch(b, grouped, kernel, launches, "");
    op->erase();
    return success();
  }
  other.name = launches.makeName("grouped");
  buildGroupedKernel(launches.getModule("sm_90a"), other);
  Location loc = op->getLoc();
  Value number = nv::ArchitectureOp::create(b, loc, b.getIndexType());
  Value isLater =
      arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, number,
                            arith::ConstantIndexOp::create(b, loc, 90));
  auto branch = scf::IfOp::create(b, loc, isLater, /*withElseRegion=*/true);
  OpBuilder yes = branch.getThenBodyBuilder();
  emitLaunch(yes, grouped, other, launches, "sm_90a");
  OpBuilder no = branch.getElseBodyBuilder();
  emitLaunch(no, grouped, kernel, launches, "");
  op->erase();
  return success();
}
