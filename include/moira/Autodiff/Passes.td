// Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef MOIRA_AUTODIFF_PASSES_TD
#define MOIRA_AUTODIFF_PASSES_TD

include "mlir/Pass/PassBase.td"

def DifferentiatePass : Pass<"moe-differentiate", "::mlir::ModuleOp"> {
  let summary = "make the gradients of a program";
  let description = [{
    Turns the entry `@main` into two functions (docs/gradients.md): `@main`, which
    also returns residuals, and `@main_backward`, which takes the residuals, the
    parameters and a gradient per float result, and returns a gradient per float
    input and per float parameter. Calls are inlined first.

    The entry gets the attributes `moe.backward` and `moe.residuals`. A result of
    the other function has the attribute `moe.gradient`, the name of its parameter,
    or `moe.gradient_of`, the number of its input. An op that has no rule is an
    error that names it, unless no gradient reaches it.

    ```mlir
    func.func @main(%x: tensor<?x8xf32>, %w: tensor<8xf32> {moe.param = ...})
        -> tensor<?x8xf32> {
      %y = linalg.generic ... ins(%x, %w) ...  // x * w
      return %y : tensor<?x8xf32>
    }
    ```
    becomes
    ```mlir
    func.func @main(%x: tensor<?x8xf32>, %w: tensor<8xf32> {moe.param = ...})
        -> (tensor<?x8xf32>, tensor<?x8xf32>)
        attributes {moe.backward = @main_backward, moe.residuals = 1 : i64} {
      %y = linalg.generic ... ins(%x, %w) ...
      return %y, %x : tensor<?x8xf32>, tensor<?x8xf32>
    }
    func.func @main_backward(%x: tensor<?x8xf32>,
        %w: tensor<8xf32> {moe.param = ...}, %dy: tensor<?x8xf32>)
        -> (tensor<?x8xf32> {moe.gradient_of = 0 : i64},
            tensor<8xf32> {moe.gradient = "w"}) {
      %dx = linalg.generic ... ins(%w, %dy) ...  // dy * w
      %dw = linalg.generic ... ins(%x, %dy) ...  // sum over rows of dy * x
      return %dx, %dw : tensor<?x8xf32>, tensor<8xf32>
    }
    ```
  }];
  let options = [
    Option<"entry", "entry", "std::string", "\"\"",
           "function to differentiate; empty: the only public function, or "
           "@main">,
    Option<"recompute", "recompute", "bool", "false",
           "compute products again on the way back instead of keeping them">];
  let statistics = [
    Statistic<"numResiduals", "num-residuals", "values kept for the way back">];
  let dependentDialects = ["::mlir::arith::ArithDialect",
                           "::mlir::func::FuncDialect",
                           "::mlir::linalg::LinalgDialect",
                           "::mlir::math::MathDialect",
                           "::mlir::moe::MoEDialect",
                           "::mlir::tensor::TensorDialect"];
}

#endif // MOIRA_AUTODIFF_PASSES_TD
