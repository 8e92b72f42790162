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
                        "bufferized or target">,
                 Option<"rowMajor", "row-major", "bool", "false",
                        "weights of parameters are read as they are, by a GPU">];
}

def EmbedKernelsPass : Pass<"moe-embed-kernels", "::mlir::ModuleOp"> {
  let summary = "make the code of GPU modules";
  let description = [{
    Each `gpu.module` in the NVVM dialect gets the attribute `moira.arch`, with
    `ptx` also `moira.ptx`, its text, and, where there is a ptxas, `moira.cubin`;
    with `emulated` `moira.emulated`, which says that `moe-emulate-nvvm` will make
    code of the host of it. `moe-emit-entries` puts them into the manifest.

    A kernel that the assembler refuses is an error with its first message.

    ```mlir
    gpu.module @moira_gpu attributes {moira.arch = "sm_80", moira.ptx = "..."}
    ```
  }];
  let options = [
    Option<"arch", "arch", "std::string", "\"sm_80\"", "architecture to build for">,
    Option<"ptx", "ptx", "bool", "false", "write PTX, and assemble it">,
    Option<"emulated", "emulated", "bool", "false",
           "note that the host gets the kernels too">];
}

def EraseKernelsPass : Pass<"moe-erase-kernels", "::mlir::ModuleOp"> {
  let summary = "drop GPU modules whose code has been made";
  let description = [{
    What is left of a program for a GPU is its host code; the kernels are in the
    module's attribute `moira.gpu_code`, and in the host code where
    `moe-emulate-nvvm` has put them.

    ```mlir
    module attributes {gpu.container_module} { gpu.module @moira_gpu {...} }
    ```
    becomes `module {}`.
  }];
}

#endif // MOIRA_PIPELINES_PASSES_TD
