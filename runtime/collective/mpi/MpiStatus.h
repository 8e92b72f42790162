// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef MOIRA_RUNTIME_COLLECTIVE_MPI_MPISTATUS_H
#define MOIRA_RUNTIME_COLLECTIVE_MPI_MPISTATUS_H

#include "base/Status.h"

#include <mpi.h>

namespace moira::runtime {

/// MPI's answer to `call` as a status.
inline Status mpiStatus(int code, const std::string &call) {
  if (code == MPI_SUCCESS)
    return Status();
  char text[MPI_MAX_ERROR_STRING + 1] = {};
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS)
    return Status(MOIRA_FAILED, concat(call, ": MPI error ", code));
  return Status(MOIRA_FAILED, concat(call, ": ", text));
}

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_COLLECTIVE_MPI_MPISTATUS_H
