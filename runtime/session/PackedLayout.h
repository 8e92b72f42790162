// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Where the elements of a parameter stand: in the packed slice that kernels
// read, in the program's matrix and in the checkpoint's tensor. Gradients and
// states of optimizers that are packed alike are found the same way.

#ifndef MOIRA_RUNTIME_SESSION_PACKEDLAYOUT_H
#define MOIRA_RUNTIME_SESSION_PACKEDLAYOUT_H

#include "session/Manifest.h"

namespace moira::runtime {

/// The places of a matrix in a block of memory: element (i, j) is at
/// `rows[i] + columns[j]`. Every layout of ours is such a sum.
struct Places {
  std::vector<int64_t> rows, columns;
  int64_t count = 0; ///< elements of the block, with those between and behind

  int64_t at(int64_t row, int64_t column) const {
    return rows[row] + columns[column];
  }
};

/// A slice of a parameter. Counted in elements, whatever their type. A row of
/// the table may hold a part of the parameter only: `packed`, `program` and
/// `file` place the elements that it has, in one order. A vector is a matrix of
/// one row.
///
///   packed[4, 3] in panels of 2 columns:   n 0: 0 2 4   n 1: 1 3 5
///                                          n 2: 6 8 10  n 3: 7 9 11
struct PackedLayout {
  explicit PackedLayout(const ParameterSpec &spec);

  Places packed, program, file;

  int64_t rows() const { return packed.rows.size(); }
  int64_t columns() const { return packed.columns.size(); }
  /// Where element (row, column) of slice `slice` stands in the packed
  /// parameter.
  int64_t offset(int64_t slice, int64_t row, int64_t column) const {
    return slice * packed.count + packed.at(row, column);
  }
};

struct ParameterShard;

/// Copies a slice's elements of `bytes` bytes from `from` to where they stand
/// in the whole tensor of the file, of which this slice is `shard`; and back,
/// which leaves what stands between elements as it is.
void moveToFile(int64_t bytes, const PackedLayout &layout, const Places &from,
                const void *source, const ParameterShard &shard, void *file);
void moveFromFile(int64_t bytes, const PackedLayout &layout, const Places &to,
                  const ParameterShard &shard, const void *file, void *target);

/// Copies a slice's elements of `bytes` bytes from one layout to another; the
/// rest of `target` stays as it is.
void moveElements(int64_t bytes, const Places &from, const void *source,
                  const Places &to, void *target);

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_SESSION_PACKEDLAYOUT_H
