// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "AbiBuilder.h"
#include "Collectives.h"
#include "DeviceCalls.h"
#include "ManifestWriter.h"
#include "WorkspaceBound.h"

#include "moira/Conversion/Passes.h"
#include "moira/Dialect/MoE/IR/MoEDialect.h"
#include "moira/Dialect/NV/IR/NVDialect.h"
#include "moira/abi.h"
#include "moira/device_abi.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Interfaces/LoopLikeInterface.h"

#include "llvm/ADT/StringSet.h"

#include <cstddef>

namespace mlir::moe {
#define GEN_PASS_DEF_EMITENTRIESPASS
#include "moira/Conversion/Passes.h.inc"
} // namespace mlir::moe

using namespace mlir;
using namespace mlir::moe;

namespace {

struct EmitEntries : public moe::impl::EmitEntriesPassBase<EmitEntries> {
  using EmitEntriesPassBase::EmitEntriesPassBase;
  void runOnOperation() override;
};

/// Turns the memory and the results of one function into ABI calls.
class FunctionLowering {
public:
  /// `kernels`: of a step whose memory is a device's; null: the host's.
  explicit FunctionLowering(func::FuncOp function,
                            const KernelTable *kernels = nullptr)
      : function(function), kernels(kernels), converter(function.getContext()) {
  }

  LogicalResult lowerStep(ArrayRef<int64_t> parameterIndex);
  LogicalResult lowerPack();
  void lowerBody() { lowerAllocations(); }

  /// Adds `void name(ctx, inputs)` that calls the step with memrefs made from
  /// the inputs and the parameter table.
  void emitStepEntry(StringRef name, ArrayRef<int64_t> parameterIndex);
  /// Adds `void name(ctx, source, packed)`.
  void emitPackEntry(StringRef name);

private:
  Value context() { return function.getArgument(0); }
  void lowerResult(ImplicitLocOpBuilder &b, int64_t index, Value value,
                   llvm::SmallPtrSetImpl<Operation *> &taken);
  void lowerAllocations();
  void bracketLoopAllocations();
  void replaceAbiCalls();
  void dropResults();

  func::FuncOp function;
  const KernelTable *kernels;
  LLVMTypeConverter converter;
};

} // namespace

void FunctionLowering::lowerResult(ImplicitLocOpBuilder &b, int64_t index,
                                   Value value,
                                   llvm::SmallPtrSetImpl<Operation *> &taken) {
  auto type = dyn_cast<MemRefType>(value.getType());
  if (!type) { // a scalar
    type = MemRefType::get({}, value.getType());
    Value data = AbiBuilder(b, context()).result(index, {});
    Value target = AbiBuilder::memref(b, converter, type, data, {});
    memref::StoreOp::create(b, value, target, ValueRange{});
    return;
  }
  memref::AllocOp alloc = findResultMemory(function, value);
  bool inPlace = alloc && taken.insert(alloc).second;
  OpBuilder::InsertionGuard guard(b);
  if (inPlace)
    b.setInsertionPoint(alloc);
  MemRefType storage =
      inPlace ? alloc.getType()
              : MemRefType::get(type.getShape(), type.getElementType());
  SmallVector<Value> sizes, dynamic;
  for (int64_t d = 0; d < storage.getRank(); ++d) {
    if (!storage.isDynamicDim(d)) {
      sizes.push_back(arith::ConstantIndexOp::create(b, storage.getDimSize(d)));
      continue;
    }
    Value size = inPlace
                     ? alloc.getDynamicSizes()[storage.getDynamicDimIndex(d)]
                     : memref::DimOp::create(b, value, d).getResult();
    sizes.push_back(size);
    dynamic.push_back(size);
  }
  Value data = AbiBuilder(b, context()).result(index, sizes);
  Value target = AbiBuilder::memref(b, converter, storage, data, dynamic);
  if (inPlace)
    alloc.replaceAllUsesWith(target), alloc.erase();
  else
    memref::CopyOp::create(b, value, target);
}

void FunctionLowering::dropResults() {
  auto terminator = cast<func::ReturnOp>(function.front().getTerminator());
  terminator->setOperands({});
  function.setType(FunctionType::get(function.getContext(),
                                     function.getArgumentTypes(), {}));
  function.removeResAttrsAttr();
}

