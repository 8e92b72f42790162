// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Conformance/GradientLayer.h"

#include "collective/InProcess.h"

#include <gtest/gtest.h>

#include <cstring>
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

/// $E, $K, $H are numbers, $R the type of rows of a feature size.
static const char *const text = R"(
func.func @main(%x: tensor<?x9xf32>,
    %wr: tensor<$Ex9xf32> {moe.param = #moe.param<"router">},
    %wg: tensor<$Ex$Hx9xf32> {moe.param = #moe.param<"gate">},
    %w1: tensor<$Ex$Hx9xf32> {moe.param = #moe.param<"up">},
    %b1: tensor<$Ex$Hxf32> {moe.param = #moe.param<"up_bias">},
    %w2: tensor<$Ex7x$Hxf32> {moe.param = #moe.param<"down">},
    %b2: tensor<$Ex7xf32> {moe.param = #moe.param<"down_bias">},
    %scale: tensor<7xf32> {moe.param = #moe.param<"scale">})
    -> (tensor<f32>, tensor<?x7xf32>) {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %t = tensor.dim %x, %c0 : tensor<?x9xf32>
  %le = tensor.empty(%t) : tensor<?x$Exf32>
  %lz = linalg.fill ins(%zero : f32) outs(%le : tensor<?x$Exf32>) -> tensor<?x$Exf32>
  %logits = linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>,
      affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
      ins(%x, %wr : tensor<?x9xf32>, tensor<$Ex9xf32>) outs(%lz : tensor<?x$Exf32>) -> tensor<?x$Exf32>
  %ids, %weights = moe.gate %logits router<$ROUTER> : tensor<?x$Exf32> -> tensor<?x$Kxi32>, tensor<?x$Kxf32>
  %counts = moe.count %ids : tensor<?x$Kxi32> -> tensor<$Exi32>
  $CAPACITY
  %slots, %sizes, %bound = moe.assign %ids choice_major $PADDED counts(%counts : tensor<$Exi32>) $CAPPED
      : tensor<?x$Kxi32> -> tensor<?x$Kxi32>, tensor<$Exi32>, index
  %rows = moe.dispatch %x, %slots, %sizes, %bound
      : tensor<?x9xf32>, tensor<?x$Kxi32>, tensor<$Exi32> -> tensor<$R9xf32>
  %out = moe.expert rows(%rows : tensor<$R9xf32>) groups(%sizes : tensor<$Exi32>)
      per_expert(%wg, %w1, %b1, %w2, %b2 : tensor<$Ex$Hx9xf32>, tensor<$Ex$Hx9xf32>,
        tensor<$Ex$Hxf32>, tensor<$Ex7x$Hxf32>, tensor<$Ex7xf32>) -> tensor<$R7xf32> {
  ^bb0(%r: tensor<?x9xf32>, %g: tensor<$Hx9xf32>, %u: tensor<$Hx9xf32>, %ub: tensor<$Hxf32>,
      %d: tensor<7x$Hxf32>, %db: tensor<7xf32>):
    %i0 = arith.constant 0 : index
    %z = arith.constant 0.0 : f32
    %n = tensor.dim %r, %i0 : tensor<?x9xf32>
    %he = tensor.empty(%n) : tensor<?x$Hxf32>
    %hz = linalg.fill ins(%z : f32) outs(%he : tensor<?x$Hxf32>) -> tensor<?x$Hxf32>
    %gp = linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>,
        affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
        ins(%r, %g : tensor<?x9xf32>, tensor<$Hx9xf32>) outs(%hz : tensor<?x$Hxf32>) -> tensor<?x$Hxf32>
    %hb = linalg.broadcast ins(%ub : tensor<$Hxf32>) outs(%he : tensor<?x$Hxf32>) dimensions = [0]
    %up = linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>,
        affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
        ins(%r, %u : tensor<?x9xf32>, tensor<$Hx9xf32>) outs(%hb : tensor<?x$Hxf32>) -> tensor<?x$Hxf32>
    %h = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>,
        affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>],
        iterator_types = ["parallel", "parallel"]}
        ins(%gp, %up : tensor<?x$Hxf32>, tensor<?x$Hxf32>) outs(%he : tensor<?x$Hxf32>) {
    ^bb1(%a: f32, %b: f32, %o: f32):
      %relu = arith.maximumf %a, %z : f32
      %v = arith.mulf %relu, %b : f32
      linalg.yield %v : f32
    } -> tensor<?x$Hxf32>
    %ye = tensor.empty(%n) : tensor<?x7xf32>
    %yb = linalg.broadcast ins(%db : tensor<7xf32>) outs(%ye : tensor<?x7xf32>) dimensions = [0]
    %y = linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>,
        affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
        ins(%h, %d : tensor<?x$Hxf32>, tensor<7x$Hxf32>) outs(%yb : tensor<?x7xf32>) -> tensor<?x7xf32>
    moe.yield %y : tensor<?x7xf32>
  }
  %moe = moe.combine %out, %slots weights(%weights : tensor<?x$Kxf32>)
      : tensor<$R7xf32>, tensor<?x$Kxi32> -> tensor<?x7xf32>
  %se = tensor.empty(%t) : tensor<?x7xf32>
  %scaled = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>,
      affine_map<(m, n) -> (n)>, affine_map<(m, n) -> (m, n)>],
      iterator_types = ["parallel", "parallel"]}
      ins(%moe, %scale : tensor<?x7xf32>, tensor<7xf32>) outs(%se : tensor<?x7xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %v = arith.mulf %a, %b : f32
    linalg.yield %v : f32
  } -> tensor<?x7xf32>
  %z0 = arith.constant dense<0.0> : tensor<f32>
  %loss = linalg.reduce { arith.addf } ins(%scaled : tensor<?x7xf32>) outs(%z0 : tensor<f32>) dimensions = [0, 1]
  return %loss, %scaled : tensor<f32>, tensor<?x7xf32>
}
)";

static std::string replaceAll(std::string text, const std::string &from,
                              const std::string &to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos;
       at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

std::string GradientLayer::print() const {
  std::string e = std::to_string(experts),
              k = std::to_string(std::min<int64_t>(2, experts));
  std::string result = text;
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
