// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Emulation.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

LogicalResult Emulation::lowerOps() {
  SmallVector<Operation *> ops;
  module.walk([&](Operation *op) {
    if (isa<NVVM::NVVMDialect>(op->getDialect()))
      ops.push_back(op);
  });
  for (Operation *op : ops) {
    builder.setInsertionPoint(op);
    if (failed(lowerOp(op)))
      return op->emitOpError("expected an op with an emulation, got one "
                             "without");
    op->erase();
  }
  return success();
}

LogicalResult Emulation::lowerOp(Operation *op) {
  // Without an effect that the emulator knows: its memory is sequentially
  // consistent and its registers are as many as wanted.
  if (isa<NVVM::SetMaxRegisterOp, NVVM::MembarOp, NVVM::PrefetchOp,
          NVVM::GriddepcontrolOp>(op))
    return success();
  for (auto lower :
       {&Emulation::lowerRegister, &Emulation::lowerBarrier,
        &Emulation::lowerWarp, &Emulation::lowerCopy, &Emulation::lowerMatrix})
    if (succeeded((this->*lower)(op)))
      return success();
  return failure();
}

//===----------------------------------------------------------------------===//
// Registers, warps
//===----------------------------------------------------------------------===//

LogicalResult Emulation::lowerRegister(Operation *op) {
  std::optional<int32_t> which =
      llvm::TypeSwitch<Operation *, std::optional<int32_t>>(op)
          .Case<NVVM::ThreadIdXOp>([](auto) { return MOIRA_EMU_TID_X; })
          .Case<NVVM::ThreadIdYOp>([](auto) { return MOIRA_EMU_TID_Y; })
          .Case<NVVM::ThreadIdZOp>([](auto) { return MOIRA_EMU_TID_Z; })
          .Case<NVVM::BlockDimXOp>([](auto) { return MOIRA_EMU_NTID_X; })
          .Case<NVVM::BlockDimYOp>([](auto) { return MOIRA_EMU_NTID_Y; })
          .Case<NVVM::BlockDimZOp>([](auto) { return MOIRA_EMU_NTID_Z; })
          .Case<NVVM::BlockIdXOp>([](auto) { return MOIRA_EMU_CTAID_X; })
          .Case<NVVM::BlockIdYOp>([](auto) { return MOIRA_EMU_CTAID_Y; })
          .Case<NVVM::BlockIdZOp>([](auto) { return MOIRA_EMU_CTAID_Z; })
          .Case<NVVM::GridDimXOp>([](auto) { return MOIRA_EMU_NCTAID_X; })
          .Case<NVVM::GridDimYOp>([](auto) { return MOIRA_EMU_NCTAID_Y; })
          .Case<NVVM::GridDimZOp>([](auto) { return MOIRA_EMU_NCTAID_Z; })
          .Case<NVVM::LaneIdOp>([](auto) { return MOIRA_EMU_LANEID; })
          .Case<NVVM::WarpSizeOp>([](auto) { return MOIRA_EMU_WARPSIZE; })
          .Default([](Operation *) { return std::nullopt; });
  if (!which)
    return failure();
  op->getResult(0).replaceAllUsesWith(
      callFor(op, MOIRA_EMU_FN_special, i32, {constant32(*which)}));
  return success();
}

LogicalResult Emulation::lowerWarp(Operation *op) {
  Location loc = op->getLoc();
  if (auto sync = dyn_cast<NVVM::SyncWarpOp>(op)) {
    callFor(op, MOIRA_EMU_FN_sync_warp, none, {sync.getMask()});
    return success();
  }
  if (auto elect = dyn_cast<NVVM::ElectSyncOp>(op)) {
    Value mask = elect.getMembermask() ? elect.getMembermask() : constant32(-1);
    Value chosen = callFor(op, MOIRA_EMU_FN_elect, i32, {mask});
    op->getResult(0).replaceAllUsesWith(
        LLVM::TruncOp::create(builder, loc, i1, chosen));
    return success();
  }
  if (auto vote = dyn_cast<NVVM::VoteSyncOp>(op)) {
    Value own = LLVM::ZExtOp::create(builder, loc, i32, vote.getPred());
    Value result =
        callFor(op, MOIRA_EMU_FN_vote, i32,
                {constant32(int64_t(vote.getKind())), vote.getMask(), own});
    if (vote.getType().isInteger(1))
      result = LLVM::TruncOp::create(builder, loc, i1, result);
    op->getResult(0).replaceAllUsesWith(result);
    return success();
  }
  auto shuffle = dyn_cast<NVVM::ShflOp>(op);
  if (!shuffle)
    return failure();
  Value value = shuffle.getVal();
  Type type = value.getType();
  if (type != i32)
    value = LLVM::BitcastOp::create(builder, loc, i32, value);
  Value both =
      callFor(op, MOIRA_EMU_FN_shuffle, i64,
              {constant32(int64_t(shuffle.getKind())), shuffle.getThreadMask(),
               value, shuffle.getOffset(), shuffle.getMaskAndClamp()});
  Value result = LLVM::TruncOp::create(builder, loc, i32, both);
  if (type != i32)
    result = LLVM::BitcastOp::create(builder, loc, type, result);
  if (shuffle.getReturnValueAndIsValid()) {
    Value valid = LLVM::LShrOp::create(builder, loc, both, constant64(32));
    valid = LLVM::TruncOp::create(builder, loc, i1, valid);
    Value pair = LLVM::PoisonOp::create(builder, loc, shuffle.getType());
    pair = LLVM::InsertValueOp::create(builder, loc, pair, result,
                                       ArrayRef<int64_t>{0});
    result = LLVM::InsertValueOp::create(builder, loc, pair, valid,
                                         ArrayRef<int64_t>{1});
  }
  op->getResult(0).replaceAllUsesWith(result);
  return success();
}

