// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "support/Compare.h"

#include "base/Convert.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

using namespace moira;
using namespace moira::tools;
using namespace moira::runtime;

/// Rows and elements per row; a tensor of rank 0 or 1 is one row.
static std::pair<int64_t, int64_t> rowsOf(const Shape &shape) {
  int64_t count = std::accumulate(shape.begin(), shape.end(), int64_t(1),
                                  std::multiplies<int64_t>());
  int64_t columns = shape.empty() ? 1 : shape.back();
  return {columns == 0 ? 0 : count / columns, columns};
}

/// One row as f64.
static void loadRow(const TensorView &tensor, int64_t row, int64_t columns,
                    std::vector<double> &values) {
  values.resize(columns);
  const auto *data = static_cast<const char *>(tensor.data) +
                     row * columns * byteSize(tensor.dtype);
  if (isFloat(tensor.dtype)) {
    convert(tensor.dtype, data, DataType::F64, values.data(), columns);
    return;
  }
  for (int64_t i = 0; i < columns; ++i) {
    const char *element = data + i * byteSize(tensor.dtype);
    int64_t value = 0;
    std::memcpy(&value, element, byteSize(tensor.dtype)); // little-endian
    int shift = 64 - 8 * static_cast<int>(byteSize(tensor.dtype));
    if (tensor.dtype != DataType::I1)
      value =
          static_cast<int64_t>(static_cast<uint64_t>(value) << shift) >> shift;
    values[i] = static_cast<double>(value);
  }
}

//===----------------------------------------------------------------------===//
// Values
//===----------------------------------------------------------------------===//

double tools::relativeBound(DataType dtype) {
  switch (dtype) {
  case DataType::F64:
    return 0x1p-42;
  case DataType::F32:
    return 0x1p-16;
  case DataType::F16:
    return 0x1p-9;
  case DataType::BF16:
    return 0x1p-6;
  default:
    return 0;
  }
}

void Comparison::add(const Comparison &other) {
  elements += other.elements;
  identical += other.identical;
  maxAbsolute = std::max(maxAbsolute, other.maxAbsolute);
  maxRelative = std::max(maxRelative, other.maxRelative);
  beyond += other.beyond;
  if (firstBeyond.empty())
    firstBeyond = other.firstBeyond;
}

static double largest(const std::vector<double> &values) {
  double most = 0;
  for (double value : values)
    if (std::isfinite(value))
      most = std::max(most, std::fabs(value));
  return most;
}

Comparison tools::compareValues(const std::string &name,
                                const TensorView &expected,
                                const TensorView &found) {
  Comparison result;
  const int64_t size = byteSize(expected.dtype);
  const double bound = relativeBound(expected.dtype);
  auto [rows, columns] = rowsOf(expected.shape);
  std::vector<double> wanted, got;
  for (int64_t row = 0; row < rows; ++row) {
    loadRow(expected, row, columns, wanted);
    loadRow(found, row, columns, got);
    double scale = largest(wanted);
    for (int64_t i = 0; i < columns; ++i) {
      ++result.elements;
      int64_t offset = (row * columns + i) * size;
      if (std::memcmp(static_cast<const char *>(expected.data) + offset,
                      static_cast<const char *>(found.data) + offset,
                      size) == 0) {
        ++result.identical;
        continue;
      }
      if (wanted[i] == got[i] || (std::isnan(wanted[i]) && std::isnan(got[i])))
        continue;
      double error = std::fabs(wanted[i] - got[i]);
      double relative =
          scale > 0 ? error / scale : std::numeric_limits<double>::infinity();
      // A NaN or an infinity on one side only: no error in numbers.
      if (std::isfinite(error)) {
        result.maxAbsolute = std::max(result.maxAbsolute, error);
        result.maxRelative = std::max(result.maxRelative, relative);
        if (relative <= bound)
          continue;
      }
      if (result.beyond++ == 0)
        result.firstBeyond = concat(name, " [", row, ", ", i, "]: expected ",
                                    wanted[i], ", got ", got[i]);
    }
  }
  return result;
}

//===----------------------------------------------------------------------===//
// Choices
//===----------------------------------------------------------------------===//

