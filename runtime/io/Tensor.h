// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The tensor that every reader returns, and what readers share.

#ifndef MOIRA_RUNTIME_IO_TENSOR_H
#define MOIRA_RUNTIME_IO_TENSOR_H

#include "base/Types.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace moira::io {

class MappedFile;

using runtime::DataType;
using runtime::Shape;

/// The size in bytes of a tensor whose elements have `elementBits` bits.
/// Nothing when a dimension is negative, when the size in bits does not fit an
/// int64_t (zero dimensions counted as one, so that strides are safe too), or
/// when it is no whole number of bytes.
std::optional<int64_t> shapeBytes(const Shape &shape, int64_t elementBits);
std::optional<int64_t> shapeBytes(const Shape &shape, DataType dtype);

/// `text` in single quotes, on one line whatever it holds: control bytes are
/// escaped and long text is cut. For messages about foreign names.
std::string quoteName(std::string_view text);

/// Whether all bytes are 0 or 1.
bool isBoolean(const uint8_t *data, int64_t bytes);

/// A tensor in a mapped file: compact, row-major, little-endian. `data` need
/// not be aligned to the element. The tensor keeps its file mapped.
struct MappedTensor {
  std::string name;
  DataType dtype = DataType::F32;
  Shape shape;
  const uint8_t *data = nullptr;
  int64_t bytes = 0;
  std::shared_ptr<const MappedFile> file;

  runtime::TensorView view() const { return {dtype, shape, data}; }

  /// Says that bytes [begin, begin + count) are not needed soon; reading them
  /// again stays legal.
  void release(int64_t begin, int64_t count) const;
};

/// Checks type and shape (-1 in `shape`: any). The message names the file, the
/// tensor, what was expected and what was found.
Status checkTensor(const MappedTensor &tensor, DataType dtype,
                   const Shape &shape);

} // namespace moira::io

#endif // MOIRA_RUNTIME_IO_TENSOR_H
