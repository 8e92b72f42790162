// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "GroupedCommon.h"

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

int64_t GPUSchedule::threads() const {
  return style == GPUStyle::Warpgroup ? (warpsM + 1) * 128
                                      : warpsM * warpsN * 32;
}

/// Bytes of the tiles of one stage.
static int64_t stageBytes(const GroupedKernel &kernel) {
  const GPUSchedule &s = kernel.schedule;
  return kernel.elementBytes() * s.tileK * (s.tileM + kernel.sums() * s.tileN);
}

int64_t GroupedKernel::sharedBytes() const {
  int64_t bytes = schedule.stages * stageBytes(*this);
  // A full and an empty mbarrier per stage.
  return schedule.style == GPUStyle::Warpgroup ? bytes + 16 * schedule.stages
                                               : bytes;
}

KernelBoxes moe::getBoxes(const GroupedKernel &kernel) {
  const GPUSchedule &s = kernel.schedule;
  // A row of a box has at most 128 bytes.
  if (kernel.contraction)
    return {{64, s.tileK}, {64, s.tileK}};
  if (kernel.hasColumnsInside())
    return {{s.tileK, s.tileM}, {64, s.tileK}};
  return {{s.tileK, s.tileM}, {s.tileK, s.tileN}};
}

//===----------------------------------------------------------------------===//
// What a style can do
//===----------------------------------------------------------------------===//

/// Accumulators that a thread may hold, those of finished chains included.
static constexpr int64_t kMostSums = 128;

static bool isPowerOfTwo(int64_t value) {
  return value > 0 && (value & (value - 1)) == 0;
}

using Report = function_ref<InFlightDiagnostic()>;

static LogicalResult checkTypes(const GroupedKernel &kernel, Report report) {
  bool isSimt = kernel.schedule.style == GPUStyle::Simt;
  if (isSimt && !kernel.element.isF32())
    return report() << "expected rows and weights of f32, got "
                    << kernel.element;
  if (!isSimt && !kernel.element.isBF16() && !kernel.element.isF16())
    return report() << "expected rows and weights of bf16 or f16, got "
                    << kernel.element;
  for (Type result : kernel.results)
    if (!result.isBF16() && !result.isF16() && !result.isF32())
      return report() << "expected a result of bf16, f16 or f32, got "
                      << result;
  return success();
}

/// Tiles that all threads copy, and warps share.
static LogicalResult checkStaged(const GroupedKernel &kernel, Report report) {
  const GPUSchedule &s = kernel.schedule;
  int64_t bytes = kernel.elementBytes();
  if ((s.tileK * bytes != 64 && s.tileK * bytes != 128) ||
      !isPowerOfTwo(s.tileM) || !isPowerOfTwo(s.tileN) || s.tileM < 16 ||
      s.tileN < 32)
    return report() << "expected a tile of powers of two from 16x32, 64 or "
                       "128 bytes deep, got "
                    << s.tileM << "x" << s.tileN << "x" << s.tileK;
  bool hasColumnsA = kernel.contraction;
  bool hasColumnsB = kernel.contraction || kernel.hasColumnsInside();
  int64_t least = 128 / bytes;
  if ((hasColumnsA && s.tileM < least) || (hasColumnsB && s.tileN < least))
    return report() << "expected at least " << least
                    << " along what is contiguous, got " << s.tileM << "x"
                    << s.tileN;
  if (kernel.hasPanels() && kernel.panelWidth * bytes % 16)
    return report() << "expected panels of multiples of 16 bytes, got "
                    << kernel.panelWidth << " elements";
  if (!isPowerOfTwo(s.warpsM) || !isPowerOfTwo(s.warpsN) ||
      s.threads() > 1024 || s.tileM % (16 * s.warpsM) ||
      s.tileN % (16 * s.warpsN))
    return report() << "expected warps with tiles of multiples of 16, got "
                    << s.warpsM << "x" << s.warpsN << " of " << s.tileM << "x"
                    << s.tileN;
  int64_t pieces = std::min(s.tileM, s.tileN) * s.tileK * bytes / 16;
  if (pieces % s.threads())
    return report() << "expected at most " << pieces << " threads, got "
                    << s.threads();
  int64_t held = s.tileM * s.tileN / s.threads() * kernel.sums() *
                 ChainFolder::depth(kernel.chains);
  if (held > kMostSums)
    return report() << "expected at most " << kMostSums
                    << " sums of a thread, got " << held;
  return success();
}

