// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Steps of a device that are kept as graphs: where all that decides what a step
// gives out is as it was, the graph is given out instead and the host code does
// not run.

#ifndef MOIRA_RUNTIME_SESSION_STEPGRAPHS_H
#define MOIRA_RUNTIME_SESSION_STEPGRAPHS_H

#include "base/Memory.h"
#include "base/Types.h"
#include "device/Device.h"

#include <memory>
#include <vector>

namespace moira::runtime {

/// What is known of a step with one key.
struct StepGraph {
  struct Result {
    int64_t index = 0;
    Shape shape;
  };
  /// Counts and sizes of a routing, [2, experts], which the graph copies to
  /// memory of their own, since workspace is used again.
  struct Loads {
    int64_t layer = 0, experts = 0;
    Storage memory;
  };

  std::vector<int64_t> key;
  /// Nothing but work of the device: the host reads no number of it, and the
  /// device reads no memory of the host.
  bool isFixed = true;
  std::shared_ptr<Graph> graph; ///< null: not kept yet
  std::vector<Result> results;
  std::vector<Loads> loads;
  int64_t launches = 0;
};

/// The graphs of a session, found by key. The oldest goes where there are too
/// many. One thread at a time.
class StepGraphs {
public:
  static constexpr size_t most = 16;

  /// Null where there is none.
  StepGraph *find(const std::vector<int64_t> &key) {
    for (const std::unique_ptr<StepGraph> &graph : graphs)
      if (graph->key == key)
        return graph.get();
    return nullptr;
  }
  StepGraph *add(std::vector<int64_t> key) {
    if (graphs.size() == most)
      graphs.erase(graphs.begin());
    graphs.push_back(std::make_unique<StepGraph>());
    graphs.back()->key = std::move(key);
    return graphs.back().get();
  }
  void remove(const StepGraph *graph) {
    for (size_t i = graphs.size(); i-- > 0;)
      if (graphs[i].get() == graph)
        graphs.erase(graphs.begin() + int64_t(i));
  }

private:
  std::vector<std::unique_ptr<StepGraph>> graphs;
};

} // namespace moira::runtime

#endif // MOIRA_RUNTIME_SESSION_STEPGRAPHS_H
