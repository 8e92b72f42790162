// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads .npy files of format 1, 2 and 3: f2 f4 f8 i1 i4 i8 b1, little-endian,
// C order. bf16 has no type of its own in the format: libraries that store it
// write the two-byte void type, which is read as bf16 only on request.

#ifndef MOIRA_RUNTIME_IO_NPY_H
#define MOIRA_RUNTIME_IO_NPY_H

#include "io/Tensor.h"

namespace moira::io {

struct NpyOptions {
  /// Read '<V2' as bf16 instead of refusing it.
  bool voidAsBf16 = false;
};

/// Maps the array in `path`; the tensor's name is empty. The file must hold
/// exactly one array. Bytes of a boolean array are checked to be 0 or 1.
Result<MappedTensor> readNpy(const std::string &path, NpyOptions options = {});

/// Reads an array from memory; `where` begins messages. The tensor points
/// into `data` and keeps nothing alive.
Result<MappedTensor> parseNpy(const uint8_t *data, int64_t size,
                              const std::string &where,
                              NpyOptions options = {});

/// Writes a compact row-major array; bf16 is widened to f32. `path` appears
/// whole or not at all.
Status writeNpy(const std::string &path, DataType dtype, const Shape &shape,
                const void *data);

/// The header that writeNpy puts before the array. `dtype` is not bf16.
std::string npyHeader(DataType dtype, const Shape &shape);

} // namespace moira::io

#endif // MOIRA_RUNTIME_IO_NPY_H
