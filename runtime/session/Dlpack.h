// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Tensors at the border.

#ifndef MOIRA_RUNTIME_SESSION_DLPACK_H
#define MOIRA_RUNTIME_SESSION_DLPACK_H

#include "base/Types.h"
#include "session/Session.h"

#include <dlpack/dlpack.h>

namespace moira::runtime {

/// What DLPack calls memory of the host.
inline constexpr DLDevice hostDevice = {kDLCPU, 0};

/// A view of a compact tensor on the CPU or on `gpu`; fails with
/// MOIRA_INVALID_ARGUMENT on any other. Shape and strides are copied, the data
/// is not read.
Result<TensorView> fromDlpack(const DLTensor *tensor,
                              DLDevice gpu = hostDevice);

DLDataType dlpackType(DataType dtype);

/// Hands out a result that the runtime allocated, on the CPU or `gpu`. Its
/// deleter gives the memory back and may run on any thread, also after the
/// session's end.
DLManagedTensor *toDlpack(ResultTensor result, DLDevice gpu = hostDevice);

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_SESSION_DLPACK_H
