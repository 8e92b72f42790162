// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Conformance/GradientLayer.h"

#include "collective/InProcess.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <sstream>
#include <thread>

using namespace moira;
using namespace moira::conformance;
using runtime::DataType;
using runtime::ResultTensor;
using runtime::Shape;
using runtime::TensorView;

std::ostream &moira::conformance::operator<<(std::ostream &stream,
                                             const GradientGrid &grid) {
  return stream << "W=" << grid.ranks << " E=" << grid.experts
                << " r=" << grid.copies << (grid.groups ? " groups" : " equal")
                << (grid.padded ? " padded" : " ragged")
                << " spare=" << grid.spare
                << (grid.recompute ? " recompute" : "");
}

static std::string replaceAll(std::string text, const std::string &from,
                              const std::string &to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos;
       at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

static std::string readProgram() {
  std::ifstream file(MOIRA_SOURCE_DIR
                     "/unittests/Conformance/gradient-layer.mlir.in");
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_TRUE(file.good()) << "expected the program's text, got none";
  return text.str();
}

std::string GradientLayer::print() const {
  std::string e = std::to_string(experts),
              k = std::to_string(std::min<int64_t>(2, experts));
  std::string result = readProgram();
  result = replaceAll(result, "$ROUTER",
                      integers ? "score = identity, normalize = none" : "");
  result = replaceAll(
      result, "$CAPACITY",
      padded ? "%f = arith.constant 1.25 : f64\n  %k = arith.constant " + k +
                   " : index\n  %c = moe.capacity switch tokens(%t) factor(%f)"
                   " top_k(%k) {alignment = 8 : i64, experts = " +
                   e + " : i64}"
             : "");
  result = replaceAll(result, "$CAPPED", padded ? "capacity(%c)" : "");
  result = replaceAll(result, "$PADDED", padded ? "padded" : "");
  result = replaceAll(result, "$R", padded ? "$Ex?x" : "?x");
  result = replaceAll(result, "$E", e);
  result = replaceAll(result, "$K", k);
  return replaceAll(result, "$H", std::to_string(hidden));
}

double GradientLayer::value(int argument, int64_t i) const {
  int64_t number = (i + argument * 7919) * 2654435761 % 1000003;
  return integers ? number % 3 - 1 : float(number % 2001 - 1000) / 997.0f;
}

std::vector<GradientArgument>
moira::conformance::argumentsOf(const GradientLayer &layer) {
  int64_t e = layer.experts, h = layer.hidden, in = layer.features,
          out = layer.outFeatures;
  return {{"x", {-1, in}},         {"router", {e, in}}, {"gate", {e, h, in}},
          {"up", {e, h, in}},      {"up_bias", {e, h}}, {"down", {e, out, h}},
          {"down_bias", {e, out}}, {"scale", {out}}};
}

static std::vector<float> valuesOf(const GradientLayer &layer, int argument,
                                   int64_t first, int64_t count) {
  std::vector<float> values(count + 1); // never null
  for (int64_t i = 0; i < count; ++i)
    values[i] = static_cast<float>(layer.value(argument, first + i));
  return values;
}

static int64_t countOf(const Shape &shape) {
  int64_t count = 1;
  for (int64_t dim : shape)
    count *= dim;
  return count;
}

GradientRanks::GradientRanks(std::shared_ptr<const runtime::Program> program,
                             int ranks, int ranksPerNode)
    : thereTraffic(ranks), backTraffic(ranks) {
  if (ranks == 1) {
    runners.push_back(std::make_unique<Runner>(program));
    communicators.push_back(nullptr);
    return;
  }
  runtime::CommunicatorOptions options;
  options.ranksPerNode = ranksPerNode;
  for (auto &end : runtime::makeInProcess(ranks)) {
    auto group = runtime::Communicator::create(std::move(end), options);
    EXPECT_TRUE(group.ok()) << group.status().message;
    communicators.push_back(group->get());
    runners.push_back(std::make_unique<Runner>(program, 1, std::move(*group)));
  }
}

void GradientRanks::bind(const GradientLayer &layer) {
  std::vector<GradientArgument> arguments = argumentsOf(layer);
  for (auto &runner : runners)
    for (size_t i = 1; i < arguments.size(); ++i) {
      std::vector<float> values =
          valuesOf(layer, int(i), 0, countOf(arguments[i].shape));
      Status status = runner->get()->bind(
          arguments[i].name,
          {DataType::F32, arguments[i].shape, values.data()});
      EXPECT_TRUE(status.ok()) << status.message;
    }
}

void GradientRanks::setPlan(const runtime::PlanOptions &plan) {
  for (auto &runner : runners)
    runner->setPlan(plan);
}

static Output toOutput(const ResultTensor &tensor) {
  Output output{tensor.dtype, tensor.shape, {}};
  int64_t bytes = countOf(tensor.shape) * runtime::byteSize(tensor.dtype);
  auto *data = static_cast<const unsigned char *>(tensor.data);
  output.bytes.assign(data, data + bytes);
  return output;
}

GradientStep GradientRanks::runRank(size_t rank, const GradientLayer &layer,
                                    int64_t first, int64_t count,
                                    const std::vector<int32_t> *blocks) {
  runtime::Session &session = *runners[rank]->get();
  int64_t in = layer.features, out = layer.outFeatures;
  std::vector<float> x = valuesOf(layer, 0, first * in, count * in);
  std::vector<TensorView> inputs{{DataType::F32, {count, in}, x.data()}};
  if (blocks)
    inputs.push_back({DataType::I32,
                      {static_cast<int64_t>(blocks->size())},
                      const_cast<int32_t *>(blocks->data())});
  GradientStep step;
  std::vector<ResultTensor> results;
  std::shared_ptr<const runtime::Residuals> residuals;
  if (communicators[rank])
    communicators[rank]->resetTraffic();
  Status status = session.forward("main", inputs, results, residuals);
  EXPECT_TRUE(status.ok()) << status.message;
  if (!status.ok())
    return step;
  if (communicators[rank]) {
    thereTraffic[rank] = communicators[rank]->traffic();
    communicators[rank]->resetTraffic();
  }
  for (const ResultTensor &result : results)
    step.results.push_back(toOutput(result));
  float one = layer.integers ? 2 : 0.75f;
  std::vector<float> dy = valuesOf(layer, 9, first * out, count * out);
  std::vector<TensorView> seeds{{DataType::F32, {}, &one},
                                {DataType::F32, {count, out}, dy.data()}};
  std::vector<ResultTensor> gradients;
  status = session.backward(*residuals, seeds, gradients);
  EXPECT_TRUE(status.ok()) << status.message;
  if (!status.ok())
    return step;
  if (communicators[rank])
    backTraffic[rank] = communicators[rank]->traffic();
  for (const ResultTensor &gradient : gradients)
    step.gradients.push_back(toOutput(gradient));
  return step;
}

std::vector<GradientStep> GradientRanks::run(const GradientLayer &layer,
                                             const std::vector<int32_t> &tokens,
                                             bool blocks) {
  std::vector<GradientStep> steps(runners.size());
  std::vector<std::thread> threads;
  int64_t first = 0;
  for (size_t rank = 0; rank < runners.size(); ++rank) {
    int64_t count = tokens[rank];
    if (runners.size() == 1)
      for (size_t block = 1; block < tokens.size(); ++block)
        count += tokens[block];
    threads.emplace_back([&, rank, first, count] {
      steps[rank] =
          runRank(rank, layer, first, count, blocks ? &tokens : nullptr);
    });
    first += count;
  }
  for (std::thread &thread : threads)
    thread.join();
  return steps;
}
