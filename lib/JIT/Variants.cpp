// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "VariantUnits.h"

#include "moira/Dialect/MoE/Utils/Entry.h"
#include "moira/JIT/Diagnostics.h"
#include "session/ManifestMerge.h"

#include "mlir/IR/Remarks.h"
#include "llvm/Support/Path.h"

#include <numeric>

using namespace moira;
using namespace mlir;

std::string VariantUnit::name() const {
  std::string text = "r" + std::to_string(copies);
  if (copies > 0)
    text += "-" + moe::stringifySchedule(schedule).str();
  return text;
}

namespace {

/// Compiles the units of a program.
class VariantCompiler {
public:
  VariantCompiler(ModuleOp source, const JitOptions &options,
                  const VariantOptions &variants)
      : source(source), options(options), variants(variants) {}

  llvm::Expected<OwningOpRef<ModuleOp>> run();

private:
  llvm::Error findExperts();
  OwningOpRef<ModuleOp> cloneSource() const {
    return cast<ModuleOp>(ModuleOp(source)->clone());
  }
  std::vector<int64_t> listCopies(int64_t ranks, CompiledGrid &grid);
  /// The compiler for a unit.
  llvm::Expected<HostCompiler> create(const VariantUnit &unit) const;
  /// Why experts cannot be spread so; success where they can.
  llvm::Error tryShards(const VariantUnit &unit) const;
  llvm::Expected<CompiledUnit> compile(const VariantUnit &unit) const;
  llvm::Error addUnit(CompiledGrid &grid, const VariantUnit &unit);
  llvm::Expected<CompiledGrid> compileGrid(int64_t ranks);
  void leaveOut(CompiledGrid &grid, std::string what, const std::string &why);

  ModuleOp source;
  JitOptions options;
  const VariantOptions &variants;
  std::vector<moe::ExpertOp> experts;
  /// r that some grid can have.
  std::vector<int64_t> done;
  std::string lastReason;
};

} // namespace

llvm::Error VariantCompiler::findExperts() {
  ErrorCollector errors(source.getContext());
  FailureOr<func::FuncOp> entry =
      moe::findEntry(source, options.pipeline.entry);
  if (failed(entry))
    return errors.take("expected a function to compile, got none");
  // The entry may call functions that have them.
  source.walk([&](moe::ExpertOp expert) { experts.push_back(expert); });
  return llvm::Error::success();
}

void VariantCompiler::leaveOut(CompiledGrid &grid, std::string what,
                               const std::string &why) {
  lastReason = why;
  what += " for " + std::to_string(grid.ranks) +
          (grid.ranks == 1 ? " rank" : " ranks");
  grid.notes.push_back("left out " + what + ": " + why);
  Operation *op = experts.empty() ? source.getOperation() : experts.front();
  auto function = op->getParentOfType<func::FuncOp>();
  remark::missed(op->getLoc(),
                 remark::RemarkOpts::name("Variants")
                     .category("moe-variants")
                     .function(function ? function.getName() : StringRef()))
      << remark::add("{0} is left out: {1}", what, why);
}

/// The r to try for a grid, the usual one first.
std::vector<int64_t> VariantCompiler::listCopies(int64_t ranks,
                                                 CompiledGrid &grid) {
  std::vector<int64_t> wanted = variants.copies;
  int64_t shards = 0;
  for (moe::ExpertOp expert : experts)
    shards = std::gcd(
        shards, std::max<int64_t>(
                    1, ranks / std::max<int64_t>(1, expert.getNumExperts())));
  if (wanted.empty())
    for (int64_t r = 0; r <= std::max<int64_t>(1, shards); ++r)
      if (r == 0 || shards % r == 0)
        wanted.push_back(r);
  // Nothing travels on one rank, or without experts.
  if (ranks == 1 || experts.empty())
    return {1};
  std::vector<int64_t> copies;
  for (int64_t r : wanted)
    if (r == 0 || shards % r == 0)
      copies.push_back(r);
    else
      leaveOut(grid, "r = " + std::to_string(r),
               "expected a divisor of the " + std::to_string(shards) +
                   (shards == 1 ? " shard" : " shards") + " of an expert");
  if (auto usual = llvm::find(copies, 1); usual != copies.end())
    std::rotate(copies.begin(), usual, usual + 1);
  return copies;
}

llvm::Expected<HostCompiler>
VariantCompiler::create(const VariantUnit &unit) const {
  JitOptions own = options;
  own.pipeline.ranks = unit.ranks;
  own.pipeline.copies = unit.copies;
  own.pipeline.schedule = unit.schedule;
  if (!own.dumpDirectory.empty()) {
    llvm::SmallString<128> path(own.dumpDirectory);
    llvm::sys::path::append(path,
                            "g" + llvm::Twine(unit.ranks) + "-" + unit.name());
    own.dumpDirectory = path.str();
  }
  return HostCompiler::create(own);
}

llvm::Error VariantCompiler::tryShards(const VariantUnit &unit) const {
  JitOptions own = options;
  own.dumpDirectory.clear();
  own.pipeline.ranks = unit.ranks;
  own.pipeline.copies = unit.copies;
  llvm::Expected<HostCompiler> compiler = HostCompiler::create(own);
  if (!compiler)
    return compiler.takeError();
  OwningOpRef<ModuleOp> clone = cloneSource();
  return compiler->lower(*clone, Phase::Sharded);
}

