// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Random routing and expert programs, for comparing compiled code with the
// interpreter.

#ifndef MOIRA_UNITTESTS_REFERENCE_RANDOMPROGRAM_H
#define MOIRA_UNITTESTS_REFERENCE_RANDOMPROGRAM_H

#include "Layer.h"

namespace moira::reference {

struct RandomProgram {
  uint64_t seed = 0;
  Layer layer;
  LayerInputs inputs;
  /// All of rows, weights and results are small integers (or such integers
  /// times routing weights), so that results depend on no order of sums.
  bool integers = false;
  /// Every step is defined to the bit. Otherwise (sqrtsoftplus, whose logarithm
  /// is not pinned) weights and results agree within a few units in the last
  /// place; ids, slots and counts are equal in either case.
  bool sameBits = true;

  LayerResult evaluate() const { return reference::evaluate(layer, inputs); }
  std::string print() const { return printModule(layer, inputs); }
  /// One line: sizes and rules, for the message of a failing comparison.
  std::string describe() const;
};

/// The program of `seed`: the same on every machine. Every program is legal.
RandomProgram randomProgram(uint64_t seed);

/// How a program is spread over ranks, in the words of docs/ranks.md.
struct RandomGrid {
  int64_t ranks = 1, shards = 1, copies = 1, degree = 1;
  bool groups = false, hierarchical = false;
  int64_t ranksPerNode = 0, spareSlots = 0;
  std::vector<int32_t> tokens;    ///< of each rank
  std::vector<int32_t> slotTable; ///< [ranks, slots], or empty

  int64_t slots(int64_t experts) const {
    return experts * shards / ranks + spareSlots;
  }
};

/// A program whose token blocks are the tokens of the ranks: evaluated as it
/// is, it is the counterpart of the sharded one, whose text has no blocks.
struct RandomShardedProgram {
  RandomProgram program;
  RandomGrid grid;

  /// Whether experts compute with integers, so that no order of sums matters.
  bool hasExactSums() const {
    return program.integers && !program.layer.weightsOnInput;
  }
  /// Whether the sum over hidden has one order for every r: its blocks are
  /// added in pairs, which an odd number of them in a group breaks.
  bool hasOneOrder() const {
    int64_t group = grid.shards / (grid.copies ? grid.copies : grid.shards);
    return hasExactSums() || grid.copies < 2 || group == 1 || group % 2 == 0;
  }
  /// The layer as each rank has it.
  Layer rankLayer() const;
  std::string describe() const;
};
RandomShardedProgram randomShardedProgram(uint64_t seed);

} // namespace moira::reference

#endif // MOIRA_UNITTESTS_REFERENCE_RANDOMPROGRAM_H
