// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "session/GradientTable.h"

#include "base/Convert.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <unordered_set>

using namespace moira;
using namespace moira::runtime;

//===----------------------------------------------------------------------===//
// Sums
//===----------------------------------------------------------------------===//

/// Adds without loss: what `high + value` rounds away goes to `low`.
static void addExactly(SquareSum &sum, double value) {
  double total = sum.high + value;
  double part = total - sum.high;
  sum.low += (sum.high - (total - part)) + (value - part);
  sum.high = total;
}

void SquareSum::add(double value) {
  double square = value * value;
  addExactly(*this, square);
  low += std::fma(value, value, -square);
}

void SquareSum::add(const SquareSum &other) {
  addExactly(*this, other.high);
  low += other.low;
}

//===----------------------------------------------------------------------===//
// The table
//===----------------------------------------------------------------------===//

GradientTable::GradientTable(const std::vector<ParameterSpec> &specs,
                             Pool &pool, std::shared_ptr<MemoryAccount> account)
    : specs(specs), pool(pool), account(std::move(account)),
      storages(specs.size()), filled(specs.size(), 0), layouts(specs.size()),
      siblings(specs.size()) {}

void GradientTable::zero() { std::fill(filled.begin(), filled.end(), 0); }

DataType GradientTable::sumType(int row) const {
  return specs[row].sourceType == DataType::F64 ? DataType::F64 : DataType::F32;
}

int64_t GradientTable::count(int row) const {
  return specs[row].packedBytes() / byteSize(specs[row].sourceType);
}

const PackedLayout &GradientTable::layout(int row) {
  if (!layouts[row])
    layouts[row].emplace(specs[row]);
  return *layouts[row];
}

std::vector<int> GradientTable::rows() const {
  std::vector<int> all;
  for (size_t row = 0; row < filled.size(); ++row)
    if (filled[row])
      all.push_back(static_cast<int>(row));
  return all;
}

Status GradientTable::prepare(int row) {
  if (storages[row].data())
    return Status();
  Result<Storage> storage = Storage::allocate(
      account, MemoryKind::Training, count(row) * byteSize(sumType(row)));
  if (!storage.ok())
    return storage.status().within(
        concat("gradient of parameter '", specs[row].name, "'"));
  storages[row] = std::move(*storage);
  return Status();
}

/// The one row whose memory has the elements in the order of the gradient; -1
/// where there is none.
static int rowInOrder(const GradientSpec &gradient,
                      const std::vector<ParameterSpec> &specs) {
  if (gradient.packedAs >= 0)
    return static_cast<int>(gradient.packedAs);
  for (int64_t row : gradient.rows) {
    const std::optional<PackingSpec> &packing = specs[row].packing;
    if (!packing)
      return static_cast<int>(row);
  }
  return -1;
}

Result<void *> GradientTable::place(const TensorSpec &result) {
  const GradientSpec &gradient = *result.gradient;
  int row = rowInOrder(gradient, specs);
  if (row < 0 || gradient.rows.size() != 1 || filled[row] ||
      result.dtype != sumType(row))
    return static_cast<void *>(nullptr);
  MOIRA_RETURN_IF_ERROR(prepare(row));
  return storages[row].data();
}

Status GradientTable::add(const TensorSpec &result, const void *data) {
  const GradientSpec &gradient = *result.gradient;
  int inOrder = rowInOrder(gradient, specs);
  for (int64_t row : gradient.rows) {
    MOIRA_RETURN_IF_ERROR(prepare(row));
    siblings[row].assign(
        gradient.rows.begin(),
        std::find(gradient.rows.begin(), gradient.rows.end(), row));
    bool first = !filled[row];
    if (row != inOrder)
      addProgram(row, result.dtype, data, first);
    else if (data != storages[row].data())
      addFlat(row, result.dtype, data, first);
    clearBetween(row);
    filled[row] = 1;
  }
  return Status();
}

//===----------------------------------------------------------------------===//
// Adding
//===----------------------------------------------------------------------===//

/// About what a loop over one element takes; only says what is worth a thread.
static constexpr int64_t picosecondsPerElement = 500;
static constexpr int64_t chunkElements = 1 << 15;

namespace {
/// Reads an element of any float type.
struct ReadF32 {
  static double at(const void *data, int64_t i) {
    return static_cast<const float *>(data)[i];
  }
};
struct ReadF64 {
  static double at(const void *data, int64_t i) {
    return static_cast<const double *>(data)[i];
  }
};
struct ReadF16 {
  static double at(const void *data, int64_t i) {
    return fromHalf(static_cast<const uint16_t *>(data)[i]);
  }
};
struct ReadBF16 {
  static double at(const void *data, int64_t i) {
    return fromBfloat(static_cast<const uint16_t *>(data)[i]);
  }
};
} // namespace

