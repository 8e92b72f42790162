// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Verify.h"

#include "Weights.h"

#include "session/Residuals.h"

#include <chrono>
#include <cstring>

using namespace moira;
using namespace moira::tools;
using namespace moira::runtime;

namespace {

/// Some rows of some tensors.
class RowSubset {
public:
  /// `count` of `all` rows, spread evenly; all of them where fewer.
  RowSubset(int64_t count, int64_t all) : all(all) {
    count = std::min(count, all);
    for (int64_t i = 0; i < count; ++i)
      rows.push_back(i * all / count);
  }

  int64_t count() const { return rows.size(); }
  bool isWhole() const { return count() == all; }

  /// Whether dim 0 is that of the tokens.
  bool covers(const TensorSpec &spec, const Shape &shape) const {
    return !spec.shape.empty() && spec.shape[0] == -1 && shape[0] == all;
  }

  /// The rows of `tensor`, copied into memory of this object.
  Result<TensorView> take(const TensorView &tensor);

private:
  int64_t all;
  std::vector<int64_t> rows;
  std::shared_ptr<MemoryAccount> account = std::make_shared<MemoryAccount>();
  std::vector<Storage> storages;
};

/// One verification.
class Verifier {
public:
  Verifier(const LoadedProgram &program, const RunOptions &options,
           Progress &progress)
      : program(program), options(options), progress(progress) {}

  llvm::Expected<Verification> run(const Inputs &inputs,
                                   const std::vector<ResultTensor> &results,
                                   const Gradients *gradients);

private:
  using Tensors = std::vector<TensorView>;

  /// With `ofResults`, also the way back, into `gradients`.
  llvm::Expected<std::vector<ResultTensor>>
  runProgram(bool oracle, bool replay, const Tensors &inputs,
             const Tensors *ofResults = nullptr,
             Gradients *gradients = nullptr);
  llvm::Error runBackward(Session &session, const Tensors &inputs,
                          const Tensors &ofResults,
                          std::vector<ResultTensor> &results,
                          Gradients &gradients);
  void checkGradients(const Gradients &expected, const Gradients &found,
                      Verification &verification);
  void addBlocks(const RowSubset &rows, const Inputs &inputs, Tensors &tensors);
  llvm::Expected<Tensors> subset(RowSubset &rows,
                                 const std::vector<TensorSpec> &specs,
                                 const Tensors &tensors);
  llvm::Error checkChoices(const Tensors &inputs, const Tensors &routing,
                           const std::vector<ResultTensor> &oracle,
                           Verification &verification);
  llvm::Error checkValues(const RowSubset &rows, const Tensors &results,
                          const std::vector<ResultTensor> &oracle,
                          Verification &verification);

  const LoadedProgram &program;
  const RunOptions &options;
  Progress &progress;
  std::vector<int32_t> blocks; ///< tokens of each rank; empty: not told
};

} // namespace

Result<TensorView> RowSubset::take(const TensorView &tensor) {
  Shape shape = tensor.shape;
  int64_t rowBytes =
      all == 0 ? 0 : *compactBytes(tensor.dtype, tensor.shape) / all;
  shape[0] = count();
  Result<Storage> storage =
      Storage::allocate(account, MemoryKind::Workspace, rowBytes * count());
  if (!storage.ok())
    return storage.status();
  auto *target = static_cast<char *>(storage->data());
  for (int64_t row : rows) {
    std::memcpy(target, static_cast<const char *>(tensor.data) + row * rowBytes,
                rowBytes);
    target += rowBytes;
  }
  storages.push_back(std::move(*storage));
  return TensorView{tensor.dtype, shape, storages.back().data()};
}

static TensorView viewOf(const ResultTensor &result) {
  return {result.dtype, result.shape, result.data};
}

static std::vector<TensorView>
viewsOf(const std::vector<ResultTensor> &results) {
  std::vector<TensorView> views;
  for (const ResultTensor &result : results)
    views.push_back(viewOf(result));
  return views;
}

/// A step and its way back, of one rank.
llvm::Error Verifier::runBackward(Session &session, const Tensors &inputs,
                                  const Tensors &ofResults,
                                  std::vector<ResultTensor> &results,
                                  Gradients &gradients) {
  const Manifest &manifest = session.manifest();
  const EntrySpec &entry =
      manifest.entries[manifest.findEntry(program.entry().name)];
  const EntrySpec &back = manifest.entries[manifest.findEntry(entry.backward)];
  std::shared_ptr<const Residuals> residuals;
  std::vector<ResultTensor> made;
  if (Status status = session.forward(entry.name, inputs, results, residuals);
      !status.ok())
    return toError(status);
  if (Status status = session.backward(*residuals, ofResults, made);
      !status.ok())
    return toError(status);
  gradients.specs = inputGradients(entry, back);
  for (size_t i = 0; i < made.size(); ++i) {
    const TensorSpec &spec = back.results[i];
    if (spec.gradient && spec.gradient->input >= 0)
      gradients.inputs.push_back(std::move(made[i]));
    else if (spec.gradient)
      session.putGradient(spec, made[i].data, gradients.parameters, "d_");
  }
  return llvm::Error::success();
}

