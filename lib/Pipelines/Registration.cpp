// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "moira/Autodiff/Passes.h"
#include "moira/Conversion/Passes.h"
#include "moira/Dialect/MoE/IR/MoEDialect.h"
#include "moira/Dialect/MoE/Transforms/BufferizableOpInterfaceImpl.h"
#include "moira/Dialect/MoE/Transforms/Fusions.h"
#include "moira/Dialect/MoE/Transforms/Passes.h"
#include "moira/Dialect/NV/IR/NVDialect.h"
#include "moira/Pipelines/Passes.h"
#include "moira/Pipelines/Pipelines.h"
#include "moira/Schedule/Passes.h"
#include "moira/Sharding/Passes.h"
#include "moira/Variants/Passes.h"

#include "mlir/Conversion/ArithToLLVM/ArithToLLVM.h"
#include "mlir/Conversion/ControlFlowToLLVM/ControlFlowToLLVM.h"
#include "mlir/Conversion/FuncToLLVM/ConvertFuncToLLVM.h"
#include "mlir/Conversion/IndexToLLVM/IndexToLLVM.h"
#include "mlir/Conversion/MathToLLVM/MathToLLVM.h"
#include "mlir/Conversion/MemRefToLLVM/MemRefToLLVM.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Transforms/BufferizableOpInterfaceImpl.h"
#include "mlir/Dialect/Arith/Transforms/Passes.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/Bufferization/Transforms/FuncBufferizableOpInterfaceImpl.h"
#include "mlir/Dialect/Bufferization/Transforms/Passes.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlow.h"
#include "mlir/Dialect/Func/Extensions/InlinerExtension.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Func/Transforms/Passes.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Linalg/Passes.h"
#include "mlir/Dialect/Linalg/Transforms/AllInterfaces.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/MemRef/Transforms/Passes.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/SCF/Transforms/BufferizableOpInterfaceImpl.h"
#include "mlir/Dialect/SCF/Transforms/Passes.h"
#include "mlir/Dialect/Shard/IR/ShardDialect.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Tensor/Transforms/BufferizableOpInterfaceImpl.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Transforms/Passes.h"

using namespace mlir;

void moira::registerDialects(DialectRegistry &registry) {
  registry.insert<affine::AffineDialect, arith::ArithDialect,
                  bufferization::BufferizationDialect, cf::ControlFlowDialect,
                  func::FuncDialect, gpu::GPUDialect, linalg::LinalgDialect,
                  LLVM::LLVMDialect, math::MathDialect, memref::MemRefDialect,
                  moe::MoEDialect, NVVM::NVVMDialect, nv::NVDialect,
                  scf::SCFDialect, shard::ShardDialect, tensor::TensorDialect,
                  vector::VectorDialect>();
  func::registerInlinerExtension(registry);
  arith::registerBufferizableOpInterfaceExternalModels(registry);
  bufferization::func_ext::registerBufferizableOpInterfaceExternalModels(
      registry);
  linalg::registerAllDialectInterfaceImplementations(registry);
  scf::registerBufferizableOpInterfaceExternalModels(registry);
  tensor::registerBufferizableOpInterfaceExternalModels(registry);
  moe::registerBufferizableOpInterfaceExternalModels(registry);
  registerBuiltinDialectTranslation(registry);
  registerLLVMDialectTranslation(registry);
}

