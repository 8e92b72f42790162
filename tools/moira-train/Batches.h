// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What is trained on: windows of a text, or rows of a file.

#ifndef MOIRA_TOOLS_MOIRA_TRAIN_BATCHES_H
#define MOIRA_TOOLS_MOIRA_TRAIN_BATCHES_H

#include "Options.h"

#include "io/Tensor.h"

namespace moira::tools {

/// Tokens of some sequences and the token after each.
struct Batch {
  int64_t sequences = 0, length = 0;
  std::vector<int32_t> tokens, targets; ///< [sequences, length]
};

/// Where a window of `length + 1` bytes of a text of `size` bytes begins:
///
///   mix(mix(seed) + number * 0x9E3779B97F4A7C15) mod (size - length)
///
/// in integers of 64 bits, where `number` counts the sequences of a run and mix
/// is the finalizer of SplitMix64. A sequence so depends on nothing but its
/// number, whatever the ranks.
int64_t windowOf(uint64_t seed, uint64_t number, int64_t size, int64_t length);

class Batches {
public:
  /// Reads the files; sequences have `length` tokens.
  static llvm::Expected<Batches> open(const TrainOptions &options,
                                      int64_t length);

  /// Sequences [first, first + count) of the run.
  llvm::Expected<Batch> train(int64_t first, int64_t count) const;
  /// The same of what is not trained on: windows that follow each other.
  Batch evaluate(int64_t first, int64_t count) const;
  /// How many of those there are.
  int64_t evaluations() const {
    return (int64_t(text.size()) - trained - 1) / length;
  }

private:
  int64_t length = 0;
  uint64_t seed = 0;
  std::string text;
  int64_t trained = 0; ///< bytes of the text to train on
  std::optional<io::MappedTensor> rows;
};

} // namespace moira::tools

#endif // MOIRA_TOOLS_MOIRA_TRAIN_BATCHES_H
