// RUN: moira-opt %s -split-input-file -verify-diagnostics

func.func @tensor_map_c1_rank(%x: memref<8xbf16>) {
  // expected-error @below {{'moira_nv.tensor_map' op expected a memref of 2 to 5 dimensions of bf16 or f16 with the identity layout, got 'memref<8xbf16>'}}
  %m = moira_nv.tensor_map %x box [8] : memref<8xbf16>
  return
}

// -----

func.func @tensor_map_c1_type(%x: memref<8x8xf32>) {
  // expected-error @below {{expected a memref of 2 to 5 dimensions of bf16 or f16 with the identity layout, got 'memref<8x8xf32>'}}
  %m = moira_nv.tensor_map %x box [8, 8] : memref<8x8xf32>
  return
}

// -----

func.func @tensor_map_c1_static(%x: memref<8x?xbf16>) {
  // expected-error @below {{expected static inner dimensions, got 'memref<8x?xbf16>'}}
  %m = moira_nv.tensor_map %x box [8, 8] : memref<8x?xbf16>
  return
}

// -----

func.func @tensor_map_c1_rows(%x: memref<8x12xbf16>) {
  // expected-error @below {{expected rows of a multiple of 16 bytes, got 'memref<8x12xbf16>'}}
  %m = moira_nv.tensor_map %x box [8, 8] : memref<8x12xbf16>
  return
}

// -----

func.func @tensor_map_c2(%x: memref<8x128xbf16>) {
  // expected-error @below {{expected a box of 2 extents of 1 to 256, got [257, 8]}}
  %m = moira_nv.tensor_map %x box [257, 8] : memref<8x128xbf16>
  return
}

// -----

func.func @tensor_map_c2_row(%x: memref<8x128xbf16>) {
  // expected-error @below {{expected a box row of at most 128 bytes, got 256}}
  %m = moira_nv.tensor_map %x box [8, 128] : memref<8x128xbf16>
  return
}

// -----

func.func @launch_c1(%n: index) {
  // expected-error @below {{'moira_nv.launch' op expected a kernel, got @kernels::@none}}
  moira_nv.launch @kernels::@none grid(%n) block(32) shared(0) args()
  return
}

// -----

gpu.module @kernels {
  llvm.func @k(%a: !llvm.ptr<1>) {
    llvm.return
  }
}
func.func @launch_c2_count(%n: index) {
  // expected-error @below {{expected 1 operands for @kernels::@k, got 0}}
  moira_nv.launch @kernels::@k grid(%n) block(32) shared(0) args()
  return
}

// -----

gpu.module @kernels {
  llvm.func @k(%a: !llvm.ptr<1>) {
    llvm.return
  }
}
func.func @launch_c2_type(%n: index, %i: i32) {
  // expected-error @below {{expected operand 0 to fit the parameter '!llvm.ptr<1>', got 'i32'}}
  moira_nv.launch @kernels::@k grid(%n) block(32) shared(0) args(%i : i32)
  return
}

// -----

func.func @launch_c3(%n: index, %x: memref<4xi32, strided<[2]>>) {
  // expected-error @below {{expected memrefs with the identity layout, got 'memref<4xi32, strided<[2]>>'}}
  moira_nv.launch @kernels::@k grid(%n) block(32) shared(0)
      args(%x : memref<4xi32, strided<[2]>>)
  return
}

// -----

// expected-error @below {{expected a tile of three positive extents, got [1, 2]}}
#tile = #moira_nv.schedule<cp_async, tile = [1, 2], stages = 1, warps = [1, 1]>

// -----

// expected-error @below {{expected two positive numbers of warps, got [0, 1]}}
#warps = #moira_nv.schedule<cp_async, tile = [1, 2, 3], stages = 1, warps = [0, 1]>

// -----

// expected-error @below {{expected at least one stage, got 0}}
#stages = #moira_nv.schedule<cp_async, tile = [1, 2, 3], stages = 0, warps = [1, 1]>
