// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "moira/Conversion/MoEToCPU/GroupedMatmul.h"

#include "Groups.h"
#include "RegisterTile.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace mlir::moe;

namespace {

/// Rows of a work item: few for decode, whose panels come from memory anyway;
/// for prefill enough that a panel is read from cache for many rows, and few
/// enough that one hot expert still fills many workers.
constexpr int64_t kDecodeRowBlock = 24;
constexpr int64_t kPrefillRowBlock = 192;

/// Steps of a contraction block by the number of row tiles: small blocks spread
/// the panel's stream over the tiles, large ones amortise the accumulators.
constexpr int64_t kFewTiles = 4, kFewTilesBlock = 64;
constexpr int64_t kSomeTiles = 16, kSomeTilesBlock = 128;
constexpr int64_t kManyTilesBlock = 512;
/// Longest block, which bounds the stage of widened rows.
constexpr int64_t kLongestBlock = 2048;

/// How far ahead a single tile prefetches its own stream.
constexpr int64_t kStreamAheadBytes = 4096;

/// Nanoseconds that a core needs for a multiply-add step of one vector.
constexpr double kVectorStepNs = 0.15;

Value constantIndex(ImplicitLocOpBuilder &b, int64_t value) {
  return arith::ConstantIndexOp::create(b, value);
}

Value isLess(ImplicitLocOpBuilder &b, Value lhs, Value rhs) {
  return arith::CmpIOp::create(b, arith::CmpIPredicate::slt, lhs, rhs);
}

scf::ForOp
forLoop(ImplicitLocOpBuilder &b, Value from, Value to, Value step,
        llvm::function_ref<void(ImplicitLocOpBuilder &, Value)> body) {
  return scf::ForOp::create(
      b, from, to, step, ValueRange{},
      [&](OpBuilder &inner, Location loc, Value iv, ValueRange) {
        ImplicitLocOpBuilder builder(loc, inner);
        body(builder, iv);
        scf::YieldOp::create(builder);
      });
}

/// Emits one work item: the rows of a block of one group, times one panel.
class PanelItem {
public:
  PanelItem(GroupedMatmulOp op, const FlatOperands &flat,
            const CPUTileOptions &options, int64_t rowBlock)
      : op(op), rowTile(options.rowTile()), rowBlock(rowBlock),
        width(
            cast<MemRefType>(op.getWeights().front().getType()).getDimSize(3)),
        lanes(std::min<int64_t>(
            options.vectorBits / op.getAccumulatorType().getWidth(), width)),
        vectors(vectorsPerWeight(options)),
        tile(op, flat.rows, flat.result, flat.elements, flat.scalars, lanes,
             vectors) {}

  /// Memory that the item's tiles share, at the top of its body.
  void emitScratch(ImplicitLocOpBuilder &b);
  /// `firstRow`: flat row; `numRows`: between 1 and the row block.
  void emit(ImplicitLocOpBuilder &b, TilePosition position, Value firstRow,
            Value numRows);

private:
  int64_t vectorsPerWeight(const CPUTileOptions &options) {
    int64_t count =
        std::max<int64_t>(options.vectorsPerRow() / op.getWeights().size(), 1);
    while (width % (count * lanes) != 0)
      --count;
    return count;
  }
  bool hasOneBlock() { return op.getK() <= kFewTilesBlock; }
  int64_t longestBlock() {
    return std::min<int64_t>(llvm::alignTo(op.getK(), RegisterTile::kUnroll),
                             kLongestBlock);
  }
  void emitColumns(ImplicitLocOpBuilder &b, TilePosition position);
  void emitBlocks(ImplicitLocOpBuilder &b, const TilePosition &position);
  void emitTiles(ImplicitLocOpBuilder &b, const TilePosition &position,
                 ContractionBlock block, std::optional<TilePrefetch> prefetch,
                 Value blockSize);
  std::optional<TilePrefetch> emitPrefetch(ImplicitLocOpBuilder &b,
                                           const TilePosition &position,
                                           const ContractionBlock &block);

