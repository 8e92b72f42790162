// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Autodiff/GradientProgram.h"

#include "moira/Autodiff/Passes.h"
#include "moira/Pipelines/Pipelines.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Builders.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <sstream>

using namespace moira;
using namespace moira::autodiff;
using conformance::Output;

//===----------------------------------------------------------------------===//
// The joint program
//===----------------------------------------------------------------------===//

namespace {
struct Joint {
  std::string error, text;
  /// `@main` as it was, with arguments for parameters.
  std::string forward;
  unsigned numResults = 0;
  std::vector<unsigned> argumentOf;
};
} // namespace

static bool isFloat(mlir::Type type) {
  return mlir::isa<mlir::FloatType>(mlir::getElementTypeOrSelf(type));
}

/// Which argument of `main` each gradient belongs to.
static std::vector<unsigned> findArguments(mlir::func::FuncOp main,
                                           mlir::func::FuncOp backward) {
  std::vector<unsigned> inputs, parameters, found;
  for (unsigned i = 0; i < main.getNumArguments(); ++i)
    if (!main.getArgAttr(i, mlir::moe::kParamAttrName))
      inputs.push_back(i);
    else if (isFloat(main.getArgumentTypes()[i]))
      parameters.push_back(i);
  size_t next = 0;
  for (unsigned i = 0; i < backward.getNumResults(); ++i)
    if (auto input = backward.getResultAttrOfType<mlir::IntegerAttr>(
            i, mlir::moe::kGradientOfAttrName))
      found.push_back(inputs[input.getInt()]);
    else
      found.push_back(parameters[next++]);
  return found;
}

/// Makes @main of both functions.
static void join(mlir::ModuleOp module, Joint &joint) {
  auto main = module.lookupSymbol<mlir::func::FuncOp>("main");
  auto backward = module.lookupSymbol<mlir::func::FuncOp>("main_backward");
  auto kept =
      main->getAttrOfType<mlir::IntegerAttr>(mlir::moe::kResidualsAttrName)
          .getInt();
  joint.numResults = main.getNumResults() - kept;
  joint.argumentOf = findArguments(main, backward);
  main.setName("forward");
  main->removeAttr(mlir::moe::kBackwardAttrName);
  main->removeAttr(mlir::moe::kResidualsAttrName);
  std::vector<unsigned> parameters;
  for (unsigned i = 0; i < main.getNumArguments(); ++i)
    if (main.removeArgAttr(i, mlir::moe::kParamAttrName))
      parameters.push_back(i);
  for (mlir::func::FuncOp function : {main, backward})
    function.setPrivate();
  for (unsigned i = 0; i < backward.getNumArguments(); ++i)
    backward.removeArgAttr(i, mlir::moe::kParamAttrName);

  mlir::OpBuilder builder = mlir::OpBuilder::atBlockEnd(module.getBody());
  mlir::Location loc = module.getLoc();
  llvm::SmallVector<mlir::Type> types(main.getArgumentTypes());
  llvm::append_range(
      types, backward.getArgumentTypes().drop_front(kept + parameters.size()));
  auto function = mlir::func::FuncOp::create(
      builder, loc, "main", builder.getFunctionType(types, {}));
  mlir::Block *block = function.addEntryBlock();
  builder.setInsertionPointToEnd(block);
  auto arguments = mlir::ValueRange(block->getArguments());
  auto results =
      mlir::func::CallOp::create(builder, loc, main,
                                 arguments.take_front(main.getNumArguments()))
          .getResults();
  llvm::SmallVector<mlir::Value> inputs(results.take_back(kept)),
      all(results.drop_back(kept));
  for (unsigned i : parameters)
    inputs.push_back(block->getArgument(i));
  llvm::append_range(inputs, arguments.drop_front(main.getNumArguments()));
  auto gradients = mlir::func::CallOp::create(builder, loc, backward, inputs);
  llvm::append_range(all, gradients.getResults());
  mlir::func::ReturnOp::create(builder, loc, all);
  function.setType(
      builder.getFunctionType(types, mlir::ValueRange(all).getTypes()));
}

/// Replaces math.clampf, which no phase lowers.
static void expandClamps(mlir::ModuleOp module) {
  module.walk([](mlir::math::ClampFOp clamp) {
    mlir::OpBuilder builder(clamp);
    mlir::Location loc = clamp.getLoc();
    mlir::Value above = mlir::arith::MaximumFOp::create(
        builder, loc, clamp.getValue(), clamp.getMin());
    clamp.replaceAllUsesWith(
        mlir::arith::MinimumFOp::create(builder, loc, above, clamp.getMax())
            .getResult());
    clamp->erase();
  });
}

