// RUN: moira-opt %s -split-input-file -convert-moe-to-gpu -verify-diagnostics

func.func @tensors(%x: tensor<?x64xbf16>, %s: tensor<4xi32>,
                   %w: tensor<4x128x64xbf16>) -> tensor<?x128xf32> {
  // expected-error @below {{'moe.grouped_matmul' op expected the buffer form, got the tensor form}}
  %y = moe.grouped_matmul rows(%x : tensor<?x64xbf16>)
      groups(%s : tensor<4xi32>) weights(%w : tensor<4x128x64xbf16>) nk
      -> tensor<?x128xf32> {
  ^bb0(%a: f32):
    moe.yield %a : f32
  }
  return %y : tensor<?x128xf32>
}

// -----

func.func @wide(%x: memref<?x64xf64>, %s: memref<4xi32>,
                %w: memref<4x128x64xf64>, %y: memref<?x128xf64>) {
  // expected-error @below {{'moe.grouped_matmul' op expected rows and weights of bf16 or f16, got 'f64'}}
  moe.grouped_matmul rows(%x : memref<?x64xf64>) groups(%s : memref<4xi32>)
      weights(%w : memref<4x128x64xf64>) nk outs(%y : memref<?x128xf64>) {
  ^bb0(%a: f64):
    moe.yield %a : f64
  }
  return
}

// -----

func.func @pairs(%x: memref<?x64xbf16>, %s: memref<4xi32>,
                 %w: memref<4x2x32x64x2xbf16>, %y: memref<?x128xf32>) {
  // expected-error @below {{'moe.grouped_matmul' op expected panels of single steps on a GPU, got pairs}}
  moe.grouped_matmul rows(%x : memref<?x64xbf16>) groups(%s : memref<4xi32>)
      weights(%w : memref<4x2x32x64x2xbf16>) panels
      outs(%y : memref<?x128xf32>) {
  ^bb0(%a: f32):
    moe.yield %a : f32
  }
  return
}

// -----

func.func @narrowPanels(%x: memref<?x64xbf16>, %s: memref<4xi32>,
                        %w: memref<4x32x64x4xbf16>, %y: memref<?x128xf32>) {
  // expected-error @below {{'moe.grouped_matmul' op expected panels of multiples of 16 bytes, got 4 elements}}
  moe.grouped_matmul rows(%x : memref<?x64xbf16>) groups(%s : memref<4xi32>)
      weights(%w : memref<4x32x64x4xbf16>) panels outs(%y : memref<?x128xf32>) {
  ^bb0(%a: f32):
    moe.yield %a : f32
  }
  return
}

// -----

func.func @packedResult(%dy: memref<?x128xbf16>, %x: memref<?x64xbf16>,
                        %s: memref<4xi32>, %dw: memref<4x2x64x64xf32>) {
  // expected-error @below {{'moe.grouped_matmul' op expected a row-major result in mode contraction, got panels}}
  moe.grouped_matmul rows(%dy, %x : memref<?x128xbf16>, memref<?x64xbf16>)
      groups(%s : memref<4xi32>) panels contraction
      outs(%dw : memref<4x2x64x64xf32>) {}
  return
}

// -----

func.func @singleOnTensorCores(%x: memref<?x64xf32>, %s: memref<4xi32>,
                               %w: memref<4x128x64xf32>, %y: memref<?x128xf32>) {
  // expected-error @below {{'moe.grouped_matmul' op expected rows and weights of bf16 or f16, got 'f32'}}
  moe.grouped_matmul rows(%x : memref<?x64xf32>) groups(%s : memref<4xi32>)
      weights(%w : memref<4x128x64xf32>) nk outs(%y : memref<?x128xf32>)
      attributes {moira_nv.schedule = #moira_nv.schedule<cp_async, tile = [128, 128, 32], stages = 4, warps = [2, 4]>} {
  ^bb0(%a: f32):
    moe.yield %a : f32
  }
  return
}

// -----

func.func @narrowOnSimt(%x: memref<?x64xbf16>, %s: memref<4xi32>,
                        %w: memref<4x128x64xbf16>, %y: memref<?x128xf32>) {
  // expected-error @below {{'moe.grouped_matmul' op expected rows and weights of f32, got 'bf16'}}
  moe.grouped_matmul rows(%x : memref<?x64xbf16>) groups(%s : memref<4xi32>)
      weights(%w : memref<4x128x64xbf16>) nk outs(%y : memref<?x128xf32>)
      attributes {moira_nv.schedule = #moira_nv.schedule<simt, tile = [128, 128, 16], stages = 4, warps = [2, 4]>} {
  ^bb0(%a: f32):
    moe.yield %a : f32
  }
  return
}

