// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Conformance/Harness.h"

#include "Conformance/GuardedBuffer.h"
#include "base/Convert.h"
#include "io/CheckpointSource.h"
#include "moira/jit.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Parser/Parser.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <sstream>

using namespace moira;
using namespace moira::conformance;
using reference::Argument;
using runtime::DataType;
using runtime::Shape;
using runtime::TensorView;

//===----------------------------------------------------------------------===//
// Compiling
//===----------------------------------------------------------------------===//

static bool isWeight(const std::string &name) {
  return name == "w1" || name == "w2" || name == "wg" || name == "b1" ||
         name == "b2";
}

/// The name of the checkpoint's tensor that holds a weight.
static std::string fileName(const std::string &name, bool joined,
                            const WeightFormat &format) {
  std::string stem = joined ? "gate_up" : name;
  return format.perExpert ? "experts.{}." + stem : "experts." + stem;
}

static bool isJoined(const std::string &name, const WeightFormat &format,
                     bool gated) {
  return format.joined && gated && (name == "w1" || name == "wg");
}

static void markParameters(mlir::func::FuncOp function,
                           const std::vector<Argument> &arguments,
                           const WeightFormat &format, bool gated) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    const Argument &argument = arguments[i];
    if (!isWeight(argument.name))
      continue;
    bool matrix = argument.shape.size() == 3;
    bool joined = isJoined(argument.name, format, gated);
    function.setArgAttr(
        i, mlir::moe::kParamAttrName,
        mlir::moe::ParamAttr::get(
            function.getContext(), fileName(argument.name, joined, format),
            matrix && format.transposed, joined && argument.name == "wg",
            joined ? 2 : 1, joined && format.interleaved));
  }
}

namespace {
/// A context of its own per program, with nothing printed.
struct Source {
  Source() : context(makeRegistry(), mlir::MLIRContext::Threading::DISABLED) {
    context.getDiagEngine().registerHandler([&](mlir::Diagnostic &diagnostic) {
      if (diagnostic.getSeverity() == mlir::DiagnosticSeverity::Error &&
          error.empty())
        error = diagnostic.str();
      return mlir::success();
    });
  }
  static mlir::DialectRegistry makeRegistry() {
    mlir::DialectRegistry registry;
    registerDialects(registry);
    return registry;
  }

  bool parse(const std::string &text) {
    module = mlir::parseSourceString<mlir::ModuleOp>(text, &context);
    return static_cast<bool>(module);
  }

  llvm::Expected<std::shared_ptr<const runtime::Program>>
  compile(const CompileOptions &options) {
    JitOptions jit;
    jit.pipeline.oracle = options.oracle;
    jit.pipeline.disabledFusions = options.disabledFusions;
    jit.pipeline.ranks = options.ranks;
    jit.pipeline.copies = options.copies;
    jit.pipeline.spareSlots = options.spareSlots;
    jit.pipeline.schedule = options.groups ? mlir::moe::Schedule::Groups
                                           : mlir::moe::Schedule::Equal;
    jit.pipeline.hiddenBlocks = options.hiddenBlocks;
    jit.pipeline.gradients = options.gradients;
    jit.pipeline.recompute = options.recompute;
    jit.pipeline.tokenBlocks = options.tokenBlocks;
    jit.optLevel = options.optLevel;
    jit.cpu = options.cpu;
    return moira::compile(*module, jit);
  }

  mlir::MLIRContext context;
  std::string error;
  mlir::OwningOpRef<mlir::ModuleOp> module;
};
} // namespace

/// The operand and the results of the gate become results of the program.
static void exposeGate(mlir::func::FuncOp function) {
  mlir::moe::GateOp gate;
  function.walk([&](mlir::moe::GateOp op) { gate = op; });
  mlir::Operation *end = function.front().getTerminator();
  llvm::SmallVector<mlir::Type> types(function.getResultTypes());
  for (mlir::Value value : llvm::SmallVector<mlir::Value>{
           gate->getOperand(0), gate->getResult(0), gate->getResult(1)}) {
    end->insertOperands(end->getNumOperands(), value);
    types.push_back(value.getType());
  }
  function.setType(mlir::FunctionType::get(function.getContext(),
                                           function.getArgumentTypes(), types));
}

/// Leaves only some of the program's results.
static void keepResults(mlir::func::FuncOp function,
                        const std::vector<unsigned> &kept) {
  mlir::Operation *end = function.front().getTerminator();
  llvm::SmallVector<mlir::Value> values;
  for (unsigned index : kept)
    values.push_back(end->getOperand(index));
  end->setOperands(values);
  function.setType(mlir::FunctionType::get(
      function.getContext(), function.getArgumentTypes(),
      llvm::SmallVector<mlir::Type>(end->getOperandTypes())));
}

