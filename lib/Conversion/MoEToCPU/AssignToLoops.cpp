// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// assign: two passes over the pairs, O(T K + E B). The priority orders sort by
// radix, which is stable and linear too.

#include "LoopUtils.h"
#include "moira/Dialect/MoE/IR/MoEDialect.h"

#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

using arith::CmpIPredicate;

static MemRefType vectorOf(Type element) {
  return MemRefType::get(ShapedType::kDynamic, element);
}

//===----------------------------------------------------------------------===//
// Sort
//===----------------------------------------------------------------------===//

/// One stable pass by the 8 bits of `keys` from bit `shift`: moves the entries
/// begin to end - 1 of `from` to `to`.
static void scatterByDigit(LoopBuilder &b, Value keys, Value from, Value to,
                           Value begin, Value end, Value starts, Value shift) {
  Value one = b.index(1);
  auto digitOf = [&](Value entry) {
    Value key = b.load(keys, b.toIndex(entry));
    Type type = key.getType();
    Value digit = b.make<arith::ShRUIOp>(key, b.fromIndex(type, shift));
    return b.toIndex(b.make<arith::AndIOp>(digit, b.integer(type, 255)));
  };
  b.loop(256, [&](Value d) { b.store(b.index(0), starts, d); });
  b.loop(begin, end, [&](Value i) {
    Value digit = digitOf(b.load(from, i));
    b.store(b.add(b.load(starts, digit), one), starts, digit);
  });
  b.loop(b.index(0), b.index(256), begin,
         [&](Value d, ValueRange start) -> SmallVector<Value> {
           Value count = b.load(starts, d);
           b.store(start[0], starts, d);
           return {b.add(start[0], count)};
         });
  b.loop(begin, end, [&](Value i) {
    Value entry = b.load(from, i);
    Value digit = digitOf(entry);
    Value place = b.load(starts, digit);
    b.store(entry, to, place);
    b.store(b.add(place, one), starts, digit);
  });
}

/// `@moira_sort_<type>(keys, entries, scratch, begin, end)`: sorts entries
/// begin to end - 1 by `keys[entry]`, unsigned and ascending, stable.
static func::FuncOp getSort(OpBuilder &builder, Operation *op, Type keyType) {
  Type entries = vectorOf(builder.getI32Type()), index = builder.getIndexType();
  auto type = builder.getFunctionType(
      {vectorOf(keyType), entries, entries, index, index}, {});
  std::string name =
      "moira_sort_i" + std::to_string(keyType.getIntOrFloatBitWidth());
  return getOrAddFunction(builder, op, name, type, [&](func::FuncOp function) {
    builder.setInsertionPointToStart(function.addEntryBlock());
    LoopBuilder b(builder, op->getLoc());
    Value keys = function.getArgument(0), list = function.getArgument(1),
          other = function.getArgument(2), begin = function.getArgument(3),
          end = function.getArgument(4);
    Value starts = b.scratch(index, 256);
    // Two passes in one turn, so that the result ends where it began.
    b.loop(
        b.index(0), b.index(keyType.getIntOrFloatBitWidth()),
        [&](Value shift) {
          scatterByDigit(b, keys, list, other, begin, end, starts, shift);
          scatterByDigit(b, keys, other, list, begin, end, starts,
                         b.add(shift, b.index(8)));
        },
        16);
    func::ReturnOp::create(builder, op->getLoc());
  });
}

//===----------------------------------------------------------------------===//
// Assign
//===----------------------------------------------------------------------===//

namespace {
class AssignEmitter {
public:
  AssignEmitter(LoopBuilder &b, AssignOp op);

  /// Slots count from the first row of their expert.
  void placePairs();
  /// Adds the first rows.
  void addOffsets();
  void reportLoads();

private:
  /// Keys for a falling sort by priority, and the list to be sorted: tokens,
  /// or pairs t * K + j.
  struct Sorting {
    Value keys, entries, scratch;
  };

  std::optional<Sorting> prepareSorting();
  void placeBlock(Value begin, Value end);
  void placePair(Value t, Value j);
  void visit(Value begin, Value end);

  LoopBuilder &b;
  AssignOp op;
  Type i32;
  Value ids, slots, sizes, tokens, choices, experts, capacity;
  /// Pairs of each expert seen in the block; later the first rows.
  Value perExpert;
  std::optional<Sorting> sorting;
};
} // namespace

