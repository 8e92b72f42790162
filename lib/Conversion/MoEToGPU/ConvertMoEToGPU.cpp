// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Ops in buffer form become kernels and their launches; here grouped products.

#include "GroupedSchedules.h"
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
    auto encode = [&](Value source, ArrayRef<int64_t> box) {
      arguments.push_back(nv::TensorMapOp::create(
          b, loc, nv::TensorMapType::get(b.getContext()), source,
          b.getDenseI64ArrayAttr(box)));
    };
    for (auto [i, rows] : llvm::enumerate(op.getRows())) {
      const int64_t (&box)[2] = i == 0 ? boxes.rows : boxes.weights;
      // Groups of equal room are one tensor of rows.
      Value all = rows;
      if (kernel.padded) {
        SmallVector<ReassociationIndices> pairs{{0, 1}, {2}};
        all = memref::CollapseShapeOp::create(b, loc, rows, pairs);
      }
      encode(all, {box[1], box[0]});
    }
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
    return success(succeeded(describeKernel(grouped, kernel)) &&
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