static std::shared_ptr<const runtime::Program>
compileOrFail(Source &source, const CompileOptions &options) {
  auto program = source.compile(options);
  if (program)
    return *program;
  ADD_FAILURE() << (options.oracle ? "oracle" : "product")
                << " does not compile: " << llvm::toString(program.takeError());
  return nullptr;
}

std::shared_ptr<const runtime::Program>
moira::conformance::compileLayer(const reference::Layer &layer,
                                 const reference::LayerInputs &inputs,
                                 const CompileOptions &options) {
  Source source;
  if (!source.parse(printModule(layer, inputs))) {
    ADD_FAILURE() << "expected a legal program, got " << source.error;
    return nullptr;
  }
  auto function = source.module->lookupSymbol<mlir::func::FuncOp>("main");
  if (!options.weights.arguments)
    markParameters(function, arguments(layer, inputs), options.weights,
                   layer.gated);
  if (!options.keepResults.empty())
    keepResults(function, options.keepResults);
  return compileOrFail(source, options);
}

std::shared_ptr<const runtime::Program>
moira::conformance::compileText(const std::string &text,
                                const CompileOptions &options) {
  Source source;
  if (!source.parse(text)) {
    ADD_FAILURE() << "expected a legal program, got " << source.error;
    return nullptr;
  }
  if (options.exposeGate)
    exposeGate(source.module->lookupSymbol<mlir::func::FuncOp>("main"));
  return compileOrFail(source, options);
}

//===----------------------------------------------------------------------===//
// Values
//===----------------------------------------------------------------------===//

static int64_t countOf(const Shape &shape) {
  int64_t count = 1;
  for (int64_t dim : shape)
    count *= dim;
  return count;
}

static void encode(const std::vector<double> &values, DataType dtype,
                   void *target) {
  if (runtime::isFloat(dtype))
    return runtime::convert(DataType::F64, values.data(), dtype, target,
                            values.size());
  for (size_t i = 0; i < values.size(); ++i)
    if (dtype == DataType::I32)
      static_cast<int32_t *>(target)[i] = static_cast<int32_t>(values[i]);
    else
      static_cast<char *>(target)[i] = values[i] != 0;
}

std::vector<double> Output::values() const {
  std::vector<double> decoded(countOf(shape));
  if (runtime::isFloat(dtype)) {
    runtime::convert(dtype, bytes.data(), DataType::F64, decoded.data(),
                     decoded.size());
    return decoded;
  }
  for (size_t i = 0; i < decoded.size(); ++i) {
    int32_t value = 0;
    std::memcpy(&value, bytes.data() + i * runtime::byteSize(dtype),
                runtime::byteSize(dtype));
    decoded[i] = value;
  }
  return decoded;
}

//===----------------------------------------------------------------------===//
// Running
//===----------------------------------------------------------------------===//

Runner::Runner(std::shared_ptr<const runtime::Program> program, int threads,
               std::shared_ptr<runtime::Communicator> communicator) {
  runtime::SessionOptions options;
  options.threads = threads;
  options.poisonMemory = true;
  options.communicator = std::move(communicator);
  auto created = runtime::Session::create(std::move(program), options);
  if (created.ok())
    session = std::move(*created);
  else
    ADD_FAILURE() << created.status().message;
}

/// Interleaves or concatenates the rows of two matrices.
static std::vector<double> join(const double *first, const double *second,
                                int64_t rows, int64_t cols, bool interleaved) {
  std::vector<double> joined;
  auto add = [&](const double *matrix, int64_t row, int64_t count) {
    joined.insert(joined.end(), matrix + row * cols,
                  matrix + (row + count) * cols);
  };
  for (int64_t row = 0; interleaved && row < rows; ++row) {
    add(first, row, 1);
    add(second, row, 1);
  }
  if (!interleaved) {
    add(first, 0, rows);
    add(second, 0, rows);
  }
  return joined;
}

static std::vector<double> transpose(const std::vector<double> &values,
                                     int64_t rows, int64_t cols) {
  std::vector<double> swapped(values.size());
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < cols; ++j)
      swapped[j * rows + i] = values[i * cols + j];
  return swapped;
}

/// One expert's tensor as the checkpoint holds it; `shape` becomes its shape.
static std::vector<double> fileSlice(const Argument &weight,
                                     const Argument *partner, int64_t expert,
                                     const WeightFormat &format, Shape &shape) {
  shape.assign(weight.shape.begin() + 1, weight.shape.end());
  int64_t size = countOf(shape);
  const double *data = weight.values.data() + expert * size;
  if (shape.size() == 1)
    return std::vector<double>(data, data + size);
  std::vector<double> values(data, data + size);
  if (partner) {
    values = join(data, partner->values.data() + expert * size, shape[0],
                  shape[1], format.interleaved);
    shape[0] *= 2;
  }
  if (!format.transposed)
    return values;
  values = transpose(values, shape[0], shape[1]);
  std::swap(shape[0], shape[1]);
  return values;
}

