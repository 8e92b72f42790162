// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Stands in for the rest of this folder where nccl.h was not found.

#include "collective/nccl/Nccl.h"

using namespace moira;
using namespace moira::runtime;

Result<std::unique_ptr<Transport>>
moira::runtime::openNccl(std::unique_ptr<Transport> control,
                         const NcclOptions &) {
  Status status(MOIRA_UNAVAILABLE,
                "NCCL: this build is without it; build where nccl.h and cuda.h "
                "are found (MOIRA_NCCL_INCLUDE)");
  control->abort({control->rank(), status.code, status.message});
  return status;
}