  GroupedMatmulOp op;
  int64_t rowTile, rowBlock, width, lanes, vectors;
  RegisterTile tile;
  Value sums, stage;
  /// Of the item being emitted: rows, tiles, rows of a tile, how many have one
  /// more, whether there is one tile.
  Value firstRow, tiles, base, longer, isSingle;
};

} // namespace

void PanelItem::emitScratch(ImplicitLocOpBuilder &b) {
  Type accumulator = op.getAccumulatorType();
  auto scratch = [&](int64_t rows, int64_t columns) {
    return memref::AllocaOp::create(
        b, MemRefType::get({rows, columns}, accumulator),
        b.getI64IntegerAttr(64));
  };
  if (!hasOneBlock())
    sums = scratch(rowBlock, static_cast<int64_t>(op.getWeights().size()) *
                                 tile.columns());
  if (tile.needsStage())
    stage = scratch(rowTile, longestBlock());
}

void PanelItem::emit(ImplicitLocOpBuilder &b, TilePosition position,
                     Value first, Value numRows) {
  firstRow = first;
  // Balanced tiles of at most `rowTile` rows: none is much smaller than others.
  tiles = arith::CeilDivSIOp::create(b, numRows, constantIndex(b, rowTile));
  base = arith::DivSIOp::create(b, numRows, tiles);
  longer = arith::RemSIOp::create(b, numRows, tiles);
  isSingle = arith::CmpIOp::create(b, arith::CmpIPredicate::eq, tiles,
                                   constantIndex(b, 1));
  emitColumns(b, position);
}

/// A panel may be wider than a tile; columns beyond N have nothing to do.
void PanelItem::emitColumns(ImplicitLocOpBuilder &b, TilePosition position) {
  Value zero = constantIndex(b, 0);
  Value panelStart =
      arith::MulIOp::create(b, position.panel, constantIndex(b, width));
  if (width == tile.columns()) {
    position.panelColumn = zero;
    position.column = panelStart;
    return emitBlocks(b, position);
  }
  Value left =
      arith::SubIOp::create(b, constantIndex(b, op.getN()), panelStart);
  Value end = arith::MinSIOp::create(b, left, constantIndex(b, width));
  forLoop(b, zero, end, constantIndex(b, tile.columns()),
          [&](ImplicitLocOpBuilder &body, Value column) {
            TilePosition at = position;
            at.panelColumn = column;
            at.column = arith::AddIOp::create(body, panelStart, column);
            emitBlocks(body, at);
          });
}

/// Blocks of the contraction outside, row tiles inside: a block of the panel
/// stays in the nearest cache for all tiles.
void PanelItem::emitBlocks(ImplicitLocOpBuilder &b,
                           const TilePosition &position) {
  int64_t k = op.getK();
  Value zero = constantIndex(b, 0), end = constantIndex(b, k);
  ContractionBlock block;
  block.stage = stage;
  if (hasOneBlock()) {
    block.begin = zero;
    block.end = end;
    return emitTiles(b, position, block, std::nullopt, end);
  }
  auto choose = [&](Value condition, int64_t size, Value otherwise) {
    return arith::SelectOp::create(b, condition, constantIndex(b, size),
                                   otherwise);
  };
  auto atMost = [&](int64_t count) {
    return arith::CmpIOp::create(b, arith::CmpIPredicate::sle, tiles,
                                 constantIndex(b, count));
  };
  Value size = constantIndex(b, kManyTilesBlock);
  size = choose(atMost(kSomeTiles), kSomeTilesBlock, size);
  size = choose(atMost(kFewTiles), kFewTilesBlock, size);
  size = choose(isSingle, longestBlock(), size);
  forLoop(b, zero, end, size, [&](ImplicitLocOpBuilder &body, Value begin) {
    ContractionBlock at = block;
    at.begin = begin;
    Value next = arith::AddIOp::create(body, begin, size);
    at.end = arith::MinSIOp::create(body, next, end);
    at.first =
        arith::CmpIOp::create(body, arith::CmpIPredicate::eq, begin, zero);
    at.last =
        arith::CmpIOp::create(body, arith::CmpIPredicate::eq, at.end, end);
    at.sums = sums;
    emitTiles(body, position, at, emitPrefetch(body, position, at), size);
  });
}

