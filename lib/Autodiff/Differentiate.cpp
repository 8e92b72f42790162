// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Costs.h"
#include "Experts.h"
#include "Reverse.h"
#include "Sizes.h"
#include "Split.h"

#include "moira/Autodiff/Passes.h"
#include "moira/Dialect/MoE/Utils/Entry.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/Transforms/Transforms.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Dominance.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/CSE.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"
#include "mlir/Transforms/Passes.h"
#include "llvm/ADT/ScopeExit.h"

namespace mlir::moe {
#define GEN_PASS_DEF_DIFFERENTIATEPASS
#include "moira/Autodiff/Passes.h.inc"
} // namespace mlir::moe

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

static bool isFloat(Type type) {
  return isa<FloatType>(getElementTypeOrSelf(type));
}

static void eliminateCommon(Operation *op) {
  IRRewriter rewriter(op->getContext());
  DominanceInfo dominance(op);
  eliminateCommonSubExpressions(rewriter, dominance, op);
}

namespace {

/// Splits `joint`, a copy of the entry whose block gets the ops of gradients,
/// in the two functions.
class Differentiation {
public:
  Differentiation(func::FuncOp entry, func::FuncOp joint,
                  const ReverseOptions &options)
      : entry(entry), joint(joint), block(joint.front()), options(options),
        reverse(block, options) {}

  LogicalResult run();
  /// Rewrites the entry; returns the values kept.
  unsigned buildForward();
  func::FuncOp buildBackward(StringRef name);

private:
  bool isParameter(unsigned argument) {
    return static_cast<bool>(entry.getArgAttr(argument, kParamAttrName));
  }
  Split::Choice choose(OpResult result) {
    Operation *op = result.getOwner();
    if (isDecision(op) || (isCostly(op) && !options.recompute))
      return Split::Choice::Keep;
    return Split::Choice::Compute;
  }

  func::FuncOp entry, joint;
  Block &block;
  ReverseOptions options;
  Reverse reverse;
  /// The gradients of results, arguments of `block`, and their results.
  SmallVector<std::pair<BlockArgument, unsigned>> seeds;
  /// Arguments and their gradients: inputs, then parameters.
  SmallVector<std::pair<unsigned, Value>> outputs;
  std::unique_ptr<Split> split;
  SmallVector<Value> kept;
};

struct Differentiate : public moe::impl::DifferentiatePassBase<Differentiate> {
  using DifferentiatePassBase::DifferentiatePassBase;

  void runOnOperation() override {
    FailureOr<func::FuncOp> function = findEntry(getOperation(), entry);
    if (failed(function) || failed(check(*function)) ||
        failed(differentiate(*function)))
      signalPassFailure();
  }

private:
  LogicalResult check(func::FuncOp function);
  LogicalResult differentiate(func::FuncOp function);
};

} // namespace

LogicalResult Differentiation::run() {
  unsigned numArguments = block.getNumArguments();
  for (BlockArgument argument : block.getArguments())
    if (isFloat(argument.getType()))
      reverse.want(argument);
  reverse.analyse();
  for (auto [i, value] :
       llvm::enumerate(block.getTerminator()->getOperands())) {
    if (!isFloat(value.getType()))
      continue;
    seeds.push_back({block.addArgument(value.getType(), value.getLoc()), i});
    reverse.add(value, seeds.back().first);
  }
  if (failed(reverse.run()))
    return failure();
  for (bool parameters : {false, true})
    for (unsigned i = 0; i < numArguments; ++i)
      if (isParameter(i) == parameters &&
          isFloat(block.getArgument(i).getType()))
        outputs.push_back({i, reverse.getOrZeros(block.getArgument(i))});
  split = std::make_unique<Split>(
      reverse, [this](OpResult result) { return choose(result); });
  for (unsigned i = 0; i < numArguments; ++i)
    if (isParameter(i))
      split->provide(block.getArgument(i));
  for (auto [seed, result] : seeds)
    split->provide(seed);
  for (auto [argument, gradient] : outputs)
    split->need(gradient);
  kept = split->getKept();
  return success();
}

unsigned Differentiation::buildForward() {
  SmallVector<Value> roots(block.getTerminator()->getOperands());
  llvm::append_range(roots, kept);
  auto *body = new Block();
  IRMapping mapping;
  for (BlockArgument argument : entry.getArguments())
    mapping.map(block.getArgument(argument.getArgNumber()),
                body->addArgument(argument.getType(), argument.getLoc()));
  Location end = block.getTerminator()->getLoc();
  entry.getBody().getBlocks().clear();
  entry.getBody().push_back(body);
  OpBuilder builder = OpBuilder::atBlockEnd(body);
  SmallVector<Value> results =
      cloneNeeded(builder, reverse, block, roots, mapping);
  func::ReturnOp::create(builder, end, results);
  entry.setType(builder.getFunctionType(entry.getArgumentTypes(),
                                        ValueRange(results).getTypes()));
  if (ArrayAttr attributes = entry.getResAttrsAttr()) {
    SmallVector<Attribute> list(attributes.getValue());
    list.resize(results.size(), builder.getDictionaryAttr({}));
    entry.setResAttrsAttr(builder.getArrayAttr(list));
  }
  for (ExpertOp expert : llvm::make_early_inc_range(body->getOps<ExpertOp>()))
    dropUnusedResults(expert);
  return kept.size();
}

