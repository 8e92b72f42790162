// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "BlockedProduct.h"

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

/// Bytes of a block where memory is the limit: few, so that memory is asked at
/// an even rate.
static constexpr int64_t kStreamBlockBytes = int64_t{16} << 10;

/// Blocks have a multiple of so many steps, and end where vectors, turns of the
/// innermost loop and panels do.
static constexpr int64_t kStepMultiple = 64;

/// Elements between staged rows, or steps, beyond their own: those that are a
/// multiple of 4 KiB apart would share the sets of the first cache.
static constexpr int64_t kStagePadding = 16;

/// How far ahead of its own stream a tile asks for memory, and what an item
/// asks of the next one's panel when its stream ends.
static constexpr int64_t kNextBytes = 4096;

/// Rows up to which a tile does little between two loads.
static constexpr int64_t kRushingRows = 2;

/// How often the number of chains can be halved.
static int64_t pairLevels(int64_t chains) {
  return llvm::countr_zero(static_cast<uint64_t>(chains));
}

BlockedProduct::BlockedProduct(const TileFormat &format,
                               const CPUTileOptions &options, int64_t steps,
                               int64_t rowBlock, int64_t panelRange,
                               int64_t chains)
    : format(format), options(options), steps(steps), rowBlock(rowBlock),
      panelRange(panelRange), chains(chains) {}

int64_t BlockedProduct::stepsOf(int64_t bytes) const {
  int64_t steps = bytes / (format.weights * format.stepBytes());
  return std::max<int64_t>(steps / kStepMultiple, 1) * kStepMultiple;
}

/// What the cache has for it: fewer rows have longer parts.
int64_t BlockedProduct::stageElements() const {
  int64_t bytes = format.accumulator.getIntOrFloatBitWidth() / 8;
  int64_t most =
      std::max(options.stageBytes() / bytes, rowBlock * kStepMultiple);
  if (format.stepsFirst)
    return std::max(most, kStepMultiple * stepStride());
  if (!ShapedType::isDynamic(steps))
    most = std::min(most, rowBlock * steps);
  return most + rowBlock * kStagePadding;
}

/// Whole vectors are staged, of pairs two at a time.
int64_t BlockedProduct::stepStride() const {
  return llvm::alignTo(rowBlock, 2 * format.lanes) + kStagePadding;
}

/// From the worker's arena, which gets it back at the end of the item: it is
/// more than a thread's stack need have.
static Value emitMemory(LoopBuilder &b, Type element, int64_t size) {
  return flatten(b, b.workspace(element, {size}, ValueRange()));
}

Value BlockedProduct::emitPanelScratch(LoopBuilder &b) {
  return emitMemory(b, format.element, blockSteps() * format.stepElements());
}

void BlockedProduct::emitScratch(LoopBuilder &b) {
  stage = emitMemory(b, format.stageElement(), stageElements());
  bool isWhole = !ShapedType::isDynamic(steps) &&
                 rowBlock * (steps + kStagePadding) <= stageElements();
  int64_t panelSums = rowBlock * format.rowSums();
  sums = emitMemory(b, format.accumulator,
                    panelSums * (isWhole && !keepsSums() ? 1 : panelRange));
  if (chains > links)
    totals =
        emitMemory(b, format.accumulator,
                   panelSums * panelRange * (pairLevels(chains / links) + 1));
}

/// A loop whose step is a value.
static void loopBy(LoopBuilder &b, Value end, Value step,
                   function_ref<void(Value)> body) {
  auto op = scf::ForOp::create(b.builder, b.loc, b.index(0), end, step);
  OpBuilder::InsertionGuard guard(b.builder);
  b.builder.setInsertionPoint(op.getBody()->getTerminator());
  body(op.getInductionVar());
}

