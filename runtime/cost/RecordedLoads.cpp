// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "cost/LoadTrace.h"

#include "io/Npy.h"

#include <cstring>

using namespace moira;
using namespace moira::runtime;

Result<RecordedLoads> RecordedLoads::read(const std::string &path) {
  Result<io::MappedTensor> file = io::readNpy(path);
  if (!file.ok())
    return file.status();
  const Shape &shape = file->shape;
  auto invalid = [&](const std::string &what) {
    return Status(MOIRA_INVALID_ARGUMENT, path + ": expected " + what);
  };
  if (file->dtype != DataType::I32 && file->dtype != DataType::I64)
    return invalid("counts in i32 or i64");
  if (shape.size() != 3 && shape.size() != 4)
    return invalid(concat("[steps, layers, experts] or [steps, ranks, layers, "
                          "experts], got ",
                          shape.size(), " dimensions"));
  RecordedLoads loads;
  bool perRank = shape.size() == 4;
  int64_t ranks = perRank ? shape[1] : 0;
  if (ranks > INT32_MAX || shape.back() > INT32_MAX || shape.back() < 1 ||
      (perRank && ranks < 1))
    return invalid("at least one rank and expert, got shape " +
                   toString(shape));
  loads.stepCount = shape[0];
  loads.rankCount = int(ranks);
  loads.layerCount = shape[perRank ? 2 : 1];
  loads.expertCount = int(shape.back());
  int64_t count = loads.stepCount * std::max<int64_t>(ranks, 1) *
                  loads.layerCount * loads.expertCount;
  loads.counts.resize(count);
  for (int64_t i = 0; i < count; ++i) {
    int64_t value;
    if (file->dtype == DataType::I32) {
      int32_t narrow;
      std::memcpy(&narrow, file->data + 4 * i, 4);
      value = narrow;
    } else {
      std::memcpy(&value, file->data + 8 * i, 8);
    }
    if (value < 0 || value > INT32_MAX)
      return invalid(
          concat("counts from 0 to 2^31 - 1, got ", value, " at place ", i));
    loads.counts[i] = int32_t(value);
  }
  return loads;
}

int64_t RecordedLoads::at(int64_t step, int64_t rank, int64_t layer,
                          int64_t expert) const {
  int64_t ranks = std::max(rankCount, 1);
  return counts[((step * ranks + rank) * layerCount + layer) * expertCount +
                expert];
}

void RecordedLoads::shares(int64_t step, int64_t layer,
                           std::vector<double> &out) const {
  out.assign(expertCount, 0);
  double sum = 0;
  for (int rank = 0; rank < std::max(rankCount, 1); ++rank)
    for (int e = 0; e < expertCount; ++e) {
      double n = double(at(step, rank, layer, e));
      out[e] += n;
      sum += n;
    }
  for (double &share : out)
    share = sum > 0 ? share / sum : 0;
}

void RecordedLoads::rows(int64_t step, int64_t layer,
                         std::vector<int32_t> &matrix) const {
  matrix.resize(size_t(rankCount) * expertCount);
  for (int rank = 0; rank < rankCount; ++rank)
    for (int e = 0; e < expertCount; ++e)
      matrix[size_t(rank) * expertCount + e] =
          int32_t(at(step, rank, layer, e));
}
