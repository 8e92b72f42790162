// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "TileKernel.h"

#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

TileFormat TileFormat::get(FloatType element, FloatType accumulator,
                           int64_t weights, int64_t width, bool pairs,
                           const CPUTileOptions &options) {
  TileFormat format;
  format.element = element;
  format.accumulator = accumulator;
  format.weights = weights;
  format.width = width;
  format.pairs = pairs;
  format.rows = options.rowTile;
  format.fetchesNear = options.prefetchLevel == 1;
  format.lanes =
      std::min<int64_t>(options.vectorBits / accumulator.getWidth(), width);
  format.vectors = std::max<int64_t>(options.getVectorsPerRow() / weights, 1);
  while (width % (format.vectors * format.lanes) != 0)
    --format.vectors;
  return format;
}

Type TileFormat::stageElement() const {
  if (!pairs)
    return accumulator;
  return IntegerType::get(element.getContext(),
                          2 * element.getIntOrFloatBitWidth());
}

static MemRefType flatType(Type element) {
  return MemRefType::get({ShapedType::kDynamic}, element);
}

Value mlir::moe::detail::flatten(LoopBuilder &b, Value memref) {
  auto type = cast<MemRefType>(memref.getType());
  if (type.getRank() > 1) {
    ReassociationIndices all =
        llvm::to_vector(llvm::seq<int64_t>(0, type.getRank()));
    memref = b.make<memref::CollapseShapeOp>(
        memref, ArrayRef<ReassociationIndices>(all));
  }
  auto flat = flatType(type.getElementType());
  if (memref.getType() == flat)
    return memref;
  return b.make<memref::CastOp>(flat, memref);
}

void mlir::moe::detail::emitPrefetches(LoopBuilder &b, ValueRange memrefs,
                                       Value offset, Value stride, Value from,
                                       Value to, Value shift, Value run,
                                       bool isNear) {
  b.loop(from, to, [&](Value chunk) {
    Value begin = offset;
    if (shift) {
      Value number = b.make<arith::ShRUIOp>(chunk, shift);
      chunk = b.sub(chunk, b.make<arith::ShLIOp>(number, shift));
      begin = b.add(begin, b.mul(number, run));
    }
    for (Value memref : memrefs) {
      int64_t bytes =
          cast<MemRefType>(memref.getType()).getElementTypeBitWidth() / 8;
      Value first = b.add(begin, b.mul(chunk, stride));
      for (int64_t line = 0; line < kPrefetchBytes; line += kCacheLine)
        memref::PrefetchOp::create(
            b.builder, b.loc, memref,
            ValueRange{b.add(first, b.index(line / bytes))},
            /*isWrite=*/false, /*localityHint=*/isNear ? 3 : 2,
            /*isDataCache=*/true);
    }
  });
}
