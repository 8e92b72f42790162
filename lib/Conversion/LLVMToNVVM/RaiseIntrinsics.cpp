// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Raise.h"

using namespace mlir;
using namespace mlir::moe::detail;

/// Cuts `a.b.c` at the first dot: returns `a`, leaves `b.c`.
static StringRef takeWord(StringRef &name) {
  auto [word, rest] = name.split('.');
  name = rest;
  return word;
}

namespace {
/// The families of intrinsics. Each returns failure for a name that is not of
/// it, and sets `result` where there is one.
class Intrinsic {
public:
  Intrinsic(Raise &raise, LLVM::CallIntrinsicOp call)
      : r(raise), call(call), x(call.getArgs()), name(call.getIntrin()) {}
  LogicalResult run() {
    if (!name.consume_front("llvm.nvvm."))
      return failure();
    return success(succeeded(barrier()) || succeeded(warp()) ||
                   succeeded(copy()) || succeeded(matrix()) ||
                   succeeded(scalar()));
  }
  Value result;

private:
  LogicalResult barrier();
  LogicalResult warp();
  LogicalResult copy();
  LogicalResult matrix();
  LogicalResult scalar();
  LogicalResult give(Value value) {
    result = value;
    return success(bool(value));
  }

  Raise &r;
  LLVM::CallIntrinsicOp call;
  OperandRange x;
  StringRef name;
};
} // namespace

LogicalResult Intrinsic::barrier() {
  // "aligned" only says that all threads are at the same instruction.
  if (name == "barrier0") {
    NVVM::Barrier0Op::create(r.b, r.loc);
    return success();
  }
  if (name == "barrier.cta.sync.aligned.all" ||
      name == "barrier.cta.sync.all") {
    NVVM::BarrierOp::create(r.b, r.loc, TypeRange(), x[0], Value(),
                            NVVM::BarrierReductionAttr(), Value());
    return success();
  }
  if (name == "barrier.cta.sync.aligned.count" ||
      name == "barrier.cta.sync.count") {
    NVVM::BarrierOp::create(r.b, r.loc, TypeRange(), x[0], x[1],
                            NVVM::BarrierReductionAttr(), Value());
    return success();
  }
  if (name == "barrier.cta.arrive.aligned.count" ||
      name == "barrier.cta.arrive.count") {
    NVVM::BarrierArriveOp::create(r.b, r.loc, x[0], x[1]);
    return success();
  }
  if (name == "bar.warp.sync") {
    NVVM::SyncWarpOp::create(r.b, r.loc, x[0]);
    return success();
  }
  // The emulator's memory is sequentially consistent.
  return success(name.starts_with("membar."));
}

LogicalResult Intrinsic::warp() {
  StringRef rest = name;
  if (rest.consume_front("shfl.sync.")) {
    StringRef mode = takeWord(rest);
    return give(r.shuffle(mode, x[0], x[1], x[2], x[3], rest.ends_with("p")));
  }
  if (rest.consume_front("vote."))
    return rest.consume_back(".sync") ? give(r.vote(rest, x[0], x[1]))
                                      : failure();
  return failure();
}

LogicalResult Intrinsic::copy() {
  StringRef rest = name;
  if (!rest.consume_front("cp.async."))
    return failure();
  if (rest == "commit.group") {
    NVVM::CpAsyncCommitGroupOp::create(r.b, r.loc);
    return success();
  }
  if (rest == "wait.group" || rest == "wait.all") {
    int64_t left = 0;
    if (rest == "wait.group") {
      std::optional<int64_t> given = Raise::numberOf(x[0]);
      if (!given)
        return failure();
      left = *given;
    } else {
      // It also waits for what was not committed.
      NVVM::CpAsyncCommitGroupOp::create(r.b, r.loc);
    }
    NVVM::CpAsyncWaitGroupOp::create(r.b, r.loc, uint32_t(left));
    return success();
  }
  StringRef cache = takeWord(rest);
  if (!rest.consume_front("shared.global."))
    return failure();
  bool hasBytes = rest.consume_back(".s");
  int64_t size = 0;
  if (rest.getAsInteger(10, size))
    return failure();
  return r.cpAsync(x[0], x[1], size, cache == "cg", hasBytes ? x[2] : Value());
}

LogicalResult Intrinsic::matrix() {
  StringRef rest = name;
  if (rest.consume_front("ldmatrix.sync.aligned.m8n8.x")) {
    int64_t count = 0;
    if (takeWord(rest).getAsInteger(10, count))
      return failure();
    bool isTransposed = rest.consume_front("trans.");
    if (!rest.starts_with("b16"))
      return failure();
    return give(r.ldmatrix(x[0], count, isTransposed));
  }
  if (name == "mma.m16n8k16.row.col.bf16")
    return give(r.mma(/*isBF16=*/true, x));
  if (name == "mma.m16n8k16.row.col.f32.f32")
    return give(r.mma(/*isBF16=*/false, x));
  return failure();
}

LogicalResult Intrinsic::scalar() {
  Type type = call.getNumResults() ? call->getResult(0).getType() : Type();
  if (name == "f2bf16.rn")
    return give(LLVM::FPTruncOp::create(r.b, r.loc, type, x[0]));
  if (name == "ff2bf16x2.rn" || name == "ff2f16x2.rn") {
    Type element = name.starts_with("ff2b") ? Type(r.b.getBF16Type())
                                            : Type(r.b.getF16Type());
    return give(r.cast(r.packHalves(element, x[0], x[1]), type));
  }
  if (type != r.f32 ||
      !llvm::all_of(x, [&](Value value) { return value.getType() == type; }))
    return failure();
  return give(r.function(name, x));
}

LogicalResult Raise::raise(LLVM::CallIntrinsicOp call) {
  Intrinsic intrinsic(*this, call);
  if (failed(intrinsic.run()))
    return failure();
  if (call.getNumResults())
    call->getResult(0).replaceAllUsesWith(intrinsic.result);
  call.erase();
  return success();
}
