// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "moira/Pipelines/Pipelines.h"

#include "moira/Autodiff/Passes.h"
#include "moira/Conversion/MoEToCPU/GroupedMatmul.h"
#include "moira/Conversion/Passes.h"
#include "moira/Dialect/MoE/Transforms/Fusions.h"
#include "moira/Dialect/MoE/Transforms/Passes.h"
#include "moira/Pipelines/Passes.h"
#include "moira/Schedule/Passes.h"
#include "moira/Sharding/Passes.h"
#include "moira/Variants/Passes.h"

#include "mlir/Conversion/AffineToStandard/AffineToStandard.h"
#include "mlir/Conversion/ArithToLLVM/ArithToLLVM.h"
#include "mlir/Conversion/ControlFlowToLLVM/ControlFlowToLLVM.h"
#include "mlir/Conversion/FuncToLLVM/ConvertFuncToLLVMPass.h"
#include "mlir/Conversion/IndexToLLVM/IndexToLLVM.h"
#include "mlir/Conversion/MathToLLVM/MathToLLVM.h"
#include "mlir/Conversion/MathToLibm/MathToLibm.h"
#include "mlir/Conversion/MemRefToLLVM/MemRefToLLVM.h"
#include "mlir/Conversion/ReconcileUnrealizedCasts/ReconcileUnrealizedCasts.h"
#include "mlir/Conversion/SCFToControlFlow/SCFToControlFlow.h"
#include "mlir/Conversion/VectorToLLVM/ConvertVectorToLLVMPass.h"
#include "mlir/Dialect/Arith/Transforms/Passes.h"
#include "mlir/Dialect/Bufferization/Transforms/Passes.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/Linalg/Passes.h"
#include "mlir/Dialect/Math/Transforms/Passes.h"
#include "mlir/Dialect/MemRef/Transforms/Passes.h"
#include "mlir/Transforms/Passes.h"

#include <numeric>

using namespace mlir;
using namespace moira;

llvm::StringRef moira::stringifyPhase(Phase phase) {
  switch (phase) {
  case Phase::Input:
    return "input";
  case Phase::Sharded:
    return "sharded";
  case Phase::Differentiated:
    return "differentiated";
  case Phase::Scheduled:
    return "scheduled";
  case Phase::Kernels:
    return "kernels";
  case Phase::Bufferized:
    return "bufferized";
  case Phase::Target:
    return "target";
  }
  llvm_unreachable("not a phase");
}

std::optional<Phase> moira::symbolizePhase(llvm::StringRef name) {
  for (Phase phase : kPhases)
    if (name == stringifyPhase(phase))
      return phase;
  return std::nullopt;
}

static void addCleanup(OpPassManager &manager) {
  manager.addPass(createCanonicalizerPass());
  manager.addPass(createCSEPass());
}

/// What tiles and panels depend on.
static moe::CPUTileOptions getTileOptions(const PipelineOptions &options) {
  moe::CPUTileOptions tiles;
  tiles.vectorBits = options.vectorBits;
  tiles.vectorRegisters = options.vectorBits >= 512 ? 32 : 16;
  tiles.dotBF16 = options.dotBF16 && !options.oracle;
  tiles.prefetchLevel = options.prefetchLevel;
  return tiles;
}

/// Whether the program is made for several ranks.
static bool isSharded(const PipelineOptions &options) {
  return options.ranks > 1 && !options.oracle;
}

/// Whether steps run on a GPU.
static bool isForDevice(const PipelineOptions &options) {
  return !options.device.arch.empty() && !options.oracle;
}

/// Whether kernels read weights as rows. Hidden blocks are packed, each for
/// itself, since ranks exchange them.
static bool hasRows(const PipelineOptions &options) {
  return isForDevice(options) && options.hiddenBlocks <= 1;
}

static void addNumbers(OpPassManager &manager) {
  manager.addPass(createInlinerPass());
  addCleanup(manager);
  manager.addNestedPass<func::FuncOp>(moe::createNumberLayersPass());
}

/// Gives sums over hidden dimensions of the oracle the order of blocks. With
/// gradients after differentiation, which sums over them too.
static void addCutHidden(OpPassManager &manager,
                         const PipelineOptions &options) {
  if (!options.oracle || options.hiddenBlocks <= 1)
    return;
  moe::CutHiddenPassOptions cut;
  cut.blocks = options.hiddenBlocks;
  manager.addNestedPass<func::FuncOp>(moe::createCutHiddenPass(cut));
}

