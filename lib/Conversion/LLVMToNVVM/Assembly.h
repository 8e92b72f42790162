// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Inline PTX. Its registers are places in the thread's frame, so that a
// predicate is a branch around an instruction; LLVM makes values of them again.

#ifndef MOIRA_LIB_CONVERSION_LLVMTONVVM_ASSEMBLY_H
#define MOIRA_LIB_CONVERSION_LLVMTONVVM_ASSEMBLY_H

#include "PTXText.h"
#include "Raise.h"

namespace mlir::moe::detail {

class Assembly {
public:
  Assembly(Raise &raise, LLVM::InlineAsmOp op)
      : r(raise), b(raise.b), loc(raise.loc), op(op) {}
  LogicalResult run();

private:
  /// A register: a value, or a place in memory where it is written.
  struct Register {
    Value value, place;
    Type type;
  };

  LogicalResult bindOperands();
  LogicalResult emit(const PTXInstruction &instruction);
  LogicalResult emitGuarded(const PTXInstruction &instruction);
  LogicalResult declare(const PTXInstruction &instruction);
  LogicalResult emitMove(const PTXInstruction &instruction);
  LogicalResult emitMemory(const PTXInstruction &instruction);
  LogicalResult emitAtomic(const PTXInstruction &instruction);
  LogicalResult emitCopy(const PTXInstruction &instruction);
  LogicalResult emitMatrix(const PTXInstruction &instruction);
  LogicalResult emitBarrier(const PTXInstruction &instruction);
  LogicalResult emitWarp(const PTXInstruction &instruction);
  LogicalResult emitConversion(const PTXInstruction &instruction);
  LogicalResult emitFunction(const PTXInstruction &instruction);

  void addPlace(StringRef name, Type type);
  /// The type that a suffix such as "b32" names, or null.
  Type typeOf(StringRef suffix);
  Value read(StringRef name, Type type);
  LogicalResult write(StringRef name, Value value);
  Value addressOf(const PTXOperand &operand, unsigned space);
  static unsigned spaceOf(const PTXInstruction &instruction);
  /// The members of a list, or the one name.
  static std::vector<std::string> namesOf(const PTXOperand &operand) {
    return operand.kind == PTXOperand::List ? operand.members
                                            : std::vector{operand.name};
  }

  Raise &r;
  OpBuilder &b;
  Location loc;
  LLVM::InlineAsmOp op;
  llvm::StringMap<Register> registers;
  SmallVector<Type> results;
};

} // namespace mlir::moe::detail

#endif // MOIRA_LIB_CONVERSION_LLVMTONVVM_ASSEMBLY_H
