// Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef MOIRA_DIALECT_MOE_IR_MOEOPBASE_TD
#define MOIRA_DIALECT_MOE_IR_MOEOPBASE_TD

include "moira/Dialect/MoE/IR/MoEAttrs.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

// A tensor, or the memref that takes its place in the buffer form.
class MoE_ShapedOf<list<Type> elements, list<int> ranks>
    : AnyTypeOf<[TensorRankOf<elements, ranks>,
                 MemRefRankOf<elements, ranks>]>;

def MoE_RowType : AnyTypeOf<[F16, BF16, F32, F64]>;
def MoE_ScoreType : AnyTypeOf<[F32, F64]>;
def MoE_Rows : MoE_ShapedOf<[F16, BF16, F32, F64], [2, 3]>;
def MoE_FlatRows : MoE_ShapedOf<[F16, BF16, F32, F64], [2]>;
def MoE_Ids : MoE_ShapedOf<[I32], [2]>;
def MoE_Counts : MoE_ShapedOf<[I32], [1]>;
def MoE_Weights : MoE_ShapedOf<[F32, F64], [2]>;
def MoE_Vector : MoE_ShapedOf<[F16, BF16, F32, F64], [1]>;
def MoE_Any : AnyTypeOf<[AnyRankedTensor, AnyNon0RankedMemRef]>;

class MoE_Op<string mnemonic, list<Trait> traits = []>
    : Op<MoE_Dialect, mnemonic, traits>;

// An op with a tensor form and a buffer form. Reads its memref operands and
// writes `outs`; the tensor form has no effects.
class MoE_ComputeOp<string mnemonic, list<Trait> traits = []>
    : MoE_Op<mnemonic, !listconcat(traits, [
        DeclareOpInterfaceMethods<MemoryEffectsOpInterface>])> {
  let hasVerifier = 1;
}

#endif // MOIRA_DIALECT_MOE_IR_MOEOPBASE_TD
