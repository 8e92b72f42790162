// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Conformance/CharMoE.h"

#include "Conformance/Training.h"

#include <cmath>
#include <fstream>
#include <sstream>

using namespace moira;
using namespace moira::conformance;
using namespace moira::runtime;

static constexpr uint64_t kGolden = 0x9E3779B97F4A7C15;

/// SplitMix64's last step.
static uint64_t mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

CharBatch conformance::makeCharBatch(const std::string &text, uint64_t seed,
                                     int64_t step, int64_t batch) {
  CharBatch result;
  result.sequences = batch;
  for (int64_t row = 0; row < batch; ++row) {
    uint64_t counter = uint64_t(step * batch + row) * kGolden;
    uint64_t begin = mix(mix(seed) + counter) % (text.size() - 64);
    for (int64_t i = 0; i < 64; ++i) {
      result.tokens.push_back(uint8_t(text[begin + i]));
      result.targets.push_back(uint8_t(text[begin + i + 1]));
    }
  }
  return result;
}

CharWeights::CharWeights(uint64_t seed) {
  uint64_t number = 0;
  auto add = [&](const std::string &name, Shape shape) -> Parameter & {
    Parameter parameter{name, shape, {}};
    int64_t count = 1;
    for (int64_t size : shape)
      count *= size;
    double scale = std::pow(double(shape.back()), -0.5) / (1 << 23);
    uint64_t base = mix((seed << 32) + number++);
    for (int64_t i = 0; i < count; ++i) {
      double top = double(mix(base + uint64_t(i) * kGolden) >> 40);
      parameter.values.push_back(
          shape.size() == 1 ? 1.0f : float((top + 0.5 - (1 << 23)) * scale));
    }
    parameters.push_back(std::move(parameter));
    return parameters.back();
  };
  add("embedding.weight", {128, 96});
  add("positions.weight", {64, 96});
  for (int layer = 0; layer < 4; ++layer) {
    std::string name = "layers." + std::to_string(layer) + ".";
    add(name + "attention_norm.weight", {96});
    for (const char *which : {"q", "k", "v", "o"})
      add(name + "attention." + which + "_proj.weight", {96, 96});
    add(name + "moe_norm.weight", {96});
    add(name + "moe.router.weight", {8, 96});
    const std::pair<const char *, Shape> parts[] = {
        {"gate", {192, 96}}, {"up", {192, 96}}, {"down", {96, 192}}};
    std::vector<Parameter> stacks;
    for (const auto &[part, shape] : parts)
      stacks.push_back({name + "moe.experts.{}." + part + "_proj.weight",
                        {8, shape[0], shape[1]},
                        {}});
    for (int expert = 0; expert < 8; ++expert)
      for (size_t i = 0; i < 3; ++i) {
        std::vector<float> one = add("", parts[i].second).values;
        parameters.pop_back();
        stacks[i].values.insert(stacks[i].values.end(), one.begin(), one.end());
      }
    for (Parameter &stack : stacks)
      parameters.push_back(std::move(stack));
  }
  add("norm.weight", {96});
  add("head.weight", {128, 96});
}

testing::AssertionResult CharWeights::bind(Session &session) const {
  for (const Parameter &parameter : parameters) {
    Status status =
        session.bind(parameter.name,
                     {DataType::F32, parameter.shape, parameter.values.data()});
    if (!status.ok())
      return testing::AssertionFailure() << status.message;
  }
  std::vector<std::string> unbound = session.unbound();
  if (!unbound.empty())
    return testing::AssertionFailure() << unbound.front() << " is not bound";
  return testing::AssertionSuccess();
}

std::shared_ptr<const Program> conformance::compileCharMoE() {
  return compileTraining(
      readText(MOIRA_SOURCE_DIR "/examples/char-moe/char-moe.mlir"), {"adamw"});
}

std::vector<std::pair<std::string, std::vector<double>>>
conformance::readFixture(const std::string &name) {
  std::ifstream file(MOIRA_SOURCE_DIR "/test/fixtures/char-moe/" + name);
  std::vector<std::pair<std::string, std::vector<double>>> rows;
  std::string line;
  std::getline(file, line);
  while (std::getline(file, line)) {
    std::stringstream fields(line);
    std::string field;
    std::getline(fields, field, ',');
    rows.push_back({field, {}});
    while (std::getline(fields, field, ','))
      rows.back().second.push_back(std::stod(field));
  }
  EXPECT_FALSE(rows.empty()) << name;
  return rows;
}
