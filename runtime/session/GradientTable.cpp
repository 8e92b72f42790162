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
      siblings(specs.size()), between(specs.size()) {}

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
    if (row != inOrder) {
      if (first)
        clearBetween(row);
      addProgram(row, result.dtype, data, first);
    } else {
      if (data != storages[row].data())
        addFlat(row, result.dtype, data, first);
      clearBetween(row); // a step need not have zeroes there
    }
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

const std::vector<int64_t> &GradientTable::betweenOf(int row) {
  if (between[row])
    return *between[row];
  const Places &packed = layout(row).packed;
  std::vector<int64_t> &places = between[row].emplace();
  if (packed.count == layout(row).rows() * layout(row).columns())
    return places;
  std::vector<char> used(packed.count, 0);
  for (int64_t r : packed.rows)
    for (int64_t c : packed.columns)
      used[r + c] = 1;
  for (int64_t i = 0; i < packed.count; ++i)
    if (!used[i])
      places.push_back(i);
  return places;
}

/// Zeroes what stands between the elements: padding of panels.
void GradientTable::clearBetween(int row) {
  const std::vector<int64_t> &places = betweenOf(row);
  int64_t bytes = byteSize(sumType(row)), count = layout(row).packed.count;
  auto *sums = static_cast<char *>(storages[row].data());
  for (int64_t slice = 0; slice < specs[row].slices; ++slice)
    for (int64_t place : places)
      std::memset(sums + (slice * count + place) * bytes, 0, bytes);
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

/// Squares side by side, each lane with a sum of its own. Products of two f32
/// are exact in f64, those of two f64 are not.
template <typename T>
static SquareSum squaresOfRange(const T *values, int64_t count) {
  constexpr int lanes = 16;
  double high[lanes] = {}, low[lanes] = {};
  for (int64_t i = 0; i + lanes <= count; i += lanes)
    for (int lane = 0; lane < lanes; ++lane) {
      double value = values[i + lane], square = value * value;
      double total = high[lane] + square, part = total - high[lane];
      low[lane] += (high[lane] - (total - part)) + (square - part);
      if constexpr (sizeof(T) == sizeof(double))
        low[lane] += std::fma(value, value, -square);
      high[lane] = total;
    }
  SquareSum all;
  for (int lane = 0; lane < lanes; ++lane)
    all.add(SquareSum{high[lane], low[lane]});
  for (int64_t i = count / lanes * lanes; i < count; ++i)
    all.add(values[i]);
  return all;
}

SquareSum GradientTable::squares(
    const std::function<bool(int row, int64_t slice)> &skip) {
  struct Job {
    int row;
    int64_t first, count;
    SquareSum sum;
  };
  std::vector<Job> jobs;
  SquareSum all;
  for (int row : rows())
    for (int64_t slice = 0; slice < specs[row].slices; ++slice) {
      if (skip(row, slice))
        continue;
      if (!siblings[row].empty()) {
        all.add(squaresOfShared(row, slice));
        continue;
      }
      // What stands between is zero.
      int64_t count = layout(row).packed.count;
      for (int64_t i = 0; i < count; i += chunkElements)
        jobs.push_back({row, slice * count + i,
                        std::min(chunkElements, count - i), SquareSum()});
    }
  auto body = [&](int64_t index, int64_t) {
    Job &job = jobs[index];
    const void *sums = storages[job.row].data();
    job.sum =
        sumType(job.row) == DataType::F64
            ? squaresOfRange(static_cast<const double *>(sums) + job.first,
                             job.count)
            : squaresOfRange(static_cast<const float *>(sums) + job.first,
                             job.count);
  };
  pool.run(jobs.size(), chunkElements * picosecondsPerElement / 1000,
           std::ref(body));
  for (const Job &job : jobs)
    all.add(job.sum);
  return all;
}

/// Of a row that has elements in common with earlier ones.
SquareSum GradientTable::squaresOfShared(int row, int64_t slice) {
  const PackedLayout &places = layout(row);
  bool isWide = sumType(row) == DataType::F64;
  const void *sums = storages[row].data();
  std::vector<
      std::pair<std::unordered_set<int64_t>, std::unordered_set<int64_t>>>
      covers;
  for (int64_t earlier : siblings[row])
    covers.push_back(coverOf(layout(earlier)));
  SquareSum total;
  for (int64_t r = 0; r < places.rows(); ++r)
    for (int64_t c = 0; c < places.columns(); ++c) {
      bool known = std::any_of(covers.begin(), covers.end(), [&](auto &cover) {
        return cover.first.count(places.program.rows[r]) &&
               cover.second.count(places.program.columns[c]);
      });
      int64_t place = places.offset(slice, r, c);
      if (!known)
        total.add(isWide ? ReadF64::at(sums, place) : ReadF32::at(sums, place));
    }
  return total;
}
