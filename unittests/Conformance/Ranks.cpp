// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Conformance/Ranks.h"

#include "collective/Communicator.h"
#include "collective/InProcess.h"

#include <gtest/gtest.h>

#include <thread>

using namespace moira;
using namespace moira::conformance;
using namespace moira::reference;

/// Calls action(rank) on a thread for each rank.
template <typename Action> void RankRunners::onAll(const Action &action) {
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < runners.size(); ++rank)
    threads.emplace_back([&action, rank] { action(rank); });
  for (std::thread &thread : threads)
    thread.join();
}

RankRunners::RankRunners(std::shared_ptr<const runtime::Program> program,
                         int ranks, int ranksPerNode, int threads) {
  runtime::CommunicatorOptions options;
  options.ranksPerNode = ranksPerNode;
  for (auto &end : runtime::makeInProcess(ranks)) {
    auto group = runtime::Communicator::create(std::move(end), options);
    EXPECT_TRUE(group.ok()) << group.status().message;
    runners.push_back(
        std::make_unique<Runner>(program, threads, std::move(*group)));
  }
}

void RankRunners::bindWeights(const Layer &layer, const LayerInputs &inputs,
                              const WeightFormat &format) {
  onAll(
      [&](size_t rank) { runners[rank]->bindWeights(layer, inputs, format); });
}

void RankRunners::setPlan(const runtime::PlanOptions &plan) {
  for (auto &runner : runners)
    runner->setPlan(plan);
}

void RankRunners::setVariant(const std::string &variant) {
  for (auto &runner : runners)
    runner->setVariant(variant);
}

/// Appends the rows of `more`.
static void append(const Output &more, Output &all) {
  all.shape[0] += more.shape[0];
  all.bytes.insert(all.bytes.end(), more.bytes.begin(), more.bytes.end());
}

/// Some tokens of an argument that has tokens, all of another one. Cut here,
/// because inputs of no tokens would be taken for absent ones.
static Argument takeRows(const Argument &whole, int64_t first, int64_t count) {
  if (whole.name == "bias")
    return whole;
  int64_t width = 1;
  for (size_t d = 1; d < whole.shape.size(); ++d)
    width *= whole.shape[d];
  Argument part = whole;
  part.shape[0] = count;
  part.values.assign(whole.values.begin() + first * width,
                     whole.values.begin() + (first + count) * width);
  return part;
}

Outputs RankRunners::run(const Layer &layer, const LayerInputs &inputs,
                         const std::vector<int32_t> &tokens) {
  std::vector<Argument> whole = stepArguments(layer, inputs);
  std::vector<std::vector<Argument>> parts;
  int64_t first = 0;
  for (int32_t count : tokens) {
    parts.emplace_back();
    for (const Argument &argument : whole)
      parts.back().push_back(takeRows(argument, first, count));
    first += count;
  }
  std::vector<Outputs> outputs(runners.size());
  onAll([&](size_t rank) { outputs[rank] = runners[rank]->run(parts[rank]); });
  Outputs all = outputs[0];
  for (size_t rank = 1; rank < outputs.size(); ++rank) {
    if (outputs[rank].size() != all.size())
      return {}; // the step has failed the test
    for (size_t i = 0; i < all.size(); ++i)
      append(outputs[rank][i], all[i]);
  }
  return all;
}
