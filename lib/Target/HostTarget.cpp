// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "moira/Target/HostTarget.h"

#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Analysis/TargetLibraryInfo.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/MC/MCSubtargetInfo.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/SmallVectorMemoryBuffer.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/TargetParser/Host.h"
#include "llvm/TargetParser/X86TargetParser.h"
#include "llvm/Transforms/IPO/Internalize.h"

#include <mutex>

using namespace moira;

//===----------------------------------------------------------------------===//
// Processors
//===----------------------------------------------------------------------===//

static const llvm::Triple &hostTriple() {
  static const llvm::Triple triple(llvm::sys::getProcessTriple());
  return triple;
}

/// The code generator of this machine's family, initialised once.
static llvm::Expected<const llvm::Target *> findTarget() {
  static std::once_flag once;
  std::call_once(once, [] {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
  });
  std::string error;
  if (const auto *target =
          llvm::TargetRegistry::lookupTarget(hostTriple(), error))
    return target;
  return llvm::createStringError(error);
}

static std::unique_ptr<llvm::MCSubtargetInfo>
makeSubtarget(const llvm::Target &target, llvm::StringRef cpu,
              llvm::StringRef features) {
  return std::unique_ptr<llvm::MCSubtargetInfo>(
      target.createMCSubtargetInfo(hostTriple(), cpu, features));
}

/// Whether code can be made for the processor: some names that LLVM knows are
/// of 32-bit processors.
static bool isUsable(llvm::StringRef cpu) {
  return !hostTriple().isX86() ||
         llvm::X86::parseArchX86(cpu, /*Only64Bit=*/true) != llvm::X86::CK_None;
}

std::vector<std::string> moira::listProcessors() {
  std::vector<std::string> names;
  llvm::Expected<const llvm::Target *> target = findTarget();
  if (!target) {
    llvm::consumeError(target.takeError());
    return names;
  }
  auto subtarget = makeSubtarget(**target, "", "");
  for (const auto &processor : subtarget->getAllProcessorDescriptions())
    if (isUsable(processor.Key))
      names.push_back(processor.Key);
  return names;
}

static llvm::Error unknownProcessor(llvm::StringRef cpu) {
  std::string nearest;
  unsigned best = 3;
  for (const std::string &name : listProcessors()) {
    unsigned distance = cpu.edit_distance(name, true, best);
    if (distance < best) {
      best = distance;
      nearest = name;
    }
  }
  std::string examples =
      hostTriple().isX86() ? " (x86-64-v3, x86-64-v4, znver4, ...)" : "";
  std::string hint =
      nearest.empty() ? "" : "; the nearest name is '" + nearest + "'";
  return llvm::createStringError("expected 'host' or a processor that LLVM "
                                 "knows for " +
                                 hostTriple().getArchName() + examples +
                                 ", got '" + cpu + "'" + hint);
}

/// Fills in what the machine itself has; a hypervisor may hide features that
/// the processor's name stands for.
static void describeHost(HostProcessor &processor) {
  llvm::StringMap<bool> found = llvm::sys::getHostCPUFeatures();
  std::vector<std::string> has, codegen;
  for (const auto &feature : found) {
    codegen.push_back((feature.second ? "+" : "-") + feature.getKey().str());
    if (feature.second)
      has.push_back(codegen.back());
  }
  // The map's order changes; the strings are part of cache keys.
  llvm::sort(has);
  llvm::sort(codegen);
  processor.features = llvm::join(has, ",");
  processor.codegenFeatures = llvm::join(codegen, ",");
}

static void describeNamed(HostProcessor &processor,
                          const llvm::MCSubtargetInfo &subtarget) {
  std::vector<std::string> has;
  if (hostTriple().isX86()) {
    // The list leaves out what others in it imply.
    llvm::SmallVector<llvm::StringRef> listed;
    llvm::X86::getFeaturesForCPU(processor.cpu, listed);
    llvm::StringMap<bool> features;
    for (llvm::StringRef feature : listed) {
      features[feature] = true;
      llvm::X86::updateImpliedFeatures(feature, /*Enabled=*/true, features);
    }
    for (const auto &feature : features)
      if (feature.second)
        has.push_back("+" + feature.getKey().str());
  } else {
    for (const auto &feature : subtarget.getEnabledProcessorFeatures())
      has.push_back(std::string("+") + feature.Key);
  }
  llvm::sort(has);
  processor.features = llvm::join(has, ",");
}

llvm::Expected<HostProcessor> moira::resolveProcessor(llvm::StringRef cpu) {
  llvm::Expected<const llvm::Target *> target = findTarget();
  if (!target)
    return target.takeError();
  bool isHost = cpu == "host";
  HostProcessor processor;
  processor.triple = hostTriple().str();
  processor.cpu = isHost ? llvm::sys::getHostCPUName().str() : cpu.str();
  auto probe = makeSubtarget(**target, "", "");
  if (!isHost && (!probe->isCPUStringValid(cpu) || !isUsable(cpu)))
    return unknownProcessor(cpu);
  if (isHost)
    describeHost(processor);
  else
    describeNamed(processor, *makeSubtarget(**target, processor.cpu, ""));

  llvm::StringSet<> has;
  for (llvm::StringRef feature : llvm::split(processor.features, ','))
    has.insert(feature);
  processor.vectorBits = has.contains("+avx512f")                        ? 512
                         : has.contains("+avx") || has.contains("+avx2") ? 256
                                                                         : 128;
  // Processors with AMX leave bf16 to it: their vectors do one dot product in
  // the time of four multiply-adds of as many elements of f32.
  processor.dotBF16 = processor.vectorBits == 512 &&
                      has.contains("+avx512bf16") && !has.contains("+amx-bf16");
  // Measured: its software prefetches to the second level are lost where many
  // lines are under way, those to the first are kept more often.
  processor.prefetchLevel = processor.cpu == "znver5" ? 1 : 2;
  return processor;
}

