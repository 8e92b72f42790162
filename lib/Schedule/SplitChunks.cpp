// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A chunk's rows stand in memory that the loop allocates in each iteration. All
// chunks are in flight at the same time, so one buffer takes them all: that of
// chunk i begins behind the rows of the chunks before it. A loop before the
// three others asks for the sizes of all chunks, so that each is computed once.

#include "SplitChunks.h"

#include "moira/Schedule/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "mlir/Interfaces/ViewLikeInterface.h"

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

/// Chunks begin at multiples of so many bytes, like every allocation.
static constexpr int64_t kAlignment = 64;

Value mlir::moe::detail::findRoot(Value memref) {
  while (auto view = memref.getDefiningOp<ViewLikeOpInterface>())
    memref = view.getViewSource();
  return memref;
}

Operation *mlir::moe::detail::findFirstUse(Operation *start, Value root) {
  Operation *op = start->getNextNode();
  for (; op != start->getBlock()->getTerminator(); op = op->getNextNode()) {
    WalkResult result = op->walk([&](Operation *inner) {
      for (Value operand : inner->getOperands())
        if (isa<MemRefType>(operand.getType()) && findRoot(operand) == root)
          return WalkResult::interrupt();
      return WalkResult::advance();
    });
    // A view by itself reads nothing.
    if (result.wasInterrupted() && !isa<ViewLikeOpInterface>(op))
      break;
  }
  return op;
}

Value mlir::moe::detail::startExchange(OpBuilder &builder, ExchangeOp op) {
  Location loc = op.getLoc();
  Value home = op.getRows(), away = op.getOuts()[0];
  if (op.getDirection() == Direction::ToTokens)
    std::swap(home, away);
  Value chunk = op.getChunk(), chunks = op.getChunks();
  if (!chunk) {
    chunk = arith::ConstantIndexOp::create(builder, loc, 0);
    chunks = arith::ConstantIndexOp::create(builder, loc, 1);
  }
  return StartExchangeOp::create(builder, loc, builder.getIndexType(), home,
                                 away, op.getMatrix(), chunk, chunks,
                                 op.getDirection(), op.getPlacement(),
                                 op.getSchedule(), op.getLayerAttr());
}

namespace {

/// A `moe.receive_sizes` of the loop, and what it says of all chunks.
struct ChunkSizes {
  ReceiveSizesOp op;
  /// Its memory for one chunk.
  memref::AllocOp groups;
  /// Groups of all chunks (bytes), rows of each (memref<?xindex>), of all.
  Value allGroups, rows, total;
};

/// Memory that the loop allocates per iteration, one for each chunk.
struct ChunkMemory {
  memref::AllocOp alloc;
  /// The op that tells how many rows a chunk has.
  Operation *sizes;
  int64_t rowBytes;
  /// The bytes of all chunks.
  Value storage;
};

class LoopSplitter {
public:
  explicit LoopSplitter(scf::ForOp loop) : loop(loop), b(loop.getLoc(), loop) {}

  bool match();
  void split();

private:
  /// Plans that the memory of `memref` is kept for each chunk.
  bool keep(Value memref);
  bool keepSizes(ReceiveSizesOp op);
  bool isOutside(Value value) { return loop.isDefinedOutsideOfLoop(value); }
  /// A constant before the loop.
  Value index(int64_t value);
  /// Where the memory of a chunk begins that has `rows` rows before it.
  Value buildBegin(const ChunkMemory &memory, Value chunk, Value rows);
  Value buildView(const ChunkMemory &memory, Value chunk, Value rows, Value n);
  Value buildGroups(const ChunkSizes &known, Value chunk);
  Value allocateBytes(Value bytes);
  /// Memory for one index per chunk.
  Value allocateNumbers();
  void buildSizes();
  void allocate();
  /// A loop over the chunks that counts the rows before each chunk.
  scf::ForOp createLoop(bool counts);
  void buildStarts();
  void buildProducts();
  void buildWaits();

