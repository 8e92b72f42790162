// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Memory.h"

#include "mlir/Dialect/Utils/StaticValueUtils.h"

using namespace mlir;
using namespace mlir::moe::detail;

int64_t mlir::moe::detail::getElementBytes(MemRefType type) {
  Type element = type.getElementType();
  return element.isIndex()
             ? 8
             : llvm::divideCeil(element.getIntOrFloatBitWidth(), 8);
}

View Memory::allocate(Value memref, ArrayRef<Number> dynamicSizes) {
  auto type = cast<MemRefType>(memref.getType());
  View view;
  view.region.buffer = numBuffers++;
  std::optional<int64_t> bytes = getElementBytes(type);
  for (int64_t size : type.getShape()) {
    Number number = Number::shared(size);
    if (ShapedType::isDynamic(size)) {
      number = dynamicSizes.empty() ? Number() : dynamicSizes.front();
      dynamicSizes = dynamicSizes.drop_front(!dynamicSizes.empty());
    }
    view.sizes.push_back(number);
    bytes = bytes && number.value ? std::optional(*bytes * *number.value)
                                  : std::nullopt;
  }
  if (bytes)
    view.region.end = *bytes;
  return view;
}

View Memory::getView(Value memref) const {
  auto it = views.find(memref);
  if (it != views.end())
    return it->second;
  View view;
  for (int64_t size : cast<MemRefType>(memref.getType()).getShape())
    view.sizes.push_back(ShapedType::isDynamic(size) ? Number()
                                                     : Number::shared(size));
  return view;
}

void Memory::setSomewhere(Value memref, int64_t buffer) {
  views.erase(memref);
  View view = getView(memref);
  view.region.buffer = buffer;
  set(memref, view);
}

void Memory::copy(Value from, Value to) {
  if (isa<MemRefType>(from.getType()))
    views[to] = getView(from);
  else
    numbers[to] = getNumber(from);
}

void Memory::forget(Value value) {
  numbers.erase(value);
  views.erase(value);
}

Number Memory::getNumber(OpFoldResult value) const {
  if (std::optional<int64_t> constant = getConstantIntValue(value))
    return Number::shared(*constant);
  return getNumber(cast<Value>(value));
}

ByteRange Memory::getBox(Value memref, ArrayRef<OpFoldResult> offsets,
                         ArrayRef<OpFoldResult> sizes,
                         ArrayRef<OpFoldResult> strides) const {
  ByteRange whole = getView(memref).region;
  auto type = cast<MemRefType>(memref.getType());
  SmallVector<int64_t> steps;
  int64_t offset;
  if (failed(type.getStridesAndOffset(steps, offset)))
    return whole;
  // A view with an offset begins at its region already.
  int64_t first = 0, last = 0;
  bool isEmpty = false;
  for (auto [d, step] : llvm::enumerate(steps)) {
    std::optional<int64_t> begin = getNumber(offsets[d]).value;
    std::optional<int64_t> size = getNumber(sizes[d]).value;
    std::optional<int64_t> stride = getNumber(strides[d]).value;
    if (!begin || !size || !stride)
      return whole;
    if (ShapedType::isDynamic(step)) {
      if (*begin != 0 || *size > 1)
        return whole;
      step = 0;
    }
    isEmpty |= *size == 0;
    first += *begin * step;
    last += (*begin + (*size - 1) * *stride) * step;
  }
  int64_t bytes = getElementBytes(type);
  ByteRange region = whole;
  region.begin = whole.begin + first * bytes;
  region.end = isEmpty ? region.begin : whole.begin + (last + 1) * bytes;
  return region;
}

ByteRange Memory::getElement(Value memref, ValueRange indices) const {
  Builder b(memref.getContext());
  SmallVector<OpFoldResult> ones(indices.size(), b.getIndexAttr(1));
  return getBox(memref, getAsOpFoldResult(indices), ones, ones);
}

Number Memory::load(const ByteRange &region) const {
  return contents.lookup({region.buffer, region.begin});
}

void Memory::store(const ByteRange &region, Number number) {
  clobber(region);
  if (region.buffer != ByteRange::kAnyBuffer &&
      region.end != ByteRange::kUnknownEnd)
    contents[{region.buffer, region.begin}] = number;
}

void Memory::clobber(const ByteRange &region) {
  llvm::SmallVector<std::pair<int64_t, int64_t>> stale;
  for (auto &[place, number] : contents) {
    // Numbers of 8 bytes are all that matters.
    ByteRange stored{place.first, place.second, place.second + 8};
    if (stored.overlaps(region))
      stale.push_back(place);
  }
  for (auto &place : stale)
    contents.erase(place);
}