llvm::Expected<CompiledUnit>
VariantCompiler::compile(const VariantUnit &unit) const {
  llvm::Expected<HostCompiler> compiler = create(unit);
  if (!compiler)
    return compiler.takeError();
  CompiledUnit compiled{unit, cloneSource(), {}};
  if (llvm::Error error = compiler->lower(*compiled.module, Phase::Target))
    return std::move(error);
  llvm::Expected<std::string> text = getManifest(*compiled.module);
  if (!text)
    return text.takeError();
  Result<runtime::Manifest> manifest = runtime::Manifest::parse(*text);
  if (!manifest.ok())
    return llvm::createStringError(manifest.status().message);
  compiled.manifest = std::move(*manifest);
  return std::move(compiled);
}

/// Whether a unit that says how exchanges are cut cuts none.
static bool cutsNothing(const CompiledUnit &unit) {
  return llvm::all_of(unit.manifest.entries, [](const auto &entry) {
    return llvm::all_of(entry.variants, [](const auto &variant) {
      return variant.schedule.empty();
    });
  });
}

llvm::Error VariantCompiler::addUnit(CompiledGrid &grid,
                                     const VariantUnit &unit) {
  llvm::Expected<CompiledUnit> compiled = compile(unit);
  if (!compiled)
    return compiled.takeError();
  if (unit.ranks > 1 && unit.copies > 0 && !grid.units.empty() &&
      unit.schedule != variants.schedules.front() && cutsNothing(*compiled)) {
    leaveOut(grid, unit.name(), "no exchange of the program is cut");
    return llvm::Error::success();
  }
  if (!grid.units.empty()) {
    runtime::Manifest probe = grid.units.front().manifest;
    Status same = runtime::mergeVariants(probe, compiled->manifest);
    if (!same.ok() && variants.copies.empty()) {
      leaveOut(grid, unit.name(), same.message);
      return llvm::Error::success();
    }
    if (!same.ok())
      return llvm::createStringError("--variants: " + unit.name() + " beside " +
                                     grid.units.front().unit.name() + ": " +
                                     same.message);
  }
  grid.units.push_back(std::move(*compiled));
  return llvm::Error::success();
}

llvm::Expected<CompiledGrid> VariantCompiler::compileGrid(int64_t ranks) {
  CompiledGrid grid{ranks, {}, {}};
  for (int64_t r : listCopies(ranks, grid)) {
    VariantUnit unit{ranks, r, variants.schedules.front()};
    if (r > 1)
      if (llvm::Error error = tryShards(unit)) {
        leaveOut(grid, "r = " + std::to_string(r),
                 llvm::toString(std::move(error)));
        continue;
      }
    done.push_back(r);
    // What is not cut has no schedule.
    bool isCut = r > 0 && ranks > 1 && !experts.empty();
    size_t count = isCut ? variants.schedules.size() : 1;
    for (size_t i = 0; i < count; ++i) {
      unit.schedule = r == 0 ? moe::Schedule::Equal : variants.schedules[i];
      if (llvm::Error error = addUnit(grid, unit))
        return std::move(error);
    }
  }
  return std::move(grid);
}

llvm::Expected<OwningOpRef<ModuleOp>> VariantCompiler::run() {
  if (llvm::Error error = findExperts())
    return std::move(error);
  PipelineOptions &pipeline = options.pipeline;
  if (pipeline.oracle)
    return llvm::createStringError(
        "--variants: expected the program, got --oracle, which has one form");
  // All grids add in the same order.
  if (pipeline.hiddenBlocks == 0) {
    pipeline.hiddenBlocks = 1;
    for (int64_t ranks : variants.grids)
      pipeline.hiddenBlocks =
          std::lcm(pipeline.hiddenBlocks, countHiddenBlocks(source, ranks));
  }
  std::vector<CompiledGrid> grids;
  for (int64_t ranks : variants.grids) {
    llvm::Expected<CompiledGrid> grid = compileGrid(ranks);
    if (!grid)
      return grid.takeError();
    if (grid->units.empty())
      return llvm::createStringError(
          "--variants: expected at least one r that is legal for " +
          llvm::Twine(ranks) + " ranks, got none: " + lastReason);
    grids.push_back(std::move(*grid));
  }
  // Where nothing travels r = 0 and 1 are the same.
  for (int64_t r : variants.copies)
    if (!llvm::is_contained(done, r) && (r > 1 || !lastReason.empty()))
      return llvm::createStringError(
          "--variants: expected a grid that can have r = " + llvm::Twine(r) +
          ", got none: " +
          (lastReason.empty() ? "nothing travels on one rank or without experts"
                              : lastReason));
  return mergeUnits(std::move(grids), pipeline.hiddenBlocks);
}

llvm::Expected<OwningOpRef<ModuleOp>>
moira::lowerVariants(ModuleOp module, const JitOptions &options,
                     const VariantOptions &variants) {
  return VariantCompiler(module, options, variants).run();
}
