// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// pack: weights into panels, parallel over experts and panels.

#include "Staging.h"
#include "Transpose.h"
#include "moira/Dialect/MoE/IR/MoEDialect.h"

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

namespace {
/// One panel of a hidden block, whose first k is `start`: `out[expert, panel,
/// k, c] = weights[expert][first + c, k]` for c < valid, and 0 for the columns
/// behind; for pairs `out[expert, panel, k / 2, c, 1 - k % 2]`, with 0 for an
/// odd K's last.
struct Panel {
  Value weights, out, expert, panel, first, valid, start;
  int64_t K, width;
  bool pairs;
  /// `out` as [expert, panel, step, elements]; null where it is not compact.
  Value compactOut;

  SmallVector<Value> place(LoopBuilder &b, Value k, Value c) const {
    if (!pairs)
      return {expert, panel, k, c};
    Value second = b.make<arith::RemUIOp>(k, b.index(2));
    return {expert, panel, b.div(k, b.index(2)), c, b.sub(b.index(1), second)};
  }
};
} // namespace

static bool isFull(LoopBuilder &b, const Panel &p) {
  return p.valid == b.index(p.width);
}

static void clearColumns(LoopBuilder &b, const Panel &p, Value k) {
  if (isFull(b, p))
    return;
  Type element = cast<MemRefType>(p.out.getType()).getElementType();
  b.loop(p.valid, b.index(p.width), [&](Value c) {
    b.store(b.real(element, 0), p.out, p.place(b, k, c));
  });
}

/// The second half of the last pair of an odd K.
static void clearLastStep(LoopBuilder &b, const Panel &p) {
  if (!p.pairs || p.K % 2 == 0)
    return;
  Type element = cast<MemRefType>(p.out.getType()).getElementType();
  b.loop(p.width, [&](Value c) {
    b.store(b.real(element, 0), p.out, p.place(b, b.index(p.K), c));
  });
}

/// Rows (and, of 32 bits, steps) of a square that is transposed in registers.
static constexpr int64_t kSquare = 16;

static bool hasSquares(const Panel &p) {
  Type element = cast<MemRefType>(p.weights.getType()).getElementType();
  return p.width % kSquare == 0 && element.getIntOrFloatBitWidth() <= 32 &&
         Row{p.weights, {}}.isContiguous() && p.compactOut;
}

/// The square of rows from column `c` on and steps from index `k` on.
static void packSquare(LoopBuilder &b, const Panel &p, Value k, Value c) {
  int64_t factors = p.pairs ? 2 : 1;
  Type element = cast<MemRefType>(p.weights.getType()).getElementType();
  auto type = VectorType::get({kSquare * factors}, element);
  auto words = VectorType::get({kSquare}, b.builder.getI32Type());
  SmallVector<Value> square;
  for (int64_t i = 0; i < kSquare; ++i) {
    Value n = b.add(b.add(p.first, c), b.index(i));
    Value row = b.make<vector::LoadOp>(
        type, p.weights, ValueRange{p.expert, n, b.add(p.start, k)});
    if (p.pairs) // the later step stands first
      row = swapHalves(b, b.make<vector::BitCastOp>(words, row));
    square.push_back(row);
  }
  square = emitTranspose(b, std::move(square));
  for (int64_t i = 0; i < kSquare; ++i) {
    Value step = b.add(b.div(k, b.index(factors)), b.index(i));
    Value value = square[i];
    if (p.pairs)
      value = b.make<vector::BitCastOp>(type, value);
    vector::StoreOp::create(
        b.builder, b.loc, value, p.compactOut,
        ValueRange{p.expert, p.panel, step, b.mul(c, b.index(factors))});
  }
}

