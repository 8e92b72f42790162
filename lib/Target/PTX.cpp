// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "moira/Target/PTX.h"

#include "mlir/Conversion/NVVMToLLVM/NVVMToLLVM.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Pass/Pass.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/GPU/GPUToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/NVVM/NVVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/MC/MCSubtargetInfo.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Target/TargetMachine.h"

using namespace moira;

/// The PTX version that has all that our kernels use.
static constexpr llvm::StringLiteral features = "+ptx80";

#if !MOIRA_LLVM_HAS_NVPTX
llvm::Expected<std::string> moira::translateToPTX(mlir::gpu::GPUModuleOp,
                                                  const GPUTarget &) {
  return llvm::createStringError(
      "expected an LLVM with the NVPTX target, got one without");
}
#else

static llvm::Expected<std::unique_ptr<llvm::TargetMachine>>
createMachine(const GPUTarget &target) {
  static const bool initialised = [] {
    LLVMInitializeNVPTXTargetInfo();
    LLVMInitializeNVPTXTarget();
    LLVMInitializeNVPTXTargetMC();
    LLVMInitializeNVPTXAsmPrinter();
    return true;
  }();
  (void)initialised;
  // LLVM would only mumble about a name that it does not know.
  auto refuse = [&] {
    return llvm::createStringError("expected a GPU such as sm_80 or sm_90a, "
                                   "got '" +
                                   target.chip + "'");
  };
  if (!llvm::StringRef(target.chip).starts_with("sm_"))
    return refuse();
  llvm::Triple triple("nvptx64-nvidia-cuda");
  std::string error;
  const llvm::Target *found = llvm::TargetRegistry::lookupTarget(triple, error);
  if (!found)
    return llvm::createStringError(error);
  std::optional<llvm::CodeGenOptLevel> level =
      llvm::CodeGenOpt::getLevel(target.optLevel);
  if (!level)
    return llvm::createStringError(
        "expected an optimisation level of 0 to 3, got " +
        llvm::Twine(target.optLevel));
  // As on the processor: two operations are one only where the IR says fma.
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Strict;
  std::unique_ptr<llvm::TargetMachine> machine(
      found->createTargetMachine(triple, target.chip, features, options,
                                 std::nullopt, std::nullopt, *level));
  if (!machine || !machine->getMCSubtargetInfo()->isCPUStringValid(target.chip))
    return refuse();
  return machine;
}

static void optimize(llvm::Module &module, llvm::TargetMachine &machine,
                     unsigned level) {
  // Kernels come unrolled. A step peeled from a loop writes its first sums
  // between wgmma.fence and wgmma, and ptxas then runs all products one by one.
  llvm::PipelineTuningOptions tuning;
  tuning.LoopUnrolling = false;
  llvm::PassBuilder builder(&machine, tuning);
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager components;
  llvm::ModuleAnalysisManager modules;
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(components);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, components, modules);
  const llvm::OptimizationLevel levels[] = {
      llvm::OptimizationLevel::O0, llvm::OptimizationLevel::O1,
      llvm::OptimizationLevel::O2, llvm::OptimizationLevel::O3};
  llvm::ModulePassManager passes =
      level == 0 ? builder.buildO0DefaultPipeline(levels[0])
                 : builder.buildPerModuleDefaultPipeline(levels[level]);
  passes.run(module, modules);
}

llvm::Expected<std::string> moira::translateToPTX(mlir::gpu::GPUModuleOp module,
                                                  const GPUTarget &target) {
  llvm::Expected<std::unique_ptr<llvm::TargetMachine>> machine =
      createMachine(target);
  if (!machine)
    return machine.takeError();
  mlir::MLIRContext *context = module.getContext();
  mlir::DialectRegistry registry;
  mlir::registerBuiltinDialectTranslation(registry);
  mlir::registerGPUDialectTranslation(registry);
  mlir::registerLLVMDialectTranslation(registry);
  mlir::registerNVVMDialectTranslation(registry);
  context->appendDialectRegistry(registry);

  // Ops that are inline assembly below NVVM.
  mlir::OwningOpRef<mlir::gpu::GPUModuleOp> copy = module.clone();
  mlir::PassManager manager(context,
                            mlir::gpu::GPUModuleOp::getOperationName());
  manager.addPass(mlir::createConvertNVVMToLLVMPass());
  if (mlir::failed(manager.run(*copy)))
    return llvm::createStringError("expected a GPU module of the NVVM dialect, "
                                   "got another");
  llvm::LLVMContext llvmContext;
  std::unique_ptr<llvm::Module> translated =
      mlir::translateModuleToLLVMIR(*copy, llvmContext);
  if (!translated)
    return llvm::createStringError(
        "expected a GPU module that translates to LLVM IR, got another");
  translated->setTargetTriple((*machine)->getTargetTriple());
  translated->setDataLayout((*machine)->createDataLayout());
  optimize(*translated, **machine, target.optLevel);

  llvm::SmallString<0> text;
  llvm::raw_svector_ostream stream(text);
  llvm::legacy::PassManager passes;
  if ((*machine)->addPassesToEmitFile(passes, stream, nullptr,
                                      llvm::CodeGenFileType::AssemblyFile))
    return llvm::createStringError(
        "expected a code generator that writes PTX, got another");
  passes.run(*translated);
  return text.str().str();
}
#endif
