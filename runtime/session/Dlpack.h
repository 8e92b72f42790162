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

/// A view of a compact tensor on the CPU; fails with MOIRA_INVALID_ARGUMENT on
/// any other. Shape and strides are copied, the data is not read.
Result<TensorView> fromDlpack(const DLTensor *tensor);

DLDataType dlpackType(DataType dtype);

/// Hands out a result that the runtime allocated. Its deleter gives the memory
/// back and may run on any thread, also after the session's end.
DLManagedTensor *toDlpack(ResultTensor result);

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_SESSION_DLPACK_H
