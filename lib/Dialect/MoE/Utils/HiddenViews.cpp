// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "HiddenViews.h"

#include "mlir/Dialect/Utils/StaticValueUtils.h"

using namespace mlir;
using namespace mlir::moe;

/// The dim of a slice that shows dim `dim` of its source, or -1.
static int64_t dimOfSlice(tensor::ExtractSliceOp slice, int64_t dim) {
  llvm::SmallBitVector dropped = slice.getDroppedDims();
  if (dropped.test(dim))
    return -1;
  int64_t result = 0;
  for (int64_t d = 0; d < dim; ++d)
    result += !dropped.test(d);
  return result;
}

/// The dim of a slice's source that dim `dim` of the slice shows.
static int64_t dimOfSource(tensor::ExtractSliceOp slice, int64_t dim) {
  llvm::SmallBitVector dropped = slice.getDroppedDims();
  for (int64_t d = 0; d < static_cast<int64_t>(dropped.size()); ++d)
    if (!dropped.test(d) && dim-- == 0)
      return d;
  llvm_unreachable("a slice shows a dim of its source in each of its dims");
}

std::optional<HiddenPlace>
mlir::moe::detail::throughSlice(tensor::ExtractSliceOp slice, HiddenPlace place,
                                int64_t hidden, bool toResult) {
  int64_t dim = toResult ? place.dim : dimOfSource(slice, place.dim);
  int64_t shown = toResult ? dimOfSlice(slice, dim) : place.dim;
  std::optional<int64_t> offset =
      getConstantIntValue(slice.getMixedOffsets()[dim]);
  std::optional<int64_t> size = getConstantIntValue(slice.getMixedSizes()[dim]);
  std::optional<int64_t> stride =
      getConstantIntValue(slice.getMixedStrides()[dim]);
  int64_t all = slice.getSourceType().getDimSize(dim);
  if (shown < 0 || !offset || !size || !stride)
    return std::nullopt;
  HiddenPlace result = place;
  result.dim = toResult ? shown : dim;
  if (*offset == 0 && *size == all && *stride == 1)
    return result;
  // One of several parts.
  if (*size != hidden || all % hidden != 0 || (!toResult && place.parts != 1))
    return std::nullopt;
  HiddenPlace source{dim, all / hidden, false};
  if (*stride == source.parts && *offset < source.parts)
    source.interleaved = true;
  else if (*stride != 1 || *offset % hidden != 0)
    return std::nullopt;
  if (!toResult)
    return source;
  if (!(source == place))
    return std::nullopt;
  return HiddenPlace{shown};
}

/// The sizes of `type` in `group`, without ones, and which dims they are.
static SmallVector<int64_t> longDims(RankedTensorType type,
                                     ArrayRef<int64_t> group) {
  SmallVector<int64_t> dims;
  for (int64_t d : group)
    if (type.getDimSize(d) != 1)
      dims.push_back(d);
  return dims;
}

std::optional<HiddenPlace>
mlir::moe::detail::mergePlace(RankedTensorType expanded,
                              ArrayRef<ReassociationIndices> groups,
                              HiddenPlace place) {
  for (auto [i, group] : llvm::enumerate(groups)) {
    if (!llvm::is_contained(group, place.dim))
      continue;
    SmallVector<int64_t> dims = longDims(expanded, group);
    if (group.size() == 1 || dims.size() == 1) {
      place.dim = i;
      return place;
    }
    if (dims.size() != 2 || place.parts != 1)
      return std::nullopt;
    bool interleaved = dims[0] == place.dim;
    int64_t parts = expanded.getDimSize(interleaved ? dims[1] : dims[0]);
    if (ShapedType::isDynamic(parts))
      return std::nullopt;
    return HiddenPlace{static_cast<int64_t>(i), parts, interleaved};
  }
  return std::nullopt;
}

std::optional<HiddenPlace>
mlir::moe::detail::splitPlace(RankedTensorType expanded,
                              ArrayRef<ReassociationIndices> groups,
                              HiddenPlace place) {
  ArrayRef<int64_t> group = groups[place.dim];
  SmallVector<int64_t> dims = longDims(expanded, group);
  if (group.size() == 1 || dims.size() == 1) {
    place.dim = group.size() == 1 ? group.front() : dims.front();
    return place;
  }
  if (dims.size() != 2 || place.parts == 1)
    return std::nullopt;
  int64_t dim = dims[place.interleaved ? 0 : 1];
  int64_t other = dims[place.interleaved ? 1 : 0];
  if (expanded.getDimSize(other) != place.parts)
    return std::nullopt;
  return HiddenPlace{dim};
}
