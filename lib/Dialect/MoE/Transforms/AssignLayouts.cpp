// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "AssignLayoutsGradients.h"
#include "AssignLayoutsPack.h"
#include "AssignLayoutsTrace.h"

#include "moira/Dialect/MoE/Transforms/Passes.h"

#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Remarks.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "llvm/Support/MathExtras.h"

namespace mlir::moe {
#define GEN_PASS_DEF_ASSIGNLAYOUTSPASS
#include "moira/Dialect/MoE/Transforms/Passes.h.inc"
} // namespace mlir::moe

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

namespace {

/// The packed form of a parameter that kernels read.
struct PackedArgument {
  BlockArgument original;
  Packing packing;
  /// What puts the shards of this rank's experts together; null where nothing
  /// does.
  GatherWeightsOp gather;
  SmallVector<OpOperand *> uses;
};

/// How a parameter is packed in the function that the one at hand is the way
/// back of.
struct KnownPacking : PackedParameter {
  bool isGathered = false;
};

void addUse(SmallVectorImpl<PackedArgument> &arguments, const ParameterUse &use,
            OpOperand &operand) {
  for (PackedArgument &known : arguments)
    if (known.original == use.argument && known.packing == use.packing &&
        known.gather == use.gather) {
      known.uses.push_back(&operand);
      return;
    }
  arguments.push_back({use.argument, use.packing, use.gather, {&operand}});
}

/// Whether `vector` is, or puts together, shards of several parts.
bool hasParts(func::FuncOp function, Value vector) {
  if (auto gather = vector.getDefiningOp<GatherWeightsOp>())
    vector = gather.getWeights();
  auto argument = dyn_cast<BlockArgument>(vector);
  if (!argument || argument.getOwner() != &function.getBody().front())
    return false;
  auto shard = function.getArgAttrOfType<ShardAttr>(argument.getArgNumber(),
                                                    kShardAttrName);
  return shard && shard.getParts() > 1;
}

struct AssignLayouts : public moe::impl::AssignLayoutsPassBase<AssignLayouts> {
  using AssignLayoutsPassBase::AssignLayoutsPassBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    PackFunctions functions(module);
    SymbolTable symbols(module);
    // A function goes before its way back, which reads the same memory.
    SmallVector<func::FuncOp> all(module.getOps<func::FuncOp>());
    llvm::DenseMap<Operation *, func::FuncOp> forwardOf;
    for (func::FuncOp function : all)
      if (auto name =
              function->getAttrOfType<FlatSymbolRefAttr>(kBackwardAttrName))
        if (Operation *back = symbols.lookup(name.getAttr()))
          forwardOf[back] = function;
    std::partition(all.begin(), all.end(), [&](func::FuncOp function) {
      return !forwardOf.contains(function);
    });
    llvm::DenseMap<Operation *, SmallVector<KnownPacking>> packings;
    for (func::FuncOp function : all) {
      if (function.isExternal())
        continue;
      known.clear();
      if (func::FuncOp forward = forwardOf.lookup(function))
        known = packings.lookup(forward);
      packings[function] = assign(function, functions);
    }
  }

private:
  /// Returns how parameters of the function are packed.
  SmallVector<KnownPacking> assign(func::FuncOp function,
                                   PackFunctions &functions);
  /// The packing that the forward function has of what `use` is, read as `nk`;
  /// null where there is none.
  const Packing *findKnown(func::FuncOp function, const ParameterUse &use,
                           bool pairs);
  /// The form of panels that the forward function has of all weights of `op`.
  std::optional<PanelForm> findKnownForm(func::FuncOp function,
                                         GroupedMatmulOp op);
  /// The form of the op's weights as forward panels.
  PanelForm getForm(GroupedMatmulOp op);
  /// Whether the target has a dot product for the op's rows and weights.
  bool hasPairs(GroupedMatmulOp op) {
    auto isBF16 = [](Value value) {
      return getElementTypeOrSelf(value.getType()).isBF16();
    };
    return pairs && isBF16(op.getRows().front()) &&
           isBF16(op.getWeights().front());
  }
  void packInStep(GroupedMatmulOp op, OpOperand &weight, const PanelForm &form);
  bool shareTransposed(func::FuncOp function, GroupedMatmulOp op,
                       SmallVectorImpl<PackedArgument> &arguments);
  /// Makes a bias or vector consecutive, at loading where it is a parameter.
  void assignVector(func::FuncOp function, OpOperand &vector, bool fixed,
                    SmallVectorImpl<PackedArgument> &arguments);
  void packParameters(func::FuncOp function, PackFunctions &functions,
                      ArrayRef<PackedArgument> arguments);
  void packPlain(func::FuncOp function, PackFunctions &functions);
  void report(GroupedMatmulOp op, StringRef reason) {
    remark::missed(op.getLoc(),
                   remark::RemarkOpts::name("AssignLayouts")
                       .category(getArgument())
                       .function(op->getParentOfType<func::FuncOp>().getName()))
        << remark::add("'{0}': {1}", op->getName().getStringRef().str(),
                       reason.str());
  }

