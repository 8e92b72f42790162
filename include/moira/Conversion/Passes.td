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

    Collectives in buffer form stay for `moe-emit-entries`. Any other moe op that
    stays, for example one in tensor form, is an error that names the op.

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
  let options = [
    Option<"vectorBits", "vector-bits", "unsigned", "512",
           "width of the target's vector registers in bits">,
    Option<"vectorRegisters", "vector-registers", "unsigned", "32",
           "number of the target's vector registers">,
    Option<"dotBF16", "dot-bf16", "bool", "false",
           "the target has a dot product of pairs of bf16">,
    Option<"rowTile", "row-tile", "unsigned", "6",
           "rows of a register tile">,
    Option<"vectorsPerRow", "vectors-per-row", "unsigned", "0",
           "vectors per row of a register tile (0: by the registers)">,
    Option<"cacheBytes", "cache-bytes", "int64_t", "1048576",
           "bytes of the second-level cache of one core">,
    Option<"streamRows", "stream-rows", "unsigned", "7",
           "rows of a group up to which memory is the limit">,
    Option<"prefetchLevel", "prefetch-level", "unsigned", "2",
           "level of cache that the next block is fetched to: 1 or 2">,
    Option<"plain", "plain", "bool", "false",
           "products as loops over single elements, for targets without the "
           "tiles">];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::func::FuncDialect",
    "::mlir::LLVM::LLVMDialect",
    "::mlir::math::MathDialect", "::mlir::memref::MemRefDialect",
    "::mlir::scf::SCFDialect", "::mlir::vector::VectorDialect"];
}

def LowerCopiesPass : Pass<"moe-lower-copies"> {
  let summary = "turn strided copies into loops";
  let description = [{
    `memref.copy` between memrefs that are not both compact becomes a linalg copy,
    since the LLVM lowering would call a library function for it.
  }];
  let dependentDialects = ["::mlir::linalg::LinalgDialect"];
}

//===----------------------------------------------------------------------===//
// MoEToRuntime
//===----------------------------------------------------------------------===//

def NumberLayersPass : Pass<"moe-number-layers", "::mlir::func::FuncOp"> {
  let summary = "give every routing and what follows it a layer number";
  let description = [{
    Sets `layer` on moe ops that have none: a gate starts the next layer, the
    ops after it belong to it, and so do the gathers of an expert's weights,
    wherever they stand. Statistics rows and time per part carry it.
  }];
}

def MarkPartsPass : Pass<"moe-mark-parts", "::mlir::ModuleOp"> {
  let summary = "charge time to gate, movement, exchange, experts and the rest";
  let description = [{
    On the buffer form: before each run of ops of one part inserts a call of the
    private function `@moira_abi_enter(layer, part)`, which `moe-emit-entries`
    turns into the ABI call, also in the bodies of loops with collectives, and
    records on the function what the manifest says of layers (`moe.layers`, with
    the placement of their experts), ranks (`moe.ranks`), the schedule of exchanges
    (`moe.schedule`) and dense work (`moe.flops_per_token`).
  }];
  let options = [
    Option<"ranks", "ranks", "int64_t", "1",
           "of functions whose collectives are no experts', which name theirs">
  ];
  let dependentDialects = ["::mlir::func::FuncDialect",
                           "::mlir::arith::ArithDialect"];
}

