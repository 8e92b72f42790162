// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "moira/Conversion/Passes.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/AttrTypeSubElements.h"
#include "mlir/IR/BuiltinOps.h"

namespace mlir::moe {
#define GEN_PASS_DEF_LOWERBF16PASS
#include "moira/Conversion/Passes.h.inc"
} // namespace mlir::moe

using namespace mlir;

/// The same bits as an integer.
static IntegerAttr toBits(FloatAttr number) {
  return IntegerAttr::get(IntegerType::get(number.getContext(), 16),
                          number.getValue().bitcastToAPInt());
}

static DenseElementsAttr toBits(DenseFPElementsAttr numbers) {
  Type integer = IntegerType::get(numbers.getContext(), 16);
  return numbers.mapValues(
      integer, [](const APFloat &number) { return number.bitcastToAPInt(); });
}

static AttrTypeReplacer makeReplacer() {
  AttrTypeReplacer replacer;
  replacer.addReplacement([](BFloat16Type type) -> Type {
    return IntegerType::get(type.getContext(), 16);
  });
  using Replaced = std::optional<std::pair<Attribute, WalkResult>>;
  replacer.addReplacement([](FloatAttr number) -> Replaced {
    if (!number.getType().isBF16())
      return std::nullopt;
    return std::make_pair(toBits(number), WalkResult::skip());
  });
  replacer.addReplacement([](DenseFPElementsAttr numbers) -> Replaced {
    if (!numbers.getElementType().isBF16())
      return std::nullopt;
    return std::make_pair(toBits(numbers), WalkResult::skip());
  });
  return replacer;
}

static bool isBF16(Type type) { return getElementTypeOrSelf(type).isBF16(); }

/// Whether the op computes with numbers rather than moving them.
static bool computes(Operation *op) {
  // These carry flags and move values, or are the target's own instructions.
  if (isa<LLVM::SelectOp, LLVM::CallOp, LLVM::CallIntrinsicOp>(op))
    return false;
  return isa<LLVM::FastmathFlagsInterface>(op) ||
         isa<LLVM::FPExtOp, LLVM::FPTruncOp, LLVM::FPToSIOp, LLVM::FPToUIOp,
             LLVM::SIToFPOp, LLVM::UIToFPOp>(op);
}

/// The ops of the host: kernels of a GPU have bf16 of their own.
static SmallVector<Operation *> hostOps(ModuleOp module) {
  SmallVector<Operation *> ops;
  for (Operation &op : *module.getBody())
    if (!isa<gpu::GPUModuleOp>(op))
      ops.push_back(&op);
  return ops;
}

namespace {
/// Operands and results of bf16 of the target's instructions, which keep their
/// type.
struct Kept {
  explicit Kept(ModuleOp module);
  /// Gives them their type back, and everything else the integers.
  void restore();

  SmallVector<std::pair<OpOperand *, Type>> operands;
  SmallVector<std::pair<OpResult, Type>> results;
};
} // namespace

Kept::Kept(ModuleOp module) {
  for (Operation *op : hostOps(module))
    op->walk([&](LLVM::CallIntrinsicOp call) {
      for (OpOperand &operand : call->getOpOperands())
        if (isBF16(operand.get().getType()))
          operands.push_back({&operand, operand.get().getType()});
      for (OpResult result : call->getOpResults())
        if (isBF16(result.getType()))
          results.push_back({result, result.getType()});
    });
}

void Kept::restore() {
  for (auto [operand, type] : operands) {
    OpBuilder builder(operand->getOwner());
    operand->set(LLVM::BitcastOp::create(builder, operand->getOwner()->getLoc(),
                                         type, operand->get()));
  }
  for (auto [result, type] : results) {
    Type integers = result.getType();
    result.setType(type);
    OpBuilder builder(result.getContext());
    builder.setInsertionPointAfterValue(result);
    auto cast =
        LLVM::BitcastOp::create(builder, result.getLoc(), integers, result);
    result.replaceAllUsesExcept(cast, cast);
  }
}

namespace {
struct LowerBF16 : public moe::impl::LowerBF16PassBase<LowerBF16> {
  void runOnOperation() override {
    WalkResult result =
        getOperation().walk<WalkOrder::PreOrder>([](Operation *op) {
          if (isa<gpu::GPUModuleOp>(op))
            return WalkResult::skip();
          bool touches = llvm::any_of(op->getOperandTypes(), isBF16) ||
                         llvm::any_of(op->getResultTypes(), isBF16);
          if (!touches || !computes(op))
            return WalkResult::advance();
          op->emitOpError("expected no arithmetic on bf16 in this phase");
          return WalkResult::interrupt();
        });
    if (result.wasInterrupted())
      return signalPassFailure();
    Kept kept(getOperation());
    AttrTypeReplacer replacer = makeReplacer();
    for (Operation *op : hostOps(getOperation()))
      replacer.recursivelyReplaceElementsIn(op, /*replaceAttrs=*/true,
                                            /*replaceLocs=*/false,
                                            /*replaceTypes=*/true);
    kept.restore();
  }
};
} // namespace
