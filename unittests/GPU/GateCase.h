// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// The router's kernels with one set of options, on inputs of all kinds.

#ifndef MOIRA_UNITTESTS_GPU_GATECASE_H
#define MOIRA_UNITTESTS_GPU_GATECASE_H

#include "GPU/RoutingRun.h"

namespace moira::test {

struct GateCase {
  const char *name;
  const char *router;
  int64_t experts, choices;
  /// Operands: b(ias), m(ask), r(eplay), s(ample), k, t(hreshold).
  const char *options = "";
  int64_t capacity = 0; ///< by expert
  bool isBF16 = false;
};
/// The kernels of a case, in the order of their launches.
void buildGate(const GateCase &gate, mlir::gpu::GPUModuleOp module,
               mlir::OpBuilder &b, mlir::moe::GateKernel &kernel);

/// Runs them with all checks, once per seed, and expects the ids and the bits
/// of the weights that the reference interpreter gives. `counters`: what the
/// last run did.
void expectReference(const GateCase &gate, llvm::ArrayRef<uint64_t> seeds,
                     const Edit &edit = {},
                     emulator::Counters *counters = nullptr);

} // namespace moira::test

#endif // MOIRA_UNITTESTS_GPU_GATECASE_H
