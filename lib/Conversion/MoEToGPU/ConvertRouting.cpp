// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Launches.h"

#include "moira/Conversion/MoEToGPU/RoutingKernel.h"
#include "moira/Dialect/MoE/IR/MoEDialect.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

/// Blocks per multiprocessor: memory is the limit, and a warp waits for it.
static constexpr int64_t kBlocksPerUnit = 8;

namespace {
/// What the conversions of all ops need.
class Converter {
public:
  Converter(Operation *op, Launches &launches)
      : op(op), launches(launches), b(op), loc(op->getLoc()) {}

  LogicalResult convert();

private:
  LogicalResult convertGate(GateOp gate);
  LogicalResult describeGate(GateOp gate, GateKernel &kernel);
  void convertExpertGate(GateOp gate, GateKernel &kernel);
  LogicalResult convertNoise(NoiseOp noise);
  LogicalResult convertCount(CountOp count);
  LogicalResult convertAssign(AssignOp assign);
  void reportLoads(int64_t layer, Value counts, Value sizes);
  LogicalResult convertDispatch(DispatchOp dispatch);
  LogicalResult convertCombine(CombineOp combine);
  LogicalResult convertSources(SourcesOp sources);

  /// "expected ... on a GPU, got ...".
  InFlightDiagnostic refuse(const Twine &expected, const Twine &got) {
    return op->emitOpError("expected ") << expected << " on a GPU, got " << got;
  }
  LogicalResult checkElement(Type element);
  LogicalResult describeMovement(Type element, Value rows, Value slots,
                                 Value weights, MovementKernel &kernel);

  Value number(int64_t value) {
    return arith::ConstantIntOp::create(b, loc, b.getI32Type(), value);
  }
  Value toI32(Value index) {
    return arith::IndexCastOp::create(b, loc, b.getI32Type(), index);
  }
  /// A number of things, within 0 and the largest i32.
  Value toCount(Value index) {
    Value least = arith::ConstantIndexOp::create(b, loc, 0);
    Value most = arith::ConstantIndexOp::create(b, loc, INT32_MAX);
    index = arith::MaxSIOp::create(b, loc, index, least);
    return toI32(arith::MinSIOp::create(b, loc, index, most));
  }
  Value size(Value memref, int64_t dim) {
    Value at = arith::ConstantIndexOp::create(b, loc, dim);
    return toI32(memref::DimOp::create(b, loc, memref, at));
  }
  /// Rows of a ragged or padded buffer.
  Value rowsOf(Value memref) {
    Value rows = size(memref, 0);
    if (cast<MemRefType>(memref.getType()).getRank() == 3)
      rows = arith::MulIOp::create(b, loc, rows, size(memref, 1));
    return rows;
  }
  void launch(StringRef name, ValueRange arguments, int64_t sharedBytes = 0) {
    launches.launch(b, loc, name, kBlocksPerUnit, kRoutingThreads, sharedBytes,
                    arguments);
  }

  Operation *op;
  Launches &launches;
  OpBuilder b;
  Location loc;
};
} // namespace

static Type elementOf(Value memref) {
  return cast<MemRefType>(memref.getType()).getElementType();
}

LogicalResult Converter::checkElement(Type element) {
  if (element.isF32() || element.isBF16() || element.isF16())
    return success();
  return op->emitOpError("expected f32, bf16 or f16 on a GPU, got ") << element;
}

//===----------------------------------------------------------------------===//
// Routing
//===----------------------------------------------------------------------===//

