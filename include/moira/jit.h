// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Compile a program in memory and run it through the runtime. The result is the
// same Program that a bundle file gives, so everything of the runtime's session
// (parameters, plans, statistics) works on both.

#ifndef MOIRA_JIT_H
#define MOIRA_JIT_H

#include "moira/Pipelines/Pipelines.h"
#include "llvm/Support/Error.h"

#include <memory>
#include <string>

namespace mlir {
class ModuleOp;
}

namespace moira {

namespace runtime {
class Program; // runtime/session/Program.h
}

/// Who is told which functions stand where in memory.
struct JitSymbols {
  /// Debuggers with gdb's JIT interface, gdb and lldb among them: names in
  /// back traces and for breakpoints. The code then stays in memory until the
  /// process ends.
  bool gdb = false;
  /// `perf inject --jit`, by a file jit-PID.dump in a folder below
  /// $JITDUMPDIR/.debug/jit (else $HOME).
  bool perf = false;
};

struct JitOptions {
  /// What describes the target (triple, cpu, features, vectorBits) is filled in
  /// from `cpu`.
  PipelineOptions pipeline;
  /// Processor to compile for: "host", or an LLVM CPU name.
  std::string cpu = "host";
  /// LLVM optimisation level, 0 to 3.
  unsigned optLevel = 3;
  /// Where compiled objects are kept between processes; empty: no cache. What
  /// cannot be read there is compiled again, what cannot be written is not
  /// kept.
  std::string cacheDirectory;
  /// Where the module is written after each phase; empty: nowhere. Compiles
  /// even where the cache has the object.
  std::string dumpDirectory;
  JitSymbols symbols;
};

/// Compiles `module` (phase input; it is cloned, not changed) and returns a
/// program that owns its code. The error of a module that does not compile is
/// its first diagnostic, with the location. Thread safe for modules of
/// different contexts.
llvm::Expected<std::shared_ptr<const runtime::Program>>
compile(mlir::ModuleOp module, const JitOptions &options);

} // namespace moira

#endif // MOIRA_JIT_H