/// Rows of `[N, K]` become columns. Taken in blocks of k, which read whole
/// cache lines and write a part of the panel that stays in the first cache.
static void packRows(LoopBuilder &b, const Panel &p) {
  int64_t size = kSquare * (p.pairs ? 2 : 1);
  auto scalars = [&](Value begin, Value from, Value to) {
    b.loop(begin, p.valid, [&](Value c) {
      Value n = b.add(p.first, c);
      b.loop(from, to, [&](Value k) {
        b.store(b.load(p.weights, {p.expert, n, b.add(p.start, k)}), p.out,
                p.place(b, k, c));
      });
    });
    if (!isFull(b, p))
      b.loop(from, to, [&](Value k) { clearColumns(b, p, k); });
  };
  bool squares = hasSquares(p);
  int64_t whole = p.K / size * size;
  if (whole > 0)
    b.loop(
        b.index(0), b.index(whole),
        [&](Value k) {
          Value begin = b.index(0);
          if (squares) {
            begin = b.mul(b.div(p.valid, b.index(kSquare)), b.index(kSquare));
            b.loop(
                b.index(0), begin, [&](Value c) { packSquare(b, p, k, c); },
                kSquare);
          }
          scalars(begin, k, b.add(k, b.index(size)));
        },
        size);
  if (whole < p.K)
    scalars(b.index(0), b.index(whole), b.index(p.K));
}

/// Rows of `[K, N]` keep their direction: each gives one piece.
static void packColumns(LoopBuilder &b, const Panel &p) {
  b.loop(p.K, [&](Value k) {
    b.loop(b.index(0), p.valid, [&](Value c) {
      Value n = b.add(p.first, c);
      b.store(b.load(p.weights, {p.expert, b.add(p.start, k), n}), p.out,
              p.place(b, k, c));
    });
    clearColumns(b, p, k);
  });
}

namespace {
struct PackToLoops : OpRewritePattern<PackOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(PackOp op,
                                PatternRewriter &rewriter) const override {
    if (!hasBufferForm(op))
      return rewriter.notifyMatchFailure(op, "expected the buffer form");
    LoopBuilder b(rewriter, op.getLoc());
    bool rows = op.getLayout() == WeightLayout::NK;
    auto weights = cast<MemRefType>(op.getWeights().getType());
    auto out = cast<MemRefType>(op.getOuts()[0].getType());
    PanelForm form = op.getForm();
    int64_t N = weights.getDimSize(rows ? 1 : 2) / form.blocksOfN;
    int64_t K = weights.getDimSize(rows ? 2 : 1) / form.blocksOfK;
    int64_t panels = out.getDimSize(1), width = form.width;
    int64_t blockPanels = panels / (form.blocksOfN * form.blocksOfK);
    Value compact;
    if (out.getLayout().isIdentity())
      compact = op.getOuts()[0];
    if (compact && form.pairs)
      compact = b.make<memref::CollapseShapeOp>(
          compact, SmallVector<ReassociationIndices>{{0}, {1}, {2}, {3, 4}});
    b.parallel(b.index(out.getDimSize(0) * panels), [&](Value i) {
      Panel p;
      p.compactOut = compact;
      p.weights = op.getWeights();
      p.out = op.getOuts()[0];
      p.expert = b.div(i, b.index(panels));
      p.panel = b.make<arith::RemUIOp>(i, b.index(panels));
      Value block = b.div(p.panel, b.index(blockPanels));
      Value inBlock =
          b.mul(b.make<arith::RemUIOp>(p.panel, b.index(blockPanels)),
                b.index(width));
      p.first = inBlock;
      if (form.blocksOfN > 1)
        p.first = b.add(b.mul(block, b.index(N)), inBlock);
      p.start = form.blocksOfK > 1 ? b.mul(block, b.index(K)) : b.index(0);
      p.K = K;
      p.width = width;
      p.pairs = form.pairs;
      p.valid = b.index(width);
      if (N % width != 0)
        p.valid = b.minimum(p.valid, b.sub(b.index(N), inBlock));
      rows ? packRows(b, p) : packColumns(b, p);
      clearLastStep(b, p);
    });
    rewriter.eraseOp(op);
    return success();
  }
};
} // namespace

void mlir::moe::detail::populatePackPatterns(RewritePatternSet &patterns) {
  patterns.add<PackToLoops>(patterns.getContext());
}