/// Compiles the source in another way and runs it once.
llvm::Expected<std::vector<ResultTensor>>
Verifier::runProgram(bool oracle, bool replay, const Tensors &inputs,
                     const Tensors *ofResults, Gradients *gradients) {
  progress.start("compiling for verification");
  auto compiled = program.compileAs(
      {oracle, /*exposeRouting=*/true, replay, !blocks.empty()});
  if (!compiled)
    return compiled.takeError();
  // Without the memory limit, which is for the run that is verified.
  SessionOptions sessionOptions;
  sessionOptions.threads = options.threads;
  sessionOptions.progress = [this](int64_t done, int64_t all) {
    progress.update(done, all);
  };
  progress.start("weights for verification");
  auto session = Session::create(*compiled, sessionOptions);
  if (!session.ok())
    return toError(session.status());
  if (llvm::Error error = toError(bindWeights(**session, options)))
    return error;
  progress.finish();
  std::vector<ResultTensor> results;
  llvm::Error error =
      gradients
          ? runBackward(**session, inputs, *ofResults, results, *gradients)
          : toError((*session)->invoke(program.entry().name, inputs, results));
  if (error)
    return error;
  const Manifest &manifest = (*session)->manifest();
  results.resize(
      manifest.entries[manifest.findEntry(program.entry().name)].ownResults());
  return results;
}

/// Ranks decide capacity and priority within their own tokens. Tells the oracle
/// where they end, in an input after the program's own.
void Verifier::addBlocks(const RowSubset &rows, const Inputs &inputs,
                         Tensors &tensors) {
  // Some tokens of all are compared only where no token matters to another.
  if (program.entry().ranks == 1 || !rows.isWhole())
    return;
  for (int64_t tokens : inputs.tokensByRank())
    blocks.push_back(tokens);
  tensors.push_back({DataType::I32, {program.entry().ranks}, blocks.data()});
}

llvm::Expected<Verifier::Tensors>
Verifier::subset(RowSubset &rows, const std::vector<TensorSpec> &specs,
                 const Tensors &tensors) {
  Tensors taken;
  for (size_t i = 0; i < tensors.size(); ++i) {
    // Blocks have no place among the specs, and come with all rows.
    if (rows.isWhole() || !rows.covers(specs[i], tensors[i].shape)) {
      taken.push_back(tensors[i]);
      continue;
    }
    Result<TensorView> part = rows.take(tensors[i]);
    if (!part.ok())
      return toError(part.status());
    taken.push_back(*part);
  }
  return taken;
}

/// `routing` is logits0, ids0, logits1, ids1, ... of the run; the oracle ran
/// with its ids, so its logits are those that a right layer would have seen.
llvm::Error Verifier::checkChoices(const Tensors &inputs,
                                   const Tensors &routing,
                                   const std::vector<ResultTensor> &oracle,
                                   Verification &verification) {
  std::vector<GateInfo> gates = program.gates(routing.size() / 2);
  std::vector<ResultTensor> own;
  for (size_t gate = 0; gate < gates.size(); ++gate) {
    std::string name = concat("gate ", gate);
    const TensorView &ids = routing[2 * gate + 1];
    size_t place = program.ownResults() + 2 * gate;
    if (gates[gate].isTopKOfLogits) {
      verification.choices.add(checkTopK(name, viewOf(oracle[place]), ids));
      continue;
    }
    // More than logits decides: the oracle must choose itself, once for all.
    if (own.empty()) {
      auto free = runProgram(/*oracle=*/true, /*replay=*/false, inputs);
      if (!free)
        return free.takeError();
      own = std::move(*free);
    }
    verification.choices.add(checkEqual(name, viewOf(own[place + 1]), ids));
  }
  return llvm::Error::success();
}