/// One rank's program; or the counterpart that one rank runs.
static void buildSharded(OpPassManager &manager,
                         const PipelineOptions &options) {
  if (options.tokenBlocks > 0) {
    moe::TokenBlocksPassOptions blocks;
    blocks.entry = options.entry;
    blocks.ranks = options.tokenBlocks;
    manager.addPass(createInlinerPass());
    manager.addPass(moe::createTokenBlocksPass(blocks));
  }
  if (!options.gradients)
    addCutHidden(manager, options);
  if (!isSharded(options)) {
    manager.addPass(moe::createExpandLossesPass());
    return;
  }
  addNumbers(manager);
  moe::ShardPassOptions shard;
  shard.entry = options.entry;
  shard.ranks = options.ranks;
  shard.copies = options.copies;
  shard.spare = options.spareSlots;
  manager.addPass(moe::createShardPass(shard));
  manager.addPass(moe::createExpandLossesPass());
  if (!options.gradients)
    manager.addPass(moe::createFoldReplicatesPass());
  addCleanup(manager);
}

/// The entry with what its way back needs, and the way back.
static void buildDifferentiated(OpPassManager &manager,
                                const PipelineOptions &options) {
  if (!options.gradients)
    return;
  // Ops of the way back keep the numbers of their layers.
  addNumbers(manager);
  moe::DifferentiatePassOptions differentiate;
  differentiate.entry = options.entry;
  differentiate.recompute = options.recompute;
  manager.addPass(moe::createDifferentiatePass(differentiate));
  if (isSharded(options)) {
    manager.addPass(moe::createFoldReplicatesPass());
    manager.addPass(moe::createClearPaddingPass());
    manager.addPass(moe::createMergeReducesPass());
  }
  addCleanup(manager);
  addCutHidden(manager, options);
}

/// Exchange, experts and exchange back in chunks.
static void buildScheduled(OpPassManager &manager,
                           const PipelineOptions &options) {
  if (!isSharded(options))
    return;
  moe::SchedulePassOptions schedule;
  schedule.kind = moe::stringifySchedule(options.schedule).str();
  manager.addNestedPass<func::FuncOp>(moe::createSchedulePass(schedule));
  addCleanup(manager);
}

/// The code of optimizers.
static void addUpdates(OpPassManager &manager, const PipelineOptions &options) {
  if (options.updates.empty())
    return;
  moe::AddUpdatesPassOptions updates;
  for (const std::string &rule : options.updates)
    updates.rules.push_back(rule);
  manager.addPass(moe::createAddUpdatesPass(updates));
}

/// Variants, experts as grouped matmuls, packed parameters; or the oracle.
static void buildKernels(OpPassManager &manager,
                         const PipelineOptions &options) {
  addNumbers(manager);
  manager.addPass(moe::createDecomposeSoftmaxPass());
  if (options.exposeRouting || options.replayRouting) {
    moe::ExposeRoutingPassOptions expose;
    expose.function = options.entry;
    expose.replay = options.replayRouting;
    manager.addPass(moe::createExposeRoutingPass(expose));
  }
  if (options.oracle) {
    manager.addPass(moe::createDecomposePass());
    manager.addPass(moe::createAssignLayoutsPass());
    addCleanup(manager);
    addUpdates(manager, options);
    return;
  }
  moe::FormKernelsPassOptions kernels;
  kernels.hiddenBlocks = std::max<int64_t>(1, options.hiddenBlocks);
  for (std::string &name : moe::getFusionNames(options.disabledFusions))
    kernels.disableFusion.push_back(std::move(name));
  manager.addNestedPass<func::FuncOp>(moe::createFormKernelsPass(kernels));
  addCleanup(manager);
  moe::AssignLayoutsPassOptions layouts;
  moe::CPUTileOptions tiles = getTileOptions(options);
  layouts.panelWidth = hasRows(options) ? 0 : tiles.tileColumns();
  layouts.lanes = tiles.lanes();
  layouts.pairs = options.dotBF16 && !isForDevice(options);
  layouts.packGradients = options.packGradients;
  manager.addPass(moe::createAssignLayoutsPass(layouts));
  addCleanup(manager);
  moe::CreateVariantsPassOptions variants;
  variants.entry = options.entry;
  for (moe::RowClass rowClass : options.rowClasses)
    variants.rows.push_back(moe::stringifyRowClass(rowClass).str());
  manager.addPass(moe::createCreateVariantsPass(variants));
  addUpdates(manager, options);
}

