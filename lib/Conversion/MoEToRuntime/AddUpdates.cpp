// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "moira/Conversion/Passes.h"
#include "moira/Dialect/MoE/IR/MoEDialect.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace mlir::moe {
#define GEN_PASS_DEF_ADDUPDATESPASS
#include "moira/Conversion/Passes.h.inc"
} // namespace mlir::moe

using namespace mlir;
using namespace mlir::moe;

namespace {

/// Builds the arithmetic of one element. Every operation rounds on its own, as
/// the published formulas do.
class RuleBuilder {
public:
  RuleBuilder(ImplicitLocOpBuilder &b, const llvm::StringMap<Value> &numbers)
      : b(b), numbers(numbers) {}

  Value number(StringRef name) { return numbers.lookup(name); }
  Value add(Value x, Value y) { return arith::AddFOp::create(b, x, y); }
  Value sub(Value x, Value y) { return arith::SubFOp::create(b, x, y); }
  Value mul(Value x, Value y) { return arith::MulFOp::create(b, x, y); }
  Value div(Value x, Value y) { return arith::DivFOp::create(b, x, y); }
  Value sqrt(Value x) { return math::SqrtOp::create(b, x); }

private:
  ImplicitLocOpBuilder &b;
  const llvm::StringMap<Value> &numbers;
};

/// What a rule keeps per element, which numbers it takes, and its formula: from
/// {parameter, gradient, states...} to the new {parameter, states...}.
struct Rule {
  StringRef name;
  SmallVector<StringRef> states, numbers;
  SmallVector<Value> (*build)(RuleBuilder &, ValueRange);
};

} // namespace

/// Momentum m, direction a g + b m: (0, 1), or (1, momentum) after Nesterov.
static SmallVector<Value> buildSgd(RuleBuilder &r, ValueRange values) {
  Value p = values[0];
  Value g = r.add(r.mul(values[1], r.number("gradient_scale")),
                  r.mul(p, r.number("weight_decay")));
  Value m = r.add(r.mul(values[2], r.number("momentum")), g);
  Value direction = r.add(r.mul(g, r.number("of_gradient")),
                          r.mul(m, r.number("of_momentum")));
  return {r.sub(p, r.mul(direction, r.number("learning_rate"))), m};
}

/// Adam; with `weight_decay` as a part of the gradient, or with `keep` = 1 -
/// learning_rate * decay as a factor of the parameter (AdamW).
static SmallVector<Value> buildAdam(RuleBuilder &r, ValueRange values) {
  Value p = r.mul(values[0], r.number("keep"));
  Value g = r.add(r.mul(values[1], r.number("gradient_scale")),
                  r.mul(p, r.number("weight_decay")));
  Value first =
      r.add(values[2], r.mul(r.sub(g, values[2]), r.number("one_minus_beta1")));
  Value second = r.add(r.mul(values[3], r.number("beta2")),
                       r.mul(r.mul(g, g), r.number("one_minus_beta2")));
  Value root = r.div(r.sqrt(second), r.number("root_correction"));
  Value step = r.div(r.mul(first, r.number("step_size")),
                     r.add(root, r.number("epsilon")));
  return {r.sub(p, step), first, second};
}

static FailureOr<Rule> findRule(ModuleOp module, StringRef name) {
  if (name == "sgd")
    return Rule{"sgd",
                {"momentum_buffer"},
                {"learning_rate", "momentum", "of_gradient", "of_momentum",
                 "weight_decay", "gradient_scale"},
                buildSgd};
  if (name == "adam" || name == "adamw")
    return Rule{name,
                {"exp_avg", "exp_avg_sq"},
                {"keep", "step_size", "one_minus_beta1", "beta2",
                 "one_minus_beta2", "root_correction", "epsilon",
                 "weight_decay", "gradient_scale"},
                buildAdam};
  return module.emitError("expected an update rule, sgd, adam or adamw, got '")
         << name << "'";
}

/// Adds `@moira_update_RULE_TYPE` for parameters of `element`.
static void addUpdate(ModuleOp module, const Rule &rule, FloatType element) {
  MLIRContext *context = module.getContext();
  ImplicitLocOpBuilder b(module.getLoc(), context);
  b.setInsertionPointToEnd(module.getBody());
  bool narrow = element.getWidth() < 32;
  Type wide = narrow ? b.getF32Type() : Type(element);
  // One row: the runtime says which elements a thread takes.
  auto type = RankedTensorType::get({1, ShapedType::kDynamic}, wide);
  SmallVector<Type> arguments(2 + rule.states.size(), type);
  SmallVector<StringRef> names{"parameter", "gradient"};
  llvm::append_range(names, rule.states);
  arguments.append(rule.numbers.size(), wide);
  llvm::append_range(names, rule.numbers);
  SmallVector<Type> results(1 + rule.states.size(), type);
  if (narrow)
    results.push_back(type.clone(element));

  std::string name;
  llvm::raw_string_ostream(name)
      << "moira_update_" << rule.name << "_" << element;
  auto function =
      func::FuncOp::create(b, name, b.getFunctionType(arguments, results));
  function.setPrivate();
  function->setAttr("moe.update", b.getStringAttr(rule.name));
  for (auto [i, argument] : llvm::enumerate(names))
    function.setArgAttr(i, "moe.name", b.getStringAttr(argument));
  b.setInsertionPointToStart(function.addEntryBlock());
  llvm::StringMap<Value> numbers;
  for (auto [i, number] : llvm::enumerate(rule.numbers))
    numbers[number] = function.getArgument(2 + rule.states.size() + i);
  ValueRange inputs =
      function.getArguments().take_front(2 + rule.states.size());
  Value size = tensor::DimOp::create(b, inputs[0], 1);
  SmallVector<Value> outs;
  for (Type result : results)
    outs.push_back(tensor::EmptyOp::create(
        b, cast<RankedTensorType>(result).getShape(),
        getElementTypeOrSelf(result), ValueRange(size)));
  SmallVector<AffineMap> maps(inputs.size() + outs.size(),
                              b.getMultiDimIdentityMap(2));
  SmallVector<utils::IteratorType> iterators(2, utils::IteratorType::parallel);
  auto update = linalg::GenericOp::create(
      b, results, inputs, outs, maps, iterators,
      [&](OpBuilder &nested, Location loc, ValueRange values) {
        ImplicitLocOpBuilder inner(loc, nested);
        RuleBuilder builder(inner, numbers);
        SmallVector<Value> made =
            rule.build(builder, values.take_front(2 + rule.states.size()));
        if (narrow)
          made.push_back(arith::TruncFOp::create(inner, element, made[0]));
        linalg::YieldOp::create(inner, made);
      });
  func::ReturnOp::create(b, update.getResults());
}

namespace {
struct AddUpdates : public moe::impl::AddUpdatesPassBase<AddUpdates> {
  using AddUpdatesPassBase::AddUpdatesPassBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    llvm::SetVector<FloatType> elements;
    for (auto function : module.getOps<func::FuncOp>())
      for (unsigned i = 0; i < function.getNumArguments(); ++i)
        if (function.getArgAttr(i, kParamAttrName))
          if (auto element = dyn_cast<FloatType>(
                  getElementTypeOrSelf(function.getArgumentTypes()[i])))
            elements.insert(element);
    for (const std::string &name : rules) {
      FailureOr<Rule> rule = findRule(module, name);
      if (failed(rule))
        return signalPassFailure();
      for (FloatType element : elements)
        addUpdate(module, *rule, element);
    }
  }
};
} // namespace