AssignEmitter::AssignEmitter(LoopBuilder &b, AssignOp op)
    : b(b), op(op), i32(b.builder.getI32Type()), ids(op.getIds()),
      slots(op.getOuts()[0]), sizes(op.getOuts()[1]) {
  tokens = b.dim(ids, 0);
  choices = b.dim(ids, 1);
  experts = b.index(op.getNumExperts());
  if (op.getCapacity())
    capacity = b.maximum(op.getCapacity(), b.index(0));
  perExpert = b.workspace(i32, op.getNumExperts(), {});
  if (op.getPriority())
    sorting = prepareSorting();
}

std::optional<AssignEmitter::Sorting> AssignEmitter::prepareSorting() {
  bool perPair = op.getOrder() == Order::ExpertProbability;
  unsigned bits =
      getElementTypeOrSelf(op.getPriority().getType()).getIntOrFloatBitWidth();
  Type keyType = b.builder.getIntegerType(bits);
  Value size = perPair ? b.mul(tokens, choices) : tokens;
  Sorting s;
  s.keys = b.workspace(keyType, ShapedType::kDynamic, size);
  s.entries = b.workspace(i32, ShapedType::kDynamic, size);
  s.scratch = b.workspace(i32, ShapedType::kDynamic, size);
  // The largest priority becomes the smallest unsigned number.
  Value flip = b.constant(
      b.builder.getIntegerAttr(keyType, APInt::getSignedMaxValue(bits)));
  auto add = [&](Value entry, Value priority) {
    Value key = b.make<arith::XOrIOp>(b.orderedBits(priority), flip);
    b.store(key, s.keys, entry);
    b.store(b.fromIndex(i32, entry), s.entries, entry);
  };
  b.loop(b.index(0), tokens, [&](Value t) {
    if (!perPair)
      return add(t, b.load(op.getPriority(), t));
    b.loop(b.index(0), choices, [&](Value j) {
      add(b.add(b.mul(t, choices), j), b.load(op.getPriority(), {t, j}));
    });
  });
  return s;
}

/// `pos = kept rows of earlier blocks + place`, if the place is in capacity.
void AssignEmitter::placePair(Value t, Value j) {
  Value unused = b.integer(i32, -1);
  Value e = b.toIndex(b.load(ids, {t, j}));
  auto slot = b.choose(
      b.inRange(e, experts),
      [&]() -> SmallVector<Value> {
        Value place = b.load(perExpert, e);
        b.store(b.add(place, b.integer(i32, 1)), perExpert, e);
        Value position = b.add(b.load(sizes, e), place);
        if (!capacity)
          return {position};
        Value stands =
            b.compare(CmpIPredicate::slt, b.toIndex(place), capacity);
        return {b.select(stands, position, unused)};
      },
      [&]() -> SmallVector<Value> { return {unused}; });
  b.store(slot[0], slots, {t, j});
}

/// Calls placePair for the pairs of tokens begin to end - 1, in order.
void AssignEmitter::visit(Value begin, Value end) {
  Value none = b.index(0);
  auto sort = [&](Value from, Value to) {
    Type keyType = cast<MemRefType>(sorting->keys.getType()).getElementType();
    func::FuncOp function = getSort(b.builder, op, keyType);
    func::CallOp::create(b.builder, b.loc, function,
                         ValueRange{sorting->keys, sorting->entries,
                                    sorting->scratch, from, to});
  };
  switch (op.getOrder()) {
  case Order::TokenMajor:
    return b.loop(begin, end, [&](Value t) {
      b.loop(none, choices, [&](Value j) { placePair(t, j); });
    });
  case Order::ChoiceMajor:
    return b.loop(none, choices, [&](Value j) {
      b.loop(begin, end, [&](Value t) { placePair(t, j); });
    });
  case Order::BatchPrioritized:
    sort(begin, end);
    return b.loop(none, choices, [&](Value j) {
      b.loop(begin, end, [&](Value i) {
        placePair(b.toIndex(b.load(sorting->entries, i)), j);
      });
    });
  case Order::ExpertProbability:
    // Places are counted per expert, so one sort over all experts will do.
    begin = b.mul(begin, choices);
    end = b.mul(end, choices);
    sort(begin, end);
    return b.loop(begin, end, [&](Value i) {
      Value pair = b.toIndex(b.load(sorting->entries, i));
      placePair(b.div(pair, choices), b.make<arith::RemUIOp>(pair, choices));
    });
  }
}

