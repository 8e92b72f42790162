// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Tells gdb and perf of code that was compiled in memory.

#ifndef MOIRA_LIB_JIT_DEBUGSYMBOLS_H
#define MOIRA_LIB_JIT_DEBUGSYMBOLS_H

#include "moira/jit.h"

namespace llvm::orc {
class ExecutionSession;
class ObjectLinkingLayer;
} // namespace llvm::orc

namespace moira {

/// Makes a layer register the objects that are added to it from now on.
llvm::Error addSymbols(llvm::orc::ExecutionSession &session,
                       llvm::orc::ObjectLinkingLayer &layer,
                       const JitSymbols &symbols);

} // namespace moira

#endif // MOIRA_LIB_JIT_DEBUGSYMBOLS_H
