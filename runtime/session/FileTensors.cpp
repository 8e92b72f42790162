// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "session/FileTensors.h"

#include "collective/Communicator.h"
#include "session/ParameterShard.h"

using namespace moira;
using namespace moira::runtime;

void FileTensors::make(const ParameterSpec &spec, DataType dtype,
                       const std::string &prefix) {
  Shape shape = spec.fileShape();
  int64_t tensors = spec.stacked ? spec.fileSlices() : 1;
  if (!spec.stacked && spec.fileSlices() != 1)
    shape.insert(shape.begin(), spec.fileSlices());
  for (int64_t i = 0; i < tensors; ++i) {
    FileTensor &tensor =
        all[prefix + (spec.stacked ? spec.sliceName(i) : spec.name)];
    if (!tensor.data.empty())
      continue;
    tensor.dtype = dtype;
    tensor.shape = shape;
    // Whole words, for merging.
    int64_t bytes = compactBytes(dtype, shape).value_or(0);
    tensor.data.assign((bytes + 3) / 4 * 4, 0);
  }
}

void FileTensors::put(const ParameterSpec &spec, const PackedLayout &layout,
                      const Places &places, int64_t unit, DataType dtype,
                      const void *slice, const std::string &prefix) {
  make(spec, dtype, prefix);
  int64_t shards = spec.placement ? spec.placement->shards : 1;
  int64_t fileSlice = unit / shards;
  FileTensor &tensor =
      all[prefix + (spec.stacked ? spec.sliceName(fileSlice) : spec.name)];
  int64_t bytes = compactBytes(dtype, spec.fileShape()).value_or(0);
  moveToFile(byteSize(dtype), layout, places, slice,
             findShard(spec, unit % shards),
             tensor.data.data() + (spec.stacked ? 0 : fileSlice * bytes));
}

Status FileTensors::merge(Communicator &group) {
  for (auto &[name, tensor] : all)
    MOIRA_RETURN_IF_ERROR(group.allReduce(tensor.data.data(),
                                          int64_t(tensor.data.size()) / 4,
                                          MOIRA_I32, Reduction::Sum));
  return Status();
}