void BlockedProduct::emit(LoopBuilder &b, Operation *op, const Item &item) {
  Value one = b.index(1);
  Value tiles = b.make<arith::CeilDivUIOp>(item.rows, b.index(format.rows));
  Value all = b.maximum(item.steps, one);
  Value room = format.stepsFirst
                   ? b.index(stageElements() / stepStride())
                   : b.sub(b.div(b.index(stageElements()), item.rows),
                           b.index(kStagePadding));
  Value isWhole = b.compare(arith::CmpIPredicate::ule, all, room);
  auto upTo = [&](int64_t rows, int64_t bytes, Value otherwise) {
    return b.select(
        b.compare(arith::CmpIPredicate::ule, item.rows, b.index(rows)),
        b.index(stepsOf(bytes)), otherwise);
  };
  block = b.index(blockSteps());
  if (options.nearRows() > 0 && !makesPanels())
    block = upTo(options.nearRows(), options.nearBlockBytes(), block);
  block = upTo(options.streamRows, kStreamBlockBytes, block);
  // Many rows have room for less than a block.
  Value multiple = b.index(kStepMultiple);
  Value most = b.maximum(b.mul(b.div(room, multiple), multiple), multiple);
  block = b.minimum(block, most);
  part = b.select(isWhole, all, b.mul(b.div(room, block), block));
  isSingle = b.compare(arith::CmpIPredicate::eq, tiles, one);
  // A panel that is made is as long as its memory, whatever the rows.
  Value longest = makesPanels() ? b.index(blockSteps()) : part;
  block = b.select(isSingle, longest, b.minimum(block, part));
  stride = format.stepsFirst ? b.index(stepStride())
                             : b.add(part, b.index(kStagePadding));
  if (chains == 1)
    return emitChain(b, op, item, b.index(0));
  b.loop(chains, [&](Value chain) { emitChain(b, op, item, chain); });
}

void BlockedProduct::emitChain(LoopBuilder &b, Operation *op, const Item &item,
                               Value chain) {
  // No steps at all: one empty part, so that the sums are written.
  Value all = b.maximum(item.steps, b.index(1));
  loopBy(b, all, part, [&](Value begin) {
    StepRange range{begin, b.minimum(part, b.sub(item.steps, begin)), chain};
    stageRows(range, {stage, stride});
    b.loop(item.begin, item.end,
           [&](Value panel) { emitPanel(b, op, item, panel, range); });
  });
}

void BlockedProduct::choosePrefetch(LoopBuilder &b, const Item &item,
                                    TileCall &call, Value panel,
                                    StepRange range, Value done) {
  call.aheadShift = b.index(kOneRun);
  call.aheadRun = b.index(0);
  if (findSource)
    return fetchSource(b, item, call, panel, range, done);
  if (!item.next) {
    call.ahead = call.panels;
    call.aheadOffset = call.panelOffset;
    call.aheadChunks = b.index(0);
    call.aheadStride = b.index(0);
    return;
  }
  Value next = item.next->offset;
  auto prefer = [&](Value other, arith::CmpIPredicate predicate, Value lhs,
                    Value rhs, Value otherwise) {
    return b.select(b.compare(predicate, lhs, rhs), other, otherwise);
  };
  auto place = [&](Value panel, Value begin, Value chain) {
    return findPanel(panel, {begin, range.steps, chain}).offset;
  };
  if (chains > 1) {
    Value nextChain = b.add(range.chain, b.index(1));
    next = prefer(place(item.begin, b.index(0), nextChain),
                  arith::CmpIPredicate::ult, nextChain, b.index(chains), next);
  }
  Value after = b.add(range.begin, part), nextPanel = b.add(panel, b.index(1));
  next = prefer(place(item.begin, after, range.chain),
                arith::CmpIPredicate::ult, after, item.steps, next);
  next = prefer(place(nextPanel, range.begin, range.chain),
                arith::CmpIPredicate::ult, nextPanel, item.end, next);
  Value end = b.add(done, call.steps);
  next = prefer(b.add(call.panelOffset,
                      b.mul(call.steps, b.index(format.stepElements()))),
                arith::CmpIPredicate::ult, end, range.steps, next);
  call.ahead = item.next->memrefs;
  call.aheadOffset = next;
  Value chunks = b.make<arith::CeilDivUIOp>(
      b.mul(call.steps, b.index(format.stepBytes())), b.index(kPrefetchBytes));
  int64_t chunk = kPrefetchBytes / format.elementBytes();
  call.aheadStride = b.index(chunk);
  // A single tile reads a panel once, in order: the hardware foresees that, and
  // is faster alone. Of the streams of several panels it loses sight where the
  // rows are so few that they rush by; every other chunk keeps it on track.
  Value few = b.index(0);
  if (format.weights > 1) {
    Value rushes = b.make<arith::AndIOp>(
        isSingle,
        b.compare(arith::CmpIPredicate::ule, item.rows, b.index(kRushingRows)));
    call.aheadStride = b.select(rushes, b.index(2 * chunk), call.aheadStride);
    call.aheadOffset = b.select(
        rushes,
        b.add(call.panelOffset, b.index(kNextBytes / format.elementBytes())),
        next);
    few = b.select(rushes, b.div(chunks, b.index(2)), few);
  }
  call.aheadChunks = b.select(isSingle, few, chunks);
}

