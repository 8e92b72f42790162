// Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef MOIRA_DIALECT_NV_IR_NVOPS_TD
#define MOIRA_DIALECT_NV_IR_NVOPS_TD

include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/DialectBase.td"
include "mlir/IR/EnumAttr.td"
include "mlir/IR/OpBase.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def NV_Dialect : Dialect {
  let name = "moira_nv";
  let cppNamespace = "::mlir::nv";
  let summary = "how the host drives kernels of NVIDIA GPUs";
  let description = [{
    What `gpu` and `nvvm` lack: launches whose operands include tensor maps by
    value, the tensor maps themselves, and how a kernel is cut into tiles. The
    ops stand in host code; memrefs are memory of the device. docs/gpu.md.
  }];
  let useDefaultAttributePrinterParser = 1;
  let useDefaultTypePrinterParser = 1;
}

class NV_Op<string mnemonic, list<Trait> traits = []>
    : Op<NV_Dialect, mnemonic, traits>;

def NV_TensorMapType : TypeDef<NV_Dialect, "TensorMap"> {
  let mnemonic = "tensor_map";
  let summary = "a box view of device memory, as the driver encodes it";
}

def NV_Style : I32EnumAttr<"Style", "style of a kernel's pipeline", [
    I32EnumAttrCase<"CpAsync", 0, "cp_async">,
    I32EnumAttrCase<"Warpgroup", 1, "warpgroup">,
    I32EnumAttrCase<"Simt", 2, "simt">]> {
  let genSpecializedAttr = 0;
  let cppNamespace = "::mlir::nv";
}

def NV_ScheduleAttr : AttrDef<NV_Dialect, "Schedule"> {
  let mnemonic = "schedule";
  let summary = "tile and pipeline of a kernel";
  let description = [{
    `cp_async` kernels copy by cp.async and multiply by mma.sync (sm_80 and up);
    `warpgroup` kernels copy boxes and multiply by wgmma (sm_90a); `simt` kernels
    copy by cp.async and multiply f32 by fused multiply-adds. `tile` is rows,
    columns of each weight, and depth of a stage. `warps` are those along rows
    and columns; of `warpgroup` the first number counts multiplying warpgroups.

    ```mlir
    #moira_nv.schedule<cp_async, tile = [128, 128, 32], stages = 4, warps = [2, 4]>
    ```
  }];
  let parameters = (ins EnumParameter<NV_Style>:$style,
                        ArrayRefParameter<"int64_t">:$tile, "int64_t":$stages,
                        ArrayRefParameter<"int64_t">:$warps);
  let assemblyFormat = [{
    `<` $style `,` `tile` `=` `[` $tile `]` `,` `stages` `=` $stages `,`
    `warps` `=` `[` $warps `]` `>`
  }];
  let genVerifyDecl = 1;
}

def NV_ProcessorsOp : NV_Op<"processors", [Pure]> {
  let summary = "multiprocessors of the device";
  let results = (outs Index:$count);
  let assemblyFormat = "attr-dict";
}

def NV_ArchitectureOp : NV_Op<"architecture", [Pure]> {
  let summary = "architecture of the device: 80, 90";
  let results = (outs Index:$number);
  let assemblyFormat = "attr-dict";
}

def NV_TensorMapOp : NV_Op<"tensor_map", [Pure]> {
  let summary = "encode a box view of a memref";
  let description = [{
    The view has the memref's dimensions; `box` is the part that one copy moves,
    in the memref's order, outermost first. Rows of the box are swizzled in
    shared memory over 128 bytes.

    **Constraints**
    * tensor_map_c1: the memref has 2 to 5 dimensions, 16-bit floats, rows of a
      multiple of 16 bytes and the identity layout.
    * tensor_map_c2: `box` has one extent of 1 to 256 per dimension, and a row
      of at most 128 bytes.

    ```mlir
    %map = moira_nv.tensor_map %rows box [128, 64] : memref<?x512xbf16>
    ```
  }];
  let arguments = (ins AnyNon0RankedMemRef:$source, DenseI64ArrayAttr:$box);
  let results = (outs NV_TensorMapType:$map);
  let assemblyFormat = "$source `box` $box attr-dict `:` type($source)";
  let hasVerifier = 1;
}

def NV_LaunchOp : NV_Op<"launch", [
    MemoryEffects<[MemRead, MemWrite]>,
    DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "queue a kernel";
  let description = [{
    Queues `grid` blocks of `block` threads with `shared` bytes of dynamic shared
    memory. A memref stands for a pointer to its first element.

    **Constraints**
    * launch_c1: the kernel exists in its GPU module.
    * launch_c2: one operand per parameter: a memref for a pointer, a tensor map
      for a pointer to one by value, else the same type.
    * launch_c3: memrefs have the identity layout.

    ```mlir
    moira_nv.launch @moira_gpu::@grouped_0 grid(%blocks) block(256) shared(65536)
        args(%rows, %sizes, %zero : memref<?x8xbf16>, memref<4xi32>, i32)
    ```
  }];
  let arguments = (ins SymbolRefAttr:$kernel, Index:$grid, I64Attr:$block,
                       I64Attr:$shared, Variadic<AnyType>:$arguments);
  let assemblyFormat = [{
    $kernel `grid` `(` $grid `)` `block` `(` $block `)` `shared` `(` $shared `)`
    `args` `(` ($arguments^ `:` type($arguments))? `)` attr-dict
  }];
  let hasVerifier = 1;
}

#endif // MOIRA_DIALECT_NV_IR_NVOPS_TD