LogicalResult FunctionLowering::lowerStep(ArrayRef<int64_t> parameterIndex) {
  if (!function.getBody().hasOneBlock())
    return function.emitOpError("expected structured control flow in a step");
  auto terminator = cast<func::ReturnOp>(function.front().getTerminator());
  ImplicitLocOpBuilder b(terminator.getLoc(), terminator);
  llvm::SmallPtrSet<Operation *, 4> taken;
  // Operands are read one by one: placing a result replaces its memory, which
  // may be returned again.
  for (unsigned i = 0; i < terminator.getNumOperands(); ++i)
    lowerResult(b, i, terminator.getOperand(i), taken);
  dropResults();
  replaceAbiCalls();
  if (failed(lowerCollectives(function, converter, parameterIndex)))
    return failure();
  if (kernels && failed(lowerDeviceOps(function, converter, *kernels)))
    return failure();
  lowerAllocations();
  return success();
}

LogicalResult FunctionLowering::lowerPack() {
  auto terminator = cast<func::ReturnOp>(function.front().getTerminator());
  if (terminator.getNumOperands() != 1)
    return function.emitOpError("expected a pack function to return one slice");
  Value packed = terminator.getOperand(0);
  auto type = cast<MemRefType>(packed.getType());
  if (!type.hasStaticShape())
    return function.emitOpError("expected a packed slice of static shape, got ")
           << type;
  // The result comes as a pointer after the source.
  Type pointer = LLVM::LLVMPointerType::get(function.getContext());
  unsigned position = function.getNumArguments();
  if (failed(function.insertArgument(position, pointer, DictionaryAttr(),
                                     function.getLoc())))
    return failure();
  Value destination = function.getArgument(position);
  // Static reshapes of an alloc are views of the same bytes.
  Value root = packed;
  while (Operation *view = root.getDefiningOp()) {
    if (!isa<memref::CastOp, memref::CollapseShapeOp, memref::ExpandShapeOp,
             memref::ReinterpretCastOp>(view))
      break;
    root = view->getOperand(0);
  }
  if (auto alloc = root.getDefiningOp<memref::AllocOp>();
      alloc && alloc.getType().hasStaticShape() &&
      alloc.getType().getNumElements() == type.getNumElements()) {
    ImplicitLocOpBuilder b(alloc.getLoc(), alloc);
    Value target =
        AbiBuilder::memref(b, converter, alloc.getType(), destination, {});
    alloc.replaceAllUsesWith(target);
    alloc.erase();
  } else {
    ImplicitLocOpBuilder b(terminator.getLoc(), terminator);
    auto storage = MemRefType::get(type.getShape(), type.getElementType());
    Value target = AbiBuilder::memref(b, converter, storage, destination, {});
    memref::CopyOp::create(b, packed, target);
  }
  dropResults();
  return success();
}

/// Allocations inside a loop are released at the end of each iteration.
void FunctionLowering::bracketLoopAllocations() {
  llvm::SetVector<Block *> blocks;
  function.walk([&](memref::AllocOp alloc) {
    Operation *parent = alloc->getParentOp();
    while (parent != function && !isa<LoopLikeOpInterface>(parent))
      parent = parent->getParentOp();
    // The body of a parallel loop is one iteration.
    if (parent == function && getKind(function) != "body")
      return;
    Block &body = parent->getRegion(0).front();
    // A buffer that the iteration hands on stays until the end of the step.
    bool escapes =
        llvm::any_of(body.getTerminator()->getOperandTypes(),
                     [](Type type) { return isa<MemRefType>(type); });
    if (!escapes)
      blocks.insert(&body);
  });
  for (Block *block : blocks) {
    ImplicitLocOpBuilder b(block->front().getLoc(), function.getContext());
    b.setInsertionPointToStart(block);
    Value worker = getWorker(b, function);
    AbiBuilder abi(b, context());
    Value mark = abi.mark(worker);
    b.setInsertionPoint(block->getTerminator());
    abi.release(worker, mark);
  }
}

void FunctionLowering::lowerAllocations() {
  bracketLoopAllocations();
  SmallVector<memref::AllocOp> allocs;
  SmallVector<memref::DeallocOp> deallocs;
  function.walk([&](Operation *op) {
    if (auto alloc = dyn_cast<memref::AllocOp>(op))
      allocs.push_back(alloc);
    else if (auto dealloc = dyn_cast<memref::DeallocOp>(op))
      deallocs.push_back(dealloc);
  });
  for (memref::DeallocOp dealloc : deallocs)
    dealloc.erase();
  for (memref::AllocOp alloc : allocs) {
    ImplicitLocOpBuilder b(alloc.getLoc(), alloc);
    MemRefType type = alloc.getType();
    Value bytes = AbiBuilder::i64(b, getStaticBytes(type));
    for (Value size : alloc.getDynamicSizes())
      bytes = LLVM::MulOp::create(b, bytes, AbiBuilder::toI64(b, size));
    Value worker = alloc->hasAttr(nv::kOnHostAttrName)
                       ? AbiBuilder::i64(b, MOIRA_DEVICE_HOST_WORKER)
                       : getWorker(b, function);
    Value data = AbiBuilder(b, context()).alloc(worker, bytes);
    alloc.replaceAllUsesWith(
        AbiBuilder::memref(b, converter, type, data, alloc.getDynamicSizes()));
    alloc.erase();
  }
}