void AssignEmitter::placeBlock(Value begin, Value end) {
  b.loop(b.index(0), experts,
         [&](Value e) { b.store(b.integer(i32, 0), perExpert, e); });
  visit(begin, end);
  b.loop(b.index(0), experts, [&](Value e) {
    Value seen = b.load(perExpert, e);
    if (capacity)
      seen = b.fromIndex(i32, b.minimum(b.toIndex(seen), capacity));
    b.store(b.add(b.load(sizes, e), seen), sizes, e);
  });
}

void AssignEmitter::placePairs() {
  Value none = b.index(0);
  b.loop(none, experts, [&](Value e) { b.store(b.integer(i32, 0), sizes, e); });
  if (!op.getBlocks())
    return placeBlock(none, tokens);
  // Blocks are data: keep them in the tokens, and leave no slot unwritten.
  Value covered = b.loop(none, b.dim(op.getBlocks(), 0), none,
                         [&](Value i, ValueRange begin) -> SmallVector<Value> {
                           Value size = b.maximum(
                               b.toIndex(b.load(op.getBlocks(), i)), none);
                           Value end = b.minimum(b.add(begin[0], size), tokens);
                           placeBlock(begin[0], end);
                           return {end};
                         })[0];
  b.loop(covered, tokens, [&](Value t) {
    b.loop(none, choices,
           [&](Value j) { b.store(b.integer(i32, -1), slots, {t, j}); });
  });
}

void AssignEmitter::addOffsets() {
  Value rows;
  if (op.getPadded()) {
    rows = capacity;
    if (op.getBlocks())
      rows = b.mul(rows, b.dim(op.getBlocks(), 0));
    rows = b.fromIndex(i32, rows);
  }
  b.loop(b.index(0), experts, b.integer(i32, 0),
         [&](Value e, ValueRange first) -> SmallVector<Value> {
           b.store(first[0], perExpert, e);
           return {b.add(first[0], rows ? rows : b.load(sizes, e))};
         });
  Value none = b.integer(i32, 0);
  b.loop(b.index(0), tokens, [&](Value t) {
    b.loop(b.index(0), choices, [&](Value j) {
      Value slot = b.load(slots, {t, j});
      b.when(b.compare(CmpIPredicate::sge, slot, none), [&] {
        Value e = b.toIndex(b.load(ids, {t, j}));
        b.store(b.add(slot, b.load(perExpert, e)), slots, {t, j});
      });
    });
  });
}

void AssignEmitter::reportLoads() {
  if (!op.getLayerAttr())
    return;
  Type i64 = b.builder.getI64Type(), loads = vectorOf(i32);
  auto type = b.builder.getFunctionType({i64, loads, loads}, {});
  func::FuncOp function = getOrAddFunction(
      b.builder, op, "moira_abi_loads", type, [&](func::FuncOp function) {
        function->setAttr("moe.abi", b.builder.getStringAttr("loads"));
      });
  auto flat = [&](Value value) -> Value {
    if (value.getType() == loads)
      return value;
    if (memref::CastOp::areCastCompatible(value.getType(), loads))
      return b.make<memref::CastOp>(loads, value);
    Value copy = b.workspace(i32, ShapedType::kDynamic, experts);
    b.loop(b.index(0), experts,
           [&](Value e) { b.store(b.load(value, e), copy, e); });
    return copy;
  };
  func::CallOp::create(b.builder, b.loc, function,
                       ValueRange{b.integer(i64, *op.getLayer()),
                                  flat(op.getCounts()), flat(sizes)});
}

namespace {
struct AssignToLoops : OpRewritePattern<AssignOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(AssignOp op,
                                PatternRewriter &rewriter) const override {
    if (!hasBufferForm(op))
      return rewriter.notifyMatchFailure(op, "expected the buffer form");
    LoopBuilder b(rewriter, op.getLoc());
    AssignEmitter emitter(b, op);
    emitter.placePairs();
    emitter.addOffsets();
    emitter.reportLoads();
    rewriter.eraseOp(op);
    return success();
  }
};
} // namespace

void mlir::moe::detail::populateAssignPatterns(RewritePatternSet &patterns) {
  patterns.add<AssignToLoops>(patterns.getContext());
}