//===----------------------------------------------------------------------===//
// Code
//===----------------------------------------------------------------------===//

HostTarget::HostTarget(std::unique_ptr<llvm::TargetMachine> machine,
                       unsigned vectorBits, unsigned optLevel)
    : machine(std::move(machine)), vectorBits(vectorBits), optLevel(optLevel) {}
HostTarget::~HostTarget() = default;

llvm::Expected<std::unique_ptr<HostTarget>>
HostTarget::create(const HostProcessor &processor, unsigned optLevel) {
  llvm::Expected<const llvm::Target *> target = findTarget();
  if (!target)
    return target.takeError();
  std::optional<llvm::CodeGenOptLevel> level =
      llvm::CodeGenOpt::getLevel(optLevel);
  if (!level)
    return llvm::createStringError(
        "expected an optimisation level of 0 to 3, got " +
        llvm::Twine(optLevel));
  // Rounding is part of a program's meaning: two operations are one only where
  // the IR says fma.
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Strict;
  std::unique_ptr<llvm::TargetMachine> machine((*target)->createTargetMachine(
      hostTriple(), processor.cpu, processor.codegenFeatures, options,
      llvm::Reloc::PIC_, std::nullopt, *level));
  if (!machine)
    return llvm::createStringError("expected a code generator for " +
                                   hostTriple().str() + ", got none");
  return std::unique_ptr<HostTarget>(
      new HostTarget(std::move(machine), processor.vectorBits, optLevel));
}

llvm::Expected<std::unique_ptr<llvm::Module>>
HostTarget::translate(mlir::ModuleOp module, llvm::LLVMContext &context) const {
  mlir::DialectRegistry registry;
  mlir::registerBuiltinDialectTranslation(registry);
  mlir::registerLLVMDialectTranslation(registry);
  module.getContext()->appendDialectRegistry(registry);
  std::unique_ptr<llvm::Module> translated =
      mlir::translateModuleToLLVMIR(module, context);
  if (!translated)
    return llvm::createStringError(
        "expected a module that translates to LLVM IR, got another");
  translated->setTargetTriple(machine->getTargetTriple());
  translated->setDataLayout(machine->createDataLayout());
  translated->setPICLevel(llvm::PICLevel::BigPIC);
  for (llvm::Function &function : *translated) {
    if (function.isDeclaration())
      continue;
    function.addFnAttr("target-cpu", machine->getTargetCPU());
    function.addFnAttr("target-features", machine->getTargetFeatureString());
    function.addFnAttr("prefer-vector-width", llvm::utostr(vectorBits));
  }
  return translated;
}

static llvm::OptimizationLevel passLevel(unsigned level) {
  switch (level) {
  case 0:
    return llvm::OptimizationLevel::O0;
  case 1:
    return llvm::OptimizationLevel::O1;
  case 2:
    return llvm::OptimizationLevel::O2;
  default:
    return llvm::OptimizationLevel::O3;
  }
}

void HostTarget::optimize(llvm::Module &module,
                          llvm::ArrayRef<std::string> exported) const {
  llvm::StringSet<> keep;
  for (const std::string &name : exported)
    keep.insert(name);
  llvm::internalizeModule(module, [&](const llvm::GlobalValue &value) {
    return keep.contains(value.getName());
  });

  // Register tiles come unrolled and vectorised; trying to do more with them
  // takes a third of the time and gains nothing.
  llvm::PipelineTuningOptions tuning;
  tuning.LoopVectorization = optLevel > 1;
  tuning.LoopUnrolling = false;
  tuning.SLPVectorization = false;
  llvm::PassBuilder builder(machine.get(), tuning);
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager components;
  llvm::ModuleAnalysisManager modules;
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(components);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, components, modules);
  llvm::OptimizationLevel level = passLevel(optLevel);
  llvm::ModulePassManager passes =
      optLevel == 0 ? builder.buildO0DefaultPipeline(level)
                    : builder.buildPerModuleDefaultPipeline(level);
  passes.run(module, modules);
}

llvm::Expected<std::unique_ptr<llvm::MemoryBuffer>>
HostTarget::emit(llvm::Module &module, Output output) const {
  llvm::SmallVector<char, 0> bytes;
  llvm::raw_svector_ostream stream(bytes);
  llvm::legacy::PassManager passes;
  llvm::CodeGenFileType type = output == Output::Object
                                   ? llvm::CodeGenFileType::ObjectFile
                                   : llvm::CodeGenFileType::AssemblyFile;
  if (machine->addPassesToEmitFile(passes, stream, nullptr, type))
    return llvm::createStringError(
        "expected a code generator that writes this kind of file, got " +
        hostTriple().str());
  passes.run(module);
  return std::make_unique<llvm::SmallVectorMemoryBuffer>(
      std::move(bytes), module.getName(), /*RequiresNullTerminator=*/false);
}