void Choices::add(const Choices &other) {
  tokens += other.tokens;
  exact += other.exact;
  epsilon = std::max(epsilon, other.epsilon);
  wrong += other.wrong;
  if (firstWrong.empty())
    firstWrong = other.firstWrong;
}

/// Like a gate reads logits: NaN is the smallest, +inf the largest finite.
static double readLogit(double value, DataType dtype) {
  if (std::isnan(value))
    return -std::numeric_limits<double>::infinity();
  if (std::isinf(value) && value > 0)
    return dtype == DataType::F64 ? std::numeric_limits<double>::max()
                                  : double(std::numeric_limits<float>::max());
  return value;
}

/// A score's difference that a rounding may make, over the row's largest.
static double choiceEpsilon(DataType dtype) {
  // The sum behind a logit rounds more often than a result's last step.
  return relativeBound(dtype);
}

static std::string listIds(const int32_t *ids, int64_t count) {
  std::string text = "[";
  for (int64_t i = 0; i < count; ++i)
    text += (i == 0 ? "" : ", ") + std::to_string(ids[i]);
  return text + "]";
}

/// The ids of the oracle: the largest first, ties to the lowest id.
static std::vector<int32_t> topK(const std::vector<double> &logits,
                                 int64_t count) {
  std::vector<int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  count = std::min<int64_t>(count, ids.size());
  std::partial_sort(
      ids.begin(), ids.begin() + count, ids.end(), [&](int32_t a, int32_t b) {
        return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
      });
  ids.resize(count);
  return ids;
}

/// Whether the ids are distinct, in range, and for each place a logit within
/// `slack` of the one that stands there in the sorted row.
static bool isAdmissible(const std::vector<double> &logits,
                         const std::vector<int32_t> &best, const int32_t *ids,
                         double slack) {
  std::vector<bool> seen(logits.size());
  for (size_t j = 0; j < best.size(); ++j) {
    if (ids[j] < 0 || ids[j] >= static_cast<int64_t>(logits.size()) ||
        seen[ids[j]])
      return false;
    seen[ids[j]] = true;
    double wanted = logits[best[j]], got = logits[ids[j]];
    if (wanted != got && !(std::fabs(wanted - got) <= slack))
      return false;
  }
  return true;
}

Choices tools::checkTopK(const std::string &name, const TensorView &logits,
                         const TensorView &ids) {
  Choices result;
  result.epsilon = choiceEpsilon(logits.dtype);
  auto [rows, experts] = rowsOf(logits.shape);
  int64_t choices = ids.shape.back();
  const auto *chosen = static_cast<const int32_t *>(ids.data);
  std::vector<double> row;
  for (int64_t t = 0; t < rows; ++t, chosen += choices) {
    loadRow(logits, t, experts, row);
    for (double &value : row)
      value = readLogit(value, logits.dtype);
    std::vector<int32_t> best = topK(row, choices);
    ++result.tokens;
    if (std::equal(best.begin(), best.end(), chosen)) {
      ++result.exact;
      continue;
    }
    if (isAdmissible(row, best, chosen, result.epsilon * largest(row)))
      continue;
    if (result.wrong++ == 0)
      result.firstWrong =
          concat(name, ", token ", t, ": expected ids ",
                 listIds(best.data(), best.size()), " (within ", result.epsilon,
                 " of the logits), got ", listIds(chosen, choices));
  }
  return result;
}

Choices tools::checkEqual(const std::string &name, const TensorView &expected,
                          const TensorView &ids) {
  Choices result;
  auto [rows, choices] = rowsOf(ids.shape);
  const auto *wanted = static_cast<const int32_t *>(expected.data);
  const auto *got = static_cast<const int32_t *>(ids.data);
  for (int64_t t = 0; t < rows; ++t, wanted += choices, got += choices) {
    ++result.tokens;
    if (std::equal(wanted, wanted + choices, got)) {
      ++result.exact;
      continue;
    }
    if (result.wrong++ == 0)
      result.firstWrong =
          concat(name, ", token ", t, ": expected ids ",
                 listIds(wanted, choices), ", got ", listIds(got, choices));
  }
  return result;
}