  /// Of the function whose way back is at hand.
  SmallVector<KnownPacking> known;
};

/// Whether something in the module names `function` by its symbol, so that its
/// type cannot change. That it is a way back says nothing of its type.
bool isNamed(func::FuncOp function) {
  auto module = function->getParentOfType<ModuleOp>();
  std::optional<SymbolTable::UseRange> uses =
      SymbolTable::getSymbolUses(function, module);
  return !uses || llvm::any_of(*uses, [&](SymbolTable::SymbolUse use) {
    return !isa<func::FuncOp>(use.getUser()) ||
           use.getUser()->getAttr(kBackwardAttrName) != use.getSymbolRef();
  });
}

/// Whether `packing` is one in panels of what `use`, read as `nk`, is.
bool isSharedBy(const Packing &packing, const ParameterUse &use, bool pairs) {
  return packing.form.width != 0 && packing.layout == WeightLayout::NK &&
         packing.first == use.packing.first &&
         packing.second == use.packing.second && packing.form.pairs == pairs &&
         packing.form.blocksOfN == use.packing.form.blocksOfN &&
         packing.form.blocksOfK == use.packing.form.blocksOfK;
}

PanelForm AssignLayouts::getForm(GroupedMatmulOp op) {
  bool isWide = op.getAccumulatorType().isF64();
  int64_t least = isWide ? lanes / 2 : lanes;
  int64_t width = panelWidth / op.getNumAccumulators() / (isWide ? 2 : 1);
  // A panel wider than the matrix would hold zeros only.
  PanelForm form;
  form.blocksOfN = op.getBlocks(HiddenDim::N);
  form.blocksOfK = op.getBlocks(HiddenDim::K);
  auto needed = static_cast<int64_t>(
      llvm::PowerOf2Ceil(static_cast<uint64_t>(op.getN() / form.blocksOfN)));
  form.width = std::max(least, std::min(width, needed));
  form.pairs = hasPairs(op);
  return form;
}

SmallVector<KnownPacking> AssignLayouts::assign(func::FuncOp function,
                                                PackFunctions &functions) {
  bool fixed = isNamed(function);
  SmallVector<PackedArgument> arguments;
  // Gradients read the panels of the forward products, which come first.
  SmallVector<GroupedMatmulOp> kernels, gradients;
  function.walk([&](GroupedMatmulOp op) {
    if (panelWidth > 0 && !op.getContraction() && !op.hasPanels())
      (op.getLayout() == WeightLayout::NK ? kernels : gradients).push_back(op);
  });
  llvm::append_range(kernels, gradients);
  function.walk([&](GroupedMatmulOp op) {
    for (OpOperand &bias : op.getBiasMutable())
      assignVector(function, bias, fixed, arguments);
    for (OpOperand &vector : op.getVectorsMutable())
      assignVector(function, vector, fixed, arguments);
  });
  for (GroupedMatmulOp op : kernels) {
    if (!cast<ShapedType>(op.getWeights().front().getType()).hasStaticShape() ||
        op.getResultType().isDynamicDim(op.getResultType().getRank() - 1)) {
      report(op, "weights of dynamic shape stay as they are");
      continue;
    }
    if (!fixed && shareTransposed(function, op, arguments))
      continue;
    PanelForm form = getForm(op);
    if (!fixed)
      if (std::optional<PanelForm> shared = findKnownForm(function, op))
        form = *shared;
    bool allParameters = true;
    for (OpOperand &weight : op.getWeightsMutable()) {
      std::optional<ParameterUse> use;
      if (!fixed)
        use = traceParameter(function, weight.get());
      if (!use || !use->setForm(op.getLayout(), form)) {
        packInStep(op, weight, form);
        allParameters = false;
        continue;
      }
      addUse(arguments, *use, weight);
    }
    if (!allParameters)
      report(op, "weights that are no parameters are packed in every step");
    op.setLayout(WeightLayout::Panels);
  }
  SmallVector<KnownPacking> packings;
  for (const PackedArgument &packed : arguments) {
    unsigned i = packed.original.getArgNumber();
    KnownPacking packing;
    packing.param = function.getArgAttrOfType<ParamAttr>(i, kParamAttrName);
    packing.shard = function.getArgAttr(i, kShardAttrName);
    packing.logical = cast<RankedTensorType>(packed.original.getType());
    packing.packing = packed.packing;
    packing.isGathered = packed.gather != nullptr;
    packings.push_back(packing);
  }
  packParameters(function, functions, arguments);
  packPlain(function, functions);
  if (packGradients && !fixed)
    numGradients += moe::detail::packGradients(
        function,
        SmallVector<PackedParameter>(packings.begin(), packings.end()));
  // Of packed gradients only the panels are read.
  for (Operation &op :
       llvm::make_early_inc_range(llvm::reverse(function.getBody().front())))
    if (isOpTriviallyDead(&op))
      op.erase();
  orderGathers(function);
  orderReductions(function);
  return packings;
}

