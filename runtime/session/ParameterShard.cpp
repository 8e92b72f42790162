// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "session/ParameterShard.h"

using namespace moira;
using namespace moira::runtime;

static int64_t product(Shape::const_iterator begin, Shape::const_iterator end) {
  int64_t result = 1;
  for (; begin != end; ++begin)
    result *= *begin;
  return result;
}

ParameterShard runtime::findShard(const ParameterSpec &spec, int64_t index) {
  const Shape &shape = spec.sourceShape; // of the shard
  ParameterShard shard;
  if (!spec.placement || spec.placement->dim < 0) {
    shard.length = product(shape.begin(), shape.end());
    return shard;
  }
  // A part of the dim that is not interleaved is a tensor of its own; one that
  // is interleaved is cut with the others, element by element.
  const ParameterPlacement &placement = *spec.placement;
  int64_t parts = placement.interleaved ? 1 : placement.parts;
  auto dim = shape.begin() + placement.dim;
  shard.runs = product(shape.begin(), dim) * parts;
  shard.length = *dim / parts * product(dim + 1, shape.end());
  shard.distance = shard.length * placement.shards;
  shard.first = shard.length * index;
  // Neighbours of a single shard are one run.
  if (shard.distance == shard.length) {
    shard.length *= shard.runs;
    shard.runs = 1;
  }
  return shard;
}