static LogicalResult checkBulk(const GroupedKernel &kernel, Report report) {
  const GPUSchedule &s = kernel.schedule;
  if (kernel.gather || kernel.chained || kernel.hasPanels() ||
      kernel.chains > 1)
    return report() << "expected row-major weights, one product and no gather "
                       "for bulk copies, got another kernel";
  bool hasPanelsOfB = kernel.contraction || kernel.hasColumnsInside();
  if (s.tileK != 64 || s.tileM != 64 * s.warpsM || s.warpsM < 1 ||
      s.warpsM > 2 || s.tileN % 8 || s.tileN < 8 || s.tileN > 256 ||
      (hasPanelsOfB && s.tileN % 64))
    return report() << "expected a tile of 64 rows per warpgroup, up to 256 "
                       "columns, 64 deep, got "
                    << s.tileM << "x" << s.tileN << "x" << s.tileK;
  if (kernel.weights * s.tileN > 256)
    return report() << "expected at most 256 columns over all weights, got "
                    << kernel.weights * s.tileN;
  if (kernel.k % 8 || (hasPanelsOfB && kernel.n % 8))
    return report() << "expected rows of multiples of 16 bytes for bulk "
                       "copies, got "
                    << (kernel.k % 8 ? kernel.k : kernel.n) << " elements";
  return success();
}

LogicalResult moe::checkKernel(const GroupedKernel &kernel, Report report) {
  const GPUSchedule &s = kernel.schedule;
  if (failed(checkTypes(kernel, report)))
    return failure();
  if (s.stages < 2 || s.stages > 16)
    return report() << "expected 2 to 16 stages, got " << s.stages;
  if (kernel.weights < 1 || (kernel.contraction && kernel.weights != 1))
    return report() << "expected one sum in mode contraction, got "
                    << kernel.weights;
  if (kernel.chained && kernel.chains > 1)
    return report() << "expected chained products with k in one block, got "
                    << kernel.chains << " blocks";
  if (kernel.contraction && kernel.hasPanels())
    return report() << "expected a row-major result in mode contraction, got "
                       "panels";
  // The window of the smallest GPU of the style, less what the system takes.
  bool isBulk = s.style == GPUStyle::Warpgroup;
  int64_t limit = isBulk ? 227 << 10 : 163 << 10;
  if (kernel.sharedBytes() > limit)
    return report() << "expected at most " << limit
                    << " bytes of shared memory, got " << kernel.sharedBytes();
  return isBulk ? checkBulk(kernel, report) : checkStaged(kernel, report);
}

LLVM::LLVMFuncOp moe::buildGroupedKernel(gpu::GPUModuleOp module,
                                         const GroupedKernel &kernel) {
  switch (kernel.schedule.style) {
  case GPUStyle::CpAsync:
    return buildCpAsyncKernel(module, kernel);
  case GPUStyle::Warpgroup:
    return buildWarpgroupKernel(module, kernel);
  case GPUStyle::Simt:
    return buildSimtKernel(module, kernel);
  }
  llvm_unreachable("a style without a builder");
}

//===----------------------------------------------------------------------===//
// Parameters
//===----------------------------------------------------------------------===//

std::unique_ptr<KernelBuilder>
mlir::moe::detail::beginKernel(gpu::GPUModuleOp module,
                               const GroupedKernel &kernel,
                               KernelOperands &operands) {
  MLIRContext *context = module.getContext();
  Type global = LLVM::LLVMPointerType::get(
      context, unsigned(NVVM::NVVMMemorySpace::Global));
  bool bulk = kernel.schedule.style == GPUStyle::Warpgroup;
  int64_t rows = kernel.contraction ? 2 : kernel.chained ? kernel.weights : 1;
  int64_t maps = bulk ? rows + (kernel.contraction ? 0 : kernel.weights) : 0;
  if (bulk)
    rows = 0;
  int64_t weights = bulk || kernel.contraction ? 0 : kernel.weights;

  SmallVector<Type> types(maps, LLVM::LLVMPointerType::get(context));
  SmallVector<bool> byValue(maps, true);
  auto pointers = [&](int64_t count) { types.append(count, global); };
  pointers(rows + 1 + weights + kernel.bias.size() + kernel.gather +
           kernel.vectors.size() + kernel.elements.size() +
           kernel.scalars.size() + kernel.results.size());
  types.push_back(IntegerType::get(context, 32));
  byValue.resize(types.size(), false);

  auto b = std::make_unique<KernelBuilder>(module, kernel.name, types, byValue,
                                           kernel.schedule.threads());
  unsigned next = 0;
  auto take = [&](SmallVector<Value> &to, size_t count) {
    for (size_t i = 0; i < count; ++i)
      to.push_back(b->argument(next++));
  };
  take(operands.maps, maps);
  take(operands.rows, rows);
  operands.sizes = b->argument(next++);
  take(operands.weights, weights);
  take(operands.bias, kernel.bias.size());
  if (kernel.gather)
    operands.gather = b->argument(next++);
  take(operands.vectors, kernel.vectors.size());
  take(operands.elements, kernel.elements.size());
  take(operands.scalars, kernel.scalars.size());
  take(operands.results, kernel.results.size());
  operands.stride = b->argument(next++);
  return b;
}