LogicalResult Converter::describeGate(GateOp gate, GateKernel &kernel) {
  if (failed(checkElement(elementOf(gate.getLogits()))))
    return failure();
  kernel.router = gate.getRouter();
  kernel.logits = elementOf(gate.getLogits());
  kernel.experts = gate.getNumExperts();
  kernel.choices = gate.getNumChoices();
  kernel.bias = bool(gate.getBias());
  kernel.mask = bool(gate.getMask());
  kernel.replay = bool(gate.getReplay());
  kernel.sample = bool(gate.getSample());
  kernel.topK = bool(gate.getTopK());
  kernel.threshold = bool(gate.getThreshold());
  // By expert the choices are a column each.
  int64_t most =
      kernel.router.getExpertChoice() ? kMaxGateExperts : kMaxGateChoices;
  if (kernel.experts > kMaxGateExperts || kernel.choices > most ||
      kernel.choices > kernel.experts)
    return refuse("at most " + Twine(kMaxGateExperts) + " experts and " +
                      Twine(most) + " of them chosen",
                  Twine(kernel.choices) + " of " + Twine(kernel.experts));
  return success();
}

LogicalResult Converter::convertGate(GateOp gate) {
  GateKernel kernel;
  if (failed(describeGate(gate, kernel)))
    return failure();
  if (kernel.router.getExpertChoice()) {
    convertExpertGate(gate, kernel);
    return success();
  }
  kernel.name = launches.makeName("gate");
  buildGateKernel(launches.getModule(), kernel);
  SmallVector<Value> arguments{gate.getLogits()};
  for (Value option :
       {gate.getBias(), gate.getMask(), gate.getReplay(), gate.getSample()})
    if (option)
      arguments.push_back(option);
  llvm::append_range(arguments, gate.getOuts());
  arguments.push_back(size(gate.getLogits(), 0));
  if (kernel.topK)
    arguments.push_back(toCount(gate.getTopK()));
  if (kernel.threshold)
    arguments.push_back(gate.getThreshold());
  launch(kernel.name, arguments, kernel.sharedBytes());
  return success();
}

void Converter::convertExpertGate(GateOp gate, GateKernel &kernel) {
  Value ids = gate.getOuts()[0], weights = gate.getOuts()[1];
  Value tokens = size(gate.getLogits(), 0);
  SmallVector<Value> arguments{gate.getLogits()};
  for (Value option : {gate.getBias(), gate.getMask()})
    if (option)
      arguments.push_back(option);
  arguments.append({ids, weights, tokens});
  kernel.name = launches.makeName("scores");
  buildExpertScoresKernel(launches.getModule(), kernel);
  launch(kernel.name, arguments, kernel.sharedBytes());
  kernel.name = launches.makeName("choice");
  buildExpertChoiceKernel(launches.getModule(), kernel);
  launch(kernel.name, {ids, weights, tokens, toCount(gate.getCapacity())});
  if (kernel.router.getNormalize() == Normalize::None &&
      kernel.router.getScale().convertToDouble() == 1)
    return;
  kernel.name = launches.makeName("weights");
  buildExpertWeightsKernel(launches.getModule(), kernel);
  launch(kernel.name, {weights, tokens}, kernel.sharedBytes());
}

LogicalResult Converter::convertNoise(NoiseOp noise) {
  Value out = noise.getOuts()[0];
  NoiseKernel kernel;
  kernel.name = launches.makeName("noise");
  kernel.distribution = noise.getDistribution();
  kernel.columns = cast<MemRefType>(out.getType()).getDimSize(1);
  kernel.layer = noise.getLayer();
  buildNoiseKernel(launches.getModule(), kernel);
  Value first =
      arith::IndexCastOp::create(b, loc, b.getI64Type(), noise.getFirst());
  launch(kernel.name,
         {out, size(out, 0), noise.getSeed(), noise.getStep(), first});
  return success();
}

LogicalResult Converter::convertCount(CountOp count) {
  AssignKernel kernel;
  auto ids = cast<MemRefType>(count.getIds().getType());
  if (ids.isDynamicDim(1))
    return refuse("a static number of choices", "a dynamic one");
  kernel.choices = ids.getDimSize(1);
  kernel.experts = cast<MemRefType>(count.getOuts()[0].getType()).getDimSize(0);
  kernel.name = launches.makeName("count");
  buildCountKernel(launches.getModule(), kernel);
  launch(kernel.name, {count.getIds(), count.getOuts()[0],
                       size(count.getIds(), 0), number(INT32_MAX)});
  return success();
}