/// A single tile prefetches its own stream a little ahead; several share the
/// next block: of this panel, or the first of the next one.
std::optional<TilePrefetch>
PanelItem::emitPrefetch(ImplicitLocOpBuilder &b, const TilePosition &position,
                        const ContractionBlock &block) {
  auto panel = cast<MemRefType>(op.getWeights().front().getType());
  int64_t rowBytes = width * panel.getElementTypeBitWidth() / 8;
  Value zero = constantIndex(b, 0);
  Value lastPanel = constantIndex(b, panel.getDimSize(1) - 1);
  Value nextPanel = arith::MinSIOp::create(
      b, arith::AddIOp::create(b, position.panel, constantIndex(b, 1)),
      lastPanel);
  auto select = [&](Value condition, Value yes, Value no) {
    return arith::SelectOp::create(b, condition, yes, no);
  };
  TilePrefetch prefetch;
  prefetch.panel = select(isSingle, position.panel,
                          select(block.last, nextPanel, position.panel));
  Value ahead = arith::AddIOp::create(
      b, block.begin,
      constantIndex(b, llvm::divideCeil(kStreamAheadBytes, rowBytes)));
  prefetch.row = select(isSingle, ahead, select(block.last, zero, block.end));
  prefetch.rate = arith::DivSIOp::create(
      b, constantIndex(b, RegisterTile::kUnroll << 16), tiles);
  return prefetch;
}

void PanelItem::emitTiles(ImplicitLocOpBuilder &b, const TilePosition &position,
                          ContractionBlock block,
                          std::optional<TilePrefetch> prefetch,
                          Value blockSize) {
  Value zero = constantIndex(b, 0), one = constantIndex(b, 1);
  // Prefetched rows of a tile: its share of the next block.
  Value perTile;
  if (prefetch) {
    Value groups = arith::DivSIOp::create(
        b, blockSize, constantIndex(b, RegisterTile::kUnroll));
    perTile = arith::MulIOp::create(b, groups, prefetch->rate);
  }
  forLoop(b, zero, tiles, one, [&](ImplicitLocOpBuilder &body, Value t) {
    Value extra = arith::IndexCastUIOp::create(body, body.getIndexType(),
                                               isLess(body, t, longer));
    Value rows = arith::AddIOp::create(body, base, extra);
    Value start =
        arith::AddIOp::create(body, arith::MulIOp::create(body, t, base),
                              arith::MinSIOp::create(body, t, longer));
    TilePosition at = position;
    at.row = arith::AddIOp::create(body, firstRow, start);
    block.sumsRow = start;
    if (prefetch)
      prefetch->start = arith::MulIOp::create(body, t, perTile);
    SmallVector<int64_t> cases =
        llvm::to_vector(llvm::seq<int64_t>(1, rowTile));
    auto select = scf::IndexSwitchOp::create(body, TypeRange{}, rows, cases,
                                             cases.size());
    auto fill = [&](Region &region, int64_t count) {
      OpBuilder::InsertionGuard guard(body);
      body.createBlock(&region);
      tile.emit(body, at, block, prefetch, count);
      scf::YieldOp::create(body);
    };
    for (auto [region, count] : llvm::zip_equal(select.getCaseRegions(), cases))
      fill(region, count);
    fill(select.getDefaultRegion(), rowTile);
    body.setInsertionPointAfter(select);
  });
}

static bool isDecode(Operation *op) {
  auto function = op->getParentOfType<FunctionOpInterface>();
  auto rowClass = function
                      ? function->getAttrOfType<RowClassAttr>("moe.row_class")
                      : RowClassAttr();
  return rowClass && rowClass.getValue() == RowClass::Decode;
}

