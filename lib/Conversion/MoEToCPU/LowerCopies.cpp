// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "moira/Conversion/Passes.h"

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Linalg/Utils/Utils.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

namespace mlir::moe {
#define GEN_PASS_DEF_LOWERCOPIESPASS
#include "moira/Conversion/Passes.h.inc"
} // namespace mlir::moe

using namespace mlir;

namespace {
struct LowerCopies : public moe::impl::LowerCopiesPassBase<LowerCopies> {
  void runOnOperation() override {
    getOperation()->walk([](memref::CopyOp copy) {
      auto isCompact = [](Value memref) {
        auto type = cast<MemRefType>(memref.getType());
        return type.getLayout().isIdentity();
      };
      if (isCompact(copy.getSource()) && isCompact(copy.getTarget()))
        return; // becomes a memcpy
      OpBuilder b(copy);
      linalg::makeMemRefCopyOp(b, copy.getLoc(), copy.getSource(),
                               copy.getTarget());
      copy.erase();
    });
  }
};
} // namespace