LogicalResult Converter::convertAssign(AssignOp assign) {
  auto ids = cast<MemRefType>(assign.getIds().getType());
  if (ids.isDynamicDim(1))
    return refuse("a static number of choices", "a dynamic one");
  if (assign.getPriority() && !elementOf(assign.getPriority()).isF32())
    return refuse("a priority of f32", "f64");
  AssignKernel kernel;
  kernel.order = assign.getOrder();
  kernel.experts = assign.getNumExperts();
  kernel.choices = ids.getDimSize(1);
  kernel.padded = assign.getPadded();
  kernel.blocks = bool(assign.getBlocks());
  Value slots = assign.getOuts()[0], sizes = assign.getOuts()[1];
  SmallVector<Value> numbers;
  numbers.push_back(size(assign.getIds(), 0));
  numbers.push_back(assign.getCapacity() ? toCount(assign.getCapacity())
                                         : number(INT32_MAX));
  if (kernel.blocks)
    numbers.push_back(size(assign.getBlocks(), 0));
  auto argumentsWith = [&](Value priority, ValueRange results) {
    SmallVector<Value> arguments{assign.getIds()};
    for (Value option : {priority, Value(assign.getBlocks())})
      if (option)
        arguments.push_back(option);
    llvm::append_range(arguments, results);
    llvm::append_range(arguments, numbers);
    return arguments;
  };
  kernel.name = launches.makeName("sizes");
  buildCountKernel(launches.getModule(), kernel);
  launch(kernel.name, argumentsWith(Value(), sizes));
  kernel.name = launches.makeName("assign");
  buildAssignKernel(launches.getModule(), kernel);
  SmallVector<Value> results{sizes, slots};
  if (assign.getPriority()) {
    // To sort in: two numbers for each pair.
    Value tokens = memref::DimOp::create(b, loc, assign.getIds(), 0);
    Value room = arith::MulIOp::create(
        b, loc, tokens,
        arith::ConstantIndexOp::create(b, loc, 2 * kernel.choices));
    results.push_back(memref::AllocOp::create(
        b, loc, MemRefType::get({ShapedType::kDynamic}, b.getI64Type()), room));
  }
  launch(kernel.name, argumentsWith(assign.getPriority(), results),
         kernel.sharedBytes());
  if (assign.getLayerAttr())
    reportLoads(*assign.getLayer(), assign.getCounts(), sizes);
  return success();
}

/// Tells the runtime how many rows each expert has, as the processor's lowering
/// does.
void Converter::reportLoads(int64_t layer, Value counts, Value sizes) {
  static constexpr StringLiteral name = "moira_abi_loads";
  auto module = op->getParentOfType<ModuleOp>();
  auto loads = MemRefType::get({ShapedType::kDynamic}, b.getI32Type());
  if (!module.lookupSymbol(name)) {
    OpBuilder outside = OpBuilder::atBlockBegin(module.getBody());
    auto declaration = func::FuncOp::create(
        outside, loc, name,
        outside.getFunctionType({outside.getI64Type(), loads, loads}, {}));
    declaration.setPrivate();
    declaration->setAttr("moe.abi", outside.getStringAttr("loads"));
  }
  auto flat = [&](Value value) -> Value {
    return value.getType() == loads
               ? value
               : memref::CastOp::create(b, loc, loads, value).getResult();
  };
  Value number = arith::ConstantIntOp::create(b, loc, b.getI64Type(), layer);
  func::CallOp::create(b, loc, name, TypeRange(),
                       ValueRange{number, flat(counts), flat(sizes)});
}

//===----------------------------------------------------------------------===//
// Movement
//===----------------------------------------------------------------------===//