namespace {
struct PanelsToTiles : public OpRewritePattern<GroupedMatmulOp> {
  PanelsToTiles(MLIRContext *context, const CPUTileOptions &options)
      : OpRewritePattern(context, /*benefit=*/2), options(options) {}

  LogicalResult matchAndRewrite(GroupedMatmulOp op,
                                PatternRewriter &rewriter) const override;

private:
  CPUTileOptions options;
};
} // namespace

LogicalResult PanelsToTiles::matchAndRewrite(GroupedMatmulOp op,
                                             PatternRewriter &rewriter) const {
  if (!hasBufferForm(op))
    return rewriter.notifyMatchFailure(op, "expected the buffer form");
  if (op.getContraction() || op.getLayout() != WeightLayout::Panels)
    return rewriter.notifyMatchFailure(op, "expected panels in mode rows");
  int64_t n = op.getN(), k = op.getK();
  int64_t width =
      cast<MemRefType>(op.getWeights().front().getType()).getDimSize(3);
  if (!llvm::isPowerOf2_64(width) || k < 1 || n < 1)
    return rewriter.notifyMatchFailure(op, "expected whole vectors per panel");

  ImplicitLocOpBuilder b(op.getLoc(), rewriter);
  int64_t rowBlock = isDecode(op) ? kDecodeRowBlock : kPrefillRowBlock;
  FlatOperands flat = flattenOperands(b, op);
  PanelItem item(op, flat, options, rowBlock);
  Groups groups = emitGroups(b, op);
  Value zero = constantIndex(b, 0), one = constantIndex(b, 1);
  int64_t panels = llvm::divideCeil(n, width);
  Value blocks =
      arith::CeilDivSIOp::create(b, groups.largest, constantIndex(b, rowBlock));
  Value perExpert = arith::MulIOp::create(b, blocks, constantIndex(b, panels));
  Value items =
      arith::MulIOp::create(b, perExpert, constantIndex(b, op.getNumExperts()));
  // A panel is read once whatever the rows: the least an active item costs.
  int64_t lanes = options.vectorBits / op.getAccumulatorType().getWidth();
  int64_t cost = std::max<int64_t>(
      1, static_cast<int64_t>(kVectorStepNs * k * op.getWeights().size() *
                              width / lanes));

  auto loop = scf::ParallelOp::create(
      b, zero, items, one, [&](OpBuilder &inner, Location loc, ValueRange ivs) {
        ImplicitLocOpBuilder body(loc, inner);
        item.emitScratch(body);
        Value expert = arith::DivSIOp::create(body, ivs[0], perExpert);
        Value inExpert = arith::RemSIOp::create(body, ivs[0], perExpert);
        Value panelCount = constantIndex(body, panels);
        Value block = arith::DivSIOp::create(body, inExpert, panelCount);
        TilePosition position;
        position.expert = expert;
        position.panel = arith::RemSIOp::create(body, inExpert, panelCount);
        Value blockRows = constantIndex(body, rowBlock);
        Value start = arith::MulIOp::create(body, block, blockRows);
        Value left =
            arith::SubIOp::create(body, loadSize(body, op, expert), start);
        Value count = arith::MinSIOp::create(body, left, blockRows);
        scf::IfOp::create(body, isLess(body, zero, count),
                          [&](OpBuilder &innermost, Location loc) {
                            ImplicitLocOpBuilder then(loc, innermost);
                            Value first = memref::LoadOp::create(
                                then, groups.offsets, expert);
                            first = arith::AddIOp::create(then, first, start);
                            item.emit(then, position, first, count);
                            scf::YieldOp::create(then);
                          });
      });
  loop->setAttr("moe.cost", b.getI64IntegerAttr(cost));
  rewriter.eraseOp(op);
  return success();
}

void mlir::moe::populateGroupedMatmulToCPUPatterns(
    RewritePatternSet &patterns, const CPUTileOptions &options) {
  patterns.add<PanelsToTiles>(patterns.getContext(), options);
  populateUnpackedToLoopsPatterns(patterns);
}
