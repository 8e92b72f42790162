// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Decompose.h"
#include "DecomposeGroups.h"

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

//===----------------------------------------------------------------------===//
// moe.grouped_matmul
//===----------------------------------------------------------------------===//

static int64_t shapedRank(Value value) {
  return cast<ShapedType>(value.getType()).getRank();
}

/// The weight of one expert as `[K, N]`, whatever its layout.
static Value weightAsKN(DecomposeBuilder &b, GroupedMatmulOp op, Value weights,
                        Value expert) {
  Value weight = expertSlice(b, weights, expert);
  Type element = getElementTypeOrSelf(weight.getType());
  switch (op.getLayout()) {
  case WeightLayout::KN:
    return weight;
  case WeightLayout::NK: {
    Value out = buildHoistedEmpty(
        b, b.getLoc(), {b.size(weight, 1), b.size(weight, 0)}, element);
    return linalg::TransposeOp::create(b, weight, out, ArrayRef<int64_t>{1, 0})
        ->getResult(0);
  }
  case WeightLayout::Panels:
  case WeightLayout::TransposedPanels:
    break;
  }
  Value out = buildHoistedEmpty(
      b, b.getLoc(),
      {b.size(op.getRows().front(), shapedRank(op.getRows().front()) - 1),
       b.getIndexAttr(op.getN())},
      element);
  return b.map({}, out, [&](ValueRange) -> Value {
    // The indices of the packed `[n, k]`, in the block where they are.
    Value k = b.loopIndex(0), n = b.loopIndex(1), width = b.dim(weight, 2);
    int64_t sizeOfK = op.getK(), sizeOfN = op.getN();
    PanelForm form = op.getForm();
    if (op.getLayout() == WeightLayout::TransposedPanels) {
      std::swap(k, n);
      std::swap(sizeOfK, sizeOfN);
    }
    Value first;
    auto enterBlock = [&](Value &index, int64_t size, int64_t blocks) {
      if (blocks == 1)
        return;
      Value length = b.index(size / blocks);
      Value block = arith::DivUIOp::create(b, index, length);
      index = arith::RemUIOp::create(b, index, length);
      first = b.mul(block, b.index(form.panelsPerBlock(sizeOfN)));
    };
    enterBlock(n, sizeOfN, form.blocksOfN);
    enterBlock(k, sizeOfK, form.blocksOfK);
    Value panel = arith::DivUIOp::create(b, n, width);
    if (first)
      panel = b.add(first, panel);
    Value column = arith::RemUIOp::create(b, n, width);
    if (!form.pairs)
      return b.extract(weight, {panel, k, column});
    Value two = b.index(2), one = b.index(1);
    Value step = arith::DivUIOp::create(b, k, two);
    Value second = arith::RemUIOp::create(b, k, two);
    return b.extract(weight,
                     {panel, step, column,
                      arith::SubIOp::create(b, one, second).getResult()});
  });
}

/// The rows that product `i` of the group reads: its own, or those it gathers.
static Value productRows(DecomposeBuilder &b, GroupedMatmulOp op, unsigned i,
                         const Group &group) {
  Value rows = op.getRows()[op.getChained() ? i : 0];
  if (!op.getGather())
    return group.of(rows);
  Value out = b.empty({group.size, b.size(rows, 1)},
                      getElementTypeOrSelf(rows.getType()));
  return b.map({}, out, [&](ValueRange) -> Value {
    Value position = b.add(group.begin, b.loopIndex(0));
    Value row = b.extract(op.getGather(), position);
    row = b.toIndex(b.max(row, b.i32(0)));
    return b.extract(rows, {row, b.loopIndex(1)});
  });
}

/// `[rows of the group, N]`: the bias of the expert, or 0.
static Value initialSums(DecomposeBuilder &b, GroupedMatmulOp op, unsigned i,
                         const Group &group, OpFoldResult columns) {
  FloatType type = op.getAccumulatorType();
  if (op.getBias().empty())
    return b.filled({group.size, columns}, b.real(type, 0));
  Value bias = expertSlice(b, op.getBias()[i], group.expert);
  Value out = b.empty({group.size, columns}, type);
  return b.generic("pp", {{bias, {1}}}, {{out, {0, 1}}}, [&](ValueRange args) {
    return Values{b.toReal(args[0], type)};
  })[0];
}

