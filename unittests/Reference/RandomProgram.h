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

} // namespace moira::reference

#endif // MOIRA_UNITTESTS_REFERENCE_RANDOMPROGRAM_H
