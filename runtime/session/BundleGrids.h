// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The programs of a bundle, one for each number of ranks.

#ifndef MOIRA_RUNTIME_SESSION_BUNDLEGRIDS_H
#define MOIRA_RUNTIME_SESSION_BUNDLEGRIDS_H

#include "session/Program.h"

#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace moira::runtime {

/// Loads the program for a number of ranks when it is first asked for, and
/// once. Any thread may call anything.
class BundleGrids {
public:
  /// Of a verified bundle. The first grid is loaded at once, which tells
  /// whether this machine can run the code.
  static Result<std::shared_ptr<BundleGrids>>
  open(std::shared_ptr<const BundleFile> file);
  /// Of a program that is there.
  explicit BundleGrids(std::shared_ptr<const Program> program);

  /// Numbers of ranks, in the bundle's order.
  const std::vector<int32_t> &ranks() const { return list; }
  const std::shared_ptr<const Program> &first() const { return firstProgram; }
  /// The program for `ranks` ranks. A bundle with one grid has only that: its
  /// session says which ranks an entry needs, and one without collectives runs
  /// on any.
  Result<std::shared_ptr<const Program>> forRanks(int32_t ranks);

private:
  BundleGrids() = default;

  std::vector<int32_t> list;
  std::shared_ptr<const Program> firstProgram;
  std::shared_ptr<const BundleFile> file; ///< null where nothing is to load
  std::mutex mutex;
  std::map<int32_t, std::shared_ptr<const Program>> loaded;
};

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_SESSION_BUNDLEGRIDS_H