LogicalResult Converter::describeMovement(Type element, Value rows, Value slots,
                                          Value weights,
                                          MovementKernel &kernel) {
  if (failed(checkElement(element)))
    return failure();
  auto type = cast<MemRefType>(rows.getType());
  auto slotsType = cast<MemRefType>(slots.getType());
  if (type.isDynamicDim(type.getRank() - 1) || slotsType.isDynamicDim(1))
    return refuse("static features and choices", "dynamic ones");
  if (weights && !elementOf(weights).isF32())
    return refuse("weights of f32", "f64");
  kernel.element = element;
  kernel.features = type.getShape().back();
  kernel.choices = slotsType.getDimSize(1);
  kernel.weights = bool(weights);
  return success();
}

LogicalResult Converter::convertDispatch(DispatchOp dispatch) {
  MovementKernel kernel;
  Value rows = dispatch.getOuts()[0];
  if (failed(describeMovement(elementOf(dispatch.getX()), rows,
                              dispatch.getSlots(), dispatch.getWeights(),
                              kernel)))
    return failure();
  kernel.name = launches.makeName("dispatch");
  buildDispatchKernel(launches.getModule(), kernel);
  SmallVector<Value> arguments{dispatch.getX(), dispatch.getSlots()};
  if (kernel.weights)
    arguments.push_back(dispatch.getWeights());
  arguments.append({rows, size(dispatch.getX(), 0), rowsOf(rows)});
  launch(kernel.name, arguments);
  return success();
}

LogicalResult Converter::convertCombine(CombineOp combine) {
  MovementKernel kernel;
  Value y = combine.getOuts()[0];
  if (failed(describeMovement(elementOf(combine.getRows()), combine.getRows(),
                              combine.getSlots(), combine.getWeights(),
                              kernel)))
    return failure();
  kernel.name = launches.makeName("combine");
  buildCombineKernel(launches.getModule(), kernel);
  SmallVector<Value> arguments{combine.getRows(), combine.getSlots()};
  if (kernel.weights)
    arguments.push_back(combine.getWeights());
  arguments.append({y, size(y, 0), rowsOf(combine.getRows())});
  launch(kernel.name, arguments);
  return success();
}

LogicalResult Converter::convertSources(SourcesOp sources) {
  Value slots = sources.getSlots(), tokens = sources.getOuts()[0];
  std::string clear = launches.makeName("clear");
  buildClearKernel(launches.getModule(), clear);
  Value bound = size(tokens, 0), choices = size(slots, 1);
  launch(clear, {tokens, bound});
  std::string name = launches.makeName("sources");
  buildSourcesKernel(launches.getModule(), name);
  Value pairs = arith::MulIOp::create(b, loc, size(slots, 0), choices);
  launch(name, {slots, tokens, pairs, bound, choices});
  return success();
}

LogicalResult Converter::convert() {
  if (!hasBufferForm(op))
    return op->emitOpError("expected the buffer form, got the tensor form");
  for (Value operand : op->getOperands())
    if (auto type = dyn_cast<MemRefType>(operand.getType()))
      if (!type.getLayout().isIdentity())
        return op->emitOpError("expected memrefs with the identity layout on a "
                               "GPU, got ")
               << type;
  LogicalResult result =
      llvm::TypeSwitch<Operation *, LogicalResult>(op)
          .Case<GateOp>([&](GateOp gate) { return convertGate(gate); })
          .Case<NoiseOp>([&](NoiseOp noise) { return convertNoise(noise); })
          .Case<CountOp>([&](CountOp count) { return convertCount(count); })
          .Case<AssignOp>(
              [&](AssignOp assign) { return convertAssign(assign); })
          .Case<DispatchOp>(
              [&](DispatchOp dispatch) { return convertDispatch(dispatch); })
          .Case<CombineOp>(
              [&](CombineOp combine) { return convertCombine(combine); })
          .Case<SourcesOp>(
              [&](SourcesOp sources) { return convertSources(sources); })
          .Default([](Operation *) { return failure(); });
  if (succeeded(result))
    op->erase();
  return result;
}

LogicalResult mlir::moe::detail::convertRouting(Operation *op,
                                                Launches &launches) {
  return Converter(op, launches).convert();
}