const Packing *AssignLayouts::findKnown(func::FuncOp function,
                                        const ParameterUse &use, bool pairs) {
  unsigned i = use.argument.getArgNumber();
  auto param = function.getArgAttrOfType<ParamAttr>(i, kParamAttrName);
  Attribute shard = function.getArgAttr(i, kShardAttrName);
  for (const KnownPacking &other : known)
    if (other.param == param && other.shard == shard &&
        other.logical == use.argument.getType() &&
        other.isGathered == (use.gather != nullptr) &&
        isSharedBy(other.packing, use, pairs))
      return &other.packing;
  return nullptr;
}

std::optional<PanelForm> AssignLayouts::findKnownForm(func::FuncOp function,
                                                      GroupedMatmulOp op) {
  if (op.getLayout() != WeightLayout::NK)
    return std::nullopt;
  std::optional<PanelForm> found;
  for (Value weight : op.getWeights()) {
    std::optional<ParameterUse> use = traceParameter(function, weight);
    PanelForm form;
    form.blocksOfN = op.getBlocks(HiddenDim::N);
    form.blocksOfK = op.getBlocks(HiddenDim::K);
    if (!use || !use->setForm(WeightLayout::NK, form))
      return std::nullopt;
    const Packing *packing = findKnown(function, *use, hasPairs(op));
    if (!packing || (found && found->width != packing->form.width))
      return std::nullopt;
    form.width = packing->form.width;
    form.pairs = packing->form.pairs;
    found = form;
  }
  return found;
}

/// Weights `kn` of which forward products have the panels of `nk` read those.
bool AssignLayouts::shareTransposed(
    func::FuncOp function, GroupedMatmulOp op,
    SmallVectorImpl<PackedArgument> &arguments) {
  if (op.getLayout() != WeightLayout::KN || op.getNumAccumulators() != 1 ||
      ShapedType::isDynamic(op.getN()))
    return false;
  SmallVector<ParameterUse> shared;
  for (Value weight : op.getWeights()) {
    std::optional<ParameterUse> use = traceParameter(function, weight);
    PanelForm form;
    form.blocksOfN = op.getBlocks(HiddenDim::K);
    form.blocksOfK = op.getBlocks(HiddenDim::N);
    if (!use || !use->setForm(WeightLayout::NK, form))
      return false;
    const Packing *found = nullptr;
    for (PackedArgument &packed : arguments)
      if (packed.original == use->argument && packed.gather == use->gather &&
          isSharedBy(packed.packing, *use, hasPairs(op)))
        found = &packed.packing;
    if (!found)
      found = findKnown(function, *use, hasPairs(op));
    // All are of one type.
    if (!found ||
        (!shared.empty() && !(found->form == shared.front().packing.form)))
      return false;
    use->packing = *found;
    shared.push_back(*use);
  }
  for (auto [use, weight] : llvm::zip(shared, op.getWeightsMutable()))
    addUse(arguments, use, weight);
  op.setLayout(WeightLayout::TransposedPanels);
  return true;
}

