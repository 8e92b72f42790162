// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "collective/Reduction.h"

#include "base/Convert.h"
#include "collective/Collective.h"

#include <algorithm>

using namespace moira;
using namespace moira::runtime;

/// Elements at a time: the sum stays in the first level of the cache while
/// parts come in one after the other.
static constexpr int64_t kBlock = 2048;

int64_t moira::runtime::reducibleBytes(int32_t dtype) {
  switch (dtype) {
  case MOIRA_F16:
  case MOIRA_BF16:
    return 2;
  case MOIRA_F32:
  case MOIRA_I32:
    return 4;
  case MOIRA_F64:
  case MOIRA_I64:
    return 8;
  default:
    return 0;
  }
}

Status moira::runtime::checkReducible(int32_t dtype) {
  if (reducibleBytes(dtype))
    return Status();
  return Status(MOIRA_INVALID_ARGUMENT,
                concat("reduction: expected f16, bf16, f32, f64, i32 or i64, "
                       "got type ",
                       dtype));
}

template <typename T>
static void combine(T *to, const T *from, int64_t count, Reduction reduction) {
  if (reduction == Reduction::Sum)
    for (int64_t i = 0; i < count; ++i)
      to[i] += from[i];
  else
    for (int64_t i = 0; i < count; ++i)
      to[i] = std::max(to[i], from[i]);
}

/// Integers wrap, as those of generated code do.
static void combine(int32_t *to, const int32_t *from, int64_t count,
                    Reduction reduction) {
  if (reduction == Reduction::Sum)
    return combine(reinterpret_cast<uint32_t *>(to),
                   reinterpret_cast<const uint32_t *>(from), count, reduction);
  combine<int32_t>(to, from, count, reduction);
}

static void combine(int64_t *to, const int64_t *from, int64_t count,
                    Reduction reduction) {
  if (reduction == Reduction::Sum)
    return combine(reinterpret_cast<uint64_t *>(to),
                   reinterpret_cast<const uint64_t *>(from), count, reduction);
  combine<int64_t>(to, from, count, reduction);
}

template <typename T>
static void reduce(T *out, const std::vector<const void *> &parts,
                   int64_t count, Reduction reduction) {
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    int64_t n = std::min(kBlock, count - begin);
    copyBytes(out + begin, static_cast<const T *>(parts[0]) + begin,
              n * static_cast<int64_t>(sizeof(T)));
    for (size_t p = 1; p < parts.size(); ++p)
      combine(out + begin, static_cast<const T *>(parts[p]) + begin, n,
              reduction);
  }
}

static void reduceNarrow(uint16_t *out, const std::vector<const void *> &parts,
                         int64_t count, DataType dtype, Reduction reduction) {
  float sums[kBlock], next[kBlock];
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    int64_t n = std::min(kBlock, count - begin);
    auto load = [&](size_t p, float *to) {
      convert(dtype, static_cast<const uint16_t *>(parts[p]) + begin,
              DataType::F32, to, n);
    };
    load(0, sums);
    for (size_t p = 1; p < parts.size(); ++p) {
      load(p, next);
      combine(sums, next, n, reduction);
    }
    convert(DataType::F32, sums, dtype, out + begin, n);
  }
}

void moira::runtime::reduceParts(void *out,
                                 const std::vector<const void *> &parts,
                                 int64_t count, int32_t dtype,
                                 Reduction reduction) {
  switch (dtype) {
  case MOIRA_F16:
  case MOIRA_BF16:
    return reduceNarrow(static_cast<uint16_t *>(out), parts, count,
                        static_cast<DataType>(dtype), reduction);
  case MOIRA_F32:
    return reduce(static_cast<float *>(out), parts, count, reduction);
  case MOIRA_F64:
    return reduce(static_cast<double *>(out), parts, count, reduction);
  case MOIRA_I32:
    return reduce(static_cast<int32_t *>(out), parts, count, reduction);
  default:
    return reduce(static_cast<int64_t *>(out), parts, count, reduction);
  }
}