  scf::ForOp loop;
  ImplicitLocOpBuilder b;
  SmallVector<ExchangeOp> sends, backs;
  llvm::MapVector<Operation *, ChunkSizes> sizes;
  llvm::MapVector<Operation *, ChunkMemory> memories;
  /// Tickets of sends and backs, memref<?xindex>.
  SmallVector<Value> sendTickets, backTickets;
  llvm::SmallDenseMap<int64_t, Value> constants;
  Operation *firstNew = nullptr;
};

} // namespace

Value LoopSplitter::index(int64_t value) {
  Value &constant = constants[value];
  if (!constant) {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPoint(firstNew ? firstNew : loop.getOperation());
    constant = arith::ConstantIndexOp::create(b, value);
    if (!firstNew)
      firstNew = constant.getDefiningOp();
  }
  return constant;
}

bool LoopSplitter::keep(Value memref) {
  auto alloc = findRoot(memref).getDefiningOp<memref::AllocOp>();
  if (!alloc || alloc->getBlock() != loop.getBody())
    return false;
  MemRefType type = alloc.getType();
  if (!type.getLayout().isIdentity() || type.getRank() == 0 ||
      type.getNumDynamicDims() != 1 || !type.isDynamicDim(0) ||
      !alloc.getSymbolOperands().empty())
    return false;
  auto source = alloc.getDynamicSizes()[0].getDefiningOp<ReceiveSizesOp>();
  if (!source || !keepSizes(source))
    return false;
  int64_t bytes = llvm::divideCeil(type.getElementTypeBitWidth(), 8);
  for (int64_t size : type.getShape().drop_front())
    bytes *= size;
  memories.insert({alloc, {alloc, source, bytes, {}}});
  return true;
}

bool LoopSplitter::keepSizes(ReceiveSizesOp op) {
  auto groups = op.getOuts()[0].getDefiningOp<memref::AllocOp>();
  auto isInside = [&](Operation *user) { return loop->isAncestor(user); };
  if (op->getBlock() != loop.getBody() ||
      op.getChunk() != loop.getInductionVar() || !isOutside(op.getMatrix()) ||
      !groups || !groups.getType().hasStaticShape() ||
      !groups.getType().getLayout().isIdentity() ||
      !llvm::all_of(groups->getUsers(), isInside))
    return false;
  sizes.insert({op, {op, groups, {}, {}, {}}});
  return true;
}

bool LoopSplitter::match() {
  if (loop.getNumResults() != 0 ||
      getConstantIntValue(loop.getLowerBound()) != 0 ||
      getConstantIntValue(loop.getStep()) != 1 ||
      !loop.getUpperBound().getDefiningOp<ChunksOp>())
    return false;
  for (auto op : loop.getBody()->getOps<ExchangeOp>()) {
    auto queue = op->getAttrOfType<StringAttr>(kQueueAttrName);
    if (!queue || queue.getValue() != "communication" ||
        op.getChunk() != loop.getInductionVar())
      continue;
    bool isSend = op.getDirection() == Direction::ToExperts;
    (isSend ? sends : backs).push_back(op);
    if (!isOutside(isSend ? op.getRows() : op.getOuts()[0]) ||
        !isOutside(op.getMatrix()) ||
        !keep(isSend ? op.getOuts()[0] : op.getRows()))
      return false;
  }
  // A chunk's rows fill what was allocated for them.
  return !sends.empty() && llvm::all_of(sends, [&](ExchangeOp op) {
    return findRoot(op.getOuts()[0]) == op.getOuts()[0];
  });
}

Value LoopSplitter::buildBegin(const ChunkMemory &memory, Value chunk,
                               Value rows) {
  Value bytes = arith::MulIOp::create(b, rows, index(memory.rowBytes));
  if (memory.rowBytes % kAlignment == 0)
    return bytes;
  // The next multiple, and one more per chunk for what that has skipped.
  Value lines = arith::AddIOp::create(
      b, arith::CeilDivUIOp::create(b, bytes, index(kAlignment)), chunk);
  return arith::MulIOp::create(b, lines, index(kAlignment));
}

