// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The phases of the compiler: the only place that knows all rooms. Each phase
// is a set of passes with a contract at its end, checked by a verify pass.

#ifndef MOIRA_PIPELINES_PIPELINES_H
#define MOIRA_PIPELINES_PIPELINES_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/DialectRegistry.h"
#include "mlir/Pass/PassManager.h"
#include "moira/Dialect/MoE/IR/MoEDialect.h"

#include <optional>
#include <string>

namespace moira {

/// Where compilation may stop, in order.
enum class Phase {
  Input,          ///< as written, parsed and verified
  Sharded,        ///< one rank's program, with collectives
  Differentiated, ///< and its way back, where gradients are wanted
  Scheduled,      ///< exchanges and experts in chunks
  Kernels,    ///< variants made, experts in the form of grouped matmuls, packed
  Bufferized, ///< memrefs; moe ops in buffer form
  Target      ///< LLVM dialect with the entries of moira/abi.h
};

/// All phases, in order.
inline constexpr Phase kPhases[] = {
    Phase::Input,   Phase::Sharded,    Phase::Differentiated, Phase::Scheduled,
    Phase::Kernels, Phase::Bufferized, Phase::Target};

/// Returns the name used by --compile-to ("input", "kernels", ...).
llvm::StringRef stringifyPhase(Phase phase);
/// Inverse of stringifyPhase.
std::optional<Phase> symbolizePhase(llvm::StringRef name);

/// A GPU that steps run on.
struct DeviceOptions {
  /// "sm_80", "sm_90a" or "sm_80,sm_90a"; empty: steps run on the processor.
  std::string arch;
  /// Which code of kernels the program brings: PTX, assembled where there is an
  /// assembler, for a real GPU; code of the host for the emulated one.
  bool ptx = false, emulated = false;
  /// Emulated kernels announce their accesses, which checks need.
  bool instrument = false;
};

/// What a compilation may choose.
struct PipelineOptions {
  /// The function to compile; empty: the only public function, or @main.
  std::string entry;
  /// Row classes to make variants for; ignored by the oracle, which has one.
  llvm::SmallVector<mlir::moe::RowClass> rowClasses = {
      mlir::moe::RowClass::Decode, mlir::moe::RowClass::Prefill};
  /// Compile the decomposed program: the executable meaning of every op.
  bool oracle = false;
  /// Fusions to leave out; no result changes. Ignored by the oracle.
  mlir::moe::Fusions disabledFusions{};
  /// Adds each gate's logits and ids to the entry's results (after the
  /// program's own results: logits0, ids0, logits1, ids1, ...).
  bool exposeRouting = false;
  /// Also takes each gate's ids as arguments (after the program's own).
  bool replayRouting = false;
  /// Widest vector registers of the target, in bits: 512, 256 or 128.
  unsigned vectorBits = 512;
  /// Whether the target adds products of pairs of bf16 in one instruction.
  bool dotBF16 = false;
  /// The level of cache that kernels fetch the next block of weights to, 1
  /// or 2.
  unsigned prefetchLevel = 2;
  /// Equal blocks that the hidden dimension of experts is packed and summed in,
  /// where it is a multiple; 0: as `countHiddenBlocks` says.
  int64_t hiddenBlocks = 0;
  /// Ranks to compile for. With 1 the phases `sharded` and `scheduled` change
  /// nothing. The oracle has one rank.
  int64_t ranks = 1;
  /// How often rows travel (r of docs/ranks.md): 0 gathers weights instead.
  int64_t copies = 1;
  /// Slots of each rank beyond those that the experts need.
  int64_t spareSlots = 0;
  /// Gives a program of one rank an input with the tokens of so many ranks, and
  /// these blocks to decide within; 0: none.
  int64_t tokenBlocks = 0;
  /// How exchanges are cut in chunks.
  mlir::moe::Schedule schedule = mlir::moe::Schedule::Equal;
  /// Adds the entry's way back, docs/gradients.md.
  bool gradients = false;
  /// Keeps less of the forward pass and computes it again.
  bool recompute = false;
  /// Optimizers whose code the program brings: "sgd", "adam", "adamw".
  llvm::SmallVector<std::string> updates;
  /// Gradients of packed parameters come packed as the parameter is.
  bool packGradients = false;
  /// The oracle runs on the processor.
  DeviceOptions device;
  /// Name of the source file and description of the target, for the manifest.
  std::string moduleName, triple, cpu, features;
};

/// Registers every dialect that programs and lowerings use, with the external
/// models of the interfaces.
void registerDialects(mlir::DialectRegistry &registry);

/// Registers our passes and pipelines and the upstream passes that moira-opt
/// offers.
void registerPasses();

/// The fewest hidden blocks with which every expert of `module` can be cut in
/// shards for `ranks` ranks; 1 where each rank has whole experts.
int64_t countHiddenBlocks(mlir::ModuleOp module, int64_t ranks);

/// Adds the passes that bring a program of phase `input` to the end of `last`.
/// After `Target` the module has the attribute `moira.manifest` (JSON text).
void buildPipeline(mlir::OpPassManager &manager, Phase last,
                   const PipelineOptions &options);

/// Adds the passes of one phase only.
void buildPhase(mlir::OpPassManager &manager, Phase phase,
                const PipelineOptions &options);

} // namespace moira

#endif // MOIRA_PIPELINES_PIPELINES_H