// -----

func.func @tooManySums(%x: memref<?x64xbf16>, %s: memref<4xi32>,
                       %w: memref<4x128x64xbf16>, %y: memref<?x128xf32>) {
  // expected-error @below {{'moe.grouped_matmul' op expected at most 128 sums of a thread, got 192}}
  moe.grouped_matmul rows(%x : memref<?x64xbf16>) groups(%s : memref<4xi32>)
      weights(%w : memref<4x128x64xbf16>) nk outs(%y : memref<?x128xf32>)
      attributes {hidden = #moe.hidden<4 of k>,
                  moira_nv.schedule = #moira_nv.schedule<cp_async, tile = [128, 128, 32], stages = 4, warps = [2, 4]>} {
  ^bb0(%a: f32):
    moe.yield %a : f32
  }
  return
}

// -----

func.func @mixed(%x: memref<?x64xbf16>, %s: memref<4xi32>,
                 %w: memref<4x128x64xf16>, %y: memref<?x128xf32>) {
  // expected-error @below {{'moe.grouped_matmul' op expected rows and weights of one type on a GPU, got 'bf16' and 'f16'}}
  moe.grouped_matmul rows(%x : memref<?x64xbf16>) groups(%s : memref<4xi32>)
      weights(%w : memref<4x128x64xf16>) nk outs(%y : memref<?x128xf32>) {
  ^bb0(%a: f32):
    moe.yield %a : f32
  }
  return
}

// -----

func.func @strided(%x: memref<?x64xbf16, strided<[128, 1]>>, %s: memref<4xi32>,
                   %w: memref<4x128x64xbf16>, %y: memref<?x128xf32>) {
  // expected-error @below {{'moe.grouped_matmul' op expected memrefs with the identity layout on a GPU, got 'memref<?x64xbf16, strided<[128, 1]>>'}}
  moe.grouped_matmul rows(%x : memref<?x64xbf16, strided<[128, 1]>>)
      groups(%s : memref<4xi32>) weights(%w : memref<4x128x64xbf16>) nk
      outs(%y : memref<?x128xf32>) {
  ^bb0(%a: f32):
    moe.yield %a : f32
  }
  return
}

// -----

func.func @wrongStyle(%x: memref<?x64xbf16>, %s: memref<4xi32>,
                      %w: memref<4x128x64xbf16>, %y: memref<?x128xf32>) {
  // expected-error @below {{'moe.grouped_matmul' op expected a schedule of style cp_async for this architecture, got warpgroup}}
  moe.grouped_matmul rows(%x : memref<?x64xbf16>) groups(%s : memref<4xi32>)
      weights(%w : memref<4x128x64xbf16>) nk outs(%y : memref<?x128xf32>)
      attributes {moira_nv.schedule = #moira_nv.schedule<warpgroup, tile = [128, 128, 64], stages = 4, warps = [2, 1]>} {
  ^bb0(%a: f32):
    moe.yield %a : f32
  }
  return
}

// -----

func.func @tooManyStages(%x: memref<?x64xbf16>, %s: memref<4xi32>,
                         %w: memref<4x128x64xbf16>, %y: memref<?x128xf32>) {
  // expected-error @below {{'moe.grouped_matmul' op expected at most 166912 bytes of shared memory, got 262144}}
  moe.grouped_matmul rows(%x : memref<?x64xbf16>) groups(%s : memref<4xi32>)
      weights(%w : memref<4x128x64xbf16>) nk outs(%y : memref<?x128xf32>)
      attributes {moira_nv.schedule = #moira_nv.schedule<cp_async, tile = [128, 128, 64], stages = 8, warps = [2, 4]>} {
  ^bb0(%a: f32):
    moe.yield %a : f32
  }
  return
}

// -----

func.func @wrongTile(%x: memref<?x64xbf16>, %s: memref<4xi32>,
                     %w: memref<4x128x64xbf16>, %y: memref<?x128xf32>) {
  // expected-error @below {{'moe.grouped_matmul' op expected a tile of powers of two from 16x32, 64 or 128 bytes deep, got 96x128x32}}
  moe.grouped_matmul rows(%x : memref<?x64xbf16>) groups(%s : memref<4xi32>)
      weights(%w : memref<4x128x64xbf16>) nk outs(%y : memref<?x128xf32>)
      attributes {moira_nv.schedule = #moira_nv.schedule<cp_async, tile = [96, 128, 32], stages = 4, warps = [2, 4]>} {
  ^bb0(%a: f32):
    moe.yield %a : f32
  }
  return
}