/// Elementwise epilogue on the sums of one group.
static Values applyEpilogue(RewriterBase &rewriter, DecomposeBuilder &b,
                            GroupedMatmulOp op, const Group &group,
                            ArrayRef<Value> sums, OpFoldResult columns) {
  SmallVector<DecomposeBuilder::Access> ins;
  for (Value sum : sums)
    ins.push_back({sum, {0, 1}});
  for (Value vector : op.getVectors())
    ins.push_back({expertSlice(b, vector, group.expert), {1}});
  for (Value elements : op.getElements())
    ins.push_back({group.of(elements), {0, 1}});
  for (Value scalars : op.getScalars())
    ins.push_back({group.of(scalars), {0}});
  SmallVector<DecomposeBuilder::Access> outs;
  for (unsigned i = 0; i < op.getNumResults(); ++i)
    outs.push_back(
        {b.empty({group.size, columns}, op.getResultType(i).getElementType()),
         {0, 1}});
  return b.generic("pp", ins, outs, [&](ValueRange args) {
    rewriter.inlineBlockBefore(&op.getEpilogue().front(), b.getInsertionBlock(),
                               b.getInsertionPoint(),
                               args.drop_back(outs.size()));
    auto yield = cast<YieldOp>(*std::prev(b.getInsertionPoint()));
    Values results(yield.getOperands());
    rewriter.eraseOp(yield);
    return results;
  });
}

/// fma(a, b, sum) in the type of the sum.
static Values multiplyAdd(DecomposeBuilder &b, ValueRange args) {
  Type type = args[2].getType();
  return {b.fma(b.toReal(args[0], type), b.toReal(args[1], type), args[2])};
}

/// Mode contraction: `result[e] = transpose(a) b` over the rows of e.
static Values contractRows(DecomposeBuilder &b, GroupedMatmulOp op,
                           ValueRange outs) {
  return forEachGroup(
      b, op.getSizes(), op.isPadded(), outs,
      [&](const Group &group, ValueRange carried) {
        Value left = group.of(op.getRows()[0]);
        Value right = group.of(op.getRows()[1]);
        FloatType type = op.getAccumulatorType();
        Value sum =
            b.filled({b.size(left, 1), b.size(right, 1)}, b.real(type, 0));
        sum =
            b.generic("prp", {{left, {1, 0}}, {right, {1, 2}}}, {{sum, {0, 2}}},
                      [&](ValueRange args) { return multiplyAdd(b, args); })[0];
        Type element = op.getResultType().getElementType();
        if (element != type)
          sum = b.map(
              sum, b.empty({b.size(left, 1), b.size(right, 1)}, element),
              [&](ValueRange args) { return b.toReal(args[0], element); });
        auto [offsets, sizes] = expertBounds(b, carried[0], group.expert);
        return Values{b.insertSlice(sum, carried[0], offsets, sizes)};
      });
}

/// Columns `[begin, begin + size)` of a matrix's dim `dim`.
static Value sliceDim(DecomposeBuilder &b, Value matrix, unsigned dim,
                      int64_t begin, int64_t size) {
  SmallVector<OpFoldResult> offsets(2, b.getIndexAttr(0)),
      strides(2, b.getIndexAttr(1)),
      sizes{b.size(matrix, 0), b.size(matrix, 1)};
  offsets[dim] = b.getIndexAttr(begin);
  sizes[dim] = b.getIndexAttr(size);
  return tensor::ExtractSliceOp::create(b, matrix, offsets, sizes, strides);
}

/// Sums of `[rows, columns]` in pairs: neighbours are added while their number
/// is even, what is left in order.
static Value addInPairs(DecomposeBuilder &b, Values sums, const Sizes &sizes,
                        FloatType type) {
  auto plus = [&](Value left, Value right) {
    return b.generic("pp", {{left, {0, 1}}, {right, {0, 1}}},
                     {{b.empty(sizes, type), {0, 1}}}, [&](ValueRange args) {
                       return Values{
                           arith::AddFOp::create(b, args[0], args[1])};
                     })[0];
  };
  for (; sums.size() % 2 == 0; sums.truncate(sums.size() / 2))
    for (size_t i = 0; 2 * i < sums.size(); ++i)
      sums[i] = plus(sums[2 * i], sums[2 * i + 1]);
  Value total = sums.front();
  for (Value sum : llvm::drop_begin(sums))
    total = plus(total, sum);
  return total;
}

/// The products of a group's `rows` and weights from `first` on, one after the
/// other: one chain per hidden block, and the blocks' results added in pairs.
static Value multiply(DecomposeBuilder &b, GroupedMatmulOp op, unsigned first,
                      const Group &group, ValueRange rows,
                      OpFoldResult columns) {
  Values weights;
  for (unsigned i = 0; i < rows.size(); ++i)
    weights.push_back(
        weightAsKN(b, op, op.getWeights()[first + i], group.expert));
  int64_t blocks = op.getBlocks(HiddenDim::K);
  FloatType type = op.getAccumulatorType();
  Values sums;
  for (int64_t block = 0; block < blocks; ++block) {
    Value sum = block == 0 ? initialSums(b, op, first, group, columns)
                           : b.filled({group.size, columns}, b.real(type, 0));
    for (auto [left, right] : llvm::zip(rows, weights)) {
      Value a = left, c = right;
      if (blocks > 1) {
        int64_t size = op.getK() / blocks;
        a = sliceDim(b, left, 1, block * size, size);
        c = sliceDim(b, right, 0, block * size, size);
      }
      sum = b.generic("prp", {{a, {0, 1}}, {c, {1, 2}}}, {{sum, {0, 2}}},
                      [&](ValueRange args) { return multiplyAdd(b, args); })[0];
    }
    sums.push_back(sum);
  }
  return addInPairs(b, sums, {group.size, columns}, type);
}