/// Pipelines of the phases, for moira-opt: --moe-to-kernels and so on, with
/// the options that change the IR.
static void registerPhasePipelines() {
  struct Options : public PassPipelineOptions<Options> {
    Option<std::string> entry{*this, "entry",
                              llvm::cl::desc("function to compile")};
    Option<bool> oracle{*this, "oracle",
                        llvm::cl::desc("compile the decomposed program")};
    Option<unsigned> vectorBits{*this, "vector-bits",
                                llvm::cl::desc("width of vector registers"),
                                llvm::cl::init(512)};
    Option<bool> dotBF16{*this, "dot-bf16",
                         llvm::cl::desc("the target has a dot product of pairs "
                                        "of bf16")};
    Option<unsigned> prefetchLevel{
        *this, "prefetch-level",
        llvm::cl::desc("level of cache that the next block is fetched to: 1 or "
                       "2"),
        llvm::cl::init(2)};
    Option<std::string> arch{*this, "arch",
                             llvm::cl::desc("GPU that steps run on: sm_80 or "
                                            "sm_90a; empty: the processor")};
    Option<int64_t> ranks{*this, "ranks",
                          llvm::cl::desc("ranks to compile for"),
                          llvm::cl::init(1)};
    Option<int64_t> copies{*this, "copies",
                           llvm::cl::desc("how often rows travel; 0: weights "
                                          "are gathered"),
                           llvm::cl::init(1)};
    Option<int64_t> spareSlots{
        *this, "spare-slots",
        llvm::cl::desc("slots beyond those that the experts need")};
    Option<std::string> schedule{
        *this, "schedule",
        llvm::cl::desc("how exchanges are cut: equal or groups"),
        llvm::cl::init("equal")};
    Option<int64_t> hiddenBlocks{
        *this, "hidden-blocks",
        llvm::cl::desc("blocks of the hidden dimension of experts"),
        llvm::cl::init(1)};
    Option<bool> gradients{*this, "gradients",
                           llvm::cl::desc("add the entry's way back")};
    Option<bool> recompute{*this, "recompute",
                           llvm::cl::desc("keep less for the way back")};
    Option<bool> packGradients{
        *this, "pack-gradients",
        llvm::cl::desc("pack gradients as their parameters")};
    ListOption<std::string> updates{
        *this, "updates",
        llvm::cl::desc("optimizers to bring the code of: sgd, adam, adamw")};
    ListOption<std::string> disableFusion{
        *this, "disable-fusion",
        llvm::cl::desc("fusions to leave out: " + moe::listFusions())};
  };
  for (moira::Phase last : llvm::drop_begin(moira::kPhases)) {
    StringRef name = moira::stringifyPhase(last);
    registerPassPipeline(
        ("moe-to-" + name).str(), ("bring a program to phase " + name).str(),
        [last](OpPassManager &manager, StringRef text,
               function_ref<LogicalResult(const Twine &)> fail) {
          Options given;
          if (failed(given.parseFromString(text)))
            return failure();
          llvm::Expected<moe::Fusions> disabled =
              moe::parseFusions(*given.disableFusion);
          if (!disabled)
            return fail("disable-fusion: " +
                        llvm::toString(disabled.takeError()));
          std::optional<moe::Schedule> schedule =
              moe::symbolizeSchedule(given.schedule);
          if (!schedule)
            return fail("schedule: expected equal or groups, got '" +
                        given.schedule.getValue() + "'");
          moira::PipelineOptions options;
          options.ranks = given.ranks;
          options.copies = given.copies;
          options.spareSlots = given.spareSlots;
          options.schedule = *schedule;
          options.hiddenBlocks = given.hiddenBlocks;
          options.entry = given.entry;
          options.device.arch = given.arch;
          options.device.emulated = !given.arch.empty();
          options.oracle = given.oracle;
          options.gradients = given.gradients;
          options.recompute = given.recompute;
          for (const std::string &rule : given.updates)
            options.updates.push_back(rule);
          options.packGradients = given.packGradients;
          options.vectorBits = given.vectorBits;
          options.dotBF16 = given.dotBF16;
          options.prefetchLevel = given.prefetchLevel;
          options.disabledFusions = *disabled;
          moira::buildPipeline(manager, last, options);
          return success();
        },
        [](function_ref<void(const mlir::detail::PassOptions &)> visit) {
          visit(Options());
        });
  }
}

void moira::registerPasses() {
  moe::registerMoEPasses();
  moe::registerMoiraAutodiffPasses();
  moe::registerMoiraConversionPasses();
  moe::registerMoiraPipelinesPasses();
  moe::registerMoiraSchedulePasses();
  moe::registerMoiraShardingPasses();
  moe::registerMoiraVariantsPasses();
  registerPhasePipelines();
  // Upstream passes that programs and tests of ours use.
  registerTransformsPasses();
  arith::registerArithPasses();
  bufferization::registerBufferizationPasses();
  func::registerFuncPasses();
  memref::registerMemRefPasses();
  registerLinalgPasses();
  registerSCFPasses();
}
