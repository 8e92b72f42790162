// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef MOIRA_TOOLS_MOIRA_RUN_LOADEDPROGRAM_H
#define MOIRA_TOOLS_MOIRA_RUN_LOADEDPROGRAM_H

#include "Options.h"

#include "session/Program.h"
#include "support/CommandLine.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

namespace moira::tools {

/// What a gate of the source says that matters for checking its choices.
struct GateInfo {
  /// The choice is the K largest logits of each token and nothing else.
  bool isTopKOfLogits = false;
  /// Its ids can be given to it; experts that choose tokens always choose.
  bool takesReplay = true;
};

/// Another way to compile a program.
struct CompileAs {
  bool oracle = false;
  bool exposeRouting = false;
  bool replayRouting = false;
  /// Among the inputs, after the program's own: the tokens of each rank.
  bool tokenBlocks = false;
};

/// The program of the command line, ready to run, with its source where there
/// is one.
class LoadedProgram {
public:
  static llvm::Expected<std::unique_ptr<LoadedProgram>>
  load(const RunOptions &options);

  const runtime::Program &program() const { return *main; }
  std::shared_ptr<const runtime::Program> shared() const { return main; }
  const runtime::EntrySpec &entry() const {
    return main->manifest().entries[entryIndex];
  }
  /// The entry that computes its gradients; null: none.
  const runtime::EntrySpec *backward() const {
    int index = main->manifest().findEntry(entry().backward);
    return index < 0 ? nullptr : &main->manifest().entries[index];
  }
  /// Inputs of a run: the entry's, and gradients of its results where wanted.
  runtime::EntrySpec signature() const;
  /// Results that the source's function has; what follows is routing.
  size_t ownResults() const { return ownResultCount; }
  /// Whether the entry also returns the routing.
  bool exposesRouting() const {
    return size_t(entry().ownResults()) > ownResultCount;
  }
  double compileSeconds() const { return seconds; }

  /// The rest needs a source.
  bool hasSource() const { return static_cast<bool>(module); }
  /// Compiles the source again, for one rank.
  llvm::Expected<std::shared_ptr<const runtime::Program>>
  compileAs(const CompileAs &as) const;
  /// The gates of the entry, in program order; empty where they are not all in
  /// its function.
  std::vector<GateInfo> gates(size_t expected) const;
  /// Inputs, the last ones, that say what gates choose.
  size_t replayedGates() const;
  /// Why a token's result may depend on other tokens; empty if it does not.
  std::string tokenDependence() const;

private:
  explicit LoadedProgram(const RunOptions &options) : options(options) {}
  llvm::Error openSource(const std::string &path);
  llvm::Error openBundle();
  llvm::Error compileMain();
  JitOptions jitOptions() const;
  llvm::Error chooseEntry();

  const RunOptions &options;
  std::unique_ptr<mlir::MLIRContext> context;
  std::unique_ptr<WarningPrinter> warnings;
  mlir::OwningOpRef<mlir::ModuleOp> module;
  std::shared_ptr<const runtime::Program> main;
  int entryIndex = 0;
  size_t ownResultCount = 0;
  double seconds = 0;
};

} // namespace moira::tools

#endif // MOIRA_TOOLS_MOIRA_RUN_LOADEDPROGRAM_H