/// The source of this panel's next block, or else of the next panel, or where
/// this one is the last of that of the first panel's next part. Nothing at the
/// end of a chain.
void BlockedProduct::fetchSource(LoopBuilder &b, const Item &item,
                                 TileCall &call, Value panel, StepRange range,
                                 Value done) {
  Value nextPanel = b.add(panel, b.index(1)), after = b.add(range.begin, part);
  Value nextDone = b.add(done, block);
  Value hasMore = b.compare(arith::CmpIPredicate::ult, nextDone, range.steps);
  Value isInside = b.compare(arith::CmpIPredicate::ult, nextPanel, item.end);
  Value isEnd = b.make<arith::AndIOp>(
      b.compare(arith::CmpIPredicate::uge, nextPanel, item.end),
      b.compare(arith::CmpIPredicate::uge, after, item.steps));
  isEnd = b.select(hasMore, b.integer(b.builder.getI1Type(), 0), isEnd);
  StepRange next = range;
  next.begin = b.select(hasMore, b.add(range.begin, nextDone),
                        b.select(isInside, range.begin, after));
  next.steps = b.minimum(block, b.sub(item.steps, next.begin));
  PanelSource source = findSource(
      b.select(hasMore, panel, b.select(isInside, nextPanel, item.begin)),
      next);
  call.ahead = {source.memref};
  call.aheadOffset = source.offset;
  call.aheadChunks = b.select(isEnd, b.index(0), source.chunks);
  call.aheadStride = source.stride;
  call.aheadShift = source.shift;
  call.aheadRun = source.run;
}

void BlockedProduct::finishPanel(LoopBuilder &b, const Item &item, Value panel,
                                 Value chain, Value offset) {
  int64_t blocks = chains / links;
  auto finishBlock = [&](Value block) {
    if (blocks == 1)
      return finishSums(panel, sums, offset);
    addInPairs(b, item, panel, block, blocks, offset);
  };
  if (links == 1)
    return finishBlock(chain);
  Value link = b.make<arith::RemUIOp>(chain, b.index(links));
  b.when(b.compare(arith::CmpIPredicate::eq, link, b.index(links - 1)),
         [&] { finishBlock(b.div(chain, b.index(links))); });
}

/// Adds the sums of a block to those before it, in pairs, as a counter carries:
/// level l of the totals holds 2^l blocks until as many have followed. Beyond
/// the last level, where their number is odd, sums are added in order.
void BlockedProduct::addInPairs(LoopBuilder &b, const Item &item, Value panel,
                                Value block, int64_t blocks, Value offset) {
  int64_t levels = pairLevels(blocks);
  Value size = b.mul(item.rows, b.index(format.rowSums()));
  Value first = b.mul(b.sub(panel, item.begin), size);
  auto type = VectorType::get({format.lanes}, format.accumulator);
  auto placeOf = [&](int64_t level) {
    return b.add(first,
                 b.index(level * panelRange * rowBlock * format.rowSums()));
  };
  // to = sums, or to = total + sums.
  auto move = [&](Value total, Value place, Value to, Value toPlace) {
    b.loop(
        b.index(0), size,
        [&](Value i) {
          Value sum = b.make<vector::LoadOp>(type, sums, b.add(offset, i));
          if (total)
            sum = b.add(b.make<vector::LoadOp>(type, total, b.add(place, i)),
                        sum);
          vector::StoreOp::create(b.builder, b.loc, sum, to,
                                  ValueRange{b.add(toPlace, i)});
        },
        format.lanes);
  };
  // Whether the sums hold 2^level blocks.
  auto reaches = [&](int64_t level) {
    int64_t count = int64_t{1} << level;
    return b.compare(arith::CmpIPredicate::eq,
                     b.make<arith::RemUIOp>(block, b.index(count)),
                     b.index(count - 1));
  };
  for (int64_t level = 0; level < levels; ++level) {
    Value place = placeOf(level);
    b.when(reaches(level), [&] {
      b.when(
          reaches(level + 1), [&] { move(totals, place, sums, offset); },
          [&] { move(Value(), Value(), totals, place); });
    });
  }
  Value last = placeOf(levels);
  b.when(reaches(levels), [&] {
    b.when(
        b.compare(arith::CmpIPredicate::ult, block,
                  b.index(int64_t{1} << levels)),
        [&] { move(Value(), Value(), totals, last); },
        [&] { move(totals, last, totals, last); });
  });
  b.when(b.compare(arith::CmpIPredicate::eq, block, b.index(blocks - 1)),
         [&] { finishSums(panel, totals, last); });
}

