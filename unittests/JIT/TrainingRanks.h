// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A layer of 8 experts on any number of ranks of the test, which train.

#ifndef MOIRA_UNITTESTS_JIT_TRAININGRANKS_H
#define MOIRA_UNITTESTS_JIT_TRAININGRANKS_H

#include "JIT/TrainingProgram.h"

#include "collective/Communicator.h"
#include "collective/InProcess.h"
#include "io/Safetensors.h"
#include "session/Checkpoint.h"
#include "session/Optimizer.h"
#include "session/Residuals.h"

#include "llvm/ADT/SmallString.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"

#include <cmath>
#include <cstring>
#include <map>
#include <regex>
#include <thread>

namespace moira::test {

using runtime::Communicator;
using runtime::DataType;
using runtime::LayerPlacement;
using runtime::makeInProcess;
using runtime::PlanOptions;
using runtime::Program;
using runtime::Residuals;
using runtime::ResultTensor;
using runtime::Session;
using runtime::SessionOptions;
using runtime::Shape;
using runtime::TensorView;
using runtime::TrainingState;
using runtime::UpdateOptions;

inline constexpr int64_t features = 64, tokens = 37;

/// A layer of 8 experts for `ranks` ranks, with rows of `width`; results of
/// runs with the same number of hidden blocks agree bit for bit.
inline std::shared_ptr<const Program>
layer(int ranks, int copies, int spare = 0, int64_t width = features) {
  static std::map<std::tuple<int, int, int, int64_t>,
                  std::shared_ptr<const Program>>
      compiled;
  std::shared_ptr<const Program> &program =
      compiled[{ranks, copies, spare, width}];
  if (program)
    return program;
  JitOptions options;
  options.optLevel = 1;
  options.pipeline.ranks = ranks;
  options.pipeline.copies = copies;
  options.pipeline.spareSlots = spare;
  options.pipeline.hiddenBlocks = 2;
  options.pipeline.gradients = true;
  options.pipeline.packGradients = true;
  options.pipeline.updates = {"adamw"};
  options.pipeline.rowClasses = {mlir::moe::RowClass::Prefill};
  const std::string file = "examples/mixtral/tiny.mlir";
  if (width == features)
    return program = compileFile(file, options);
  auto text = llvm::MemoryBuffer::getFile(MOIRA_SOURCE_DIR "/" + file);
  EXPECT_TRUE(bool(text)) << file;
  if (!text)
    return nullptr;
  return program = compileProgram(
             std::regex_replace((*text)->getBuffer().str(),
                                std::regex(std::to_string(features)),
                                std::to_string(width)),
             options);
}

inline std::vector<float> fractions(int64_t count, int seed) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i)
    values.push_back(float(std::sin(double(i * 12.9898 + seed * 78.233))));
  return values;
}

/// All ranks of a program.
struct Ranks {
  explicit Ranks(std::shared_ptr<const Program> program, int count,
                 bool permuted = false)
      : program(program), count(program ? count : 0) {
    if (!program)
      return;
    const runtime::Manifest &manifest = program->manifest();
    width = manifest.entries[manifest.mainEntry()].inputs[0].shape[1];
    auto ends = makeInProcess(count);
    for (auto &end : ends) {
      SessionOptions options;
      options.threads = 1;
      if (count > 1) {
        auto group = Communicator::create(std::move(end));
        EXPECT_OK(group.status());
        options.communicator = std::move(*group);
      }
      sessions.push_back(makeSession(program, options));
    }
    if (!permuted)
      return;
    const LayerPlacement &placement =
        *program->manifest()
             .entries[program->manifest().mainEntry()]
             .layers[0]
             .placement;
    PlanOptions plan;
    int64_t places = int64_t(count) * placement.slots;
    for (int64_t i = 0; i < places; ++i) { // backwards, copies in spare slots
      int64_t unit = places - 1 - i;
      plan.slotTable.push_back(static_cast<int32_t>(unit % placement.units()));
    }
    for (auto &session : sessions)
      EXPECT_OK(session->setPlan(plan));
  }