void Runner::bindWeights(const reference::Layer &layer,
                         const reference::LayerInputs &inputs,
                         const WeightFormat &format) {
  if (!session)
    return;
  std::vector<Argument> all = arguments(layer, inputs);
  auto bind = [&](const std::string &name, DataType dtype, const Shape &shape,
                  const std::vector<double> &values) {
    GuardedBuffer file(values.size() * runtime::byteSize(dtype));
    encode(values, dtype, file.data());
    Status status = session->bind(name, {dtype, shape, file.data()});
    EXPECT_TRUE(status.ok()) << status.message;
  };
  for (const Argument &weight : all) {
    bool joined = isJoined(weight.name, format, layer.gated);
    // The first argument of a joined pair brings both.
    if (!isWeight(weight.name) || (joined && weight.name == "wg"))
      continue;
    const Argument *partner = nullptr;
    for (const Argument &other : all)
      if (joined && other.name == "wg")
        partner = &other;
    DataType dtype = *runtime::parseDataType(weight.elementType);
    std::string name = fileName(weight.name, joined, format);
    Shape shape, stacked;
    std::vector<double> values;
    for (int64_t expert = 0; expert < layer.experts; ++expert) {
      std::vector<double> slice =
          fileSlice(weight, partner, expert, format, shape);
      if (format.perExpert) {
        std::string own = name;
        bind(own.replace(own.find("{}"), 2, std::to_string(expert)), dtype,
             shape, slice);
        continue;
      }
      values.insert(values.end(), slice.begin(), slice.end());
    }
    stacked = shape;
    stacked.insert(stacked.begin(), layer.experts);
    if (!format.perExpert)
      bind(name, dtype, stacked, values);
  }
}

void Runner::bindCheckpoint(const std::string &path) {
  auto source = io::CheckpointSource::open(path);
  Status status =
      source.ok() && session ? session->bindSource(**source) : source.status();
  EXPECT_TRUE(status.ok()) << status.message;
}

void Runner::setVariant(const std::string &variant) {
  if (!session)
    return;
  Status status = session->setVariant("main", variant);
  EXPECT_TRUE(status.ok()) << status.message;
}

std::vector<std::string> Runner::variants() const {
  std::vector<std::string> names;
  if (!session)
    return names;
  for (const runtime::VariantSpec &variant :
       session->manifest().entries[0].variants)
    names.push_back(variant.name);
  return names;
}

void Runner::setPlan(const runtime::PlanOptions &plan) {
  if (!session)
    return;
  Status status = session->setPlan(plan);
  EXPECT_TRUE(status.ok()) << status.message;
}

namespace {
/// The inputs of a step, in memory that ends at an unreadable page.
struct Inputs {
  void add(const Argument &argument) {
    DataType dtype = *runtime::parseDataType(argument.elementType);
    buffers.emplace_back(argument.values.size() * runtime::byteSize(dtype));
    encode(argument.values, dtype, buffers.back().data());
    views.push_back({dtype, argument.shape, buffers.back().data()});
  }
  std::vector<GuardedBuffer> buffers;
  std::vector<TensorView> views;
};
} // namespace

static Outputs invoke(runtime::Session &session,
                      const std::vector<TensorView> &inputs,
                      std::vector<runtime::ResultTensor> &results) {
  Status status = session.invoke("main", inputs, results);
  EXPECT_TRUE(status.ok()) << status.message;
  Outputs outputs;
  if (!status.ok())
    return outputs;
  for (const runtime::ResultTensor &result : results) {
    auto *bytes = static_cast<const unsigned char *>(result.data);
    int64_t size = countOf(result.shape) * runtime::byteSize(result.dtype);
    outputs.push_back({result.dtype, result.shape, {bytes, bytes + size}});
  }
  return outputs;
}

Outputs Runner::run(const reference::Layer &layer,
                    const reference::LayerInputs &in) {
  if (!session)
    return {};
  Inputs inputs;
  std::vector<Argument> all = arguments(layer, in);
  bool parameters = session->manifest().entries[0].inputs.size() < all.size();
  for (const Argument &argument : all)
    if (!parameters || !isWeight(argument.name))
      inputs.add(argument);

  int64_t tokens = in.x.rows, choices = layer.choices(), resultBytes = 0;
  std::vector<GuardedBuffer> buffers;
  std::vector<runtime::ResultTensor> results;
  auto add = [&](DataType dtype, const Shape &shape) {
    resultBytes += countOf(shape) * runtime::byteSize(dtype);
    buffers.emplace_back(countOf(shape) * runtime::byteSize(dtype));
    results.push_back({dtype, shape, buffers.back().data(), nullptr});
  };
  add(DataType::I32, {tokens, choices});
  add(layer.router.wide ? DataType::F64 : DataType::F32, {tokens, choices});
  add(DataType::I32, {layer.experts});
  add(DataType::I32, {tokens, choices});
  add(DataType::I32, {layer.experts});
  add(*runtime::parseDataType(nameOf(layer.rowType)),
      {tokens, layer.outFeatures});
  auto peak = session->predictPeak("main", inputs.views);
  EXPECT_TRUE(peak.ok()) << peak.status().message;
  if (peak.ok())
    wanted = *peak - session->memory().parameters - resultBytes;
  return invoke(*session, inputs.views, results);
}

