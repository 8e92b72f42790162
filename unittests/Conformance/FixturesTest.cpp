// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Layers of checkpoints, imported, compiled and run, against what the models'
// public implementation computes. test/fixtures/README.md has the tolerances.

#include "Conformance/Harness.h"
#include "io/Npy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <unistd.h>

using namespace moira;
using namespace moira::conformance;

namespace {
struct Fixture {
  std::string folder;
  int layer;
  std::string rows; ///< element type
  double logits, y; ///< largest absolute difference

  std::string path(const std::string &file) const {
    return std::string(MOIRA_SOURCE_DIR "/test/fixtures/") + folder + "/" +
           file;
  }
};

void PrintTo(const Fixture &fixture, std::ostream *os) {
  *os << fixture.folder;
}

class Fixtures : public testing::TestWithParam<Fixture> {
protected:
  /// The program of the layer; of Switch, which has no importer, the example's.
  std::string program() const;
  /// An array of the fixture, as an argument of the given element type.
  reference::Argument load(const std::string &name,
                           const std::string &elementType) const;
  void expectClose(const Output &got, const std::string &name,
                   double tolerance) const;
};
} // namespace

static std::string readText(const std::string &path) {
  std::ifstream file(path);
  EXPECT_TRUE(file) << path;
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string Fixtures::program() const {
  const Fixture &fixture = GetParam();
  if (fixture.folder == "switch")
    return readText(MOIRA_SOURCE_DIR "/examples/switch-base-8/tiny.mlir");
  std::string output = testing::TempDir() + "moira-fixture-" + fixture.folder +
                       "-" + std::to_string(getpid()) + ".mlir";
  std::string command =
      concat("'", MOIRA_IMPORT_TOOL, "' '", fixture.path("checkpoint"),
             "' --layer ", fixture.layer, " -o '", output, "'");
  EXPECT_EQ(std::system(command.c_str()), 0) << command;
  std::string text = readText(output);
  std::remove(output.c_str());
  return text;
}

reference::Argument Fixtures::load(const std::string &name,
                                   const std::string &elementType) const {
  auto tensor = io::readNpy(GetParam().path(name + ".npy"));
  if (!tensor.ok()) {
    ADD_FAILURE() << tensor.status().message;
    return {};
  }
  Output values{tensor->dtype,
                tensor->shape,
                {tensor->data, tensor->data + tensor->bytes}};
  return {name, elementType, tensor->shape, values.values()};
}

/// The distance of a bf16 number to the next larger one.
static double bf16Unit(double value) {
  return value == 0 ? 0 : std::ldexp(1.0, std::ilogb(value) - 7);
}

void Fixtures::expectClose(const Output &got, const std::string &name,
                           double tolerance) const {
  reference::Argument want = load(name, "");
  ASSERT_EQ(got.shape, want.shape) << name;
  std::vector<double> values = got.values();
  double largest = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    double difference = std::fabs(values[i] - want.values[i]);
    largest = std::max(largest, difference);
    bool isOfBf16 = name == "weights" && GetParam().rows == "bf16";
    double bound = isOfBf16 ? bf16Unit(want.values[i]) : tolerance;
    ASSERT_LE(difference, bound) << name << "[" << i << "]: expected "
                                 << want.values[i] << ", got " << values[i];
  }
  RecordProperty(name, std::to_string(largest));
}

TEST_P(Fixtures, Agree) {
  std::string text = program();
  reference::Argument x = load("x", GetParam().rows);
  Outputs oracle;
  for (bool isOracle : {true, false}) {
    SCOPED_TRACE(isOracle ? "oracle" : "product");
    CompileOptions options;
    options.oracle = isOracle;
    options.exposeGate = true;
    options.optLevel = 1;
    Runner runner(compileText(text, options), 2);
    runner.bindCheckpoint(GetParam().path("checkpoint"));
    for (const std::string &variant : runner.variants()) {
      SCOPED_TRACE(variant);
      runner.setVariant(variant);
      Outputs outputs = runner.run({x});
      ASSERT_EQ(outputs.size(), 4u);
      if (isOracle)
        oracle = outputs;
      EXPECT_EQ(difference(oracle, outputs), "");
      expectClose(outputs[1], "logits", GetParam().logits);
      expectClose(outputs[2], "ids", 0);
      expectClose(outputs[3], "weights", 1e-6);
      expectClose(outputs[0], "y", GetParam().y);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, Fixtures,
    testing::Values(Fixture{"olmoe", 0, "f32", 2e-6, 2e-6},
                    Fixture{"olmoe-bf16", 1, "bf16", 0, 0x1p-6},
                    Fixture{"mixtral", 1, "f32", 2e-6, 2e-6},
                    Fixture{"qwen3", 1, "f32", 2e-6, 2e-6},
                    Fixture{"qwen3-stacked", 0, "f32", 2e-6, 2e-6},
                    Fixture{"switch", 1, "f32", 2e-6, 2e-6}),
    [](const auto &info) {
      std::string name = info.param.folder;
      std::replace(name.begin(), name.end(), '-', '_');
      return name;
    });