//===----------------------------------------------------------------------===//
// Barriers
//===----------------------------------------------------------------------===//

LogicalResult Emulation::lowerBarrier(Operation *op) {
  auto orZero = [&](Value value) { return value ? value : constant32(0); };
  auto replace = [&](Value result) {
    if (op->getNumResults())
      op->getResult(0).replaceAllUsesWith(result);
  };
  return llvm::TypeSwitch<Operation *, LogicalResult>(op)
      .Case<NVVM::Barrier0Op>([&](auto) {
        callFor(op, MOIRA_EMU_FN_barrier, none, {constant32(0), constant32(0)});
        return success();
      })
      .Case<NVVM::BarrierOp>([&](NVVM::BarrierOp barrier) {
        if (barrier.getReductionOp())
          return failure();
        callFor(op, MOIRA_EMU_FN_barrier, none,
                {orZero(barrier.getBarrierId()),
                 orZero(barrier.getNumberOfThreads())});
        return success();
      })
      .Case<NVVM::BarrierArriveOp>([&](NVVM::BarrierArriveOp barrier) {
        callFor(op, MOIRA_EMU_FN_barrier_arrive, none,
                {orZero(barrier.getBarrierId()), barrier.getNumberOfThreads()});
        return success();
      })
      .Case<NVVM::MBarrierInitOp>([&](NVVM::MBarrierInitOp init) {
        when(init.getPredicate(), op, [&] {
          callFor(op, MOIRA_EMU_FN_mbarrier_init, none,
                  {init.getAddr(), init.getCount()});
        });
        return success();
      })
      .Case<NVVM::MBarrierInvalOp>([&](NVVM::MBarrierInvalOp inval) {
        callFor(op, MOIRA_EMU_FN_mbarrier_inval, none, {inval.getAddr()});
        return success();
      })
      .Case<NVVM::MBarrierExpectTxOp>([&](NVVM::MBarrierExpectTxOp expect) {
        callFor(op, MOIRA_EMU_FN_mbarrier_expect, none,
                {expect.getAddr(), expect.getTxcount()});
        return success();
      })
      .Case<NVVM::MBarrierArriveOp>([&](NVVM::MBarrierArriveOp arrive) {
        if (arrive.getRelaxed())
          return failure();
        replace(callFor(op, MOIRA_EMU_FN_mbarrier_arrive, i64,
                        {arrive.getAddr(), arrive.getCount() ? arrive.getCount()
                                                             : constant32(1)}));
        return success();
      })
      .Case<NVVM::MBarrierArriveExpectTxOp>(
          [&](NVVM::MBarrierArriveExpectTxOp arrive) {
            if (arrive.getRelaxed() ||
                (arrive.getPredicate() && op->getNumResults()))
              return failure();
            when(arrive.getPredicate(), op, [&] {
              replace(callFor(op, MOIRA_EMU_FN_mbarrier_arrive_expect, i64,
                              {arrive.getAddr(), arrive.getTxcount()}));
            });
            return success();
          })
      .Case<NVVM::MBarrierTryWaitParityOp>(
          [&](NVVM::MBarrierTryWaitParityOp wait) {
            callFor(op, MOIRA_EMU_FN_mbarrier_wait, none,
                    {wait.getAddr(), wait.getPhase()});
            return success();
          })
      .Case<NVVM::FenceMbarrierInitOp>([&](auto) {
        callFor(op, MOIRA_EMU_FN_fence_mbarrier_init, none, {});
        return success();
      })
      .Case<NVVM::FenceProxyOp>([&](NVVM::FenceProxyOp fence) {
        if (fence.getKind() != NVVM::ProxyKind::async &&
            fence.getKind() != NVVM::ProxyKind::async_shared)
          return failure();
        callFor(op, MOIRA_EMU_FN_fence_proxy, none, {});
        return success();
      })
      .Default([](Operation *) { return failure(); });
}