void AssignLayouts::assignVector(func::FuncOp function, OpOperand &vector,
                                 bool fixed,
                                 SmallVectorImpl<PackedArgument> &arguments) {
  auto slice = vector.get().getDefiningOp<tensor::ExtractSliceOp>();
  if (!slice)
    return;
  bool isStrided = slice.getStaticStrides().back() != 1;
  // Parts of shards are put together one by one, and are packed alike whether
  // they are or not.
  if (!isStrided && !hasParts(function, slice.getSource()))
    return;
  std::optional<ParameterUse> use;
  if (!fixed)
    use = traceVector(function, slice);
  if (use)
    return addUse(arguments, *use, vector);
  if (!isStrided)
    return;
  OpBuilder builder(vector.getOwner());
  vector.set(bufferization::AllocTensorOp::create(
      builder, slice.getLoc(), slice.getType(), /*dynamicSizes=*/ValueRange(),
      /*copy=*/slice.getResult(), /*memory_space=*/IntegerAttr()));
}

void AssignLayouts::packInStep(GroupedMatmulOp op, OpOperand &weight,
                               const PanelForm &form) {
  OpBuilder builder(op);
  bool nk = op.getLayout() == WeightLayout::NK;
  auto type = cast<RankedTensorType>(weight.get().getType());
  int64_t n = type.getDimSize(nk ? 1 : 2), k = type.getDimSize(nk ? 2 : 1);
  auto packed = RankedTensorType::get(form.shape(type.getDimSize(0), n, k),
                                      type.getElementType());
  weight.set(PackOp::create(builder, op.getLoc(), TypeRange(packed),
                            weight.get(), /*outs=*/ValueRange(), op.getLayout(),
                            getHidden(&getContext(), form))
                 .getResult(0));
  ++numStepPacks;
}

void AssignLayouts::packParameters(func::FuncOp function,
                                   PackFunctions &functions,
                                   ArrayRef<PackedArgument> arguments) {
  Block &entry = function.getBody().front();
  for (const PackedArgument &packed : arguments) {
    unsigned original = packed.original.getArgNumber();
    auto param = function.getArgAttrOfType<ParamAttr>(original, kParamAttrName);
    Attribute shard = function.getArgAttr(original, kShardAttrName);
    ParameterShape shape(
        param, cast<RankedTensorType>(packed.original.getType()), shard);
    Builder builder(&getContext());
    NamedAttrList attributes;
    attributes.set(kPackingAttrName,
                   functions.getPacking(packed.original.getLoc(), param, shape,
                                        packed.packing));
    attributes.set(kParamAttrName, param);
    if (shard)
      attributes.set(kShardAttrName, shard);
    // Before the original, so that several copies stand in the order of use.
    if (failed(function.insertArgument(
            original, getPackedType(shape, packed.packing),
            attributes.getDictionary(&getContext()), packed.original.getLoc())))
      return signalPassFailure();
    Value value = entry.getArgument(original);
    if (packed.gather)
      value = gatherPacked(packed.gather, value);
    for (OpOperand *use : packed.uses)
      use->set(value);
    ++numParameters;
  }
  // Slices and reshapes of the originals are dead now, and so are originals
  // that nothing else reads.
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(entry)))
    if (isOpTriviallyDead(&op))
      op.erase();
  llvm::BitVector dead(function.getNumArguments());
  for (const PackedArgument &packed : arguments)
    if (packed.original.use_empty())
      dead.set(packed.original.getArgNumber());
  if (failed(function.eraseArguments(dead)))
    signalPassFailure();
}

/// Parameters that stay row-major but differ from what the checkpoint holds.
void AssignLayouts::packPlain(func::FuncOp function, PackFunctions &functions) {
  for (BlockArgument argument : function.getArguments()) {
    unsigned i = argument.getArgNumber();
    auto param = function.getArgAttrOfType<ParamAttr>(i, kParamAttrName);
    if (!param || function.getArgAttr(i, kPackingAttrName) ||
        (!param.getTranspose() && param.getParts() == 1))
      continue;
    ParameterShape shape(param, cast<RankedTensorType>(argument.getType()),
                         function.getArgAttr(i, kShardAttrName));
    Packing packing;
    packing.first.size = shape.slice[0];
    packing.second.size = shape.slice[1];
    function.setArgAttr(
        i, kPackingAttrName,
        functions.getPacking(argument.getLoc(), param, shape, packing));
  }
}

} // namespace