func::FuncOp Differentiation::buildBackward(StringRef name) {
  OpBuilder builder(entry);
  builder.setInsertionPointAfter(entry);
  auto function = func::FuncOp::create(builder, entry.getLoc(), name,
                                       builder.getFunctionType({}, {}));
  function.setVisibility(entry.getVisibility());
  Block *body = function.addEntryBlock();
  IRMapping mapping;
  StringAttr nameAttr = builder.getStringAttr("moe.name");
  SmallVector<DictionaryAttr> argumentAttrs;
  auto addArgument = [&](Value value, DictionaryAttr attributes) {
    mapping.map(value, body->addArgument(value.getType(), value.getLoc()));
    argumentAttrs.push_back(attributes);
  };
  auto named = [&](const Twine &text) {
    return builder.getDictionaryAttr(
        builder.getNamedAttr(nameAttr, builder.getStringAttr(text)));
  };
  for (auto [i, value] : llvm::enumerate(kept))
    addArgument(value, named("residual" + Twine(i)));
  for (unsigned i = 0; i < entry.getNumArguments(); ++i)
    if (isParameter(i))
      addArgument(block.getArgument(i),
                  function_interface_impl::getArgAttrDict(entry, i));
  for (auto [seed, result] : seeds) {
    auto given = entry.getResultAttrOfType<StringAttr>(result, nameAttr);
    addArgument(seed, named(given ? "d_" + given.getValue()
                                  : "d_result" + Twine(result)));
  }

  builder.setInsertionPointToEnd(body);
  SmallVector<Value> results;
  SmallVector<DictionaryAttr> resultAttrs;
  unsigned numInputs = 0;
  DenseMap<unsigned, unsigned> inputNumbers;
  for (unsigned i = 0; i < entry.getNumArguments(); ++i)
    if (!isParameter(i))
      inputNumbers[i] = numInputs++;
  for (auto [argument, gradient] : outputs) {
    results.push_back(split->build(builder, gradient, mapping));
    NamedAttribute attribute =
        isParameter(argument)
            ? builder.getNamedAttr(
                  kGradientAttrName,
                  builder.getStringAttr(
                      entry
                          .getArgAttrOfType<ParamAttr>(argument, kParamAttrName)
                          .getName()))
            : builder.getNamedAttr(
                  kGradientOfAttrName,
                  builder.getI64IntegerAttr(inputNumbers[argument]));
    resultAttrs.push_back(builder.getDictionaryAttr(attribute));
  }
  func::ReturnOp::create(builder, entry.getLoc(), results);
  function.setType(builder.getFunctionType(body->getArgumentTypes(),
                                           ValueRange(results).getTypes()));
  function.setAllArgAttrs(argumentAttrs);
  function.setAllResultAttrs(resultAttrs);
  for (ExpertOp expert : llvm::make_early_inc_range(body->getOps<ExpertOp>()))
    dropUnusedResults(expert);
  return function;
}

LogicalResult Differentiate::check(func::FuncOp function) {
  if (function->hasAttr(kBackwardAttrName))
    return function.emitOpError("expected a function without 'moe.backward' "
                                "to differentiate");
  std::string name = (function.getName() + "_backward").str();
  if (Operation *other = getOperation().lookupSymbol(name))
    return other->emitOpError("expected no symbol '")
           << name << "': it is to be made";
  return success();
}

LogicalResult Differentiate::differentiate(func::FuncOp function) {
  // 1. One block.
  auto hasCalls = [&] {
    return function.walk([](func::CallOp) { return WalkResult::interrupt(); })
        .wasInterrupted();
  };
  if (hasCalls()) {
    OpPassManager inliner(ModuleOp::getOperationName());
    inliner.addPass(createInlinerPass());
    if (failed(runPipeline(inliner, getOperation())))
      return failure();
  }
  if (!function.getBody().hasOneBlock())
    return function.emitOpError("expected one block to differentiate, got ")
           << function.getBody().getBlocks().size();
  // 2. A copy in which the only elementwise ops on tensors are linalg's.
  OpBuilder builder(function);
  builder.setInsertionPointAfter(function);
  auto joint = cast<func::FuncOp>(builder.clone(*function));
  joint.setName((function.getName() + "_joint").str());
  // Goes last: gradients that are not built yet refer to its values.
  llvm::scope_exit erase([&] { joint.erase(); });
  RewritePatternSet patterns(&getContext());
  linalg::populateElementwiseToLinalgConversionPatterns(patterns);
  if (failed(applyPatternsGreedily(joint, std::move(patterns))))
    return joint.emitOpError("expected elementwise ops to become linalg");
  eliminateCommon(joint);
  resolveDims(joint.front());
  // 3. The gradients.
  Differentiation work(function, joint, {recompute});
  if (failed(work.run()))
    return failure();
  // 4. Two functions.
  std::string name = (function.getName() + "_backward").str();
  func::FuncOp backward = work.buildBackward(name);
  unsigned count = work.buildForward();
  numResiduals += count;
  function->setAttr(kBackwardAttrName,
                    FlatSymbolRefAttr::get(&getContext(), name));
  function->setAttr(kResidualsAttrName, builder.getI64IntegerAttr(count));
  eliminateCommon(function);
  eliminateCommon(backward);
  return success();
}