llvm::Error Verifier::checkValues(const RowSubset &rows, const Tensors &results,
                                  const std::vector<ResultTensor> &oracle,
                                  Verification &verification) {
  const std::vector<TensorSpec> &specs = program.entry().results;
  for (size_t i = 0; i < program.ownResults(); ++i) {
    if (!rows.isWhole() &&
        (specs[i].shape.empty() || specs[i].shape[0] != -1)) {
      verification.note += concat("result ", i,
                                  " is not of single tokens and "
                                  "was not compared; ");
      continue;
    }
    if (results[i].shape != oracle[i].shape)
      return llvm::createStringError(
          "result " + llvm::Twine(i) + ": expected the oracle's shape " +
          toString(oracle[i].shape) + ", got " + toString(results[i].shape));
    verification.bound =
        std::max(verification.bound, relativeBound(oracle[i].dtype));
    verification.values.add(
        compareValues(concat("result ", i), viewOf(oracle[i]), results[i]));
  }
  return llvm::Error::success();
}

void Verifier::checkGradients(const Gradients &expected, const Gradients &found,
                              Verification &verification) {
  auto compare = [&](const std::string &name, const TensorView &wanted,
                     const TensorView &got) {
    verification.bound =
        std::max(verification.bound, relativeBound(wanted.dtype));
    verification.values.add(compareValues(name, wanted, got));
  };
  for (size_t i = 0; i < expected.inputs.size(); ++i)
    compare(expected.specs[i].name, viewOf(expected.inputs[i]),
            viewOf(found.inputs[i]));
  for (const auto &[name, tensor] : expected.parameters.tensors())
    compare(name, tensor.view(), found.parameters.tensors().at(name).view());
}

llvm::Expected<Verification>
Verifier::run(const Inputs &inputs, const std::vector<ResultTensor> &results,
              const Gradients *gradients) {
  Verification verification;
  verification.allRows = inputs.rows();
  int64_t wanted = options.verifyRows > 0 ? options.verifyRows : inputs.rows();
  std::string dependence = program.tokenDependence();
  if (options.verifyRows > 0 && !dependence.empty()) {
    verification.note =
        "tokens influence each other (" + dependence + "): all rows compared; ";
    wanted = inputs.rows();
  }
  RowSubset rows(wanted, inputs.rows());
  verification.rows = rows.count();

  Tensors whole = inputs.views();
  // Behind the entry's own: gradients of results.
  Tensors ofResults(whole.begin() + program.entry().inputs.size(), whole.end());
  whole.resize(program.entry().inputs.size());
  addBlocks(rows, inputs, whole);

  // The routing of the run: a bundle keeps it to itself, so the same program
  // is compiled once more.
  std::vector<ResultTensor> exposed;
  std::vector<TensorSpec> specs = program.entry().results;
  Tensors all = viewsOf(results);
  if (!program.exposesRouting() && options.isBundle) {
    auto again = runProgram(/*oracle=*/false, /*replay=*/false, whole);
    if (!again)
      return again.takeError();
    exposed = std::move(*again);
    for (size_t i = all.size(); i < exposed.size(); ++i) {
      all.push_back(viewOf(exposed[i]));
      specs.push_back({"", exposed[i].dtype, {-1, exposed[i].shape.back()}});
    }
  }
  llvm::Expected<Tensors> parts = subset(rows, specs, all);
  if (!parts)
    return parts.takeError();
  llvm::Expected<Tensors> oracleInputs =
      subset(rows, program.entry().inputs, whole);
  if (!oracleInputs)
    return oracleInputs.takeError();

  Tensors own(parts->begin(), parts->begin() + program.ownResults());
  Tensors routing(parts->begin() + program.ownResults(), parts->end());
  Tensors replayed = *oracleInputs;
  std::vector<GateInfo> gates = program.gates(routing.size() / 2);
  for (size_t gate = 0; gate < gates.size(); ++gate)
    if (gates[gate].takesReplay)
      replayed.push_back(routing[2 * gate + 1]);
  Gradients expected;
  auto oracle = runProgram(/*oracle=*/true, /*replay=*/true, replayed,
                           &ofResults, gradients ? &expected : nullptr);
  if (!oracle)
    return oracle.takeError();
  if (llvm::Error error =
          checkChoices(*oracleInputs, routing, *oracle, verification))
    return error;
  if (llvm::Error error = checkValues(rows, own, *oracle, verification))
    return error;
  if (gradients)
    checkGradients(expected, *gradients, verification);
  return verification;
}

llvm::Expected<Verification>
tools::verify(const LoadedProgram &program, const RunOptions &options,
              const Inputs &inputs, const std::vector<ResultTensor> &results,
              const Gradients *gradients, Progress &progress) {
  auto started = std::chrono::steady_clock::now();
  llvm::Expected<Verification> verification =
      Verifier(program, options, progress).run(inputs, results, gradients);
  if (verification)
    verification->seconds = std::chrono::duration<double>(
                                std::chrono::steady_clock::now() - started)
                                .count();
  return verification;
}
