// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef MOIRA_JIT_DIAGNOSTICS_H
#define MOIRA_JIT_DIAGNOSTICS_H

#include "mlir/IR/Diagnostics.h"
#include "llvm/Support/Error.h"

#include <string>

namespace moira {

/// Keeps errors of a context from being printed while it lives, so that they
/// can travel as values. Warnings and remarks go on to other handlers.
class ErrorCollector {
public:
  explicit ErrorCollector(mlir::MLIRContext *context);

  bool hasError() const { return !first.empty(); }
  /// The first error as "FILE:LINE:COLUMN: text", or `otherwise`.
  llvm::Error take(const llvm::Twine &otherwise);

private:
  std::string first;
  mlir::ScopedDiagnosticHandler handler;
};

} // namespace moira

#endif // MOIRA_JIT_DIAGNOSTICS_H
