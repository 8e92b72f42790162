// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef MOIRA_TOOLS_MOIRA_RUN_INPUTS_H
#define MOIRA_TOOLS_MOIRA_RUN_INPUTS_H

#include "Options.h"

#include "base/Memory.h"
#include "io/Tensor.h"
#include "session/Manifest.h"

namespace moira::tools {

/// The inputs of a step, in the entry's order: from files, given as numbers, or
/// random.
class Inputs {
public:
  /// Decides every shape and opens the files; nothing large is allocated.
  static llvm::Expected<Inputs> plan(const runtime::EntrySpec &entry,
                                     const RunOptions &options);
  /// Makes the data: afterwards every view points to memory.
  llvm::Error fill();

  /// Data pointers are null before `fill`.
  const std::vector<runtime::TensorView> &views() const { return tensors; }
  /// Where an input comes from, in a few words.
  const std::string &origin(size_t index) const {
    return entries[index].origin;
  }
  /// Dim 0 of the first input; 0 without one.
  int64_t rows() const;
  int64_t bytes() const;

private:
  struct Entry {
    runtime::TensorSpec spec;
    std::optional<io::MappedTensor> mapped; ///< from a file
    std::optional<double> number;           ///< a scalar
    std::string origin = "random";
    runtime::Storage storage; ///< owns what is not mapped
  };

  llvm::Error give(Entry &entry, llvm::StringRef value);
  llvm::Error assign(const RunOptions &options);
  llvm::Error fillOne(Entry &entry, runtime::TensorView &view);

  std::vector<Entry> entries;
  std::vector<runtime::TensorView> tensors;
  std::shared_ptr<runtime::MemoryAccount> account;
  uint64_t seed = 0;
};

} // namespace moira::tools

#endif // MOIRA_TOOLS_MOIRA_RUN_INPUTS_H
