// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Element types and tensors as the runtime passes them around.

#ifndef MOIRA_RUNTIME_BASE_TYPES_H
#define MOIRA_RUNTIME_BASE_TYPES_H

#include "base/Status.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace moira::runtime {

/// The element types that cross the border, with the values of moira/abi.h.
enum class DataType : int32_t {
  F32 = MOIRA_F32,
  F64 = MOIRA_F64,
  F16 = MOIRA_F16,
  BF16 = MOIRA_BF16,
  I1 = MOIRA_I1,
  I8 = MOIRA_I8,
  I32 = MOIRA_I32,
  I64 = MOIRA_I64
};

/// "bf16" and so on, as manifests spell it.
const char *name(DataType dtype);
std::optional<DataType> parseDataType(std::string_view text);
/// Bytes of one element; 1 for I1.
int64_t byteSize(DataType dtype);
bool isFloat(DataType dtype);

using Shape = std::vector<int64_t>;

/// "[64, ?, 2048]"; -1 prints as `?`.
std::string toString(const Shape &shape);
/// "bf16[64, 2048]".
std::string toString(DataType dtype, const Shape &shape);
/// Bytes of a compact tensor, or nothing where a dim is negative or the
/// product does not fit in int64_t.
std::optional<int64_t> compactBytes(DataType dtype, const Shape &shape);

/// A compact row-major tensor in memory that somebody else owns.
struct TensorView {
  DataType dtype = DataType::F32;
  Shape shape;
  const void *data = nullptr;
  /// `data` is an address of the GPU that the session runs on.
  bool onDevice = false;
};

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_BASE_TYPES_H