/// Memrefs: compact arguments and results, inputs never written.
static void buildBufferized(OpPassManager &manager,
                            const PipelineOptions &options) {
  manager.addPass(moe::createProtectArgumentsPass());
  manager.addPass(createConvertElementwiseToLinalgPass());
  manager.addPass(moe::createSeparateEmptiesPass());
  bufferization::OneShotBufferizePassOptions bufferize;
  bufferize.bufferizeFunctionBoundaries = true;
  bufferize.functionBoundaryTypeConversion =
      bufferization::LayoutMapOption::IdentityLayoutMap;
  bufferize.allowReturnAllocsFromLoops = true;
  manager.addPass(bufferization::createOneShotBufferizePass(bufferize));
  manager.addPass(memref::createResolveShapedTypeResultDimsPass());
  addCleanup(manager);
  manager.addNestedPass<func::FuncOp>(
      bufferization::createBufferLoopHoistingPass());
  manager.addNestedPass<func::FuncOp>(moe::createBoundCapacityPass());
  // Programs that are sharded by hand have collectives whatever the options.
  manager.addNestedPass<func::FuncOp>(moe::createMakeAsynchronousPass());
  manager.addNestedPass<func::FuncOp>(moe::createCheckSchedulePass());
}

/// Whether the target is an x86 processor without conversions of f16: LLVM
/// would call a library for them.
static bool lacksF16(const PipelineOptions &options) {
  return llvm::StringRef(options.triple).starts_with("x86_64") &&
         !options.features.empty() &&
         !llvm::StringRef(options.features).contains("+f16c");
}

/// Kernels for what steps compute; loops for the rest, as kernels too.
static void addKernels(OpPassManager &manager, const PipelineOptions &options) {
  moe::ConvertMoEToGPUPassOptions gpu;
  gpu.arch = options.device.arch;
  gpu.fallback = true;
  manager.addPass(moe::createConvertMoEToGPUPass(gpu));
  moe::ConvertMoEToCPUPassOptions loops;
  loops.plain = true;
  manager.addPass(moe::createConvertMoEToCPUPass(loops));
  manager.addPass(moe::createLowerCopiesPass());
  manager.addNestedPass<func::FuncOp>(createConvertLinalgToParallelLoopsPass());
  manager.addPass(createLowerAffinePass());
  addCleanup(manager);
  manager.addPass(moe::createOutlineKernelsPass());
  OpPassManager &kernels = manager.nest<gpu::GPUModuleOp>();
  arith::ArithEmulateUnsupportedFloatsOptions narrow;
  narrow.sourceTypeStrs = {"bf16", "f16"};
  narrow.targetTypeStr = "f32";
  kernels.addPass(arith::createArithEmulateUnsupportedFloats(narrow));
  kernels.addPass(math::createMathExtendToSupportedTypes());
  addCleanup(kernels);
  kernels.addPass(moe::createLowerGPUModulePass());
  addCleanup(kernels);
  moe::EmbedKernelsPassOptions embed;
  // What all architectures share is made for the first.
  embed.arch = llvm::StringRef(options.device.arch).split(',').first.str();
  embed.ptx = options.device.ptx;
  embed.emulated = options.device.emulated;
  manager.addPass(moe::createEmbedKernelsPass(embed));
}

/// Loops over vectors.
static void addLoops(OpPassManager &manager, const PipelineOptions &options) {
  moe::ConvertMoEToCPUPassOptions cpu;
  moe::CPUTileOptions tiles = getTileOptions(options);
  cpu.vectorBits = tiles.vectorBits;
  cpu.dotBF16 = tiles.dotBF16;
  cpu.prefetchLevel = tiles.prefetchLevel;
  cpu.vectorRegisters = tiles.vectorRegisters;
  manager.addPass(moe::createConvertMoEToCPUPass(cpu));
  manager.addPass(moe::createLowerCopiesPass());
  manager.addNestedPass<func::FuncOp>(createConvertLinalgToParallelLoopsPass());
  manager.addPass(createLowerAffinePass());
  addCleanup(manager);
}

