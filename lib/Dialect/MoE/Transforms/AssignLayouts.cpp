// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

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
    for (func::FuncOp function : llvm::to_vector(module.getOps<func::FuncOp>()))
      if (!function.isExternal())
        assign(function, functions);
  }

private:
  void assign(func::FuncOp function, PackFunctions &functions);
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
                       MutableArrayRef<PackedArgument> arguments);
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
};

/// Whether something in the module names `function` by its symbol, so that its
/// type cannot change.
bool isNamed(func::FuncOp function) {
  auto module = function->getParentOfType<ModuleOp>();
  std::optional<SymbolTable::UseRange> uses =
      SymbolTable::getSymbolUses(function, module);
  return !uses || !uses->empty();
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

void AssignLayouts::assign(func::FuncOp function, PackFunctions &functions) {
  bool fixed = isNamed(function);
  SmallVector<PackedArgument> arguments;
  // Gradients read the panels of the forward products, which come first.
  SmallVector<GroupedMatmulOp> kernels, gradients;
  function.walk([&](GroupedMatmulOp op) {
    if (!op.getContraction() && !op.hasPanels())
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
  packParameters(function, functions, arguments);
  packPlain(function, functions);
  orderGathers(function);
}

/// A weight `kn` of which a forward product has the panels of `nk` reads those.
bool AssignLayouts::shareTransposed(func::FuncOp function, GroupedMatmulOp op,
                                    MutableArrayRef<PackedArgument> arguments) {
  if (op.getLayout() != WeightLayout::KN || op.getWeights().size() != 1 ||
      ShapedType::isDynamic(op.getN()))
    return false;
  OpOperand &weight = op.getWeightsMutable()[0];
  std::optional<ParameterUse> use = traceParameter(function, weight.get());
  if (!use)
    return false;
  PanelForm form;
  form.blocksOfN = op.getBlocks(HiddenDim::K);
  form.blocksOfK = op.getBlocks(HiddenDim::N);
  if (!use->setForm(WeightLayout::NK, form))
    return false;
  for (PackedArgument &packed : arguments) {
    const Packing &packing = packed.packing;
    if (packed.original != use->argument || packing.form.width == 0 ||
        packed.gather != use->gather || packing.layout != WeightLayout::NK ||
        !(packing.first == use->packing.first) ||
        !(packing.second == use->packing.second) ||
        packing.form.pairs != hasPairs(op) ||
        packing.form.blocksOfN != use->packing.form.blocksOfN ||
        packing.form.blocksOfK != use->packing.form.blocksOfK)
      continue;
    packed.uses.push_back(&weight);
    op.setLayout(WeightLayout::TransposedPanels);
    return true;
  }
  return false;
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
