// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef MOIRA_PIPELINES_PASSES_TD
#define MOIRA_PIPELINES_PASSES_TD

include "mlir/Pass/PassBase.td"

def VerifyPhasePass : Pass<"moe-verify-phase", "::mlir::ModuleOp"> {
  let summary = "check the contract at the end of a phase";
  let description = [{
    Changes nothing. What cannot be seen by one op's verifier is checked where a
    phase ends, so that a pass that breaks a contract is named at once and not by
    a failure much later.

    * `input`: no collectives: how a program is spread is no part of it.
    * `sharded`, `differentiated`: collectives, in tensor form, and no chunks.
    * `scheduled`: chunks only in a loop over `moe.chunks`.
    * `kernels`: no `moe.expert`; a `moe.grouped_matmul` that carries the weights
      of a parameter reads panels.
    * `bufferized`: no tensor type, no bufferization op; every moe op that computes
      is in buffer form; no transfer that is waited for where it stands.
    * `target`: the LLVM dialect only; the module has `moira.manifest`; every
      function is defined, but for the C library's.

    ```mlir
    // --moe-verify-phase=phase=bufferized
    func.func @f(%x: tensor<4xf32>) // error: expected no tensors at the end of
                                    // phase bufferized, got 'tensor<4xf32>'
    ```
  }];
  let options = [Option<"phase", "phase", "std::string", "\"target\"",
                        "input, sharded, differentiated, scheduled, kernels, "
                        "bufferized or target">];
}

#endif // MOIRA_PIPELINES_PASSES_TD
