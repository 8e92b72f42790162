// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception//
// The functions of moira/emulator_abi.h; each acts for the running GPU thread.

#ifndef MOIRA_RUNTIME_EMULATOR_TABLE_H
#define MOIRA_RUNTIME_EMULATOR_TABLE_H

#include "emulator/Machine.h"

namespace moira::emulator {

#define MOIRA_EMU_DECLARE(name, result, parameters) result name parameters;
MOIRA_EMU_FUNCTIONS(MOIRA_EMU_DECLARE)
#undef MOIRA_EMU_DECLARE

} // namespace moira::emulator

#endif // MOIRA_RUNTIME_EMULATOR_TABLE_H