/// Calls of declarations that stand for functions of the table.
void FunctionLowering::replaceAbiCalls() {
  SymbolTable symbols(function->getParentOfType<ModuleOp>());
  SmallVector<std::pair<func::CallOp, StringRef>> calls;
  function.walk([&](func::CallOp call) {
    auto callee = symbols.lookup<func::FuncOp>(call.getCallee());
    if (auto name = callee ? callee->getAttrOfType<StringAttr>("moe.abi")
                           : StringAttr())
      calls.push_back({call, name.getValue()});
  });
  for (auto [call, name] : calls) {
    ImplicitLocOpBuilder b(call.getLoc(), call);
    AbiBuilder abi(b, context());
    if (name == "enter") {
      abi.enter(call.getOperand(0), call.getOperand(1));
    } else if (name == "workers") {
      call.getResult(0).replaceAllUsesWith(abi.workers());
    } else { // "loads"
      Value experts = memref::DimOp::create(b, call.getOperand(1), 0);
      abi.loads(call.getOperand(0), experts,
                AbiBuilder::dataPointer(b, converter, call.getOperand(1)),
                AbiBuilder::dataPointer(b, converter, call.getOperand(2)));
    }
    call.erase();
  }
}

void FunctionLowering::emitStepEntry(StringRef name,
                                     ArrayRef<int64_t> parameterIndex) {
  ImplicitLocOpBuilder b(function.getLoc(), function.getContext());
  b.setInsertionPointAfter(function);
  Type pointer = LLVM::LLVMPointerType::get(b.getContext());
  auto entry =
      func::FuncOp::create(b, name, b.getFunctionType({pointer, pointer}, {}));
  Block *block = entry.addEntryBlock();
  b.setInsertionPointToStart(block);
  Value inputs = block->getArgument(1);
  SmallVector<Value> arguments{block->getArgument(0)};
  int64_t input = 0, parameter = 0;
  for (unsigned i = 1; i < function.getNumArguments(); ++i) {
    Type type = function.getArgumentTypes()[i];
    auto memref = dyn_cast<MemRefType>(type);
    if (function.getArgAttr(i, kParamAttrName)) {
      Value data =
          AbiBuilder(b, arguments[0]).parameter(parameterIndex[parameter++]);
      arguments.push_back(AbiBuilder::memref(b, converter, memref, data, {}));
      continue;
    }
    int64_t offset = input++ * sizeof(moira_buffer);
    Value data = AbiBuilder::loadField(
        b, inputs, offset + offsetof(moira_buffer, data), pointer);
    if (!memref) { // a scalar
      Value view =
          AbiBuilder::memref(b, converter, MemRefType::get({}, type), data, {});
      arguments.push_back(memref::LoadOp::create(b, view, ValueRange{}));
      continue;
    }
    // What has no dimensions comes on the host.
    if (kernels && memref.getRank() == 0) {
      AbiBuilder abi(b, arguments[0]);
      data = copyToDevice(b, abi, data, getStaticBytes(memref));
    }
    SmallVector<Value> sizes;
    Value shape;
    for (int64_t d = 0; d < memref.getRank(); ++d) {
      if (!memref.isDynamicDim(d))
        continue;
      if (!shape)
        shape = AbiBuilder::loadField(
            b, inputs, offset + offsetof(moira_buffer, shape), pointer);
      sizes.push_back(AbiBuilder::loadField(b, shape, d * 8, b.getI64Type()));
    }
    arguments.push_back(AbiBuilder::memref(b, converter, memref, data, sizes));
  }
  func::CallOp::create(b, function, arguments);
  func::ReturnOp::create(b);
}