//===----------------------------------------------------------------------===//
// Copies
//===----------------------------------------------------------------------===//

LogicalResult Emulation::lowerCopy(Operation *op) {
  auto coordinates = [&](OperandRange values) {
    Value place = frame(op, i32, 5);
    for (auto [i, value] : llvm::enumerate(values))
      put(value, place, i32, i);
    return place;
  };
  return llvm::TypeSwitch<Operation *, LogicalResult>(op)
      .Case<NVVM::CpAsyncOp>([&](NVVM::CpAsyncOp copy) {
        Value size = constant32(copy.getSize());
        callFor(op, MOIRA_EMU_FN_cp_async, none,
                {copy.getDst(), copy.getSrc(), size,
                 copy.getCpSize() ? copy.getCpSize() : size});
        return success();
      })
      .Case<NVVM::CpAsyncCommitGroupOp>([&](auto) {
        callFor(op, MOIRA_EMU_FN_cp_async_commit, none, {});
        return success();
      })
      .Case<NVVM::CpAsyncWaitGroupOp>([&](NVVM::CpAsyncWaitGroupOp wait) {
        callFor(op, MOIRA_EMU_FN_cp_async_wait, none,
                {constant32(wait.getN())});
        return success();
      })
      .Case<NVVM::CpAsyncBulkTensorGlobalToSharedClusterOp>(
          [&](NVVM::CpAsyncBulkTensorGlobalToSharedClusterOp copy) {
            if (copy.getMulticastMask() || !copy.getIm2colOffsets().empty() ||
                copy.getMode() != NVVM::TMALoadMode::TILE)
              return failure();
            Value place = coordinates(copy.getCoordinates());
            when(copy.getPredicate(), op, [&] {
              callFor(op, MOIRA_EMU_FN_tensor_load, none,
                      {copy.getDstMem(), copy.getTmaDescriptor(),
                       copy.getMbar(), constant32(copy.getCoordinates().size()),
                       place});
            });
            return success();
          })
      .Case<NVVM::CpAsyncBulkTensorSharedCTAToGlobalOp>(
          [&](NVVM::CpAsyncBulkTensorSharedCTAToGlobalOp copy) {
            if (copy.getMode() != NVVM::TMAStoreMode::TILE)
              return failure();
            Value place = coordinates(copy.getCoordinates());
            when(copy.getPredicate(), op, [&] {
              callFor(op, MOIRA_EMU_FN_tensor_store, none,
                      {copy.getTmaDescriptor(), copy.getSrcMem(),
                       constant32(copy.getCoordinates().size()), place});
            });
            return success();
          })
      .Case<NVVM::CpAsyncBulkCommitGroupOp>([&](auto) {
        callFor(op, MOIRA_EMU_FN_bulk_commit, none, {});
        return success();
      })
      .Case<NVVM::CpAsyncBulkWaitGroupOp>(
          [&](NVVM::CpAsyncBulkWaitGroupOp wait) {
            callFor(op, MOIRA_EMU_FN_bulk_wait, none,
                    {constant32(wait.getGroup())});
            return success();
          })
      .Default([](Operation *) { return failure(); });
}

//===----------------------------------------------------------------------===//
// Matrices
//===----------------------------------------------------------------------===//

/// mma.sync m16n8k16 of f16 or bf16 with f32 accumulators.
static std::optional<moira_emu_element> elementOf(NVVM::MmaOp op) {
  NVVM::MMAShapeAttr shape = op.getShape();
  if (shape.getM() != 16 || shape.getN() != 8 || shape.getK() != 16 ||
      op.getLayoutA() != NVVM::MMALayout::row ||
      op.getLayoutB() != NVVM::MMALayout::col ||
      op.accumPtxType() != NVVM::MMATypes::f32)
    return std::nullopt;
  std::optional<NVVM::MMATypes> a = op.getMultiplicandAPtxType(),
                                b = op.getMultiplicandBPtxType();
  if (!a || a != b)
    return std::nullopt;
  if (*a == NVVM::MMATypes::bf16)
    return MOIRA_EMU_BF16;
  if (*a == NVVM::MMATypes::f16)
    return MOIRA_EMU_F16;
  return std::nullopt;
}

