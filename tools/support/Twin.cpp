// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "support/Twin.h"

#include "base/Convert.h"
#include "base/Random.h"
#include "moira/JIT/Diagnostics.h"
#include "moira/Variants/Passes.h"
#include "session/ManifestMerge.h"
#include "session/Program.h"
#include "session/Session.h"
#include "support/CommandLine.h"
#include "support/Grid.h"

#include "mlir/IR/Verifier.h"
#include "mlir/Pass/PassManager.h"

#include <cstring>
#include <numeric>

using namespace moira;
using namespace moira::tools;
using namespace moira::runtime;

/// More ranks as threads would take longer than what they show is worth.
static constexpr int64_t mostRanks = 16;
/// Larger weights would take too long to make.
static constexpr int64_t mostBytes = int64_t(256) << 20;

/// Tokens of a rank: some ranks have none, some more than a tile.
static int64_t tokensOf(int rank) { return rank * 7 % 12; }

static llvm::Expected<mlir::OwningOpRef<mlir::ModuleOp>>
makeTwin(mlir::ModuleOp module) {
  mlir::OwningOpRef<mlir::ModuleOp> twin(
      mlir::cast<mlir::ModuleOp>(module->clone()));
  ErrorCollector errors(module.getContext());
  mlir::PassManager manager(module.getContext());
  manager.enableVerifier(false);
  manager.addPass(mlir::moe::createShrinkSizesPass());
  if (mlir::failed(manager.run(*twin)) || mlir::failed(mlir::verify(*twin)))
    return errors.take("expected sizes that shrink, got others");
  return std::move(twin);
}

/// Whether all of these are rows of floats, one for each token.
static bool areRows(llvm::ArrayRef<TensorSpec> specs) {
  return llvm::all_of(specs, [](const TensorSpec &spec) {
    return isFloat(spec.dtype) && !spec.shape.empty() && spec.shape[0] == -1 &&
           llvm::all_of(llvm::drop_begin(spec.shape),
                        [](int64_t size) { return size >= 0; });
  });
}

namespace {

/// Inputs of all ranks together: small multiples of 1/8, exact in all types.
class TwinInputs {
public:
  TwinInputs(const EntrySpec &entry, int64_t rows);
  std::vector<TensorView> rows(int64_t begin, int64_t count) const;

private:
  const EntrySpec &entry;
  std::vector<std::vector<char>> bytes;
};

} // namespace

static int64_t rowBytes(const TensorSpec &spec) {
  Shape shape = spec.shape;
  shape[0] = 1;
  return *compactBytes(spec.dtype, shape);
}

TwinInputs::TwinInputs(const EntrySpec &entry, int64_t rows) : entry(entry) {
  for (auto [i, spec] : llvm::enumerate(entry.inputs)) {
    int64_t count = rows * rowBytes(spec) / byteSize(spec.dtype);
    PhiloxKey key = streamKey(i, "twin");
    std::vector<float> values;
    for (int64_t e = 0; e < count; ++e) {
      PhiloxCounter words = philox({uint32_t(e), uint32_t(e >> 32), 0, 0}, key);
      values.push_back(float(int(words[0] % 33) - 16) / 8);
    }
    std::vector<char> &data =
        bytes.emplace_back(std::max<int64_t>(1, rows * rowBytes(spec)));
    convert(DataType::F32, values.data(), spec.dtype, data.data(), count);
  }
}

std::vector<TensorView> TwinInputs::rows(int64_t begin, int64_t count) const {
  std::vector<TensorView> views;
  for (auto [i, spec] : llvm::enumerate(entry.inputs)) {
    Shape shape = spec.shape;
    shape[0] = count;
    views.push_back(
        {spec.dtype, shape, bytes[i].data() + begin * rowBytes(spec)});
  }
  return views;
}

using Results = std::vector<ResultTensor>;

/// Whether a rank's results are the oracle's rows from `begin` on.
static bool sameRows(const Results &found, const Results &oracle, size_t own,
                     int64_t begin) {
  for (size_t i = 0; i < own; ++i) {
    int64_t bytes = *compactBytes(found[i].dtype, found[i].shape);
    int64_t row = found[i].shape[0] == 0 ? 0 : bytes / found[i].shape[0];
    const char *expected =
        static_cast<const char *>(oracle[i].data) + begin * row;
    if (bytes > 0 && std::memcmp(found[i].data, expected, bytes) != 0)
      return false;
  }
  return true;
}

static llvm::Expected<std::unique_ptr<Session>>
makeSession(std::shared_ptr<const Program> program,
            std::shared_ptr<Communicator> communicator) {
  SessionOptions options;
  options.threads = 1;
  options.communicator = std::move(communicator);
  auto session = Session::create(std::move(program), options);
  if (!session.ok())
    return toError(session.status());
  return std::move(*session);
}

namespace {

/// The twin of one program.
class Twin {
public:
  Twin(mlir::ModuleOp module, const JitOptions &options,
       const VariantOptions &variants)
      : module(module), options(options), variants(variants) {}

  llvm::Error checkGrid(int64_t ranks, TwinOutcome &outcome);

private:
  llvm::Expected<Results> runOracle(const std::string &entry,
                                    const TwinInputs &inputs, int64_t rows);

  mlir::ModuleOp module;
  const JitOptions &options;
  const VariantOptions &variants;
};

} // namespace