/// Calls `action` with the reader of a type and a zero of the type of sums.
template <typename Action>
static void dispatch(DataType dtype, DataType sum, const Action &action) {
  if (sum == DataType::F64)
    return action(ReadF64(), double());
  switch (dtype) {
  case DataType::F16:
    return action(ReadF16(), float());
  case DataType::BF16:
    return action(ReadBF16(), float());
  default:
    return action(ReadF32(), float());
  }
}

void GradientTable::addFlat(int row, DataType dtype, const void *data,
                            bool first) {
  int64_t all = count(row);
  dispatch(dtype, sumType(row), [&](auto reader, auto zero) {
    using Sum = decltype(zero);
    auto *sums = static_cast<Sum *>(storages[row].data());
    auto body = [&](int64_t chunk, int64_t) {
      int64_t begin = chunk * chunkElements;
      int64_t end = std::min(all, begin + chunkElements);
      for (int64_t i = begin; i < end; ++i) {
        Sum value = static_cast<Sum>(reader.at(data, i));
        sums[i] = first ? value : sums[i] + value;
      }
    };
    pool.run((all + chunkElements - 1) / chunkElements,
             chunkElements * picosecondsPerElement / 1000, std::ref(body));
  });
}

/// From the program's form to the row's. Of a row that has a part of the
/// parameter only, the rest is read by others.
void GradientTable::addProgram(int row, DataType dtype, const void *data,
                               bool first) {
  const PackedLayout &places = layout(row);
  int64_t rows = places.rows();
  dispatch(dtype, sumType(row), [&](auto reader, auto zero) {
    using Sum = decltype(zero);
    auto *sums = static_cast<Sum *>(storages[row].data());
    auto body = [&](int64_t index, int64_t) {
      int64_t slice = index / rows, r = index % rows;
      Sum *to = sums + slice * places.packed.count + places.packed.rows[r];
      int64_t from = slice * places.program.count + places.program.rows[r];
      for (int64_t c = 0; c < places.columns(); ++c) {
        Sum &sum = to[places.packed.columns[c]];
        Sum value =
            static_cast<Sum>(reader.at(data, from + places.program.columns[c]));
        sum = first ? value : sum + value;
      }
    };
    pool.run(specs[row].slices * rows,
             1 + places.columns() * picosecondsPerElement / 1000,
             std::ref(body));
  });
}

/// Zeroes what stands between the elements: padding of panels.
void GradientTable::clearBetween(int row) {
  const PackedLayout &places = layout(row);
  if (places.packed.count == places.rows() * places.columns())
    return;
  std::vector<char> used(places.packed.count, 0);
  for (int64_t r : places.packed.rows)
    for (int64_t c : places.packed.columns)
      used[r + c] = 1;
  int64_t bytes = byteSize(sumType(row));
  auto *sums = static_cast<char *>(storages[row].data());
  for (int64_t slice = 0; slice < specs[row].slices; ++slice)
    for (int64_t i = 0; i < places.packed.count; ++i)
      if (!used[i])
        std::memset(sums + (slice * places.packed.count + i) * bytes, 0, bytes);
}

//===----------------------------------------------------------------------===//
// Norms
//===----------------------------------------------------------------------===//

/// The program's rows and columns that `places` has.
static std::pair<std::unordered_set<int64_t>, std::unordered_set<int64_t>>
coverOf(const PackedLayout &places) {
  return {{places.program.rows.begin(), places.program.rows.end()},
          {places.program.columns.begin(), places.program.columns.end()}};
}

SquareSum GradientTable::squaresOf(int row, int64_t slice) {
  const PackedLayout &places = layout(row);
  bool isWide = sumType(row) == DataType::F64;
  const void *sums = storages[row].data();
  auto read = [&](int64_t i) {
    return isWide ? ReadF64::at(sums, i) : ReadF32::at(sums, i);
  };
  SquareSum total;
  if (siblings[row].empty()) { // what stands between is zero
    int64_t begin = slice * places.packed.count;
    for (int64_t i = begin; i < begin + places.packed.count; ++i)
      total.add(read(i));
    return total;
  }
  std::vector<
      std::pair<std::unordered_set<int64_t>, std::unordered_set<int64_t>>>
      covers;
  for (int64_t earlier : siblings[row])
    covers.push_back(coverOf(layout(earlier)));
  for (int64_t r = 0; r < places.rows(); ++r)
    for (int64_t c = 0; c < places.columns(); ++c) {
      bool known = std::any_of(covers.begin(), covers.end(), [&](auto &cover) {
        return cover.first.count(places.program.rows[r]) &&
               cover.second.count(places.program.columns[c]);
      });
      if (!known)
        total.add(read(places.offset(slice, r, c)));
    }
  return total;
}
