// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "base/Types.h"

using namespace moira;
using namespace moira::runtime;

namespace {
struct TypeRow {
  DataType dtype;
  const char *name;
  int64_t bytes;
};
} // namespace

/// In the order of the enum.
static constexpr TypeRow rows[] = {
    {DataType::F32, "f32", 4}, {DataType::F64, "f64", 8},
    {DataType::F16, "f16", 2}, {DataType::BF16, "bf16", 2},
    {DataType::I1, "i1", 1},   {DataType::I8, "i8", 1},
    {DataType::I32, "i32", 4}, {DataType::I64, "i64", 8},
};

const char *runtime::name(DataType dtype) {
  return rows[static_cast<int32_t>(dtype)].name;
}

std::optional<DataType> runtime::parseDataType(std::string_view text) {
  for (const TypeRow &row : rows)
    if (text == row.name)
      return row.dtype;
  return std::nullopt;
}

int64_t runtime::byteSize(DataType dtype) {
  return rows[static_cast<int32_t>(dtype)].bytes;
}

bool runtime::isFloat(DataType dtype) {
  return static_cast<int32_t>(dtype) <= MOIRA_BF16;
}

std::string runtime::toString(const Shape &shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i)
      text += ", ";
    text += shape[i] == -1 ? "?" : std::to_string(shape[i]);
  }
  return text + "]";
}

std::string runtime::toString(DataType dtype, const Shape &shape) {
  return name(dtype) + toString(shape);
}

std::optional<int64_t> runtime::compactBytes(DataType dtype,
                                             const Shape &shape) {
  // A zero dim does not excuse an overflow of the others: strides are computed
  // from them all the same.
  int64_t bytes = byteSize(dtype);
  bool empty = false;
  for (int64_t dim : shape) {
    if (dim < 0)
      return std::nullopt;
    if (dim == 0)
      empty = true;
    else if (__builtin_mul_overflow(bytes, dim, &bytes))
      return std::nullopt;
  }
  return empty ? 0 : bytes;
}
