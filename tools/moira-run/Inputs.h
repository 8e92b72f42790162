// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef MOIRA_TOOLS_MOIRA_RUN_INPUTS_H
#define MOIRA_TOOLS_MOIRA_RUN_INPUTS_H

#include "Options.h"

#include "base/Memory.h"
#include "io/Tensor.h"
#include "session/Manifest.h"

namespace moira::tools {

/// Some rows of a batch.
struct Rows {
  int64_t begin = 0;
  int64_t count = 0;
};

/// Whether dim 0 of a tensor is that of the tokens.
bool hasTokens(const runtime::TensorSpec &spec);

/// The inputs of a step, in the entry's order: from files, given as numbers, or
/// random. They are those of the whole batch, whatever the ranks; each rank
/// takes its rows of it.
class Inputs {
public:
  /// Decides every shape and opens the files; nothing large is allocated.
  static llvm::Expected<Inputs> plan(const runtime::EntrySpec &entry,
                                     const RunOptions &options);
  /// Makes the data: afterwards every view points to memory.
  llvm::Error fill() { return fill({0, tokens()}); }
  /// Makes it for these tokens only.
  llvm::Error fill(Rows part);

  /// The next steps have so many tokens, in even parts: the first ones of those
  /// that were planned, which were all made.
  void resize(int64_t tokens);
  /// The index of a scalar input of this name.
  std::optional<size_t> findNumber(llvm::StringRef name) const;
  void setNumber(size_t index, double number);
  /// What the whole batch has for an input from now on, and where it comes
  /// from; not copied. All tokens were made.
  void setData(size_t index, const void *data, llvm::StringRef origin);

  /// The whole batch. Data pointers are null unless all of it was made.
  const std::vector<runtime::TensorView> &views() const { return tensors; }
  /// The tokens of a rank, one of those that were made.
  std::vector<runtime::TensorView> viewsOf(int rank) const;
  Rows rowsOf(int rank) const { return split[rank]; }
  /// Tokens of each rank.
  std::vector<int64_t> tokensByRank() const;
  /// Where an input comes from, in a few words.
  const std::string &origin(size_t index) const {
    return entries[index].origin;
  }
  /// Dim 0 of the first input; 0 without one.
  int64_t rows() const;
  /// Tokens of the batch.
  int64_t tokens() const { return split.back().begin + split.back().count; }
  int64_t bytes() const;

private:
  struct Entry {
    runtime::TensorSpec spec;
    std::optional<io::MappedTensor> mapped; ///< from a file
    std::optional<double> number;           ///< a scalar
    std::string origin = "random";
    runtime::Storage storage;   ///< owns what is not mapped
    const void *data = nullptr; ///< of the tokens that were made
  };

  llvm::Error give(Entry &entry, llvm::StringRef value);
  llvm::Error assign(const RunOptions &options);
  void splitEvenly(int64_t all, int64_t ranks);
  llvm::Error planSplit(const RunOptions &options, int ranks);
  llvm::Error fillOne(Entry &entry, const runtime::TensorView &view);
  /// What of an input stands in memory.
  Rows madeOf(const Entry &entry, const runtime::TensorView &view) const;

  std::vector<Entry> entries;
  std::vector<runtime::TensorView> tensors;
  std::shared_ptr<runtime::MemoryAccount> account;
  std::vector<Rows> split; ///< by rank
  Rows made;
  uint64_t seed = 0;
};

} // namespace moira::tools

#endif // MOIRA_TOOLS_MOIRA_RUN_INPUTS_H
