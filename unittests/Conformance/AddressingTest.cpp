// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// No address is computed in 32 bits, in any step of any kind of layer.

#include "Reference/RandomProgram.h"
#include "moira/Pipelines/Pipelines.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Parser/Parser.h"
#include <gtest/gtest.h>

using namespace mlir;

/// Walks back from an index of an address to values that are not computed from
/// others by arithmetic. Widening of such a value is fine (an id, a slot);
/// widening of a product or a sum of 32 bits is not.
static void checkIndex(Value index, llvm::DenseSet<Value> &seen,
                       std::string &fault) {
  if (!seen.insert(index).second)
    return;
  Operation *op = index.getDefiningOp();
  if (!op || !fault.empty())
    return;
  if (isa<LLVM::SExtOp, LLVM::ZExtOp>(op)) {
    Operation *narrow = op->getOperand(0).getDefiningOp();
    if (narrow && isa<LLVM::MulOp, LLVM::AddOp, LLVM::ShlOp>(narrow)) {
      llvm::raw_string_ostream(fault) << *narrow << " is widened to " << *op;
      return;
    }
  }
  if (isa<LLVM::MulOp, LLVM::AddOp, LLVM::SubOp, LLVM::ShlOp, LLVM::SExtOp,
          LLVM::ZExtOp, LLVM::TruncOp>(op))
    for (Value operand : op->getOperands())
      checkIndex(operand, seen, fault);
}

static std::string findNarrowAddress(ModuleOp module) {
  std::string fault;
  llvm::DenseSet<Value> seen;
  module.walk([&](LLVM::GEPOp address) {
    for (Value index : address.getDynamicIndices()) {
      if (fault.empty() && !index.getType().isInteger(64))
        llvm::raw_string_ostream(fault) << address;
      checkIndex(index, seen, fault);
    }
  });
  return fault;
}

TEST(Addressing, Is64Bit) {
  DialectRegistry registry;
  moira::registerDialects(registry);
  MLIRContext context(registry, MLIRContext::Threading::DISABLED);
  for (uint64_t seed = 0; seed < 24; ++seed)
    for (bool oracle : {false, true}) {
      moira::reference::RandomProgram p = moira::reference::randomProgram(seed);
      SCOPED_TRACE(p.describe());
      auto module = parseSourceString<ModuleOp>(p.print(), &context);
      ASSERT_TRUE(module);
      PassManager manager(&context);
      moira::PipelineOptions options;
      options.oracle = oracle;
      buildPipeline(manager, moira::Phase::Target, options);
      ASSERT_TRUE(succeeded(manager.run(*module)));
      int64_t addresses = 0;
      module->walk([&](LLVM::GEPOp) { ++addresses; });
      EXPECT_GT(addresses, 0);
      EXPECT_EQ(findNarrowAddress(*module), "");
    }
}
