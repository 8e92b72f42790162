// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Many small stacks on one system thread.

#ifndef MOIRA_RUNTIME_EMULATOR_FIBRE_H
#define MOIRA_RUNTIME_EMULATOR_FIBRE_H

#include "base/Status.h"

#include <cstddef>
#include <memory>
#include <vector>

namespace moira::emulator {

/// Stacks of `count` fibres and the context of the thread that runs them. One
/// thread uses a set at a time; a fibre never moves to another thread while its
/// function runs.
class FibreSet {
public:
  FibreSet();
  ~FibreSet();
  FibreSet(const FibreSet &) = delete;
  FibreSet &operator=(const FibreSet &) = delete;

  /// Makes `count` fibres, each to begin with function(argument) when it is
  /// first switched to. What an earlier set of fibres had on its stacks is
  /// forgotten: no destructor runs.
  Status reset(int count, void (*function)(void *), void *argument);

  /// Leaves the running fibre (-1: the caller of the first switch) for another.
  /// Fibre -1 is that caller again. A function must never return.
  void switchTo(int fibre);
  int running() const { return current; }

private:
  struct Context;
  struct Implementation;
  std::unique_ptr<Implementation> implementation;
  int current = -1;
};

} // namespace moira::emulator

#endif // MOIRA_RUNTIME_EMULATOR_FIBRE_H
