// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Layers of the reference interpreter as compiled programs: printed, compiled
// in memory, run through the runtime, and their results compared.

#ifndef MOIRA_UNITTESTS_CONFORMANCE_HARNESS_H
#define MOIRA_UNITTESTS_CONFORMANCE_HARNESS_H

#include "Reference/Layer.h"
#include "moira/Dialect/MoE/IR/MoEDialect.h"
#include "session/Session.h"

#include <memory>
#include <string>
#include <vector>

namespace moira::conformance {

/// How a checkpoint holds the weights of a layer.
struct WeightFormat {
  /// Weights are arguments of every step instead of parameters.
  bool arguments = false;
  /// One tensor per expert, with `{}` in its name.
  bool perExpert = false;
  /// The last two dims of matrices are swapped.
  bool transposed = false;
  /// Gate and up projection are one tensor, row by row when `interleaved`.
  bool joined = false, interleaved = false;
};

struct CompileOptions {
  bool oracle = false;
  unsigned optLevel = 0;
  std::string cpu = "host";
  WeightFormat weights;
  /// Of the product; no result depends on them.
  mlir::moe::Fusions disabledFusions{};
  /// Also return the logits, ids and weights of the program's gate.
  bool exposeGate = false;
  /// The ranks that the product is made for, and how (docs/ranks.md).
  int64_t ranks = 1, copies = 1, spareSlots = 0;
  bool groups = false;
  /// Adds the way back, with what it needs computed again or kept.
  bool gradients = false, recompute = false;
  /// Adds the input of as many token blocks (moe-token-blocks).
  int64_t tokenBlocks = 0;
  /// Blocks that the sum over hidden is made of.
  int64_t hiddenBlocks = 1;
  /// The results of the program to keep, by index; empty: all.
  std::vector<unsigned> keepResults;
};

/// The printed layer, compiled. Fails the test and returns null where it does
/// not compile: what a test prints is a legal program.
std::shared_ptr<const runtime::Program>
compileLayer(const reference::Layer &layer,
             const reference::LayerInputs &inputs,
             const CompileOptions &options);

/// As above, from any text; `options.weights` is not used.
std::shared_ptr<const runtime::Program>
compileText(const std::string &text, const CompileOptions &options = {});

/// A result as it left the runtime.
struct Output {
  runtime::DataType dtype;
  runtime::Shape shape;
  std::vector<unsigned char> bytes;

  bool operator==(const Output &other) const {
    return dtype == other.dtype && shape == other.shape && bytes == other.bytes;
  }
  /// The values, each exact.
  std::vector<double> values() const;
};
using Outputs = std::vector<Output>;

/// A program with memory of its own, all of it poisoned before generated code
/// gets it.
class Runner {
public:
  /// Fails the test where there is no program; nothing runs then.
  explicit Runner(
      std::shared_ptr<const runtime::Program> program, int threads = 1,
      std::shared_ptr<runtime::Communicator> communicator = nullptr);

  /// Packs the weights that are parameters, from files held as `format` says.
  void bindWeights(const reference::Layer &layer,
                   const reference::LayerInputs &inputs,
                   const WeightFormat &format);
  /// Packs all parameters from a folder of safetensors.
  void bindCheckpoint(const std::string &path);
  /// Empty: the variant is chosen by rows.
  void setVariant(const std::string &variant);
  std::vector<std::string> variants() const;
  void setPlan(const runtime::PlanOptions &plan);

  /// Runs one step; fails the test where the runtime refuses.
  Outputs run(const reference::Layer &layer,
              const reference::LayerInputs &inputs);
  Outputs run(const std::vector<reference::Argument> &arguments);
  runtime::Session *get() const { return session.get(); }

  /// Bytes of workspace that the last layer's program asked for, and that the
  /// session holds since, for all its threads.
  int64_t workspaceWanted() const { return wanted; }
  int64_t workspaceHeld() const;

private:
  std::unique_ptr<runtime::Session> session;
  int64_t wanted = 0;
};

/// The arguments of a printed layer but for its weights.
std::vector<reference::Argument>
stepArguments(const reference::Layer &layer,
              const reference::LayerInputs &inputs);

/// The outputs of a printed layer, in the interpreter's terms.
reference::LayerResult toLayerResult(const Outputs &outputs,
                                     const reference::Layer &layer);

/// The first difference between two runs, in words; empty when all bits agree.
std::string difference(const Outputs &expected, const Outputs &got);

/// The first difference between the interpreter's results and a run; empty when
/// they agree. NaN agrees with NaN. Integers must be equal; other values may
/// differ by `tolerance` relative to the larger of 1 and the expected value; 0
/// asks for equal values.
std::string differenceFrom(const std::vector<reference::Argument> &expected,
                           const Outputs &got, double tolerance);

} // namespace moira::conformance

#endif // MOIRA_UNITTESTS_CONFORMANCE_HARNESS_H