static Joint makeJoint(const std::string &text, bool recompute) {
  Joint joint;
  mlir::DialectRegistry registry;
  registerDialects(registry);
  mlir::MLIRContext context(registry, mlir::MLIRContext::Threading::DISABLED);
  context.getDiagEngine().registerHandler([&](mlir::Diagnostic &diagnostic) {
    if (diagnostic.getSeverity() == mlir::DiagnosticSeverity::Error &&
        joint.error.empty())
      joint.error = diagnostic.str();
    return mlir::success();
  });
  auto module = mlir::parseSourceString<mlir::ModuleOp>(text, &context);
  if (!module)
    return joint;
  {
    mlir::OwningOpRef<mlir::ModuleOp> plain(module->clone());
    auto main = plain->lookupSymbol<mlir::func::FuncOp>("main");
    for (unsigned i = 0; i < main.getNumArguments(); ++i)
      main.removeArgAttr(i, mlir::moe::kParamAttrName);
    expandClamps(*plain);
    llvm::raw_string_ostream(joint.forward) << *plain;
  }
  mlir::PassManager manager(&context);
  mlir::moe::DifferentiatePassOptions options;
  options.entry = "main";
  options.recompute = recompute;
  manager.addPass(mlir::moe::createDifferentiatePass(options));
  if (failed(manager.run(*module))) {
    if (joint.error.empty())
      joint.error = "failed without an error";
    return joint;
  }
  join(*module, joint);
  expandClamps(*module);
  llvm::raw_string_ostream(joint.text) << *module;
  return joint;
}

std::string moira::autodiff::getDifferentiationError(const std::string &text) {
  return makeJoint(text, /*recompute=*/false).error;
}

GradientProgram::GradientProgram(const std::string &text,
                                 const GradientOptions &options) {
  Joint joint = makeJoint(text, options.recompute);
  if (!joint.error.empty()) {
    ADD_FAILURE() << "expected a program with gradients, got " << joint.error;
    return;
  }
  conformance::CompileOptions compile;
  compile.oracle = options.oracle;
  compile.optLevel = options.optLevel;
  compile.hiddenBlocks = options.hiddenBlocks;
  auto program = conformance::compileText(joint.text, compile);
  if (!program)
    return;
  runner = std::make_unique<conformance::Runner>(program, options.threads);
  forward = joint.forward;
  numResults = joint.numResults;
  hiddenBlocks = options.hiddenBlocks;
  argumentOf = joint.argumentOf;
}

Outputs
GradientProgram::runPlain(const std::vector<Argument> &arguments) const {
  conformance::CompileOptions compile;
  compile.oracle = true;
  compile.hiddenBlocks = hiddenBlocks;
  auto program = conformance::compileText(forward, compile);
  return program ? conformance::Runner(program).run(arguments) : Outputs();
}

std::vector<Argument>
GradientProgram::makeSeeds(const std::vector<Argument> &arguments,
                           unsigned seed) const {
  return autodiff::makeSeeds(runPlain(arguments), seed);
}

GradientRun GradientProgram::run(const std::vector<Argument> &arguments,
                                 const std::vector<Argument> &seeds) {
  std::vector<Argument> all = arguments;
  all.insert(all.end(), seeds.begin(), seeds.end());
  GradientRun both;
  Outputs outputs = runner ? runner->run(all) : Outputs();
  if (outputs.size() < numResults)
    return both;
  both.results.assign(outputs.begin(), outputs.begin() + numResults);
  both.gradients.assign(outputs.begin() + numResults, outputs.end());
  return both;
}

//===----------------------------------------------------------------------===//
// Differences
//===----------------------------------------------------------------------===//

/// A number in (-1, 1), never close to 0.
static double drawSeed(std::mt19937 &random) {
  double size = 0.1 + 0.9 * (random() / 4294967296.0);
  return random() % 2 ? size : -size;
}

