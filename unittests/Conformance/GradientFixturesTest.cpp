// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Gradients of blocks of public models, against autograd's.

#include "Conformance/Training.h"

#include "io/CheckpointSource.h"
#include "io/Npy.h"
#include "session/Residuals.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <unistd.h>

using namespace moira;
using namespace moira::conformance;
using namespace moira::runtime;

namespace {

struct GradientFixture {
  std::string folder;
  int layer;
  int emptyExperts; ///< without tokens: gradients of exactly 0

  std::string path(const std::string &file) const {
    return std::string(MOIRA_SOURCE_DIR "/test/fixtures/") + folder + "/" +
           file;
  }
};

void PrintTo(const GradientFixture &fixture, std::ostream *os) {
  *os << fixture.folder;
}

class GradientFixtures : public testing::TestWithParam<GradientFixture> {
protected:
  void SetUp() override {
    const GradientFixture &fixture = GetParam();
    x = load("x");
    dy = load("dy");
    dx = load("dx");
    auto file = io::Safetensors::open(fixture.path("gradients.safetensors"));
    ASSERT_TRUE(file.ok()) << file.status().message;
    expected = *file;
  }

  std::string program() const;
  io::MappedTensor load(const std::string &name) const {
    auto tensor = io::readNpy(GetParam().path(name + ".npy"));
    EXPECT_TRUE(tensor.ok()) << tensor.status().message;
    return *tensor;
  }
  void run(bool isOracle);
  void expectParameter(const std::string &name, const ResultTensor &got);

  io::MappedTensor x, dy, dx;
  std::shared_ptr<const io::Safetensors> expected;
  int zeros = 0;
};

} // namespace

std::string GradientFixtures::program() const {
  const GradientFixture &fixture = GetParam();
  if (fixture.folder == "switch")
    return readText(MOIRA_SOURCE_DIR "/examples/switch-base-8/tiny.mlir");
  std::string output = testing::TempDir() + "moira-gradients-" +
                       fixture.folder + "-" + std::to_string(getpid()) +
                       ".mlir";
  std::string command = "'" MOIRA_IMPORT_TOOL "' '" +
                        fixture.path("checkpoint") + "' --layer " +
                        std::to_string(fixture.layer) + " -o '" + output + "'";
  EXPECT_EQ(std::system(command.c_str()), 0) << command;
  std::string text = readText(output);
  std::remove(output.c_str());
  return text;
}

static int64_t countElements(const Shape &shape) {
  int64_t count = 1;
  for (int64_t size : shape)
    count *= size;
  return count;
}

/// Expects values within 1e-5 of the largest.
static void expectClose(const float *got, const float *want, int64_t count,
                        const std::string &name) {
  float largest = 0;
  for (int64_t i = 0; i < count; ++i)
    largest = std::max(largest, std::fabs(want[i]));
  for (int64_t i = 0; i < count; ++i)
    ASSERT_LE(std::fabs(got[i] - want[i]), 1e-5f * largest)
        << name << "[" << i << "]: expected " << want[i] << ", got " << got[i];
}

void GradientFixtures::expectParameter(const std::string &name,
                                       const ResultTensor &got) {
  size_t hole = name.find("{}");
  int64_t parts = hole == std::string::npos ? 1 : got.shape[0];
  int64_t count = countElements(got.shape) / parts;
  const float *values = static_cast<const float *>(got.data);
  for (int64_t part = 0; part < parts; ++part) {
    std::string one = name;
    if (hole != std::string::npos)
      one.replace(hole, 2, std::to_string(part));
    auto want = expected->tensor(one);
    ASSERT_TRUE(want.ok()) << want.status().message;
    ASSERT_EQ(countElements(want->shape), count) << one;
    const float *data = reinterpret_cast<const float *>(want->data);
    // Bounds of 0 where nothing came: zeros must be exact.
    expectClose(values + part * count, data, count, one);
    zeros += std::all_of(data, data + count, [](float v) { return v == 0; });
  }
}

void GradientFixtures::run(bool isOracle) {
  auto compiled = compileTraining(program(), {}, isOracle);
  ASSERT_TRUE(compiled);
  auto session = Session::create(compiled);
  ASSERT_TRUE(session.ok()) << session.status().message;
  auto source = io::CheckpointSource::open(GetParam().path("checkpoint"));
  ASSERT_TRUE(source.ok()) << source.status().message;
  MOIRA_ASSERT_OK((*session)->bindSource(**source));
  const Manifest &manifest = (*session)->manifest();
  const EntrySpec &main = manifest.entries[manifest.findEntry("main")];
  const EntrySpec &back = manifest.entries[manifest.findEntry(main.backward)];
  for (const VariantSpec &variant : main.variants) {
    SCOPED_TRACE(variant.name);
    zeros = 0;
    MOIRA_ASSERT_OK((*session)->setVariant("main", variant.name));
    std::vector<ResultTensor> results, gradients;
    std::shared_ptr<const Residuals> handle;
    MOIRA_ASSERT_OK((*session)->forward("main", {{x.dtype, x.shape, x.data}},
                                        results, handle));
    MOIRA_ASSERT_OK((*session)->backward(
        *handle, {{dy.dtype, dy.shape, dy.data}}, gradients));
    ASSERT_EQ(gradients.size(), back.results.size());
    size_t parameters = 0;
    for (size_t i = 0; i < gradients.size(); ++i) {
      const auto &of = *back.results[i].gradient;
      if (!of.parameter.empty()) {
        expectParameter(of.parameter, gradients[i]);
        ++parameters;
        continue;
      }
      ASSERT_EQ(gradients[i].shape, dx.shape);
      expectClose(static_cast<const float *>(gradients[i].data),
                  reinterpret_cast<const float *>(dx.data),
                  countElements(dx.shape), "dx");
    }
    EXPECT_GE(parameters, 3u);
    EXPECT_EQ(gradients.size(), parameters + 1);
    // Every projection of an expert without tokens, and no other.
    EXPECT_EQ(zeros, GetParam().emptyExperts * int(parameters - 1));
  }
}

TEST_P(GradientFixtures, Oracle) { run(/*isOracle=*/true); }
TEST_P(GradientFixtures, Product) { run(/*isOracle=*/false); }

INSTANTIATE_TEST_SUITE_P(Models, GradientFixtures,
                         testing::Values(GradientFixture{"olmoe", 0, 2},
                                         GradientFixture{"mixtral", 1, 0},
                                         GradientFixture{"qwen3", 1, 0},
                                         GradientFixture{"switch", 1, 0}),
                         [](const auto &info) { return info.param.folder; });
