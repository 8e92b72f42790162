// RUN: moira-opt %s -moe-emulate-nvvm | FileCheck %s
// RUN: moira-opt %s -moe-emulate-nvvm=instrument=false | FileCheck %s --check-prefix=PLAIN

// Ops become calls through the table, pointers lose their address space, and
// shared globals their storage.

// CHECK-NOT: gpu.module
// CHECK-NOT: nvvm.
// CHECK-NOT: addr_space
// CHECK-LABEL: llvm.func internal @copy_kernels(%arg0: !llvm.ptr)
// CHECK: %[[TABLE:.*]] = llvm.mlir.addressof @moira_emu_table_kernels : !llvm.ptr
// CHECK: llvm.load %{{.*}} : !llvm.ptr -> !llvm.ptr
// CHECK: llvm.call %{{.*}}(%{{.*}}, %{{.*}}) : !llvm.ptr, (i32, i32) -> i32
// CHECK-NOT: llvm.mlir.addressof @shared
// CHECK: llvm.return
// CHECK: llvm.mlir.global internal @moira_emu_table_kernels() {{.*}} : !llvm.array<{{[0-9]+}} x ptr>
// CHECK-LABEL: llvm.func internal @moira_emu_entry_copy_kernels(%arg0: !llvm.ptr)
// CHECK: llvm.call @copy_kernels(%{{.*}}) : (!llvm.ptr) -> ()
// CHECK: llvm.mlir.global internal constant @moira_emu_parameters_copy_kernels
// CHECK: llvm.mlir.global internal constant @moira_emu_name_copy_kernels("copy\00")
// CHECK: llvm.mlir.global internal constant @moira_emu_site_{{.*}}("emulate-nvvm.mlir:{{[0-9]+}}: nvvm.read.ptx.sreg.tid.x\00")
// CHECK: llvm.mlir.global external constant @moira_emu_module_kernels

// PLAIN-NOT: llvm.store\00
gpu.module @kernels {
  llvm.mlir.global internal @shared() {addr_space = 3 : i32} : !llvm.array<4 x i32>
  llvm.func @copy(%p: !llvm.ptr<1>) attributes {nvvm.kernel} {
    %i = nvvm.read.ptx.sreg.tid.x : i32
    %s = llvm.mlir.addressof @shared : !llvm.ptr<3>
    llvm.store %i, %s : i32, !llvm.ptr<3>
    nvvm.barrier0
    %x = llvm.load %s : !llvm.ptr<3> -> i32
    llvm.store %x, %p : i32, !llvm.ptr<1>
    llvm.return
  }
}