  template <typename Action> void onAll(const Action &action) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < count; ++rank)
      threads.emplace_back([&action, rank] { EXPECT_OK(action(rank)); });
    for (std::thread &thread : threads)
      thread.join();
  }
  /// Rows of a rank: uneven, the last ranks may have none.
  std::pair<int64_t, int64_t> rowsOf(int rank) const {
    int64_t share = (tokens + count - 1) / count + (count > 1 ? 1 : 0);
    int64_t begin = std::min<int64_t>(tokens, rank * share);
    return {begin, std::min<int64_t>(tokens, begin + share) - begin};
  }

  void bind() {
    onAll([&](int rank) { return sessions[rank]->bindRandom(11); });
  }
  /// Forward; the results of all tokens.
  std::vector<float> forward(int seed, bool accumulate = false) {
    std::vector<float> x = fractions(tokens * width, seed);
    std::vector<float> dy = fractions(tokens * width, seed + 100);
    std::vector<float> y(tokens * width);
    onAll([&](int rank) -> Status {
      auto [begin, rows] = rowsOf(rank);
      Shape shape{rows, width};
      std::vector<ResultTensor> results, ofInputs;
      std::shared_ptr<const Residuals> handle;
      MOIRA_RETURN_IF_ERROR(sessions[rank]->forward(
          "main", {{DataType::F32, shape, x.data() + begin * width}}, results,
          handle));
      if (rows > 0)
        std::memcpy(y.data() + begin * width, results[0].data,
                    rows * width * sizeof(float));
      if (!accumulate)
        return Status();
      sessions[rank]->zeroGradients();
      return sessions[rank]->accumulate(
          *handle, {{DataType::F32, shape, dy.data() + begin * width}},
          ofInputs);
    });
    return y;
  }
  void train(int seed, double rate = 0.01) {
    forward(seed, /*accumulate=*/true);
    onAll([&](int rank) {
      UpdateOptions options;
      options.learningRate = rate;
      options.weightDecay = 0.1;
      return sessions[rank]->update(options);
    });
  }
  double norm() {
    std::vector<double> norms(count);
    onAll([&](int rank) -> Status {
      Result<double> norm = sessions[rank]->gradientNorm();
      if (norm.ok())
        norms[rank] = *norm;
      return norm.status();
    });
    for (double norm : norms)
      EXPECT_EQ(norm, norms[0]);
    return norms.empty() ? -1 : norms[0];
  }
  void save(const std::string &folder, bool sharded, int64_t step = 3) {
    TrainingState state;
    state.step = step;
    state.seed = 5;
    onAll([&](int rank) {
      return sessions[rank]->saveCheckpoint(folder, state, sharded);
    });
  }
  void restore(const std::string &folder) {
    onAll([&](int rank) -> Status {
      Result<TrainingState> state = sessions[rank]->restoreCheckpoint(folder);
      if (state.ok()) {
        EXPECT_EQ(state->step, 3);
        EXPECT_EQ(state->seed, 5u);
        EXPECT_EQ(state->rule, "adamw");
        EXPECT_EQ(state->updates, 2);
      }
      return state.status();
    });
  }

  std::shared_ptr<const Program> program;
  int64_t width = features;
  int count;
  std::vector<std::unique_ptr<Session>> sessions;
};

struct Folder {
  Folder() {
    EXPECT_FALSE(llvm::sys::fs::createUniqueDirectory("moira-train", path));
  }
  ~Folder() { llvm::sys::fs::remove_directories(path); }
  std::string name() const { return std::string(path); }
  /// The files in it.
  std::vector<std::string> files() const {
    std::vector<std::string> found;
    std::error_code error;
    for (llvm::sys::fs::directory_iterator at(path, error), end; at != end;
         at.increment(error))
      found.push_back(at->path());
    std::sort(found.begin(), found.end());
    return found;
  }

  llvm::SmallString<128> path;
};

/// All tensors of a checkpoint, as bytes.
inline std::map<std::string, std::string> tensorsOf(const std::string &folder) {
  std::map<std::string, std::string> tensors;
  auto file = io::Safetensors::open(folder);
  EXPECT_OK(file.status());
  if (!file.ok())
    return tensors;
  for (const std::string &name : (*file)->names()) {
    auto tensor = (*file)->tensor(name);
    EXPECT_OK(tensor.status());
    if (tensor.ok())
      tensors[name + " " + toString(tensor->dtype, tensor->shape)] =
          std::string(reinterpret_cast<const char *>(tensor->data),
                      tensor->bytes);
  }
  return tensors;
}

} // namespace moira::test

#endif // MOIRA_UNITTESTS_JIT_TRAININGRANKS_H
