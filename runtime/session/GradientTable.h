// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The gradients that a session keeps, one buffer per row of the parameter
// table, in the row's own layout.

#ifndef MOIRA_RUNTIME_SESSION_GRADIENTTABLE_H
#define MOIRA_RUNTIME_SESSION_GRADIENTTABLE_H

#include "base/Memory.h"
#include "base/Pool.h"
#include "session/PackedLayout.h"

#include <functional>
#include <optional>
#include <vector>

namespace moira::runtime {

/// A sum of squares with twice the bits of f64: what it rounds to does not
/// depend on the order in which parts of ordinary sizes are added.
struct SquareSum {
  double high = 0, low = 0;

  /// Adds value * value.
  void add(double value);
  void add(const SquareSum &other);
  double value() const { return high + low; }
};

/// Sums are kept in f32, of f64 parameters in f64. Places between the elements
/// of a row are zero. One thread at a time; references must outlive the table.
class GradientTable {
public:
  GradientTable(const std::vector<ParameterSpec> &specs, Pool &pool,
                std::shared_ptr<MemoryAccount> account);

  /// Forgets all sums; keeps their memory.
  void zero();

  /// Where a step may put gradient `result` itself, because it is the first one
  /// and comes in the form of the sum; null: `add` must bring it there. Follow
  /// with `add` of the same address.
  Result<void *> place(const TensorSpec &result);
  /// Adds a gradient that a step has made.
  Status add(const TensorSpec &result, const void *data);

  /// The sum of a row: packedSliceBytes-many elements of `sumType`; null where
  /// nothing was added since `zero`.
  const void *sum(int row) const {
    return filled[row] ? storages[row].data() : nullptr;
  }
  DataType sumType(int row) const;
  /// Elements of a row, with those between.
  int64_t count(int row) const;
  const PackedLayout &layout(int row);
  /// Rows with a sum.
  std::vector<int> rows() const;

  /// The squares of all elements, but of the slices that `skip` names and those
  /// elements that an earlier row of the same parameter has too.
  SquareSum squares(const std::function<bool(int row, int64_t slice)> &skip);

private:
  Status prepare(int row);
  void addProgram(int row, DataType dtype, const void *data, bool first);
  void addFlat(int row, DataType dtype, const void *data, bool first);
  void clearBetween(int row);
  const std::vector<int64_t> &betweenOf(int row);
  SquareSum squaresOfShared(int row, int64_t slice);

  const std::vector<ParameterSpec> &specs;
  Pool &pool;
  std::shared_ptr<MemoryAccount> account;
  std::vector<Storage> storages;
  std::vector<char> filled;
  std::vector<std::optional<PackedLayout>> layouts;
  std::vector<std::vector<int64_t>> siblings; ///< earlier rows of the parameter
  /// Places of a slice that no element has; made when first needed.
  std::vector<std::optional<std::vector<int64_t>>> between;
};

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_SESSION_GRADIENTTABLE_H