int64_t Runner::workspaceHeld() const {
  return session ? session->memory().workspace : 0;
}

Outputs Runner::run(const std::vector<Argument> &arguments) {
  if (!session)
    return {};
  Inputs inputs;
  for (const Argument &argument : arguments)
    inputs.add(argument);
  std::vector<runtime::ResultTensor> results;
  return invoke(*session, inputs.views, results);
}

std::vector<Argument>
moira::conformance::stepArguments(const reference::Layer &layer,
                                  const reference::LayerInputs &inputs) {
  std::vector<Argument> own;
  for (Argument &argument : arguments(layer, inputs))
    if (!isWeight(argument.name))
      own.push_back(std::move(argument));
  return own;
}

//===----------------------------------------------------------------------===//
// Comparing
//===----------------------------------------------------------------------===//

template <typename T> static std::vector<T> toIntegers(const Output &output) {
  std::vector<double> values = output.values();
  return std::vector<T>(values.begin(), values.end());
}

template <typename T>
static reference::Matrix<T> toMatrix(const Output &output,
                                     std::vector<T> data) {
  reference::Matrix<T> matrix(output.shape[0], output.shape[1]);
  matrix.data = std::move(data);
  return matrix;
}

reference::LayerResult
moira::conformance::toLayerResult(const Outputs &outputs,
                                  const reference::Layer &layer) {
  reference::LayerResult result;
  if (outputs.size() != 6)
    return result;
  result.gate.ids = toMatrix(outputs[0], toIntegers<int32_t>(outputs[0]));
  result.gate.weights = toMatrix(outputs[1], outputs[1].values());
  result.counts = toIntegers<int32_t>(outputs[2]);
  result.assignment.slots =
      toMatrix(outputs[3], toIntegers<int32_t>(outputs[3]));
  result.assignment.sizes = toIntegers<int32_t>(outputs[4]);
  result.y = toMatrix(outputs[5], outputs[5].values());
  return result;
}

std::string moira::conformance::difference(const Outputs &expected,
                                           const Outputs &got) {
  if (expected.size() != got.size())
    return concat("expected ", expected.size(), " results, got ", got.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    const Output &want = expected[i], &have = got[i];
    if (want == have)
      continue;
    if (want.shape != have.shape || want.dtype != have.dtype)
      return concat("result ", i, ": expected ",
                    runtime::toString(want.dtype, want.shape), ", got ",
                    runtime::toString(have.dtype, have.shape));
    int64_t size = runtime::byteSize(want.dtype), first = 0, count = 0;
    for (int64_t e = countOf(want.shape) - 1; e >= 0; --e)
      if (std::memcmp(&want.bytes[e * size], &have.bytes[e * size], size)) {
        first = e;
        ++count;
      }
    std::ostringstream text;
    text.precision(17);
    text << "result " << i << " differs in " << count << " of "
         << countOf(want.shape) << " values, first [" << first << "]: expected "
         << want.values()[first] << ", got " << have.values()[first];
    return text.str();
  }
  return "";
}

static bool agrees(double expected, double got, double tolerance) {
  if (std::isnan(expected) || std::isnan(got))
    return std::isnan(expected) && std::isnan(got);
  if (expected == got)
    return std::signbit(expected) == std::signbit(got) || tolerance > 0;
  return std::fabs(expected - got) <=
         tolerance * std::max(1.0, std::fabs(expected));
}

std::string
moira::conformance::differenceFrom(const std::vector<Argument> &expected,
                                   const Outputs &got, double tolerance) {
  if (expected.size() != got.size())
    return concat("expected ", expected.size(), " results, got ", got.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    const Argument &want = expected[i];
    if (want.shape != got[i].shape)
      return concat(want.name, ": expected shape ",
                    runtime::toString(want.shape), ", got ",
                    runtime::toString(got[i].shape));
    std::vector<double> values = got[i].values();
    double bound = runtime::isFloat(got[i].dtype) ? tolerance : 0;
    for (size_t e = 0; e < values.size(); ++e) {
      if (agrees(want.values[e], values[e], bound))
        continue;
      std::ostringstream text;
      text.precision(17);
      text << want.name << "[" << e << "]: expected " << want.values[e]
           << ", got " << values[e];
      return text.str();
    }
  }
  return "";
}
