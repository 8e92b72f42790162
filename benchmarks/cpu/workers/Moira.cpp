// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Moira: the case as a program, compiled in memory and run by a session.

#include "Program.h"
#include "Serve.h"

#include "io/CheckpointSource.h"
#include "moira/JIT/ParseProgram.h"
#include "moira/jit.h"
#include "moira/runtime.h"
#include "session/Session.h"

#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"
#include "llvm/TargetParser/Host.h"

#include <chrono>
#include <unistd.h>

using namespace moira;
using namespace moira::bench;
using namespace moira::runtime;
using std::chrono::steady_clock;

static double secondsSince(steady_clock::time_point start) {
  return std::chrono::duration<double>(steady_clock::now() - start).count();
}

namespace {
class Moira final : public Implementation {
public:
  std::string version() override {
    return std::string("Moira ") + moira_version() + ", cpu " +
           llvm::sys::getHostCPUName().str();
  }
  std::string prepare(const Case &what, const DataFile &file,
                      std::vector<std::string> &modes) override;
  void run(int mode) override;
  Output output(int) override {
    return {result.as<char>(), resultType == DataType::BF16};
  }
  void release() override;
  Facts facts() override;

private:
  std::string compileProgram();
  std::string bind();
  void makeInputs(const DataFile &file);

  Case what;
  std::shared_ptr<const runtime::Program> program;
  std::unique_ptr<Session> session;
  std::vector<Buffer> data;
  std::vector<TensorView> inputs;
  std::vector<ResultTensor> results;
  Buffer result;
  DataType resultType = DataType::F32;
  double compileSeconds = 0, bindSeconds = 0;
};
} // namespace

std::string Moira::compileProgram() {
  mlir::DialectRegistry registry;
  registerDialects(registry);
  mlir::MLIRContext context(registry, mlir::MLIRContext::Threading::DISABLED);
  std::string text = programText(what);
  auto start = steady_clock::now();
  mlir::OwningOpRef<mlir::ModuleOp> module =
      mlir::parseSourceString<mlir::ModuleOp>(text,
                                              mlir::ParserConfig(&context));
  if (!module)
    return "the program does not parse";
  auto compiled = compile(*module, JitOptions());
  if (!compiled)
    return llvm::toString(compiled.takeError());
  compileSeconds = secondsSince(start);
  program = *compiled;
  return "";
}

std::string Moira::bind() {
  auto start = steady_clock::now();
  if (what.file.empty()) {
    Status status = session->bindRandom(0);
    bindSeconds = secondsSince(start);
    return status.ok() ? "" : status.message;
  }
  auto source = io::CheckpointSource::open(what.file);
  if (!source.ok())
    return source.status().message;
  Status status = session->bindSource(**source);
  bindSeconds = secondsSince(start);
  return status.ok() ? "" : status.message;
}

void Moira::makeInputs(const DataFile &file) {
  for (const TensorSpec &spec : session->manifest().entries[0].inputs) {
    Shape shape = spec.shape;
    for (int64_t &size : shape)
      if (size == -1)
        size = what.file.empty() ? what.tokens : what.rows();
    int64_t bytes = *compactBytes(spec.dtype, shape);
    data.emplace_back(bytes);
    char *at = data.back().as<char>();
    if (const void *from = file.find(spec.name))
      std::memcpy(at, from, bytes);
    else if (spec.name == "sizes")
      std::memcpy(at, what.sizes.data(), bytes);
    else
      fillInput(what, spec.name, at, bytes);
    inputs.push_back({spec.dtype, shape, at});
  }
}

std::string Moira::prepare(const Case &wanted, const DataFile &file,
                           std::vector<std::string> &modes) {
  what = wanted;
  std::string error = compileProgram();
  if (!error.empty())
    return error;
  SessionOptions options;
  options.threads = what.threads;
  options.statisticsSteps = 1;
  auto created = Session::create(program, options);
  if (!created.ok())
    return created.status().message;
  session = std::move(*created);
  error = bind();
  if (!error.empty())
    return error;
  makeInputs(file);
  const TensorSpec &spec = session->manifest().entries[0].results[0];
  Shape shape = spec.shape;
  for (int64_t &size : shape)
    if (size == -1)
      size = inputs[0].shape[0];
  resultType = spec.dtype;
  result = Buffer(*compactBytes(spec.dtype, shape));
  results.push_back({spec.dtype, shape, result.as<char>(), nullptr});
  Status status = session->invoke("main", inputs, results);
  if (!status.ok())
    return status.message;
  modes = {"moira"};
  return "";
}

void Moira::run(int) {
  Status status = session->invoke("main", inputs, results);
  if (!status.ok()) {
    fprintf(stderr, "moira-bench-moira: %s\n", status.message.c_str());
    _exit(1);
  }
}

void Moira::release() {
  session.reset();
  program.reset();
  data.clear();
  inputs.clear();
  results.clear();
  result = Buffer();
}

Facts Moira::facts() {
  Facts all = {{"compile_s", compileSeconds}, {"bind_s", bindSeconds}};
  if (!session)
    return all;
  std::vector<StepRow> steps = session->statistics();
  if (steps.empty())
    return all;
  PartSeconds seconds = steps.back().seconds;
  for (const LayerRow &layer : steps.back().layers)
    for (size_t i = 0; i < seconds.size(); ++i)
      seconds[i] += layer.seconds[i];
  static constexpr const char *names[] = {
      "other_s", "gate_s", "dispatch_s", "expert_s", "combine_s", "exchange_s"};
  for (size_t i = 0; i < seconds.size(); ++i)
    all.emplace_back(names[i], seconds[i]);
  all.emplace_back("total_s", steps.back().total);
  return all;
}

int main() {
  Moira moira;
  return serve(moira);
}
