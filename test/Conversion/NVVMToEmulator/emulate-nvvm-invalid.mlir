// RUN: moira-opt %s -split-input-file -moe-emulate-nvvm -verify-diagnostics

gpu.module @kernels {
  llvm.func @unknown() attributes {nvvm.kernel} {
    // expected-error @below {{'nvvm.cluster.wait' op expected an op with an emulation, got one without}}
    nvvm.cluster.wait
    llvm.return
  }
}

// -----

gpu.module @kernels {
  llvm.func @assembly() attributes {nvvm.kernel} {
    // expected-error @below {{'llvm.inline_asm' op expected an op with an emulation, got one without}}
    llvm.inline_asm has_side_effects "nop;", "" : () -> ()
    llvm.return
  }
}

// -----

gpu.module @kernels {
  llvm.func @__nv_expf(f32) -> f32
  llvm.func @library(%x: f32) attributes {nvvm.kernel} {
    // expected-error @below {{'llvm.call' op expected a function with a body, got a declaration of '__nv_expf'}}
    %y = llvm.call @__nv_expf(%x) : (f32) -> f32
    llvm.return
  }
}

// -----

gpu.module @kernels {
  // expected-error @below {{'gpu.func' op expected functions and globals of the LLVM dialect in a GPU module}}
  gpu.func @high() kernel {
    gpu.return
  }
}

// -----

gpu.module @kernels {
  llvm.func @tensorFloat(%a: i32, %b: i32, %c: f32) attributes {nvvm.kernel} {
    // expected-error @below {{'nvvm.mma.sync' op expected an op with an emulation, got one without}}
    %d = nvvm.mma.sync A[%a, %a, %a, %a] B[%b, %b] C[%c, %c, %c, %c]
        {layoutA = #nvvm.mma_layout<row>, layoutB = #nvvm.mma_layout<col>,
         multiplicandAPtxType = #nvvm.mma_type<tf32>,
         multiplicandBPtxType = #nvvm.mma_type<tf32>,
         shape = #nvvm.shape<m = 16, n = 8, k = 8>}
        : (i32, i32, f32) -> !llvm.struct<(f32, f32, f32, f32)>
    llvm.return
  }
}

// -----

gpu.module @kernels {
  llvm.func @rounding(%x: f64, %p: !llvm.ptr<1>) attributes {nvvm.kernel} {
    // expected-error @below {{'llvm.fptrunc' op expected a rounding from f32 to bf16, got one from 'f64'}}
    %y = llvm.fptrunc %x : f64 to bf16
    llvm.store %y, %p : bf16, !llvm.ptr<1>
    llvm.return
  }
}