LogicalResult Emulation::lowerMatrix(Operation *op) {
  return llvm::TypeSwitch<Operation *, LogicalResult>(op)
      .Case<NVVM::LdMatrixOp>([&](NVVM::LdMatrixOp load) {
        if (load.getEltType() != NVVM::LdStMatrixEltType::B16)
          return failure();
        Value place = frame(op, i32, 4);
        callFor(op, MOIRA_EMU_FN_ldmatrix, none,
                {load.getPtr(), constant32(load.getNum()),
                 constant32(load.getLayout() == NVVM::MMALayout::col), place});
        replaceByMemory(op, place);
        return success();
      })
      .Case<NVVM::StMatrixOp>([&](NVVM::StMatrixOp store) {
        if (store.getEltType() != NVVM::LdStMatrixEltType::B16)
          return failure();
        Value place = frame(op, i32, 4);
        for (auto [i, value] : llvm::enumerate(store.getSources()))
          put(value, place, i32, i);
        callFor(op, MOIRA_EMU_FN_stmatrix, none,
                {store.getPtr(), constant32(store.getSources().size()),
                 constant32(store.getLayout() == NVVM::MMALayout::col), place});
        return success();
      })
      .Case<NVVM::MmaOp>([&](NVVM::MmaOp mma) {
        std::optional<moira_emu_element> element = elementOf(mma);
        if (!element)
          return failure();
        Value place = frame(op, i32, 10);
        int64_t number = 0;
        for (OperandRange operands :
             {mma.getOperandA(), mma.getOperandB(), mma.getOperandC()})
          for (Value value : operands)
            put(value, place, i32, number++);
        callFor(op, MOIRA_EMU_FN_mma, none, {constant32(*element), place});
        replaceByMemory(op, this->element(place, i32, 6));
        return success();
      })
      .Case<NVVM::WgmmaMmaAsyncOp>([&](NVVM::WgmmaMmaAsyncOp wgmma) {
        NVVM::WGMMATypes type = wgmma.getTypeA();
        bool isHalf = type == NVVM::WGMMATypes::f16;
        if (type != wgmma.getTypeB() ||
            (!isHalf && type != NVVM::WGMMATypes::bf16) ||
            wgmma.getTypeD() != NVVM::WGMMATypes::f32 ||
            wgmma.getShape().getM() != 64 || wgmma.getShape().getK() != 16)
          return failure();
        auto negates = [](NVVM::WGMMAScaleIn scale) {
          return scale == NVVM::WGMMAScaleIn::neg;
        };
        // B as the hardware counts it is transposed when it is stored by rows.
        int64_t form = (wgmma.getScaleD() == NVVM::WGMMAScaleOut::one) |
                       negates(wgmma.getScaleA()) << 1 |
                       negates(wgmma.getScaleB()) << 2 |
                       (wgmma.getLayoutA() == NVVM::MMALayout::col) << 3 |
                       (wgmma.getLayoutB() == NVVM::MMALayout::row) << 4 |
                       (isHalf ? MOIRA_EMU_F16 : MOIRA_EMU_BF16) << 8;
        auto sums = cast<LLVM::LLVMStructType>(wgmma.getInouts().getType());
        Value place = frame(op, f32, sums.getBody().size());
        for (int64_t i = 0, e = sums.getBody().size(); i < e; ++i)
          put(LLVM::ExtractValueOp::create(builder, op->getLoc(),
                                           wgmma.getInouts(), i),
              place, f32, i);
        callFor(op, MOIRA_EMU_FN_wgmma, none,
                {place, wgmma.getDescriptorA(), wgmma.getDescriptorB(),
                 constant32(wgmma.getShape().getN()), constant32(form)});
        replaceByMemory(op, place);
        return success();
      })
      .Case<NVVM::WgmmaFenceAlignedOp>([&](auto) {
        callFor(op, MOIRA_EMU_FN_wgmma_fence, none, {});
        return success();
      })
      .Case<NVVM::WgmmaGroupSyncAlignedOp>([&](auto) {
        callFor(op, MOIRA_EMU_FN_wgmma_commit, none, {});
        return success();
      })
      .Case<NVVM::WgmmaWaitGroupSyncOp>([&](NVVM::WgmmaWaitGroupSyncOp wait) {
        callFor(op, MOIRA_EMU_FN_wgmma_wait, none,
                {constant32(wait.getGroup())});
        return success();
      })
      .Default([](Operation *) { return failure(); });
}