/// Loops, the runtime's contract, the LLVM dialect.
static void buildTarget(OpPassManager &manager,
                        const PipelineOptions &options) {
  // 1. Loops or kernels, and the contract.
  moe::MarkPartsPassOptions parts;
  parts.ranks = isSharded(options) ? options.ranks : 1;
  manager.addPass(moe::createMarkPartsPass(parts));
  moe::AddContextPassOptions context;
  context.entry = options.entry;
  if (isForDevice(options)) {
    // Which functions are steps, whose memory is the device's, is known first.
    manager.addPass(moe::createAddContextPass(context));
    addKernels(manager, options);
  } else {
    addLoops(manager, options);
    manager.addPass(moe::createAddContextPass(context));
    manager.addPass(moe::createOutlineParallelPass());
  }
  manager.addPass(createCanonicalizerPass());
  moe::EmitEntriesPassOptions entries;
  entries.moduleName = options.moduleName;
  entries.triple = options.triple;
  entries.cpu = options.cpu;
  entries.features = options.features;
  manager.addPass(moe::createEmitEntriesPass(entries));
  // 2. The LLVM dialect. Arithmetic on 16-bit types is that of f32, rounded.
  arith::ArithEmulateUnsupportedFloatsOptions narrow;
  narrow.sourceTypeStrs = {"bf16", "f16"};
  narrow.targetTypeStr = "f32";
  manager.addPass(arith::createArithEmulateUnsupportedFloats(narrow));
  manager.addPass(math::createMathExtendToSupportedTypes());
  moe::ExpandMathPassOptions math;
  math.expandF16 = lacksF16(options);
  manager.addPass(moe::createExpandMathPass(math));
  manager.addPass(memref::createExpandStridedMetadataPass());
  manager.addPass(createLowerAffinePass());
  manager.addPass(createSCFToControlFlowPass());
  ConvertVectorToLLVMPassOptions vector;
  manager.addPass(createConvertVectorToLLVMPass(vector));
  arith::ArithExpandOpsPassOptions expand;
  expand.includeBf16 = true;
  manager.addPass(arith::createArithExpandOpsPass(expand));
  manager.addPass(createConvertMathToLLVMPass());
  manager.addPass(createConvertMathToLibmPass());
  // Functions of the C library take one element of a vector after the other.
  manager.addPass(createConvertVectorToLLVMPass(vector));
  manager.addPass(createArithToLLVMConversionPass());
  manager.addPass(createConvertIndexToLLVMPass());
  manager.addPass(createFinalizeMemRefToLLVMConversionPass());
  manager.addPass(createConvertControlFlowToLLVMPass());
  manager.addPass(createConvertFuncToLLVMPass());
  manager.addPass(createReconcileUnrealizedCastsPass());
  manager.addPass(moe::createLowerBF16Pass());
  addCleanup(manager);
  manager.addPass(moe::createCheckAllocationsPass());
  if (!isForDevice(options))
    return;
  moe::EmulateNVVMPassOptions emulate;
  emulate.instrument = options.device.instrument;
  if (options.device.emulated)
    manager.addPass(moe::createEmulateNVVMPass(emulate));
  manager.addPass(moe::createEraseKernelsPass());
}

int64_t moira::countHiddenBlocks(ModuleOp module, int64_t ranks) {
  int64_t blocks = 1;
  module.walk([&](moe::ExpertOp expert) {
    int64_t experts = expert.getNumExperts();
    if (experts > 0 && ranks > experts)
      blocks = std::lcm(blocks, ranks / experts);
  });
  return blocks;
}

void moira::buildPhase(OpPassManager &manager, Phase phase,
                       const PipelineOptions &options) {
  switch (phase) {
  case Phase::Input:
    return;
  case Phase::Sharded:
    buildSharded(manager, options);
    break;
  case Phase::Differentiated:
    buildDifferentiated(manager, options);
    break;
  case Phase::Scheduled:
    buildScheduled(manager, options);
    break;
  case Phase::Kernels:
    buildKernels(manager, options);
    break;
  case Phase::Bufferized:
    buildBufferized(manager, options);
    break;
  case Phase::Target:
    buildTarget(manager, options);
    break;
  }
  // What one rank's phases leave alone has no contract but the input's.
  if (phase < Phase::Kernels && !isSharded(options))
    return;
  moe::VerifyPhasePassOptions verify;
  verify.phase = stringifyPhase(phase).str();
  verify.rowMajor = hasRows(options);
  manager.addPass(moe::createVerifyPhasePass(verify));
}

void moira::buildPipeline(OpPassManager &manager, Phase last,
                          const PipelineOptions &options) {
  for (Phase phase : kPhases)
    if (phase <= last)
      buildPhase(manager, phase, options);
}