llvm::Expected<Results> Twin::runOracle(const std::string &entry,
                                        const TwinInputs &inputs,
                                        int64_t rows) {
  JitOptions own = options;
  own.pipeline.oracle = true;
  own.pipeline.ranks = 1;
  auto program = compile(module, own);
  if (!program)
    return program.takeError();
  auto session = makeSession(*program, nullptr);
  if (!session)
    return session.takeError();
  Results results;
  Status status = (*session)->bindRandom(0);
  if (status.ok())
    status = (*session)->invoke(entry, inputs.rows(0, rows), results);
  if (!status.ok())
    return toError(status.within("oracle of the twin"));
  return results;
}

llvm::Error Twin::checkGrid(int64_t ranks, TwinOutcome &outcome) {
  std::string name = std::to_string(ranks) + (ranks == 1 ? " rank" : " ranks");
  auto skip = [&](const std::string &why) {
    outcome.notes.push_back("no twin for " + name + ": " + why);
    return llvm::Error::success();
  };
  if (ranks > mostRanks)
    return skip("expected at most " + std::to_string(mostRanks) + " ranks");
  JitOptions own = options;
  own.pipeline.ranks = ranks;
  auto program = compileVariants(module, own, variants);
  if (!program)
    return program.takeError();
  const Manifest &manifest = (*program)->manifest();
  if (manifest.mainEntry() < 0)
    return skip("expected one entry");
  const EntrySpec &entry = manifest.entries[manifest.mainEntry()];
  if (!entry.backward.empty())
    return skip("it has gradients");
  if (entry.inputs.empty() || !areRows(entry.inputs) || !areRows(entry.results))
    return skip("expected rows of floats as inputs and results");
  int64_t bytes = 0;
  for (const ParameterSpec &parameter : manifest.parameters)
    bytes += parameter.packedBytes();
  if (bytes * ranks > mostBytes)
    return skip("expected small weights, got " + formatBytes(bytes * ranks));

  std::vector<int64_t> begin{0};
  for (int rank = 0; rank < ranks; ++rank)
    begin.push_back(begin.back() + tokensOf(ranks == 1 ? 5 : rank));
  TwinInputs inputs(entry, begin.back());
  llvm::Expected<Results> oracle = runOracle(entry.name, inputs, begin.back());
  if (!oracle)
    return oracle.takeError();

  RankOptions rankOptions;
  rankOptions.communicator = "inprocess";
  auto grid = Grid::create(Launch(), rankOptions, int(ranks));
  if (!grid)
    return grid.takeError();
  std::vector<std::unique_ptr<Session>> sessions;
  for (int rank = 0; rank < ranks; ++rank) {
    auto session = makeSession(*program, (*grid)->communicator(rank));
    if (!session)
      return session.takeError();
    if (Status status = (*session)->bindRandom(0); !status.ok())
      return toError(status);
    sessions.push_back(std::move(*session));
  }
  TwinOutcome::Grid &found = outcome.grids.emplace_back();
  found.ranks = int32_t(ranks);
  found.entry = entry.name;
  for (const VariantSpec &variant : entry.variants) {
    std::vector<char> same(ranks);
    Status status = (*grid)->run([&](int rank) -> Status {
      Session &session = *sessions[rank];
      MOIRA_RETURN_IF_ERROR(session.setVariant(entry.name, variant.name));
      Results results;
      MOIRA_RETURN_IF_ERROR(session.invoke(
          entry.name, inputs.rows(begin[rank], begin[rank + 1] - begin[rank]),
          results));
      same[rank] = sameRows(results, *oracle, size_t(entry.programResults()),
                            begin[rank]);
      return Status();
    });
    bool passed = status.ok() && llvm::all_of(same, [](char s) { return s; });
    found.levels.emplace_back(variant.name, passed ? "twin" : "none");
    if (!passed)
      outcome.notes.push_back(
          "the twin of " + variant.name + " for " + name + " failed: " +
          (status.ok() ? "expected the oracle's bits, got others"
                       : status.message));
  }
  return llvm::Error::success();
}

llvm::Expected<TwinOutcome> tools::checkTwin(mlir::ModuleOp module,
                                             const JitOptions &options,
                                             const VariantOptions &variants) {
  TwinOutcome outcome;
  auto twin = makeTwin(module);
  if (!twin) {
    outcome.notes.push_back("no twin: " + llvm::toString(twin.takeError()));
    return outcome;
  }
  JitOptions own = options;
  own.dumpDirectory.clear();
  own.cacheDirectory.clear();
  // Of another processor nothing can be run here.
  if (own.cpu != "host") {
    outcome.notes.push_back("no twin: expected code for this processor, got "
                            "code for " +
                            own.cpu);
    return outcome;
  }
  if (own.pipeline.hiddenBlocks == 0) {
    own.pipeline.hiddenBlocks = 1;
    for (int64_t ranks : variants.grids)
      own.pipeline.hiddenBlocks =
          std::lcm(own.pipeline.hiddenBlocks, countHiddenBlocks(**twin, ranks));
  }
  for (int64_t ranks : variants.grids)
    if (llvm::Error error =
            Twin(**twin, own, variants).checkGrid(ranks, outcome))
      return std::move(error);
  return outcome;
}

llvm::Expected<std::string> tools::addOutcome(llvm::StringRef manifest,
                                              const TwinOutcome &outcome) {
  std::string text = manifest.str();
  for (const TwinOutcome::Grid &grid : outcome.grids) {
    Result<std::string> next =
        qualifyVariants(text, grid.ranks, grid.entry, false, grid.levels);
    if (!next.ok())
      return toError(next.status());
    text = std::move(*next);
  }
  Result<std::string> noted = addNotes(text, outcome.notes);
  if (!noted.ok())
    return toError(noted.status());
  return *noted;
}
