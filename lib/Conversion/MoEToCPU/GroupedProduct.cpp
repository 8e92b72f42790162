// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "GroupedProduct.h"

#include "Staging.h"

#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

/// Rows of a work item: few for decode, whose panels come from memory anyway;
/// for prefill enough that a panel is read from cache for many rows, and few
/// enough that one hot expert still fills many workers.
static constexpr int64_t kDecodeRowBlock = 24;
static constexpr int64_t kPrefillRowBlock = 192;

/// Columns, over all weights, of a work item: staged rows serve all of them.
/// Fewer when there would not be this many items for each further worker to
/// balance.
static constexpr int64_t kMostColumns = 512;
static constexpr int64_t kItemsPerWorker = 16;

/// Nanoseconds that a core needs for a multiply-add step of one vector.
static constexpr double kVectorStepNs = 0.15;

static bool isDecode(Operation *op) {
  auto function = op->getParentOfType<FunctionOpInterface>();
  auto rowClass = function
                      ? function->getAttrOfType<RowClassAttr>("moe.row_class")
                      : RowClassAttr();
  return rowClass && rowClass.getValue() == RowClass::Decode;
}

/// The number of bodies that may run at the same time.
static Value emitWorkers(LoopBuilder &b, GroupedMatmulOp op) {
  auto type = b.builder.getFunctionType({}, {b.builder.getI32Type()});
  func::FuncOp function = getOrAddFunction(
      b.builder, op, "moira_abi_workers", type, [&](func::FuncOp function) {
        function->setAttr("moe.abi", b.builder.getStringAttr("workers"));
      });
  return b.toIndex(
      func::CallOp::create(b.builder, b.loc, function, ValueRange())
          .getResult(0));
}

int64_t GroupedProduct::countSteps(GroupedMatmulOp op, bool pairs) {
  return llvm::divideCeil(op.getK() / op.getBlocks(HiddenDim::K),
                          pairs ? 2 : 1);
}

GroupedProduct::GroupedProduct(PatternRewriter &rewriter, GroupedMatmulOp op,
                               const TileFormat &format,
                               const CPUTileOptions &options)
    : rewriter(rewriter), op(op), format(format),
      columnBlocks(op.getBlocks(HiddenDim::N)),
      parts(op.getBlocks(HiddenDim::K)),
      terms(op.getChained() ? op.getRows().size() : 1), chains(parts * terms),
      steps(countSteps(op, format.pairs)),
      blockPanels(llvm::divideCeil(op.getN() / columnBlocks, format.width)),
      panels(columnBlocks * blockPanels),
      rowBlock(isDecode(op) ? kDecodeRowBlock : kPrefillRowBlock),
      mostPanels(
          std::clamp<int64_t>(kMostColumns / format.rowSums(), 1, panels)),
      ib(op.getLoc(), rewriter), flat(flattenOperands(ib, op)),
      groups(emitGroups(ib, op)), rowBlocks(emitRowBlocks(ib, op, rowBlock)),
      b(rewriter, op.getLoc()),
      blocks(format, options, steps, rowBlock, mostPanels, chains) {
  blocks.links = terms;
  if (format.pairs)
    recordNumerics(op);
}

Value GroupedProduct::blockOf(Value panel) {
  return columnBlocks == 1 ? b.index(0) : b.div(panel, b.index(blockPanels));
}

Value GroupedProduct::columnInBlock(Value panel) {
  if (columnBlocks > 1)
    panel = b.make<arith::RemUIOp>(panel, b.index(blockPanels));
  return b.mul(panel, b.index(format.width));
}

Value GroupedProduct::partOf(Value chain) {
  return terms == 1 ? chain : b.div(chain, b.index(terms));
}

Value GroupedProduct::chooseOf(Value chain, ValueRange values) {
  Value chosen = values.front(), term = chain;
  if (parts > 1 && values.size() > 1)
    term = b.make<arith::RemUIOp>(chain, b.index(terms));
  for (auto [i, value] : llvm::enumerate(values.drop_front()))
    chosen = b.select(b.compare(arith::CmpIPredicate::eq, term,
                                b.index(static_cast<int64_t>(i) + 1)),
                      value, chosen);
  return chosen;
}

Epilogue::Columns GroupedProduct::columnsOf(Value panel) {
  int64_t size = op.getN() / columnBlocks;
  Value start = b.mul(blockOf(panel), b.index(size));
  return {b.add(start, columnInBlock(panel)), b.add(start, b.index(size))};
}

void GroupedProduct::begin() {
  Value count = b.index(panels);
  Value others = b.sub(emitWorkers(b, op), b.index(1));
  Value wanted = b.add(b.mul(others, b.index(kItemsPerWorker)), b.index(1));
  range = b.div(b.mul(rowBlocks.count, count), wanted);
  range = b.minimum(b.maximum(range, b.index(1)), b.index(mostPanels));
  ranges = b.make<arith::CeilDivUIOp>(count, range);
  items = b.mul(rowBlocks.count, ranges);
  // A panel is read once whatever the rows: the least an item costs, when it
  // has as many panels as it may. More is balanced better than less.
  int64_t cost = std::max<int64_t>(
      1, static_cast<int64_t>(kVectorStepNs * mostPanels * steps *
                              format.rowSums() / format.lanes));
  auto loop =
      scf::ParallelOp::create(rewriter, op.getLoc(), ValueRange{b.index(0)},
                              ValueRange{items}, ValueRange{b.index(1)});
  loop->setAttr("moe.cost", rewriter.getI64IntegerAttr(cost));
  rewriter.setInsertionPoint(loop.getBody()->getTerminator());
  ib.setInsertionPoint(loop.getBody()->getTerminator());
  number = loop.getInductionVars().front();
  block = emitRowBlock(ib, op, groups, rowBlocks, b.div(number, ranges));
}

void GroupedProduct::finish(std::optional<FindFirst> findNext) {
  blocks.stageRows = [&](StepRange part, StagePlace place) {
    int64_t size = op.getK() / parts;
    Value first =
        parts > 1 ? b.mul(partOf(part.chain), b.index(size)) : b.index(0);
    emitStageRows(
        b, format, chooseOf(part.chain, flat.rows), {first, size}, block.rows,
        [&](Value r) { return emitSourceRow(b, op, b.add(block.first, r)); },
        part, place);
  };
  Epilogue epilogue(op, flat, format);
  if (!op.getBias().empty())
    blocks.startSums = [&](Value panel, Value sums, Value offset) {
      epilogue.emitStart(b, block.expert, columnsOf(panel), block.rows, sums,
                         offset);
    };
  if (epilogue.readsRows())
    blocks.prepareFinish = [&](Value panel) {
      epilogue.emitPrefetches(b, block, columnsOf(panel));
    };
  blocks.finishSums = [&](Value panel, Value sums, Value offset) {
    epilogue.emit(b, block, columnsOf(panel), sums, offset);
  };
  auto firstPanel = [&](Value item) {
    return b.mul(b.make<arith::RemUIOp>(item, ranges), range);
  };
  BlockedProduct::Item item;
  item.rows = block.rows;
  item.begin = firstPanel(number);
  item.end = b.minimum(b.add(item.begin, range), b.index(panels));
  item.steps = b.index(steps);
  if (findNext) {
    Value next = b.minimum(b.add(number, b.index(1)), b.sub(items, b.index(1)));
    Value expert = b.load(rowBlocks.expert, {b.div(next, ranges)});
    item.next = (*findNext)(expert, firstPanel(next));
  }
  blocks.emit(b, op, item);
}
