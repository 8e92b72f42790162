// RUN: moira-opt %s -split-input-file -pass-pipeline='builtin.module(gpu.module(moe-raise-nvvm))' -verify-diagnostics

gpu.module @kernels {
  llvm.func @intrinsic(%a: i32) {
    // expected-error @below {{'llvm.call_intrinsic' op expected an intrinsic with an NVVM op, got 'llvm.nvvm.redux.sync.add'}}
    %b = llvm.call_intrinsic "llvm.nvvm.redux.sync.add"(%a, %a) : (i32, i32) -> i32
    llvm.return
  }
}

// -----

gpu.module @kernels {
  llvm.func @instruction(%a: i32) {
    // expected-error @below {{'llvm.inline_asm' op expected PTX that is understood, got 'prmt.b32 $0, $1, $1, 0x5410'}}
    %b = llvm.inline_asm asm_dialect = att
        "mov.b32 $0, $1; prmt.b32 $0, $1, $1, 0x5410;", "=r,r" %a : (i32) -> i32
    llvm.return
  }
}

// -----

gpu.module @kernels {
  llvm.func @cluster(%a: i32, %p: i32) {
    // expected-error @below {{'llvm.inline_asm' op expected PTX that is understood, got 'st.shared::cluster.b32 [$0], $1'}}
    llvm.inline_asm has_side_effects asm_dialect = att
        "st.shared::cluster.b32 [$0], $1;", "r,r" %p, %a : (i32, i32) -> ()
    llvm.return
  }
}

// -----

gpu.module @kernels {
  llvm.func @text(%a: i32) {
    // expected-error @below {{'llvm.inline_asm' op expected PTX that is understood, got 'mov.b32 $0 $1'}}
    %b = llvm.inline_asm asm_dialect = att "mov.b32 $0 $1;", "=r,r" %a : (i32) -> i32
    llvm.return
  }
}

// -----

gpu.module @kernels {
  llvm.func @constraints(%a: i32) {
    // expected-error @below {{'llvm.inline_asm' op expected registers as operands of PTX, got '=r,r,r'}}
    %b = llvm.inline_asm asm_dialect = att "mov.b32 $0, $1;", "=r,r,r" %a : (i32) -> i32
    llvm.return
  }
}