void FunctionLowering::emitPackEntry(StringRef name) {
  ImplicitLocOpBuilder b(function.getLoc(), function.getContext());
  b.setInsertionPointAfter(function);
  Type pointer = LLVM::LLVMPointerType::get(b.getContext());
  auto entry = func::FuncOp::create(
      b, name, b.getFunctionType({pointer, pointer, pointer}, {}));
  Block *block = entry.addEntryBlock();
  b.setInsertionPointToStart(block);
  auto source = cast<MemRefType>(function.getArgumentTypes()[1]);
  Value view =
      AbiBuilder::memref(b, converter, source, block->getArgument(1), {});
  func::CallOp::create(
      b, function,
      ValueRange{block->getArgument(0), view, block->getArgument(2)});
  func::ReturnOp::create(b);
}

/// Adds a pack entry that copies `bytes` bytes.
static void emitCopyEntry(ModuleOp module, StringRef name, int64_t bytes) {
  ImplicitLocOpBuilder b(module.getLoc(), module.getContext());
  b.setInsertionPointToEnd(module.getBody());
  Type pointer = LLVM::LLVMPointerType::get(b.getContext());
  auto entry = func::FuncOp::create(
      b, name, b.getFunctionType({pointer, pointer, pointer}, {}));
  Block *block = entry.addEntryBlock();
  b.setInsertionPointToStart(block);
  LLVM::MemcpyOp::create(b, block->getArgument(2), block->getArgument(1),
                         AbiBuilder::i64(b, bytes), /*isVolatile=*/false);
  func::ReturnOp::create(b);
}

void EmitEntries::runOnOperation() {
  ModuleOp module = getOperation();
  ManifestWriter manifest(moduleName, triple, cpu, features);

  // 1. Names and types, before they change.
  SmallVector<func::FuncOp> steps, bodies, packs;
  for (auto function : module.getOps<func::FuncOp>()) {
    StringRef kind = getKind(function);
    if (kind == "step")
      steps.push_back(function);
    else if (kind == "body")
      bodies.push_back(function);
    else if (kind == "pack")
      packs.push_back(function);
  }
  SmallVector<SmallVector<int64_t>> parameterIndices;
  for (func::FuncOp step : steps)
    if (failed(manifest.addStep(step, parameterIndices.emplace_back())))
      return signalPassFailure();

  // 2. Entries of steps.
  KernelTable kernels(module);
  if (kernels.isForDevice())
    manifest.setDevice(kernels.describe());
  for (auto [step, indices] : llvm::zip_equal(steps, parameterIndices)) {
    auto names = ManifestWriter::getSymbols(step);
    emitWorkspaceBound(step, names.workspace);
    emitShapeBounds(step, names.shapes);
    bool onDevice = kernels.isForDevice() && !step->hasAttr("moe.update");
    FunctionLowering lowering(step, onDevice ? &kernels : nullptr);
    if (failed(lowering.lowerStep(indices)))
      return signalPassFailure();
    lowering.emitStepEntry(names.step, indices);
  }
  for (func::FuncOp body : bodies)
    FunctionLowering(body).lowerBody();

  // 3. Entries of parameters.
  for (func::FuncOp pack : packs)
    if (failed(FunctionLowering(pack).lowerPack()))
      return signalPassFailure();
  for (const ManifestWriter::Pack &pack : manifest.getPacks()) {
    if (!pack.function.empty())
      FunctionLowering(module.lookupSymbol<func::FuncOp>(pack.function))
          .emitPackEntry(pack.symbol);
    else
      emitCopyEntry(module, pack.symbol, pack.sliceBytes);
  }

  // 4. Only the entries are visible outside; notes between passes go.
  for (auto op : llvm::make_early_inc_range(module.getOps<VariantsOp>()))
    op.erase();
  llvm::StringSet<> entries = manifest.getEntrySymbols();
  auto internal =
      LLVM::LinkageAttr::get(&getContext(), LLVM::Linkage::Internal);
  for (auto function :
       llvm::make_early_inc_range(module.getOps<func::FuncOp>())) {
    if (function->hasAttr("moe.abi")) {
      function.erase();
      continue;
    }
    for (NamedAttribute note : llvm::to_vector(function->getDiscardableAttrs()))
      if (note.getName().strref().starts_with("moe."))
        function->removeDiscardableAttr(note.getName());
    for (unsigned i = 0; i < function.getNumArguments(); ++i)
      function.removeArgAttr(i, "moe.name");
    if (entries.contains(function.getName())) {
      function.setPublic();
    } else if (!function.isDeclaration()) {
      function.setPrivate();
      function->setAttr("llvm.linkage", internal);
    }
  }
  module->setAttr(kManifestAttrName,
                  StringAttr::get(&getContext(), manifest.serialize()));
}
