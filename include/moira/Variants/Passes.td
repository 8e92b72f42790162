// Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef MOIRA_VARIANTS_PASSES_TD
#define MOIRA_VARIANTS_PASSES_TD

include "mlir/Pass/PassBase.td"

def CreateVariantsPass : Pass<"moe-create-variants", "::mlir::ModuleOp"> {
  let summary = "make one function per row class of an entry";
  let description = [{
    Clones the entry (`entry`, or the only public function, or @main) once per row
    class and puts a `moe.variants` in its place that lists the clones. The way
    back of the entry (`moe.backward`) is an entry of its own, with the same
    variants. Later
    passes compile each clone for its class, which it carries as `moe.row_class`;
    all have the type of the entry. The clones are private: programs run them
    through the entry's name.

    ```mlir
    func.func @main(%x: tensor<?x8xf32>) -> tensor<?x8xf32> { ... }
    ```
    becomes
    ```mlir
    func.func private @main_decode(%x: tensor<?x8xf32>) -> tensor<?x8xf32>
        attributes {moe.row_class = #moe<row_class decode>} { ... }
    func.func private @main_prefill(%x: tensor<?x8xf32>) -> tensor<?x8xf32>
        attributes {moe.row_class = #moe<row_class prefill>} { ... }
    moe.variants @main [@main_decode, @main_prefill] [decode, prefill]
    ```
  }];
  let options = [
    Option<"entry", "entry", "std::string", "\"\"",
           "function to make variants of; empty: the only public function, or "
           "@main">,
    ListOption<"rows", "rows", "std::string",
               "row classes (decode, prefill); empty: all">];
  let dependentDialects = ["::mlir::func::FuncDialect",
                           "::mlir::moe::MoEDialect"];
}

def FoldFunctionsPass : Pass<"moe-fold-functions", "::mlir::ModuleOp"> {
  let summary = "keep one of functions that are the same";
  let description = [{
    Variants and grids of one program share much of their code: bodies of loops,
    pack functions. Of internal functions and constants of the LLVM dialect with
    the same content the first one is kept, and all uses name it. Names and
    locations do not count. Callers of functions that have become one are compared
    again, until nothing changes. What other objects may name stays.

    ```mlir
    llvm.func internal @a() { llvm.return }
    llvm.func internal @b() { llvm.return }
    llvm.func @c() { llvm.call @b() : () -> () ... }
    ```
    becomes
    ```mlir
    llvm.func internal @a() { llvm.return }
    llvm.func @c() { llvm.call @a() : () -> () ... }
    ```
  }];
  let statistics = [
    Statistic<"numFunctions", "num-functions", "functions that others replace">,
    Statistic<"numGlobals", "num-globals", "constants that others replace">];
  let dependentDialects = ["::mlir::LLVM::LLVMDialect"];
}

def ShrinkSizesPass : Pass<"moe-shrink-sizes", "::mlir::ModuleOp"> {
  let summary = "make a program's twin with small tensors";
  let description = [{
    Divides the static sizes of tensors from `largest` on by a power of two that
    divides all of them and leaves at least `least`, so that every variant of a
    program can be run when it is compiled: the same ops in the same order, on small
    weights. Numbers of experts stay. A program of phase `input` whose sizes depend
    on each other in other ways may not verify afterwards; then it has no twin.

    ```mlir
    func.func @main(%x: tensor<?x2048xbf16>, %w: tensor<1024x2048xbf16>)
    ```
    becomes
    ```mlir
    func.func @main(%x: tensor<?x64xbf16>, %w: tensor<32x64xbf16>)
    ```
  }];
  let options = [
    Option<"largest", "largest", "int64_t", "128",
           "the smallest size that is divided">,
    Option<"least", "least", "int64_t", "32", "what sizes are at least">];
  let statistics = [
    Statistic<"numDivisor", "divisor", "what sizes were divided by">];
}

#endif // MOIRA_VARIANTS_PASSES_TD