void BlockedProduct::emitPanel(LoopBuilder &b, Operation *op, const Item &item,
                               Value panel, StepRange range) {
  Value zero = b.index(0);
  Value slot = b.sub(panel, item.begin);
  if (!keepsSums())
    slot = b.select(b.compare(arith::CmpIPredicate::ult, part, item.steps),
                    slot, zero);
  Value offset = b.mul(slot, b.mul(item.rows, b.index(format.rowSums())));
  Value isFirst = b.compare(arith::CmpIPredicate::eq, range.begin, zero);
  Value isFirstChain = b.compare(arith::CmpIPredicate::eq, range.chain, zero);
  if (startSums)
    b.when(b.make<arith::AndIOp>(isFirst, isFirstChain),
           [&] { startSums(panel, sums, offset); });
  PanelPlace whole;
  if (!makesPanels())
    whole = findPanel(panel, range);
  loopBy(b, b.maximum(range.steps, b.index(1)), block, [&](Value done) {
    TileCall call;
    call.steps = b.minimum(block, b.sub(range.steps, done));
    PanelPlace place = makesPanels()
                           ? findPanel(panel, {b.add(range.begin, done),
                                               call.steps, range.chain})
                           : whole;
    call.stage = stage;
    call.stageOffset = format.stepsFirst ? b.mul(done, stride) : done;
    call.stride = stride;
    call.rows = item.rows;
    call.panels = place.memrefs;
    call.panelOffset =
        makesPanels()
            ? place.offset
            : b.add(place.offset, b.mul(done, b.index(format.stepElements())));
    call.sums = sums;
    call.sumsOffset = offset;
    call.fresh =
        b.compare(arith::CmpIPredicate::eq, b.add(range.begin, done), zero);
    Value isOld = b.integer(b.builder.getI1Type(), 0);
    if (links > 1) {
      Value link = b.make<arith::RemUIOp>(range.chain, b.index(links));
      call.fresh = b.make<arith::AndIOp>(
          call.fresh, b.compare(arith::CmpIPredicate::eq, link, zero));
    }
    if (startSums)
      call.fresh = b.select(isFirstChain, isOld, call.fresh);
    choosePrefetch(b, item, call, panel, range, done);
    Value isEnd =
        b.compare(arith::CmpIPredicate::uge,
                  b.add(range.begin, b.add(done, call.steps)), item.steps);
    if (format.result) {
      call.result = findResult(panel);
      call.result.isComplete = isEnd;
    }
    if (prepareFinish)
      b.when(isEnd, [&] { prepareFinish(panel); });
    emitTileCall(b, op, format, call);
  });
  if (format.result)
    return;
  Value isLast = b.compare(arith::CmpIPredicate::uge,
                           b.add(range.begin, range.steps), item.steps);
  b.when(isLast, [&] { finishPanel(b, item, panel, range.chain, offset); });
  if (!item.next)
    return;
  if (chains > 1)
    isLast = b.make<arith::AndIOp>(
        isLast,
        b.compare(arith::CmpIPredicate::eq, range.chain, b.index(chains - 1)));
  // The stream of a single tile ends here; the next item's begins elsewhere.
  Value isEnd = b.make<arith::AndIOp>(
      isLast,
      b.compare(arith::CmpIPredicate::eq, b.add(panel, b.index(1)), item.end));
  b.when(b.make<arith::AndIOp>(isEnd, isSingle), [&] {
    emitPrefetches(b, item.next->memrefs, item.next->offset,
                   b.index(kPrefetchBytes / format.elementBytes()), zero,
                   b.index(kNextBytes / kPrefetchBytes), /*shift=*/{},
                   /*run=*/{}, format.fetchesNear);
  });
}