Value LoopSplitter::buildView(const ChunkMemory &memory, Value chunk,
                              Value rows, Value n) {
  memref::AllocOp alloc = memory.alloc;
  return memref::ViewOp::create(b, alloc.getType(), memory.storage,
                                buildBegin(memory, chunk, rows), n);
}

/// Bytes from the groups of one chunk to those of the next.
static int64_t getGroupBytes(MemRefType type) {
  return llvm::alignTo(type.getNumElements() * 4, kAlignment);
}

Value LoopSplitter::buildGroups(const ChunkSizes &known, Value chunk) {
  memref::AllocOp groups = known.groups;
  Value begin =
      arith::MulIOp::create(b, chunk, index(getGroupBytes(groups.getType())));
  return memref::ViewOp::create(b, groups.getType(), known.allGroups, begin,
                                ValueRange());
}

Value LoopSplitter::allocateBytes(Value bytes) {
  auto type = MemRefType::get({ShapedType::kDynamic}, b.getI8Type());
  return memref::AllocOp::create(b, type, bytes,
                                 b.getI64IntegerAttr(kAlignment));
}

Value LoopSplitter::allocateNumbers() {
  auto type = MemRefType::get({ShapedType::kDynamic}, b.getIndexType());
  return memref::AllocOp::create(b, type, loop.getUpperBound());
}

void LoopSplitter::buildSizes() {
  for (auto &[op, known] : sizes) {
    known.allGroups = allocateBytes(arith::MulIOp::create(
        b, loop.getUpperBound(), index(getGroupBytes(known.groups.getType()))));
    known.rows = allocateNumbers();
  }
  OpBuilder::InsertionGuard guard(b);
  scf::ForOp counting = createLoop(/*counts=*/true);
  Value chunk = counting.getInductionVar();
  IRMapping mapping;
  mapping.map(loop.getInductionVar(), chunk);
  SmallVector<Value> next;
  for (auto [entry, rows, total] :
       llvm::zip(sizes, counting.getRegionIterArgs(), counting.getResults())) {
    ChunkSizes &known = entry.second;
    mapping.map(known.groups.getResult(), buildGroups(known, chunk));
    Value n = b.clone(*known.op, mapping)->getResult(0);
    memref::StoreOp::create(b, n, known.rows, chunk);
    next.push_back(arith::AddIOp::create(b, rows, n));
    known.total = total;
  }
  scf::YieldOp::create(b, next);
}

void LoopSplitter::allocate() {
  Value chunks = loop.getUpperBound();
  for (auto &[op, memory] : memories)
    memory.storage = allocateBytes(
        buildBegin(memory, chunks, sizes.find(memory.sizes)->second.total));
  for (size_t i = 0; i < sends.size(); ++i)
    sendTickets.push_back(allocateNumbers());
  for (size_t i = 0; i < backs.size(); ++i)
    backTickets.push_back(allocateNumbers());
}

scf::ForOp LoopSplitter::createLoop(bool counts) {
  SmallVector<Value> inits(counts ? sizes.size() : 0, loop.getLowerBound());
  auto result = scf::ForOp::create(b, loop.getLowerBound(),
                                   loop.getUpperBound(), loop.getStep(), inits);
  Block *body = result.getBody();
  if (body->mightHaveTerminator())
    body->getTerminator()->erase();
  b.setInsertionPointToEnd(body);
  return result;
}

