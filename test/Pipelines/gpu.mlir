// A layer for a GPU: kernels that read weights as they are, and host code that
// launches them.

// RUN: moira-opt %S/../Tools/Inputs/layer.mlir \
// RUN:   --pass-pipeline='builtin.module(moe-to-kernels{arch=sm_80})' \
// RUN:   | FileCheck %s --check-prefix=KERNELS
// KERNELS: func.func private @main_prefill
// KERNELS-SAME: tensor<4x2x4xf32> {moe.param = #moe.param<"experts.{}.w">}
// KERNELS: moe.grouped_matmul {{.*}} nk gather

// RUN: moira-opt %S/../Tools/Inputs/layer.mlir \
// RUN:   --pass-pipeline='builtin.module(moe-to-target{arch=sm_80})' \
// RUN:   | FileCheck %s --check-prefix=TARGET
// TARGET: module attributes {
// TARGET-SAME: \22arch\22:\22sm_80\22,\22emulated\22:\22moira_emu_module_moira_gpu\22
// TARGET-NOT: gpu.module
// TARGET-DAG: llvm.func @moira_step_main_prefill
// TARGET-DAG: llvm.func internal @gate_{{[0-9]+}}_moira_gpu
// TARGET-DAG: llvm.func internal @grouped_{{[0-9]+}}_moira_gpu
// TARGET-DAG: llvm.mlir.global external constant @moira_emu_module_moira_gpu

// Hidden blocks, which ranks exchange, are packed each for itself.
// RUN: moira-opt %S/../Tools/Inputs/layer.mlir \
// RUN:   --pass-pipeline='builtin.module(moe-to-kernels{arch=sm_80 hidden-blocks=2})' \
// RUN:   | FileCheck %s --check-prefix=BLOCKS
// BLOCKS: moe.grouped_matmul {{.*}} panels gather

// The code of kernels, and the modules when it has been made.
// RUN: moira-opt %s -moe-embed-kernels="arch=sm_90a ptx=true emulated=true" \
// RUN:   | FileCheck %s --check-prefix=EMBED
// EMBED: gpu.module @kernels attributes {
// EMBED-SAME: moira.arch = "sm_90a"
// EMBED-SAME: moira.emulated
// EMBED-SAME: moira.ptx = "{{.*}}.target sm_90a{{.*}}.entry nothing
// RUN: moira-opt %s -moe-erase-kernels | FileCheck %s --check-prefix=ERASE
// ERASE-NOT: gpu.

module attributes {gpu.container_module} {
  gpu.module @kernels {
    llvm.func @nothing() attributes {nvvm.kernel} {
      llvm.return
    }
  }
}