std::vector<Argument> moira::autodiff::makeSeeds(const Outputs &results,
                                                 unsigned seed) {
  std::mt19937 random(seed);
  std::vector<Argument> seeds;
  for (const Output &result : results) {
    if (!runtime::isFloat(result.dtype))
      continue;
    Argument argument;
    argument.name = "seed";
    argument.elementType = runtime::name(result.dtype);
    argument.shape = result.shape;
    size_t count = result.bytes.size() / runtime::byteSize(result.dtype);
    for (size_t i = 0; i < count; ++i)
      argument.values.push_back(std::round(drawSeed(random) * 128) / 128);
    seeds.push_back(std::move(argument));
  }
  return seeds;
}

Argument moira::autodiff::randomArgument(const std::string &name,
                                         std::vector<int64_t> shape,
                                         unsigned seed, double low,
                                         double high) {
  std::mt19937 random(seed);
  Argument argument{name, "f64", std::move(shape), {}};
  int64_t count = 1;
  for (int64_t size : argument.shape)
    count *= size;
  for (int64_t i = 0; i < count; ++i)
    argument.values.push_back(low +
                              (high - low) * (random() + 0.5) / 4294967296.0);
  return argument;
}

/// Sum of seeds times the change of the float results; nothing where integers
/// changed, or values that are not finite came up.
static std::optional<double> measureChange(const Outputs &plus,
                                           const Outputs &minus,
                                           const Outputs &base,
                                           const std::vector<Argument> &seeds) {
  double sum = 0;
  size_t next = 0;
  for (size_t i = 0; i < base.size(); ++i) {
    if (!runtime::isFloat(base[i].dtype)) {
      if (!(plus[i] == base[i]) || !(minus[i] == base[i]))
        return std::nullopt;
      continue;
    }
    std::vector<double> more = plus[i].values(), less = minus[i].values();
    const std::vector<double> &weights = seeds[next++].values;
    for (size_t e = 0; e < more.size(); ++e)
      if (more[e] != less[e])
        sum += weights[e] * (more[e] - less[e]);
  }
  if (!std::isfinite(sum))
    return std::nullopt;
  return sum;
}

std::string moira::autodiff::checkGradients(
    const std::string &text, const std::vector<Argument> &arguments,
    const CheckOptions &options, CheckCounts *counts) {
  GradientProgram program(text, options.program);
  if (!program.isValid())
    return "no program";
  std::vector<Argument> seeds = program.makeSeeds(arguments, options.seed);
  GradientRun base = program.run(arguments, seeds);
  std::mt19937 random(options.seed);
  for (size_t i = 0; i < base.gradients.size(); ++i) {
    unsigned number = program.getArgument(i);
    const Argument &argument = arguments[number];
    std::vector<double> gradient = base.gradients[i].values();
    if (base.gradients[i].shape != argument.shape)
      return "gradient of " + argument.name + " has another shape";
    std::vector<size_t> elements(gradient.size());
    for (size_t e = 0; e < elements.size(); ++e)
      elements[e] = e;
    std::shuffle(elements.begin(), elements.end(), random);
    elements.resize(std::min<size_t>(elements.size(), options.maxElements));
    for (size_t e : elements) {
      double at = argument.values[e];
      if (!std::isfinite(at))
        continue;
      auto differ = [&](double step) -> std::optional<double> {
        step *= std::max(1.0, std::fabs(at));
        std::vector<Argument> moved = arguments;
        moved[number].values[e] = at + step;
        Outputs plus = program.run(moved, seeds).results;
        double up = moved[number].values[e];
        moved[number].values[e] = at - step;
        Outputs minus = program.run(moved, seeds).results;
        std::optional<double> change =
            measureChange(plus, minus, base.results, seeds);
        if (change)
          *change /= up - moved[number].values[e];
        return change;
      };
      auto agrees = [&](double expected) {
        return std::fabs(expected - gradient[e]) <=
               options.tolerance * (1 + std::fabs(expected));
      };
      std::optional<double> expected = differ(options.step);
      if (counts)
        ++(expected ? counts->compared : counts->skipped);
      if (!expected || agrees(*expected))
        continue;
      // A kink, such as that of relu, may lie within the step. What is wrong is
      // wrong for smaller ones too.
      bool isKink = false;
      for (double part : {32, 128, 512}) {
        std::optional<double> nearer = differ(options.step / part);
        isKink |= nearer && agrees(*nearer);
      }
      if (isKink)
        continue;
      std::ostringstream message;
      message.precision(12);
      message << "d " << argument.name << "[" << e << "] at " << at
              << ": expected " << *expected << ", got " << gradient[e];
      return message.str();
    }
  }
  return "";
}
