// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "moira/Conversion/Passes.h"
#include "moira/Dialect/MoE/Utils/MathExpansion.h"

#include "mlir/Conversion/AffineToStandard/AffineToStandard.h"
#include "mlir/Conversion/ArithToLLVM/ArithToLLVM.h"
#include "mlir/Conversion/ControlFlowToLLVM/ControlFlowToLLVM.h"
#include "mlir/Conversion/LLVMCommon/ConversionTarget.h"
#include "mlir/Conversion/LLVMCommon/TypeConverter.h"
#include "mlir/Conversion/MathToLLVM/MathToLLVM.h"
#include "mlir/Conversion/MemRefToLLVM/MemRefToLLVM.h"
#include "mlir/Conversion/SCFToControlFlow/SCFToControlFlow.h"
#include "mlir/Conversion/VectorToLLVM/ConvertVectorToLLVM.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlow.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/MemRef/Transforms/Transforms.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Transforms/DialectConversion.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

namespace mlir::moe {
#define GEN_PASS_DEF_LOWERGPUMODULEPASS
#include "moira/Conversion/Passes.h.inc"
} // namespace mlir::moe

using namespace mlir;
using namespace mlir::moe;

namespace {
struct LowerGPUModule
    : public mlir::moe::impl::LowerGPUModulePassBase<LowerGPUModule> {
  using LowerGPUModulePassBase::LowerGPUModulePassBase;
  void runOnOperation() override;
};
} // namespace

void LowerGPUModule::runOnOperation() {
  gpu::GPUModuleOp module = getOperation();
  MLIRContext *context = &getContext();

  // 1. The functions that every target computes alike, and views of memrefs
  // as arithmetic. Widening and rounding do not cancel out.
  module.walk([](Operation *op) {
    if (isa<arith::ExtFOp, arith::TruncFOp>(op))
      op->removeAttr("fastmath");
  });
  RewritePatternSet expansions(context);
  populateMathExpansionPatterns(expansions);
  memref::populateExpandStridedMetadataPatterns(expansions);
  populateAffineToStdConversionPatterns(expansions);
  if (failed(applyPatternsGreedily(module, std::move(expansions))))
    return signalPassFailure();

  // 2. Branches instead of regions.
  RewritePatternSet branches(context);
  populateSCFToControlFlowConversionPatterns(branches);
  ConversionTarget flat(*context);
  flat.addIllegalDialect<scf::SCFDialect>();
  flat.markUnknownOpDynamicallyLegal([](Operation *) { return true; });
  if (failed(applyPartialConversion(module, flat, std::move(branches))))
    return signalPassFailure();

  // 3. The rest.
  LLVMTypeConverter converter(context);
  RewritePatternSet patterns(context);
  populateFinalizeMemRefToLLVMConversionPatterns(converter, patterns);
  arith::populateArithToLLVMConversionPatterns(converter, patterns);
  cf::populateControlFlowToLLVMConversionPatterns(converter, patterns);
  populateMathToLLVMConversionPatterns(converter, patterns);
  populateVectorToLLVMConversionPatterns(converter, patterns);
  LLVMConversionTarget target(*context);
  target.addLegalDialect<NVVM::NVVMDialect>();
  target.addLegalOp<gpu::GPUModuleOp, UnrealizedConversionCastOp>();
  if (failed(applyFullConversion(module, target, std::move(patterns))))
    return signalPassFailure();

  // 4. Memrefs are descriptors on both sides of a cast.
  SmallVector<UnrealizedConversionCastOp> casts, left;
  module.walk([&](UnrealizedConversionCastOp cast) { casts.push_back(cast); });
  reconcileUnrealizedCasts(casts, &left);
  if (left.empty())
    return;
  left.front().emitOpError("expected no cast to be left in a kernel");
  signalPassFailure();
}
