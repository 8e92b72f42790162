// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "session/BundleGrids.h"

#include <algorithm>

using namespace moira;
using namespace moira::runtime;

/// The most ranks that an entry of a program needs.
static int32_t ranksOf(const Program &program) {
  int32_t most = 1;
  for (const EntrySpec &entry : program.manifest().entries)
    most = std::max<int32_t>(most, entry.ranks);
  return most;
}

BundleGrids::BundleGrids(std::shared_ptr<const Program> program)
    : list{ranksOf(*program)}, firstProgram(std::move(program)) {}

Result<std::shared_ptr<BundleGrids>>
BundleGrids::open(std::shared_ptr<const BundleFile> file) {
  Result<std::vector<int32_t>> ranks = listGrids(file->contents().manifest);
  if (!ranks.ok())
    return ranks.status();
  bool several = ranks->size() > 1;
  Result<std::shared_ptr<const Program>> program =
      Program::load(file, several ? ranks->front() : 0);
  if (!program.ok())
    return program.status();
  if (!several)
    return std::make_shared<BundleGrids>(std::move(*program));
  std::shared_ptr<BundleGrids> grids(new BundleGrids());
  grids->list = std::move(*ranks);
  grids->firstProgram = *program;
  grids->loaded[grids->list.front()] = std::move(*program);
  grids->file = std::move(file);
  return grids;
}

Result<std::shared_ptr<const Program>> BundleGrids::forRanks(int32_t ranks) {
  if (!file)
    return firstProgram;
  std::lock_guard<std::mutex> lock(mutex);
  auto found = loaded.find(ranks);
  if (found != loaded.end())
    return found->second;
  Result<std::shared_ptr<const Program>> program = Program::load(file, ranks);
  if (program.ok())
    loaded[ranks] = *program;
  return program;
}