void mlir::moe::detail::decompose(RewriterBase &rewriter, GroupedMatmulOp op) {
  DecomposeBuilder b(rewriter, op);
  ReifiedRankedShapedTypeDims shapes;
  LogicalResult reified = op.reifyResultShapes(b, shapes);
  assert(succeeded(reified));
  (void)reified;
  Values outs;
  for (auto [type, shape] : llvm::zip(op.getResultTypes(), shapes))
    outs.push_back(b.castTo(b.empty(shape, getElementTypeOrSelf(type)), type));
  if (op.getContraction() && op.hasPanels()) {
    // As a plain contraction, packed.
    auto plain =
        RankedTensorType::get({op.getNumExperts(), op.getN(), op.getK()},
                              op.getResultType().getElementType());
    Value sums = contractRows(
        b, op,
        b.empty(getAsIndexOpFoldResult(b.getContext(), plain.getShape()),
                plain.getElementType()))[0];
    auto pack = PackOp::create(b, op.getResultTypes(), sums, ValueRange(),
                               WeightLayout::NK, HiddenAttr());
    rewriter.replaceOp(op, pack->getResults());
    rewriter.setInsertionPoint(pack);
    decompose(rewriter, pack);
    return;
  }
  if (op.getContraction()) {
    rewriter.replaceOp(op, contractRows(b, op, outs));
    return;
  }
  OpFoldResult columns = shapes[0].back();
  Values results =
      forEachGroup(b, op.getSizes(), op.isPadded(), outs,
                   [&](const Group &group, ValueRange carried) {
                     Values rows, sums;
                     for (unsigned i = 0; i < op.getRows().size(); ++i)
                       rows.push_back(productRows(b, op, i, group));
                     // With chained one sum over all rows and weights.
                     for (unsigned i = 0; i < op.getNumAccumulators(); ++i)
                       sums.push_back(multiply(b, op, i, group, rows, columns));
                     Values next =
                         applyEpilogue(rewriter, b, op, group, sums, columns);
                     for (auto [value, out] : llvm::zip(next, carried))
                       value = group.insert(value, out);
                     return next;
                   });
  rewriter.replaceOp(op, results);
}

//===----------------------------------------------------------------------===//
// moe.pack
//===----------------------------------------------------------------------===//

void mlir::moe::detail::decompose(RewriterBase &rewriter, PackOp op) {
  DecomposeBuilder b(rewriter, op);
  auto type = cast<RankedTensorType>(op->getResult(0).getType());
  bool nk = op.getLayout() == WeightLayout::NK;
  Value weights = op.getWeights();
  auto packed = cast<RankedTensorType>(weights.getType());
  PanelForm form = op.getForm();
  int64_t n = packed.getDimSize(nk ? 1 : 2), k = packed.getDimSize(nk ? 2 : 1);
  // Of one block; they are packed one after the other.
  Value columns = b.index(n / form.blocksOfN),
        rows = b.index(k / form.blocksOfK), width = b.index(form.width),
        panels = b.index(form.panelsPerBlock(n));
  Value out =
      tensor::EmptyOp::create(b, type.getShape(), type.getElementType());
  bool pairs = type.getRank() == 5;
  auto dims = llvm::to_vector(llvm::seq<unsigned>(0, type.getRank()));
  Value result =
      b.generic(pairs ? "ppppp" : "pppp", {}, {{out, dims}}, [&](ValueRange) {
        Value e = b.loopIndex(0), k = b.loopIndex(2);
        if (pairs) // the later of two steps comes first
          k = b.add(b.mul(k, b.index(2)),
                    arith::SubIOp::create(b, b.index(1), b.loopIndex(4)));
        Value panel = b.loopIndex(1), block;
        if (form.blocksOfN * form.blocksOfK > 1) {
          block = arith::DivUIOp::create(b, panel, panels);
          panel = arith::RemUIOp::create(b, panel, panels);
        }
        Value n = b.add(b.mul(panel, width), b.loopIndex(3));
        Value inside = b.compare(arith::CmpIPredicate::ult, n, columns);
        if (form.pairs)
          inside = arith::AndIOp::create(
              b, inside, b.compare(arith::CmpIPredicate::ult, k, rows));
        return b.when(inside, b.real(type.getElementType(), 0), [&] {
          Value atN = n, atK = k;
          if (form.blocksOfN > 1)
            atN = b.add(b.mul(block, columns), n);
          if (form.blocksOfK > 1)
            atK = b.add(b.mul(block, rows), k);
          return Values{b.extract(weights, nk ? ValueRange{e, atN, atK}
                                              : ValueRange{e, atK, atN})};
        });
      })[0];
  rewriter.replaceOp(op, result);
}