def BoundCapacityPass : Pass<"moe-bound-capacity", "::mlir::func::FuncOp"> {
  let summary = "state how far a capacity can go by shapes alone";
  let description = [{
    A capacity read from counts is data; workspace must be known from shapes.
    Changes no value:

    * Counts that the formula does not use (any rule but `tutel`, or a constant
      factor above 0) are dropped: what is left is a formula of shapes.
    * A constant factor of 0 or below gives at most the largest count. A token's
      ids are distinct, so that is at most T: the pass takes
      `min(capacity, max(T, minimum) aligned)`, with T from the ids counted.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect",
                           "::mlir::memref::MemRefDialect"];
}

def ProtectArgumentsPass : Pass<"moe-protect-arguments", "::mlir::ModuleOp"> {
  let summary = "forbid bufferization to write into arguments";
  let description = [{
    Inputs belong to the caller and parameters to the session: every tensor
    argument gets `bufferization.writable = false`, so that a program that updates
    one works on a copy.
  }];
}

def SeparateEmptiesPass : Pass<"moe-separate-empties"> {
  let summary = "give every value that a loop carries a buffer of its own";
  let description = [{
    CSE merges `tensor.empty` ops of one shape. Bufferization takes what such a
    tensor holds for undefined, sees no conflict between two loop-carried values
    that start from it, and gives both the same buffer. Every loop operand gets
    its own `tensor.empty`; nothing may merge them again before bufferization.

    ```mlir
    %e = tensor.empty(%n) : tensor<?xi32>
    %r:2 = scf.for ... iter_args(%a = %e, %b = %e) ...
    ```
    becomes
    ```mlir
    %0 = tensor.empty(%n) : tensor<?xi32>
    %1 = tensor.empty(%n) : tensor<?xi32>
    %r:2 = scf.for ... iter_args(%a = %0, %b = %1) ...
    ```
  }];
  let dependentDialects = ["::mlir::tensor::TensorDialect"];
}

def AddUpdatesPass : Pass<"moe-add-updates", "::mlir::ModuleOp"> {
  let summary = "add the elementwise code of optimizers";
  let description = [{
    For each rule (`sgd`, `adam`, `adamw`) and each float type that parameters
    have, a function `@moira_update_RULE_TYPE` that makes a parameter and the
    states of its optimizer new, element by element, from the old ones and the
    gradient. Parameters of 16 bits are updated in f32 and rounded in one more
    result. Numbers that depend on the step (a bias correction) are arguments:
    the runtime computes them in f64. Elements stand in whatever order the
    parameter is packed in.

    ```mlir
    func.func private @moira_update_sgd_f32(%parameter: tensor<1x?xf32>,
        %gradient: tensor<1x?xf32>, %momentum_buffer: tensor<1x?xf32>,
        %learning_rate: f32, ...) -> (tensor<1x?xf32>, tensor<1x?xf32>)
        attributes {moe.update = "sgd"}
    ```
  }];
  let options = [ListOption<"rules", "rules", "std::string",
                            "rules to add: sgd, adam, adamw">];
  let dependentDialects = ["::mlir::func::FuncDialect",
                           "::mlir::arith::ArithDialect",
                           "::mlir::math::MathDialect",
                           "::mlir::linalg::LinalgDialect",
                           "::mlir::tensor::TensorDialect"];
}

def AddContextPass : Pass<"moe-add-context", "::mlir::ModuleOp"> {
  let summary = "make the context the first argument of every entry";
  let description = [{
    Gives each entry (the functions of `moe.variants`, or the entry named by
    `entry` and its way back) a leading `!llvm.ptr` argument, the moira_ctx of moira/abi.h, and the
    attribute `moe.kind = "step"`; functions that pack parameters get it with
    `"pack"`. Functions that nothing names then, other programs of the file, are
    erased: their layers call the runtime too, and have no context.
  }];
  let options = [Option<"entry", "entry", "std::string", "\"\"",
                        "entry of a module without moe.variants; empty: the only public "
                        "function, or @main">];
  let dependentDialects = ["::mlir::LLVM::LLVMDialect"];
}

def OutlineParallelPass : Pass<"moe-outline-parallel", "::mlir::ModuleOp"> {
  let summary = "run parallel loops on the runtime's pool";
  let description = [{
    Turns every outermost `scf.parallel` of a step into a function of moira_body's
    type over its first dimension, and a call of `parallel_for`. Values from
    outside travel in a struct on the caller's stack; constants are cloned. The
    attribute `moe.cost` (nanoseconds per iteration) is passed on; without it the
    pass estimates. Equal loops have one function.
  }];
  let dependentDialects = ["::mlir::LLVM::LLVMDialect",
                           "::mlir::func::FuncDialect",
                           "::mlir::arith::ArithDialect"];
}

def EmitEntriesPass : Pass<"moe-emit-entries", "::mlir::ModuleOp"> {
  let summary = "give the module the entries and the manifest of a bundle";
  let description = [{
    For each step: allocations come from the context's arena, results from
    `api->result` (without a copy where the result is a buffer of its own), and
    there are two C functions, `moira_step_ENTRY_VARIANT` and
    `moira_workspace_ENTRY_VARIANT`. Collectives become calls of the context's
    table; their memory must be compact. For each packed parameter: `moira_pack_N`.
    The module gets the attribute `moira.manifest`, JSON text. docs/abi.md.
  }];
  let options = [
    Option<"moduleName", "module-name", "std::string", "\"\"",
           "source file named in the manifest">,
    Option<"triple", "triple", "std::string", "\"\"",
           "target triple named in the manifest">,
    Option<"cpu", "cpu", "std::string", "\"\"",
           "processor named in the manifest">,
    Option<"features", "features", "std::string", "\"\"",
           "processor features named in the manifest">];
  let dependentDialects = ["::mlir::LLVM::LLVMDialect",
                           "::mlir::func::FuncDialect",
                           "::mlir::arith::ArithDialect"];
}

def CheckAllocationsPass : Pass<"moe-check-allocations", "::mlir::ModuleOp"> {
  let summary = "return from a step when an allocation fails";
  let description = [{
    On the LLVM dialect: after each call that gives memory from the arena or for
    a result, a null pointer returns from the function. The error itself is
    sticky in the context.
  }];
  let dependentDialects = ["::mlir::LLVM::LLVMDialect"];
}

def LowerBF16Pass : Pass<"moe-lower-bf16", "::mlir::ModuleOp"> {
  let summary = "hold bf16 values as 16-bit integers";
  let description = [{
    On the LLVM dialect: every bf16, alone, in vectors, constants and addresses,
    becomes an i16 of the same bits. Arithmetic on bf16 is gone by then
    (`arith-emulate-unsupported-floats`, `moe-expand-math`), so values are only
    moved; what computes with one is an error that names the op. LLVM would move
    bf16 vectors by calls of a library where the processor has no instructions
    for them, and round by instructions that flush denormals where it has.

    ```mlir
    %0 = llvm.load %p : !llvm.ptr -> vector<8xbf16>
    %1 = llvm.bitcast %0 : vector<8xbf16> to vector<8xi16>
    ```
    becomes
    ```mlir
    %0 = llvm.load %p : !llvm.ptr -> vector<8xi16>
    %1 = llvm.bitcast %0 : vector<8xi16> to vector<8xi16>
    ```
  }];
  let dependentDialects = ["::mlir::LLVM::LLVMDialect"];
}

//===----------------------------------------------------------------------===//
// MoEToGPU
//===----------------------------------------------------------------------===//

def ConvertMoEToGPUPass : Pass<"convert-moe-to-gpu", "::mlir::ModuleOp"> {
  let summary = "turn moe ops into GPU kernels and launches";
  let description = [{
    Ops in buffer form, on memrefs of device memory, become kernels in the module
    `@moira_gpu` and `moira_nv.launch` ops: `grouped_matmul`, `gate`, `noise`, `count`,
    `assign`, `sources`, `dispatch` and `combine`, with all their options.

    A `moe.grouped_matmul` runs on as many blocks as the device has
    multiprocessors. Rows and weights are of bf16, f16 or f32; weights lie in any
    layout but panels of pairs, with hidden blocks or without, and experts and
    features are static. Both modes, chained products, gathered rows, padded groups,
    every epilogue and any number of results are kernels; only a weight gradient in
    panels is none.

    The attribute `moira_nv.schedule` of the op says how the kernel is cut;
    without it the pass takes the first of its schedules that the architecture
    and the shapes allow. In a function with `moe.row_class = #moe<row_class
    decode>` these begin with tiles of 16 rows. What has no kernel is an error that
    names the op; with `fallback` it stays, with a missed-optimization remark that
    says why, for loops that `moe-outline-kernels` makes kernels of.

    For both architectures products that the later one does better get a kernel of
    their own in `@moira_gpu_sm_90a`, and the host chooses by
    `moira_nv.architecture`.

    Only functions whose memrefs are device memory change: steps, where functions
    have a kind (`moe-add-context`).

    ```mlir
    moe.grouped_matmul rows(%x : memref<?x64xbf16>) groups(%s : memref<4xi32>)
        weights(%w : memref<4x128x64xbf16>) nk
        outs(%y : memref<?x128xbf16>) {...}
    ```

    becomes

    ```mlir
    %blocks = moira_nv.processors
    moira_nv.launch @moira_gpu::@grouped_0 grid(%blocks) block(256) shared(65536)
        args(%x, %s, %w, %y, %zero : ...)
    ```
  }];
  let options = [
    Option<"arch", "arch", "std::string", "\"sm_80\"",
           "architecture to build for: sm_80, sm_90a, or both: sm_80,sm_90a">,
    Option<"fallback", "fallback", "bool", "false",
           "leave an op without a kernel, with a remark, for loops">];
  let statistics = [
    Statistic<"numKernels", "num-kernels", "kernels built">,
    Statistic<"numFallbacks", "num-fallbacks", "ops left for loops">];
  let dependentDialects = [
    "::mlir::LLVM::LLVMDialect", "::mlir::NVVM::NVVMDialect",
    "::mlir::arith::ArithDialect", "::mlir::func::FuncDialect",
    "::mlir::gpu::GPUDialect",
    "::mlir::math::MathDialect", "::mlir::memref::MemRefDialect",
    "::mlir::nv::NVDialect", "::mlir::scf::SCFDialect"];
}

def OutlineKernelsPass : Pass<"moe-outline-kernels", "::mlir::ModuleOp"> {
  let summary = "make kernels of the loops of a step";
  let description = [{
    In functions whose memrefs are memory of a GPU, every outermost `scf.parallel`
    becomes a kernel of `@moira_gpu` with a thread per iteration, and any other
    loop, branch or store that touches memory a kernel of one thread. Loops around
    kernels stay, with bounds that the host knows; numbers that a loop computes
    come back through memory. Values from outside are parameters: of a memref the
    pointer and what its type does not say of sizes, strides and offset.

    Loads and copies stay for `moe-emit-entries`. Numbers that only the host writes
    and reads, such as tickets of transfers, keep their memory there
    (`moira_nv.on_host`). An allocation in a kernel and a call of a function of the
    host are errors that name the op.

    ```mlir
    scf.parallel (%i) = (%c0) to (%n) step (%c1) {
      %0 = memref.load %x[%i] : memref<?xf32>
      memref.store %0, %y[%i] : memref<?xf32>
    }
    ```

    becomes

    ```mlir
    moira_nv.launch @moira_gpu::@loop_0 grid(%blocks) block(128) shared(0)
        args(%x, %n_x, %y, %n_y, %n : memref<?xf32>, i64, memref<?xf32>, i64, i64)
    ```
  }];
  let statistics = [
    Statistic<"numKernels", "num-kernels", "kernels built">];
  let dependentDialects = [
    "::mlir::LLVM::LLVMDialect", "::mlir::NVVM::NVVMDialect",
    "::mlir::arith::ArithDialect", "::mlir::gpu::GPUDialect",
    "::mlir::memref::MemRefDialect", "::mlir::nv::NVDialect",
    "::mlir::scf::SCFDialect"];
}

def LowerGPUModulePass
    : Pass<"moe-lower-gpu-module", "::mlir::gpu::GPUModuleOp"> {
  let summary = "lower the kernels of a GPU module to the NVVM dialect";
  let description = [{
    Turns `scf`, `cf`, `arith`, `math` and `vector` in the functions of a
    `gpu.module` into the LLVM dialect. Functions are `llvm.func` and use `nvvm`
    already. What comes out is the contract that PTX and the emulated device
    share: nothing of `nvvm` is lowered, and there is no inline assembly.
    `exp` and `log` on f32 get the project's one expansion, so that kernels give
    the bits that the processor gives. Memrefs in kernels of
    `moe-outline-kernels` become descriptors in registers.
  }];
  let dependentDialects = ["::mlir::LLVM::LLVMDialect",
                           "::mlir::NVVM::NVVMDialect",
                           "::mlir::affine::AffineDialect",
                           "::mlir::cf::ControlFlowDialect",
                           "::mlir::math::MathDialect"];
}

//===----------------------------------------------------------------------===//
// NVVMToEmulator
//===----------------------------------------------------------------------===//

def RaiseNVVMPass : Pass<"moe-raise-nvvm", "::mlir::gpu::GPUModuleOp"> {
  let summary = "bring kernels of other compilers to the NVVM dialect";
  let description = [{
    Takes a `gpu.module` whose functions were imported from LLVM IR for NVIDIA
    GPUs (Triton's, clang's) and replaces calls of intrinsics `llvm.nvvm.*` and
    inline PTX by ops of the NVVM and LLVM dialects, for `moe-emulate-nvvm`.
    Functions with the calling convention of kernels become kernels. Registers of
    PTX become places in the thread's frame and predicates branches.
    Approximations (`ex2.approx`, `div.full`) become the functions themselves.

    What it does not know is an error that names the intrinsic or instruction.

    ```mlir
    %v = llvm.inline_asm has_side_effects
        "mov.u32 $0, 0x0; @$2 ld.global.b32 { $0 }, [ $1 + 0 ];", "=r,l,b" %p, %is
        : (!llvm.ptr<1>, i1) -> i32
    ```

    becomes a load behind a branch.
  }];
  let dependentDialects = ["::mlir::LLVM::LLVMDialect",
                           "::mlir::NVVM::NVVMDialect"];
}

def EmulateNVVMPass : Pass<"moe-emulate-nvvm", "::mlir::ModuleOp"> {
  let summary = "make host code of GPU kernels, for the emulated device";
  let description = [{
    Moves the functions of each `gpu.module` (of the LLVM and NVVM dialects) into
    the module around it and replaces every `nvvm` op by a call through a table
    of functions (`moira/emulator_abi.h`). With `instrument`, loads and stores of
    shared and global memory announce themselves, which is what the checks of
    the device need. Pointers lose their address spaces; a shared pointer that
    becomes an integer becomes its offset in the shared window, as on the
    hardware. Roundings to bf16 become integer arithmetic.

    An op without an emulation is an error that names it; none is skipped. Each
    call carries the number of its site, op and source position.

    ```mlir
    gpu.module @kernels {
      llvm.func @copy(%p: !llvm.ptr<1>) attributes {nvvm.kernel} {
        nvvm.barrier0
        llvm.return
      }
    }
    ```

    becomes the function `@copy_kernels`, which loads the barrier's address from
    the table and calls it, and the constant `@moira_emu_module_kernels`, which
    describes kernels, parameters and sites to the loader.
  }];
  let options = [
    Option<"instrument", "instrument", "bool", "true",
           "announce loads and stores">];
  let dependentDialects = ["::mlir::LLVM::LLVMDialect"];
}

#endif // MOIRA_CONVERSION_PASSES_TD
