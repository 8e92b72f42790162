// Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef MOIRA_DIALECT_MOE_TRANSFORMS_PASSES_TD
#define MOIRA_DIALECT_MOE_TRANSFORMS_PASSES_TD

include "mlir/Pass/PassBase.td"

def ExpandMathPass : Pass<"moe-expand-math"> {
  let summary = "replace elementary functions on f32 by shared arithmetic";
  let description = [{
    Replaces `math.exp` on f32 scalars and vectors by one expansion in arith and
    math.fma (within 1 ulp, denormals kept), so that every target and every
    vector width computes the same bits. `tanh`, `erf`, `erfc`, `log`, `log2`,
    `log1p` and `expm1` become upstream's polynomials. bf16 and f16 go through
    f32 and are rounded once. f64 functions, and others such as `sin` and
    `powf`, stay: they become calls of the C library.

    ```mlir
    %0 = math.exp %x : f32
    ```
    becomes
    ```mlir
    %n = ...                       // nearest integer to x / ln 2
    %r = math.fma %n, %c1, %x : f32
    %p = math.fma %c2, %r, %c3 : f32
    ...
    %0 = arith.mulf %p, %power : f32
    ```
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect",
                           "::mlir::math::MathDialect",
                           "::mlir::vector::VectorDialect"];
}

#endif // MOIRA_DIALECT_MOE_TRANSFORMS_PASSES_TD
