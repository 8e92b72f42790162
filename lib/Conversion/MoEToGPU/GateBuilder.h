// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// The router, one warp per token: scores in shared memory, the best by
// exchanging between lanes. Sums run over experts (or choices) in ascending
// order in f64, as docs/routing.md has it, so that a GPU agrees with the CPU.

#ifndef MOIRA_LIB_CONVERSION_MOETOGPU_GATEBUILDER_H
#define MOIRA_LIB_CONVERSION_MOETOGPU_GATEBUILDER_H

#include "KernelBuilder.h"
#include "moira/Conversion/MoEToGPU/RoutingKernel.h"

#include "mlir/Dialect/Math/IR/Math.h"

namespace mlir::moe::detail {

using arith::CmpFPredicate;

class GateBuilder {
public:
  /// `parameters` of the kernel, the logits first.
  GateBuilder(gpu::GPUModuleOp module, const GateKernel &kernel,
              ArrayRef<Type> parameters);

  /// Ends the kernel: body(token) for this warp's tokens.
  LLVM::LLVMFuncOp forEachToken(Value tokens, function_ref<void(Value)> body);

  /// Keys and values of a token's experts in shared memory. Who reads those of
  /// another lane's experts must `sync` before.
  void scoreExperts(Value token, Value bias);
  /// Keys of -inf for all but the best groups.
  void maskGroups();
  /// The ids and keys of the choices; lane j has those of choice j.
  std::pair<Value, Value> select();
  /// The weight of this lane's choice before normalisation. One that is not
  /// alive is only there to keep ids distinct.
  Value weigh(Value id, Value isAlive);
  /// A weight by the sum (f64) of its token's, as the router says.
  Value normalize(Value weight, Value sum);
  Value scale(Value weight);
  /// The sum over the choices' lanes in order, in f64.
  Value sumOfChoices(Value value);

  // f32.
  Value real(double value) {
    return b.make<arith::ConstantOp>(b.builder.getF32FloatAttr(value));
  }
  Value minusInfinity() {
    return b.make<arith::ConstantOp>(b.builder.getFloatAttr(
        b.f32, APFloat::getInf(APFloat::IEEEsingle(), /*Negative=*/true)));
  }
  Value compareReal(CmpFPredicate predicate, Value x, Value y) {
    return b.make<arith::CmpFOp>(predicate, x, y);
  }
  Value isDead(Value key) {
    return compareReal(CmpFPredicate::OEQ, key, minusInfinity());
  }
  /// NaN counts as -inf, +inf as the largest finite value.
  Value sanitize(Value x);

  // Rows of this warp in shared memory.
  Value keyPlace(Value expert) { return b.at(keys, b.mul(expert, 4)); }
  Value valuePlace(Value expert) { return b.at(values, b.mul(expert, 4)); }
  Value groupPlace(Value group) { return b.at(groups, b.mul(group, 4)); }
  /// Where element (row, column) of a matrix of 4-byte elements stands.
  Value place(Value matrix, Value row, int64_t columns, Value column) {
    return b.at(matrix,
                b.mul(b.add(b.mul(b.widen(row), columns), b.widen(column)), 4));
  }

  /// Calls body(expert) for this lane's experts.
  void forOwn(function_ref<void(Value)> body);
  Value exchange(Value value, Value offset, NVVM::ShflKind kind, MOIRA_HERE);
  void sync(MOIRA_HERE) { b.makeHere<NVVM::SyncWarpOp>(file, line, allLanes); }
  Value ballot(Value isSet, MOIRA_HERE) {
    return b.makeHere<NVVM::VoteSyncOp>(file, line, b.i32, allLanes, isSet,
                                        NVVM::VoteSyncKind::ballot);
  }

  KernelBuilder b;
  Type f64;
  Value lane;

private:
  Value score(Value logit);
  void softmax(Value top);
  Value exp(Value x) { return b.make<math::ExpOp>(x); }
  /// The largest of what the lanes have.
  Value maximumOfLanes(Value value);

  const GateKernel &kernel;
  RouterAttr router;
  Value warp, keys, values, groups, allLanes, experts;
};

} // namespace mlir::moe::detail

#endif // MOIRA_LIB_CONVERSION_MOETOGPU_GATEBUILDER_H