void LoopSplitter::buildStarts() {
  OpBuilder::InsertionGuard guard(b);
  scf::ForOp starts = createLoop(/*counts=*/true);
  Value chunk = starts.getInductionVar();
  IRMapping mapping;
  mapping.map(loop.getInductionVar(), chunk);
  llvm::SmallDenseMap<Operation *, Value> rowsBefore;
  SmallVector<Value> next;
  for (auto [entry, rows] : llvm::zip(sizes, starts.getRegionIterArgs())) {
    Value n = memref::LoadOp::create(b, entry.second.rows, chunk);
    mapping.map(entry.second.op.getResult(0), n);
    rowsBefore[entry.first] = rows;
    next.push_back(arith::AddIOp::create(b, rows, n));
  }
  for (auto [send, tickets] : llvm::zip(sends, sendTickets)) {
    Value away = send.getOuts()[0];
    const ChunkMemory &memory = memories.find(away.getDefiningOp())->second;
    Value n = mapping.lookup(memory.sizes->getResult(0));
    mapping.map(away, buildView(memory, chunk, rowsBefore[memory.sizes], n));
    auto copy = cast<ExchangeOp>(b.clone(*send, mapping));
    memref::StoreOp::create(b, startExchange(b, copy), tickets, chunk);
    copy.erase();
  }
  scf::YieldOp::create(b, next);
}

void LoopSplitter::buildProducts() {
  OpBuilder::InsertionGuard guard(b);
  scf::ForOp products = createLoop(/*counts=*/true);
  Value chunk = products.getInductionVar();
  Block *body = products.getBody();
  llvm::SmallDenseMap<Operation *, Value> rowsBefore;
  SmallVector<Value> next;
  for (auto [entry, rows] : llvm::zip(sizes, products.getRegionIterArgs())) {
    ChunkSizes &known = entry.second;
    Value n = memref::LoadOp::create(b, known.rows, chunk);
    known.op.getResult(0).replaceAllUsesWith(n);
    known.groups.replaceAllUsesWith(buildGroups(known, chunk));
    rowsBefore[entry.first] = rows;
    next.push_back(arith::AddIOp::create(b, rows, n));
  }
  Operation *terminator = loop.getBody()->getTerminator();
  for (Operation &op : llvm::make_early_inc_range(*loop.getBody()))
    if (&op != terminator)
      op.moveBefore(body, body->end());
  loop.getInductionVar().replaceAllUsesWith(chunk);
  b.setInsertionPointToEnd(body);
  scf::YieldOp::create(b, next);

  for (auto &[op, memory] : memories) {
    b.setInsertionPoint(op);
    Value view = buildView(memory, chunk, rowsBefore[memory.sizes],
                           memory.alloc.getDynamicSizes()[0]);
    memory.alloc.replaceAllUsesWith(view);
  }
  for (auto [send, tickets] : llvm::zip(sends, sendTickets)) {
    b.setInsertionPoint(send);
    WaitOp::create(b, memref::LoadOp::create(b, tickets, chunk));
    send.erase();
  }
  for (auto [back, tickets] : llvm::zip(backs, backTickets)) {
    b.setInsertionPoint(back);
    memref::StoreOp::create(b, startExchange(b, back), tickets, chunk);
  }
}

void LoopSplitter::buildWaits() {
  if (backs.empty())
    return;
  OpBuilder::InsertionGuard guard(b);
  Operation *first = loop->getBlock()->getTerminator();
  for (ExchangeOp back : backs) {
    Operation *use = findFirstUse(loop, findRoot(back.getOuts()[0]));
    if (use->isBeforeInBlock(first))
      first = use;
  }
  b.setInsertionPoint(first);
  scf::ForOp waits = createLoop(/*counts=*/false);
  for (Value tickets : backTickets)
    WaitOp::create(b,
                   memref::LoadOp::create(b, tickets, waits.getInductionVar()));
  scf::YieldOp::create(b);
}

void LoopSplitter::split() {
  b.setInsertionPoint(loop);
  buildSizes();
  allocate();
  buildStarts();
  buildProducts();
  buildWaits();
  for (ExchangeOp back : backs)
    back.erase();
  for (auto &[op, memory] : memories)
    op->erase();
  for (auto &[op, known] : sizes) {
    op->erase();
    known.groups.erase();
  }
  loop.erase();
}

bool mlir::moe::detail::splitChunks(scf::ForOp loop) {
  LoopSplitter splitter(loop);
  if (!splitter.match())
    return false;
  splitter.split();
  return true;
}
