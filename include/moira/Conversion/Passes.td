// Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef MOIRA_CONVERSION_PASSES_TD
#define MOIRA_CONVERSION_PASSES_TD

include "mlir/Pass/PassBase.td"

def ConvertMoEToCPUPass : Pass<"convert-moe-to-cpu", "::mlir::ModuleOp"> {
  let summary = "lower the buffer form of moe ops to loops";
  let description = [{
    Replaces every moe op in buffer form by `scf`, `memref`, `arith`, `math` and
    `vector` ops. Independent iterations (tokens, experts, panels) become
    `scf.parallel`. Helpers that several ops share, such as the stable sort of the
    priority orders, become private functions, one per module and type.

    A moe op that stays, for example one in tensor form, is an error that names
    the op.

    ```mlir
    moe.count %ids outs(%counts : memref<3xi32>) : memref<?x2xi32>
    ```

    becomes

    ```mlir
    scf.for %e = %c0 to %c3 step %c1 {
      memref.store %zero, %counts[%e] : memref<3xi32>
    }
    scf.for %t = %c0 to %tokens step %c1 {
      scf.for %j = %c0 to %c2 step %c1 {
        %id = memref.load %ids[%t, %j] : memref<?x2xi32>
        // counts[id] += 1 when 0 <= id < 3
      }
    }
    ```
  }];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::func::FuncDialect",
    "::mlir::math::MathDialect", "::mlir::memref::MemRefDialect",
    "::mlir::scf::SCFDialect", "::mlir::vector::VectorDialect"];
}

#endif // MOIRA_CONVERSION_PASSES_TD
